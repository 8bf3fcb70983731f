//! The opt-in profile of RFC 5666 (P11), end to end.

use super::*;

const PADDING: Padding = Padding { align: 1024, thresh: 512 };

impl Pair {
    /// Posts a Reply whose result is a Read chunk, if credits allow. Returns its credit word.
    fn send_held(&mut self, xid: u32) -> Option<u32> {
        let credit = self.ends[SERVER].engine.try_send_held(self.now, xid)?;
        let (handle, length, offset) = CHUNK;
        let chunk = Segment { handle: Handle(handle), length, offset };
        let reply = written(|w| {
            let lists = ReplyLists { reads: &[(24, &[chunk])], ..ReplyLists::default() };
            encode_reply(w, xid, credit, Form::Msg, &lists)?;
            w.u32(xid)?;
            w.u32(1)
        });
        self.ends[CLIENT].inbox.push_back(reply);
        Some(credit)
    }

    /// Has the client make a Call whose Reply is held.
    fn exchange_held(&mut self, xid: u32) {
        assert!(self.send(CLIENT, Class::Call, xid).is_some());
        self.settle();
        assert!(self.send_held(xid).is_some());
        self.settle();
        assert_eq!(self.events(SERVER), [Event::Call]);
        assert_eq!(self.events(CLIENT), [Event::Reply]);
    }

    fn done(&mut self, xid: u32) {
        let done = self.ends[CLIENT].engine.done(xid).unwrap();
        assert_eq!(done.body, ControlBody::Done);
        self.control(CLIENT, done);
    }

    fn advance(&mut self, seconds: u64) {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
    }
}

/// A message with an opaque of 700 octets, padded.
fn padded(class: Class, xid: u32, credit: u32) -> Vec<u8> {
    written(|w| {
        let form = Form::MsgP(PADDING);
        match class {
            Class::Call => encode_call(w, xid, credit, form, &CallLists::default())?,
            Class::Reply => encode_reply(w, xid, credit, form, &ReplyLists::default())?,
        }
        w.u32(xid)?;
        w.u32(u32::from(class == Class::Reply))?;
        put_padded(w, PADDING, &[9; 700])
    })
}

fn unpadded(message: &[u8]) -> usize {
    let Ok(Message::MsgP(padding, rpc)) = header::decode(message) else { panic!("no RDMA_MSGP") };
    let base = message.len() - rpc.payload.len();
    let mut r = PaddedReader::new(rpc.payload, base, padding);
    r.take(8).unwrap();
    let opaque = r.opaque(700).unwrap();
    assert!(opaque == [9; 700] && r.is_empty());
    opaque.as_ptr() as usize - message.as_ptr() as usize
}

#[test]
fn padded_messages_go_both_ways() {
    let mut pair = Pair::with_profile(PROFILE);
    let credit = pair.ends[CLIENT].engine.try_send(Class::Call).unwrap();
    let call = padded(Class::Call, 7, credit);
    assert_eq!(unpadded(&call), 1024, "[R5666-3.9-2] the data lies aligned in the buffer");
    pair.receive(SERVER, &call);
    assert_eq!(pair.events(SERVER), [Event::Call]);
    let credit = pair.ends[SERVER].engine.try_send(Class::Reply).unwrap();
    let reply = padded(Class::Reply, 7, credit);
    assert_eq!(unpadded(&reply), 1024);
    pair.receive(CLIENT, &reply);
    assert_eq!(pair.events(CLIENT), [Event::Reply]);
}

#[test]
fn padding_that_could_be_misread_is_refused() {
    let mut pair = Pair::with_profile(PROFILE);
    for (align, thresh) in [(0, 512), (1024, 400), (1022, 512)] {
        let call = Xdr::common(7, 1, 4, 2).words(&[align, thresh, 0, 0, 0, 7, 0]).0;
        pair.receive(SERVER, &call);
        assert_eq!(pair.events(SERVER), []);
    }
    // Whether padding counts in the positions of Read chunks, no text says.
    let lists = Xdr::common(7, 1, 4, 2).words(&[1024, 512]).read_list(&[(12, CHUNK)]);
    pair.receive(SERVER, &lists.words(&[0, 0, 7, 0, 0]).0);
    assert_eq!((pair.events(SERVER), pair.errors(SERVER)), (vec![], vec![(7, 1, 2); 4]));
}

#[test]
fn a_held_reply_is_released_by_done() {
    let mut pair = Pair::with_profile(PROFILE);
    pair.exchange_held(7);
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), Some(Instant::from_nanos(5_000_000_000)));
    // [R5666-3.5-1]
    pair.done(7);
    assert_eq!(pair.ends[CLIENT].posted, [Xdr::common(7, 1, 8, 3).0]);
    pair.settle();
    assert_eq!(pair.events(SERVER), [Event::Released { xid: 7, done: true }]);
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), None);
    assert_eq!(pair.ends[CLIENT].engine.done(7), None, "there is nothing more to release");
    assert_eq!(pair.exchange(8), 6);
}

#[test]
fn done_without_a_reply_to_release_is_dropped() {
    let mut pair = Pair::with_profile(PROFILE);
    pair.exchange_held(7);
    pair.receive(SERVER, &Xdr::common(8, 1, 8, 3).0);
    assert_eq!(pair.events(SERVER), []);
    pair.done(7);
    pair.settle();
    pair.receive(SERVER, &Xdr::common(7, 1, 8, 3).0);
    assert_eq!(pair.events(SERVER), [Event::Released { xid: 7, done: true }]);
}

#[test]
fn a_reply_not_released_keeps_its_credit_at_the_client() {
    let mut pair = Pair::with_profile(PROFILE);
    pair.exchange_held(1);
    // [R5666-3.8-5] of six credits granted, the DONE holds one.
    let sent = (10..).map_while(|xid| pair.send(CLIENT, Class::Call, xid)).count();
    assert_eq!(sent, 5);
    pair.done(1);
    assert!(pair.send(CLIENT, Class::Call, 99).is_some(), "it is free again");
}

#[test]
fn what_awaits_done_is_not_granted_and_never_takes_the_last_credit() {
    let config = |role| Config { profile: Some(PROFILE), ..config(role) };
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 2);
    assert!(pair.send(CLIENT, Class::Call, 1).is_some());
    pair.settle();
    // [R5666-11-6] of three Receives, one is for the DONE.
    assert_eq!(pair.send_held(1), Some(2));
    pair.settle();
    assert!(pair.send(CLIENT, Class::Call, 2).is_some());
    pair.settle();
    assert_eq!(pair.send_held(2), Some(1));
    pair.settle();
    assert_eq!(pair.send(CLIENT, Class::Call, 3), None, "its one credit is DONE's");
    pair.done(1);
    pair.done(2);
    assert!(pair.send(CLIENT, Class::Call, 3).is_some());
    // [R5666-3.8-4] DONE and the Call find their Receives, though none came back in between.
    for _ in 0..3 {
        let bytes = pair.ends[SERVER].inbox.pop_front().unwrap();
        pair.take(SERVER, &bytes);
    }
    assert_eq!((pair.ends[SERVER].closed, pair.ends[SERVER].engine.reserved()), (None, 0));
    // [R5666-11-7] the Reply is withheld, because it could grant no credit, or keep no Receive for a DONE.
    assert_eq!((pair.send_held(3), pair.send(SERVER, Class::Reply, 3)), (None, None));
    pair.ends[SERVER].engine.reserve(1);
    assert_eq!((pair.send_held(3), pair.send(SERVER, Class::Reply, 3)), (None, None));
    pair.ends[SERVER].engine.reserve(1);
    assert_eq!(pair.send_held(3), Some(1));
}

#[test]
fn a_reply_that_is_read_needs_no_receive_that_calls_behind_it_hold() {
    let config = |role| Config { profile: Some(PROFILE), ..config(role) };
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 2);
    assert_eq!(pair.exchange(1), 2, "of three Receives, one is kept for a DONE");
    for xid in [2, 3] {
        assert!(pair.send(CLIENT, Class::Call, xid).is_some());
        let bytes = pair.ends[SERVER].inbox.pop_front().unwrap();
        pair.take(SERVER, &bytes);
    }
    assert_eq!(pair.ends[SERVER].engine.reserved(), 1, "both hold their Receives");
    assert!(pair.send_held(2).is_some());
    pair.ends[SERVER].engine.reserve(1);
    assert_eq!(pair.send_held(3), None, "another one waits for that DONE");
    pair.settle();
    pair.done(2);
    pair.settle();
    assert!(pair.send_held(3).is_some());
}

#[test]
fn only_so_many_replies_are_held() {
    let mut pair = Pair::with_profile(PROFILE);
    for xid in 1..=2 {
        pair.exchange_held(xid);
    }
    assert!(pair.send(CLIENT, Class::Call, 3).is_some());
    pair.settle();
    // [R5666-11-5]
    assert_eq!(pair.send_held(3), None);
    assert!(pair.send(SERVER, Class::Reply, 3).is_some(), "inline it may go");
    pair.done(1);
    pair.settle();
    assert!(pair.send(CLIENT, Class::Call, 4).is_some());
    pair.settle();
    assert!(pair.send_held(4).is_some());
}

#[test]
fn a_client_that_never_says_done_loses_the_memory() {
    let mut pair = Pair::with_profile(PROFILE);
    pair.exchange_held(1);
    pair.advance(1);
    pair.exchange_held(2);
    pair.handle(SERVER, Input::Deadline);
    assert_eq!(pair.events(SERVER), [], "it is not time yet");
    pair.advance(10);
    // [R5666-3.8-1] [R5666-11-8] each deadline releases one Reply.
    for xid in [1, 2] {
        assert!(pair.ends[SERVER].engine.poll_deadline().is_some_and(|at| at <= pair.now));
        pair.handle(SERVER, Input::Deadline);
        assert_eq!(pair.events(SERVER), [Event::Released { xid, done: false }]);
    }
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), None);
    // A DONE that comes too late is dropped.
    pair.done(1);
    pair.settle();
    assert_eq!((pair.events(SERVER), pair.ends[SERVER].closed), (vec![], None));
    assert_eq!(pair.exchange(3), 6);
}

#[test]
fn what_is_no_longer_awaited_is_granted_again() {
    let config = |role| Config { profile: Some(PROFILE), ..config(role) };
    let mut pair = Pair::new(config(Role::Client), config(Role::Server), 4);
    assert!(pair.send(CLIENT, Class::Call, 1).is_some());
    pair.settle();
    assert_eq!(pair.send_held(1), Some(4), "of five Receives, one is for the DONE");
    pair.settle();
    assert!(pair.send(CLIENT, Class::Call, 2).is_some());
    pair.settle();
    assert_eq!(pair.send_held(2), Some(3), "two are");
    pair.settle();
    pair.advance(5);
    pair.handle(SERVER, Input::Deadline);
    pair.handle(SERVER, Input::Deadline);
    assert!(pair.send(CLIENT, Class::Call, 3).is_some());
    pair.settle();
    assert_eq!(pair.send(SERVER, Class::Reply, 3), Some(4));
}

#[test]
fn a_client_that_never_says_done_can_lose_the_connection() {
    let mut pair = Pair::with_profile(Profile { late: Late::Close, ..PROFILE });
    pair.exchange_held(1);
    pair.advance(5);
    pair.handle(SERVER, Input::Deadline);
    assert_eq!(pair.ends[SERVER].closed, Some(CloseReason::DoneTimedOut));
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), None);
}

#[test]
fn a_long_reply_may_be_read_at_position_zero() {
    let mut pair = Pair::with_profile(PROFILE);
    assert!(pair.send(CLIENT, Class::Call, 7).is_some());
    pair.settle();
    let credit = pair.ends[SERVER].engine.try_send_held(pair.now, 7).unwrap();
    // [R5666-5.2-2]
    pair.receive(CLIENT, &Xdr::common(7, 1, credit, 1).read_list(&[(0, CHUNK)]).words(&[0, 0]).0);
    assert_eq!(pair.events(CLIENT), [Event::Reply]);
    pair.done(7);
    pair.settle();
    assert_eq!(pair.events(SERVER), [Event::Call, Event::Released { xid: 7, done: true }]);
}

#[test]
fn without_the_profile_nothing_is_held() {
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 7).is_some());
    pair.settle();
    assert_eq!((pair.send_held(7), pair.ends[SERVER].engine.poll_deadline()), (None, None));
    assert_eq!(pair.ends[CLIENT].engine.done(7), None);
    pair.handle(SERVER, Input::Deadline);
    assert_eq!(pair.ends[SERVER].closed, None);
}
