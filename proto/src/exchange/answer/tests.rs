use std::vec::Vec;

use super::*;
use crate::testing::Xdr;
use crate::v2::properties::Properties;
use crate::xdr::Reader;

const V1: Terms = Terms::version_one(1024, 1024);

fn v2() -> Terms {
    Terms::version_two(4096, 4096, &Properties::default())
}

/// Chunks of one segment each, or of none.
fn offer(writes: &[u32], reply: Option<u32>) -> Offer {
    let chunk = |length: &u32| OfferedChunk { length: *length, segments: u32::from(*length > 0) };
    Offer {
        writes: Few::collect(writes.iter().map(chunk)).unwrap(),
        reply: reply.as_ref().map(chunk),
    }
}

/// A Reply of 40 octets and these items, each behind its length word, in one stream.
fn items(lengths: &[Option<usize>]) -> (Vec<Option<DataItem>>, u32) {
    let mut at = 40;
    let mut items = Vec::new();
    for length in lengths {
        items.push(length.map(|length| DataItem::opaque(at, length)));
        at += length.map_or(4, |length| 4 + length.next_multiple_of(4));
    }
    (items, u32::try_from(at).unwrap())
}

fn plan(terms: &Terms, offer: &Offer, lengths: &[Option<usize>]) -> Result<ReplyPlan, Shortage> {
    let (items, length) = items(lengths);
    plan_reply(terms, offer, &ReplyShape { length, items: &items, may_reduce: true })
}

fn written(plan: &ReplyPlan) -> Vec<(bool, u32)> {
    plan.writes.iter().map(|used| (used.reduces, used.length)).collect()
}

#[test]
fn a_write_chunk_takes_its_result_without_the_padding() {
    for terms in [V1, v2()] {
        let planned = plan(&terms, &offer(&[8192], None), &[Some(5001)]).unwrap();
        assert_eq!((planned.format, planned.rest), (Format::Simple, 44));
        assert_eq!(written(&planned), [(true, 5001)]);
        assert!(planned.reduces(0) && !planned.reduces(1));
    }
}

#[test]
fn every_chunk_is_returned_the_unused_ones_with_nothing() {
    let offered = offer(&[100, 0, 100, 100, 100], None);
    let lengths = [None, Some(20), Some(30), Some(0)];
    let planned = plan(&v2(), &offered, &lengths).unwrap();
    // Absent; a chunk without segments; reduced; reduced, of no octets; no such result.
    let expected = [(false, 0), (false, 0), (true, 30), (true, 0), (false, 0)];
    assert_eq!(written(&planned), expected);
    assert_eq!(planned.rest, 40 + 4 + 24 + 4 + 4);
}

#[test]
fn a_result_without_a_chunk_comes_inline() {
    let planned = plan(&v2(), &offer(&[100], None), &[Some(90), Some(50)]).unwrap();
    assert_eq!((written(&planned), planned.rest), ([(true, 90)].to_vec(), 40 + 4 + 4 + 52));
    let planned = plan(&v2(), &offer(&[], None), &[Some(90)]).unwrap();
    assert_eq!((planned.rest, planned.format), (40 + 4 + 92, Format::Simple));
}

#[test]
fn what_is_longer_than_the_threshold_goes_into_the_reply_chunk() {
    // Prefix and an empty Write list.
    for (length, format) in [(4096 - 20 - 44, Format::Simple), (4096 - 20 - 40, Format::Special)] {
        let planned = plan(&v2(), &offer(&[], Some(9000)), &[Some(length)]).unwrap();
        assert_eq!(planned.format, format);
    }
    // A Reply chunk is used even where the Reply could be continued.
    let terms = Terms { reply_messages_max: 9, ..v2() };
    let planned = plan(&terms, &offer(&[], Some(9000)), &[Some(8000)]).unwrap();
    assert_eq!((planned.format, planned.rest), (Format::Special, 8044));
}

#[test]
fn the_reply_chunk_takes_what_the_write_chunks_leave() {
    let planned = plan(&v2(), &offer(&[9000], Some(5000)), &[Some(9000), Some(4900)]).unwrap();
    assert_eq!((planned.format, planned.rest), (Format::Special, 40 + 4 + 4 + 4900));
    assert_eq!(written(&planned), [(true, 9000)]);
}

#[test]
fn a_reply_that_fits_no_chunk_is_continued() {
    let terms = Terms { reply_messages_max: 3, ..v2() };
    let small = offer(&[], Some(4000));
    let planned = plan(&terms, &small, &[Some(8000)]).unwrap();
    assert_eq!(planned.format, Format::Continued { messages: 2 });
    let planned = plan(&terms, &offer(&[100], None), &[Some(8000)]).unwrap();
    assert_eq!((planned.format, planned.reduces(0)), (Format::Continued { messages: 2 }, false));
    let shortage = plan(&terms, &small, &[Some(13_000)]);
    assert_eq!(shortage, Err(Shortage::Reply { needed: 13_044 }));
}

#[test]
fn what_is_too_short_is_named_with_what_it_needs() {
    let lengths = [Some(5001), Some(6000), Some(7000)];
    let shortage = |writes: &[u32], reply| plan(&v2(), &offer(writes, reply), &lengths).err();
    assert_eq!(shortage(&[5001, 5999, 1], None), Some(Shortage::Write { index: 2, needed: 6000 }));
    assert_eq!(shortage(&[5000, 1, 1], None), Some(Shortage::Write { index: 1, needed: 5001 }));
    assert_eq!(shortage(&[5001, 6000, 7000], None), None);
    // No chunk is too short, but one is lacking, and the rest of the Reply does not fit.
    let needed = 40 + 3 * 4 + 7000;
    assert_eq!(shortage(&[5001, 6000], None), Some(Shortage::Reply { needed }));
    assert_eq!(shortage(&[5001, 6000], Some(needed - 4)), Some(Shortage::Reply { needed }));
    assert_eq!(shortage(&[5001, 6000], Some(needed)), None);
    // A Reply chunk has room for a result that its Write chunk could not take.
    assert_eq!(shortage(&[5001, 6000, 1], Some(needed)), None);
}

#[test]
fn a_shortage_is_reported_with_index_and_length() {
    let write = Shortage::Write { index: 2, needed: 7 }.report();
    assert_eq!(write, ErrorBody::WriteResource { chunk_index: 2, length_needed: 7 });
    let reply = Shortage::Reply { needed: 7 }.report();
    assert_eq!(reply, ErrorBody::ReplyResource { length_needed: 7 });
}

#[test]
fn version_1_always_uses_a_reply_chunk_that_fits() {
    let planned = plan(&V1, &offer(&[], Some(2000)), &[Some(8)]).unwrap();
    assert_eq!((planned.format, planned.rest), (Format::Special, 52));
    let planned = plan(&V1, &offer(&[], Some(20)), &[Some(8)]).unwrap();
    assert_eq!(planned.format, Format::Simple, "too short, but the Reply is too");
    let shortage = plan(&V1, &offer(&[], Some(20)), &[Some(2000)]);
    assert_eq!(shortage, Err(Shortage::Reply { needed: 2044 }));
    let never = Terms { reply_messages_max: 9, ..V1 };
    let shortage = plan(&never, &offer(&[], None), &[Some(2000)]);
    assert_eq!(shortage, Err(Shortage::Reply { needed: 2044 }), "nothing is continued");
}

#[test]
fn the_returned_lists_count_against_the_threshold() {
    // Each chunk of 20 segments takes 328 octets of the header.
    let chunk = OfferedChunk { length: 10, segments: 20 };
    let offer = |count| Offer {
        writes: Few::collect((0..count).map(|_| chunk)).unwrap(),
        reply: Some(OfferedChunk { length: 9000, segments: 1 }),
    };
    assert_eq!(plan(&v2(), &offer(11), &[]).unwrap().format, Format::Simple);
    let terms = Terms { reply_threshold: 16 + 4 + 11 * 328 + 39, ..v2() };
    assert_eq!(plan(&terms, &offer(11), &[]).unwrap().format, Format::Special);
    assert_eq!(plan(&terms, &offer(12), &[]), Err(Shortage::Reply { needed: 40 }));
}

#[test]
fn nothing_is_reduced_under_integrity_or_privacy() {
    let (items, length) = items(&[Some(5000)]);
    let shape = ReplyShape { length, items: &items, may_reduce: false };
    let planned = plan_reply(&v2(), &offer(&[9000], Some(9000)), &shape).unwrap();
    assert_eq!((planned.format, planned.rest), (Format::Special, 5044));
    assert_eq!(written(&planned), [(false, 0)]);
    let shortage = plan_reply(&v2(), &offer(&[1], None), &shape);
    assert_eq!(shortage, Err(Shortage::Reply { needed: 5044 }), "no Write chunk would help");
}

#[test]
fn an_offer_is_read_from_the_chunk_lists() {
    let bytes = Xdr::default()
        .write_list(&[&[(1, 10, 0), (2, 0, 0), (3, 30, 0)], &[]])
        .words(&[1])
        .write_chunk(&[(4, 40, 0)])
        .0;
    let mut r = Reader::new(&bytes);
    let writes = WriteList::decode(&mut r).unwrap();
    let reply = WriteList::decode_optional(&mut r).unwrap();
    let offer = Offer::of(&writes, reply).unwrap();
    let chunk = |length, segments| OfferedChunk { length, segments };
    assert_eq!(*offer.writes, [chunk(40, 3), chunk(0, 0)]);
    assert_eq!(offer.reply, Some(chunk(40, 1)));
    let many = Xdr::default().write_list(&[&[][..]; 17]).0;
    let writes = WriteList::decode(&mut Reader::new(&many)).unwrap();
    assert_eq!(Offer::of(&writes, None), None);
}
