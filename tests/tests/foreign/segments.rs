//! Chunks of many segments: as many as a server says it takes, and one more.

use haulage_tests::ends::{GET, LIST, PROGRAM, PUT, TALLY, server};

use super::ddp::{Access, Link, Segment};
use super::header::{Chunks, Kind, octets, opaque};
use super::mpa::Crc;
use super::rpc::{Peer, call, reply, results};
use super::{WINDOW, is_served, one, pattern, tally};

/// The octets of all segments together.
const ALL: usize = 20_000;
/// Lengths of nine segments: of which some end within a word, and none with a page.
const NINE: [usize; 9] = [1, 4096, 3, 7777, 2500, 13, 5001, 600, 9];
/// The most segments that a server takes in each direction.
const MOST: usize = 16;

/// Returns segments of memory of their own, which have these octets.
fn exposed(link: &mut Link, octets: &[u8], lengths: &[usize], access: Access) -> Vec<Segment> {
    let mut rest = octets;
    let mut expose = |length: &usize| {
        let part;
        (part, rest) = rest.split_at(*length);
        link.expose(part, access)
    };
    lengths.iter().map(&mut expose).collect()
}

/// Takes the memory of segments back. Returns their octets.
fn retired(link: &mut Link, segments: &[Segment]) -> Vec<u8> {
    segments.iter().flat_map(|segment| link.retire(segment.handle)).collect()
}

/// Returns segments of four octets that belong to no chunk of octets that are moved.
fn many(link: &mut Link, count: usize, access: Access) -> Vec<Segment> {
    exposed(link, &vec![0xee; 4 * count], &vec![4; count], access)
}

/// Returns a Read list of one chunk.
fn at(position: u32, segments: &[Segment]) -> Vec<(u32, Segment)> {
    segments.iter().map(|segment| (position, *segment)).collect()
}

/// The words of an item of [`ALL`] octets that stay in the stream.
fn length() -> Vec<u8> {
    octets(&[u32::try_from(ALL).unwrap()])
}

/// Returns the octets of a Call of [`ALL`] octets, and its results.
fn long_call(xid: u32) -> (Vec<u8>, Vec<u8>) {
    let (stream, expected) = tally(xid, ALL - 44);
    assert_eq!(stream.len(), ALL);
    (stream, expected)
}

/// Returns the arguments of a Call whose Reply has [`ALL`] octets, and the Reply.
fn long_reply(xid: u32) -> (Vec<u8>, Vec<u8>) {
    let length = ALL - 28;
    let stream = reply(xid, &opaque(&vec![0x11; length]));
    assert_eq!(stream.len(), ALL);
    (octets(&[u32::try_from(length).unwrap()]), stream)
}

#[test]
fn a_server_of_version_2_takes_chunks_of_nine_segments() {
    assert_eq!(NINE.iter().sum::<usize>(), ALL);
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    let item = pattern(ALL);
    let sources = exposed(&mut peer.link, &item, &NINE, Access::Read);
    let chunks = Chunks { reads: at(44, &sources), ..Chunks::default() };
    peer.send(Kind::Call, &call(2, PROGRAM, PUT, &length()), &[], &chunks);
    let answer = peer.receive();
    assert_eq!((answer.xid, answer.results(), &answer.chunks), (2, &[][..], &Chunks::default()));
    assert_eq!(peer.link.served.drain(..).sum::<u32>() as usize, ALL, "each octet once");
    retired(&mut peer.link, &sources);

    let rooms = exposed(&mut peer.link, &[0xee; ALL], &NINE, Access::Write);
    let chunks = Chunks { writes: vec![rooms.clone()], ..Chunks::default() };
    peer.send(Kind::Call, &call(3, PROGRAM, GET, &[]), &[], &chunks);
    let answer = peer.receive();
    assert_eq!((answer.xid, answer.results()), (3, &length()[..]));
    assert_eq!(answer.chunks, chunks, "each segment is filled");
    assert!(retired(&mut peer.link, &rooms) == item, "another item");

    let (stream, expected) = long_call(4);
    let sources = exposed(&mut peer.link, &stream, &NINE, Access::Read);
    let rooms = exposed(&mut peer.link, &[0xee; ALL], &NINE, Access::Write);
    peer.send_external(Kind::Call, 4, &Chunks { call: at(0, &sources), ..Chunks::default() });
    let answer = peer.receive();
    assert_eq!((answer.xid, answer.results()), (4, &expected[..]));
    let (arguments, stream) = long_reply(5);
    let chunks = Chunks { reply: Some(rooms.clone()), ..Chunks::default() };
    peer.send(Kind::Call, &call(5, PROGRAM, LIST, &arguments), &[], &chunks);
    let answer = peer.receive();
    assert_eq!((answer.xid, &answer.stream[..], &answer.chunks), (5, &[][..], &chunks));
    assert!(retired(&mut peer.link, &rooms) == stream, "another Reply");
    is_served(&mut peer, 99);
    server.stop().unwrap();
}

#[test]
fn a_server_of_version_1_takes_chunks_of_nine_segments() {
    let server = server();
    let mut peer = one::Peer::connect(server.started, Crc::NotAsked, 4);
    let item = pattern(ALL);
    let sources = exposed(&mut peer.link, &item, &NINE, Access::Read);
    let chunks = Chunks { reads: at(44, &sources), ..Chunks::default() };
    peer.send(Kind::Call, &call(2, PROGRAM, PUT, &length()), &chunks);
    let (xid, kind, chunks, stream) = peer.rpc();
    assert_eq!((xid, kind, results(&stream), chunks), (2, Kind::Reply, &[][..], Chunks::default()));
    assert_eq!(peer.link.served.drain(..).sum::<u32>() as usize, ALL, "each octet once");

    let rooms = exposed(&mut peer.link, &[0xee; ALL], &NINE, Access::Write);
    let chunks = Chunks { writes: vec![rooms.clone()], ..Chunks::default() };
    peer.send(Kind::Call, &call(3, PROGRAM, GET, &[]), &chunks);
    let (xid, _, returned, stream) = peer.rpc();
    assert_eq!((xid, results(&stream), returned), (3, &length()[..], chunks));
    assert!(retired(&mut peer.link, &rooms) == item, "another item");

    let (stream, expected) = long_call(4);
    let sources = exposed(&mut peer.link, &stream, &NINE, Access::Read);
    let rooms = exposed(&mut peer.link, &[0xee; ALL], &NINE, Access::Write);
    peer.send_external(Kind::Call, 4, &Chunks { call: at(0, &sources), ..Chunks::default() });
    let (xid, _, _, stream) = peer.rpc();
    assert_eq!((xid, results(&stream)), (4, &expected[..]));
    let (arguments, expected) = long_reply(5);
    let chunks = Chunks { reply: Some(rooms.clone()), ..Chunks::default() };
    peer.send(Kind::Call, &call(5, PROGRAM, LIST, &arguments), &chunks);
    let (xid, _, returned, stream) = peer.rpc();
    assert_eq!((xid, &stream[..], returned), (5, &[][..], chunks));
    assert!(retired(&mut peer.link, &rooms) == expected, "another Reply");
    server.stop().unwrap();
}

/// Returns each kind of chunk in `count` segments, the procedure for it, and its arguments.
fn each(link: &mut Link, count: usize) -> [(&'static str, Chunks, u32, Vec<u8>); 4] {
    let read = many(link, count, Access::Read);
    let write = many(link, count, Access::Write);
    let length = octets(&[u32::try_from(4 * count).unwrap()]);
    let chunks = Chunks::default();
    [
        ("a Read chunk", Chunks { reads: at(44, &read), ..chunks.clone() }, PUT, length),
        ("a Write chunk", Chunks { writes: vec![write.clone()], ..chunks.clone() }, GET, vec![]),
        ("a Reply chunk", Chunks { reply: Some(write), ..chunks.clone() }, LIST, octets(&[8])),
        ("a Call chunk", Chunks { call: at(0, &read), ..chunks }, TALLY, vec![]),
    ]
}

// [V2-7.3.3-1]
#[test]
fn a_server_of_version_2_refuses_a_chunk_of_one_segment_too_many() {
    let server = server();
    let mut peer = Peer::connect(server.started, Crc::NotAsked, WINDOW);
    let cases = each(&mut peer.link, MOST + 1);
    for (xid, (what, chunks, procedure, arguments)) in (2..).zip(cases) {
        let calling = call(xid, PROGRAM, procedure, &arguments);
        if chunks.call.is_empty() {
            peer.send(Kind::Call, &calling, &[], &chunks);
        } else {
            peer.send_external(Kind::Call, xid, &chunks);
        }
        let most = u32::try_from(MOST).unwrap();
        assert_eq!(peer.error(), (xid, octets(&[ERR_SEGMENTS, most])), "{what}");
    }
    assert!(peer.link.served.is_empty(), "nothing is read");
    // As many as it says it takes.
    let [(.., chunks, procedure, arguments), ..] = each(&mut peer.link, MOST);
    peer.send(Kind::Call, &call(9, PROGRAM, procedure, &arguments), &[], &chunks);
    assert_eq!(peer.receive().results(), [0; 0]);
    assert_eq!(peer.link.served.iter().sum::<u32>() as usize, 4 * MOST);
    is_served(&mut peer, 99);
    server.stop().unwrap();
}

#[test]
fn a_server_of_version_1_refuses_a_chunk_of_one_segment_too_many() {
    let server = server();
    let mut peer = one::Peer::connect(server.started, Crc::Asked, 4);
    let cases = each(&mut peer.link, MOST + 1);
    for (xid, (what, chunks, procedure, arguments)) in (2..).zip(cases) {
        let calling = call(xid, PROGRAM, procedure, &arguments);
        if chunks.call.is_empty() {
            peer.send(Kind::Call, &calling, &chunks);
        } else {
            peer.send_external(Kind::Call, xid, &chunks);
        }
        assert_eq!(peer.receive(), one::Arrived::Refused { xid }, "{what}");
    }
    assert!(peer.link.served.is_empty(), "nothing is read");
    let [(.., chunks, procedure, arguments), ..] = each(&mut peer.link, MOST);
    peer.send(Kind::Call, &call(9, PROGRAM, procedure, &arguments), &chunks);
    let (xid, kind, chunks, stream) = peer.rpc();
    assert_eq!((xid, kind, results(&stream), chunks), (9, Kind::Reply, &[][..], Chunks::default()));
    assert_eq!(peer.link.served.iter().sum::<u32>() as usize, 4 * MOST);
    server.stop().unwrap();
}

/// `RDMA2_ERR_SEGMENTS`, which has the number of segments that are taken.
const ERR_SEGMENTS: u32 = 8;
