//! Replies for which their Requesters have too little room, whatever they consist of.
//!
//! A list of names ends where its Reply does. Everything else is refused with the length of the whole Reply on version 2,
//! and with `ERR_CHUNK` on version 1.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc;

use haulage::core::NoService;
use haulage::cores::CoreThread;
use haulage::limits::LIMITS_DEFAULT;
use haulage_kv::client::{Client as KvClient, ClientError};
use haulage_kv::index::Seed;
use haulage_kv::protocol::{self as kv, Key, Procedure as KvProcedure};
use haulage_kv::service::KvService;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AuthSys, Credential};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Segment};
use haulage_proto::xdr::Writer;
use haulage_store::access::{Policy, Squash};
use haulage_store::client::File;
use haulage_store::handle::Sealer;
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::arguments::{Create, How, ReadDir, ReadDirPlus};
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{
    self, Arguments, DirName, Name, Procedure, Results, SetAttributes, Time,
};
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::Gate;
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Call, Config, Service, Surroundings};
use haulage_store::trust::Trust;

use haulage_tests::ends::{client_within, server_of};

use super::two::{self, CALL_INLINE, ERROR, REPLY_EXTERNAL, REPLY_INLINE};
use super::{Keeper, LIST, MSG, NOMSG, PROGRAM, Peer, message, octets, segment, terse_server_of};

/// A client that makes one Call at a time.
enum Client {
    One(Peer),
    Two(two::Peer),
}

/// The answer to a Call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The results, in octets.
    Results(Vec<u8>),
    /// The Reply has too little room: it takes as many octets as version 2 says.
    Needs(Option<u32>),
}

impl Client {
    /// Connects with version 2. The client takes messages of at most `message_max` octets.
    fn two(server: SocketAddr, message_max: u32) -> Self {
        Self::Two(two::Peer::saying(server, &[1, 2, 4, message_max]))
    }

    /// Makes a Call with a Reply chunk of `room` octets, or without one.
    fn call(&mut self, to: [u32; 3], arguments: &[u8], room: Option<u32>) -> Answer {
        let [program, version, procedure] = to;
        let rpc = octets(&[XID, 0, 2, program, version, procedure, 0, 0, 0, 0]);
        let rpc = [&rpc[..], arguments].concat();
        let link = match self {
            Self::One(Peer(link)) | Self::Two(two::Peer(link)) => link,
        };
        let expose = |length: u32| link.expose(&[], length as usize, Access::RemoteWrite).unwrap();
        let exposed = room.map(expose);
        let chunk = match exposed {
            Some(exposed) => [&[1, 1][..], &segment(exposed)].concat(),
            None => vec![0],
        };
        let words = match self {
            Self::One(Peer(link)) => {
                let lists = [&[0, 0][..], &chunk].concat();
                link.send(&message(XID, MSG, &lists, &rpc)).unwrap();
                two::words(&link.message(None).unwrap().unwrap())
            }
            Self::Two(peer) => {
                let lists = [&[0, 0, 0][..], &chunk].concat();
                peer.0.send(&two::message(XID, CALL_INLINE, &lists, &rpc)).unwrap();
                peer.next()
            }
        };
        assert_eq!(words[0], XID);
        let stream = match (words[1], words[3], &words[4..]) {
            (1, 4, [2]) => return Answer::Needs(None),
            (2, ERROR, [10, needed]) => return Answer::Needs(Some(*needed)),
            (1, MSG, [0, 0, 0, stream @ ..]) | (2, REPLY_INLINE, [0, stream @ ..]) => {
                octets(stream)
            }
            (1, NOMSG, [0, 0, 1, 1, handle, length, ..])
            | (2, REPLY_EXTERNAL, [0, 1, 1, handle, length, ..]) => {
                assert_eq!(exposed.map(|Segment { handle, .. }| handle.0), Some(*handle));
                self.fetched(exposed.unwrap(), *length as usize)
            }
            _ => panic!("neither results nor a want of room: {words:x?}"),
        };
        let results = stream.strip_prefix(&octets(&[XID, 1, 0, 0, 0, 0])[..]);
        Answer::Results(results.expect("results, whatever room there is").to_vec())
    }

    /// Returns the octets at the start of an exposed lease, which the server has filled.
    fn fetched(&mut self, exposed: Segment, length: usize) -> Vec<u8> {
        let (Self::One(Peer(link)) | Self::Two(two::Peer(link))) = self;
        link.retire(exposed.handle).unwrap().bytes()[..length].to_vec()
    }

    fn close(self) {
        let (Self::One(Peer(link)) | Self::Two(two::Peer(link))) = self;
        link.close().unwrap();
    }
}

const XID: u32 = 7;

/// Octets of the RPC header of a Reply.
const HEADER: u32 = 24;

/// Has a Call refused for want of room, and makes it again with as much room as it needs.
fn obey(client: &mut Client, to: [u32; 3], arguments: &[u8]) {
    // [V2-7.3.5-1] [V2-7.3.5-2]
    let Answer::Needs(Some(needed)) = client.call(to, arguments, None) else {
        panic!("{to:?} has room")
    };
    let less = client.call(to, arguments, Some(needed - 4));
    assert_eq!(less, Answer::Needs(Some(needed)), "{to:?}");
    match client.call(to, arguments, Some(needed)) {
        Answer::Results(results) => assert_eq!(results.len(), (needed - HEADER) as usize, "{to:?}"),
        needs @ Answer::Needs(_) => panic!("{to:?} {needs:?}, and had {needed}"),
    }
}

#[test]
fn results_that_are_no_items_need_room_as_items_do() {
    let server = terse_server_of(|_| Keeper::default());
    let list = [PROGRAM, 1, LIST];
    obey(&mut Client::two(server.started, 4096), list, &octets(&[5_000]));
    let mut one = Client::One(Peer::connect(server.started));
    for room in [None, Some(5_024)] {
        assert_eq!(one.call(list, &octets(&[5_000]), room), Answer::Needs(None));
    }
    let Answer::Results(results) = one.call(list, &octets(&[5_000]), Some(5_028)) else {
        panic!("there is room")
    };
    assert_eq!(results.len(), 5_004);
    one.close();
    server.stop().unwrap();
}

#[test]
fn the_key_value_service_names_the_room_that_its_replies_need() {
    let server = terse_server_of(|_| KvService::new(8, Seed::fixed(1, 2), 1 << 10, 1 << 20));
    let mut client = Client::two(server.started, 4096);
    let to = |procedure: KvProcedure| [kv::PROGRAM, kv::VERSION, procedure as u32];
    for name in [b'a', b'b'] {
        let arguments = [&octets(&[60])[..], &[name; 60], &octets(&[0])].concat();
        let stored = client.call(to(KvProcedure::Put), &arguments, None);
        assert_eq!(stored, Answer::Results(octets(&[0])));
    }
    client.close();
    let mut client = Client::two(server.started, 100);
    obey(&mut client, to(KvProcedure::Stat), &[]);
    obey(&mut client, to(KvProcedure::Figures), &[]);
    // With room for one key, one is listed.
    let keys = to(KvProcedure::Keys);
    obey(&mut client, keys, &octets(&[0]));
    let both = HEADER + 4 + 2 * (4 + 4 + 60) + 8;
    for (room, listed) in [(both - 4, 1), (both, 2)] {
        let Answer::Results(results) = client.call(keys, &octets(&[0]), Some(room)) else {
            panic!("there is room for a key")
        };
        assert_eq!(results.len(), 4 + listed * (4 + 4 + 60) + 8);
    }
    client.close();
    server.stop().unwrap();
}

#[test]
fn the_key_value_client_gets_values_that_are_longer_than_its_room() {
    let server = server_of(|_| KvService::new(8, Seed::fixed(1, 2), 4 << 20, 8 << 20));
    let binding = haulage_kv::service::binding(4 << 20);
    let mut core = client_within(LIMITS_DEFAULT, || NoService, binding, server.started);
    let mut client = KvClient::new(&mut core.started, None);
    // They come in one message, in several, and in a second Call.
    for length in [99, 100, 101, 3000, 9000, 2_000_000] {
        let value: Vec<u8> = (0..=250).cycle().take(length).collect();
        client.put(Key::new(b"key").unwrap(), &value).unwrap();
        let got = client.get(Key::new(b"key").unwrap(), 100).unwrap();
        assert!(got.bytes() == value, "{length}");
    }
    // A core of 8 MiB has no room for two of these.
    let value = vec![7; 4 << 20];
    client.put(Key::new(b"key").unwrap(), &value).unwrap();
    let held = core.started.lease(4 << 20).unwrap();
    let got = KvClient::new(&mut core.started, None).get(Key::new(b"key").unwrap(), 100);
    let Err(ClientError::Room { needed }) = got else { panic!("{got:?}") };
    assert_eq!(needed, Some(value.len()));
    drop(held);
    core.stop().unwrap();
    server.stop().unwrap();
}

const FILES: usize = 200;

/// Returns the name of a file in the directory that the server has.
fn name(number: usize) -> String {
    format!("a file in a directory, number {number}")
}

/// Starts a server of files. Returns it with their directory.
fn file_server() -> (CoreThread<SocketAddr>, File) {
    let limits = Limits { read_max: 1 << 16, write_max: 1 << 16, readdir_max: 64 << 10 };
    let (tell, told) = mpsc::channel();
    let server = terse_server_of(move |pool| {
        let now = Time::default();
        let files = memory::Limits { files_max: 1000, names_max: 1000 };
        let backend = Memory::new(pool, files, 1, now).unwrap();
        let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
        let config = Config { policy, read_only: false, limits };
        let mut service = Service::new(backend, Sealer::new(&[7; 32], 9), config);
        let root = File::from(service.root().as_file_handle());
        for number in 0..FILES {
            let name = name(number);
            let at = DirName { dir: root.handle(), name: Name(name.as_bytes()) };
            let how = How::Guarded(SetAttributes::default());
            let arguments = Arguments::Create(Create { at, how });
            let credential = Credential::Sys(AuthSys::new(0, b"tests", 0, 0));
            let around = Surroundings { pool, now, clock: Instant::ZERO, arrivals: None };
            service.call(
                around,
                Call { credential, arguments, placed: None, room: usize::MAX, network: 0 },
            );
        }
        tell.send(root).unwrap();
        let kept = replays::Limits::of_memory(256 << 10, RESULTS_KEPT);
        let gate = Gate::new(Admission::default(), Trust::ALL);
        Server::new(service, &limits, gate, Replays::new(&kept, 1))
    });
    let root = told.recv().unwrap();
    (server, root)
}

/// Returns encoded arguments.
fn encoded(arguments: &Arguments<'_>) -> Vec<u8> {
    let mut octets = vec![0; 1024];
    let mut w = Writer::new(&mut octets);
    arguments.encode(&mut w).unwrap();
    w.written().to_vec()
}

const fn to(procedure: Procedure) -> [u32; 3] {
    [nfs3::PROGRAM, nfs3::VERSION, procedure as u32]
}

/// Returns a Call that lists names of a directory, with all the octets that the server gives.
fn listing(procedure: Procedure, root: &File, place: (u64, nfs3::Verifier)) -> Vec<u8> {
    let (dir, (cookie, verifier)) = (root.handle(), place);
    let (count, count_max) = (32 << 10, 32 << 10);
    encoded(&if procedure == Procedure::ReadDir {
        Arguments::ReadDir(ReadDir { dir, cookie, verifier, count })
    } else {
        Arguments::ReadDirPlus(ReadDirPlus { dir, cookie, verifier, count, count_max })
    })
}

/// Lists a directory in as many Calls as it takes. Returns the names, and the number of Calls.
fn list(
    client: &mut Client,
    procedure: Procedure,
    root: &File,
    room: Option<u32>,
) -> (BTreeSet<Vec<u8>>, usize) {
    let (mut names, mut calls, mut place) = (BTreeSet::new(), 0, (0, nfs3::Verifier::default()));
    loop {
        let answer = client.call(to(procedure), &listing(procedure, root, place), room);
        let Answer::Results(results) = answer else { panic!("{procedure:?} {room:?}: {answer:?}") };
        calls += 1;
        let results =
            Results::decode(procedure, &mut PayloadReader::call(&results, 0, None)).unwrap();
        let mut add = |name: Name<'_>, cookie, verifier| {
            assert!(names.insert(name.0.to_vec()), "listed once");
            place = (cookie, verifier);
        };
        let eof = match results {
            Results::ReadDir(Ok(listed)) => {
                listed.names.iter().for_each(|it| add(it.name, it.cookie, listed.verifier));
                listed.eof
            }
            Results::ReadDirPlus(Ok(listed)) => {
                let entries = listed.names.iter().map(|it| it.entry);
                entries.for_each(|it| add(it.name, it.cookie, listed.verifier));
                listed.eof
            }
            other => panic!("{other:?}"),
        };
        if eof {
            return (names, calls);
        }
    }
}

#[test]
fn a_list_of_names_ends_where_its_reply_does() {
    let (server, root) = file_server();
    let own = [b".".to_vec(), b"..".to_vec()];
    let expected: BTreeSet<_> =
        (0..FILES).map(|number| name(number).into_bytes()).chain(own).collect();
    let mut clients =
        [Client::two(server.started, 4096), Client::One(Peer::connect(server.started))];
    for client in &mut clients {
        for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
            // A message has 4096 octets, a Reply chunk more or less.
            for (room, length) in
                [(None, 4096), (Some(512), 4096), (Some(9000), 9000), (Some(40_000), 32 << 10)]
            {
                let (names, calls) = list(client, procedure, &root, room);
                assert_eq!(names, expected);
                let each = if procedure == Procedure::ReadDir { 64 } else { 64 + 88 + 72 };
                assert!(
                    calls <= FILES * each / (length - 512) + 1,
                    "{procedure:?} {room:?} {calls}"
                );
            }
        }
    }
    clients.into_iter().for_each(Client::close);
    server.stop().unwrap();
}

#[test]
fn a_file_server_names_the_room_that_its_replies_need() {
    let (server, root) = file_server();
    let mut client = Client::two(server.started, 150);
    let dir = root.handle();
    let name = name(1);
    let lookup = Arguments::Lookup(DirName { dir, name: Name(name.as_bytes()) });
    obey(&mut client, to(Procedure::Lookup), &encoded(&lookup));
    // A list has one name at least.
    for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
        let first = listing(procedure, &root, (0, nfs3::Verifier::default()));
        obey(&mut client, to(procedure), &first);
    }
    client.close();
    server.stop().unwrap();
}
