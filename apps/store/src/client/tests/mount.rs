//! Tests of mounting, from servers with scripted answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::{Builder, JoinHandle};

use haulage::identity::{Identity, User};
use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{AcceptStat, CallHeader, RejectStat, ReplyBody, ReplyHeader};

use super::super::mount::{Refusal, Way};
use super::*;
use crate::codec::ListWriter;
use crate::mount3::{self, Arguments, Export, Flavors, Mounted, Results};

/// The answers of a server to one Call after another; `None` closes the connection.
type Answers = Vec<(ReplyBody, Vec<u8>)>;

/// The number added to the XID of each Reply.
const HONEST: u32 = 0;

const SUCCESS: ReplyBody = ReplyBody::Accepted(AcceptStat::Success);

/// Starts a server for one connection. Returns where, and in the end what it was asked.
fn serve(answers: Answers, off: u32) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        for (body, results) in answers {
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).unwrap();
            let mut record = vec![0; Mark::decode(mark).length() as usize];
            stream.read_exact(&mut record).unwrap();
            let (header, start) = CallHeader::decode(&record).unwrap();
            let mut reader = PayloadReader::call(&record[start..], 0, None);
            let procedure = mount3::Procedure::from_number(header.procedure).unwrap();
            let arguments = Arguments::decode(procedure, &mut reader).unwrap();
            let Credential::Sys(sys) = header.credential else { panic!("{header:?}") };
            asked.push(format!("{}: {arguments:?}", sys.uid));
            let header = ReplyHeader { xid: header.xid + off, body };
            let reply = [written(|w| header.encode(w)), results].concat();
            let mark = Mark::last(u32::try_from(reply.len()).unwrap()).unwrap();
            stream.write_all(&[&mark.encode(), &reply[..]].concat()).unwrap();
        }
        asked
    };
    (at, Builder::new().spawn(serve).unwrap())
}

fn try_mount(answers: Answers) -> (Result<File, Refusal>, Vec<String>) {
    mount_of(serve(answers, HONEST))
}

fn mount_of(
    (at, server): (SocketAddr, JoinHandle<Vec<String>>),
) -> (Result<File, Refusal>, Vec<String>) {
    let us = Identity::User(User::new("tests", 1000, 1000, &[]));
    let way = Way::tcp(at, &us, Duration::from_secs(10));
    let outcome = way.map_err(Refusal::from).and_then(|mut way| way.mount(b"/exp"));
    (outcome, server.join().unwrap())
}

fn mounted(flavors: &[u32]) -> Vec<u8> {
    let root = FileHandle::new(b"the root").unwrap();
    let mut octets =
        written(|w| Results::Mnt(Ok(Mounted { root, flavors: Flavors::SYS })).encode(w));
    octets.truncate(octets.len() - 8);
    let count = u32::try_from(flavors.len()).unwrap();
    octets.extend([count].iter().chain(flavors).flat_map(|word| word.to_be_bytes()));
    octets
}

#[test]
fn the_root_is_returned_and_the_server_told_that_it_can_forget_us() {
    for flavors in [&[1][..], &[390_003, 1], &[0], &[]] {
        let answers = vec![(SUCCESS, mounted(flavors)), (SUCCESS, vec![])];
        let (root, asked) = try_mount(answers);
        assert_eq!(root.unwrap().handle().bytes(), b"the root");
        assert_eq!(asked, ["1000: Mnt(Path(\"/exp\"))", "1000: Umnt(Path(\"/exp\"))"]);
    }
}

#[test]
fn a_server_that_hangs_up_on_the_farewell_is_mounted_all_the_same() {
    assert!(try_mount(vec![(SUCCESS, mounted(&[1]))]).0.is_ok());
}

#[test]
fn a_refusal_says_what_there_is_instead() {
    let refused = written(|w| Results::Mnt(Err(mount3::Status::Acces)).encode(w));
    let mut room = [0; 256];
    let mut list = ListWriter::new(&mut room);
    for path in ["/srv", "/home"] {
        let hosts = crate::codec::List::EMPTY;
        assert!(list.push(&Export { path: mount3::Path(path.as_bytes()), hosts }));
    }
    let exports = written(|w| Results::Export(list.finish()).encode(w));
    let (refusal, asked) = try_mount(vec![(SUCCESS, refused.clone()), (SUCCESS, exports)]);
    assert_eq!(refusal.unwrap_err().to_string(), "not exported to us; it exports /srv, /home");
    assert_eq!(asked[1], "1000: Export");
    // A server need not say what it exports.
    let (refusal, _) = try_mount(vec![(SUCCESS, refused)]);
    assert_eq!(refusal.unwrap_err().to_string(), "not exported to us");
}

#[test]
fn every_other_answer_is_a_refusal_too() {
    let accepted = ReplyBody::Accepted;
    for (body, results, says) in [
        (SUCCESS, mounted(&[390_003, 390_004]), "Kerberos"),
        (accepted(AcceptStat::ProgUnavail), vec![], "does not serve"),
        (accepted(AcceptStat::ProgMismatch { low: 1, high: 1 }), vec![], "does not serve"),
        (accepted(AcceptStat::SystemErr), vec![], "not one of a MOUNT service"),
        (ReplyBody::Denied(RejectStat::AuthError(1)), vec![], "denied"),
        (SUCCESS, vec![0, 0, 0, 0], "not one of a MOUNT service"),
        (SUCCESS, vec![0, 0, 0, 99], "not one of a MOUNT service"),
    ] {
        let (refusal, _) = try_mount(vec![(body, results)]);
        let text = refusal.unwrap_err().to_string();
        assert!(text.contains(says), "{body:?}: {text}");
    }
    let (refusal, _) = mount_of(serve(vec![(SUCCESS, mounted(&[1]))], 1));
    assert!(matches!(refusal, Err(Refusal::Malformed)), "another Call's: {refusal:?}");
    let (refusal, _) = try_mount(vec![]);
    assert!(matches!(refusal, Err(Refusal::Io(_))), "{refusal:?}");
}
