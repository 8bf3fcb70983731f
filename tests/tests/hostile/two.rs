//! Clients that break the rules of version 2, or ask for something the server does not support.
//!
//! Each case lists the messages of a client and the exact answers. If the last answer is not the end of the
//! connection, the server still serves a NULL on it.

use std::net::SocketAddr;

use haulage::provider::iwarp::Config;
use haulage_proto::rtrext::{CODE_BASE, XMTCONT};
use haulage_proto::verbs::{Access, Segment};
use haulage_tests::link::{Failure, Link};

use super::{
    ECHO, GET, HOLD, ITEM_MAX, Keeper, LIST, NULL, PRIVATE_DATA, PUT, call, nowhere, octets,
    segment, server, terse_server_of,
};

/// Header types of version 2.
pub(super) const ERROR: u32 = 4;
pub(super) const GRANT: u32 = 5;
pub(super) const CONNPROP_MIDDLE: u32 = 6;
pub(super) const CONNPROP_FINAL: u32 = 7;
pub(super) const CALL_EXTERNAL: u32 = 8;
pub(super) const CALL_MIDDLE: u32 = 9;
pub(super) const CALL_INLINE: u32 = 10;
pub(super) const REPLY_EXTERNAL: u32 = 11;
pub(super) const REPLY_MIDDLE: u32 = 12;
pub(super) const REPLY_INLINE: u32 = 13;

/// The credit word of a peer that always grants enough.
pub(super) const CREDIT: u32 = 1000;

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerV2 {
    /// A Reply, with its XID.
    Reply(u32),
    /// An `RDMA2_ERROR` in version 2: its XID, and its code with the words behind it.
    Error(u32, Vec<u32>),
    /// An `RDMA2_ERROR` in another version: its XID, its version, and the other words.
    OtherVersion(u32, u32, Vec<u32>),
    /// The last message of properties.
    Properties,
    /// The connection is closed.
    Closed,
}

use AnswerV2::{Closed, Error, OtherVersion, Properties, Reply};

impl AnswerV2 {
    fn of(message: &[u8]) -> Option<Self> {
        let words = words(message);
        Some(match words[..] {
            // [V2-6.3.2-1]
            [0, 2, _, GRANT] => return None,
            [_, 2, _, CONNPROP_FINAL, ..] => Properties,
            [xid, 2, _, REPLY_INLINE | REPLY_EXTERNAL, ..] => Reply(xid),
            [xid, 2, _, ERROR, ref body @ ..] => Error(xid, body.to_vec()),
            [xid, vers, _, ERROR, ref body @ ..] => OtherVersion(xid, vers, body.to_vec()),
            _ => panic!("no answer of version 2: {words:x?}"),
        })
    }
}

pub(super) fn words(message: &[u8]) -> Vec<u32> {
    message.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

/// Returns a message from its XID and header type, the rest of its header, and its Payload stream.
pub(super) fn message(xid: u32, htype: u32, header: &[u32], payload: &[u8]) -> Vec<u8> {
    [&octets(&[xid, 2, CREDIT, htype]), &octets(header), payload].concat()
}

/// The header of a Call without a handle to invalidate and without chunks.
pub(super) const BARE: [u32; 4] = [0; 4];

/// A peer on a connection of its own.
pub(super) struct Peer(pub(super) Link);

impl Peer {
    pub(super) fn connect(server: SocketAddr) -> Self {
        Self(Link::connect(server, &Config::default(), &PRIVATE_DATA, 16).unwrap().0)
    }

    pub(super) fn open(server: SocketAddr) -> Self {
        Self::saying(server, &[0])
    }

    /// Connects, and ends the setup with `properties`.
    pub(super) fn saying(server: SocketAddr, properties: &[u32]) -> Self {
        let mut peer = Self::connect(server);
        peer.0.send(&message(1, CONNPROP_FINAL, properties, &[])).unwrap();
        assert_eq!(peer.answer(), Properties);
        peer
    }

    /// Returns the words of the next message that is no grant.
    pub(super) fn next(&mut self) -> Vec<u32> {
        loop {
            let message = self.0.message(None).unwrap().unwrap();
            assert!(message.len().is_multiple_of(4), "nothing but words");
            let message = words(&message);
            if message[3] != GRANT {
                return message;
            }
        }
    }

    pub(super) fn answer(&mut self) -> AnswerV2 {
        loop {
            let message = match self.0.message(None) {
                Ok(message) => message.expect("nothing but a message ends the wait"),
                Err(Failure::Ended(_)) => return Closed,
                Err(other) => panic!("{other}"),
            };
            if let Some(answer) = AnswerV2::of(&message) {
                return answer;
            }
        }
    }

    /// Makes a valid Call. Returns the first answer.
    pub(super) fn null(&mut self, xid: u32) -> AnswerV2 {
        match self.0.send(&message(xid, CALL_INLINE, &BARE, &call(xid, NULL, &[]))) {
            Ok(()) => self.answer(),
            Err(_) => Closed,
        }
    }

    /// Makes the server keep an item.
    pub(super) fn put(&mut self, xid: u32, item: &[u8]) {
        let source = self.0.expose(item, item.len(), Access::RemoteRead).unwrap();
        let read = [&[0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
        self.0.send(&message(xid, CALL_INLINE, &read, &call(xid, PUT, &[source.length]))).unwrap();
        assert_eq!(self.answer(), Reply(xid));
    }

    /// Sends messages, and checks that `answers` and no others come.
    fn expect(mut self, what: &str, messages: &[Vec<u8>], answers: &[AnswerV2]) {
        for message in messages {
            self.0.send(message).unwrap();
        }
        for answer in answers {
            assert_eq!(self.answer(), *answer, "{what}");
        }
        if answers.last() != Some(&Closed) {
            assert_eq!(self.null(9), Reply(9), "after {what}");
            self.0.close().unwrap();
        }
    }
}

/// The name of a case, its messages, and the answers to them.
type Case = (&'static str, Vec<Vec<u8>>, Vec<AnswerV2>);

/// Returns the cases of the first messages on a connection.
fn openings() -> Vec<Case> {
    let null = |xid| message(xid, CALL_INLINE, &BARE, &call(xid, NULL, &[]));
    let properties = |htype, set: &[u32]| message(1, htype, set, &[]);
    let last = |set: &[u32]| properties(CONNPROP_FINAL, set);
    let version =
        |vers| [octets(&[7, vers, CREDIT, CALL_INLINE, 0, 0, 0, 0]), call(7, NULL, &[])].concat();
    vec![
        ("a Call before any properties", vec![null(7)], vec![Reply(7)]),
        ("no properties", vec![last(&[0])], vec![Properties]),
        ("an unknown property", vec![last(&[1, 77, 4, 5])], vec![Properties]),
        ("an empty value", vec![last(&[1, 2, 0])], vec![Properties]),
        ("a host authentication message", vec![last(&[1, 6, 8, 4, 5])], vec![Properties]),
        (
            "host authentication that is no opaque",
            vec![last(&[1, 6, 4, 5])],
            vec![Error(1, vec![3])],
        ),
        ("a value of two words", vec![last(&[1, 2, 8, 4096, 2])], vec![Error(1, vec![3])]),
        ("room for an error and a verdict", vec![last(&[1, 2, 4, 64])], vec![Properties]),
        ("no room for an error and a verdict", vec![last(&[1, 2, 4, 63])], vec![Error(1, vec![3])]),
        ("a send size of two words", vec![last(&[1, 1, 8, 4096, 2])], vec![Error(1, vec![3])]),
        ("a segment size of two words", vec![last(&[1, 3, 8, 4096, 2])], vec![Error(1, vec![3])]),
        ("a segment count of two words", vec![last(&[1, 4, 8, 16, 2])], vec![Error(1, vec![3])]),
        ("a reverse direction of two words", vec![last(&[1, 5, 8, 0, 2])], vec![Error(1, vec![3])]),
        ("a value beyond the message", vec![last(&[1, 2, 400, 1])], vec![Error(1, vec![3])]),
        ("a set that ends early", vec![last(&[2, 2, 4, 4096])], vec![Error(1, vec![2])]),
        ("properties without a set", vec![last(&[])], vec![Error(1, vec![2])]),
        (
            "properties in two messages",
            vec![properties(CONNPROP_MIDDLE, &[0]), last(&[0])],
            vec![Properties],
        ),
        // The second message is answered with a grant: the server has sent all of its properties.
        (
            "properties in three messages",
            vec![properties(CONNPROP_MIDDLE, &[0]), properties(CONNPROP_MIDDLE, &[0]), last(&[0])],
            vec![Properties],
        ),
        (
            "a Call between two properties",
            vec![properties(CONNPROP_MIDDLE, &[0]), null(7), last(&[0])],
            vec![Properties, Error(7, INVAL_CONT.to_vec())],
        ),
        (
            "a Call cut short between two properties",
            vec![properties(CONNPROP_MIDDLE, &[0]), message(7, CALL_INLINE, &[], &[]), last(&[0])],
            vec![Properties, Error(7, INVAL_CONT.to_vec())],
        ),
        ("a grant", vec![properties(GRANT, &[])], vec![]),
        ("version 3", vec![version(3)], vec![OtherVersion(7, 3, vec![1, 1, 2])]),
        ("an error", vec![message(1, ERROR, &[2], &[])], vec![Closed]),
        ("a refusal of the version", vec![message(1, ERROR, &[1, 1, 1], &[])], vec![Closed]),
        ("12 octets", vec![octets(&[1, 2, CREDIT])], vec![]),
    ]
}

// [V2-7.2.2-2]
#[test]
fn nothing_is_applied_of_properties_of_which_one_is_bad() {
    let server = server();
    // Behind Receives of 8 KiB, a length of segments that is no word; and Receives that no error fits.
    for bad in [&[2, 2, 4, 8192, 3, 8, 0, 0][..], &[1, 2, 4, 16][..]] {
        let mut peer = Peer::connect(server.started);
        peer.0.send(&message(1, CONNPROP_FINAL, bad, &[])).unwrap();
        assert_eq!(peer.answer(), Error(1, BAD_PROPVAL.to_vec()));
        peer.0.send(&message(2, CONNPROP_FINAL, &[0], &[])).unwrap();
        assert_eq!(peer.answer(), Properties, "the setup goes on");
        // This is longer than messages are that nobody has asked to be longer.
        peer.0.send(&message(3, CALL_INLINE, &BARE, &call(3, LIST, &[4500]))).unwrap();
        let first = peer.next();
        assert_eq!((first[0], first[3]), (3, REPLY_MIDDLE));
        assert!(4 * first.len() <= 4096, "{} words", first.len());
        peer.0.close().unwrap();
    }
    server.stop().unwrap();
}

#[test]
fn what_a_client_begins_with_is_answered_by_the_rules() {
    let server = server();
    for (what, messages, answers) in openings() {
        Peer::connect(server.started).expect(what, &messages, &answers);
    }
    server.stop().unwrap();
}

/// Returns a Read list with segments of 8 octets at these positions.
fn reads(positions: &[u32]) -> Vec<u32> {
    let entries = positions.iter().flat_map(|at| [1, *at, 0xbad, 8, 0, 0x1000]);
    entries.chain([0]).collect()
}

/// Returns a Write chunk of `count` segments.
fn write(count: u32) -> Vec<u32> {
    let segments = (0..count).flat_map(|_| nowhere(64));
    [1, count].into_iter().chain(segments).collect()
}

/// Returns a case of one message, with one answer or none.
fn one(what: &'static str, message: Vec<u8>, answer: Option<AnswerV2>) -> Case {
    (what, vec![message], answer.into_iter().collect())
}

fn refused(words: &[u32]) -> Option<AnswerV2> {
    Some(Error(7, words.to_vec()))
}

const BAD_PROPVAL: &[u32] = &[3];
const BAD_XDR: &[u32] = &[2];
const INVAL_HTYPE: &[u32] = &[4];
pub(super) const INVAL_CONT: &[u32] = &[5];
pub(super) const SYSTEM: &[u32] = &[100];

/// Returns cases of malformed or misplaced messages, of every header type.
fn malformed() -> Vec<Case> {
    let null = call(7, NULL, &[]);
    let inline = |header: &[u32]| message(7, CALL_INLINE, header, &null);
    let bare = |htype, header: &[u32]| message(7, htype, header, &[]);
    let lists = |reads: &[u32]| inline(&[&[0], reads, &[0, 0]].concat());
    let external = |call: &[u32]| bare(CALL_EXTERNAL, &[&[0], call, &[0, 0, 0]].concat());
    let wraps = [1, 44, 0xbad, 0x20, u32::MAX, 0xffff_fff0, 0];
    let reply = octets(&[7, 1, 0, 0, 0, 0]);
    vec![
        one("an empty Send", Vec::new(), None),
        one("12 octets", octets(&[7, 2, CREDIT]), None),
        one("an error without a code", bare(ERROR, &[]), None),
        one("an error of an unknown code", bare(ERROR, &[77]), None),
        one("an error with more behind it", bare(ERROR, &[2, 0]), None),
        one("an error about no Call", bare(ERROR, &[2]), None),
        one("an error about the header type of no Call", bare(ERROR, &[4]), None),
        one("a refusal of the version", bare(ERROR, &[1, 1, 1]), Some(Closed)),
        one("another version being spoken", bare(ERROR, &[11]), Some(Closed)),
        one("a grant", bare(GRANT, &[]), None),
        one("a grant with more behind it", bare(GRANT, &[0]), None),
        one("properties cut short", bare(CONNPROP_MIDDLE, &[]), refused(BAD_XDR)),
        one("the last properties cut short", bare(CONNPROP_FINAL, &[]), refused(BAD_XDR)),
        one("properties again", bare(CONNPROP_FINAL, &[0]), refused(INVAL_CONT)),
        one("a bad property", bare(CONNPROP_FINAL, &[1, 2, 8, 1, 2]), refused(&[3])),
        one("CALL_INLINE cut short", bare(CALL_INLINE, &[]), refused(BAD_XDR)),
        one("no Payload stream", bare(CALL_INLINE, &BARE), refused(BAD_XDR)),
        one(
            "another XID inside",
            message(7, CALL_INLINE, &BARE, &call(8, NULL, &[])),
            refused(BAD_XDR),
        ),
        one("a Call cut short", message(7, CALL_INLINE, &BARE, &octets(&[7, 0])), refused(BAD_XDR)),
        one("a Reply as a Call", message(7, CALL_INLINE, &BARE, &reply), refused(BAD_XDR)),
        one("a handle of no chunk", inline(&[5, 0, 0, 0]), refused(BAD_XDR)),
        one("any discriminator but one", inline(&[0, 0, 2, 1, 9, 8, 0, 0, 0]), refused(BAD_XDR)),
        one("a list without end", bare(CALL_INLINE, &[0, 1, 44, 1, 2, 3, 4]), refused(BAD_XDR)),
        one("a position within a word", lists(&reads(&[42])), refused(BAD_XDR)),
        one("a Read chunk at position zero", lists(&reads(&[0])), refused(BAD_XDR)),
        one("positions that decrease", lists(&reads(&[52, 44])), refused(BAD_XDR)),
        one("a segment that wraps", lists(&wraps), refused(BAD_XDR)),
        one("CALL_EXTERNAL cut short", bare(CALL_EXTERNAL, &[0]), refused(BAD_XDR)),
        one("CALL_EXTERNAL of nothing", external(&[0]), refused(BAD_XDR)),
        one("a Call chunk elsewhere", external(&reads(&[44])), refused(BAD_XDR)),
        one(
            "CALL_EXTERNAL and inline",
            [external(&reads(&[0])), null.clone()].concat(),
            refused(BAD_XDR),
        ),
        one("a Call from nowhere", external(&reads(&[0])), Some(Closed)),
        one("CALL_MIDDLE cut short", bare(CALL_MIDDLE, &[]), refused(BAD_XDR)),
        (
            "a continued Call of nothing",
            vec![bare(CALL_MIDDLE, &[0]), bare(CALL_INLINE, &BARE)],
            vec![Error(7, INVAL_CONT.to_vec())],
        ),
        (
            "a continued Call of its XID",
            vec![message(7, CALL_MIDDLE, &[0], &octets(&[7])), bare(CALL_INLINE, &BARE)],
            vec![Error(7, BAD_XDR.to_vec())],
        ),
        one("REPLY_EXTERNAL cut short", bare(REPLY_EXTERNAL, &[]), None),
        one("REPLY_EXTERNAL to nobody", bare(REPLY_EXTERNAL, &[0, 1, 0]), None),
        one("REPLY_MIDDLE to nobody", message(7, REPLY_MIDDLE, &[8], &reply), None),
        one("REPLY_INLINE cut short", bare(REPLY_INLINE, &[]), None),
        one("REPLY_INLINE to nobody", message(7, REPLY_INLINE, &[0], &reply), None),
    ]
}

/// Returns cases of valid messages that ask for something the server does not support, or for too much.
fn unsupported() -> Vec<Case> {
    let to = |procedure, header: &[u32]| message(7, CALL_INLINE, header, &call(7, procedure, &[8]));
    let read = |positions: &[u32]| [&[0], &reads(positions)[..], &[0, 0]].concat();
    let writes = |chunks: &[Vec<u32>]| [&[0, 0], &chunks.concat()[..], &[0, 0]].concat();
    let external = |length| {
        let chunk = [&[1, 0][..], &nowhere(length)].concat();
        message(7, CALL_EXTERNAL, &[&[0], &chunk[..], &[0, 0, 0, 0]].concat(), &[])
    };
    let empty = [&[1, 1][..], &nowhere(0)].concat();
    let long = [0, 1, 44, 0xbad, 65 << 20, 0, 0x1000, 0, 0, 0];
    let htype = |htype| message(7, htype, &BARE, &call(7, NULL, &[]));
    let beyond = (1 << 20) - 39;
    let [long_one, rest] =
        [message(7, CALL_MIDDLE, &[beyond], &call(7, NULL, &[])), htype(CALL_INLINE)];
    let rest_of_it = message(7, CALL_INLINE, &BARE, &octets(&[1, 2, 3, 4]));
    let version = |vers| [octets(&[7, vers, CREDIT, 0, 0, 0, 0]), call(7, NULL, &[])].concat();
    let like =
        |vers| [octets(&[7, vers, CREDIT, CALL_INLINE, 0, 0, 0, 0]), call(7, NULL, &[])].concat();
    let credit = |credit, xid| {
        let mut words = words(&message(xid, CALL_INLINE, &BARE, &call(xid, NULL, &[])));
        words[2] = credit;
        octets(&words)
    };
    vec![
        one("two arguments", to(PUT, &read(&[44, 52])), refused(&[6, 1])),
        one("five arguments", to(PUT, &read(&[44, 52, 60, 68, 76])), refused(&[6, 4])),
        one("an argument of NULL", to(NULL, &read(&[44])), refused(&[6, 0])),
        one("two results", to(GET, &writes(&[write(1), write(1)])), refused(&[7, 1])),
        one("five results", to(GET, &writes(&[1; 5].map(write))), refused(&[7, 4])),
        one("a result of NULL", to(NULL, &writes(&[write(1)])), refused(&[7, 0])),
        one("no result of NULL, in no segment", to(NULL, &writes(&[write(0)])), Some(Reply(7))),
        one("no result of NULL, in an empty segment", to(NULL, &writes(&[empty])), Some(Reply(7))),
        one("17 segments to write", to(GET, &writes(&[write(17)])), refused(&[8, 16])),
        // In all; as many in each chunk as this are taken.
        one("18 segments in two results", to(GET, &writes(&[9, 9].map(write))), refused(&[8, 8])),
        one("17 segments to read", to(PUT, &read(&[44; 17])), refused(&[8, 16])),
        one(
            "17 segments of the Call",
            message(7, CALL_EXTERNAL, &[&[0], &reads(&[0; 17])[..], &[0, 0, 0]].concat(), &[]),
            refused(&[8, 16]),
        ),
        // E5: segments of one chunk are not divided by another chunk.
        one("two arguments in turns", to(PUT, &read(&[44, 52, 44])), refused(BAD_XDR)),
        one("arguments in the wrong order", to(PUT, &read(&[52, 44])), refused(BAD_XDR)),
        one("a segment longer than we take", to(PUT, &long), refused(SYSTEM)),
        one("a Call longer than we fetch", external(257 << 10), refused(SYSTEM)),
        one("a Call of no octets", external(0), refused(BAD_XDR)),
        // A continued Call that is too long is refused at once; the rest of it is dropped without an answer.
        one("CALL_MIDDLE of too much", long_one.clone(), refused(SYSTEM)),
        ("CALL_MIDDLE and the rest", vec![long_one.clone(), rest_of_it], vec![Error(7, vec![100])]),
        ("CALL_MIDDLE and a Call", vec![long_one, rest], vec![Error(7, vec![100]), Reply(7)]),
        one("header type 0", htype(0), refused(INVAL_HTYPE)),
        one("header type 3", htype(3), refused(INVAL_HTYPE)),
        one("header type 14", htype(14), refused(INVAL_HTYPE)),
        one("any header type", htype(0xdead_beef), refused(INVAL_HTYPE)),
        one("ROPT_XMTCONT", htype(XMTCONT), refused(INVAL_HTYPE)),
        one("version 1", version(1), Some(OtherVersion(7, 1, vec![11]))),
        one("version 3", version(3), Some(OtherVersion(7, 3, vec![11]))),
        one("version 3 of the same form", like(3), Some(OtherVersion(7, 3, vec![11]))),
        one("the largest credit", credit(0x7fff_ffff, 7), Some(Reply(7))),
        one("a credit beyond the largest", credit(0x8000_0000, 7), Some(Closed)),
        // The credit word covers the properties alone, so the Reply waits for the grant.
        (
            "no credit, and then some",
            vec![credit(1, 7), message(0, GRANT, &[], &[])],
            vec![Reply(7)],
        ),
    ]
}

#[test]
fn a_client_that_breaks_the_rules_or_asks_too_much_is_told_and_troubles_nobody() {
    let server = server();
    let mut bystander = Peer::open(server.started);
    for (xid, (what, messages, answers)) in
        (100..).zip(malformed().into_iter().chain(unsupported()))
    {
        Peer::open(server.started).expect(what, &messages, &answers);
        assert_eq!(bystander.null(xid), Reply(xid), "beside {what}");
    }
    bystander.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn every_rtrext_header_type_is_refused_by_its_xid() {
    let server = server();
    let mut refused = 0;
    for htype in CODE_BASE..CODE_BASE + 16 {
        let mut peer = Peer::open(server.started);
        peer.0.send(&message(7, htype, &[0; 12], &[])).unwrap();
        // ROPT_REPTERR reports an error, so it is not answered.
        let answer = peer.null(9);
        if answer != Reply(9) {
            assert_eq!(answer, Error(7, INVAL_HTYPE.to_vec()), "{htype:x}");
            refused += 1;
        }
        peer.0.close().unwrap();
    }
    assert_eq!(refused, 15, "all but ROPT_REPTERR");
    server.stop().unwrap();
}

#[test]
fn a_client_that_ignores_its_credits_loses_its_connection_alone() {
    const CALLS: u32 = 600;
    let server = server();
    let mut bystander = Peer::open(server.started);
    let mut peer = Peer::open(server.started);
    let hold = |xid| message(xid, CALL_INLINE, &BARE, &call(xid, HOLD, &[]));
    let sent = (0..CALLS).take_while(|xid| peer.0.send(&hold(*xid)).is_ok()).count();
    assert!(sent > 128, "more than it was granted");
    assert_eq!(peer.answer(), Closed, "it used Receives that were not its own");
    assert_eq!(bystander.null(5), Reply(5));
    server.stop().unwrap();
}

#[test]
fn obeying_a_refusal_for_want_of_room_once_is_enough() {
    let server = terse_server_of(|_| Keeper::default());
    let mut peer = Peer::open(server.started);
    let item = vec![0x5a; 20_001];
    let length = u32::try_from(item.len()).unwrap();
    peer.put(3, &item);
    // [V2-7.3.5-2]
    peer.0.send(&message(4, CALL_INLINE, &BARE, &call(4, GET, &[]))).unwrap();
    let needed = 24 + 4 + 20_004;
    assert_eq!(peer.answer(), Error(4, vec![10, needed]));
    let room = peer.0.expose(&[], needed as usize, Access::RemoteWrite).unwrap();
    let reply = [&[0, 0, 0, 1, 1][..], &segment(room)].concat();
    peer.0.send(&message(5, CALL_INLINE, &reply, &call(5, GET, &[]))).unwrap();
    assert_eq!(peer.answer(), Reply(5));
    let lease = peer.0.retire(room.handle).unwrap();
    assert_eq!(lease.bytes()[28..28 + item.len()], item);
    // [V2-7.3.4-1] [V2-7.3.4-3] A Write chunk needs room for the item. An empty one asks for the item inline.
    let short = |chunk: &[u32]| [&[0, 0, 1][..], chunk, &[0, 0]].concat();
    let one = [&[1][..], &nowhere(16)].concat();
    peer.0.send(&message(6, CALL_INLINE, &short(&one), &call(6, GET, &[]))).unwrap();
    assert_eq!(peer.answer(), Error(6, vec![9, 1, length]));
    peer.0.send(&message(7, CALL_INLINE, &short(&[0]), &call(7, GET, &[]))).unwrap();
    assert_eq!(peer.answer(), Error(7, vec![10, needed]));
    // A result that is never reduced needs room in the Reply chunk as well.
    let most = u32::try_from(ITEM_MAX).unwrap();
    peer.0.send(&message(8, CALL_INLINE, &BARE, &call(8, ECHO, &[most]))).unwrap();
    assert_eq!(peer.answer(), Error(8, vec![10, 24 + 4 + most]));
    assert_eq!(peer.null(9), Reply(9));
    server.stop().unwrap();
}

#[test]
fn a_reduced_result_leaves_its_length_and_fills_its_chunk_in_order() {
    let server = server();
    let mut peer = Peer::open(server.started);
    let item = vec![0x5a; 20_001];
    peer.put(3, &item);
    let room = peer.0.expose(&[0xee; 22_000], 22_000, Access::RemoteWrite).unwrap();
    // [V2-4.4.1-1] [V2-4.4.1-2] Segments may end at any octet.
    let chunk = |lengths: [u32; 4]| {
        let starts = [0, 16_000, 19_998, 21_000].map(|start| room.offset + start);
        let parts = lengths.into_iter().zip(starts);
        let words = parts.flat_map(|(length, offset)| segment(Segment { length, offset, ..room }));
        [1, 4].into_iter().chain(words).chain([0]).collect::<Vec<_>>()
    };
    let offered = [&[0, 0][..], &chunk([16_000, 3_998, 1_002, 1_000]), &[0]].concat();
    peer.0.send(&message(4, CALL_INLINE, &offered, &call(4, GET, &[]))).unwrap();
    let reply = peer.next();
    assert_eq!((reply[0], reply[1], reply[3]), (4, 2, REPLY_INLINE));
    // [V2-4.5.2.1-1] The count and all segments come back. [V2-4.5.3.1-1] [V2-4.5.3.1-2] Behind them and the
    // header of the RPC Reply is the length, which is the chunk's [V2-4.5.3.1-3], and no padding.
    let returned = chunk([16_000, 3_998, 3, 0]);
    assert_eq!(reply[4..], [&returned[..], &[4, 1, 0, 0, 0, 0, 20_001]].concat());
    let lease = peer.0.retire(room.handle).unwrap();
    assert_eq!(lease.bytes()[..item.len()], item);
    // [V2-4.5.2.4-2] No padding is written into the chunk either.
    assert_eq!(lease.bytes()[item.len()..], [0xee; 1_999]);
    server.stop().unwrap();
}
