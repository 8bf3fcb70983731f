//! Our ends and a peer that has no code in common with them: it has an MPA, a DDP, an RDMAP and an RPC-over-RDMA of
//! both versions of its own over a plain TCP stream. It breaks no rule but those that a test is about, and panics if the
//! other end breaks one that it checks.
//!
//! The peer is [`rpc::Peer`], or [`one::Peer`] on version 1. Both block; our ends are those of [`haulage_tests::ends`].
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "foreign/call_only.rs"]
mod call_only;
#[path = "foreign/ddp.rs"]
mod ddp;
#[path = "foreign/header.rs"]
mod header;
#[path = "foreign/mpa.rs"]
mod mpa;
#[path = "foreign/one.rs"]
mod one;
#[path = "foreign/reverse.rs"]
mod reverse;
#[path = "foreign/rpc.rs"]
mod rpc;
#[path = "foreign/segments.rs"]
mod segments;
#[path = "foreign/several.rs"]
mod several;

use std::net::{Ipv4Addr, TcpListener};

use haulage::core::NoService;
use haulage::cores::CoreThread;
use haulage::limits::LIMITS_DEFAULT;
use haulage::remote::RemoteClient;
use haulage::service::{Binding, CallError, Eligible, Procedure, Request};
use haulage_tests::ends::{GET, ITEM_MAX, LIST, NULL, PROGRAM, PUT, TALLY, client_within, server};

use ddp::{Access, Segment};
use header::{Chunks, Kind, Words, opaque};
use mpa::Crc;
use rpc::{Peer, RECEIVE_SIZE, call, reply, results};

/// Messages that the peer allows at once, where it does not matter.
const WINDOW: u32 = 16;

/// Checks that a Call without arguments is answered.
fn is_served(peer: &mut Peer, xid: u32) {
    peer.send(Kind::Call, &call(xid, PROGRAM, NULL, &[]), &[], &Chunks::default());
    let answer = peer.receive();
    assert_eq!((answer.kind, answer.xid, answer.messages), (Kind::Reply, xid, 1));
    assert_eq!((answer.results(), &answer.chunks), (&[][..], &Chunks::default()));
}

fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

/// Returns a Call of TALLY with `length` octets, and its results.
fn tally(xid: u32, length: usize) -> (Vec<u8>, Vec<u8>) {
    let octets = pattern(length);
    let sum = octets.iter().map(|octet| u32::from(*octet)).sum();
    let arguments = opaque(&octets);
    (call(xid, PROGRAM, TALLY, &arguments), header::octets(&[u32::try_from(length).unwrap(), sum]))
}

#[test]
fn a_server_answers_with_and_without_crcs() {
    let server = server();
    for crc in [Crc::NotAsked, Crc::Asked] {
        let mut peer = Peer::connect(server.started, crc, WINDOW);
        // RFC 8797, for peers of version 1.
        assert_eq!(peer.link.stream.private_data[..5], [0xf6, 0xab, 0x0e, 0x18, 1]);
        for (code, value) in &peer.properties {
            assert!((1..=5).contains(code) && value.len() == 4, "{code}: {value:x?}");
        }
        (2..40).for_each(|xid| is_served(&mut peer, xid));
    }
    server.stop().unwrap();
}

#[test]
fn a_server_takes_calls_in_any_number_of_parts() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    let lengths: [&[usize]; 6] = [
        &[4000; 12],
        &[40, 4, 4000, 4076],
        &[1; 60],
        &[0, 1, 0, 3, 0, 4000, 4000, 0],
        &[0; 5],
        &[],
    ];
    for (xid, parts) in (2..).zip(lengths) {
        for behind in [0, 1, 1001] {
            let length = (parts.iter().sum::<usize>() + behind).saturating_sub(44);
            let (call, expected) = tally(xid, length);
            peer.send(Kind::Call, &call, parts, &Chunks::default());
            let answer = peer.receive();
            assert_eq!((answer.xid, answer.results()), (xid, &expected[..]), "{parts:?}, {behind}");
        }
    }
    is_served(&mut peer, 99);
    server.stop().unwrap();
}

#[test]
fn a_server_reads_and_writes_items_and_invalidates_one_handle() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    // The Calls come in one message, in two, or in three.
    let cases: [(_, &[usize]); 3] = [(None, &[]), (Some(0), &[44]), (Some(1), &[1, 29])];
    for (xid, (chosen, parts)) in (2..).zip(cases) {
        let item = pattern(20_001 + xid as usize);
        let length = header::octets(&[u32::try_from(item.len()).unwrap()]);
        let sources =
            [&item[..9000], &item[9000..]].map(|part| peer.link.expose(part, Access::Read));
        let invalidate = chosen.map_or(0, |at: usize| sources[at].handle);
        let segments = [sources[0].part(0, 4001), sources[0].part(4001, 4999), sources[1]];
        let reads = segments.map(|segment| (44, segment)).to_vec();
        let chunks = Chunks { invalidate, reads, ..Chunks::default() };
        peer.send(Kind::Call, &call(xid, PROGRAM, PUT, &length), parts, &chunks);
        let answer = peer.receive();
        assert_eq!((answer.xid, answer.results()), (xid, &[][..]));
        assert_eq!(answer.chunks, Chunks { invalidate, ..Chunks::default() });
        assert_eq!(peer.link.served.drain(..).sum::<u32>() as usize, item.len(), "each octet once");
        for source in sources {
            assert_eq!(peer.link.exposes(source.handle), source.handle != invalidate);
            peer.link.retire(source.handle);
        }

        let rooms = [&[0xee; 7], &[0xee; 30_000][..]].map(|of| peer.link.expose(of, Access::Write));
        let invalidate = chosen.map_or(0, |at| rooms[at].handle);
        let room = vec![rooms[0], rooms[1].part(3, 15_001), rooms[1].part(15_004, 14_000)];
        let chunks = Chunks { invalidate, writes: vec![room.clone()], ..Chunks::default() };
        peer.send(
            Kind::Call,
            &call(xid, PROGRAM, GET, &[]),
            parts.get(1..).unwrap_or_default(),
            &chunks,
        );
        let answer = peer.receive();
        assert_eq!((answer.xid, answer.results()), (xid, &length[..]), "the length is left");
        let filled = fill(&room, item.len());
        assert_eq!(answer.chunks, Chunks { invalidate, writes: vec![filled], ..Chunks::default() });
        assert!(rooms.iter().all(|of| peer.link.exposes(of.handle) == (of.handle != invalidate)));
        let [first, rest] = rooms.map(|room| peer.link.retire(room.handle));
        let written = [&first, &rest[3..item.len() - 4]].concat();
        assert!(written == item, "another item");
        assert!([&rest[..3], &rest[item.len() - 4..]].concat().iter().all(|octet| *octet == 0xee));
    }
    is_served(&mut peer, 99);
    server.stop().unwrap();
}

/// Returns a Write chunk filled with `length` octets in the order of its segments.
fn fill(room: &[Segment], length: usize) -> Vec<Segment> {
    let mut rest = u32::try_from(length).unwrap();
    let mut take = |of: &Segment| {
        let length = rest.min(of.length);
        rest -= length;
        Segment { length, ..*of }
    };
    room.iter().map(&mut take).collect()
}

// [V2-6.6.2-1] [V2-6.6.4-1]
#[test]
fn a_server_continues_replies_that_fit_no_chunk() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    let item = pattern(20_001);
    let source = peer.link.expose(&item, Access::Read);
    let chunks = Chunks { reads: vec![(44, source)], ..Chunks::default() };
    let length = header::octets(&[source.length]);
    peer.send(Kind::Call, &call(2, PROGRAM, PUT, &length), &[], &chunks);
    assert_eq!(peer.receive().xid, 2);
    let room = peer.link.expose(&[0xee; 20_000], Access::Write);
    let nothing = Segment { length: 0, ..room };
    let small = Chunks { invalidate: room.handle, ..Chunks::default() };
    // The last Call has its handle invalidated by the last part of its Reply.
    for (xid, chunks, returned) in [
        (3, Chunks::default(), vec![]),
        (4, Chunks { writes: vec![vec![]], ..Chunks::default() }, vec![vec![]]),
        (5, Chunks { writes: vec![vec![room]], ..small }, vec![vec![nothing]]),
    ] {
        peer.send(Kind::Call, &call(xid, PROGRAM, GET, &[]), &[], &chunks);
        let answer = peer.receive();
        assert_eq!((answer.xid, answer.messages), (xid, 5));
        assert!(answer.results() == opaque(&item), "another item");
        assert_eq!(answer.chunks, Chunks { writes: returned, ..chunks_without(&chunks) });
    }
    assert!(!peer.link.exposes(room.handle));
    // Results that are no item; in the end as many octets as a part has, and one more.
    for (xid, length) in (10..).zip([4049, 8124, 8125, 30_000]) {
        let asked = header::octets(&[length]);
        peer.send(Kind::Call, &call(xid, PROGRAM, LIST, &asked), &[], &Chunks::default());
        let answer = peer.receive();
        let listed = opaque(&vec![0x11; length as usize]);
        assert_eq!((answer.xid, answer.messages), (xid, (24 + listed.len()).div_ceil(4076)));
        assert!(answer.results() == listed, "other results");
    }
    // A peer that allows three messages at a time gets as many.
    let mut narrow = Peer::connect(server.started, Crc::NotAsked, 4);
    let asked = header::octets(&[9000]);
    for xid in 2..12 {
        narrow.send(Kind::Call, &call(xid, PROGRAM, LIST, &asked), &[], &Chunks::default());
    }
    let answers = (2..12).map(|_| narrow.receive());
    assert!(answers.map(|answer| answer.messages).all(|messages| messages == 3));
    server.stop().unwrap();
}

/// Returns the handle of chunks alone.
fn chunks_without(chunks: &Chunks) -> Chunks {
    Chunks { invalidate: chunks.invalidate, ..Chunks::default() }
}

#[test]
fn a_server_reads_calls_and_writes_replies_as_a_whole() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::NotAsked, WINDOW);
    let (stream, expected) = tally(7, 30_000);
    let source = peer.link.expose(&stream, Access::Read);
    let halves = [source.part(0, 5), source.part(5, source.length - 5)];
    let invalidate = source.handle;
    let chunks =
        Chunks { invalidate, call: halves.map(|of| (0, of)).to_vec(), ..Chunks::default() };
    peer.send_external(Kind::Call, 7, &chunks);
    let answer = peer.receive();
    assert_eq!((answer.xid, answer.results()), (7, &expected[..]));
    assert_eq!(answer.chunks, Chunks { invalidate, ..Chunks::default() });

    let room = peer.link.expose(&[0xee; 20_000], Access::Write);
    let segments = vec![room.part(0, 9), room.part(9, 19_991)];
    let chunks = Chunks { reply: Some(segments.clone()), ..Chunks::default() };
    let length = header::octets(&[10_001]);
    peer.send(Kind::Call, &call(8, PROGRAM, LIST, &length), &[], &chunks);
    let answer = peer.receive();
    let listed = reply(8, &opaque(&[0x11; 10_001]));
    assert_eq!((answer.xid, &answer.stream[..]), (8, &[][..]), "all is in the Reply chunk");
    assert_eq!(answer.chunks.reply, Some(fill(&segments, listed.len())));
    let written = peer.link.retire(room.handle);
    assert!(results(&written[..listed.len()]) == &listed[24..], "other results");
    assert!(written[listed.len()..].iter().all(|octet| *octet == 0xee));
    is_served(&mut peer, 99);
    server.stop().unwrap();
}

#[test]
fn a_server_answers_a_peer_that_allows_one_message_at_a_time() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::NotAsked, 1);
    let mut bystander = Peer::connect(server.started, Crc::NotAsked, WINDOW);
    for round in 1..4 {
        let xids = round * 100..round * 100 + 10;
        for xid in xids.clone() {
            peer.send(Kind::Call, &call(xid, PROGRAM, NULL, &[]), &[], &Chunks::default());
        }
        // The server has looked at all connections before it serves another one twice.
        (2..4).for_each(|xid| is_served(&mut bystander, xid));
        let mut answered: Vec<_> = xids.clone().map(|_| peer.receive().xid).collect();
        answered.sort_unstable();
        assert_eq!(answered, xids.collect::<Vec<_>>());
    }
    server.stop().unwrap();
}

/// A client of ours, and the peer that it is connected to.
struct Pair {
    client: CoreThread<RemoteClient>,
    peer: Peer,
}

impl Pair {
    fn open(crc: Crc, window: u32) -> Self {
        Self::saying(crc, window, &[])
    }

    /// Connects a client to a peer with `more` properties.
    fn saying(crc: Crc, window: u32, more: &[[u32; 2]]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let item = Eligible::opaque(ITEM_MAX);
        let moves = Procedure::new("MOVE").argument(item).result(item);
        let notes = Procedure::new("NOTE").call_only();
        let procedures = vec![Procedure::new("NULL"), moves, notes];
        let binding = Binding { program: PROGRAM, version: 1, procedures };
        let at = listener.local_addr().unwrap();
        let client = client_within(LIMITS_DEFAULT, || NoService, binding, at);
        Self { client, peer: Peer::accept_saying(&listener, crc, window, more) }
    }

    /// Has the client begin a Call without arguments.
    fn begin(&mut self) {
        let request = Request::new(NULL);
        self.client.started.begin(request, |_| Ok(())).unwrap();
    }

    /// Waits for a Call without arguments. Returns its XID.
    fn called(&mut self) -> u32 {
        let called = self.peer.receive();
        assert_eq!(called.called(PROGRAM), (NULL, &[][..]));
        assert_eq!(called.chunks, Chunks::default());
        called.xid
    }

    /// Returns the results of the next Call that ended.
    fn results(&mut self) -> Vec<u8> {
        let (_, ended) = self.client.started.ended().unwrap();
        ended.unwrap().results().rest().to_vec()
    }
}

/// The procedure of [`Pair`]'s client that has an item both ways.
const MOVE: u32 = 1;
/// The procedure of [`Pair`]'s client that never has a Reply.
const NOTE: u32 = 2;

#[test]
fn a_client_calls_a_peer_whatever_its_credits() {
    for (crc, window) in [(Crc::NotAsked, 1), (Crc::Asked, 2), (Crc::NotAsked, WINDOW)] {
        let mut pair = Pair::open(crc, window);
        (0..20).for_each(|_| pair.begin());
        // The client has looked at all Calls before it lends memory.
        drop(pair.client.started.lease(8).unwrap());
        for _ in 0..20 {
            let xid = pair.called();
            pair.peer.send(Kind::Reply, &reply(xid, &[]), &[], &Chunks::default());
        }
        assert!((0..20).all(|_| pair.results().is_empty()));
        pair.client.stop().unwrap();
    }
}

#[test]
fn a_client_takes_replies_in_any_number_of_parts() {
    let mut pair = Pair::open(Crc::NotAsked, WINDOW);
    let lengths: [&[usize]; 6] =
        [&[4000; 12], &[24, 4, 4076], &[1; 60], &[0, 1, 0, 3, 0, 4000, 0], &[0; 5], &[]];
    for parts in lengths {
        for behind in [0, 4, 1000] {
            pair.begin();
            let xid = pair.called();
            let results = pattern((parts.iter().sum::<usize>() + behind).saturating_sub(24));
            pair.peer.send(Kind::Reply, &reply(xid, &results), parts, &Chunks::default());
            assert!(pair.results() == results, "{parts:?}, {behind}");
        }
    }
    pair.client.stop().unwrap();
}

// [V2-6.6.2-1]
#[test]
fn a_client_continues_calls_that_the_peer_takes_in_no_chunk() {
    // One segment of 1000 octets.
    let mut pair = Pair::saying(Crc::Asked, 12, &[[3, 1000], [4, 1]]);
    let lengths = [20_000, 3, 8001, 4100, 20_001, 5000, 9000];
    let mut begin = |length: usize| {
        let mut argument = pair.client.started.lease(length).unwrap();
        argument.bytes_mut().copy_from_slice(&pattern(length));
        let argument = Some(argument);
        let request = Request::new(MOVE).argument(argument);
        pair.client.started.begin(request, |_| Ok(())).unwrap();
    };
    // Calls wait for the credits of all their messages, and overtake none.
    lengths.into_iter().for_each(&mut begin);
    for length in lengths {
        let called = pair.peer.receive();
        let expected = opaque(&pattern(length));
        assert!(called.called(PROGRAM) == (MOVE, &expected[..]), "{length}");
        assert_eq!(called.messages, (40 + 12 + expected.len()).div_ceil(4076), "{length}");
        let empty = header::octets(&[0]);
        pair.peer.send(Kind::Reply, &reply(called.xid, &empty), &[], &Chunks::default());
    }
    assert!(lengths.iter().all(|_| pair.results() == [0; 4]));
    // The peer allows twelve messages, and one Call has half of them at most.
    let mut argument = pair.client.started.lease(30_000).ok();
    argument.as_mut().unwrap().bytes_mut().fill(1);
    let request = Request::new(MOVE).argument(argument);
    pair.client.started.begin(request, |_| Ok(())).unwrap();
    let (_, ended) = pair.client.started.ended().unwrap();
    let failed = ended.map(drop).unwrap_err();
    assert_eq!(failed.error, CallError::Segments);
    assert_eq!(
        failed.arguments.into_first().map(|lease| lease.len()),
        Some(30_000),
        "nothing is lost"
    );
    pair.client.stop().unwrap();
}

#[test]
fn parts_are_whole_words_for_a_peer_whose_receives_are_of_odd_length() {
    let server = server();
    for octets in [601, 602, 603, 1023] {
        let room = [[RECEIVE_SIZE, octets]];
        // A part has 20 octets of header, and words alone.
        let part = (octets as usize - 20) / 4 * 4;
        let mut peer = Peer::connect_saying(server.started, Crc::NotAsked, WINDOW, &room);
        let asked = header::octets(&[5001]);
        peer.send(Kind::Call, &call(2, PROGRAM, LIST, &asked), &[], &Chunks::default());
        let answer = peer.receive();
        let listed = opaque(&[0x11; 5001]);
        assert_eq!(answer.messages, (24 + listed.len()).div_ceil(part), "{octets}");
        assert!(answer.results() == listed, "other results");

        let more = [&room[..], &[[3, 1000], [4, 1]]].concat();
        let mut pair = Pair::saying(Crc::NotAsked, WINDOW, &more);
        let mut argument = pair.client.started.lease(3001).unwrap();
        argument.bytes_mut().copy_from_slice(&pattern(3001));
        let request = Request::new(MOVE).argument(argument);
        pair.client.started.begin(request, |_| Ok(())).unwrap();
        let called = pair.peer.receive();
        let expected = opaque(&pattern(3001));
        assert!(called.called(PROGRAM) == (MOVE, &expected[..]), "{octets}");
        assert_eq!(called.messages, (40 + 12 + expected.len()).div_ceil(part), "{octets}");
        let empty = header::octets(&[0]);
        pair.peer.send(Kind::Reply, &reply(called.xid, &empty), &[], &Chunks::default());
        assert_eq!(pair.results(), [0; 4]);
        pair.client.stop().unwrap();
    }
    server.stop().unwrap();
}

#[test]
fn a_client_lends_its_memory_to_a_peer_that_reads_writes_and_invalidates() {
    let mut pair = Pair::open(Crc::NotAsked, WINDOW);
    let (given, taken) = (pattern(9001), pattern(5003));
    let mut argument = pair.client.started.lease(given.len()).unwrap();
    argument.bytes_mut().copy_from_slice(&given);
    let (mut argument, mut result) = (Some(argument), pair.client.started.lease(6000).ok());
    for invalidates in [false, true] {
        let request = Request::new(MOVE).argument(argument).room(result);
        pair.client.started.begin(request, |_| Ok(())).unwrap();
        let called = pair.peer.receive();
        let length = header::octets(&[u32::try_from(given.len()).unwrap()]);
        assert_eq!(called.called(PROGRAM), (MOVE, &length[..]), "the length is left");
        let read = called.chunks.reads.iter().flat_map(|(position, segment)| {
            assert_eq!(*position, 44);
            pair.peer.link.read(*segment)
        });
        assert!(read.collect::<Vec<_>>() == given, "another argument");
        let [room] = &called.chunks.writes[..] else { panic!("{:?}", called.chunks) };
        let mut rest = &taken[..];
        let written = fill(room, taken.len());
        for segment in &written {
            let part;
            (part, rest) = rest.split_at(segment.length as usize);
            pair.peer.link.write(part, *segment);
        }
        let invalidate = if invalidates { called.chunks.invalidate } else { 0 };
        assert!(!invalidates || invalidate != 0, "the client offers a handle");
        let chunks = Chunks { invalidate, writes: vec![written], ..Chunks::default() };
        let length = header::octets(&[u32::try_from(taken.len()).unwrap()]);
        pair.peer.send(Kind::Reply, &reply(called.xid, &length), &[4, 24], &chunks);
        let (_, ended) = pair.client.started.ended().unwrap();
        let ended = ended.unwrap();
        assert!(ended.rooms.first().unwrap().bytes() == taken, "another result");
        (argument, result) = (ended.arguments.into_first(), pair.client.started.lease(6000).ok());
    }
    pair.client.stop().unwrap();
}

#[test]
fn two_peers_continue_their_messages_to_each_other() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let (asked, answered) = (pattern(20_004), pattern(18_000));
    let parts = [&[0, 4, 4000][..], &[1000; 14]].concat();
    let chunks = Chunks::default();
    std::thread::scope(|threads| {
        let server = threads.spawn(|| {
            let mut peer = Peer::accept(&listener, Crc::NotAsked, 3);
            let called = peer.receive();
            assert_eq!((called.messages, &called.chunks), (parts.len() + 1, &chunks));
            assert!(called.called(PROGRAM) == (LIST, &asked[..]));
            peer.send(Kind::Reply, &reply(called.xid, &answered), &parts, &chunks);
            peer
        });
        let mut peer = Peer::connect(at, Crc::Asked, 5);
        peer.send(Kind::Call, &call(2, PROGRAM, LIST, &asked), &parts, &chunks);
        let answer = peer.receive();
        assert_eq!((answer.xid, answer.messages, &answer.chunks), (2, parts.len() + 1, &chunks));
        assert!(answer.results() == answered);
        // The connection lasts until both ends have all messages.
        drop(server.join().unwrap());
    });
}
