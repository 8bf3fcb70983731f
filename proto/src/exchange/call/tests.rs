use std::vec;
use std::vec::Vec;

use super::*;
use crate::chunk::Kind;
use crate::rpc::{Eligible, Procedure};
use crate::v2::properties::Properties;

const V1: Terms = Terms::version_one(1024, 1024);

fn v2() -> Terms {
    Terms::version_two(4096, 4096, &Properties::default())
}

/// A procedure with any number of items of up to 64 MiB each way.
fn any() -> Procedure {
    let any = Eligible { kind: Kind::Opaque, length_max: 64 << 20, count_max: u32::MAX };
    Procedure::new("any").argument(any).result(any).idempotent()
}

/// A Call of 100 octets with short results and nothing to reduce.
const fn shape(procedure: &Procedure) -> CallShape<'_> {
    CallShape {
        procedure,
        length: 100,
        arguments_at: 40,
        items: &[],
        results: &[],
        reply_max: 100,
        reply_limit: 1 << 20,
        may_reduce: true,
    }
}

/// An opaque of this length as the last argument of a stream, and the length of that stream.
fn last(length: usize) -> ([DataItem; 1], u32) {
    let items = [DataItem::opaque(96, length)];
    (items, u32::try_from(100 + length.next_multiple_of(4)).unwrap())
}

fn lengths(plan: &CallPlan) -> Vec<(u32, u32)> {
    plan.reads.iter().map(|read| (read.position, read.length)).collect()
}

#[test]
fn a_short_call_has_no_chunks() {
    let procedure = any();
    for terms in [V1, v2()] {
        let plan = plan_call(&terms, &shape(&procedure)).unwrap();
        assert_eq!(
            (plan.format, plan.inline, plan.call, plan.reply),
            (Format::Simple, 100, None, None)
        );
        assert!(plan.reads.is_empty() && plan.writes.is_empty());
    }
}

#[test]
fn what_goes_unchunked_is_what_the_plan_gives_no_chunk() {
    let procedure = any();
    for terms in [V1, v2(), Terms { call_threshold: 200, reply_threshold: 150, ..v2() }] {
        let [call, reply] = [terms.call_threshold, terms.reply_threshold].map(i64::from);
        for (over, over_reply) in (-40..8).flat_map(|a| (-40..8).map(move |b| (a, b))) {
            let length = u32::try_from(call + over * 4).unwrap();
            let reply_max = u32::try_from(reply + over_reply).unwrap();
            let shape = CallShape { length, reply_max, ..shape(&procedure) };
            let plan = plan_call(&terms, &shape).unwrap();
            let unchunked = plan.format == Format::Simple && plan.reply.is_none();
            let holds = UnchunkedMax::of(&terms).holds(length as usize, reply_max.into());
            assert_eq!(holds, unchunked, "{length} {reply_max}");
        }
    }
}

#[test]
fn an_argument_worth_it_is_reduced_without_its_padding() {
    let procedure = any();
    for terms in [V1, v2()] {
        let (items, length) = last(5001);
        let plan =
            plan_call(&terms, &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
        assert_eq!((plan.format, plan.inline), (Format::Simple, 100));
        assert_eq!(lengths(&plan), [(100, 5001)]);
    }
}

#[test]
fn an_argument_not_worth_it_is_reduced_only_if_the_call_does_not_fit() {
    let procedure = any();
    let terms = Terms { reduce_min: 4000, ..v2() };
    let (items, length) = last(3900);
    let plan =
        plan_call(&terms, &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
    assert_eq!((plan.inline, plan.reads.len()), (4000, 0));
    let (items, length) = last(3992);
    let plan =
        plan_call(&terms, &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
    assert_eq!((plan.inline, lengths(&plan)), (100, vec![(100, 3992)]));
}

#[test]
fn the_longest_arguments_go_first_where_not_all_can() {
    let procedure = any();
    let items =
        [DataItem::opaque(40, 200), DataItem::opaque(244, 3000), DataItem::opaque(3248, 900)];
    let asked = CallShape { items: &items, length: 4152, ..shape(&procedure) };
    let plan = |terms| lengths(&plan_call(&terms, &asked).unwrap());
    assert_eq!(plan(v2()), [(44, 200), (248, 3000), (3252, 900)], "in stream order");
    assert_eq!(plan(Terms { read_chunks_max: 2, ..v2() }), [(248, 3000), (3252, 900)]);
    assert_eq!(plan(Terms { read_chunks_max: 1, ..v2() }), [(248, 3000)]);
    let fine = Terms { segment_size_max: 1000, segments_max: 3, ..v2() };
    assert_eq!(plan(fine), [(248, 3000)], "three segments");
    let fine = Terms { segment_size_max: 1000, chunk_segments_max: 2, ..v2() };
    assert_eq!(plan(fine), [(44, 200), (3252, 900)], "no chunk of three");
}

#[test]
fn what_saves_nothing_is_not_reduced() {
    let procedure = any();
    let (items, length) = last(24);
    let plan = plan_call(&v2(), &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
    assert!(plan.reads.is_empty(), "its entry in the Read list is as long");
    let (items, length) = last(25);
    let plan = plan_call(&v2(), &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
    assert_eq!(plan.reads.len(), 1);
}

#[test]
fn the_threshold_counts_the_transport_header() {
    let procedure = any();
    // Prefix, inv_handle, three empty lists.
    let header = 16 + 4 + 12;
    for (length, format) in [(4096 - header, Format::Simple), (4100 - header, Format::Special)] {
        let plan = plan_call(&v2(), &CallShape { length, ..shape(&procedure) }).unwrap();
        assert_eq!(plan.format, format);
        let v1 = CallShape { length: length - 3072 + 4, ..shape(&procedure) };
        assert_eq!(plan_call(&V1, &v1).unwrap().format, format, "28 octets on version 1");
    }
}

#[test]
fn a_long_call_is_continued_as_far_as_allowed_and_special_beyond() {
    let procedure = any();
    let terms = Terms { call_messages_max: 3, ..v2() };
    // The last message has 4096 - 32 octets of payload, the others 4096 - 20.
    for (length, format) in [
        (4064, Format::Simple),
        (4068, Format::Continued { messages: 2 }),
        (4064 + 4076, Format::Continued { messages: 2 }),
        (4064 + 2 * 4076, Format::Continued { messages: 3 }),
        (4068 + 2 * 4076, Format::Special),
    ] {
        let plan = plan_call(&terms, &CallShape { length, ..shape(&procedure) }).unwrap();
        let (inline, call) =
            if format == Format::Special { (0, Some(length)) } else { (length, None) };
        assert_eq!((plan.format, plan.inline, plan.call), (format, inline, call));
    }
}

#[test]
fn a_continued_call_is_reduced_like_any_other() {
    let procedure = any();
    let terms = Terms { call_messages_max: 2, ..v2() };
    // 5000 octets beside the argument are too many for one message.
    let items = [DataItem::opaque(1000, 8001)];
    let asked = CallShape { items: &items, length: 5000 + 8004, ..shape(&procedure) };
    let plan = plan_call(&terms, &asked).unwrap();
    assert_eq!((plan.format, plan.inline), (Format::Continued { messages: 2 }, 5000));
    assert_eq!(lengths(&plan), [(1004, 8001)]);
}

#[test]
fn a_special_call_moves_what_is_left() {
    let procedure = any();
    let items = [DataItem::opaque(8000, 5001)];
    let asked = CallShape { items: &items, length: 13_012, ..shape(&procedure) };
    let plan = plan_call(&v2(), &asked).unwrap();
    assert_eq!((plan.format, plan.call, plan.inline), (Format::Special, Some(8008), 0));
    assert_eq!(lengths(&plan), [(8004, 5001)]);
    // Version 1: a Read chunk or a Call chunk, never both.
    let plan = plan_call(&V1, &asked).unwrap();
    assert_eq!((plan.format, plan.call, plan.reads.len()), (Format::Special, Some(13_012), 0));
}

#[test]
fn a_special_call_goes_whole_where_its_parts_take_too_many_segments() {
    let procedure = any();
    let terms = Terms { segment_size_max: 1000, segments_max: 4, call_threshold: 1024, ..v2() };
    let items = [DataItem::opaque(40, 1004)];
    let asked = CallShape { items: &items, length: 4000, ..shape(&procedure) };
    let plan = plan_call(&terms, &asked).unwrap();
    // Two segments for the argument and three for the rest would be one too many.
    assert_eq!((plan.call, plan.reads.len()), (Some(4000), 0));
    let asked = CallShape { length: 3000, ..asked };
    let plan = plan_call(&terms, &asked).unwrap();
    assert_eq!((plan.call, plan.reads.len()), (Some(1996), 1));
}

#[test]
fn a_call_that_fits_nothing_is_refused() {
    let procedure = any();
    let terms = Terms { segment_size_max: 1000, segments_max: 4, ..v2() };
    let asked = |length| plan_call(&terms, &CallShape { length, ..shape(&procedure) });
    assert!(asked(3900).is_ok());
    let limit = Terms { call_threshold: 1024, ..terms };
    let special = |length| plan_call(&limit, &CallShape { length, ..shape(&procedure) });
    assert_eq!(special(4000).unwrap().call, Some(4000));
    assert_eq!(special(4004), Err(CallFault::CallTooLong));
    let no_header = Terms { call_threshold: 40, ..v2() };
    let tiny = plan_call(&no_header, &shape(&procedure));
    assert_eq!(tiny, Err(CallFault::CallTooLong), "not even the header of a Special Call");
}

#[test]
fn a_result_gets_a_write_chunk_as_long_as_it_can_get() {
    let procedure = any();
    let asked = CallShape { results: &[5001], reply_max: 5104, ..shape(&procedure) };
    let plan = plan_call(&v2(), &asked).unwrap();
    assert_eq!((&*plan.writes, plan.reply), (&[5001][..], None), "version 2: no room for padding");
    let plan = plan_call(&V1, &asked).unwrap();
    assert_eq!((&*plan.writes, plan.reply), (&[5004][..], None), "version 1: rounded up");
}

#[test]
fn a_result_keeps_its_number_when_one_before_it_comes_inline() {
    let procedure = any();
    let terms = Terms { reduce_min: 1000, ..v2() };
    let results = [10, 2000, 0, 3000, 20];
    let asked = CallShape { results: &results, reply_max: 5200, ..shape(&procedure) };
    assert_eq!(*plan_call(&terms, &asked).unwrap().writes, [0, 2000, 0, 3000]);
    // Version 1 knows no chunk without segments, so its list ends before the first of them.
    let several = Terms { write_chunks_max: 9, reply_threshold: 4096, reduce_min: 1000, ..V1 };
    let results = [2000, 0, 3000];
    let asked = CallShape { results: &results, reply_max: 5200, ..shape(&procedure) };
    assert_eq!(*plan_call(&several, &asked).unwrap().writes, [2000]);
}

#[test]
fn a_longer_reply_gets_a_reply_chunk() {
    let procedure = any();
    let provided = |terms: &Terms, results: &[u32], reply_max| {
        let plan =
            plan_call(terms, &CallShape { results, reply_max, ..shape(&procedure) }).unwrap();
        (plan.writes.to_vec(), plan.reply)
    };
    // Prefix and an empty Write list.
    assert_eq!(provided(&v2(), &[], 4076), (vec![], None));
    assert_eq!(provided(&v2(), &[], 4077), (vec![], Some(4080)), "with its padding");
    assert_eq!(provided(&v2(), &[3000], 8000), (vec![3000], Some(5000)));
    // 28 octets of header on version 1; and a Reply chunk takes the results as well.
    assert_eq!(provided(&V1, &[], 996), (vec![], None));
    assert_eq!(provided(&V1, &[], 1000), (vec![], Some(1000)));
    assert_eq!(provided(&V1, &[3000], 8000), (vec![], Some(8000)));
    // A Reply that can be continued needs no Reply chunk.
    let continued = Terms { reply_messages_max: 2, ..v2() };
    assert_eq!(provided(&continued, &[], 4076 + 4076), (vec![], None));
    assert_eq!(provided(&continued, &[], 4076 + 4080), (vec![], Some(8156)));
    assert_eq!(provided(&continued, &[3000], 8000), (vec![3000], None));
}

#[test]
fn a_reply_that_fits_nothing_is_refused() {
    let procedure = any();
    let terms = Terms { segment_size_max: 1000, segments_max: 4, ..v2() };
    let asked = |reply_max| plan_call(&terms, &CallShape { reply_max, ..shape(&procedure) });
    assert_eq!(asked(4076).unwrap().reply, None);
    assert_eq!(asked(4080), Err(CallFault::ReplyTooLong));
    assert_eq!(asked(u32::MAX), Err(CallFault::ReplyTooLong));
}

#[test]
fn a_call_only_call_has_no_chunks() {
    let procedure = any().call_only();
    let (items, length) = last(2000);
    let asked =
        CallShape { items: &items, length, results: &[9000], reply_max: 9000, ..shape(&procedure) };
    let plan = plan_call(&v2(), &asked).unwrap();
    assert_eq!((plan.format, plan.reads.len()), (Format::Simple, 0));
    assert!(plan.writes.is_empty() && plan.reply.is_none());
    let (items, length) = last(5000);
    let long = CallShape { items: &items, length, ..asked };
    assert_eq!(plan_call(&v2(), &long), Err(CallFault::CallTooLong));
    let continued = Terms { call_messages_max: 2, ..v2() };
    let plan = plan_call(&continued, &long).unwrap();
    assert_eq!((plan.format, plan.call), (Format::Continued { messages: 2 }, None));
}

#[test]
fn nothing_is_reduced_that_the_binding_or_the_credential_forbids() {
    let procedure = Procedure::new("one").argument(Eligible::opaque(6000));
    let (items, length) = last(5000);
    let asked = CallShape { items: &items, length, ..shape(&procedure) };
    assert_eq!(plan_call(&v2(), &asked).unwrap().reads.len(), 1);
    let other = CallShape { procedure: &Procedure::new("none"), ..asked };
    assert_eq!(plan_call(&v2(), &other), Err(CallFault::NotEligible));
    let results = CallShape { results: &[1], ..asked };
    assert_eq!(plan_call(&v2(), &results), Err(CallFault::NotEligible));
    let header = CallShape { arguments_at: 100, ..asked };
    assert_eq!(plan_call(&v2(), &header), Err(CallFault::NotEligible), "part of the RPC header");
}

#[test]
fn under_integrity_or_privacy_messages_are_moved_whole_or_not_at_all() {
    let procedure = any();
    let (items, length) = last(5000);
    let asked =
        CallShape { items: &items, length, results: &[9000], reply_max: 9100, ..shape(&procedure) };
    let sealed = CallShape { may_reduce: false, ..asked };
    for terms in [V1, v2()] {
        let plan = plan_call(&terms, &sealed).unwrap();
        assert!(plan.reads.is_empty() && plan.writes.is_empty());
        let whole = (Format::Special, Some(5100), Some(9100));
        assert_eq!((plan.format, plan.call, plan.reply), whole, "body chunks are allowed");
    }
}

#[test]
fn too_many_items_are_refused() {
    let procedure = any();
    let items: Vec<_> = (0..=CHUNKS_MAX).map(|n| DataItem::opaque(40 + 4 * n, 0)).collect();
    let asked = CallShape { items: &items, length: 200, ..shape(&procedure) };
    assert_eq!(plan_call(&v2(), &asked), Err(CallFault::TooManyItems));
    let results = [1; CHUNKS_MAX + 1];
    let asked = CallShape { results: &results, ..shape(&procedure) };
    assert_eq!(plan_call(&v2(), &asked), Err(CallFault::TooManyItems));
}

#[test]
fn chunks_are_divided_by_what_the_peer_takes() {
    let procedure = any();
    let terms = Terms { segment_size_max: 4096, ..v2() };
    let (items, length) = last(10_000);
    let plan =
        plan_call(&terms, &CallShape { items: &items, length, ..shape(&procedure) }).unwrap();
    let segments: Vec<u32> = plan.split(Handle(1), 0, 10_000).map(|s| s.length).collect();
    assert_eq!(segments, [4096, 4096, 1808]);
}

#[test]
fn until_the_peer_has_said_more_a_chunk_has_16_segments_of_1_mib() {
    // P7
    let procedure = any();
    let planned = |item: usize| {
        let (items, length) = last(item);
        plan_call(&v2(), &CallShape { items: &items, length, ..shape(&procedure) })
    };
    let plan = planned(16 << 20).unwrap();
    let segments: Vec<u32> = plan.split(Handle(1), 0, 16 << 20).map(|s| s.length).collect();
    assert_eq!(segments, [1 << 20; 16]);
    assert_eq!(planned((16 << 20) + 4).unwrap_err(), CallFault::CallTooLong);
}
