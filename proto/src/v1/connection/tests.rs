use core::time::Duration;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::testing::{Rng, Xdr};
use crate::v1::header::{self, CallLists, Form, Padding, ReplyLists, encode_call, encode_reply};
use crate::v1::padding::{PaddedReader, put_padded};
use crate::verbs::{Handle, Segment};
use crate::xdr::{Truncated, Writer};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const CHUNK: (u32, u32, u64) = (0xa01, 512, 0x1000);

/// One engine, the messages on their way to it, and what it asked for.
struct End {
    engine: Connection,
    inbox: VecDeque<Vec<u8>>,
    events: Vec<Event>,
    /// The control messages it posted, as they travel.
    posted: Vec<Vec<u8>>,
    closed: Option<CloseReason>,
}

/// A client and a server that exchange encoded messages, and a clock.
struct Pair {
    ends: [End; 2],
    now: Instant,
}

fn config(role: Role) -> Config {
    Config {
        role,
        credits_wanted: if role == Role::Client { 8 } else { 2 },
        credits_max: if role == Role::Client { 2 } else { 6 },
        calls: CallLimits { read_chunks_max: 2, write_chunks_max: 2, segments_max: 4 },
        reverse: Reverse::Inline,
        profile: None,
    }
}

const PROFILE: Profile =
    Profile { held_max: 2, done_timeout: Duration::from_secs(5), late: Late::Release };

impl Pair {
    /// Two ends that are up, each with so many Receives for the other beyond the first.
    fn new(client: Config, server: Config, receives: u32) -> Self {
        let end = |config| {
            let mut engine = Connection::new(config);
            engine.reserve(receives);
            let (events, posted) = (Vec::new(), Vec::new());
            End { engine, inbox: VecDeque::new(), events, posted, closed: None }
        };
        let mut pair = Self { ends: [end(client), end(server)], now: Instant::ZERO };
        for at in [CLIENT, SERVER] {
            pair.handle(at, Input::Established);
            assert_eq!(pair.events(at), [Event::Ready]);
        }
        pair
    }

    fn plain() -> Self {
        Self::new(config(Role::Client), config(Role::Server), 16)
    }

    fn with_profile(profile: Profile) -> Self {
        let config = |role| Config { profile: Some(profile), ..config(role) };
        Self::new(config(Role::Client), config(Role::Server), 16)
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
                Output::Post(control) => self.control(at, control),
                Output::Event(event) => {
                    if let Event::Reply | Event::Refused { .. } | Event::Unsupported { .. } = event
                    {
                        self.ends[at].engine.ended();
                    }
                    self.ends[at].events.push(event);
                }
                Output::Close(reason) => self.ends[at].closed = Some(reason),
            }
        }
    }

    fn control(&mut self, at: usize, control: Control) {
        let bytes = written(|w| control.encode(w));
        self.ends[at].posted.push(bytes.clone());
        self.ends[1 - at].inbox.push_back(bytes);
    }

    /// Gives `bytes` to an engine, as if its peer had sent them, and its Receive back.
    fn receive(&mut self, at: usize, bytes: &[u8]) {
        assert!(self.ends[at].engine.reserved() > 0, "every message finds a Receive");
        self.take(at, bytes);
        self.ends[at].engine.reserve(1);
        self.drain(at);
    }

    /// Delivers a message to one end, which does not give its Receive back.
    fn take(&mut self, at: usize, bytes: &[u8]) {
        let decoded = header::decode(bytes);
        self.handle(at, Input::Received(&decoded));
    }

    /// Delivers everything.
    fn settle(&mut self) {
        for at in [CLIENT, SERVER, CLIENT, SERVER] {
            while let Some(bytes) = self.ends[at].inbox.pop_front() {
                self.receive(at, &bytes);
            }
        }
        assert!(self.ends.iter().all(|end| end.inbox.is_empty()));
    }

    fn events(&mut self, at: usize) -> Vec<Event> {
        core::mem::take(&mut self.ends[at].events)
    }

    /// Posts a Call or a Reply without chunks, if credits allow. Returns its credit word.
    fn send(&mut self, at: usize, class: Class, xid: u32) -> Option<u32> {
        let credit = self.ends[at].engine.try_send(class)?;
        self.ends[1 - at].inbox.push_back(plain(class, xid, credit));
        Some(credit)
    }

    /// Has the client make a Call that is answered. Returns the credits granted.
    fn exchange(&mut self, xid: u32) -> u32 {
        assert_eq!(self.send(CLIENT, Class::Call, xid), Some(8));
        self.settle();
        let credit = self.send(SERVER, Class::Reply, xid).unwrap();
        self.settle();
        assert_eq!(self.events(SERVER), [Event::Call]);
        assert_eq!(self.events(CLIENT), [Event::Reply]);
        credit
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

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = vec![0; 8192];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

fn plain(class: Class, xid: u32, credit: u32) -> Vec<u8> {
    written(|w| match class {
        Class::Call => {
            encode_call(w, xid, credit, Form::Msg, &CallLists::default())?;
            w.u32(xid)?;
            w.u32(0)
        }
        Class::Reply => {
            encode_reply(w, xid, credit, Form::Msg, &ReplyLists::default())?;
            w.u32(xid)?;
            w.u32(1)
        }
    })
}

/// An `RDMA_MSG` without lists that carries `mtype`, for which lists can be put in.
fn with_lists(xid: u32, lists: impl FnOnce(Xdr) -> Xdr, mtype: u32) -> Vec<u8> {
    lists(Xdr::common(xid, 1, 4, 0)).words(&[xid, mtype]).0
}

#[test]
fn a_call_is_answered() {
    let mut pair = Pair::plain();
    assert_eq!(pair.exchange(7), 6, "as many as the server ever grants");
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
}

#[test]
fn a_client_has_one_credit_until_it_is_granted_more() {
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 1).is_some());
    assert_eq!(pair.send(CLIENT, Class::Call, 2), None, "[R5666-6.1-2]");
    pair.settle();
    assert!(pair.send(SERVER, Class::Reply, 1).is_some());
    pair.settle();
    for xid in 2..8 {
        assert!(pair.send(CLIENT, Class::Call, xid).is_some(), "{xid}");
    }
    // [R5666-3.3-4] [R5666-4.1-5]
    assert_eq!(pair.send(CLIENT, Class::Call, 8), None);
    assert!(!pair.ends[CLIENT].engine.may_send(Class::Call));
}

#[test]
fn a_lower_grant_is_obeyed_and_zero_is_one() {
    for (granted, expected) in [(0, 1), (1, 1), (3, 3), (8, 8), (9, 8), (u32::MAX, 8)] {
        let mut pair = Pair::plain();
        pair.exchange(1);
        assert!(pair.send(CLIENT, Class::Call, 2).is_some());
        pair.receive(CLIENT, &plain(Class::Reply, 2, granted));
        let mut sent = 0;
        while pair.send(CLIENT, Class::Call, 3 + sent).is_some() {
            sent += 1;
        }
        assert_eq!(sent, expected, "granted {granted}");
    }
}

#[test]
fn what_the_peer_asks_for_does_not_decide_what_it_gets() {
    for wanted in [0, 1, u32::MAX] {
        let mut pair = Pair::plain();
        pair.receive(SERVER, &plain(Class::Call, 1, wanted));
        assert_eq!(pair.send(SERVER, Class::Reply, 1), Some(6), "asked for {wanted}");
    }
}

#[test]
fn grants_follow_the_receives_and_a_reply_waits_for_the_last() {
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 0);
    pair.take(SERVER, &plain(Class::Call, 1, 8));
    // [R5666-3.3-2] [R5666-3.3-6] the server can grant no credit, as its only Receive is used up.
    assert_eq!(pair.send(SERVER, Class::Reply, 1), None);
    pair.ends[SERVER].engine.reserve(1);
    assert_eq!(pair.send(SERVER, Class::Reply, 1), Some(1));
    pair.take(SERVER, &plain(Class::Call, 2, 8));
    pair.ends[SERVER].engine.reserve(4);
    assert_eq!(pair.send(SERVER, Class::Reply, 2), Some(4), "[R5666-3.3-3]");
    // Receives that are not reserved again lower the next grant.
    pair.take(SERVER, &plain(Class::Call, 3, 8));
    pair.take(SERVER, &plain(Class::Call, 4, 8));
    assert_eq!(pair.send(SERVER, Class::Reply, 3), Some(3), "two Receives and the Call still here");
    assert_eq!(pair.send(SERVER, Class::Reply, 4), Some(2));
}

#[test]
fn an_excess_call_is_served_while_receives_last() {
    let mut pair = Pair::plain();
    for xid in 0..17 {
        // [R5666-3.3-5] the client was granted one credit, and sends 17 Calls.
        pair.take(SERVER, &plain(Class::Call, xid, 8));
    }
    assert_eq!((pair.events(SERVER), pair.ends[SERVER].closed), (vec![Event::Call; 17], None));
    // [R5666-6-1]
    pair.take(SERVER, &plain(Class::Call, 17, 8));
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::CreditOverrun));
}

#[test]
fn where_no_read_can_be_issued_a_read_list_is_refused() {
    let segment = (1, 1, 1);
    let read = Xdr::common(7, 1, 4, 1).read_list(&[(0, segment)]).words(&[0, 0]).0;
    for (bytes, ord, expected) in [
        (&read, 0, Err(ErrorBody::Chunk)),
        (&read, 1, Ok(())),
        (&plain(Class::Call, 7, 4), 0, Ok(())),
    ] {
        let Ok(Message::Msg(rpc) | Message::NoMsg(rpc)) = header::decode(bytes) else { panic!() };
        assert_eq!(check_reads(&rpc, ord), expected, "P12");
    }
}

#[test]
fn both_directions_speak_the_version_of_the_connection() {
    // [R8167-5.1-1] [R8167-5.2-1] Calls of the reverse direction have no chunks; those of the forward direction may.
    let memory = [Segment { handle: Handle(9), length: 4, offset: 0 }];
    let with_chunks = CallLists { reads: &[(44, &memory[..])], ..CallLists::default() };
    let forward = written(|w| encode_call(w, 7, 4, Form::Msg, &with_chunks));
    for message in [forward, plain(Class::Call, 7, 4), plain(Class::Reply, 7, 4)] {
        assert_eq!(message[4..8], 1_u32.to_be_bytes());
    }
    let mut pair = Pair::plain();
    for at in [CLIENT, SERVER] {
        let foreign = Xdr::common(7, 2, 4, 0).words(&[0, 0, 0, 7, 0]).0;
        pair.receive(at, &foreign);
        assert_eq!((pair.events(at), pair.errors(at)), (vec![], vec![(7, 2, 1)]));
    }
}

#[test]
fn an_error_answers_a_call_and_carries_credit() {
    let mut pair = Pair::plain();
    pair.exchange(1);
    assert!(pair.send(CLIENT, Class::Call, 2).is_some());
    pair.settle();
    pair.ends[SERVER].engine.refuse(2, ErrorBody::Chunk);
    pair.drain(SERVER);
    pair.settle();
    assert_eq!(pair.events(CLIENT), [Event::Refused { xid: 2, error: ErrorBody::Chunk }]);
    assert_eq!(pair.ends[SERVER].posted[0], Xdr::common(2, 1, 6, 4).words(&[2]).0);
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
    assert_eq!(pair.ends[CLIENT].engine.credits.unanswered(), 0);
    let mut sent = 0;
    while pair.send(CLIENT, Class::Call, 3 + sent).is_some() {
        sent += 1;
    }
    assert_eq!(sent, 6);
}

#[test]
fn bad_calls_are_answered_and_what_means_nothing_is_dropped() {
    let header = |proc| Xdr::common(7, 1, 4, proc);
    let segment = (1, 1, 1);
    let reads = |count: u32| {
        let entries: Vec<_> = (1..=count).map(|n| (4 * n, segment)).collect();
        with_lists(7, |xdr| xdr.read_list(&entries).words(&[0, 0]), 0)
    };
    let writes =
        |chunks: &[&[_]]| with_lists(7, |xdr| xdr.words(&[0]).write_list(chunks).words(&[0]), 0);
    let answered = [
        ("unsupported type", header(5).0),
        ("truncated", header(0).words(&[0]).0),
        ("MSGP", header(2).words(&[64, 512, 0, 0, 0, 7, 0]).0),
        ("too many Read chunks", reads(3)),
        ("too many Write chunks", writes(&[&[segment], &[segment], &[segment]])),
        ("too many segments", writes(&[&[segment; 5]])),
        ("a chunk without segments", writes(&[&[]])),
        ("NOMSG without the message", header(1).read_list(&[(4, segment)]).words(&[0, 0]).0),
        ("the XID of another", header(0).words(&[0, 0, 0, 8, 0]).0),
    ];
    for (name, bytes) in answered {
        let mut pair = Pair::plain();
        pair.receive(SERVER, &bytes);
        // [R5666-4.2-1] [R5666-4.2-2] [R5666-4.2-4]
        assert_eq!(pair.errors(SERVER), [(7, 1, 2)], "{name}");
        assert_eq!(pair.events(SERVER), [], "{name}");
        assert_eq!((pair.ends[SERVER].engine.owed(), pair.ends[SERVER].closed), (0, None));
    }
    let dropped = [
        ("no prefix", vec![0; 12]),
        ("DONE", header(3).0),
        ("ERROR", header(4).words(&[2]).0),
        ("no body", header(0).words(&[0, 0, 0]).0),
        ("NOMSG without anything", header(1).words(&[0, 0, 0]).0),
        ("neither Call nor Reply", header(0).words(&[0, 0, 0, 7, 2]).0),
        ("a Reply nobody waits for", plain(Class::Reply, 7, 4)),
        ("a Reply of another XID", header(0).words(&[0, 0, 0, 8, 1]).0),
    ];
    for (name, bytes) in dropped {
        let mut pair = Pair::plain();
        pair.receive(SERVER, &bytes);
        let server = &pair.ends[SERVER];
        assert_eq!((server.posted.len(), server.events.len()), (0, 0), "{name}");
        assert_eq!((server.engine.owed(), server.closed), (0, None), "{name}");
        assert_eq!(pair.exchange(9), 6, "{name}: the Receive is posted again");
    }
}

#[test]
fn good_calls_are_served() {
    let segment = (1, 1, 1);
    let offered = |xdr: Xdr| xdr.read_list(&[(4, segment), (8, segment)]);
    let all = |xdr| offered(xdr).write_list(&[&[segment; 4], &[segment]]).words(&[1]);
    for bytes in [
        plain(Class::Call, 7, 0),
        with_lists(7, |xdr| all(xdr).write_chunk(&[segment]), 0),
        Xdr::common(7, 1, 4, 1).read_list(&[(0, segment)]).words(&[0, 0]).0,
        Xdr::common(7, 1, 4, 1).words(&[0, 0, 0, 7, 0]).0,
    ] {
        let mut pair = Pair::plain();
        pair.receive(SERVER, &bytes);
        assert_eq!(pair.events(SERVER), [Event::Call], "{bytes:?}");
    }
}

#[test]
fn another_version_is_told_which_is_spoken() {
    let mut pair = Pair::plain();
    pair.receive(SERVER, &Xdr::common(7, 2, 4, 7).words(&[0]).0);
    let expected = Xdr::common(7, 2, 6, 4).words(&[1, 1, 1]).0;
    assert_eq!(pair.ends[SERVER].posted, [expected], "XID and version echoed, our credit");
    // An error of version 2 is not answered.
    pair.receive(SERVER, &Xdr::common(7, 2, 4, 4).words(&[1, 2, 2]).0);
    assert_eq!(pair.ends[SERVER].posted.len(), 1);
    assert_eq!(pair.exchange(8), 6, "the client may go on with version 1");
}

#[test]
fn a_server_without_version_1_ends_the_connection() {
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 7).is_some());
    pair.receive(CLIENT, &Xdr::common(7, 1, 4, 4).words(&[1, 2, 3]).0);
    assert_eq!(pair.ends[CLIENT].closed, Some(CloseReason::Unsupported { low: 2, high: 3 }));
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 7).is_some());
    pair.receive(CLIENT, &Xdr::common(7, 1, 4, 4).words(&[1, 1, 2]).0);
    let error = ErrorBody::Vers { low: 1, high: 2 };
    assert_eq!(pair.events(CLIENT), [Event::Refused { xid: 7, error }]);
}

#[test]
fn an_answer_to_no_call_of_this_end_changes_nothing() {
    let chunk = Event::Refused { xid: 8, error: ErrorBody::Chunk };
    for (stray, event) in [
        (plain(Class::Reply, 8, 8), Event::Reply),
        (Xdr::common(8, 1, 8, 4).words(&[2]).0, chunk),
        (Xdr::common(8, 1, 8, 4).words(&[1, 2, 3]).0, Event::Unsupported { xid: 8 }),
        (with_lists(8, |xdr| xdr.read_list(&[(4, (1, 1, 1))]).words(&[0, 0]), 1), chunk),
        (Xdr::common(8, 1, 8, 0).words(&[0, 0, 0]).0, chunk),
    ] {
        let mut pair = Pair::plain();
        assert!(pair.send(CLIENT, Class::Call, 7).is_some());
        let client = &mut pair.ends[CLIENT].engine;
        for _ in 0..3 {
            // The caller knows no Call of this XID, so it reports no end of one.
            client.handle(Instant::ZERO, Input::Received(&header::decode(&stray)));
            assert_eq!((client.poll(), client.poll()), (Some(Output::Event(event)), None));
            client.reserve(1);
        }
        assert_eq!(pair.send(CLIENT, Class::Call, 9), None, "no credit is won: {event:?}");
        pair.settle();
        assert_eq!(pair.send(SERVER, Class::Reply, 7), Some(6));
        pair.settle();
        assert_eq!(pair.events(CLIENT), [Event::Reply], "nor is one lost: {event:?}");
        assert_eq!((10..).map_while(|xid| pair.send(CLIENT, Class::Call, xid)).count(), 6);
    }
}

#[test]
fn a_bad_reply_fails_its_call_here() {
    let bad = [
        ("a Read list", with_lists(7, |xdr| xdr.read_list(&[(4, (1, 1, 1))]).words(&[0, 0]), 1)),
        ("padding", Xdr::common(7, 1, 4, 2).words(&[64, 512, 0, 0, 0, 7, 1]).0),
        ("the XID of another", Xdr::common(7, 1, 4, 0).words(&[0, 0, 0, 8, 1]).0),
        ("no body", Xdr::common(7, 1, 4, 0).words(&[0, 0, 0]).0),
    ];
    for (name, bytes) in bad {
        let mut pair = Pair::plain();
        assert!(pair.send(CLIENT, Class::Call, 7).is_some());
        pair.receive(CLIENT, &bytes);
        let refused = Event::Refused { xid: 7, error: ErrorBody::Chunk };
        assert_eq!(pair.events(CLIENT), [refused], "{name}");
        assert_eq!(pair.ends[CLIENT].posted.len(), 0, "{name}: the server is not told");
        assert!(pair.send(CLIENT, Class::Call, 8).is_some(), "{name}");
    }
}

#[test]
fn a_malformed_message_is_a_failed_call_or_a_call_to_refuse() {
    let truncated = Xdr::common(7, 1, u32::MAX, 0).words(&[0, 1]).0;
    for ours in [false, true] {
        let mut pair = Pair::plain();
        assert!(pair.send(CLIENT, Class::Call, 7).is_some());
        pair.receive(CLIENT, &truncated);
        assert_eq!(pair.events(CLIENT), [Event::Malformed { xid: 7 }]);
        if ours {
            pair.ends[CLIENT].engine.ended();
        } else {
            pair.ends[CLIENT].engine.refuse(7, ErrorBody::Chunk);
        }
        pair.drain(CLIENT);
        let errors = if ours { vec![] } else { vec![(7, 1, 2)] };
        assert_eq!((pair.errors(CLIENT), pair.ends[CLIENT].engine.owed()), (errors, 0));
        // [R8167-4.1-2] the message's credit word was not taken for a grant.
        assert_eq!(pair.send(CLIENT, Class::Call, 8).is_some(), ours);
        assert_eq!(pair.send(CLIENT, Class::Call, 9), None);
    }
}

#[test]
fn a_peer_that_sends_more_than_it_may_is_closed() {
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 0);
    pair.take(SERVER, &plain(Class::Call, 1, 8));
    pair.take(SERVER, &plain(Class::Call, 2, 8));
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::CreditOverrun));
    pair.take(SERVER, &plain(Class::Call, 3, 8));
    assert_eq!(pair.ends[SERVER].engine.reserved(), 0_u32.wrapping_sub(2));
    let engine = &mut pair.ends[SERVER].engine;
    assert_eq!(
        (engine.try_send(Class::Reply), engine.done(1), engine.poll_deadline()),
        (None, None, None)
    );
}

#[test]
fn errors_that_cannot_be_sent_are_few() {
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 20);
    for n in 0..21 {
        assert_eq!(pair.ends[SERVER].closed, None, "{n}");
        pair.take(SERVER, &Xdr::common(7, 1, 4, 9).0);
    }
    assert_eq!(pair.errors(SERVER).len(), 20, "the last waits until a credit can be granted");
    pair.ends[SERVER].engine.reserve(1);
    pair.drain(SERVER);
    assert_eq!(pair.errors(SERVER).len(), 21);
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 0);
    pair.take(SERVER, &plain(Class::Call, 7, 8));
    for _ in 0..=ERRORS_MAX {
        assert_eq!((pair.ends[SERVER].closed, pair.errors(SERVER).len()), (None, 0));
        pair.ends[SERVER].engine.refuse(7, ErrorBody::Chunk);
        pair.drain(SERVER);
    }
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::TooManyErrors));
}

mod profile;
mod reverse;
mod traffic;
