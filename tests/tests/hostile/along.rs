//! Clients that send the argument of a Call along with its message (round-trip extensions, Send-based placement), and
//! write every octet themselves. Some of them break the rules of that.

use std::net::SocketAddr;

use haulage::core::NoService;
use haulage::cores::CoreThread;
use haulage::limits::{LIMITS_DEFAULT, Limits, PLACING_SIZE};
use haulage::service::Request;
use haulage_proto::verbs::{Access, Handle, Segment};

use super::caller::{MOVE, Pair, good_reply};
use super::two::{AnswerV2, CALL_INLINE, CONNPROP_FINAL, CREDIT, ERROR, Peer, message};
use super::{GET, Keeper, NULL, PROGRAM, PUT, call, nowhere, octets, segment, server_within};

/// Private code points: `RT` in the upper half.
const BASE: u32 = 0x5254_0000;
pub(super) const XMTREQ: u32 = BASE | 1;
pub(super) const XMTRESP: u32 = BASE | 2;
pub(super) const XMTCONT: u32 = BASE | 3;
pub(super) const REPTERR: u32 = BASE | 4;
pub(super) const SUPPORT: u32 = BASE | 3;
pub(super) const STRUCTURE: u32 = BASE | 4;
pub(super) const RESPSXLIM: u32 = BASE | 6;
pub(super) const EXRW: u32 = 1;
pub(super) const TBSN: u32 = 2;

const LIMITS: Limits =
    Limits { connections_max: 16, receives_max: 128, receive_size: PLACING_SIZE, ..LIMITS_DEFAULT };

fn serve() -> CoreThread<SocketAddr> {
    server_within(LIMITS, |_| Keeper::default())
}

/// Connects as a client that says that it supports transmissions of requests.
fn connect(server: SocketAddr) -> Peer {
    Peer::saying(server, &[1, SUPPORT, 4, 1])
}

/// A request in one transmission, field by field.
#[derive(Clone)]
pub(super) struct Transmission {
    pub(super) xid: u32,
    pub(super) htype: u32,
    /// The items.
    pub(super) items: Vec<u32>,
    /// The directions.
    pub(super) directions: Vec<u32>,
    pub(super) count: u32,
    /// The messages that the response may have beyond the first.
    pub(super) reserved: u32,
    /// Octets of the Payload stream; as many as there are if it is `None`.
    pub(super) payload_len: Option<u32>,
    pub(super) payload: Vec<u8>,
    /// Where the octets behind begin, which are zero before that.
    pub(super) at: usize,
    pub(super) behind: Vec<u8>,
}

impl Transmission {
    /// A PUT of an item that begins at `at` in the message, which is the octet `offset` of the segment of this number.
    pub(super) fn put(xid: u32, item: &[u8], at: usize, offset: u32, numbers: &[u32]) -> Self {
        let length = u32::try_from(item.len()).unwrap();
        let count = u32::try_from(numbers.len()).unwrap();
        Self {
            xid,
            htype: XMTREQ,
            items: [&[1, 44, length, TBSN, offset, count][..], numbers].concat(),
            directions: vec![0],
            count: 1,
            reserved: 0,
            payload_len: None,
            payload: call(xid, PUT, &[length]),
            at,
            behind: item.to_vec(),
        }
    }

    pub(super) fn message(&self) -> Vec<u8> {
        let length = self.payload.len();
        let length = self.payload_len.unwrap_or_else(|| u32::try_from(length).unwrap());
        let prefix = [self.xid, 2, CREDIT, self.htype];
        let rest = [self.count, self.reserved, length];
        let header = [&prefix[..], &self.items, &self.directions, &rest].concat();
        let mut message = [octets(&header), self.payload.clone()].concat();
        assert!(message.len() <= self.at || self.behind.is_empty());
        if !self.behind.is_empty() {
            message.resize(self.at, 0);
        }
        message.extend(&self.behind);
        message
    }
}

/// Octets that differ from their neighbours.
pub(super) fn item(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

/// Returns the item that the server keeps.
pub(super) fn kept(peer: &mut Peer, xid: u32, length: usize) -> Vec<u8> {
    let room = peer.0.expose(&[], length, Access::RemoteWrite).unwrap();
    let lists = [&[0, 0, 1, 1][..], &segment(room), &[0, 0]].concat();
    peer.0.send(&message(xid, CALL_INLINE, &lists, &call(xid, GET, &[]))).unwrap();
    let reply = peer.next();
    assert_eq!(reply[0], xid);
    peer.0.retire(room.handle).unwrap().bytes()[..length].to_vec()
}

/// What the server says of a message: an error, or a report, without the prefix. The report is about the transmission
/// `bad` of the Call 7, and then says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Error(Vec<u32>),
    Report(Vec<u32>),
    Served,
}

fn said(words: &[u32]) -> Said {
    match words {
        [7, 2, _, ERROR, why @ ..] => Said::Error(why.to_vec()),
        // A Call, its first transmission, and no other transmission.
        [7, 2, _, REPTERR, 7, 0, 0, 0, why @ ..] => Said::Report(why.to_vec()),
        [7, 2, _, 13, ..] => Said::Served,
        _ => panic!("{words:x?}"),
    }
}

/// Returns requests that break a rule, and what the server says of each.
fn broken() -> Vec<(&'static str, Transmission, Said)> {
    let put = Transmission::put(7, &item(100), 256, 0, &[0]);
    let with = |change: &dyn Fn(&mut Transmission)| {
        let mut request = put.clone();
        change(&mut request);
        request
    };
    let report = |words: &[u32]| Said::Report(words.to_vec());
    let error = |words: &[u32]| Said::Error(words.to_vec());
    vec![
        ("in order", put.clone(), Said::Served),
        (
            "an offset beyond the segment",
            Transmission::put(7, &item(100), 256, 256, &[0]),
            report(&[6, 256, 0, 0]),
        ),
        (
            "an offset within a word",
            Transmission::put(7, &item(100), 258, 2, &[0]),
            report(&[6, 2, 0, 0]),
        ),
        (
            "an item that has not come",
            Transmission::put(7, &item(100), 256, 0, &[1]),
            report(&[7, 1, 0, 0]),
        ),
        ("no such segment", Transmission::put(7, &item(100), 256, 0, &[4]), report(&[7, 4, 0, 0])),
        ("no segment", Transmission::put(7, &item(100), 256, 0, &[]), report(&[7, u32::MAX, 0, 0])),
        (
            "fewer segments than the item has",
            Transmission::put(7, &item(700), 256, 0, &[0]),
            report(&[7, u32::MAX, 1, 1]),
        ),
        (
            "segments out of order",
            Transmission::put(7, &item(700), 256, 0, &[1, 0]),
            report(&[6, 0, 0, 0]),
        ),
        (
            "an item in the Payload stream",
            with(&|it| (it.at, it.payload) = (512, [&it.payload[..], &[0; 256]].concat())),
            report(&[6, 0, 104, 252]),
        ),
        ("a longer item", with(&|it| it.items[2] = 104), report(&[6, 0, 0, 0])),
        ("an item without end", with(&|it| it.items[2] = u32::MAX), error(&[2])),
        ("a place behind the stream", with(&|it| it.items[1] = 48), report(&[6, 48, 4, 44])),
        ("a place within a word", with(&|it| it.items[1] = 42), report(&[6, 42, 4, 44])),
        ("a place in the header", with(&|it| it.items[1] = 0), report(&[6, 0, 4, 44])),
        ("no transmission", with(&|it| it.count = 0), report(&[4, 1, 0])),
        ("several transmissions", with(&|it| it.count = 2), report(&[4, 1, 2])),
        (
            "a longer Payload stream",
            with(&|it| it.payload_len = Some(4096)),
            report(&[8, 4096, 4, 296]),
        ),
        ("no Payload stream", with(&|it| it.payload_len = Some(0)), report(&[8, 0, 4, 296])),
        ("another XID inside", with(&|it| it.payload[3] = 8), error(&[2])),
        ("an item that is a result", with(&|it| it.items = vec![1, 44, 100, 5]), error(&[2])),
        ("an unknown kind of item", with(&|it| it.items[3] = 9), error(&[2])),
        ("items without end", with(&|it| it.items[0] = u32::MAX), error(&[2])),
        ("directions", with(&|it| it.directions = vec![1, 0, 8, 1, 0, TBSN]), error(&[7, 0])),
        ("a response", with(&|it| it.htype = XMTRESP), error(&[4])),
        ("a continuation", with(&|it| it.htype = XMTCONT), error(&[4])),
        (
            "an item that the procedure has not",
            with(&|it| it.payload = call(7, NULL, &[100])),
            error(&[6, 0]),
        ),
        (
            "segments that are not as long as their item",
            with(&|it| {
                it.behind = Vec::new();
                it.items = [&[1, 44, 100, EXRW, 1][..], &nowhere(104)].concat();
            }),
            error(&[2]),
        ),
        (
            "an item over the one before it",
            with(&|it| {
                let items = [2, 44, 100, TBSN, 0, 1, 0, 144, 50, TBSN, 48, 1, 0];
                it.items = items.to_vec();
            }),
            report(&[7, 0, 1, 0]),
        ),
    ]
}

#[test]
fn requests_that_break_the_rules_are_refused_and_trouble_nobody() {
    let server = serve();
    let mut bystander = connect(server.started);
    for (xid, (what, request, expected)) in (100..).zip(broken()) {
        let mut peer = connect(server.started);
        peer.0.send(&request.message()).unwrap();
        assert_eq!(said(&peer.next()), expected, "{what}");
        assert_eq!(peer.null(9), AnswerV2::Reply(9), "after {what}");
        peer.0.close().unwrap();
        assert_eq!(bystander.null(xid), AnswerV2::Reply(xid), "beside {what}");
    }
    server.stop().unwrap();
}

/// The properties of a server that takes requests in one transmission, and has Receives of 4 KiB of which the last 3840
/// octets take items.
const TAKES: [u32; 16] = [2, SUPPORT, 4, 1, STRUCTURE, 40, 4096, 2, 1, 256, 64, 0, 1, 3840, 64, 1];

#[test]
fn a_client_sends_an_argument_along_and_reads_what_a_server_says_of_that() {
    for refusal in [message(0, ERROR, &[4], &[]), message(0, REPTERR, &[0, 0, 0, 0, 3], &[])] {
        let limits = Limits { send_size: PLACING_SIZE, ..LIMITS_DEFAULT };
        let mut pair = Pair::within(limits, NoService)
            .answered(|xid| message(xid, CONNPROP_FINAL, &TAKES, &[]));
        let item = item(3000);
        let begin = |pair: &mut Pair| {
            let mut argument = pair.thread.started.lease(item.len()).unwrap();
            argument.bytes_mut().copy_from_slice(&item);
            let request = Request::new(MOVE).argument(Some(argument));
            pair.thread.started.begin(request, |w| w.u32(9)).unwrap();
            pair.message()
        };
        let called = begin(&mut pair);
        let xid = called[0];
        assert_eq!((called[1], called[3]), (2, XMTREQ));
        // One item, without directions, in one transmission of which the Payload stream has 48 octets.
        assert_eq!(called[4..15], [1, 48, 3000, TBSN, 0, 1, 0, 0, 1, 0, 48]);
        assert_eq!(called[15..27], [xid, 0, 2, PROGRAM, 1, MOVE, 0, 0, 0, 0, 9, 3000]);
        assert!(called[27..64].iter().all(|word| *word == 0), "nothing else leaks");
        assert!(octets(&called[64..]) == item);
        // [RTR-5.4-1] The Call goes again by the base protocol, and so does the next one.
        let refusal = [&octets(&[xid]), &refusal[4..]].concat();
        let names = |at: usize| [&refusal[..at], &octets(&[xid]), &refusal[at + 4..]].concat();
        let refusal = if refusal.len() > 20 { names(16) } else { refusal };
        pair.send(&refusal);
        let again = pair.message();
        assert_ne!(again[0], xid);
        let next = begin(&mut pair);
        for called in [again, next] {
            // No handle, or that of the chunk; a Read list of one segment, no Write list and no Reply chunk.
            assert_eq!((called[3], &called[5..7], called[8]), (CALL_INLINE, &[1, 48][..], 3000));
            let offset = u64::from(called[9]) << 32 | u64::from(called[10]);
            let source = Segment { handle: Handle(called[7]), length: 3000, offset };
            assert!(pair.link.read(source).unwrap() == item);
            pair.send(&good_reply(called[0]));
            assert_eq!(pair.outcome(), Ok(()));
        }
        pair.thread.stop().unwrap();
    }
}

#[test]
fn an_item_of_a_request_may_be_read_as_well() {
    let server = serve();
    let mut peer = connect(server.started);
    let item = item(5000);
    let source = peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let (first, second) = (
        Segment { length: 2000, ..source },
        Segment { length: 3000, offset: source.offset + 2000, ..source },
    );
    let items = [&[1, 44, 5000, EXRW, 2][..], &segment(first), &segment(second)].concat();
    let behind = Vec::new();
    peer.0
        .send(&Transmission { items, behind, ..Transmission::put(7, &item, 0, 0, &[]) }.message())
        .unwrap();
    assert_eq!(peer.answer(), AnswerV2::Reply(7));
    assert!(kept(&mut peer, 8, item.len()) == item);
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn many_that_break_the_rules_keep_nobody_from_being_served() {
    let server = serve();
    let mut honest = connect(server.started);
    let item = item(8192);
    let put = |xid| Transmission::put(xid, &item, 256, 0, &[0, 1, 2, 3]).message();
    let broken = broken();
    let mut xids = 100..;
    for round in 0..16 {
        let mut peers: Vec<_> = (0..12).map(|_| connect(server.started)).collect();
        for (peer, (_, request, _)) in peers.iter_mut().zip(broken.iter().cycle().skip(round)) {
            peer.0.send(&request.message()).unwrap();
            let xid = xids.next().unwrap();
            honest.0.send(&put(xid)).unwrap();
            assert_eq!(honest.answer(), AnswerV2::Reply(xid), "in round {round}");
        }
    }
    honest.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_server_says_how_its_receives_are_made_and_takes_items_where_it_says() {
    let server = serve();
    let mut peer = Peer::connect(server.started);
    peer.0.send(&message(1, CONNPROP_FINAL, &[1, SUPPORT, 4, 1], &[])).unwrap();
    let said = peer.next();
    let structure =
        [20480, 5, 1, 256, 64, 0, 1, 256, 64, 1, 1, 512, 64, 1, 1, 4096, 64, 1, 1, 15360, 64, 1];
    let property = [&[STRUCTURE, 88][..], &structure].concat();
    assert!(said.windows(property.len()).any(|words| words == property), "{said:x?}");
    assert!(said.windows(3).any(|words| words == [SUPPORT, 4, 1]), "{said:x?}");
    assert!(said.windows(3).any(|words| words == [2, 4, 20480]), "{said:x?}");
    for (xid, (length, at, offset, numbers)) in (10..).step_by(2).zip([
        (100, 256, 0, &[0][..]),
        (101, 256, 0, &[0]),
        (256, 256, 0, &[0]),
        (60, 356, 100, &[0]),
        (512, 512, 0, &[1]),
        (700, 256, 0, &[0, 1]),
        (4096, 1024, 0, &[2]),
        (5000, 256, 0, &[0, 1, 2, 3]),
        (8192, 256, 0, &[0, 1, 2, 3]),
        (15360, 5120, 0, &[3]),
        (15360 - 64, 5184, 64, &[3]),
        (20224, 256, 0, &[0, 1, 2, 3]),
    ]) {
        let item = item(length);
        peer.0.send(&Transmission::put(xid, &item, at, offset, numbers).message()).unwrap();
        assert_eq!(peer.answer(), AnswerV2::Reply(xid), "{length} at {at}");
        assert!(kept(&mut peer, xid + 1, length) == item, "{length} at {at}");
    }
    peer.0.close().unwrap();
    server.stop().unwrap();
}
