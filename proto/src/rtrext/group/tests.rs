use std::fmt::Write as _;
use std::string::String;
use std::vec;

use super::*;
use crate::rtrext::{XMTREQ, XMTRESP};
use crate::v2::header::{CALL_INLINE, REPLY_INLINE};

const CALL: MessageType = MessageType::Call;
const REPLY: MessageType = MessageType::Reply;

#[test]
fn the_transition_table_is_this() {
    let states = [GroupState::Idle, GroupState::Open, GroupState::Broken];
    let events = [
        Event::Only,
        Event::First,
        Event::Next,
        Event::Last,
        Event::Stray,
        Event::Base,
        Event::Neutral,
    ];
    let mut printed = String::new();
    for state in states {
        write!(printed, "{state:?}:").unwrap();
        for event in events {
            let (next, verdict) = state.on(event);
            write!(printed, " {event:?}->{next:?}/{verdict:?}").unwrap();
        }
        printed.push('\n');
    }
    assert_eq!(
        printed,
        "Idle: Only->Idle/Complete First->Open/Take Next->Broken/Report Last->Broken/Report \
         Stray->Broken/Report Base->Idle/Pass Neutral->Idle/Pass\n\
         Open: Only->Broken/Report First->Broken/Report Next->Open/Take Last->Idle/Complete \
         Stray->Broken/Report Base->Broken/Report Neutral->Open/Pass\n\
         Broken: Only->Idle/Complete First->Open/Take Next->Broken/Drop Last->Broken/Drop \
         Stray->Broken/Drop Base->Idle/Pass Neutral->Broken/Pass\n"
    );
}

/// The first transmission of a group of `count`, with a Payload stream of 8 octets.
fn first(group: &mut Group, xid: u32, dir: MessageType, count: u32) -> Received {
    let htype = if dir == CALL { XMTREQ } else { XMTRESP };
    let first = First { xid, dir, htype, count, count_max: 4, pslen: 8 };
    group.first(first, 64, 16)
}

/// A continuation of 40 octets, 4 of them Payload stream and 8 behind that.
fn next(group: &mut Group, xid: u32, xnum: u32) -> Received {
    group.next(xid, &Continue { xnum, itype: 9, pslen: 4, rest: &[0; 12] }, 40)
}

fn base(group: &mut Group, xid: u32, dir: MessageType, htype: u32) -> Received {
    group.other(&Prefix { xid, vers: 2, credit: 0, htype }, dir, Other::Base)
}

fn id(xid: u32, dir: MessageType, seq: u32) -> TransmissionId {
    TransmissionId { xid, dir, seq }
}

fn bad(bad: TransmissionId, lead: Option<TransmissionId>, info: ReportInfo) -> Received {
    Received::Bad(Report { bad, lead, info })
}

#[test]
fn a_group_is_complete_with_its_last_transmission() {
    let mut group = Group::default();
    assert_eq!(first(&mut group, 7, CALL, 1), Received::Complete);
    assert_eq!((group.xid(), group.dir(), group.is_open()), (7, CALL, false));
    assert_eq!(first(&mut group, 8, REPLY, 3), Received::More);
    assert!(group.is_open());
    assert_eq!(next(&mut group, 8, 1), Received::More);
    assert_eq!(next(&mut group, 8, 2), Received::Complete);
    assert_eq!((group.xid(), group.dir(), group.is_open()), (8, REPLY, false));
    let part = |start, end, length| Part { start, end, length };
    assert_eq!(group.parts(), [part(48, 56, 64), part(28, 32, 40), part(28, 32, 40)]);
}

#[test]
fn grants_and_errors_leave_a_group_alone() {
    let mut group = Group::default();
    first(&mut group, 7, CALL, 2);
    let grant = Prefix { xid: 0, vers: 2, credit: 0, htype: 5 };
    assert_eq!(group.other(&grant, CALL, Other::Neutral), Received::Pass);
    assert_eq!(base(&mut group, 9, CALL, REPTERR), Received::Pass);
    assert_eq!(next(&mut group, 7, 1), Received::Complete);
    assert_eq!(base(&mut group, 9, CALL, CALL_INLINE), Received::Pass);
}

#[test]
fn a_continuation_of_nothing_is_reported_once() {
    let mut group = Group::default();
    let report = bad(id(7, CALL, 1), None, ReportInfo::BadContinuation);
    assert_eq!(next(&mut group, 7, 1), report);
    assert_eq!(next(&mut group, 7, 2), Received::Dropped);
    assert_eq!(next(&mut group, 8, 1), Received::Dropped);
    assert_eq!(first(&mut group, 7, CALL, 1), Received::Complete);
    assert_eq!(next(&mut group, 7, 1), report, "a group that is over");
}

#[test]
fn another_number_than_the_next_is_reported_with_the_last_good_one() {
    for (xnum, dir) in [(0, CALL), (1, CALL), (3, REPLY), (u32::MAX, CALL)] {
        let mut group = Group::default();
        first(&mut group, 7, dir, 4);
        next(&mut group, 7, 1);
        let info = ReportInfo::BadSequence(Expected { expect: 2, current: xnum });
        let report = bad(id(7, dir, xnum), Some(id(7, dir, 1)), info);
        assert_eq!(next(&mut group, 7, xnum), report);
        assert_eq!(next(&mut group, 7, 2), Received::Dropped, "the group is gone");
        assert!(group.parts().is_empty() && !group.is_open());
    }
}

#[test]
fn a_group_has_as_many_transmissions_as_are_taken() {
    for (count, expect) in [(0, 1), (5, 4), (u32::MAX, 4)] {
        let mut group = Group::default();
        let info = ReportInfo::BadSequence(Expected { expect, current: count });
        assert_eq!(first(&mut group, 7, CALL, count), bad(id(7, CALL, 0), None, info));
        assert_eq!(next(&mut group, 7, 1), Received::Dropped);
    }
    assert_eq!(first(&mut Group::default(), 7, CALL, 4), Received::More);
}

#[test]
fn another_xid_in_a_group_is_reported() {
    let mut group = Group::default();
    first(&mut group, 7, REPLY, 2);
    let info = ReportInfo::BadXid(Expected { expect: 7, current: 8 });
    assert_eq!(next(&mut group, 8, 1), bad(id(8, REPLY, 1), Some(id(7, REPLY, 0)), info));
    assert_eq!(next(&mut group, 7, 1), Received::Dropped);
}

#[test]
fn another_message_in_a_group_is_reported_and_dropped() {
    for (dir, htype) in [(CALL, CALL_INLINE), (REPLY, REPLY_INLINE)] {
        let mut group = Group::default();
        first(&mut group, 7, CALL, 2);
        let info = ReportInfo::BadHeaderType(Expected { expect: XMTCONT, current: htype });
        let report = bad(id(9, dir, 0), Some(id(7, CALL, 0)), info);
        assert_eq!(base(&mut group, 9, dir, htype), report);
        assert_eq!(next(&mut group, 7, 1), Received::Dropped);
    }
    for (dir, current, count) in [(CALL, XMTREQ, 1), (REPLY, XMTRESP, 3)] {
        let mut group = Group::default();
        first(&mut group, 7, CALL, 2);
        let info = ReportInfo::BadOptionalType(Expected { expect: XMTCONT, current });
        let report = bad(id(9, dir, 0), Some(id(7, CALL, 0)), info);
        assert_eq!(first(&mut group, 9, dir, count), report);
        assert_eq!(next(&mut group, 9, 1), Received::Dropped);
        assert_eq!(first(&mut group, 10, CALL, 1), Received::Complete);
    }
}

#[test]
fn a_payload_length_is_within_its_transmission_and_aligned() {
    // A first transmission holds at least the XID.
    for (pslen, rest, max) in [(0, 16, 16), (20, 16, 16), (16, 15, 12), (6, 16, 16), (4, 0, 0)] {
        let mut group = Group::default();
        let first = First { xid: 7, dir: CALL, htype: XMTREQ, count: 2, count_max: 2, pslen };
        let info = ReportInfo::BadPayloadLength(OutOfRange { value: pslen, min: 4, max });
        assert_eq!(group.first(first, 64, rest), bad(id(7, CALL, 0), None, info), "{pslen}");
        assert_eq!(next(&mut group, 7, 1), Received::Dropped);
    }
    for (pslen, taken) in [(0, true), (12, true), (13, false), (2, false), (u32::MAX, false)] {
        let mut group = Group::default();
        first(&mut group, 7, CALL, 2);
        let rest = vec![0; 14];
        let received = group.next(7, &Continue { xnum: 1, itype: 0, pslen, rest: &rest }, 42);
        let field = OutOfRange { value: pslen, min: 0, max: 12 };
        let info = ReportInfo::BadPayloadLength(field);
        let report = bad(id(7, CALL, 1), Some(id(7, CALL, 0)), info);
        assert_eq!(received, if taken { Received::Complete } else { report }, "{pslen}");
    }
}

#[test]
fn what_is_wrong_with_the_whole_is_found_in_the_last_and_leads_to_the_first() {
    let info = ReportInfo::BadNumber(OutOfRange { value: 1, min: 0, max: 0 });
    let mut group = Group::default();
    first(&mut group, 7, CALL, 1);
    assert_eq!(group.refuse(info), Report { bad: id(7, CALL, 0), lead: None, info });
    first(&mut group, 8, REPLY, 2);
    next(&mut group, 8, 1);
    let lead = Some(id(8, REPLY, 0));
    assert_eq!(group.refuse(info), Report { bad: id(8, REPLY, 1), lead, info });
    assert_eq!(next(&mut group, 8, 2), Received::Dropped);
}
