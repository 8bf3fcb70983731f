//! Messages on their way out: in several pieces, waiting their turn, or not at all.

use core::time::Duration;

use super::*;
use crate::exchange::Format;

const fn continued(kind: Kind, messages: u32) -> Sending {
    Sending { kind, format: Format::Continued { messages }, ..Sending::CALL }
}

/// An open client with so many credits, which has sent nothing but its properties.
fn client(credits: u32) -> Connection {
    let mut pair = Pair::open(8);
    pair.receive(CLIENT, &Xdr::common(0, 2, 1 + credits, 5).0);
    let Pair { ends: [client, _], .. } = pair;
    client.engine
}

/// Gives a client this many credits.
fn grant(engine: &mut Connection, credits: u32) {
    let limit = engine.credits.peer_limit() + credits;
    let grant = Xdr::common(0, 2, limit, 5).0;
    engine.handle(Instant::ZERO, Input::Received(&header::decode_transport(&grant)));
    engine.reserve(1);
    while engine.poll().is_some() {}
}

#[test]
fn a_message_in_several_pieces_waits_for_the_credits_of_all() {
    for (kind, spare) in [(Kind::Call, 1), (Kind::Reply, 0)] {
        let mut engine = client(10);
        let sending = continued(kind, 5);
        // A Call without a Reply is not counted among the unanswered ones, which hold Receives.
        assert!(engine.try_post(&Sending { is_call_only: true, ..sending }).is_ok());
        for left in 5..5 + spare {
            assert_eq!(engine.try_post(&sending), Err(Unsent::Wait), "{left} are left");
            grant(&mut engine, 1);
        }
        assert!(engine.try_post(&sending).is_ok(), "all of them, or none");
        assert_eq!(engine.try_post(&continued(kind, 3)), Err(Unsent::Wait));
    }
}

#[test]
fn what_waits_is_not_passed_by_what_needs_less() {
    let mut engine = client(12);
    let (call, long_call) = (Sending::CALL, continued(Kind::Call, 5));
    (0..7).for_each(|_| assert!(engine.try_post(&call).is_ok()));
    engine.gate = Gate::default();
    assert_eq!(engine.try_post(&long_call), Err(Unsent::Wait), "five are left");
    assert_eq!(engine.try_post(&call), Err(Unsent::Wait), "although they are enough for it");
    assert!(!engine.may_send(Class::Call) && engine.may_send(Class::Reply));
    assert!(engine.try_post(&Sending::REPLY).is_ok(), "a Reply waits for no Call");
    grant(&mut engine, 2);
    assert_eq!(engine.try_post(&call), Err(Unsent::Wait));
    assert!(engine.try_post(&long_call).is_ok());
    grant(&mut engine, 2);
    assert!(engine.try_post(&call).is_ok());
}

#[test]
fn calls_wait_behind_a_reply_until_it_goes_or_is_given_up() {
    for gives_up in [false, true] {
        let mut engine = client(12);
        let long_reply = continued(Kind::Reply, 6);
        (0..7).for_each(|_| assert!(engine.try_post(&Sending::CALL).is_ok()));
        engine.gate = Gate::default();
        assert_eq!(engine.try_post(&long_reply), Err(Unsent::Wait), "five are left");
        assert_eq!(engine.try_post(&Sending::REPLY), Err(Unsent::Wait));
        assert_eq!(engine.try_post(&Sending::CALL), Err(Unsent::Wait));
        if gives_up {
            engine.give_up(Kind::Reply);
            assert!(engine.try_post(&Sending::REPLY).is_ok());
        } else {
            grant(&mut engine, 1);
            assert!(engine.try_post(&long_reply).is_ok());
        }
        grant(&mut engine, 2);
        assert!(engine.try_post(&Sending::CALL).is_ok());
    }
}

#[test]
fn what_may_never_find_its_credits_is_told_at_once() {
    let mut engine = client(12);
    assert_eq!((engine.messages_max(Kind::Call), engine.messages_max(Kind::Reply)), (6, 7));
    (0..2).for_each(|_| assert!(engine.try_post(&Sending::CALL).is_ok()));
    // The two Receives that unanswered Calls may hold do not count for a Reply.
    assert_eq!((engine.messages_max(Kind::Call), engine.messages_max(Kind::Reply)), (6, 6));
    let long = |messages| continued(Kind::Reply, messages);
    assert_eq!(engine.try_post(&long(11)), Err(Unsent::TooLong { messages_max: 6 }));
    assert!(engine.try_post(&Sending::CALL).is_ok(), "and nothing waits for it");
    assert!(engine.try_post(&long(9)).is_ok(), "more are fine as long as they are in hand");
    let mut pair = Pair::open(1);
    let engine = &mut pair.ends[CLIENT].engine;
    assert_eq!((engine.messages_max(Kind::Call), engine.messages_max(Kind::Reply)), (1, 1));
    assert_eq!(engine.try_post(&Sending::CALL), Err(Unsent::Wait), "one always may");
}

#[test]
fn a_window_that_has_shrunk_is_not_waited_for() {
    let mut engine = client(12);
    (0..7).for_each(|_| assert!(engine.try_post(&Sending::CALL).is_ok()));
    engine.gate = Gate::default();
    assert_eq!(engine.poll_deadline(), None);
    let long = continued(Kind::Call, 5);
    assert_eq!(engine.try_post(&long), Err(Unsent::Wait), "five are left, of twelve");
    engine.handle(Instant::ZERO, Input::Idle);
    let deadline = engine.poll_deadline().expect("not for ever");
    engine.handle(Instant::from_nanos(deadline.as_nanos() - 1), Input::Deadline);
    assert_eq!(engine.try_post(&long), Err(Unsent::Wait));
    // A grant that allows no more.
    grant(&mut engine, 0);
    assert_eq!(engine.try_post(&long), Err(Unsent::Wait));
    engine.handle(deadline, Input::Deadline);
    assert_eq!(engine.try_post(&long), Err(Unsent::TooLong { messages_max: 2 }), "half of five");
    assert_eq!(engine.poll_deadline(), None);
    assert!(engine.try_post(&continued(Kind::Call, 2)).is_ok());
}

/// A server whose client, which allows eight messages, has sent a burst of ten Calls. The server has sent a Reply of four
/// messages and has to wait with the next one, of five.
fn burst() -> Pair {
    let mut pair = Pair::open(8);
    let server = &mut pair.ends[SERVER].engine;
    server.reserve(16);
    let credit = server.credits.on_sent(Class::Control);
    let error = Xdr::common(1, 2, credit, 4).words(&[77]).0;
    pair.post(SERVER, error);
    pair.settle();
    for xid in 2..12 {
        assert!(pair.call(CLIENT, xid));
    }
    pair.deliver(SERVER);
    assert_eq!(pair.ends[SERVER].engine.messages_max(Kind::Reply), 5);
    let credit = pair.ends[SERVER].engine.try_post(&continued(Kind::Reply, 4)).unwrap();
    run(&mut pair, SERVER, Kind::Reply, 4, credit);
    let reply = continued(Kind::Reply, 5);
    assert_eq!(pair.ends[SERVER].engine.try_post(&reply), Err(Unsent::Wait), "four are left");
    pair
}

#[test]
fn a_burst_of_calls_does_not_make_the_window_smaller() {
    let mut pair = burst();
    while pair.deliver(SERVER) {
        let server = &mut pair.ends[SERVER].engine;
        assert_eq!(server.messages_max(Kind::Reply), 5, "the client has announced nothing new");
        assert_eq!(server.try_post(&continued(Kind::Reply, 5)), Err(Unsent::Wait));
    }
    // The client takes in what was sent to it, and says so.
    for more in 0..9 {
        while pair.deliver(CLIENT) {}
        pair.handle(CLIENT, Input::Idle);
        while pair.deliver(SERVER) {}
        let credit = pair.ends[SERVER].engine.try_post(&continued(Kind::Reply, 5));
        run(
            &mut pair,
            SERVER,
            Kind::Reply,
            5,
            credit.unwrap_or_else(|why| panic!("{more}: {why:?}")),
        );
    }
}

#[test]
fn the_time_of_a_wait_begins_with_the_wait() {
    let mut pair = burst();
    let wait = Duration::from_secs(1);
    let reply = continued(Kind::Reply, 5);
    // Long after the client was heard last.
    pair.now = Instant::ZERO.saturating_add(wait * 7);
    let due = pair.ends[SERVER].engine.poll_deadline().expect("not for ever");
    assert!(due <= pair.now);
    pair.handle(SERVER, Input::Deadline);
    assert_eq!(pair.ends[SERVER].engine.try_post(&reply), Err(Unsent::Wait));
    let due = pair.ends[SERVER].engine.poll_deadline().unwrap();
    assert_eq!(due, pair.now.saturating_add(wait));
    // The client returns some credit, but not enough.
    pair.now = Instant::from_nanos(due.as_nanos() - 1);
    pair.ends[SERVER].engine.credits.on_sent(Class::Control);
    let limit = pair.ends[SERVER].engine.credits.peer_limit();
    pair.receive(SERVER, &Xdr::common(0, 2, limit + 1, 5).0);
    pair.handle(SERVER, Input::Idle);
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), Some(due), "no more than four are left");
    pair.receive(SERVER, &Xdr::common(0, 2, limit + 2, 5).0);
    let credit = pair.ends[SERVER].engine.try_post(&reply);
    assert!(credit.is_ok(), "five are left");
    assert_eq!(pair.ends[SERVER].engine.poll_deadline(), None);
}

#[test]
fn a_peer_that_goes_on_to_send_and_allows_no_more_is_not_waited_for() {
    let mut pair = burst();
    let reply = continued(Kind::Reply, 5);
    let limit = pair.ends[SERVER].engine.credits.peer_limit();
    for tenth in 0..=10 {
        pair.now = Instant::from_nanos(tenth * 100_000_000);
        // It counts the grants that it is sent meanwhile.
        pair.ends[SERVER].engine.credits.on_sent(Class::Grant);
        let limit = limit + 1 + u32::try_from(tenth).unwrap();
        pair.receive(SERVER, &call(100, limit, &[], &[]));
        assert_eq!(pair.ends[SERVER].engine.try_post(&reply), Err(Unsent::Wait), "{tenth}");
    }
    pair.handle(SERVER, Input::Deadline);
    let refused = pair.ends[SERVER].engine.try_post(&reply);
    assert_eq!(refused, Err(Unsent::TooLong { messages_max: 3 }), "half of four, and one");
}

#[test]
fn a_long_call_waits_while_replies_pass_it_and_are_taken() {
    let mut engine = client(12);
    let (call, reply) = (continued(Kind::Call, 6), continued(Kind::Reply, 2));
    (0..3).for_each(|_| assert!(engine.try_post(&reply).is_ok()));
    assert_eq!(engine.try_post(&call), Err(Unsent::Wait), "six are left");
    let mut now = Instant::ZERO;
    for _ in 0..8 {
        now = now.saturating_add(Duration::from_millis(600));
        assert!(engine.try_post(&reply).is_ok());
        let limit = engine.credits.peer_limit() + 2;
        engine.reserve(1);
        let grant = Xdr::common(0, 2, limit, 5).0;
        engine.handle(now, Input::Received(&header::decode_transport(&grant)));
        while engine.poll().is_some() {}
        engine.handle(now, Input::Deadline);
        assert_eq!(engine.try_post(&call), Err(Unsent::Wait));
    }
    engine.handle(now.saturating_add(Duration::from_secs(1)), Input::Deadline);
    assert_eq!(engine.try_post(&call), Err(Unsent::TooLong { messages_max: 3 }));
}

#[test]
fn all_messages_of_one_run_carry_the_same_credit_and_are_counted() {
    let mut pair = Pair::open(20);
    let before = pair.ends[CLIENT].engine.credits.clone();
    let credit = pair.ends[CLIENT].engine.try_post(&continued(Kind::Call, 4)).unwrap();
    let mut one_by_one = before;
    for _ in 0..4 {
        assert_eq!(one_by_one.on_sent(Class::Call), credit);
    }
    let counts = |credits: &Credits| {
        (credits.may_send_all(Class::Reply, 15), credits.may_send_all(Class::Reply, 16))
    };
    assert_eq!(counts(&pair.ends[CLIENT].engine.credits), counts(&one_by_one));
}

#[test]
fn a_call_that_gets_no_reply_has_no_chunks() {
    let mut engine = client(40);
    let call_only = Sending { is_call_only: true, ..Sending::CALL };
    for (sending, expected) in [
        (call_only, true),
        (Sending { format: Format::Continued { messages: 3 }, ..call_only }, true),
        (Sending { has_chunks: true, ..call_only }, false),
        (Sending { format: Format::Special, ..call_only }, false),
        (Sending { has_chunks: true, is_call_only: false, ..call_only }, true),
    ] {
        match engine.try_post(&sending) {
            Ok(_) => assert!(expected, "{sending:?}"),
            Err(why) => assert_eq!((why, expected), (Unsent::ChunksWithoutReply, false)),
        }
    }
}

#[test]
fn a_call_that_waited_may_go_when_another_is_owed_nothing() {
    let mut engine = client(2);
    engine.credits.owe(1);
    assert_eq!(engine.try_post(&Sending::CALL), Err(Unsent::Wait), "one is for the Reply");
    engine.no_reply();
    assert!(engine.try_post(&Sending::CALL).is_ok(), "and nothing else has happened");
}

#[test]
fn credits_flow_although_nothing_is_replied() {
    let mut pair = Pair::open(8);
    let call_only = Sending { is_call_only: true, ..Sending::CALL };
    for xid in 0..200 {
        let credit = pair.ends[CLIENT].engine.try_post(&call_only).expect("a credit");
        pair.post(CLIENT, call(xid, credit, &[], &[]));
        pair.deliver(SERVER);
        pair.ends[SERVER].engine.no_reply();
        assert_eq!(pair.ends[SERVER].engine.owed(), 0);
        pair.handle(SERVER, Input::Idle);
        while pair.deliver(CLIENT) {}
    }
    assert_eq!(pair.ends[CLIENT].engine.messages_max(Kind::Reply), 5, "no Call is unanswered");
}

#[test]
fn a_format_that_was_refused_is_not_used_again() {
    let all = [Format::Simple, Format::Continued { messages: 2 }, Format::Special];
    // The last message of a continued Call is of the type of a simple one.
    let cases = [
        (all[0], [false, false, true]),
        (all[1], [true, false, true]),
        (all[2], [true, true, false]),
    ];
    for (refused, expected) in cases {
        let mut engine = client(40);
        engine.not_supported(refused);
        // `try_send` sends a simple Call where its format is supported; `lend` lends nothing once any format was
        // refused.
        let sends = (engine.try_send(Class::Call).is_some(), engine.lend(Class::Call, 3).0);
        assert_eq!(sends, (expected[0], 0), "{refused:?}");
        for (format, expected) in all.into_iter().zip(expected) {
            let sent = engine.try_post(&Sending { format, ..Sending::CALL });
            assert_eq!(sent.err(), (!expected).then_some(Unsent::NotSupported), "{refused:?}");
            assert!(engine.try_post(&Sending { format, ..Sending::REPLY }).is_ok(), "Replies stay");
        }
    }
}

#[test]
fn credits_that_grants_used_are_given_again_before_half_of_them_are_gone() {
    for window in 3..20 {
        let mut pair = Pair::open(window);
        // The server may have sent its properties, and so many grants that told something.
        for _ in 0..window {
            let credit = pair.ends[SERVER].engine.credits.on_sent(Class::Grant);
            pair.post(SERVER, Xdr::common(0, 2, credit, 5).0);
            pair.deliver(CLIENT);
            pair.handle(CLIENT, Input::Idle);
            pair.deliver(SERVER);
            // A message that may wait for credits gets them, although neither end says anything more.
            let engine = &mut pair.ends[SERVER].engine;
            let messages = engine.messages_max(Kind::Reply);
            assert!(engine.credits.may_send_all(Class::Reply, messages), "window {window}");
        }
    }
}

/// Two ends exchange continued messages in both directions through windows that are not much longer,
/// under a random schedule: whatever may be sent at all is sent at last.
#[test]
fn long_messages_find_their_credits_under_any_schedule() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let window = 3 + u32::try_from(rng.below(10)).unwrap();
        let mut pair = Pair::open(window);
        // The Calls that each end still has to make, and the number of messages of each Reply that it owes.
        let mut calls = [20_u32; 2];
        let mut owed: [VecDeque<u32>; 2] = Default::default();
        let mut next: [Option<u32>; 2] = [None; 2];
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}, window {window}: {calls:?} {owed:?}");
            let at = rng.below(2);
            match rng.below(4) {
                0 if calls[at] > 0 => {
                    let engine = &mut pair.ends[at].engine;
                    let most = engine.messages_max(Kind::Call) as usize;
                    let messages =
                        *next[at].get_or_insert(u32::try_from(1 + rng.below(most)).unwrap());
                    match engine.try_post(&continued(Kind::Call, messages)) {
                        Ok(credit) => {
                            calls[at] -= 1;
                            next[at] = None;
                            run(&mut pair, at, Kind::Call, messages, credit);
                        }
                        Err(Unsent::TooLong { .. }) => next[at] = None,
                        Err(why) => assert_eq!(why, Unsent::Wait),
                    }
                }
                1 if !owed[at].is_empty() => {
                    let engine = &mut pair.ends[at].engine;
                    let messages = owed[at][0];
                    match engine.try_post(&continued(Kind::Reply, messages)) {
                        Ok(credit) => {
                            owed[at].pop_front();
                            run(&mut pair, at, Kind::Reply, messages, credit);
                        }
                        // A Reply that is too long is refused with an error of one message, which tells its length.
                        Err(Unsent::TooLong { .. }) => {
                            owed[at].pop_front();
                            let error = ErrorBody::ReplyResource { length_needed: 9 };
                            engine.refuse(7, error);
                            pair.drain(at);
                        }
                        Err(why) => assert_eq!(why, Unsent::Wait),
                    }
                }
                2 => {
                    let before = pair.ends[at].events.len();
                    pair.deliver(at);
                    for _ in pair.ends[at].events[before..].iter().filter(|e| **e == Event::Call) {
                        owed[at].push_back(u32::try_from(1 + rng.below(6)).unwrap());
                    }
                }
                _ => pair.handle(at, Input::Idle),
            }
            assert!(pair.ends.iter().all(|end| end.closed.is_none()), "seed {seed}");
            let ended = |event: &&Event| matches!(event, Event::Reply | Event::Refused { .. });
            if pair.ends.iter().all(|end| end.events.iter().filter(ended).count() == 20) {
                break;
            }
        }
        assert!(calls == [0; 2] && owed.iter().all(VecDeque::is_empty), "seed {seed}");
    }
}

/// Posts the messages of one RPC message. Each part of it is a whole message here: what matters is
/// that each takes a credit and a Receive, and that one of them is the Call or the Reply.
fn run(pair: &mut Pair, from: usize, kind: Kind, messages: u32, credit: u32) {
    for _ in 1..messages {
        // The other end reports no event for an error of an unknown code.
        pair.post(from, Xdr::common(1, 2, credit, 4).words(&[77]).0);
    }
    let last = match kind {
        Kind::Call => call(7, credit, &[], &[]),
        Kind::Reply => Xdr::common(7, 2, credit, 13).words(&[0, 7]).0,
    };
    pair.post(from, last);
}
