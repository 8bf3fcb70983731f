use std::collections::VecDeque;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::testing::{Rng, Xdr};
use crate::v2::header::{
    self, CallLists, Prefix, encode_call_inline, encode_error, encode_reply_inline,
};
use crate::v2::properties::{ConnPropKind, REVERSE_GENL, REVERSE_NONE, REVERSE_SIMPLE};
use crate::verbs::{Handle, Segment};
use crate::xdr::Writer;

mod continued;
mod extended;
mod in_setup;
mod reverse;
mod runs;
mod short;

const CLIENT: usize = 0;
const SERVER: usize = 1;
const FIRST_XID: u32 = 0x2bad_cafe;

/// One engine, the messages on their way to it, and what it asked for.
struct End {
    engine: Connection,
    inbox: VecDeque<Vec<u8>>,
    events: Vec<Event>,
    /// All messages that the engine posted.
    posted: Vec<Vec<u8>>,
    closed: Option<CloseReason>,
}

/// A client and a server that exchange encoded messages, and a clock.
struct Pair {
    ends: [End; 2],
    now: Instant,
}

fn config(role: Role) -> Config {
    let receive_buffer_size = if role == Role::Client { 8192 } else { 16384 };
    Config {
        properties: Properties {
            receive_buffer_size,
            reverse: REVERSE_GENL,
            ..Properties::default()
        },
        chunks: ChunkLimits { read_chunks_max: 1, write_chunks_max: 1, segments_max: 4 },
        ..Config::new(role, FIRST_XID)
    }
}

impl Pair {
    /// Two ends whose queue pairs are not up yet, each with so many credits for the other.
    fn new(window: u32) -> Self {
        let end = |role| {
            let mut engine = Connection::new(config(role));
            engine.reserve(window + 1 - Credits::RESERVED_AT_START);
            let (events, posted) = (Vec::new(), Vec::new());
            End { engine, inbox: VecDeque::new(), events, posted, closed: None }
        };
        Self { ends: [end(Role::Client), end(Role::Server)], now: Instant::ZERO }
    }

    /// Two ends that have established, and of which the server has heard nothing.
    fn established(window: u32) -> Self {
        let mut pair = Self::new(window);
        pair.handle(CLIENT, Input::Established);
        pair.handle(SERVER, Input::Established);
        pair
    }

    /// Two ends open for messages, nothing on its way, nothing noted.
    fn open(window: u32) -> Self {
        let mut pair = Self::established(window);
        pair.settle();
        for end in &mut pair.ends {
            assert_eq!((end.engine.phase, end.closed), (Phase::Open, None));
            end.events.clear();
            end.posted.clear();
        }
        pair
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        self.ends[at].engine.handle(self.now, input);
        self.drain(at);
    }

    /// Carries out what an engine asks for.
    fn drain(&mut self, at: usize) {
        while let Some(output) = self.ends[at].engine.poll() {
            assert_eq!(self.ends[at].closed, None, "{output:?} after the close");
            match output {
                Output::Post(control) => {
                    let engine = &self.ends[at].engine;
                    let bytes = written(|w| engine.encode(&control, w));
                    self.post(at, bytes);
                }
                Output::Event(event) => self.ends[at].events.push(event),
                Output::Close(reason) => self.ends[at].closed = Some(reason),
            }
        }
    }

    fn post(&mut self, from: usize, bytes: Vec<u8>) {
        self.ends[from].posted.push(bytes.clone());
        self.ends[1 - from].inbox.push_back(bytes);
    }

    /// Gives `bytes` to an engine, as if its peer had sent them, and its Receive back.
    fn receive(&mut self, at: usize, bytes: &[u8]) {
        assert!(self.ends[at].engine.reserved() > 0, "every message finds a Receive");
        let decoded = header::decode_transport(bytes);
        self.ends[at].engine.handle(self.now, Input::Received(&decoded));
        self.ends[at].engine.reserve(1);
        self.drain(at);
    }

    /// Delivers one message, if one is on its way.
    fn deliver(&mut self, at: usize) -> bool {
        let message = self.ends[at].inbox.pop_front();
        message.inspect(|bytes| self.receive(at, bytes)).is_some()
    }

    /// Delivers everything, and lets both ends idle, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if !(self.deliver(CLIENT) | self.deliver(SERVER)) {
                self.handle(CLIENT, Input::Idle);
                self.handle(SERVER, Input::Idle);
                if self.ends.iter().all(|end| end.inbox.is_empty()) {
                    return;
                }
            }
        }
        panic!("the two ends never fall silent");
    }

    /// Posts a Call without chunks, if credits allow.
    fn call(&mut self, from: usize, xid: u32) -> bool {
        let credit = self.ends[from].engine.try_send(Class::Call);
        credit.inspect(|&credit| self.post(from, call(xid, credit, &[], &[]))).is_some()
    }

    /// Posts a Reply without chunks, if credits allow.
    fn reply(&mut self, from: usize, xid: u32) -> bool {
        let credit = self.ends[from].engine.try_send(Class::Reply);
        let bytes = |credit| {
            written(|w| {
                encode_reply_inline(w, xid, credit, &[])?;
                w.u32(xid)
            })
        };
        credit.inspect(|&credit| self.post(from, bytes(credit))).is_some()
    }

    /// A credit word that leaves the limit of an end where it is.
    fn credit(&self, at: usize) -> u32 {
        self.ends[at].engine.credits.peer_limit()
    }

    /// The errors an end posted: XID, version, code.
    fn errors(&self, at: usize) -> Vec<(u32, u32, u32)> {
        let error = |bytes: &Vec<u8>| {
            let word = |n: usize| u32::from_be_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap());
            (word(3) == 4).then(|| (word(0), word(1), word(4)))
        };
        self.ends[at].posted.iter().filter_map(error).collect()
    }
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), crate::xdr::Truncated>) -> Vec<u8> {
    let mut memory = [0; 4096];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

fn call(xid: u32, credit: u32, reads: &[Segment], writes: &[Segment]) -> Vec<u8> {
    let (some_reads, some_writes) = (!reads.is_empty(), !writes.is_empty());
    let (reads, writes) = ([(44, reads)], [writes]);
    let lists = CallLists {
        reads: &reads[..usize::from(some_reads)],
        writes: &writes[..usize::from(some_writes)],
        ..CallLists::default()
    };
    written(|w| {
        encode_call_inline(w, xid, credit, &lists)?;
        w.u32(xid)
    })
}

/// Makes a message with this credit word.
type WithCredit = fn(u32) -> Xdr;

fn prefix(bytes: &[u8]) -> Prefix {
    Prefix::decode(&mut crate::xdr::Reader::new(bytes)).unwrap()
}

#[test]
fn setup_is_one_message_each_way() {
    let mut pair = Pair::established(8);
    assert_eq!(pair.ends[SERVER].posted.len(), 0, "the client speaks first");
    pair.settle();
    for (at, theirs) in [(CLIENT, Role::Server), (SERVER, Role::Client)] {
        let end = &pair.ends[at];
        assert_eq!(end.events, [Event::Ready(config(theirs).properties)]);
        assert_eq!(end.posted.len(), 1);
        let expected =
            Prefix { xid: FIRST_XID, vers: 2, credit: 8 + u32::from(at == SERVER), htype: 7 };
        assert_eq!(prefix(&end.posted[0]), expected);
        assert!(end.posted[0].len() <= 1024, "it fits any peer's Receive");
        assert_eq!(end.engine.poll_deadline(), None);
    }
}

#[test]
fn nothing_but_the_first_message_is_sent_until_it_is_answered() {
    const CLASSES: [Class; 2] = [Class::Call, Class::Reply];
    let mut pair = Pair::new(8);
    for end in &mut pair.ends {
        assert!(CLASSES.iter().all(|&class| end.engine.try_send(class).is_none()), "not up");
    }
    pair.handle(CLIENT, Input::Established);
    pair.handle(CLIENT, Input::Idle);
    // Credits do not let an end send before setup is over.
    let grant = Xdr::common(0, 2, 8, 5).0;
    pair.receive(CLIENT, &grant);
    assert!(CLASSES.iter().all(|&class| pair.ends[CLIENT].engine.try_send(class).is_none()));
    assert_eq!(pair.ends[CLIENT].posted.len(), 1);
    pair.handle(SERVER, Input::Established);
    pair.settle();
    assert!(CLASSES.iter().all(|&class| pair.ends[CLIENT].engine.try_send(class).is_some()));
}

#[test]
fn a_server_serves_a_call_that_comes_without_properties() {
    let mut pair = Pair::new(8);
    pair.handle(SERVER, Input::Established);
    pair.receive(SERVER, &call(7, 8, &[], &[]));
    let expected = [Event::Ready(Properties::default()), Event::Call];
    assert_eq!(pair.ends[SERVER].events, expected);
    assert!(pair.reply(SERVER, 7));
    // The properties may still come, and are answered.
    let theirs = Xdr::common(9, 2, 8, 7).propset(&[(4, &[0, 0, 0, 2])]).0;
    pair.receive(SERVER, &theirs);
    let theirs = Properties { segment_count_max: 2, ..Properties::default() };
    assert_eq!(pair.ends[SERVER].events.last(), Some(&Event::Ready(theirs)));
    let last = prefix(pair.ends[SERVER].posted.last().unwrap());
    assert_eq!((last.xid, last.htype), (9, 7));
}

#[test]
fn another_version_is_told_which_are_spoken_and_later_that_it_changed() {
    let mut pair = Pair::new(8);
    pair.handle(SERVER, Input::Established);
    pair.receive(SERVER, &Xdr::common(7, 1, 0xdead_beef, 0).words(&[0, 0, 0, 7]).0);
    let answer = Xdr::common(7, 1, 9, 4).words(&[1, 2, 2]).0;
    assert_eq!(pair.ends[SERVER].posted, [answer], "XID and version echoed, our credit");
    assert_eq!(pair.ends[SERVER].events, [], "nothing of it goes further");
    assert_eq!((pair.ends[SERVER].engine.phase, pair.ends[SERVER].closed), (Phase::Setup, None));
    // The client may go on with version 2.
    pair.receive(SERVER, &Xdr::common(8, 2, 8, 7).propset(&[]).0);
    assert_eq!(pair.ends[SERVER].engine.phase, Phase::Open);
    assert_eq!(prefix(&pair.ends[SERVER].posted[1]).htype, 7);

    let mut pair = Pair::open(8);
    for at in [CLIENT, SERVER] {
        pair.receive(at, &Xdr::common(7, 3, 0xdead_beef, 10).0);
        assert_eq!(pair.errors(at), [(7, 3, 11)], "VERS_MISMATCH");
        assert_eq!((pair.ends[at].closed, pair.ends[at].events.len()), (None, 0));
    }
}

#[test]
fn only_a_client_that_may_be_called_keeps_its_last_credit() {
    for (reverse, may_call) in
        [(REVERSE_NONE, true), (REVERSE_SIMPLE, false), (REVERSE_GENL, false)]
    {
        let mut pair = Pair::new(1);
        let mut config = config(Role::Client);
        config.properties.reverse = reverse;
        pair.ends[CLIENT].engine = Connection::new(config);
        pair.ends[CLIENT].engine.reserve(6);
        pair.handle(CLIENT, Input::Established);
        pair.handle(SERVER, Input::Established);
        pair.settle();
        for xid in 1..10 {
            assert_eq!(pair.call(CLIENT, xid), may_call, "{reverse}, {xid}");
            assert!(!pair.call(CLIENT, 77), "there was one credit");
            pair.settle();
            assert!(!may_call || pair.reply(SERVER, xid));
            pair.settle();
        }
    }
}

#[test]
fn a_second_final_does_not_continue_anything() {
    let mut pair = Pair::open(8);
    for at in [CLIENT, SERVER] {
        pair.receive(at, &Xdr::common(77, 2, pair.credit(at), 7).propset(&[]).0);
        assert_eq!(pair.errors(at), [(77, 2, 5)], "INVAL_CONT");
        assert_eq!(pair.ends[at].events, [], "and changes nothing");
    }
}

#[test]
fn a_malformed_request_is_answered_under_its_xid() {
    let cases: [(&str, WithCredit, u32); 5] = [
        ("a Call cut short", |credit| Xdr::common(0xabcd, 2, credit, 10).words(&[0, 0]), 2),
        ("properties cut short", |credit| Xdr::common(0xabcd, 2, credit, 7).words(&[1, 1]), 2),
        (
            "a property of two octets",
            |credit| Xdr::common(0xabcd, 2, credit, 7).propset(&[(1, &[1, 2])]),
            3,
        ),
        ("an unknown header type", |credit| Xdr::common(0xabcd, 2, credit, 14), 4),
        ("CALL_MIDDLE", |credit| Xdr::common(0xabcd, 2, credit, 9).words(&[4, 0xabcd]), 4),
    ];
    for (name, message, code) in cases {
        for at in [CLIENT, SERVER] {
            let mut pair = Pair::open(8);
            pair.receive(at, &message(pair.credit(at)).0);
            assert_eq!(pair.errors(at), [(0xabcd, 2, code)], "{name}");
            assert_eq!((pair.ends[at].closed, pair.ends[at].events.len()), (None, 0), "{name}");
        }
    }
}

#[test]
fn errors_grants_and_replies_are_never_answered() {
    let cases: [(&str, WithCredit); 7] = [
        ("an unknown error", |credit| Xdr::common(7, 2, credit, 4).words(&[12])),
        ("an error cut short", |credit| Xdr::common(7, 2, credit, 4)),
        ("an error with more", |credit| Xdr::common(7, 2, credit, 4).words(&[2, 0])),
        ("an error of another version", |credit| Xdr::common(7, 3, credit, 4).words(&[1, 2, 2])),
        ("a grant with more", |credit| Xdr::common(0, 2, credit, 5).words(&[0])),
        ("a grant with an XID", |credit| Xdr::common(7, 2, credit, 5)),
        ("half a prefix", |_| Xdr::default().words(&[7, 2])),
    ];
    for (name, message) in cases {
        for at in [CLIENT, SERVER] {
            let mut pair = Pair::open(8);
            pair.receive(at, &message(pair.credit(at)).0);
            assert_eq!(pair.ends[at].posted, Vec::<Vec<u8>>::new(), "{name}");
            assert_eq!((pair.ends[at].closed, pair.ends[at].events.len()), (None, 0), "{name}");
        }
    }
    // A malformed Reply is not answered either, but its Call has to end.
    let mut pair = Pair::open(8);
    pair.receive(CLIENT, &Xdr::common(7, 2, pair.credit(CLIENT), 13).words(&[2]).0);
    let refused = Event::Refused { xid: 7, error: ErrorBody::BadXdr };
    assert_eq!(
        (pair.ends[CLIENT].events.as_slice(), pair.errors(CLIENT).len()),
        (&[refused][..], 0)
    );
}

#[test]
fn two_ends_do_not_answer_each_others_errors() {
    let mut pair = Pair::open(8);
    pair.ends[SERVER].inbox.push_back(Xdr::common(7, 99, 0, 10).0);
    pair.settle();
    assert_eq!((pair.errors(SERVER).len(), pair.errors(CLIENT).len()), (1, 0));
}

#[test]
fn without_e13_two_ends_answer_each_others_errors_for_ever() {
    let mut pair = Pair::open(8);
    pair.ends[SERVER].inbox.push_back(Xdr::common(7, 99, 0, 10).0);
    for _ in 0..500 {
        for at in [CLIENT, SERVER] {
            let next = pair.ends[at].inbox.front();
            let is_error = next.is_some_and(|bytes| prefix(bytes).htype == 4);
            pair.deliver(at);
            if is_error {
                pair.ends[at].engine.refuse(7, ErrorBody::BadXdr);
                pair.drain(at);
            }
            pair.handle(at, Input::Idle);
        }
    }
    let answered = [CLIENT, SERVER].map(|at| pair.errors(at).len());
    assert!(answered.iter().all(|errors| *errors > 200), "{answered:?}");
}

#[test]
fn a_call_with_more_chunks_than_allowed_is_told_how_many_are() {
    const ONE: (u32, u32, u64) = (1, 4, 0);
    let head = |credit| Xdr::common(7, 2, credit, 10).words(&[0]);
    let tail = |xdr: Xdr| xdr.words(&[0, 7]).0;
    let four = [(4, ONE); 4];
    let cases: [(&str, Vec<u8>, Option<ErrorBody>); 7] = [
        ("as much as allowed", tail(head(9).read_list(&four).write_list(&[&[ONE; 4]])), None),
        (
            "two Read chunks",
            tail(head(9).read_list(&[(4, ONE), (8, ONE)]).write_list(&[])),
            Some(ErrorBody::ReadChunks { max: 1 }),
        ),
        (
            "two Write chunks",
            tail(head(9).read_list(&[]).write_list(&[&[ONE], &[]])),
            Some(ErrorBody::WriteChunks { max: 1 }),
        ),
        (
            "five Read segments",
            tail(head(9).read_list(&[(4, ONE); 5]).write_list(&[])),
            Some(ErrorBody::Segments { max: 4 }),
        ),
        (
            "five Write segments",
            tail(head(9).read_list(&[]).write_list(&[&[ONE; 5]])),
            Some(ErrorBody::Segments { max: 4 }),
        ),
        ("an empty Write chunk", tail(head(9).read_list(&[]).write_list(&[&[]])), None),
        (
            "two of each",
            tail(head(9).read_list(&[(4, ONE), (8, ONE)]).write_list(&[&[ONE], &[ONE]])),
            Some(ErrorBody::ReadChunks { max: 1 }),
        ),
    ];
    for (name, bytes, error) in cases {
        let mut pair = Pair::open(8);
        pair.receive(SERVER, &bytes);
        match error {
            None => assert_eq!(pair.ends[SERVER].events, [Event::Call], "{name}"),
            Some(error) => {
                assert_eq!(pair.ends[SERVER].events, [], "{name}");
                let last = pair.ends[SERVER].posted.last().unwrap();
                let expected = written(|w| encode_error(w, 7, 2, prefix(last).credit, &error));
                assert_eq!(last, &expected, "{name}");
                // The error answered the Call, so no Reply is owed any more.
                assert!(pair.ends[SERVER].engine.may_send(Class::Call), "{name}");
            }
        }
    }
}

#[test]
fn a_segment_longer_than_announced_is_a_problem_of_its_own() {
    for length in [1 << 20, (1 << 20) + 1] {
        let segment = (1, length, 0);
        let inline = || Xdr::common(7, 2, 9, 10).words(&[0]);
        let special = Xdr::common(7, 2, 9, 8).words(&[0]).read_list(&[(0, segment)]);
        let messages = [
            ("a Read chunk", inline().read_list(&[(4, segment)]).words(&[0, 0, 7])),
            ("a Write chunk", inline().words(&[0]).write_list(&[&[segment]]).words(&[0, 7])),
            ("a Reply chunk", inline().words(&[0, 0, 1]).write_chunk(&[segment]).words(&[7])),
            ("a Call chunk", special.words(&[0, 0, 0])),
        ];
        for (name, message) in messages {
            let mut pair = Pair::open(8);
            pair.receive(SERVER, &message.0);
            if length == 1 << 20 {
                assert_eq!(pair.ends[SERVER].events, [Event::Call], "{name}");
            } else {
                // The Call is answered with SYSTEM, and nothing else happens.
                assert_eq!(pair.errors(SERVER), [(7, 2, 100)], "{name}");
                assert_eq!(pair.ends[SERVER].events, [], "{name}");
            }
        }
    }
}

#[test]
fn body_chunks_have_as_few_segments_as_others() {
    let five = [(1, 4, 0); 5];
    let reply = Xdr::common(7, 2, 9, 10).words(&[0, 0, 0, 1]).write_chunk(&five).words(&[7]);
    let call = Xdr::common(7, 2, 9, 8).words(&[0]).read_list(&[(0, five[0]); 5]);
    for message in [reply, call.words(&[0, 0, 0])] {
        let mut pair = Pair::open(8);
        pair.receive(SERVER, &message.0);
        assert_eq!(pair.errors(SERVER), [(7, 2, 8)], "SEGMENTS");
    }
}

#[test]
fn an_end_that_continues_replies_names_write_chunks_and_not_the_reply() {
    let mut pair = Pair::open(8);
    pair.ends[SERVER].engine.config.chunks.write_chunks_max = 0;
    pair.ends[SERVER].engine.config.continues_replies = true;
    pair.receive(SERVER, &call(7, 9, &[], &[segment(4)]));
    let posted = pair.ends[SERVER].posted.last().unwrap();
    let error = ErrorBody::WriteChunks { max: 0 };
    assert_eq!(posted, &written(|w| encode_error(w, 7, 2, prefix(posted).credit, &error)));
}

#[test]
fn an_end_without_chunks_says_so() {
    let cases = [
        (&[segment(4)][..], &[][..], ErrorBody::ReadChunks { max: 0 }),
        (&[], &[segment(4)], ErrorBody::ReplyResource { length_needed: 0 }),
    ];
    for (reads, writes, error) in cases {
        let none = ChunkLimits { read_chunks_max: 0, write_chunks_max: 0, segments_max: 0 };
        let mut pair = Pair::open(8);
        pair.ends[SERVER].engine.config.chunks = none;
        pair.receive(SERVER, &call(7, 9, reads, writes));
        let posted = pair.ends[SERVER].posted.last().unwrap();
        let expected = written(|w| encode_error(w, 7, 2, prefix(posted).credit, &error));
        assert_eq!(posted, &expected);
        pair.receive(SERVER, &call(8, 9, &[], &[]));
        assert_eq!(pair.ends[SERVER].events, [Event::Call], "the one without chunks");
    }
}

fn segment(length: u32) -> Segment {
    Segment { handle: Handle(1), length, offset: 0 }
}

#[test]
fn setup_has_a_deadline() {
    for at in [CLIENT, SERVER] {
        let mut pair = Pair::new(8);
        assert_eq!(pair.ends[at].engine.poll_deadline(), None);
        pair.now = Instant::from_nanos(1_000);
        pair.handle(at, Input::Established);
        let deadline = Instant::from_nanos(5_000_001_000);
        assert_eq!(pair.ends[at].engine.poll_deadline(), Some(deadline));
        pair.now = Instant::from_nanos(5_000_000_999);
        pair.handle(at, Input::Deadline);
        assert_eq!(pair.ends[at].closed, None, "not yet");
        // A message that does not complete the setup does not move the deadline.
        pair.receive(at, &[0; 4]);
        pair.now = deadline;
        pair.handle(at, Input::Deadline);
        assert_eq!(pair.ends[at].closed, Some(CloseReason::SetupTimedOut));
    }
    let mut pair = Pair::open(8);
    pair.now = Instant::from_nanos(u64::MAX);
    pair.handle(CLIENT, Input::Deadline);
    assert_eq!(pair.ends[CLIENT].closed, None, "setup is over");
}

#[test]
fn an_implausible_credit_closes_whatever_carries_it() {
    const FAR: u32 = 1 << 31;
    let messages = [
        call(7, FAR, &[], &[]),
        Xdr::common(0, 2, FAR, 5).0,
        Xdr::common(7, 2, FAR, 4).words(&[2]).0,
        Xdr::common(7, 2, FAR, 7).propset(&[]).0,
        Xdr::common(7, 2, FAR, 99).0,
        Xdr::common(7, 2, FAR, 10).0,
    ];
    for bytes in messages {
        let mut pair = Pair::open(8);
        pair.receive(SERVER, &bytes);
        assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::ImplausibleCredit));
        assert_eq!((pair.ends[SERVER].events.len(), pair.ends[SERVER].posted.len()), (0, 0));
    }
    // The credit word of a message of another version means nothing.
    let mut pair = Pair::open(8);
    pair.receive(SERVER, &Xdr::common(7, 1, FAR, 0).0);
    assert_eq!(pair.ends[SERVER].closed, None);
}

#[test]
fn a_peer_beyond_its_credits_is_closed_and_every_receive_accounted_for() {
    let grant = Xdr::common(0, 2, 8, 5).0;
    let of_nobody = Xdr::common(7, 3, 0, 4).0;
    for bytes in [grant, of_nobody, vec![0; 3]] {
        let mut pair = Pair::open(8);
        // Unlike a prompt caller, this test gives no Receive back.
        let take = |pair: &mut Pair| {
            pair.handle(SERVER, Input::Received(&header::decode_transport(&bytes)));
            (pair.ends[SERVER].engine.reserved(), pair.ends[SERVER].closed)
        };
        let reserved = pair.ends[SERVER].engine.reserved();
        for used in 1..=reserved {
            assert_eq!(take(&mut pair), (reserved - used, None));
        }
        let closed = Some(CloseReason::CreditOverrun);
        assert_eq!(take(&mut pair), (u32::MAX, closed), "it used another connection's");
        assert_eq!(take(&mut pair), (u32::MAX - 1, closed), "and so does what still arrives");
    }
}

#[test]
fn a_version_1_server_is_recognised_whatever_it_grants() {
    for credit in [0, 1, 128, 0x8000_0000, u32::MAX] {
        let mut pair = Pair::new(8);
        pair.handle(CLIENT, Input::Established);
        pair.receive(CLIENT, &Xdr::common(FIRST_XID, 2, credit, 4).words(&[1, 1, 1]).0);
        let reason = CloseReason::Unsupported { low: 1, high: 1 };
        assert_eq!(pair.ends[CLIENT].closed, Some(reason), "{credit:x}");
    }
}

#[test]
fn an_error_refuses_setup_or_a_call() {
    let bytes = Xdr::common(7, 2, 8, 4).words(&[9, 1, 70001]).0;
    let mut pair = Pair::new(8);
    pair.handle(CLIENT, Input::Established);
    pair.receive(CLIENT, &bytes);
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::SetupRefused));

    let mut pair = Pair::open(8);
    pair.receive(CLIENT, &bytes);
    let error = ErrorBody::WriteResource { chunk_index: 1, length_needed: 70001 };
    assert_eq!(pair.ends[CLIENT].events, [Event::Refused { xid: 7, error }]);
}

#[test]
fn only_the_peer_says_which_header_types_it_does_not_support() {
    // [V2-7.1.3-3]
    let error = ErrorBody::InvalHtype;
    let mut pair = Pair::open(8);
    pair.receive(CLIENT, &Xdr::common(7, 2, 8, 4).words(&[4]).0);
    let refused = Event::Refused { xid: 7, error };
    assert_eq!(pair.ends[CLIENT].events, [Event::NotSupported { xid: 7 }, refused]);
    // A continued Reply is of a header type that is not taken here.
    let mut pair = Pair::open(8);
    pair.receive(CLIENT, &Xdr::common(7, 2, 8, 12).words(&[8, 7, 1]).0);
    assert_eq!(pair.ends[CLIENT].events, [refused]);
}

#[test]
fn errors_wait_for_credit_in_order_and_not_without_bound() {
    let mut pair = Pair::open(64);
    // The client grants nothing beyond what the server has sent: its properties.
    let limit = 1;
    let bad = |xid, credit| Xdr::common(xid, 2, credit, 99).0;
    let most = u32::try_from(CONTROLS_MAX).unwrap();
    for xid in 0..most {
        pair.receive(SERVER, &bad(xid, limit));
    }
    assert_eq!(pair.errors(SERVER), [], "no credit, no error");
    // One credit lets one error leave; further credits let the rest leave.
    pair.receive(SERVER, &Xdr::common(0, 2, limit + 1, 5).0);
    assert_eq!(pair.errors(SERVER), [(0, 2, 4)]);
    pair.receive(SERVER, &Xdr::common(0, 2, limit + 100, 5).0);
    let answered: Vec<_> = pair.errors(SERVER).into_iter().map(|(xid, ..)| xid).collect();
    assert_eq!(answered, (0..most).collect::<Vec<_>>());
    // The connection is closed when one more error than the maximum has to wait.
    let sent = limit + most;
    for xid in 0..=most {
        assert_eq!(pair.ends[SERVER].closed, None, "{xid}");
        pair.receive(SERVER, &bad(xid, sent));
    }
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::TooManyErrors));
}

#[test]
fn a_peer_with_few_receives_may_have_many_calls_refused_at_once() {
    let mut pair = Pair::open(64);
    // The client has shrunk to one credit and a grant, and has many Calls on their way.
    let limit = 1;
    for xid in 0..24 {
        pair.receive(SERVER, &Xdr::common(xid, 2, limit, 99).0);
    }
    for xid in 0..24 {
        pair.receive(SERVER, &Xdr::common(0, 2, limit + 1 + xid, 5).0);
    }
    assert_eq!((pair.errors(SERVER).len(), pair.ends[SERVER].closed), (24, None));
}

#[test]
fn refusals_nobody_polls_for_end_in_a_close_and_not_in_a_panic() {
    let mut pair = Pair::open(64);
    for xid in (0..).take(CONTROLS_MAX + 1) {
        pair.ends[SERVER].engine.refuse(xid, ErrorBody::System);
    }
    pair.handle(SERVER, Input::Idle);
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::TooManyErrors));
}

#[test]
fn calls_flow_one_way_on_grants_that_are_not_answered() {
    let mut pair = Pair::open(8);
    for xid in 0..500 {
        assert!(pair.call(CLIENT, xid), "Call {xid} finds a credit");
        pair.deliver(SERVER);
        // The server owes nothing, as for a Call without a Reply.
        pair.ends[SERVER].engine.credits.owed_done(1);
        pair.handle(SERVER, Input::Idle);
        while pair.deliver(CLIENT) {
            pair.handle(CLIENT, Input::Idle);
        }
    }
    let grants = |at: usize| pair.ends[at].posted.iter().filter(|b| prefix(b).htype == 5).count();
    assert_eq!(grants(SERVER), 500 / 4, "one for each half of the window");
    assert_eq!(grants(CLIENT), 0);
    let words: Vec<_> = pair.ends[SERVER].posted.iter().map(|b| prefix(b)).collect();
    assert!(words.iter().all(|grant| grant.xid == 0 && grant.vers == 2));
    assert!(words.windows(2).all(|w| w[1].credit == w[0].credit + 4));
}

#[test]
fn a_receive_buffer_given_back_before_the_poll_counts_in_the_answer() {
    let mut pair = Pair::established(8);
    pair.deliver(SERVER);
    assert_eq!(prefix(&pair.ends[SERVER].posted[0]).credit, 9, "eight more after the first");
}

#[test]
fn nothing_is_said_after_the_close() {
    type Closer = (&'static str, fn(&mut Pair));
    let closers: [Closer; 4] = [
        ("implausible", |pair| pair.receive(CLIENT, &Xdr::common(0, 2, 1 << 31, 5).0)),
        ("unsupported", |pair| pair.receive(CLIENT, &Xdr::common(1, 2, 1, 4).words(&[1, 1, 1]).0)),
        ("refused", |pair| pair.receive(CLIENT, &Xdr::common(1, 2, 1, 4).words(&[5]).0)),
        ("late", |pair| {
            pair.now = Instant::from_nanos(u64::MAX);
            pair.handle(CLIENT, Input::Deadline);
        }),
    ];
    for (name, close) in closers {
        let mut pair = Pair::new(8);
        pair.handle(CLIENT, Input::Established);
        close(&mut pair);
        assert!(pair.ends[CLIENT].closed.is_some(), "{name}");
        let before = (pair.ends[CLIENT].posted.len(), pair.ends[CLIENT].events.len());
        assert_eq!(pair.ends[CLIENT].engine.poll_deadline(), None);
        // `drain` asserts that nothing comes out of any of these.
        pair.handle(CLIENT, Input::Established);
        pair.handle(CLIENT, Input::Idle);
        pair.handle(CLIENT, Input::Deadline);
        for bytes in [call(7, 8, &[], &[]), Xdr::common(7, 2, 8, 99).0, vec![0; 3]] {
            pair.receive(CLIENT, &bytes);
        }
        for _ in 0..20 {
            pair.ends[CLIENT].engine.refuse(7, ErrorBody::System);
        }
        pair.drain(CLIENT);
        for class in [Class::Call, Class::Reply, Class::Control, Class::Grant] {
            assert_eq!(pair.ends[CLIENT].engine.try_send(class), None, "{name}");
        }
        let after = (pair.ends[CLIENT].posted.len(), pair.ends[CLIENT].events.len());
        assert_eq!(before, after, "{name}");
    }
}

/// What became of every input in every phase, for both roles: a reviewed table.
const PHASES: &str = "\
client              New     Setup   Open    Closed
established         Setup   -       -       Closed
properties          -       Open    Open    Closed
a grant             New     Setup   Open    Closed
a Call              New     Setup   Open    Closed
a Reply             New     Setup   Open    Closed
ERR_VERS            Closed  Closed  Closed  Closed
another error       New     Closed  Open    Closed
a bad header        New     Setup   Open    Closed
another version     New     Setup   Open    Closed
implausible credit  Closed  Closed  Closed  Closed
idle                New     Setup   Open    Closed
deadline            New     Closed  Open    Closed
server              New     Setup   Open    Closed
established         Setup   -       -       Closed
properties          -       Open    Open    Closed
a grant             New     Open    Open    Closed
a Call              New     Open    Open    Closed
a Reply             New     Setup   Open    Closed
ERR_VERS            Closed  Closed  Closed  Closed
another error       New     Closed  Open    Closed
a bad header        New     Setup   Open    Closed
another version     New     Setup   Open    Closed
implausible credit  Closed  Closed  Closed  Closed
idle                New     Setup   Open    Closed
deadline            New     Closed  Open    Closed
";

#[test]
fn every_phase_meets_every_input_as_the_table_says() {
    let messages = [
        ("properties", Xdr::common(7, 2, 8, 7).propset(&[]).0),
        ("a grant", Xdr::common(0, 2, 8, 5).0),
        ("a Call", call(7, 8, &[], &[])),
        ("a Reply", Xdr::common(7, 2, 8, 13).words(&[0, 7]).0),
        ("ERR_VERS", Xdr::common(7, 2, 8, 4).words(&[1, 1, 1]).0),
        ("another error", Xdr::common(7, 2, 8, 4).words(&[2]).0),
        ("a bad header", Xdr::common(7, 2, 8, 10).0),
        ("another version", Xdr::common(7, 3, 8, 10).0),
        ("implausible credit", Xdr::common(0, 2, 1 << 31, 5).0),
    ];
    let mut table = String::new();
    for role in [Role::Client, Role::Server] {
        let name = format!("{role:?}").to_lowercase();
        table.push_str(&format!("{name:<20}New     Setup   Open    Closed\n"));
        let mut row = |name: &str, after: &dyn Fn(Connection) -> Phase| {
            // What the caller's contract rules out: established twice, or a message before it.
            let ruled_out = |phase| match name {
                "established" => matches!(phase, Phase::Setup | Phase::Open),
                "properties" => phase == Phase::New,
                _ => false,
            };
            let mut line = format!("{name:<20}");
            for phase in [Phase::New, Phase::Setup, Phase::Open, Phase::Closed] {
                let engine = in_phase(role, phase);
                let cell =
                    if ruled_out(phase) { "-".into() } else { format!("{:?}", after(engine)) };
                line.push_str(&format!("{cell:<8}"));
            }
            table.push_str(line.trim_end());
            table.push('\n');
        };
        row("established", &|engine| after(engine, Input::Established));
        for (name, bytes) in &messages {
            let decoded = header::decode_transport(bytes);
            row(name, &|engine| after(engine, Input::Received(&decoded)));
        }
        row("idle", &|engine| after(engine, Input::Idle));
        row("deadline", &|engine| after(engine, Input::Deadline));
    }
    assert_eq!(table, PHASES, "\n{table}");
}

fn in_phase(role: Role, phase: Phase) -> Connection {
    let mut engine = Connection::new(config(role));
    engine.phase = phase;
    engine.deadline = (phase == Phase::Setup).then_some(Instant::ZERO);
    engine
}

fn after(mut engine: Connection, input: Input<'_>) -> Phase {
    engine.handle(Instant::ZERO, input);
    while engine.poll().is_some() {}
    engine.phase
}

/// Both ends call, answer and refuse in a random order; every Call ends exactly once.
#[test]
fn every_call_ends_once_under_any_schedule() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::open(3 + u32::try_from(rng.below(6)).unwrap());
        let mut made = [0_u32; 2];
        let mut owed = [VecDeque::new(), VecDeque::new()];
        for _ in 0..20_000 {
            let at = rng.below(2);
            match rng.below(5) {
                0 if made[at] < 40 => made[at] += u32::from(pair.call(at, made[at])),
                1 => {
                    if let Some(xid) = owed[at].pop_front()
                        && !pair.reply(at, xid)
                    {
                        owed[at].push_front(xid);
                    }
                }
                2 if owed[at].len() > 3 => {
                    let xid = owed[at].pop_front().unwrap();
                    pair.ends[at].engine.refuse(xid, ErrorBody::System);
                    pair.drain(at);
                }
                3 => {
                    let xid = pair.ends[at].inbox.front().map(|bytes| prefix(bytes).xid);
                    let before = pair.ends[at].events.len();
                    pair.deliver(at);
                    let new = &pair.ends[at].events[before..];
                    owed[at].extend(xid.filter(|_| new.contains(&Event::Call)));
                }
                _ => pair.handle(at, Input::Idle),
            }
            assert!(pair.ends.iter().all(|end| end.closed.is_none()), "seed {seed}");
            let silent = |end: &End| end.inbox.is_empty() && end.engine.controls.is_empty();
            let is_done = made == [40, 40] && owed.iter().all(VecDeque::is_empty);
            if is_done && pair.ends.iter().all(silent) {
                break;
            }
        }
        for (at, made) in made.into_iter().enumerate() {
            let is_end = |event: &&Event| matches!(event, Event::Reply | Event::Refused { .. });
            let ended = pair.ends[at].events.iter().filter(is_end).count();
            assert_eq!((made, ended), (40, 40), "seed {seed}, end {at}");
        }
    }
}

/// Random and half-right messages: the engine keeps within its credits and ends at most once.
#[test]
fn noise_moves_no_engine_beyond_its_credits() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::open(8);
        let at = rng.below(2);
        for _ in 0..50 {
            let limit = pair.credit(at);
            let credit = limit.wrapping_add(u32::try_from(rng.below(3)).unwrap());
            let htype = u32::try_from(rng.below(16)).unwrap();
            let vers = 2 + u32::from(rng.below(8) == 0);
            let mut bytes = Xdr::common(7, vers, credit, htype);
            for _ in 0..rng.below(12) {
                let word = [0, 0, 0, 1, 1, 2, 4, 7, 44, u32::MAX][rng.below(10)];
                bytes = bytes.words(&[word]);
            }
            pair.receive(at, &bytes.0);
            let end = &pair.ends[at];
            let sent = u32::try_from(end.posted.len() + 1).unwrap();
            assert!(sent <= pair.credit(at) + 1, "seed {seed}");
            if end.closed.is_some() {
                break;
            }
        }
    }
}
