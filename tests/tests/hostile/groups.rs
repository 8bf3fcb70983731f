//! Clients that send a Call and its argument in several messages (round-trip extensions, a group of transmissions), and
//! write every octet themselves. Some of them break the rules of that, or never end.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::core::NoService;
use haulage::cores::CoreThread;
use haulage::limits::{LIMITS_DEFAULT, Limits, PLACING_SIZE, TRANSMISSIONS_MAX};
use haulage::service::Request;
use haulage_proto::verbs::{Handle, Segment};
use haulage_tests::ends::SERVER_BYTES;

use super::along::{REPTERR, STRUCTURE, SUPPORT, TBSN, Transmission, XMTCONT, XMTREQ, item, kept};
use super::caller::{MOVE, Pair, good_reply};
use super::two::{AnswerV2, CALL_INLINE, CONNPROP_FINAL, CREDIT, ERROR, Peer, message};
use super::{Keeper, NULL, PROGRAM, call, octets, server_within};

const LIMITS: Limits = Limits {
    connections_max: 16,
    receives_max: 128,
    receive_size: PLACING_SIZE,
    transmissions_max: TRANSMISSIONS_MAX,
    ..LIMITS_DEFAULT
};

fn serve(limits: Limits) -> CoreThread<SocketAddr> {
    server_within(limits, |_| Keeper::default())
}

/// Connects as a client that says that it supports requests in several transmissions.
fn connect(server: SocketAddr) -> Peer {
    Peer::saying(server, &[1, SUPPORT, 4, 5])
}

/// The octets of a message in front of its first part that takes items.
const FRONT: usize = 256;
/// The octets that a whole message has for items.
const EACH: usize = PLACING_SIZE as usize - FRONT;

/// A continuation, whose octets for items are behind its first part.
fn continuation(xid: u32, number: u32, payload: &[u8], items: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let header = octets(&[xid, 2, CREDIT, XMTCONT, number, 0, length]);
    let mut message = [header, payload.to_vec()].concat();
    if !items.is_empty() {
        message.resize(FRONT, 0);
    }
    message.extend(items);
    message
}

/// A PUT of an item in as many messages as it takes.
fn group(xid: u32, item: &[u8]) -> Vec<Vec<u8>> {
    group_of(EACH, xid, item)
}

/// A PUT of an item in messages that have so many octets of it.
fn group_of(each: usize, xid: u32, item: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = item.chunks(each);
    let count = u32::try_from(parts.len()).unwrap();
    // Each message has four parts that take items.
    let numbers: Vec<u32> = (0..4 * count).collect();
    let first = Transmission {
        count,
        behind: parts.next().unwrap().to_vec(),
        ..Transmission::put(xid, item, FRONT, 0, &numbers)
    };
    let others = (1..).zip(parts).map(|(number, part)| continuation(xid, number, &[], part));
    std::iter::once(first.message()).chain(others).collect()
}

impl Peer {
    fn send_all(&mut self, messages: &[Vec<u8>]) {
        messages.iter().for_each(|message| self.0.send(message).unwrap());
    }
}

#[test]
fn an_argument_comes_in_several_messages() {
    let server = serve(LIMITS);
    let mut peer = connect(server.started);
    for (xid, length) in (10..).step_by(2).zip([EACH + 1, 2 * EACH, 3 * EACH + 7, 64 << 10]) {
        let item = item(length);
        peer.send_all(&group(xid, &item));
        assert_eq!(peer.answer(), AnswerV2::Reply(xid), "{length}");
        assert!(kept(&mut peer, xid + 1, length) == item, "{length}");
    }
    // The Payload stream is in all three, and the item in the second and the third.
    let item = item(EACH + 300);
    let whole = Transmission::put(50, &item, FRONT, 0, &[4, 5, 6, 7, 8, 9]);
    let (first, rest) = whole.payload.split_at(20);
    let (second, third) = rest.split_at(16);
    let begins =
        Transmission { count: 3, payload: first.to_vec(), behind: vec![], ..whole.clone() };
    peer.send_all(&[
        begins.message(),
        continuation(50, 1, second, &item[..EACH]),
        continuation(50, 2, third, &item[EACH..]),
    ]);
    assert_eq!(peer.answer(), AnswerV2::Reply(50));
    assert!(kept(&mut peer, 51, item.len()) == item);
    peer.0.close().unwrap();
    server.stop().unwrap();
}

/// Messages, each with its octets.
type Messages = Vec<Vec<u8>>;

/// Messages that break a group of the Call 7, of which the first of two has come; then what the server reports of the
/// last of them: the transmission, the one that led to it, and what is wrong.
fn broken() -> Vec<(&'static str, Messages, Vec<u32>)> {
    let item = item(EACH + 100);
    let [first, second] = <[_; 2]>::try_from(group(7, &item)).unwrap();
    let begun = [1, 7, 0, 0];
    let said = |bad: [u32; 3], lead: &[u32], why: &[u32]| [&bad[..], lead, why].concat();
    let null = message(9, CALL_INLINE, &[0; 5], &call(9, NULL, &[]));
    let items = |length| vec![7; length];
    vec![
        (
            "another XID",
            vec![continuation(8, 1, &[], &items(100))],
            said([8, 0, 1], &begun, &[5, 7, 8]),
        ),
        (
            "another number",
            vec![continuation(7, 2, &[], &items(100))],
            said([7, 0, 2], &begun, &[4, 1, 2]),
        ),
        (
            "the first number",
            vec![continuation(7, 0, &[], &items(100))],
            said([7, 0, 0], &begun, &[4, 1, 0]),
        ),
        ("another Call", vec![null], said([9, 0, 0], &begun, &[1, XMTCONT, CALL_INLINE])),
        ("another group", vec![first.clone()], said([7, 0, 0], &begun, &[2, XMTCONT, XMTREQ])),
        (
            "a longer Payload stream",
            vec![[&second[..24], &octets(&[4096]), &second[28..]].concat()],
            said([7, 0, 1], &begun, &[8, 4096, 0, 328]),
        ),
        (
            "fewer octets than the item has",
            vec![continuation(7, 1, &[], &items(96))],
            said([7, 0, 1], &begun, &[7, 4, 4, 4]),
        ),
        (
            "a Payload stream in the place of the item",
            vec![continuation(7, 1, &[0; 300], &[])],
            said([7, 0, 1], &begun, &[7, 4, 1, 0]),
        ),
    ]
}

#[test]
fn groups_that_are_broken_are_reported_and_trouble_nobody() {
    let server = serve(LIMITS);
    let mut bystander = connect(server.started);
    let item = item(EACH + 100);
    for (xid, (what, messages, expected)) in (100..).zip(broken()) {
        let mut peer = connect(server.started);
        let whole = group(7, &item);
        peer.0.send(&whole[0]).unwrap();
        peer.send_all(&messages);
        let said = peer.next();
        assert_eq!((said[0], said[1], said[3]), (expected[0], 2, REPTERR), "{what}");
        assert_eq!(said[4..], expected, "{what}");
        // The rest of the group is dropped, and another one is taken.
        peer.0.send(&whole[1]).unwrap();
        peer.send_all(&group(11, &item));
        assert_eq!(peer.answer(), AnswerV2::Reply(11), "after {what}");
        assert!(kept(&mut peer, 12, item.len()) == item, "after {what}");
        peer.0.close().unwrap();
        assert_eq!(bystander.null(xid), AnswerV2::Reply(xid), "beside {what}");
    }
    // More messages than the server says that it takes.
    let mut peer = connect(server.started);
    let five = Transmission { count: 5, ..Transmission::put(7, &item[..100], FRONT, 0, &[0]) };
    peer.0.send(&five.message()).unwrap();
    assert_eq!(peer.next()[3..], [REPTERR, 7, 0, 0, 0, 4, 4, 5]);
    assert_eq!(peer.null(9), AnswerV2::Reply(9));
    server.stop().unwrap();
}

#[test]
fn a_group_that_does_not_go_on_ends() {
    let progress_timeout = Duration::from_millis(100);
    let server = serve(Limits { progress_timeout, ..LIMITS });
    let mut peer = connect(server.started);
    let item = item(3 * EACH);
    let whole = group(7, &item);
    peer.send_all(&whole[..2]);
    let said = peer.next();
    // RDMA2_ERR_INVAL_HTYPE
    assert_eq!((said[0], &said[3..]), (7, &[ERROR, 4][..]));
    peer.0.send(&whole[2]).unwrap();
    peer.send_all(&group(8, &item));
    assert_eq!(peer.answer(), AnswerV2::Reply(8));
    assert!(kept(&mut peer, 9, item.len()) == item);
    server.stop().unwrap();
}

#[test]
fn many_groups_without_an_end_take_their_part_of_the_memory_and_keep_nobody_from_being_served() {
    let limits = Limits {
        connections_max: 258,
        connections_each_max: 258,
        receives_max: 1040,
        receive_size: 12 << 10,
        send_buffers_max: 108,
        ..LIMITS
    };
    let size = limits.receive_size as usize;
    // Each group has memory for four messages. All peers are one origin, which may hold half of the memory.
    let all = SERVER_BYTES - limits.transport_bytes();
    assert!(256 * 4 * size > all / 2, "{all}");
    let (server, item) = (serve(limits), item(40_000));
    let group = |xid| group_of(size - FRONT, xid, &item);
    let mut honest = connect(server.started);
    honest.send_all(&group(1));
    assert_eq!(honest.answer(), AnswerV2::Reply(1));
    let mut stopped: Vec<_> = (0..256).map(|_| connect(server.started)).collect();
    for peer in &mut stopped {
        peer.0.send(&group(7)[0]).unwrap();
    }
    // RDMA2_ERR_INVAL_HTYPE
    assert_eq!(stopped[255].answer(), AnswerV2::Error(7, vec![4]));
    for xid in (10..100).step_by(2) {
        assert_eq!(honest.null(xid), AnswerV2::Reply(xid));
        assert!(kept(&mut honest, xid + 1, item.len()) == item);
    }
    drop(stopped);
    // The server learns of one end after the other.
    let is_served = (100..100_000).any(|xid| {
        honest.send_all(&group(xid));
        match honest.answer() {
            AnswerV2::Reply(answered) => answered == xid,
            answer => {
                assert_eq!(answer, AnswerV2::Error(xid, vec![4]));
                false
            }
        }
    });
    assert!(is_served);
    server.stop().unwrap();
}

/// The XPROP of the most messages of one request.
const LIMIT: u32 = SUPPORT + 2;
/// Segments of Receives of 4 KiB, of which the last 3840 octets take items.
const TARGETS: [u32; 10] = [STRUCTURE, 40, 4096, 2, 1, 256, 64, 0, 1, 3840];

/// The properties of a server: what it supports, the most messages of a request if it says that, and whether its Receives
/// take items.
fn properties(support: u32, limit: Option<u32>, takes: bool) -> Vec<u32> {
    let limit = limit.map_or(vec![], |limit| vec![LIMIT, 4, limit]);
    let count = 2 + u32::from(!limit.is_empty());
    let flags = [64, u32::from(takes)];
    [&[count, SUPPORT, 4, support][..], &TARGETS, &flags, &limit].concat()
}

/// Connects a client to a server with these properties, which lets it send `credit` messages.
fn pair(properties: &[u32], credit: u32) -> Pair {
    let limits =
        Limits { send_size: PLACING_SIZE, transmissions_max: TRANSMISSIONS_MAX, ..LIMITS_DEFAULT };
    Pair::within(limits, NoService).answered(|xid| {
        let said = message(xid, CONNPROP_FINAL, properties, &[]);
        [&said[..8], &octets(&[credit]), &said[12..]].concat()
    })
}

/// Has the client make a Call with an item. Returns the first message of it.
fn begin(pair: &mut Pair, item: &[u8]) -> Vec<u32> {
    let mut argument = pair.thread.started.lease(item.len()).unwrap();
    argument.bytes_mut().copy_from_slice(item);
    let request = Request::new(MOVE).argument(Some(argument));
    pair.thread.started.begin(request, |w| w.u32(9)).unwrap();
    pair.message()
}

#[test]
fn a_client_sends_an_argument_in_as_many_messages_as_it_takes() {
    // One credit is not for Calls.
    for credit in [4, 1000] {
        let mut pair = pair(&properties(5, Some(3), true), credit);
        let item = item(10_000);
        let first = begin(&mut pair, &item);
        let xid = first[0];
        assert_eq!((first[1], first[3]), (2, XMTREQ));
        // One item at 48, in the segments 0, 1 and 2; no directions; three messages; 48 octets of the Payload stream.
        assert_eq!(first[4..17], [1, 48, 10_000, TBSN, 0, 3, 0, 1, 2, 0, 3, 0, 48]);
        assert_eq!(first[17..29], [xid, 0, 2, PROGRAM, 1, MOVE, 0, 0, 0, 0, 9, 10_000]);
        assert!(first[29..64].iter().all(|word| *word == 0), "nothing else leaks");
        let mut sent = octets(&first[64..]);
        for number in 1..3 {
            let next = pair.message();
            assert_eq!([next[0], next[1], next[3]], [xid, 2, XMTCONT]);
            assert_eq!(next[4..7], [number, 0, 0]);
            assert!(next[7..64].iter().all(|word| *word == 0), "nothing else leaks");
            sent.extend(octets(&next[64..]));
        }
        assert!(sent == item);
        pair.send(&good_reply(xid));
        assert_eq!(pair.outcome(), Ok(()));
        pair.thread.stop().unwrap();
    }
}

#[test]
fn a_client_lets_an_argument_be_read_where_the_server_does_not_take_as_many_messages() {
    for (what, said, credit, length) in [
        ("no continuations", properties(1, Some(3), true), 1000, 10_000),
        ("one message, as nothing is said", properties(5, None, true), 1000, 5000),
        ("two messages", properties(5, Some(2), true), 1000, 10_000),
        ("credits for two", properties(5, Some(3), true), 3, 10_000),
        ("no room for items", properties(5, Some(3), false), 1000, 10_000),
        ("no room for a short one", properties(5, Some(3), false), 1000, 1000),
        ("nothing of it", properties(0, Some(3), true), 1000, 1000),
    ] {
        let mut pair = pair(&said, credit);
        let item = item(length);
        let called = begin(&mut pair, &item);
        let length = u32::try_from(length).unwrap();
        assert_eq!(
            (called[3], &called[5..7], called[8]),
            (CALL_INLINE, &[1, 48][..], length),
            "{what}"
        );
        let offset = u64::from(called[9]) << 32 | u64::from(called[10]);
        let source = Segment { handle: Handle(called[7]), length, offset };
        assert!(pair.link.read(source).unwrap() == item, "{what}");
        pair.send(&good_reply(called[0]));
        assert_eq!(pair.outcome(), Ok(()), "{what}");
        pair.thread.stop().unwrap();
    }
}
