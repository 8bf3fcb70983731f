use std::vec;
use std::vec::Vec;

use super::*;
use crate::chunk::{DataItem, Kind};
use crate::exchange::{Format, plan_call};
use crate::rpc::{Eligible, Procedure};
use crate::testing::Rng;
use crate::v2::properties::Properties;

fn terms() -> Terms {
    Terms::version_two(4096, 4096, &Properties::default())
}

fn any(length_max: usize) -> Procedure {
    let any = Eligible { kind: Kind::Opaque, length_max, count_max: 8 };
    Procedure::new("any").argument(any).result(any).idempotent()
}

/// A Call with two long arguments and two results of at most 5,000 octets.
fn shape<'a>(procedure: &'a Procedure, items: &'a [DataItem]) -> CallShape<'a> {
    CallShape {
        procedure,
        length: 10_048,
        arguments_at: 40,
        items,
        results: &[5000, 5000],
        reply_max: 10_100,
        reply_limit: 20_000,
        may_reduce: true,
    }
}

const ITEMS: [DataItem; 2] = [DataItem::opaque(40, 5000), DataItem::opaque(5044, 5000)];

/// Plans the Call, and again after the error.
fn after(procedure: &Procedure, error: ErrorBody) -> Result<CallPlan, Ended> {
    let shape = shape(procedure, &ITEMS);
    let plan = plan_call(&terms(), &shape).unwrap();
    assert_eq!((plan.reads.len(), plan.writes.len(), plan.reply), (2, 2, None));
    retry(&terms(), &shape, &plan, &error)
}

#[test]
fn fewer_read_chunks_leave_more_in_the_stream() {
    let plan = after(&any(9000), ErrorBody::ReadChunks { max: 1 }).unwrap();
    assert_eq!((plan.reads.len(), plan.format, plan.call), (1, Format::Special, Some(5048)));
    let plan = after(&any(9000), ErrorBody::ReadChunks { max: 0 }).unwrap();
    assert_eq!((plan.reads.len(), plan.format, plan.call), (0, Format::Special, Some(10_048)));
    assert_eq!(after(&any(9000), ErrorBody::ReadChunks { max: 2 }), Err(Ended::Nonsense));
    let continued = Terms { call_messages_max: 4, ..terms() };
    let procedure = any(9000);
    let shape = shape(&procedure, &ITEMS);
    let plan = plan_call(&continued, &shape).unwrap();
    let again = retry(&continued, &shape, &plan, &ErrorBody::ReadChunks { max: 0 }).unwrap();
    assert_eq!((again.format, again.inline), (Format::Continued { messages: 3 }, 10_048));
}

#[test]
fn fewer_write_chunks_need_a_longer_reply_chunk() {
    let plan = after(&any(9000), ErrorBody::WriteChunks { max: 1 }).unwrap();
    assert_eq!((&*plan.writes, plan.reply), (&[5000][..], Some(5100)));
    let plan = after(&any(9000), ErrorBody::WriteChunks { max: 0 }).unwrap();
    assert_eq!((&*plan.writes, plan.reply), (&[][..], Some(10_100)));
    assert_eq!(after(&any(9000), ErrorBody::WriteChunks { max: 2 }), Err(Ended::Nonsense));
}

#[test]
fn fewer_segments_mean_shorter_chunks() {
    let procedure = any(9000);
    let shape = shape(&procedure, &ITEMS);
    let fine =
        Terms { segment_size_max: 1000, segments_max: 64, chunk_segments_max: 64, ..terms() };
    let fine = Terms { call_messages_max: 4, reply_messages_max: 4, ..fine };
    let plan = plan_call(&fine, &shape).unwrap();
    assert_eq!((plan.reads.len(), plan.segments_max()), (2, 5));
    let again = retry(&fine, &shape, &plan, &ErrorBody::Segments { max: 4 }).unwrap();
    assert_eq!((again.reads.len(), again.writes.len(), again.reply), (0, 0, None));
    assert_eq!(again.format, Format::Continued { messages: 3 });
    let nonsense = retry(&fine, &shape, &plan, &ErrorBody::Segments { max: 5 });
    assert_eq!(nonsense, Err(Ended::Nonsense));
    let alone = Terms { call_messages_max: 1, ..fine };
    let plan = plan_call(&alone, &shape).unwrap();
    let none = retry(&alone, &shape, &plan, &ErrorBody::Segments { max: 4 });
    assert!(matches!(none, Err(Ended::NoPlan(_))), "{none:?}");
}

#[test]
fn a_short_write_chunk_is_made_as_long_as_it_needs_to_be() {
    let error =
        |chunk_index, length_needed| ErrorBody::WriteResource { chunk_index, length_needed };
    let plan = after(&any(9000), error(2, 9000)).unwrap();
    assert_eq!(*plan.writes, [5000, 9000]);
    assert_eq!(after(&any(9000), error(2, 9001)), Err(Ended::TooMuch), "the binding says");
    assert_eq!(after(&any(9000), error(3, 6000)), Err(Ended::Nonsense), "no such chunk");
    for length in [1, 4999, 5000] {
        assert_eq!(after(&any(9000), error(2, length)), Err(Ended::Nonsense), "it was that long");
    }
}

#[test]
fn a_demand_that_changes_nothing_ends_the_call() {
    let procedure = any(9000);
    let shape = CallShape { results: &[10, 5000], reply_max: 5100, ..shape(&procedure, &ITEMS) };
    let terms = Terms { reduce_min: 1000, ..terms() };
    let plan = plan_call(&terms, &shape).unwrap();
    assert_eq!(*plan.writes, [0, 5000]);
    // The first result comes inline, and does so whatever its chunk is said to need.
    for length_needed in [5, 20] {
        let error = ErrorBody::WriteResource { chunk_index: 1, length_needed };
        assert_eq!(retry(&terms, &shape, &plan, &error), Err(Ended::Nonsense));
    }
}

#[test]
fn a_short_reply_chunk_is_made_as_long_as_it_needs_to_be() {
    let error = |length_needed| ErrorBody::ReplyResource { length_needed };
    let plan = after(&any(9000), error(6001)).unwrap();
    assert_eq!((plan.reply, &*plan.writes), (Some(6004), &[5000, 5000][..]));
    assert_eq!(after(&any(9000), error(20_001)), Err(Ended::TooMuch), "the caller says");
    let procedure = any(9000);
    let shape = shape(&procedure, &ITEMS);
    let again = retry(&terms(), &shape, &plan, &error(6004));
    assert_eq!(again, Err(Ended::Nonsense), "it was that long");
    let again = retry(&terms(), &shape, &plan, &error(6005)).unwrap();
    assert_eq!(again.reply, Some(6008));
}

#[test]
fn zero_says_that_nobody_knows_and_ends_the_call() {
    for error in [
        ErrorBody::WriteResource { chunk_index: 0, length_needed: 6000 },
        ErrorBody::WriteResource { chunk_index: 1, length_needed: 0 },
        ErrorBody::WriteResource { chunk_index: 0, length_needed: 0 },
        ErrorBody::ReplyResource { length_needed: 0 },
        ErrorBody::Segments { max: 0 },
    ] {
        assert_eq!(after(&any(9000), error), Err(Ended::Unspecific), "{error:?}");
    }
}

#[test]
fn other_errors_end_the_call() {
    for error in [
        ErrorBody::Vers { low: 1, high: 1 },
        ErrorBody::BadXdr,
        ErrorBody::BadPropval,
        ErrorBody::InvalHtype,
        ErrorBody::InvalCont,
        ErrorBody::VersMismatch,
        ErrorBody::System,
    ] {
        assert_eq!(after(&any(9000), error), Err(Ended::Unspecific));
    }
}

#[test]
fn what_may_have_been_carried_out_is_repeated_only_if_that_does_no_harm() {
    let once = Procedure { idempotent: false, ..any(9000) };
    for error in [
        ErrorBody::WriteChunks { max: 1 },
        ErrorBody::Segments { max: 1 },
        ErrorBody::WriteResource { chunk_index: 1, length_needed: 6000 },
        ErrorBody::ReplyResource { length_needed: 6000 },
    ] {
        assert_eq!(after(&once, error), Err(Ended::NotIdempotent), "{error:?}");
    }
    // A Call refused for too many Read chunks was not carried out: section 7.3.1.
    assert!(after(&once, ErrorBody::ReadChunks { max: 1 }).is_ok());
}

#[test]
fn no_plan_is_made_twice_whatever_the_responder_says() {
    let procedure = any(1 << 20);
    let (mut rounds, mut longest) = (0, 0);
    for seed in 0..4000 {
        let mut rng = Rng::new(seed);
        let terms = Terms {
            segment_size_max: 2000,
            segments_max: 40,
            chunk_segments_max: 40,
            call_messages_max: [1, 4][rng.below(2)],
            reply_messages_max: [1, 3][rng.below(2)],
            ..terms()
        };
        let shape = shape(&procedure, &ITEMS);
        let mut plans = vec![plan_call(&terms, &shape).unwrap()];
        loop {
            let small = |rng: &mut Rng| u32::try_from(rng.below(6)).unwrap();
            let length = |rng: &mut Rng| u32::try_from(rng.below(24_000)).unwrap();
            let error = match rng.below(5) {
                0 => ErrorBody::ReadChunks { max: small(&mut rng) },
                1 => ErrorBody::WriteChunks { max: small(&mut rng) },
                2 => ErrorBody::Segments { max: small(&mut rng) },
                3 => ErrorBody::WriteResource {
                    chunk_index: small(&mut rng),
                    length_needed: length(&mut rng),
                },
                _ => ErrorBody::ReplyResource { length_needed: length(&mut rng) },
            };
            match retry(&terms, &shape, plans.last().unwrap(), &error) {
                Ok(plan) => {
                    assert!(plans.iter().all(|old| plan.differs(old)), "seed {seed}");
                    plans.push(plan);
                }
                Err(Ended::TooOften) => break,
                Err(_) if rng.below(8) == 0 => break,
                Err(_) => {}
            }
        }
        assert!(plans.len() <= 1 + usize::from(REFUSALS_MAX));
        rounds += plans.len();
        longest = longest.max(plans.len());
    }
    assert!(rounds > 8000, "plans were made again: {rounds}");
    assert_eq!(longest, 1 + usize::from(REFUSALS_MAX), "and the bound was met");
}

#[test]
fn every_end_says_why() {
    let ends = [Ended::Unspecific, Ended::NotIdempotent, Ended::Nonsense, Ended::TooMuch];
    let ends = ends.into_iter().chain([Ended::TooOften, Ended::NoPlan(CallFault::CallTooLong)]);
    let words: Vec<_> = ends.map(|end| std::format!("{end}")).collect();
    assert_eq!(words.iter().collect::<std::collections::BTreeSet<_>>().len(), words.len());
}
