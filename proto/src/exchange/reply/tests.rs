use std::vec::Vec;

use super::*;
use crate::testing::Xdr;
use crate::verbs::Handle;
use crate::xdr::Reader;

fn segments(lengths: &[u32]) -> Vec<Segment> {
    let named = |(length, number): (&u32, u32)| Segment {
        handle: Handle(number),
        length: *length,
        offset: 1000 * u64::from(number),
    };
    lengths.iter().zip(1..).map(named).collect()
}

/// A Reply's lists: lengths of the segments in each Write chunk, and in its Reply chunk.
struct Sent<'a> {
    writes: &'a [&'a [u32]],
    reply: Option<&'a [u32]>,
    external: bool,
}

/// Checks a Reply to a Call that offered Write chunks of 4 + 4 and of 10 octets, and a Reply chunk of
/// 400 + 600.
fn check(version: Version, sent: &Sent<'_>) -> Result<Arrived, ReplyFault> {
    let (first, second) = (segments(&[4, 4]), segments(&[10]));
    let reply = segments(&[400, 600]);
    let offered = Offered { writes: &[&first, &second], reply: Some(&reply), reads: false };
    check_against(version, &offered, sent)
}

fn check_against(
    version: Version,
    offered: &Offered<'_>,
    sent: &Sent<'_>,
) -> Result<Arrived, ReplyFault> {
    // Handles and offsets that a peer returns are ignored.
    let chunk = |lengths: &[u32]| lengths.iter().map(|length| (99, *length, 7)).collect::<Vec<_>>();
    let writes: Vec<_> = sent.writes.iter().map(|lengths| chunk(lengths)).collect();
    let writes: Vec<&[_]> = writes.iter().map(|chunk| &chunk[..]).collect();
    let bytes = Xdr::default().write_list(&writes);
    let bytes = match sent.reply {
        Some(lengths) => bytes.words(&[1]).write_chunk(&chunk(lengths)).0,
        None => bytes.words(&[0]).0,
    };
    let mut r = Reader::new(&bytes);
    let writes = WriteList::decode(&mut r).unwrap();
    let reply = WriteList::decode_optional(&mut r).unwrap();
    let lists = ReplyLists { writes, reply, external: sent.external, reads: false };
    check_reply(version, offered, &lists)
}

const BOTH: [Version; 2] = [Version::One, Version::Two];
const INLINE: Sent<'_> = Sent { writes: &[&[0, 0], &[0]], reply: None, external: false };
const EXTERNAL: Sent<'_> = Sent { reply: Some(&[400, 4]), external: true, ..INLINE };

#[test]
fn an_inline_reply_says_what_was_written() {
    for version in BOTH {
        let arrived = check(version, &Sent { writes: &[&[4, 1], &[10]], ..INLINE }).unwrap();
        let chunk = |offered, written| Returned { offered, written };
        assert_eq!(*arrived.writes, [chunk(8, 5), chunk(10, 10)]);
        assert_eq!(arrived.body, Body::Inline);
    }
}

#[test]
fn an_external_reply_is_in_the_reply_chunk() {
    for version in BOTH {
        let arrived = check(version, &EXTERNAL).unwrap();
        assert_eq!(arrived.body, Body::ReplyChunk { length: 404 });
        let both = Sent { writes: &[&[4, 0], &[0]], ..EXTERNAL };
        assert_eq!(check(version, &both).unwrap().writes[0].written, 4);
    }
}

#[test]
fn write_chunks_come_back_in_number_segments_order_and_length() {
    use ReturnFault::{Count, Gap, TooLong};
    let cases: [(&[&[u32]], ReplyFault); 8] = [
        (&[&[0, 0]], ReplyFault::WriteCount),
        (&[&[0, 0], &[0], &[]], ReplyFault::WriteCount),
        (&[&[0], &[0]], ReplyFault::Write(Count)),
        (&[&[0, 0, 0], &[0]], ReplyFault::Write(Count)),
        (&[&[0, 0], &[]], ReplyFault::Write(Count)),
        (&[&[5, 0], &[0]], ReplyFault::Write(TooLong)),
        (&[&[3, 1], &[0]], ReplyFault::Write(Gap)),
        (&[&[0, 0], &[11]], ReplyFault::Write(TooLong)),
    ];
    for version in BOTH {
        for (writes, fault) in cases {
            assert_eq!(check(version, &Sent { writes, ..INLINE }), Err(fault));
            assert_eq!(check(version, &Sent { writes, ..EXTERNAL }), Err(fault));
        }
    }
}

#[test]
fn an_empty_write_list_is_unused_chunks_on_version_1_only() {
    let none = Sent { writes: &[], ..INLINE };
    assert_eq!(check(Version::Two, &none), Err(ReplyFault::WriteCount));
    let arrived = check(Version::One, &none).unwrap();
    assert!(arrived.writes.iter().map(|chunk| chunk.written).eq([0, 0]));
}

#[test]
fn a_reply_chunk_comes_back_as_offered() {
    use ReturnFault::{Count, Gap, TooLong};
    for version in BOTH {
        for (lengths, fault) in [
            (&[400][..], ReplyFault::Reply(Count)),
            (&[400, 0, 0], ReplyFault::Reply(Count)),
            (&[401, 0], ReplyFault::Reply(TooLong)),
            (&[396, 4], ReplyFault::Reply(Gap)),
            (&[0, 0], ReplyFault::ReplyLength),
        ] {
            let sent = Sent { reply: Some(lengths), ..EXTERNAL };
            assert_eq!(check(version, &sent), Err(fault));
        }
        let absent = Sent { reply: None, ..EXTERNAL };
        assert_eq!(check(version, &absent), Err(ReplyFault::ReplyLength));
    }
    // Version 2: a body chunk has its padding.
    let odd = Sent { reply: Some(&[400, 5]), ..EXTERNAL };
    assert_eq!(check(Version::Two, &odd), Err(ReplyFault::ReplyLength));
    assert_eq!(check(Version::One, &odd).map(|a| a.body), Ok(Body::ReplyChunk { length: 405 }));
}

#[test]
fn an_unused_reply_chunk_may_come_back_with_an_inline_reply() {
    for version in BOTH {
        let unused = Sent { reply: Some(&[0, 0]), ..INLINE };
        assert_eq!(check(version, &unused).map(|a| a.body), Ok(Body::Inline));
        let used = Sent { reply: Some(&[4, 0]), ..INLINE };
        assert_eq!(check(version, &used), Err(ReplyFault::TwoBodies));
    }
}

#[test]
fn what_was_not_offered_cannot_be_used() {
    let offered = Offered::default();
    for version in BOTH {
        let check = |writes: &[&[u32]], reply, external| {
            check_against(version, &offered, &Sent { writes, reply, external })
        };
        assert!(check(&[], None, false).is_ok());
        assert_eq!(check(&[&[1]], None, false), Err(ReplyFault::WriteCount));
        assert_eq!(check(&[&[]], None, false), Err(ReplyFault::WriteCount));
        assert_eq!(check(&[], Some(&[400]), true), Err(ReplyFault::NoReplyChunk));
        assert_eq!(check(&[], None, true), Err(ReplyFault::NoReplyChunk));
        assert_eq!(check(&[], Some(&[400]), false), Err(ReplyFault::NoReplyChunk));
    }
}

#[test]
fn a_reply_has_no_read_list() {
    let lists = ReplyLists { reads: true, ..ReplyLists::default() };
    for version in BOTH {
        let checked = check_reply(version, &Offered::default(), &lists);
        assert_eq!(checked, Err(ReplyFault::ReadList));
    }
}

#[test]
fn a_reply_is_read_where_that_is_agreed_and_never_in_the_reply_chunk_as_well() {
    let written = Xdr::default().words(&[1]).write_chunk(&[(99, 8, 7)]).0;
    let reply = WriteList::decode_optional(&mut Reader::new(&written)).unwrap();
    let offer = segments(&[64]);
    let offered = Offered { reply: Some(&offer), reads: true, ..Offered::default() };
    for external in [true, false] {
        let lists = ReplyLists { reads: true, external, ..ReplyLists::default() };
        let arrived = check_reply(Version::One, &offered, &lists).unwrap();
        assert_eq!((arrived.body, arrived.writes.len()), (Body::Read, 0));
        let both = ReplyLists { reply, ..lists };
        assert_eq!(check_reply(Version::One, &offered, &both), Err(ReplyFault::TwoBodies));
    }
}

#[test]
fn every_fault_names_its_rule() {
    let faults = [
        ReplyFault::WriteCount,
        ReplyFault::Write(ReturnFault::Gap),
        ReplyFault::Reply(ReturnFault::Count),
        ReplyFault::NoReplyChunk,
        ReplyFault::ReplyLength,
        ReplyFault::TwoBodies,
        ReplyFault::ReadList,
    ];
    let rules: std::collections::BTreeSet<_> = faults.iter().map(|fault| fault.rule()).collect();
    assert_eq!(rules.len(), faults.len());
}
