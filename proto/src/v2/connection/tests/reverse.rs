//! The reverse direction: what is announced, what is asked, and XIDs that live both ways.

use super::*;
use crate::exchange::Format;
use crate::v2::properties::{REVERSE_CONT, REVERSE_NONE, REVERSE_SIMPLE};

/// Two open ends whose client announces `level`.
fn pair(level: u32) -> Pair {
    pair_that(level, |_| {})
}

/// Two open ends whose client announces `level`, and which are also configured by `set`.
fn pair_that(level: u32, set: impl Fn(&mut Config)) -> Pair {
    let mut pair = Pair::new(20);
    for (end, role) in pair.ends.iter_mut().zip([Role::Client, Role::Server]) {
        let mut config =
            Config { continued_call_max: 1000, continued_reply_max: 1000, ..config(role) };
        config.properties.reverse = if role == Role::Client { level } else { REVERSE_NONE };
        config.continues_replies = level >= REVERSE_CONT;
        set(&mut config);
        end.engine = Connection::new(config);
        end.engine.reserve(19);
    }
    pair.handle(CLIENT, Input::Established);
    pair.handle(SERVER, Input::Established);
    pair.settle();
    for end in &mut pair.ends {
        end.events.clear();
        end.posted.clear();
    }
    pair
}

const LEVELS: [u32; 4] = [REVERSE_NONE, REVERSE_SIMPLE, REVERSE_CONT, REVERSE_GENL];

/// Every form of a message, and the level it takes.
fn forms(of: Sending) -> [(Sending, u32); 6] {
    let continued = Format::Continued { messages: 2 };
    [
        (of, REVERSE_SIMPLE),
        (Sending { has_chunks: true, ..of }, REVERSE_GENL),
        (Sending { format: continued, ..of }, REVERSE_CONT),
        (Sending { format: continued, has_chunks: true, ..of }, REVERSE_GENL),
        (Sending { format: Format::Special, ..of }, REVERSE_GENL),
        (Sending { format: Format::Special, has_chunks: true, ..of }, REVERSE_GENL),
    ]
}

#[test]
fn nothing_is_sent_beyond_what_the_client_announced() {
    for level in LEVELS {
        for (at, of) in [(SERVER, Sending::CALL), (CLIENT, Sending::REPLY)] {
            for (sending, needed) in forms(of) {
                let mut pair = pair(level);
                let sent = pair.ends[at].engine.try_post(&sending);
                if needed <= level {
                    assert!(sent.is_ok(), "{sending:?} at level {level}");
                } else {
                    assert_eq!(sent, Err(Unsent::NotAnnounced), "{sending:?} at level {level}");
                }
            }
        }
        // The forward direction allows all formats.
        for (at, of) in [(CLIENT, Sending::CALL), (SERVER, Sending::REPLY)] {
            for (sending, _) in forms(of) {
                assert!(pair(level).ends[at].engine.try_post(&sending).is_ok());
            }
        }
    }
}

#[test]
fn nothing_is_sent_before_the_client_announced_it() {
    let mut pair = Pair::new(20);
    pair.handle(SERVER, Input::Established);
    // A client may begin without its properties; until they come it supports nothing.
    pair.receive(SERVER, &call(7, 20, &[], &[]));
    assert!(pair.reply(SERVER, 7));
    assert_eq!(pair.ends[SERVER].engine.try_post(&Sending::CALL), Err(Unsent::NotAnnounced));
    pair.receive(SERVER, &Xdr::common(9, 2, 20, 7).propset(&[(5, &[0, 0, 0, 1])]).0);
    assert!(pair.ends[SERVER].engine.try_post(&Sending::CALL).is_ok());
}

#[test]
fn what_goes_beyond_the_announcement_is_answered() {
    let segment = (7, 4, 0);
    let messages = |credit| {
        let inline = || Xdr::common(9, 2, credit, 10).words(&[0]);
        let external = Xdr::common(9, 2, credit, 8).words(&[0]);
        [
            ("simple", inline().words(&[0, 0, 0, 9])),
            ("continued", Xdr::common(9, 2, credit, 9).words(&[4, 9])),
            ("a Read chunk", inline().read_list(&[(4, segment)]).words(&[0, 0, 9])),
            ("a Write chunk", inline().words(&[0]).write_list(&[&[segment]]).words(&[0, 9])),
            ("a Reply chunk", inline().words(&[0, 0, 1]).write_chunk(&[segment]).words(&[9])),
            ("a Call chunk", external.read_list(&[(0, segment)]).words(&[0, 0, 0])),
        ]
    };
    // 0 for no error, or the code: INVAL_HTYPE 4, READ_CHUNKS 6, WRITE_CHUNKS 7, REPLY_RESOURCE 10.
    let expected: [[u32; 6]; 4] =
        [[4, 4, 6, 10, 10, 6], [0, 4, 6, 10, 10, 6], [0, 0, 6, 7, 10, 6], [0, 0, 0, 0, 0, 0]];
    for (level, codes) in LEVELS.into_iter().zip(expected) {
        let credit = pair(level).credit(CLIENT);
        for ((name, message), code) in messages(credit).into_iter().zip(codes) {
            let mut pair = pair(level);
            pair.receive(CLIENT, &message.0);
            let errors: Vec<_> = pair.errors(CLIENT);
            if code == 0 {
                assert_eq!(
                    (errors.len(), pair.ends[CLIENT].events.len()),
                    (0, 1),
                    "{name}, {level}"
                );
            } else {
                assert_eq!(errors, [(9, 2, code)], "{name} at level {level}");
                assert_eq!(pair.ends[CLIENT].events, [], "{name} at level {level}");
            }
            // The server takes all of these Calls.
            pair.receive(SERVER, &message.0);
            assert_eq!((pair.errors(SERVER).len(), pair.ends[SERVER].events.len()), (0, 1));
        }
    }
}

#[test]
fn one_xid_lives_in_both_directions() {
    // [V2-3.1.5.4-1] each end numbers its own Calls.
    let mut pair = pair(REVERSE_GENL);
    assert!(pair.call(CLIENT, 7) && pair.call(SERVER, 7));
    assert!(pair.deliver(SERVER) && pair.deliver(CLIENT));
    for at in [CLIENT, SERVER] {
        assert_eq!(
            (pair.ends[at].events.as_slice(), pair.ends[at].engine.owed()),
            (&[Event::Call][..], 1)
        );
        assert!(pair.reply(at, 7));
    }
    assert!(pair.deliver(SERVER) && pair.deliver(CLIENT));
    for at in [CLIENT, SERVER] {
        assert_eq!(pair.ends[at].events, [Event::Call, Event::Reply]);
        let versions: Vec<_> =
            pair.ends[at].posted.iter().map(|bytes| prefix(bytes).vers).collect();
        assert_eq!(versions, [2, 2], "the same version in both directions");
    }
}

#[test]
fn an_error_that_may_mean_call_or_reply_closes_the_connection() {
    let errors = [
        (ErrorBody::BadXdr, true),
        (ErrorBody::InvalCont, true),
        (ErrorBody::System, false),
        (ErrorBody::InvalHtype, false),
        (ErrorBody::ReadChunks { max: 0 }, false),
        (ErrorBody::ReplyResource { length_needed: 9 }, false),
    ];
    for (error, is_ambiguous) in errors {
        let mut pair = pair(REVERSE_GENL);
        assert!(pair.call(CLIENT, 7));
        let bytes = written(|w| encode_error(w, 7, 2, 20, &error));
        pair.receive(CLIENT, &bytes);
        assert_eq!(pair.ends[CLIENT].events.last(), Some(&Event::Refused { xid: 7, error }));
        assert_eq!(pair.ends[CLIENT].closed, None, "no Reply of ours is on its way");
        pair.ends[CLIENT].engine.refused_both_ways(error);
        pair.drain(CLIENT);
        let expected = Some(CloseReason::Ambiguous).filter(|_| is_ambiguous);
        assert_eq!(pair.ends[CLIENT].closed, expected, "{error:?}");
    }
}

#[test]
fn a_message_that_may_be_sent_is_sent() {
    for level in LEVELS {
        for (at, class) in [
            (CLIENT, Class::Call),
            (CLIENT, Class::Reply),
            (SERVER, Class::Call),
            (SERVER, Class::Reply),
        ] {
            for refused in [None, Some(Format::Simple), Some(Format::Special)] {
                let mut pair = pair(level);
                let engine = &mut pair.ends[at].engine;
                if let Some(format) = refused {
                    engine.not_supported(format);
                }
                let may = engine.may_send(class);
                assert_eq!(
                    engine.try_send(class).is_some(),
                    may,
                    "{class:?}, {level}, {refused:?}"
                );
            }
        }
    }
}

#[test]
fn calls_of_ends_that_share_the_credits_use_half_of_them() {
    // P2
    for (shares_credits, at, most) in
        [(false, CLIENT, 19), (false, SERVER, 18), (true, CLIENT, 9), (true, SERVER, 9)]
    {
        let mut pair = pair_that(REVERSE_GENL, |config| config.shares_credits = shares_credits);
        pair.handle(at, Input::Idle);
        let made = (1..).take_while(|xid| pair.call(at, *xid)).count();
        assert_eq!(made, most, "{shares_credits}, {at}");
        assert_eq!(pair.ends[at].engine.lend(Class::Call, 9).0, 0, "nor at once");
        if shares_credits {
            // A Reply is no Call, and each that comes lets another Call go.
            assert!(pair.ends[at].engine.may_send(Class::Reply));
            assert!(!pair.ends[at].engine.decides(Class::Call));
            pair.deliver(1 - at);
            assert!(pair.reply(1 - at, 1) && pair.deliver(at));
            assert!(pair.ends[at].engine.decides(Class::Call));
            assert!(pair.call(at, 99) && !pair.call(at, 100));
        }
    }
}
