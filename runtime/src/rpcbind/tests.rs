//! Tests against an rpcbind of our own, which answers as a test wants. The crate of tests runs against the real one.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use super::*;

const NFS: Program = Program { program: 100_003, version: 4 };

/// Answers each call on one connection with the next of `answers`, marks included, and then hangs up. Returns the
/// calls.
fn serve(listener: &TcpListener, answers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = Vec::new();
    for answer in answers {
        asked.push(record(&mut stream));
        stream.write_all(answer).unwrap();
    }
    asked
}

fn record(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mark = u32::from_be_bytes(mark);
    assert_eq!(mark >> 31, 1, "one fragment");
    let mut call = vec![0; (mark & 0x7fff_ffff) as usize];
    stream.read_exact(&mut call).unwrap();
    call
}

fn listen() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
    (listener, endpoint)
}

/// Runs `client` against connections that are answered with these replies. Returns its result, and the calls on each
/// connection.
fn with<T>(
    connections: &[&[Vec<u8>]],
    client: impl FnOnce(&Rpcbind) -> T,
) -> (T, Vec<Vec<Vec<u8>>>) {
    let (listener, endpoint) = listen();
    let at = listener.local_addr().unwrap();
    thread::scope(|threads| {
        let fake = threads.spawn(|| {
            connections.iter().map(|answers| serve(&listener, answers)).collect::<Vec<_>>()
        });
        let result = client(&Rpcbind::at(vec![endpoint], LONG));
        // A client that made fewer connections leaves the server waiting: these connections end that.
        connections.iter().for_each(|_| drop(TcpStream::connect(at)));
        (result, fake.join().unwrap())
    })
}

/// Returns the record of a Reply with these words behind its XID.
fn reply(words: &[u32]) -> Vec<u8> {
    fragment(true, &message(words))
}

fn message(words: &[u32]) -> Vec<u8> {
    let all = [&[0x7270_6362, 1], words].concat();
    all.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn fragment(last: bool, octets: &[u8]) -> Vec<u8> {
    let mark = u32::try_from(octets.len()).unwrap() | u32::from(last) << 31;
    [&mark.to_be_bytes(), octets].concat()
}

const TRUE: [u32; 5] = [0, 0, 0, 0, 1];
const FALSE: [u32; 5] = [0, 0, 0, 0, 0];
const VERSION_3_ONLY: [u32; 6] = [0, 0, 0, 2, 3, 3];

/// Returns the words of a string.
fn string(text: &str) -> Vec<u32> {
    let padded = text.bytes().chain([0; 3]).collect::<Vec<_>>();
    let words = padded.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    [u32::try_from(text.len()).unwrap()].into_iter().chain(words).collect()
}

/// Returns the version and the procedure of a call.
fn asked(call: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
    assert_eq!([word(4), word(8), word(12)], [0, 2, 100_000]);
    (word(16), word(20))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_service_is_registered_under_the_netid_of_its_address() {
    for (at, netid, text) in [
        ("192.0.2.7:20049", "\0\0\0\x04rdma", "\0\0\0\x0f192.0.2.7.78.81\0"),
        ("[2001:db8::7]:20049", "\0\0\0\x05rdma6\0\0\0", "\0\0\0\x112001:db8::7.78.81\0\0\0"),
    ] {
        let set = |rpcbind: &Rpcbind| rpcbind.set(NFS, Netid::of(address(at).ip()), address(at));
        let (done, calls) = with(&[&[reply(&TRUE)]], set);
        done.unwrap();
        assert_eq!(asked(&calls[0][0]), (4, 1));
        let (netid, text) = (netid.as_bytes(), text.as_bytes());
        let expected = [b"\0\x01\x86\xa3\0\0\0\x04", netid, text, b"\0\0\0\0"].concat();
        assert_eq!(calls[0][0][40..], expected);
    }
}

#[test]
fn registering_replaces_what_was_left_behind() {
    let at = address("192.0.2.7:20049");
    for unset in [TRUE, FALSE] {
        let (done, calls) = with(&[&[reply(&unset)], &[reply(&TRUE)]], |rpcbind| {
            rpcbind.register(NFS, at, Need::Required)
        });
        assert!(matches!(done, Ok(Registered::Yes)));
        assert_eq!([asked(&calls[0][0]), asked(&calls[1][0])], [(4, 2), (4, 1)]);
    }
    let (done, _) = with(&[&[reply(&FALSE)], &[reply(&FALSE)]], |rpcbind| {
        rpcbind.register(NFS, at, Need::Optional)
    });
    let said = done.unwrap_err().to_string();
    assert_eq!(said, "program 100003 version 4 is registered for rdma already, at another address");
    let (done, _) = with(&[&[reply(&FALSE)]], |rpcbind| rpcbind.unset(NFS, Netid::Rdma6));
    let said = done.unwrap_err().to_string();
    assert_eq!(said, "program 100003 version 4 was registered for rdma6 by another user");
}

#[test]
fn absence_is_said_clearly_and_fails_only_where_it_must_not_be() {
    // Nobody can listen at port 0.
    let endpoint = Endpoint::Tcp(address("127.0.0.1:0"));
    let nowhere = Endpoint::Local("/proc/self/absent".into());
    let rpcbind = Rpcbind::at(vec![nowhere, endpoint.clone()], LONG);
    let said = format!("there is no rpcbind: nobody listens at /proc/self/absent or {endpoint}");
    let at = address("192.0.2.7:20049");
    let Ok(Registered::Absent(fault)) = rpcbind.register(NFS, at, Need::Optional) else {
        panic!("it is absent")
    };
    assert_eq!(fault.to_string(), said);
    let fault = rpcbind.register(NFS, at, Need::Required).unwrap_err();
    assert_eq!(fault.to_string(), said);
    let fault = rpcbind.unset(NFS, Netid::Rdma).unwrap_err();
    assert!(matches!(fault, Fault::Absent(endpoints) if endpoints.len() == 2));
    let fault = rpcbind.look_up(NFS, Netid::Rdma).unwrap_err();
    assert!(matches!(fault, Fault::Absent(_)));
    let local = Rpcbind::at(vec![Endpoint::Local("/proc/self/absent".into())], LONG);
    assert!(local.get_addr(NFS).unwrap_err().to_string().contains("no address of one is named"));
}

#[test]
fn the_first_endpoint_that_listens_is_asked() {
    let (listener, endpoint) = listen();
    let endpoints = vec![
        Endpoint::Local("/proc/self/absent".into()),
        endpoint,
        Endpoint::Tcp(address("127.0.0.1:0")),
    ];
    let (done, calls) = thread::scope(|threads| {
        let fake = threads.spawn(|| serve(&listener, &[reply(&TRUE)]));
        (Rpcbind::at(endpoints, LONG).unset(NFS, Netid::Rdma), fake.join().unwrap())
    });
    done.unwrap();
    assert_eq!(calls.len(), 1);
}

#[test]
fn version_3_is_spoken_with_those_who_speak_nothing_newer() {
    let answers = [reply(&VERSION_3_ONLY), reply(&TRUE)];
    let (done, calls) = with(&[&answers], |rpcbind| rpcbind.unset(NFS, Netid::Rdma));
    done.unwrap();
    assert_eq!([asked(&calls[0][0]), asked(&calls[0][1])], [(4, 2), (3, 2)]);
    let neither = [reply(&VERSION_3_ONLY), reply(&VERSION_3_ONLY)];
    let (done, _) = with(&[&neither], |rpcbind| rpcbind.unset(NFS, Netid::Rdma));
    assert!(matches!(done, Err(Fault::Unsupported)));
    // Version 3 has no GETVERSADDR.
    let (done, calls) = with(&[&[reply(&VERSION_3_ONLY)]], |rpcbind| rpcbind.get_vers_addr(NFS));
    assert!(matches!(done, Err(Fault::Unsupported)));
    assert_eq!(asked(&calls[0][0]), (4, 9));
}

#[test]
fn a_service_is_found_by_program_version_and_netid() {
    let entry = |version: u32, netid: &str, address: &str| {
        let strings = [string(netid), string(address), string("")];
        [vec![1, 100_003, version], strings.concat()].concat()
    };
    let list = [
        vec![0, 0, 0, 0],
        entry(3, "rdma", "10.0.0.3.78.8"),
        entry(4, "tcp4", "10.0.0.4.78.8"),
        entry(4, "rdma", "10.0.0.1.78.8"),
        entry(4, "rdma", "10.0.0.2.78.8"),
        entry(5, "rdma", "0.0.0.0.78.81"),
        entry(6, "rdma", "not an address!!"),
        vec![0],
    ]
    .concat();
    let find = |version, netid| {
        let (found, calls) =
            with(&[&[reply(&list)]], |rpcbind| rpcbind.look_up(Program { version, ..NFS }, netid));
        assert_eq!(asked(&calls[0][0]), (4, 4));
        found
    };
    assert_eq!(find(4, Netid::Rdma).unwrap(), Some(address("10.0.0.1:19976")));
    assert_eq!(find(4, Netid::Rdma6).unwrap(), None);
    assert_eq!(find(7, Netid::Rdma).unwrap(), None);
    // A service registered at the wildcard address is found at the address of the rpcbind that was asked.
    assert_eq!(find(5, Netid::Rdma).unwrap(), Some(address("127.0.0.1:20049")));
    assert!(matches!(find(6, Netid::Rdma), Err(Fault::Malformed)));
    let (all, _) = with(&[&[reply(&list)]], Rpcbind::dump);
    assert_eq!(all.unwrap().len(), 6);
}

#[test]
fn an_address_over_tcp_is_found_or_is_not() {
    let found = |text| [vec![0, 0, 0, 0], string(text)].concat();
    type Ask = fn(&Rpcbind, Program) -> Result<Option<SocketAddr>, Fault>;
    let asks: [(Ask, u32); 2] = [(Rpcbind::get_addr, 3), (Rpcbind::get_vers_addr, 9)];
    for (ask, procedure) in asks {
        let (at, calls) = with(&[&[reply(&found("10.0.0.1.8.1"))]], |rpcbind| ask(rpcbind, NFS));
        assert_eq!(at.unwrap(), Some(address("10.0.0.1:2049")));
        assert_eq!(asked(&calls[0][0]), (4, procedure));
        let (at, _) = with(&[&[reply(&found(""))]], |rpcbind| ask(rpcbind, NFS));
        assert_eq!(at.unwrap(), None);
        let (at, _) = with(&[&[reply(&found("nowhere!"))]], |rpcbind| ask(rpcbind, NFS));
        assert!(matches!(at, Err(Fault::Malformed)));
    }
}

#[test]
fn a_reply_may_come_in_fragments() {
    let whole = message(&TRUE);
    let (head, tail) = whole.split_at(9);
    let pieces = [fragment(false, head), fragment(false, &[]), fragment(true, tail)].concat();
    let (done, _) = with(&[&[pieces]], |rpcbind| rpcbind.unset(NFS, Netid::Rdma));
    done.unwrap();
}

#[test]
fn what_is_no_reply_is_malformed() {
    let too_long = u32::try_from(REPLY_MAX).unwrap() + 1;
    let long = (too_long | 1 << 31).to_be_bytes().to_vec();
    let sum = [fragment(false, &[0; 64]), (too_long - 64).to_be_bytes().to_vec()].concat();
    let behind = reply(&[0, 0, 0, 0, 1, 0]);
    for answer in [long, sum, behind, reply(&[0, 0, 0, 0, 2]), fragment(true, b"")] {
        let (done, _) = with(&[&[answer]], |rpcbind| rpcbind.unset(NFS, Netid::Rdma));
        assert!(matches!(done, Err(Fault::Malformed)), "{done:?}");
    }
}

#[test]
fn a_connection_that_ends_early_is_named() {
    let (done, _) =
        with(&[&[b"\x80\0\0\x1c\0\0".to_vec()]], |rpcbind| rpcbind.unset(NFS, Netid::Rdma));
    let Err(Fault::Io(Endpoint::Tcp(_), error)) = done else { panic!("{done:?}") };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn silence_ends_with_the_time() {
    // Nobody accepts, and nobody answers.
    let (listener, endpoint) = listen();
    let rpcbind = Rpcbind::at(vec![endpoint.clone()], Duration::from_millis(20));
    let said = rpcbind.unset(NFS, Netid::Rdma).unwrap_err().to_string();
    assert_eq!(said, format!("rpcbind at {endpoint} did not answer in time"));
    // A timeout of zero ends before the first octet.
    let over = Rpcbind::at(vec![endpoint], Duration::ZERO).unset(NFS, Netid::Rdma);
    assert!(matches!(over, Err(Fault::TimedOut(_))));
    drop(listener);
}
