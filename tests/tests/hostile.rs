//! Peers that break the rules of RPC-over-RDMA behind a good connection: clients of version 1 here, of
//! version 2 in [`two`], clients of both whose Replies have too little room in [`room`], servers of version 2 in
//! [`caller`], servers that answer no Call in [`strays`], those that answer no properties in [`anew`], and those of the
//! key-value service in [`several`] and [`inline`]. Clients that follow RFC 5666, or pretend to, are in [`profile`], such
//! servers in [`reading`]. Clients that have to prove which hosts they are are in [`hosts`], those over TCP in [`tcp`], those
//! whose arguments come along with their Calls in [`along`] and, in several messages, in [`groups`]. Clients that direct how
//! results come, and servers that do not follow, are in [`directed`]. Peers in [`watched`],
//! [`granted`], [`scattered`], [`continued`] and [`reverse`] break no rule, and watch whether the other end does.
//!
//! The cases of version 1 are those whose treatment by a deployed kernel server is known; this server is no more
//! lenient. It goes on to serve the peer, if its connection stays, and all other peers in any case.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile/along.rs"]
mod along;
#[path = "hostile/anew.rs"]
mod anew;
#[path = "hostile/caller.rs"]
mod caller;
#[path = "hostile/continued.rs"]
mod continued;
#[path = "hostile/directed.rs"]
mod directed;
#[path = "hostile/granted.rs"]
mod granted;
#[path = "hostile/groups.rs"]
mod groups;
#[path = "hostile/hosts.rs"]
mod hosts;
#[path = "hostile/inline.rs"]
mod inline;
#[path = "hostile/profile.rs"]
mod profile;
#[path = "hostile/reading.rs"]
mod reading;
#[path = "hostile/reverse.rs"]
mod reverse;
#[path = "hostile/room.rs"]
mod room;
#[path = "hostile/scattered.rs"]
mod scattered;
#[path = "hostile/several.rs"]
mod several;
#[path = "hostile/strays.rs"]
mod strays;
#[path = "hostile/tcp.rs"]
mod tcp;
#[path = "hostile/two.rs"]
mod two;
#[path = "hostile/watched.rs"]
mod watched;

use std::net::SocketAddr;

use haulage::limits::INLINE_SIZE;
use haulage::provider::iwarp::Config;
use haulage_proto::verbs::{Access, Segment};
use haulage_tests::ends::{
    ECHO, GET, HOLD, ITEM_MAX, Keeper, LATE_GET, LATE_SWAP, LIST, NULL, PROGRAM, PUT, SWAP, TALLY,
    server, server_of, server_within, terse_server_of,
};
use haulage_tests::link::{Failure, Link};

/// A peer on a connection of its own, on which both ends already use version 1.
struct Peer(Link);

impl Peer {
    fn connect(server: SocketAddr) -> Self {
        let (link, theirs) = Link::connect(server, &Config::default(), &PRIVATE_DATA, 16).unwrap();
        assert_eq!(theirs[..4], PRIVATE_DATA[..4], "the server says how long messages may be");
        let mut peer = Self(link);
        assert_eq!(peer.null(1), AnswerV1::Reply { xid: 1 });
        peer
    }

    /// Makes a valid Call. Returns the first answer.
    fn null(&mut self, xid: u32) -> AnswerV1 {
        self.0.send(&message(xid, MSG, &NO_LISTS, &call(xid, NULL, &[]))).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> AnswerV1 {
        match self.0.message(None) {
            Ok(message) => AnswerV1::of(&message.expect("nothing but a message ends the wait")),
            Err(Failure::Ended(_)) => AnswerV1::Closed,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerV1 {
    Reply {
        xid: u32,
    },
    /// `ERR_VERS` in the version of the message, naming version 1.
    Versions {
        xid: u32,
        vers: u32,
    },
    /// An `ERR_CHUNK` error.
    Chunk {
        xid: u32,
    },
    /// No answer: the next one is to the valid Call behind the message.
    Silence,
    Closed,
}

impl AnswerV1 {
    fn of(message: &[u8]) -> Self {
        let words: Vec<u32> =
            message.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        match words[..] {
            [xid, 1, credit, 0 | 1, ..] if credit > 0 => Self::Reply { xid },
            [xid, 1, credit, 4, 2] if credit > 0 => Self::Chunk { xid },
            [xid, vers, credit, 4, 1, 1, 1] if credit > 0 => Self::Versions { xid, vers },
            _ => panic!("no answer of version 1: {words:x?}"),
        }
    }
}

/// Private data of a peer that allows Send with Invalidate and has buffers of 4 KiB.
const PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const NO_LISTS: [u32; 3] = [0; 3];

fn octets(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a Call without a credential.
fn call(xid: u32, procedure: u32, arguments: &[u32]) -> Vec<u8> {
    let header = [xid, 0, 2, PROGRAM, 1, procedure, 0, 0, 0, 0];
    octets(&[&header, arguments].concat())
}

fn message(xid: u32, proc: u32, lists: &[u32], body: &[u8]) -> Vec<u8> {
    [&octets(&[xid, 1, 32, proc]), &octets(lists), body].concat()
}

/// Returns a segment of `length` octets under a handle that nobody registered.
const fn nowhere(length: u32) -> [u32; 4] {
    [0xbad, length, 0, 0x1000]
}

/// Returns the cases: a name, a message under XID 7, and the answer to it.
fn cases() -> Vec<(&'static str, Vec<u8>, AnswerV1)> {
    let null = call(7, NULL, &[]);
    let with = |lists: &[u32]| message(7, MSG, lists, &null);
    let (served, chunk) = (AnswerV1::Reply { xid: 7 }, AnswerV1::Chunk { xid: 7 });
    let version = |vers: u32| octets(&[&[7, vers, 32, 0], &NO_LISTS[..]].concat());
    let credit = |credit: u32| [octets(&[7, 1, credit, 0, 0, 0, 0]), null.clone()].concat();
    let read =
        |position: u32, segment: [u32; 4]| [&[1, position], &segment[..], &[0, 0, 0]].concat();
    let many = [1, 44, 0xbad, 8, 0, 0].repeat(100);
    let arguments = |positions: &[u32]| {
        let entries = positions.iter().flat_map(|at| [1, *at, 0xbad, 8, 0, 0x1000]);
        entries.chain([0, 0, 0]).collect::<Vec<_>>()
    };
    let put = |length| call(7, PUT, &[length]);
    // The Read list has two segments at one position that are not next to each other.
    let twice = arguments(&[0, 44, 0]);
    let unused = [&[1, 1][..], &nowhere(64)].concat();
    let seventeen = [&[0, 1, 17][..], &nowhere(64).repeat(17)].concat();
    let wraps = [0xbad, 0x20, u32::MAX, 0xffff_fff0];
    vec![
        ("version 0", version(0), AnswerV1::Versions { xid: 7, vers: 0 }),
        ("version 2, after version 1", version(2), AnswerV1::Versions { xid: 7, vers: 2 }),
        ("version garbage", version(0xdead_beef), AnswerV1::Versions { xid: 7, vers: 0xdead_beef }),
        ("RDMA_MSGP", message(7, 2, &[4, 64, 0, 0, 0], &null), chunk),
        ("an unknown message type", message(7, 77, &NO_LISTS, &null), chunk),
        ("an empty Send", Vec::new(), AnswerV1::Silence),
        ("12 octets", octets(&[7, 1, 32]), AnswerV1::Silence),
        ("16 octets", octets(&[7, 1, 32, 0]), chunk),
        ("20 octets", octets(&[7, 1, 32, 0, 0]), chunk),
        ("a list without end", octets(&[7, 1, 32, 0, 1, 44, 1, 2, 3, 4]), chunk),
        ("RDMA_DONE", octets(&[7, 1, 32, 3]), AnswerV1::Silence),
        ("RDMA_ERROR", octets(&[7, 1, 32, 4, 2]), AnswerV1::Silence),
        ("a header alone", with(&NO_LISTS)[..28].to_vec(), AnswerV1::Silence),
        ("RDMA_NOMSG of nothing", message(7, NOMSG, &NO_LISTS, &[]), AnswerV1::Silence),
        ("a Reply to nobody", message(7, MSG, &NO_LISTS, &octets(&[7, 1, 0])), AnswerV1::Silence),
        ("a Call cut short", message(7, MSG, &NO_LISTS, &octets(&[7, 0])), chunk),
        ("another XID inside", message(7, MSG, &NO_LISTS, &call(8, NULL, &[])), chunk),
        ("no credit asked for", credit(0), served),
        ("all credits asked for", credit(u32::MAX), served),
        ("any discriminator but zero", with(&[2, 40, 9, 8, 0, 0, 0, 0, 0]), chunk),
        ("a position within a word", with(&read(3, nowhere(8))), chunk),
        ("a position nothing was reduced at", with(&read(65536, nowhere(8))), chunk),
        ("a chunk of 4 GiB", with(&read(40, nowhere(u32::MAX))), chunk),
        ("a segment that wraps", with(&read(40, wraps)), chunk),
        ("100 segments", with(&[&many[..], &[0, 0, 0]].concat()), chunk),
        ("a Call inline and from nowhere", with(&read(0, nowhere(40))), chunk),
        (
            "a Call inline and from nowhere, as RDMA_NOMSG",
            message(7, NOMSG, &read(0, nowhere(40)), &null),
            chunk,
        ),
        ("a Call from two places", message(7, NOMSG, &twice, &[]), chunk),
        ("two arguments", message(7, MSG, &arguments(&[44, 52]), &put(8)), chunk),
        ("an argument in two places", message(7, MSG, &arguments(&[44, 44, 52]), &put(8)), chunk),
        // No result takes them, and the Reply invalidates the handle of one.
        (
            "two Write chunks from nowhere",
            with(&[&[0][..], &unused, &unused, &[0, 0]].concat()),
            AnswerV1::Closed,
        ),
        ("five Write chunks", with(&[&[0][..], &unused.repeat(5), &[0, 0]].concat()), chunk),
        (
            "18 segments in two arguments",
            message(7, MSG, &arguments(&[[44; 9], [52; 9]].concat()), &put(8)),
            chunk,
        ),
        ("17 segments", with(&[&seventeen[..], &[0, 0]].concat()), chunk),
        ("a Write chunk of no segments", with(&[0, 1, 0, 0, 0]), chunk),
        ("a Write chunk of all segments", with(&[0, 1, u32::MAX, 0, 0]), chunk),
        ("a Reply chunk of no segments", with(&[0, 0, 1, 0]), chunk),
        ("a Reply chunk of all segments", with(&[0, 0, 1, u32::MAX]), chunk),
        ("RDMA_NOMSG with its body inline", message(7, NOMSG, &NO_LISTS, &null), served),
        ("RDMA_NOMSG of an argument", message(7, NOMSG, &read(40, nowhere(8)), &[]), chunk),
        ("a Call from nowhere", message(7, NOMSG, &read(0, nowhere(64)), &[]), AnswerV1::Closed),
        ("a Call of 4 GiB", message(7, NOMSG, &read(0, nowhere(u32::MAX)), &[]), chunk),
    ]
}

#[test]
fn a_peer_that_breaks_the_rules_is_told_and_troubles_nobody() {
    let server = server();
    let mut bystander = Peer::connect(server.started);
    for (xid, (what, bytes, expected)) in (100..).zip(cases()) {
        let mut peer = Peer::connect(server.started);
        peer.0.send(&bytes).unwrap();
        // A message without an answer is followed by a valid Call.
        let answer = if expected == AnswerV1::Silence {
            match peer.null(9) {
                AnswerV1::Reply { xid: 9 } => AnswerV1::Silence,
                other => other,
            }
        } else {
            peer.answer()
        };
        assert_eq!(answer, expected, "{what}");
        if expected != AnswerV1::Closed {
            assert_eq!(peer.null(10), AnswerV1::Reply { xid: 10 }, "after {what}");
            peer.0.close().unwrap();
        }
        assert_eq!(bystander.null(xid), AnswerV1::Reply { xid }, "beside {what}");
    }
    bystander.0.close().unwrap();
    server.stop().unwrap();
}

/// Returns the words of a segment.
const fn segment(Segment { handle, length, offset }: Segment) -> [u32; 4] {
    let [high, low] = [(offset >> 32) as u32, (offset & 0xffff_ffff) as u32];
    [handle.0, length, high, low]
}

#[test]
fn a_write_chunk_that_no_result_can_take_is_returned_unused() {
    let server = server();
    let mut peer = Peer::connect(server.started);
    let echoed = [&[4_u32][..], &[0]].concat();
    for (procedure, arguments, results) in [(NULL, &[][..], &[][..]), (ECHO, &[4], &echoed)] {
        let room = peer.0.expose(&[], 64, Access::RemoteWrite).unwrap();
        let [handle, _, high, low] = segment(room);
        let lists = [&[0, 1, 1][..], &segment(room), &[0, 0]].concat();
        peer.0.send(&message(7, MSG, &lists, &call(7, procedure, arguments))).unwrap();
        let reply = peer.0.message(None).unwrap().unwrap();
        let words: Vec<u32> =
            reply.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        let unused = [0, 1, 1, handle, 0, high, low, 0, 0];
        let header = [7, 1, 0, 0, 0, 0];
        assert_eq!((words[0], words[1], words[3]), (7, 1, MSG), "{procedure}");
        assert_eq!(words[4..], [&unused[..], &header, results].concat(), "{procedure}");
    }
    assert_eq!(peer.null(8), AnswerV1::Reply { xid: 8 });
    server.stop().unwrap();
}

#[test]
fn a_message_longer_than_a_receive_ends_its_connection_alone() {
    let server = server();
    let mut bystander = Peer::connect(server.started);
    let mut peer = Peer::connect(server.started);
    let mut long = message(7, MSG, &NO_LISTS, &call(7, NULL, &[]));
    long.resize(INLINE_SIZE, 0);
    peer.0.send(&long).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 7 }, "as long as was agreed");
    long.resize(INLINE_SIZE + 4, 0);
    peer.0.send(&long).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Closed);
    assert_eq!(bystander.null(5), AnswerV1::Reply { xid: 5 });
    server.stop().unwrap();
}

#[test]
fn peers_that_connect_and_say_nothing_keep_nobody_out() {
    let server = server();
    let mut bystander = Peer::connect(server.started);
    // 40 connections are more than twice as many as the server has room for.
    let silent: Vec<_> = (0..40)
        .map(|_| Link::connect(server.started, &Config::default(), &[], 16).unwrap())
        .collect();
    let mut newcomers: Vec<_> = (0..8).map(|_| Peer::connect(server.started)).collect();
    for (xid, newcomer) in (20..).zip(&mut newcomers) {
        assert_eq!(newcomer.null(xid), AnswerV1::Reply { xid });
    }
    assert_eq!(bystander.null(5), AnswerV1::Reply { xid: 5 });
    drop(silent);
    server.stop().unwrap();
}

#[test]
fn a_peer_that_ignores_its_credits_troubles_nobody() {
    const CALLS: u32 = 600;
    let server = server();
    let mut bystander = Peer::connect(server.started);
    let mut peer = Peer::connect(server.started);
    let mut answered = 0;
    let mut sent = (0..CALLS).take_while(|xid| {
        peer.0.send(&message(*xid, MSG, &NO_LISTS, &call(*xid, NULL, &[]))).is_ok()
    });
    let all_sent = sent.by_ref().count() == CALLS as usize;
    while all_sent && answered < CALLS {
        match peer.answer() {
            AnswerV1::Reply { .. } => answered += 1,
            other => {
                assert_eq!(other, AnswerV1::Closed, "it took Receives that were not its own");
                break;
            }
        }
    }
    assert_eq!(bystander.null(5), AnswerV1::Reply { xid: 5 });
    server.stop().unwrap();
}
