//! Continued messages as they arrive, in both directions and as Calls and Replies.

use super::*;
use crate::v2::continuation::Part;

/// Two open ends that take continued messages of up to 1000 octets.
fn pair() -> Pair {
    let mut pair = Pair::new(20);
    for (end, role) in pair.ends.iter_mut().zip([Role::Client, Role::Server]) {
        let config = Config {
            continued_call_max: 1000,
            continued_reply_max: 1000,
            continues_replies: true,
            ..config(role)
        };
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

/// A Payload stream of the RPC message 7.
const STREAM: [u8; 12] = [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];

/// The middle part of [`STREAM`] from `at` on, in a message of this type.
fn middle(pair: &Pair, at: usize, htype: u32, range: core::ops::Range<usize>) -> Vec<u8> {
    let remaining = u32::try_from(STREAM.len() - range.end).unwrap();
    let mut bytes = Xdr::common(7, 2, pair.credit(at), htype).words(&[remaining]).0;
    bytes.extend(&STREAM[range]);
    bytes
}

/// The last part, in a message of the same kind.
fn last(pair: &Pair, at: usize, htype: u32, from: usize) -> Vec<u8> {
    let lists: &[u32] = if htype == 9 { &[0; 4] } else { &[0] };
    let mut bytes = Xdr::common(7, 2, pair.credit(at), htype + 1).words(lists).0;
    bytes.extend(&STREAM[from..]);
    bytes
}

const KINDS: [(Kind, u32, Event); 2] =
    [(Kind::Call, 9, Event::Call), (Kind::Reply, 12, Event::Reply)];

#[test]
fn each_part_is_told_and_behind_the_last_one_the_whole() {
    for (at, (kind, htype, whole)) in [(CLIENT, KINDS[0]), (SERVER, KINDS[0]), (CLIENT, KINDS[1])] {
        let mut pair = pair();
        let part = |offset, length| {
            let is_first = offset == 0;
            Event::Part(Part { kind, xid: 7, offset, length, total: 12, is_first })
        };
        for bytes in [middle(&pair, at, htype, 0..6), middle(&pair, at, htype, 6..10)] {
            pair.receive(at, &bytes);
            assert_eq!(pair.ends[at].engine.owed(), 0, "no Call yet");
        }
        assert_eq!(pair.ends[at].events, [part(0, 6), part(6, 4)]);
        // A grant may come at any time.
        pair.receive(at, &Xdr::common(0, 2, pair.credit(at), 5).0);
        let bytes = last(&pair, at, htype, 10);
        pair.receive(at, &bytes);
        assert_eq!(pair.ends[at].events[2..], [part(10, 2), whole]);
        assert_eq!(pair.ends[at].engine.owed(), u32::from(kind == Kind::Call));
        assert_eq!(pair.errors(at), []);
    }
}

#[test]
fn a_part_that_does_not_fit_is_answered_once_and_its_call_abandoned() {
    let mut pair = pair();
    let first = middle(&pair, SERVER, 9, 0..6);
    pair.receive(SERVER, &first);
    pair.receive(SERVER, &middle(&pair, SERVER, 9, 8..10));
    assert_eq!(pair.errors(SERVER), [(7, 2, 5)], "INVAL_CONT");
    assert_eq!(pair.ends[SERVER].events[1..], [Event::Abandoned { xid: 7 }]);
    // All further messages of the refused sequence are dropped.
    for bytes in [first, middle(&pair, SERVER, 9, 10..11), last(&pair, SERVER, 9, 11)] {
        pair.receive(SERVER, &bytes);
    }
    assert_eq!((pair.errors(SERVER).len(), pair.ends[SERVER].events.len()), (1, 2));
    // The connection still takes Calls.
    pair.receive(SERVER, &call(8, pair.credit(SERVER), &[], &[]));
    assert_eq!(pair.ends[SERVER].events[2..], [Event::Call]);
}

#[test]
fn a_malformed_part_ends_its_sequence() {
    let mut pair = pair();
    pair.receive(SERVER, &middle(&pair, SERVER, 9, 0..6));
    pair.receive(SERVER, &Xdr::common(7, 2, pair.credit(SERVER), 10).words(&[0, 2]).0);
    assert_eq!(pair.errors(SERVER), [(7, 2, 5)], "INVAL_CONT");
    assert_eq!(pair.ends[SERVER].events[1..], [Event::Abandoned { xid: 7 }]);
}

#[test]
fn a_reply_that_does_not_go_on_fails_its_call_here() {
    let mut pair = pair();
    pair.receive(CLIENT, &middle(&pair, CLIENT, 12, 0..6));
    pair.receive(CLIENT, &last(&pair, CLIENT, 12, 7));
    let refused = Event::Refused { xid: 7, error: ErrorBody::InvalCont };
    assert_eq!(pair.ends[CLIENT].events[1..], [refused]);
    assert_eq!(pair.errors(CLIENT), [], "E13");
}

#[test]
fn a_message_between_two_parts_is_refused_and_the_sequence_goes_on() {
    let intruders: [(&str, WithCredit, &[Event]); 5] = [
        ("a Call", |credit| Xdr::common(9, 2, credit, 10).words(&[0, 0, 0, 0, 9]), &[]),
        (
            "a Reply",
            |credit| Xdr::common(9, 2, credit, 13).words(&[0, 9]),
            &[Event::Refused { xid: 9, error: ErrorBody::InvalCont }],
        ),
        ("another continued Call", |credit| Xdr::common(9, 2, credit, 9).words(&[4, 9]), &[]),
        ("properties", |credit| Xdr::common(9, 2, credit, 7).propset(&[]), &[]),
        ("an unknown type", |credit| Xdr::common(9, 2, credit, 77), &[]),
    ];
    for (name, intruder, events) in intruders {
        for (_, htype, whole) in KINDS {
            let mut pair = pair();
            pair.receive(CLIENT, &middle(&pair, CLIENT, htype, 0..6));
            pair.receive(CLIENT, &intruder(pair.credit(CLIENT)).0);
            assert_eq!(pair.errors(CLIENT), [(9, 2, 5)], "{name}: INVAL_CONT");
            assert_eq!(pair.ends[CLIENT].events[1..], *events, "{name}");
            pair.receive(CLIENT, &last(&pair, CLIENT, htype, 6));
            assert_eq!(pair.ends[CLIENT].events.last(), Some(&whole), "{name}");
        }
    }
}

#[test]
fn an_error_ends_the_reply_that_was_begun() {
    let mut pair = pair();
    pair.receive(CLIENT, &middle(&pair, CLIENT, 12, 0..6));
    pair.receive(CLIENT, &Xdr::common(7, 2, pair.credit(CLIENT), 4).words(&[100]).0);
    let refused = Event::Refused { xid: 7, error: ErrorBody::System };
    assert_eq!(pair.ends[CLIENT].events[1..], [refused]);
    pair.receive(CLIENT, &middle(&pair, CLIENT, 12, 6..8));
    pair.receive(CLIENT, &last(&pair, CLIENT, 12, 8));
    assert_eq!((pair.ends[CLIENT].events.len(), pair.errors(CLIENT).len()), (2, 0));
}

#[test]
fn a_continued_call_is_bounded_by_length_and_by_chunks() {
    let mut pair = pair();
    let long = Xdr::common(7, 2, pair.credit(SERVER), 9).words(&[997, 7]).0;
    pair.receive(SERVER, &long);
    assert_eq!(pair.errors(SERVER), [(7, 2, 100)], "SYSTEM: 1001 octets");
    assert_eq!(pair.ends[SERVER].events, [], "nothing was begun");

    let mut pair = super::continued::pair();
    pair.receive(SERVER, &middle(&pair, SERVER, 9, 0..8));
    let two = [(4, (1, 4, 0)), (8, (1, 4, 0))];
    let last = Xdr::common(7, 2, pair.credit(SERVER), 10).words(&[0]).read_list(&two);
    let mut last = last.words(&[0, 0]).0;
    last.extend(&STREAM[8..]);
    pair.receive(SERVER, &last);
    assert_eq!(pair.errors(SERVER), [(7, 2, 6)], "READ_CHUNKS");
    assert_eq!(pair.ends[SERVER].events[1..], [Event::Abandoned { xid: 7 }]);
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
}

#[test]
fn a_continued_message_that_is_given_up_is_refused_once() {
    for (at, htype) in [(SERVER, 9), (CLIENT, 12)] {
        let mut pair = super::continued::pair();
        assert_eq!(pair.ends[at].engine.break_off(ErrorBody::System), None, "nothing is under way");
        pair.receive(at, &middle(&pair, at, htype, 0..8));
        let kind = if at == SERVER { Kind::Call } else { Kind::Reply };
        let told = (kind, 7, ErrorBody::System);
        assert_eq!(pair.ends[at].engine.break_off(ErrorBody::System), Some(told));
        assert_eq!(pair.ends[at].engine.break_off(ErrorBody::System), None);
        pair.drain(at);
        let refused = Event::Refused { xid: 7, error: ErrorBody::System };
        let (told, errors) = match at {
            SERVER => (&[][..], &[(7, 2, 100)][..]),
            _ => (&[refused][..], &[][..]),
        };
        assert_eq!(pair.ends[at].events[1..], *told);
        assert_eq!(pair.errors(at), errors);
        pair.receive(at, &middle(&pair, at, htype, 8..12));
        pair.receive(at, &last(&pair, at, htype, 12));
        assert_eq!(pair.ends[at].events.len(), 1 + told.len(), "the rest is dropped");
        assert_eq!(pair.errors(at), errors);
    }
}

#[test]
fn where_continued_messages_are_not_taken_their_type_is_not_supported() {
    let mut pair = Pair::open(8);
    for at in [CLIENT, SERVER] {
        pair.receive(at, &middle(&pair, at, 9, 0..6));
        pair.receive(at, &middle(&pair, at, 9, 6..8));
        pair.receive(at, &last(&pair, at, 9, 8));
        assert_eq!(pair.errors(at), [(7, 2, 4)], "INVAL_HTYPE, once");
        assert_eq!(pair.ends[at].events, []);
    }
    // A continued Reply that the client cannot take ends its Call.
    pair.receive(CLIENT, &middle(&pair, CLIENT, 12, 0..6));
    let refused = Event::Refused { xid: 7, error: ErrorBody::InvalHtype };
    assert_eq!(pair.ends[CLIENT].events, [refused]);
}

#[test]
fn a_stream_of_another_xid_is_not_taken() {
    let mut pair = pair();
    let other = |htype, lists: &[u32]| Xdr::common(8, 2, 9, htype).words(lists).words(&[7, 0]).0;
    let inline = other(10, &[0, 0, 0, 0]);
    for bytes in [inline, other(9, &[4])] {
        pair.ends[SERVER].posted.clear();
        pair.receive(SERVER, &bytes);
        assert_eq!(pair.errors(SERVER), [(8, 2, 2)], "BAD_XDR");
        assert_eq!(pair.ends[SERVER].events, []);
    }
    // A broken Reply ends its Call.
    pair.receive(CLIENT, &other(13, &[0]));
    let refused = Event::Refused { xid: 8, error: ErrorBody::BadXdr };
    assert_eq!(
        (pair.ends[CLIENT].events.as_slice(), pair.errors(CLIENT).len()),
        (&[refused][..], 0)
    );
}

#[test]
fn body_chunks_make_whole_messages() {
    let mut pair = pair();
    let segment = (7, 100, 0);
    let special = Xdr::common(7, 2, 9, 8).words(&[0]).read_list(&[(0, segment)]).words(&[0, 0, 0]);
    pair.receive(SERVER, &special.0);
    assert_eq!(
        (pair.ends[SERVER].events.as_slice(), pair.ends[SERVER].engine.owed()),
        (&[Event::Call][..], 1)
    );
    let reply = Xdr::common(7, 2, 9, 11).words(&[0, 1]).write_chunk(&[segment]).0;
    pair.receive(CLIENT, &reply);
    assert_eq!(pair.ends[CLIENT].events, [Event::Reply]);
}
