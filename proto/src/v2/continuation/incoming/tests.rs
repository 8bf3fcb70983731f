use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::testing::{Rng, Xdr};
use crate::v2::header::decode_transport;

const XID: u32 = 0x0a0b_0c0d;

/// A Payload stream of the RPC message `xid`.
fn stream(xid: u32, length: usize) -> Vec<u8> {
    let mut octets = xid.to_be_bytes().to_vec();
    octets.extend((4_u8..).take(length - 4));
    octets
}

fn middle(htype: u32, xid: u32, remaining: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Xdr::common(xid, 2, 9, htype).words(&[remaining]).0;
    bytes.extend(payload);
    bytes
}

fn call_middle(xid: u32, remaining: u32, payload: &[u8]) -> Vec<u8> {
    middle(9, xid, remaining, payload)
}

fn call_inline(xid: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Xdr::common(xid, 2, 9, 10).words(&[0, 0, 0, 0]).0;
    bytes.extend(payload);
    bytes
}

fn reply_inline(xid: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Xdr::common(xid, 2, 9, 13).words(&[0]).0;
    bytes.extend(payload);
    bytes
}

fn call_external(xid: u32) -> Vec<u8> {
    let call = Xdr::common(xid, 2, 9, 8).words(&[0]).read_list(&[(0, (7, 100, 0))]);
    call.words(&[0, 0, 0]).0
}

fn reply_external(xid: u32) -> Vec<u8> {
    Xdr::common(xid, 2, 9, 11).words(&[0, 1]).write_chunk(&[(7, 100, 0)]).0
}

fn grant() -> Vec<u8> {
    Xdr::common(0, 2, 9, 5).0
}

fn error(xid: u32) -> Vec<u8> {
    Xdr::common(xid, 2, 9, 4).words(&[100]).0
}

/// Judges a message as the connection does: decoded if it can be.
fn step(incoming: &mut Incoming, bytes: &[u8]) -> Step {
    match decode_transport(bytes) {
        Ok(message) => incoming.on_message(&message),
        Err(fault) => incoming.on_malformed(&fault.prefix.expect("a whole prefix")),
    }
}

const fn part(offset: u32, length: u32, total: u32) -> Part {
    Part { kind: Kind::Call, xid: XID, offset, length, total, is_first: offset == 0 }
}

const INVALID: Step = Step::Broken(ErrorBody::InvalCont);
const TOO_LONG: Step = Step::Broken(ErrorBody::System);

#[test]
fn parts_land_one_behind_the_other() {
    let mut incoming = Incoming::new(100, 100);
    let octets = stream(XID, 30);
    let first = call_middle(XID, 18, &octets[..12]);
    assert_eq!(step(&mut incoming, &first), Step::Part(part(0, 12, 30)));
    assert_eq!(incoming.current(), Some((Kind::Call, XID)));
    let empty = call_middle(XID, 18, &[]);
    assert_eq!(step(&mut incoming, &empty), Step::Part(part(12, 0, 30)));
    let second = call_middle(XID, 1, &octets[12..29]);
    assert_eq!(step(&mut incoming, &second), Step::Part(part(12, 17, 30)));
    let last = call_inline(XID, &octets[29..]);
    assert_eq!(step(&mut incoming, &last), Step::Last(part(29, 1, 30)));
    assert_eq!(incoming.current(), None);
    // The next message stands alone, even with the same XID.
    assert_eq!(step(&mut incoming, &call_inline(XID, &octets)), Step::Whole);
}

#[test]
fn any_division_is_put_together_again() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let length = 4 + rng.below(100);
        let octets = stream(XID, length);
        let (htype, kind) = [(9, Kind::Call), (12, Kind::Reply)][rng.below(2)];
        let mut incoming = Incoming::new(104, 104);
        let mut whole = vec![0xee; length];
        let mut at = 0;
        for _ in 0..1 + rng.below(5) {
            let end = at + rng.below(length - at + 1);
            let remaining = u32::try_from(length - end).unwrap();
            let bytes = middle(htype, XID, remaining, &octets[at..end]);
            let Step::Part(part) = step(&mut incoming, &bytes) else { panic!("seed {seed}") };
            whole[part.offset as usize..][..part.length as usize].copy_from_slice(&octets[at..end]);
            assert_eq!((part.kind, part.xid, part.total as usize), (kind, XID, length));
            at = end;
            // A grant or an error between two parts belongs to neither.
            assert_eq!(step(&mut incoming, &grant()), Step::Whole);
            assert_eq!(step(&mut incoming, &error(XID)), Step::Whole);
        }
        let inline = if kind == Kind::Call { call_inline } else { reply_inline };
        let last = step(&mut incoming, &inline(XID, &octets[at..]));
        let Step::Last(part) = last else { panic!("seed {seed}: {last:?}") };
        whole[part.offset as usize..][..part.length as usize].copy_from_slice(&octets[at..]);
        assert_eq!(whole, octets, "seed {seed}");
    }
}

#[test]
fn what_remains_is_counted_to_the_octet() {
    let octets = stream(XID, 20);
    let wrong: [(&str, Vec<u8>); 8] = [
        ("too much remains", call_middle(XID, 9, &octets[8..12])),
        ("too little remains", call_middle(XID, 7, &octets[8..12])),
        ("what remains wraps", call_middle(XID, u32::MAX, &octets[8..12])),
        ("more than there is", call_middle(XID, 0, &[0; 13])),
        ("too long an end", call_inline(XID, &[0; 13])),
        ("too short an end", call_inline(XID, &octets[8..19])),
        ("a malformed part", Xdr::common(XID, 2, 9, 9).0),
        ("a malformed end", Xdr::common(XID, 2, 9, 10).words(&[0, 2]).0),
    ];
    for (what, bytes) in wrong {
        let mut incoming = Incoming::new(100, 100);
        step(&mut incoming, &call_middle(XID, 12, &octets[..8]));
        assert_eq!(step(&mut incoming, &bytes), INVALID, "{what}");
        assert_eq!(incoming.current(), None, "{what}");
    }
}

#[test]
fn a_refused_sequence_is_reported_once_and_then_dropped_to_its_end() {
    let octets = stream(XID, 20);
    let mut incoming = Incoming::new(100, 100);
    step(&mut incoming, &call_middle(XID, 12, &octets[..8]));
    assert_eq!(step(&mut incoming, &call_middle(XID, 12, &octets[8..12])), INVALID);
    assert_eq!(step(&mut incoming, &call_middle(XID, 4, &octets[12..16])), Step::Dropped);
    assert_eq!(step(&mut incoming, &Xdr::common(XID, 2, 9, 9).0), Step::Dropped);
    // Messages of other RPCs pass meanwhile.
    assert_eq!(step(&mut incoming, &call_inline(7, &stream(7, 8))), Step::Whole);
    let part = call_middle(8, 4, &stream(8, 8)[..4]);
    assert!(matches!(step(&mut incoming, &part), Step::Part(_)));
    assert!(matches!(step(&mut incoming, &call_inline(8, &[0; 4])), Step::Last(_)));
    assert_eq!(step(&mut incoming, &call_inline(XID, &octets[16..])), Step::Dropped);
    // The sequence is over, so its XID may be used again.
    assert!(matches!(step(&mut incoming, &call_middle(XID, 12, &octets[..8])), Step::Part(_)));
}

#[test]
fn a_whole_message_is_not_taken_for_the_end_of_a_refused_sequence() {
    let mut incoming = Incoming::new(10, 10);
    let octets = stream(XID, 20);
    assert_eq!(step(&mut incoming, &call_middle(XID, 12, &octets[..8])), TOO_LONG);
    assert_eq!(step(&mut incoming, &call_inline(XID, &stream(XID, 10))), Step::Whole);
    assert_eq!(step(&mut incoming, &call_external(XID)), Step::Whole);
    assert_eq!(step(&mut incoming, &reply_inline(XID, &octets)), Step::Whole);
    assert_eq!(step(&mut incoming, &call_inline(XID, &octets[8..])), Step::Dropped);
}

#[test]
fn a_sequence_begins_only_within_the_limit_and_under_its_own_xid() {
    let octets = stream(XID, 20);
    let begin = |total_max, bytes: &[u8]| step(&mut Incoming::new(total_max, total_max), bytes);
    let fits = call_middle(XID, 12, &octets[..8]);
    assert_eq!(begin(20, &fits), Step::Part(part(0, 8, 20)));
    assert_eq!(begin(19, &fits), TOO_LONG, "[E7] the total is known from the first part on");
    assert_eq!(begin(0, &fits), Step::Broken(ErrorBody::InvalHtype));
    assert_eq!(begin(u32::MAX, &call_middle(XID, u32::MAX, &octets[..8])), INVALID);
    assert_eq!(begin(20, &call_middle(XID, 8, &[0; 8])), Step::Broken(ErrorBody::BadXdr));
    assert_eq!(begin(20, &Xdr::common(XID, 2, 9, 9).0), Step::Broken(ErrorBody::BadXdr));
}

#[test]
fn the_xid_may_come_octet_by_octet_but_it_must_come() {
    let octets = stream(XID, 5);
    let mut incoming = Incoming::new(100, 100);
    for at in 0..4_u32 {
        let bytes = call_middle(XID, 4 - at, &octets[at as usize..=at as usize]);
        assert_eq!(step(&mut incoming, &bytes), Step::Part(part(at, 1, 5)));
    }
    assert_eq!(step(&mut incoming, &call_inline(XID, &octets[4..])), Step::Last(part(4, 1, 5)));

    step(&mut incoming, &call_middle(XID, 3, &octets[..2]));
    assert_eq!(step(&mut incoming, &call_middle(XID, 1, &[0, 0])), INVALID, "another XID");
    step(&mut incoming, &call_inline(XID, &[]));
    step(&mut incoming, &call_middle(XID, 1, &octets[..2]));
    assert_eq!(step(&mut incoming, &call_inline(XID, &octets[2..3])), INVALID, "no whole XID");
}

#[test]
fn an_intruder_is_refused_for_itself() {
    let octets = stream(XID, 20);
    let intruders: [(&str, Vec<u8>); 9] = [
        ("a Call", call_inline(7, &stream(7, 8))),
        ("a Reply", reply_inline(7, &stream(7, 8))),
        ("a Reply of the same XID", reply_inline(XID, &octets)),
        ("a part of another Call", call_middle(7, 4, &stream(7, 8))),
        ("a Call chunk", call_external(7)),
        ("a Reply chunk", reply_external(XID)),
        ("properties", Xdr::common(7, 2, 9, 7).propset(&[]).0),
        ("an unknown type", Xdr::common(7, 2, 9, 99).0),
        ("a malformed Call", Xdr::common(7, 2, 9, 10).0),
    ];
    for (what, bytes) in intruders {
        let mut incoming = Incoming::new(100, 100);
        step(&mut incoming, &call_middle(XID, 12, &octets[..8]));
        assert_eq!(step(&mut incoming, &bytes), Step::Intruder, "{what}");
        let last = step(&mut incoming, &call_inline(XID, &octets[8..]));
        assert_eq!(last, Step::Last(part(8, 12, 20)), "{what}");
    }
    let mut incoming = Incoming::new(100, 100);
    step(&mut incoming, &call_middle(XID, 12, &octets[..8]));
    let begun = call_middle(7, 4, &stream(7, 8)[..4]);
    assert_eq!(step(&mut incoming, &begun), Step::Intruder);
    assert_eq!(step(&mut incoming, &call_middle(7, 0, &[1; 4])), Step::Dropped, "said once");
    assert_eq!(step(&mut incoming, &call_inline(7, &[])), Step::Dropped);
}

#[test]
fn a_sequence_nobody_waits_for_is_dropped() {
    let octets = stream(XID, 20);
    let mut incoming = Incoming::new(100, 100);
    step(&mut incoming, &middle(12, XID, 12, &octets[..8]));
    incoming.refuse(Kind::Call, XID);
    incoming.refuse(Kind::Reply, 7);
    assert_eq!(incoming.current(), Some((Kind::Reply, XID)), "another one");
    incoming.refuse(Kind::Reply, XID);
    assert_eq!(incoming.current(), None);
    assert_eq!(step(&mut incoming, &middle(12, XID, 8, &octets[8..12])), Step::Dropped);
    assert_eq!(step(&mut incoming, &reply_inline(XID, &octets[12..])), Step::Dropped);
}

#[test]
fn a_message_that_was_refused_for_its_length_may_be_sent_again() {
    let octets = stream(XID, 40);
    let short = Step::Part(Part {
        kind: Kind::Call,
        xid: XID,
        offset: 0,
        length: 8,
        total: 40,
        is_first: true,
    });
    for parts in 0..3 {
        let mut incoming = Incoming::new(100, 100);
        assert_eq!(step(&mut incoming, &call_middle(XID, 93, &octets[..8])), TOO_LONG);
        for part in 0..parts {
            // Its next parts may begin with any octets.
            let rest = call_middle(XID, 85 - 8 * part, &octets[..8]);
            assert_eq!(step(&mut incoming, &rest), Step::Dropped);
        }
        assert_eq!(step(&mut incoming, &call_middle(XID, 32, &octets[..8])), short);
        let Step::Last(_) = step(&mut incoming, &call_inline(XID, &octets[8..])) else {
            panic!("after {parts} parts");
        };
        assert!(incoming.is_idle());
    }
    // What did not fit together is dropped to its end.
    let mut incoming = Incoming::new(100, 100);
    assert_eq!(step(&mut incoming, &call_middle(XID, 32, &octets[..8])), short);
    assert_eq!(step(&mut incoming, &call_middle(XID, 1, &octets[..8])), INVALID);
    assert_eq!(step(&mut incoming, &call_middle(XID, 32, &octets[..8])), Step::Dropped);
}

/// What is done with each message in each state: a reviewed table.
const TABLE: &str = "\
message           nothing       begun         refused
its part          Part          Part          Dropped
its end           Whole         Last          Dropped
its malformed end Whole         InvalCont     Dropped
its whole         Whole         InvalCont     Whole
its Call chunk    Whole         InvalCont     Whole
its Reply         Whole         Intruder      Whole
another's part    Part          Intruder      Part
another's whole   Whole         Intruder      Whole
properties        Whole         Intruder      Whole
a grant           Whole         Whole         Whole
an error          Whole         Whole         Whole
another version   Whole         Whole         Whole
";

#[test]
fn every_message_meets_every_state_as_the_table_says() {
    let octets = stream(XID, 20);
    // In all states but the first, twelve octets are still to come.
    let messages = |state: &str| {
        let at = if state == "nothing" { 0 } else { 8 };
        [
            ("its part", call_middle(XID, 4, &octets[at..16])),
            ("its end", call_inline(XID, &octets[8..])),
            ("its malformed end", Xdr::common(XID, 2, 9, 10).0),
            ("its whole", call_inline(XID, &octets)),
            ("its Call chunk", call_external(XID)),
            ("its Reply", reply_inline(XID, &octets)),
            ("another's part", call_middle(7, 4, &stream(7, 8)[..4])),
            ("another's whole", call_inline(7, &stream(7, 8))),
            ("properties", Xdr::common(7, 2, 9, 6).propset(&[]).0),
            ("a grant", grant()),
            ("an error", error(XID)),
            ("another version", Xdr::common(XID, 3, 9, 9).0),
        ]
    };
    let mut table = String::from("message           nothing       begun         refused\n");
    for (row, (name, _)) in messages("nothing").into_iter().enumerate() {
        let mut line = format!("{name:<18}");
        for state in ["nothing", "begun", "refused"] {
            let mut incoming = Incoming::new(100, 100);
            if state != "nothing" {
                step(&mut incoming, &call_middle(XID, 12, &octets[..8]));
            }
            if state == "refused" {
                incoming.refuse(Kind::Call, XID);
            }
            let (_, bytes) = &messages(state)[row];
            let cell = match step(&mut incoming, bytes) {
                Step::Part(_) => "Part".to_string(),
                Step::Last(_) => "Last".to_string(),
                Step::Broken(error) => format!("{error:?}"),
                other => format!("{other:?}"),
            };
            line.push_str(&format!("{cell:<14}"));
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    assert_eq!(table, TABLE, "\n{table}");
}
