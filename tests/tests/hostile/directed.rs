//! Ends that direct how results come, or are directed (round-trip extensions, responses), and write every octet themselves:
//! clients, and servers. Some of them break the rules of that.

use std::net::SocketAddr;

use haulage::core::NoService;
use haulage::cores::CoreThread;
use haulage::limits::{LIMITS_DEFAULT, Limits, PLACING_SIZE, TRANSMISSIONS_MAX};
use haulage::service::{CallError, Request, TransportError};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Access, Handle, Segment};

use super::along::{
    EXRW, REPTERR, RESPSXLIM, STRUCTURE, SUPPORT, TBSN, Transmission, XMTCONT, XMTREQ, XMTRESP,
    item,
};
use super::caller::{GIVE, MOVE, Pair, rpc_reply};
use super::two::{
    AnswerV2, CALL_INLINE, CONNPROP_FINAL, CREDIT, ERROR, Peer, REPLY_INLINE, message, words,
};
use super::{GET, Keeper, NULL, PROGRAM, call, nowhere, octets, segment, server_within};

const CHOICE: u32 = 3;
const BYSIZE: u32 = 4;
const TOOSHORT: u32 = 5;
const NOITEM: u32 = 6;

const LIMITS: Limits = Limits {
    connections_max: 16,
    receives_max: 128,
    receive_size: PLACING_SIZE,
    send_size: PLACING_SIZE,
    responses: true,
    ..LIMITS_DEFAULT
};

/// With responses in several messages.
const GROUPS: Limits = Limits { transmissions_max: TRANSMISSIONS_MAX, ..LIMITS };

fn serve() -> CoreThread<SocketAddr> {
    server_within(LIMITS, |_| Keeper::default())
}

/// Supports requests and responses, in one transmission each. Its Receives have 4 KiB, of which the last 3840 octets take
/// items.
const SAID: [u32; 16] = [2, SUPPORT, 4, 3, STRUCTURE, 40, 4096, 2, 1, 256, 64, 0, 1, 3840, 64, 1];

/// Supports those in several transmissions as well.
const GROUPS_SAID: [u32; 16] = {
    let mut said = SAID;
    said[3] = 7;
    said
};

/// Sends messages as long as the client's Receives, and responses of as many as four.
const FOUR_SAID: [u32; 10] = [3, 1, 4, PLACING_SIZE, SUPPORT, 4, 7, RESPSXLIM, 4, 4];

/// Sends as long messages, and responses of one.
const ONE_SAID: [u32; 7] = [2, 1, 4, PLACING_SIZE, SUPPORT, 4, 7];

/// Connects as a client whose properties are these.
fn connect(server: SocketAddr) -> Peer {
    Peer::saying(server, &SAID)
}

/// A GET with these sets of directions.
fn get(xid: u32, directions: &[u32]) -> Transmission {
    Transmission {
        xid,
        htype: XMTREQ,
        items: vec![0],
        directions: directions.to_vec(),
        count: 1,
        reserved: 0,
        payload_len: None,
        payload: call(xid, GET, &[]),
        at: 0,
        behind: vec![],
    }
}

/// The answers in a response, its Payload stream, and what is behind.
type Response = (Vec<u32>, Vec<u32>, Vec<u8>);

/// Takes a response in one transmission apart. Its answers to the directions take `answers` words.
fn parted(xid: u32, octets: &[u8], answers: usize) -> Response {
    let all = words(octets);
    assert_eq!((all[0], all[1], all[3]), (xid, 2, XMTRESP), "{all:x?}");
    let (answered, rest) = all[4..].split_at(answers);
    let [1, payload, ..] = rest[..] else { panic!("{all:x?}") };
    let start = 4 * (4 + answers + 2);
    let end = start + payload as usize;
    (answered.to_vec(), words(&octets[start..end]), octets[end..].to_vec())
}

impl Peer {
    /// Returns the octets of the next message that is no grant.
    fn octets(&mut self) -> Vec<u8> {
        loop {
            let message = self.0.message(None).unwrap().unwrap();
            if words(&message)[3] != super::two::GRANT {
                return message;
            }
        }
    }

    /// Sends a GET with directions. Returns the parts of the response, whose answers take `answers` words.
    fn asked(&mut self, xid: u32, directions: &[u32], answers: usize) -> Response {
        self.0.send(&get(xid, directions).message()).unwrap();
        let octets = self.octets();
        parted(xid, &octets, answers)
    }
}

/// The Payload stream of a GET whose item is not in it.
fn results(xid: u32, length: u32) -> Vec<u32> {
    vec![xid, 1, 0, 0, 0, 0, length]
}

#[test]
fn a_server_follows_each_direction() {
    let server = serve();
    let mut peer = connect(server.started);
    let kept = item(3000);
    peer.put(7, &kept);
    let along = |xid: u32, (answers, payload, behind): Response| {
        assert_eq!(answers, [1, 28, 3000, TBSN, 0, 1, 0]);
        assert_eq!(payload, results(xid, 3000));
        // Nothing else leaks: the item begins at the octet 256.
        let (zeros, rest) = behind.split_at(256 - 16 - 28 - 8 - 28);
        assert!(zeros.iter().all(|octet| *octet == 0) && rest == kept);
    };
    along(10, peer.asked(10, &[1, 0, u32::MAX, 1, 0, TBSN], 7));
    // Whatever else is chosen, the item has room in the message.
    let room = peer.0.expose(&[0x55; 4000], 4000, Access::RemoteWrite).unwrap();
    let choice = [&[1, 0, u32::MAX, 1, 0, CHOICE, 1][..], &segment(room)].concat();
    along(11, peer.asked(11, &choice, 7));
    let by_size = [&[1, 0, u32::MAX, 1, 0, BYSIZE, 3001, 1][..], &segment(room)].concat();
    along(12, peer.asked(12, &by_size, 7));
    assert!(peer.0.retire(room.handle).unwrap().bytes().iter().all(|octet| *octet == 0x55));
    // By RDMA Write: all segments return, with what was written.
    let written = |peer: &mut Peer, xid: u32, place: &[u32]| {
        let room = peer.0.expose(&[], 4000, Access::RemoteWrite).unwrap();
        let [first, second, third] = [(0, 2000), (2000, 1500), (3500, 500)]
            .map(|(at, length)| segment(Segment { length, offset: room.offset + at, ..room }));
        let directions =
            [&[1, 0, u32::MAX, 1, 0][..], place, &[3], &first, &second, &third].concat();
        let (answers, payload, behind) = peer.asked(xid, &directions, 17);
        assert_eq!((&answers[..5], payload), (&[1, 28, 3000, EXRW, 3][..], results(xid, 3000)));
        let lengths = [2000, 1000, 0];
        for ((got, sent), length) in answers[5..].chunks(4).zip([first, second, third]).zip(lengths)
        {
            assert_eq!((got[0], got[1], &got[2..]), (sent[0], length, &sent[2..]));
        }
        assert!(behind.is_empty());
        assert!(peer.0.retire(room.handle).unwrap().bytes()[..3000] == kept);
    };
    written(&mut peer, 13, &[EXRW]);
    written(&mut peer, 14, &[BYSIZE, 3000]);
    // Too short for the first direction: it is in the Payload stream, and nothing is left for the second.
    let two = [1, 0, u32::MAX, 2, 3001, TBSN, 0, TBSN];
    let (answers, payload, _) = peer.asked(15, &two, 7);
    assert_eq!(answers, [2, 28, 3000, TOOSHORT, 0, 0, NOITEM]);
    assert_eq!(payload[..7], results(15, 3000));
    assert!(octets(&payload[7..]) == kept);
    // What the Call causes is in the second range.
    let ranges = [2, 0, 20, 1, 0, TBSN, 20, u32::MAX, 1, 0, TBSN];
    let (answers, payload, behind) = peer.asked(16, &ranges, 10);
    assert_eq!(answers, [2, 0, 0, NOITEM, 28, 3000, TBSN, 0, 1, 0]);
    assert_eq!(payload, results(16, 3000));
    assert!(behind.ends_with(&kept));
    // No range has it: it stays in the Payload stream.
    let (answers, payload, _) = peer.asked(17, &[1, 0, 20, 1, 0, TBSN], 4);
    assert_eq!(answers, [1, 0, 0, NOITEM]);
    assert!(octets(&payload[7..]) == kept);
    // A CHOICE for what has no room in the message.
    let kept = item(5000);
    peer.put(20, &kept);
    let room = peer.0.expose(&[], 5000, Access::RemoteWrite).unwrap();
    let choice = [&[1, 0, u32::MAX, 1, 0, CHOICE, 1][..], &segment(room)].concat();
    let (answers, payload, _) = peer.asked(21, &choice, 9);
    assert_eq!(answers, [&[1, 28, 5000, EXRW, 1][..], &segment(room)].concat());
    assert_eq!(payload, results(21, 5000));
    assert!(peer.0.retire(room.handle).unwrap().bytes()[..5000] == kept);
    peer.0.close().unwrap();
    server.stop().unwrap();
}

/// The octets that a message of [`connect`]'s Receives has for items.
const EACH: usize = 3840;

#[test]
fn a_server_sends_no_more_messages_than_are_reserved() {
    let server = server_within(GROUPS, |_| Keeper::default());
    let mut peer = Peer::saying(server.started, &GROUPS_SAID);
    let kept = item(10_000);
    peer.put(7, &kept);
    let directions = [1, 0, u32::MAX, 1, 0, TBSN];
    for reserved in [2, 3, 9] {
        let xid = 10 + reserved;
        peer.0.send(&Transmission { reserved, ..get(xid, &directions) }.message()).unwrap();
        let first = peer.octets();
        let all = words(&first);
        assert_eq!((all[0], all[1], all[3]), (xid, 2, XMTRESP));
        assert_eq!(all[4..15], [1, 28, 10_000, TBSN, 0, 3, 0, 1, 2, 3, 28]);
        assert_eq!(all[15..22], results(xid, 10_000));
        assert_eq!(first.len(), 256 + EACH);
        let mut got = first[256..].to_vec();
        for number in [1, 2] {
            let next = peer.octets();
            let all = words(&next[..28]);
            assert_eq!((all[0], all[1], &all[3..]), (xid, 2, &[XMTCONT, number, 0, 0][..]));
            // Nothing else leaks.
            assert!(next[28..256].iter().all(|octet| *octet == 0));
            got.extend(&next[256..]);
        }
        assert!(got == kept, "{reserved}");
    }
    // Too few: there is no room for the result. Nothing else says how long it is.
    for reserved in [0, 1] {
        peer.0.send(&Transmission { reserved, ..get(7, &directions) }.message()).unwrap();
        assert_eq!(peer.answer(), AnswerV2::Error(7, vec![9, 1, 10_000]), "{reserved}");
    }
    // A choice is left: it is written, and the response is one message.
    let room = peer.0.expose(&[], 10_000, Access::RemoteWrite).unwrap();
    let choice = [&[1, 0, u32::MAX, 1, 0, CHOICE, 1][..], &segment(room)].concat();
    peer.0.send(&Transmission { reserved: 1, ..get(8, &choice) }.message()).unwrap();
    let (answers, payload, _) = parted(8, &peer.octets(), 9);
    assert_eq!(answers, [&[1, 28, 10_000, EXRW, 1][..], &segment(room)].concat());
    assert_eq!(payload, results(8, 10_000));
    assert!(peer.0.retire(room.handle).unwrap().bytes()[..10_000] == kept);
    peer.0.close().unwrap();
    server.stop().unwrap();
}

/// Directions that break a rule, or that cannot be followed, for an item of 5000 octets; and what the server says: the
/// header type, and the words behind that.
fn broken() -> Vec<(&'static str, Vec<u32>, Vec<u32>)> {
    let exrw = |length: u32| [&[0, EXRW, 1][..], &nowhere(length)].concat();
    // About the only transmission of the Call 7: a bad offset.
    let offset = |value: u32, min: u32| vec![REPTERR, 7, 0, 0, 0, 6, value, min, u32::MAX];
    let one = [1, 0, TBSN];
    vec![
        ("ranges out of order", [&[2, 40, 80][..], &one, &[0, 20], &one].concat(), offset(0, 80)),
        ("ranges that overlap", [&[2, 0, 40][..], &one, &[39, 80], &one].concat(), offset(39, 40)),
        ("a range that ends early", [&[1, 40, 20][..], &one].concat(), offset(20, 40)),
        ("an empty range twice", [&[2, 8, 8][..], &one, &[8, 9], &one].concat(), offset(8, 9)),
        (
            "five directions by Send",
            [&[1, 0, 9, 5][..], &[0, TBSN].repeat(5)].concat(),
            vec![ERROR, 7, 4],
        ),
        (
            "five directions by RDMA Write",
            [&[1, 0, 9, 5][..], &exrw(8).repeat(5)].concat(),
            vec![ERROR, 7, 4],
        ),
        (
            "memory for two results of one",
            [&[1, 0, 9, 2][..], &exrw(8).repeat(2)].concat(),
            vec![ERROR, 7, 1],
        ),
        ("too little memory", [&[1, 0, 99, 1][..], &exrw(4000)].concat(), vec![ERROR, 9, 1, 5000]),
        ("no memory", vec![1, 0, 99, 1, 0, EXRW, 0], vec![ERROR, 10, 5028]),
        ("no room in the message", vec![1, 0, 99, 1, 0, TBSN], vec![ERROR, 9, 1, 5000]),
        ("no such placement", vec![1, 0, 99, 1, 0, NOITEM], vec![ERROR, 2]),
        ("directions without end", vec![u32::MAX, 0, 99, 1, 0, TBSN], vec![ERROR, 2]),
    ]
}

#[test]
fn directions_that_break_the_rules_are_refused_and_trouble_nobody() {
    let server = serve();
    let mut bystander = connect(server.started);
    let kept = item(5000);
    bystander.put(1, &kept);
    for (xid, (what, directions, expected)) in (100..).zip(broken()) {
        let mut peer = connect(server.started);
        peer.put(5, &kept);
        peer.0.send(&get(7, &directions).message()).unwrap();
        let said = peer.next();
        assert_eq!((said[0], said[1], &said[3..]), (7, 2, &expected[..]), "{what}");
        assert_eq!(peer.null(9), AnswerV2::Reply(9), "after {what}");
        peer.0.close().unwrap();
        assert_eq!(bystander.null(xid), AnswerV2::Reply(xid), "beside {what}");
    }
    // A peer that has not said that it takes responses gets none.
    let mut peer = Peer::saying(server.started, &[1, SUPPORT, 4, 1]);
    peer.0.send(&get(7, &[1, 0, 99, 1, 0, TBSN]).message()).unwrap();
    assert_eq!(peer.answer(), AnswerV2::Error(7, vec![7, 0]));
    let null = Transmission { payload: call(8, NULL, &[]), ..get(8, &[0]) };
    peer.0.send(&null.message()).unwrap();
    assert_eq!(peer.answer(), AnswerV2::Reply(8));
    server.stop().unwrap();
}

#[test]
fn a_call_without_results_answers_every_direction() {
    let server = serve();
    let mut peer = connect(server.started);
    let null = Transmission { payload: call(7, NULL, &[]), ..get(7, &[1, 0, 99, 1, 0, TBSN]) };
    peer.0.send(&null.message()).unwrap();
    let octets = peer.octets();
    let (answers, payload, _) = parted(7, &octets, 4);
    assert_eq!((&answers[..], &payload[..]), (&[1, 0, 0, NOITEM][..], &[7, 1, 0, 0, 0, 0][..]));
    server.stop().unwrap();
}

/// Connects a client to a server that says the same as [`connect`].
fn pair() -> Pair {
    pair_within(LIMITS, &SAID)
}

/// Connects a client within these limits to a server that says so.
fn pair_within(limits: Limits, said: &'static [u32]) -> Pair {
    let limits = Limits { connections_max: 256, receives_max: 2048, ..limits };
    Pair::within(limits, NoService).answered(|xid| message(xid, CONNPROP_FINAL, said, &[]))
}

/// Has the client make a Call with room for a result of `room` octets. Returns the message that the server gets.
fn begin(pair: &mut Pair, room: usize) -> Vec<u32> {
    let mut room = pair.thread.started.lease(room).unwrap();
    room.bytes_mut().fill(0x77);
    pair.thread.started.begin(Request::new(GIVE).room(Some(room)), |_| Ok(())).unwrap();
    pair.message()
}

/// The only answer: the result of 3000 octets is in the first three parts of the Receive that take items.
const PLACED: [u32; 9] = [1, 28, 3000, TBSN, 0, 3, 0, 1, 2];

/// A response with these answers to directions, whose item is `length` octets by its Payload stream, and `behind` from the
/// octet 256 on.
fn response(xid: u32, answers: &[u32], length: u32, behind: &[u8]) -> Vec<u8> {
    let header = [answers, &[1, 28]].concat();
    let payload = [rpc_reply(xid), octets(&[length])].concat();
    let mut message = message(xid, XMTRESP, &header, &payload);
    if !behind.is_empty() {
        message.resize(256, 0);
    }
    message.extend(behind);
    message
}

/// Checks a message that directs how the only result comes: `place` says what.
fn directed(called: &[u32], place: &[u32]) {
    directed_within(called, place, 0);
}

/// The response may have `reserved` messages beyond the first.
fn directed_within(called: &[u32], place: &[u32], reserved: u32) {
    let xid = called[0];
    assert_eq!((called[1], called[3]), (2, XMTREQ));
    let directions = [&[0, 1, 0, u32::MAX, 1, 0][..], place].concat();
    let (header, rest) = called[4..].split_at(directions.len());
    assert_eq!(header, directions);
    // One transmission; then the Payload stream.
    assert_eq!(rest, [1, reserved, 40, xid, 0, 2, PROGRAM, 1, GIVE, 0, 0, 0, 0]);
}

/// Waits for the end of the only Call. Returns its result, which is in its room or in the Payload stream, and the octets of
/// the room, or why it failed.
fn outcome(pair: &mut Pair) -> Result<(u64, Vec<u8>), CallError> {
    use haulage_proto::chunk::Item;
    let (_, ended) = pair.thread.started.ended().unwrap();
    let reply = ended.map_err(|failed| {
        let is_answered = failed.error != CallError::TimedOut;
        assert!(failed.rooms.len() == 1 || !is_answered, "the room comes back");
        failed.error
    })?;
    let length = match reply.results().eligible_opaque(1 << 20) {
        Ok(Item::Reduced { length }) => length,
        Ok(Item::Unreduced(octets)) => octets.len() as u64,
        Err(_) => return Err(CallError::BadReply("the reader finds no result")),
    };
    Ok((length, reply.rooms.first().unwrap().bytes().to_vec()))
}

#[test]
fn a_client_takes_a_result_that_comes_along() {
    let mut pair = pair();
    let result = item(3000);
    // The longest that has room for certain, behind the longest Payload stream.
    let called = begin(&mut pair, 3072);
    directed(&called, &[TBSN]);
    let xid = called[0];
    pair.send(&response(xid, &PLACED, 3000, &result));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 3000 && room == result);
    // The item may begin within its part, and in any part.
    let called = begin(&mut pair, 3072);
    let late = [&[0; 64][..], &result[..100]].concat();
    pair.send(&response(called[0], &[1, 28, 100, TBSN, 64, 1, 0], 100, &late));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 100 && room == result[..100]);
    // A result that is longer than its room takes another one.
    let called = begin(&mut pair, 1000);
    directed(&called, &[TBSN]);
    pair.send(&response(called[0], &PLACED, 3000, &result));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 3000 && room == result);
    // There is none.
    let called = begin(&mut pair, 1000);
    let none = [octets(&[1, 0, 0, NOITEM, 1, 28]), rpc_reply(called[0]), octets(&[0])].concat();
    pair.send(&message(called[0], XMTRESP, &words(&none), &[]));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 0 && room.is_empty());
    // A Reply of the base protocol has it in the Payload stream.
    let called = begin(&mut pair, 1000);
    let inline = [rpc_reply(called[0]), octets(&[100]), result[..100].to_vec()].concat();
    pair.send(&message(called[0], REPLY_INLINE, &[0], &inline));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 100 && room.is_empty());
    pair.thread.stop().unwrap();
}

#[test]
fn a_client_takes_a_result_that_comes_in_as_many_messages_as_it_reserved() {
    let mut pair = pair_within(GROUPS, &FOUR_SAID);
    let result = item(30_000);
    let called = begin(&mut pair, 30_000);
    directed_within(&called, &[TBSN], 1);
    let xid = called[0];
    let continued = |number: u32, items: &[u8]| {
        let mut message = octets(&[xid, 2, CREDIT, XMTCONT, number, 0, 0]);
        message.resize(256, 0);
        message.extend(items);
        message
    };
    // Each Receive has four parts that take items.
    let answers = [1, 28, 30_000, TBSN, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7];
    let (front, rest) = result.split_at(PLACING_SIZE as usize - 256);
    let first = |count: u32| {
        let header = octets(&[xid, 2, CREDIT, XMTRESP]);
        let stream = [rpc_reply(xid), octets(&[30_000])].concat();
        let last = octets(&[&answers[..], &[count, 28]].concat());
        let mut message = [header, last, stream].concat();
        message.resize(256, 0);
        message.extend(front);
        message
    };
    // More than it reserved are reported, and dropped.
    pair.send(&first(5));
    let said = pair.message();
    assert_eq!((said[0], said[3]), (xid, REPTERR));
    // Another message breaks the group.
    pair.send(&first(2));
    pair.send(&message(xid, REPLY_INLINE, &[0], &[rpc_reply(xid), octets(&[0])].concat()));
    let said = pair.message();
    assert_eq!((said[0], said[3]), (xid, REPTERR));
    // So does a part that is not the next.
    pair.send(&first(2));
    pair.send(&continued(2, rest));
    let said = pair.message();
    assert_eq!((said[0], said[3]), (xid, REPTERR));
    pair.send(&first(2));
    pair.send(&continued(1, rest));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 30_000 && room == result);
    pair.thread.stop().unwrap();
    // The server sends one message.
    let mut pair = pair_within(GROUPS, &ONE_SAID);
    let called = begin(&mut pair, 30_000);
    directed(&called, &[&[EXRW, 1][..], &called[12..16]].concat());
    pair.thread.stop().unwrap();
}

#[test]
fn a_client_has_a_long_result_written_as_it_directs() {
    let mut pair = pair();
    let result = item(8000);
    for length in [3073, 8000] {
        let called = begin(&mut pair, length);
        let length = u32::try_from(length).unwrap();
        directed(&called, &[&[EXRW, 1][..], &called[12..16]].concat());
        let offset = u64::from(called[14]) << 32 | u64::from(called[15]);
        let room = Segment { handle: Handle(called[12]), length, offset };
        assert_eq!(called[13], length);
        pair.link.write(&result[..3000], Segment { length: 3000, ..room }).unwrap();
        let written = segment(Segment { length: 3000, ..room });
        let answers = [&[1, 28, 3000, EXRW, 1][..], &written].concat();
        pair.send(&response(called[0], &answers, 3000, &[]));
        let (got, room) = outcome(&mut pair).unwrap();
        assert!(got == 3000 && room == result[..3000]);
    }
    pair.thread.stop().unwrap();
}

/// What a response that breaks a rule leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    /// Its Call fails.
    Fails,
    /// It is reported, and the Call waits for another Reply (E18).
    Reported,
}

use Leads::{Fails, Reported};

/// Responses that break a rule, to a Call that directs its result to come along, or to be written to `room`.
fn wrong(xid: u32, room: Option<Segment>) -> Vec<(&'static str, Vec<u8>, Leads)> {
    let result = item(3000);
    let good = |answers: &[u32]| response(xid, answers, 3000, &result);
    let placed = |disp: u32, length: u32, numbers: &[u32]| {
        let count = u32::try_from(numbers.len()).unwrap();
        good(&[&[1, disp, length, TBSN, 0, count][..], numbers].concat())
    };
    let all = [0, 1, 2];
    let stream = [rpc_reply(xid), octets(&[3000]), result.clone()].concat();
    let short = message(xid, XMTRESP, &[1, 28, 3000, TOOSHORT, 1, 3028], &stream);
    let Some(room) = room else {
        let written = [&[1, 28, 3000, EXRW, 1][..], &nowhere(3000)].concat();
        return vec![
            ("no answer", good(&[0]), Fails),
            ("two answers", good(&[&[2], &PLACED[1..], &[0, 0, NOITEM]].concat()), Fails),
            ("a Write where none may be", response(xid, &written, 3000, &[]), Fails),
            ("a long one that is short", short.clone(), Fails),
            ("a kind of direction", good(&[1, 28, 3000, CHOICE, 0]), Fails),
            ("an item in no segment", placed(28, 3000, &[]), Reported),
            ("an item in other segments", placed(28, 3000, &[1, 2, 3]), Reported),
            ("an item in too few segments", placed(28, 3000, &[0, 1]), Reported),
            ("an item beyond the message", placed(28, 3004, &all), Reported),
            ("an item without end", placed(28, u32::MAX, &all), Fails),
            ("an item within the header", placed(0, 3000, &all), Reported),
            ("an item behind the stream", placed(32, 3000, &all), Reported),
            ("an item in another place", placed(24, 3000, &all), Fails),
            ("another length", response(xid, &PLACED, 2996, &result), Fails),
            ("the length of no item", response(xid, &[1, 0, 0, NOITEM], 3000, &[]), Fails),
            ("answers without end", good(&[u32::MAX, 28, 3000, TBSN, 0, 1, 0]), Fails),
        ];
    };
    let written = |length: u32, segments: &[Segment]| {
        let count = u32::try_from(segments.len()).unwrap();
        let segments: Vec<_> = segments.iter().flat_map(|one| segment(*one)).collect();
        response(xid, &[&[1, 28, length, EXRW, count][..], &segments].concat(), length, &[])
    };
    let part = |length| Segment { length, ..room };
    vec![
        ("a Send where none may be", good(&PLACED), Fails),
        ("a long one that is short", short.clone(), Fails),
        ("more than there is room for", written(9000, &[part(9000)]), Fails),
        ("more than was written", written(3000, &[part(2000)]), Fails),
        ("more than was placed", written(3000, &[part(3000)]), Fails),
        ("another segment", written(3000, &[part(1500), part(1500)]), Fails),
        ("no segment", written(3000, &[]), Fails),
    ]
}

#[test]
fn a_response_that_breaks_the_rules_fails_its_call_and_no_other() {
    for (length, is_written) in [(3072, false), (8000, true)] {
        let count = wrong(0, is_written.then_some(Segment::default())).len();
        let mut pair = pair();
        for at in 0..count {
            let called = begin(&mut pair, length);
            let segment = || Segment {
                handle: Handle(called[12]),
                length: called[13],
                offset: u64::from(called[14]) << 32 | u64::from(called[15]),
            };
            let wrong = wrong(called[0], is_written.then(segment));
            let (what, octets, leads) = &wrong[at];
            pair.send(octets);
            if *leads == Reported {
                let said = pair.message();
                assert_eq!((said[0], said[3]), (called[0], REPTERR), "{what}");
                let inline = [rpc_reply(called[0]), super::octets(&[100]), item(100)].concat();
                pair.send(&message(called[0], REPLY_INLINE, &[0], &inline));
                let (length, room) = outcome(&mut pair).unwrap();
                assert!(length == 100 && room.is_empty(), "{what}");
                continue;
            }
            match outcome(&mut pair) {
                // E13: it makes no sense whatever was asked for.
                Err(
                    CallError::BadReply(_)
                    | CallError::Refused(TransportError::Two(ErrorBody::BadXdr)),
                ) => {}
                outcome => panic!("{what}: {:?}", outcome.map(|(length, _)| length)),
            }
        }
        // The next Call gets its result.
        let called = begin(&mut pair, 3072);
        pair.send(&response(called[0], &[1, 28, 100, TBSN, 0, 1, 0], 100, &item(100)));
        let (length, room) = outcome(&mut pair).unwrap();
        assert!(length == 100 && room == item(100));
        pair.thread.stop().unwrap();
    }
}

#[test]
fn a_client_asks_by_chunks_once_a_server_has_refused_directions() {
    let mut pair = pair();
    let called = begin(&mut pair, 3000);
    directed(&called, &[TBSN]);
    pair.send(&message(called[0], ERROR, &[4], &[]));
    let again = pair.message();
    assert_eq!((again[3], again[7], again[9]), (CALL_INLINE, 1, 3000));
    pair.send(&message(again[0], ERROR, &[100], &[]));
    let refused = CallError::Refused(TransportError::Two(ErrorBody::System));
    assert_eq!(outcome(&mut pair).map(|(length, _)| length), Err(refused));
    // A response is no answer to a Call by chunks.
    let called = begin(&mut pair, 3000);
    assert_eq!(called[3], CALL_INLINE);
    pair.send(&response(called[0], &[0], 0, &[]));
    let outcome = outcome(&mut pair).map(drop);
    assert!(matches!(outcome, Err(CallError::BadReply(_))), "{outcome:?}");
    pair.thread.stop().unwrap();
}

/// A Call may bring an argument along and direct its result.
#[test]
fn an_argument_goes_along_and_a_result_comes_along() {
    let mut pair = pair();
    let (argument, result) = (item(2000), item(1500));
    let mut lease = pair.thread.started.lease(2000).unwrap();
    lease.bytes_mut().copy_from_slice(&argument);
    let room = pair.thread.started.lease(3000).unwrap();
    let request = Request::new(MOVE).argument(Some(lease)).room(Some(room));
    pair.thread.started.begin(request, |w| w.u32(9)).unwrap();
    let called = pair.message();
    assert_eq!(called[3], XMTREQ);
    assert_eq!(called[4..11], [1, 48, 2000, TBSN, 0, 1, 0]);
    assert_eq!(called[11..20], [1, 0, u32::MAX, 1, 0, TBSN, 1, 0, 48]);
    assert!(octets(&called[64..]) == argument);
    pair.send(&response(called[0], &[1, 28, 1500, TBSN, 0, 3, 0, 1, 2], 1500, &result));
    let (length, room) = outcome(&mut pair).unwrap();
    assert!(length == 1500 && room == result);
    pair.thread.stop().unwrap();
}
