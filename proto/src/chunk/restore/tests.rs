use std::vec::Vec;

use super::*;
use crate::chunk::testing::{Memory, Sample};
use crate::chunk::{DataItem, reduce};
use crate::testing::Rng;
use crate::verbs::Handle;

const ANY: usize = usize::MAX;

fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle: Handle(handle), length, offset: 1000 * u64::from(handle) }
}

fn claim(handle: u32, skip: u64, length: u32) -> ClaimedSegment {
    ClaimedSegment::try_from(segment(handle, 100)).unwrap().window(skip, length).unwrap()
}

/// A version 2 Call with so much inline, and these data items.
fn simple(inline: usize, reads: &[(u32, Segment)]) -> Result<Restoration, RestoreFault> {
    restore(Version::Two, inline, [], reads.iter().copied(), ANY)
}

#[test]
fn without_chunks_there_is_one_copy() {
    let plan = simple(40, &[]).unwrap();
    assert_eq!(plan.length(), 40);
    assert_eq!(plan.steps(), [Step::Copy { from: 0, to: 0..40 }]);
    assert_eq!(simple(0, &[]).unwrap().steps(), []);
}

#[test]
fn an_item_goes_where_its_position_says_and_gets_its_padding_back() {
    let plan = simple(12, &[(8, segment(1, 5))]).unwrap();
    let expected = [
        Step::Copy { from: 0, to: 0..8 },
        Step::Read { source: claim(1, 0, 5), to: 8..13 },
        Step::Zero { to: 13..16 },
        Step::Copy { from: 8, to: 16..20 },
    ];
    assert_eq!((plan.steps(), plan.length()), (&expected[..], 20));
}

#[test]
fn the_second_position_counts_the_first_item() {
    // In the unreduced stream: 8 octets, 5 and 3 of padding, 4 octets, 8 octets.
    let plan = simple(12, &[(8, segment(1, 5)), (20, segment(2, 8))]).unwrap();
    let last = Step::Read { source: claim(2, 0, 8), to: 20..28 };
    assert_eq!((plan.steps().last(), plan.length()), (Some(&last), 28));
    let overlap = simple(12, &[(8, segment(1, 5)), (12, segment(2, 8))]);
    assert_eq!(overlap, Err(RestoreFault::Overlap));
    let beyond = simple(12, &[(8, segment(1, 5)), (24, segment(2, 8))]);
    assert_eq!(beyond, Err(RestoreFault::Beyond));
}

#[test]
fn segments_of_one_chunk_follow_each_other_and_empty_ones_are_skipped() {
    let reads = [(8, segment(1, 3)), (8, segment(2, 0)), (8, segment(3, 6))];
    let plan = simple(8, &reads).unwrap();
    let expected = [
        Step::Copy { from: 0, to: 0..8 },
        Step::Read { source: claim(1, 0, 3), to: 8..11 },
        Step::Read { source: claim(3, 0, 6), to: 11..17 },
        Step::Zero { to: 17..20 },
    ];
    assert_eq!(plan.steps(), expected);
    let empty = simple(8, &[(4, segment(1, 0)), (4, segment(2, 0))]).unwrap();
    assert_eq!(empty.length(), 8, "an empty chunk is nothing");
}

#[test]
fn a_call_chunk_is_read_around_its_data_items() {
    let call = [segment(1, 10), segment(2, 6)];
    let plan = restore(Version::Two, 0, call, [(12, segment(3, 4))], ANY).unwrap();
    let expected = [
        Step::Read { source: claim(1, 0, 10), to: 0..10 },
        Step::Read { source: claim(2, 0, 2), to: 10..12 },
        Step::Read { source: claim(3, 0, 4), to: 12..16 },
        Step::Read { source: claim(2, 2, 4), to: 16..20 },
    ];
    assert_eq!(plan.steps(), expected);
}

#[test]
fn version_1_sorts_its_list_and_finds_the_call_chunk_in_it() {
    let list = [
        (12, segment(3, 1)),
        (0, segment(1, 10)),
        (20, segment(5, 4)),
        (12, segment(4, 3)),
        (0, segment(2, 10)),
    ];
    let plan = restore(Version::One, 0, [], list, ANY).unwrap();
    let expected = [
        Step::Read { source: claim(1, 0, 10), to: 0..10 },
        Step::Read { source: claim(2, 0, 2), to: 10..12 },
        Step::Read { source: claim(3, 0, 1), to: 12..13 },
        Step::Read { source: claim(4, 0, 3), to: 13..16 },
        Step::Read { source: claim(2, 2, 4), to: 16..20 },
        Step::Read { source: claim(5, 0, 4), to: 20..24 },
        Step::Read { source: claim(2, 6, 4), to: 24..28 },
    ];
    assert_eq!(plan.steps(), expected);
    let unordered = [(12, segment(3, 4)), (8, segment(1, 4))];
    assert_eq!(simple(40, &unordered), Err(RestoreFault::Overlap), "version 2 does not sort");
}

#[test]
fn version_1_chunks_may_contain_their_padding() {
    let reads = |length| restore(Version::One, 8, [], [(8, segment(1, length))], ANY).unwrap();
    assert_eq!((reads(5).length(), reads(8).length()), (16, 16));
    // Old clients send the padding as a segment of its own.
    let apart = [(8, segment(1, 5)), (8, segment(2, 3))];
    let plan = restore(Version::One, 8, [], apart, ANY).unwrap();
    assert_eq!((plan.length(), plan.steps().len()), (16, 3));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let body = |length| restore(Version::Two, 0, [segment(1, length)], [], ANY).err();
    assert_eq!(body(8), None);
    assert_eq!(body(6), Some(RestoreFault::Misaligned), "body chunks have their padding");
    assert_eq!(simple(6, &[]).err(), Some(RestoreFault::Misaligned));
    assert_eq!(restore(Version::One, 6, [], [], ANY).map(|plan| plan.length()), Ok(6));
    assert_eq!(simple(8, &[(0, segment(1, 4))]).err(), Some(RestoreFault::BadPosition));
    assert_eq!(simple(8, &[(6, segment(1, 4))]).err(), Some(RestoreFault::BadPosition));
    assert_eq!(simple(8, &[(12, segment(1, 4))]).err(), Some(RestoreFault::Beyond));
    let two = restore(Version::Two, 4, [segment(1, 4)], [], ANY);
    assert_eq!(two.err(), Some(RestoreFault::TwoBodies));
    let two = restore(Version::One, 4, [], [(0, segment(1, 4))], ANY);
    assert_eq!(two.err(), Some(RestoreFault::TwoBodies));
    let long = [(4, segment(1, u32::MAX)), (4, segment(2, 1))];
    assert_eq!(simple(8, &long).err(), Some(RestoreFault::LengthWraps));
    let wraps = Segment { offset: u64::MAX, ..segment(1, 4) };
    assert_eq!(simple(8, &[(4, wraps)]).err(), Some(RestoreFault::LengthWraps));
    let faults = [RestoreFault::TooLong, RestoreFault::Overlap, RestoreFault::Beyond];
    assert!(faults.into_iter().all(|fault| !fault.rule().is_empty()));
}

#[test]
fn the_limit_counts_padding_and_holds_before_anything_is_fetched() {
    let limited = |max| restore(Version::Two, 8, [], [(8, segment(1, 5))], max).err();
    assert_eq!((limited(16), limited(15)), (None, Some(RestoreFault::TooLong)));
    let large = [(4, segment(1, u32::MAX)), (8, segment(2, u32::MAX))];
    let plan = restore(Version::Two, 8, [], large, 1 << 20);
    assert_eq!(plan.err(), Some(RestoreFault::TooLong));
}

/// A random Call as its sender reduces it, and its stream.
struct Sent {
    stream: Vec<u8>,
    memory: Memory,
    inline: Vec<u8>,
    call: Vec<Segment>,
    reads: Vec<(u32, Segment)>,
}

impl Sent {
    fn random(rng: &mut Rng, version: Version) -> Self {
        let Sample { stream, items } = Sample::random(rng, 6, 60);
        let items: Vec<DataItem> = items.into_iter().filter(|_| rng.below(4) > 0).collect();
        let reduction = reduce(&stream, &items).unwrap();
        let mut memory = Memory::default();
        let mut reads = Vec::new();
        let segment_max = 1 + rng.below(40);
        for (chunk, item) in reduction.chunks().zip(&items) {
            let mut data = stream[item.data()].to_vec();
            if version == Version::One && rng.below(2) == 0 {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            let segments = memory.expose(rng, &data, segment_max);
            reads.extend(segments.into_iter().map(|segment| (chunk.position, segment)));
        }
        let mut inline: Vec<u8> = reduction.kept().flat_map(|r| stream[r].to_vec()).collect();
        let mut call = Vec::new();
        if rng.below(2) == 0 {
            call = memory.expose(rng, &inline, segment_max);
            inline.clear();
        }
        if version == Version::One {
            reads.extend(call.drain(..).map(|segment| (0, segment)));
            // Any order, but for the segments of one chunk.
            let turn = rng.below(7);
            reads.sort_by_key(|(position, _)| {
                (position / 4 + 3) % 7 != u32::try_from(turn).unwrap()
            });
        }
        Self { stream, memory, inline, call, reads }
    }

    fn restore(&self, version: Version, max: usize) -> Result<Restoration, RestoreFault> {
        let (call, reads) = (self.call.iter().copied(), self.reads.iter().copied());
        restore(version, self.inline.len(), call, reads, max)
    }
}

#[test]
fn what_was_reduced_is_restored() {
    for version in [Version::One, Version::Two] {
        for seed in 0..4000 {
            let mut rng = Rng::new(seed);
            let sent = Sent::random(&mut rng, version);
            let plan = sent.restore(version, ANY).unwrap();
            let whole = sent.memory.restore(&sent.inline, plan.steps(), plan.length());
            assert_eq!(whole, sent.stream, "{version:?}, seed {seed}");
            // The limit is exact.
            assert!(sent.restore(version, sent.stream.len()).is_ok());
            let short = sent.restore(version, sent.stream.len() - 1);
            assert_eq!(short.err(), Some(RestoreFault::TooLong));
        }
    }
}

#[test]
fn any_lists_give_a_plan_that_fills_every_octet_once_or_none() {
    let mut rng = Rng::new(7);
    let mut planned = 0;
    for _ in 0..20_000 {
        let length = |rng: &mut Rng| match rng.below(20) {
            0 => u32::MAX - u32::try_from(rng.below(4)).unwrap(),
            _ => u32::try_from(rng.below(12)).unwrap(),
        };
        let (chunks, body) = (rng.below(5), rng.below(2));
        let position = |rng: &mut Rng| u32::try_from(4 * rng.below(9)).unwrap();
        let reads = (0..).take(chunks).map(|n| (position(&mut rng), segment(n, length(&mut rng))));
        let reads: Vec<_> = reads.collect();
        let call: Vec<_> = (9..).take(body).map(|n| segment(n, length(&mut rng))).collect();
        let version = [Version::One, Version::Two][rng.below(2)];
        let inline = 4 * rng.below(6) * rng.below(2);
        let Ok(plan) = restore(version, inline, call, reads, 1 << 16) else { continue };
        planned += 1;
        assert!(plan.length() <= 1 << 16);
        let mut end = 0;
        for step in plan.steps() {
            let (Step::Copy { to, .. } | Step::Read { to, .. } | Step::Zero { to }) = step;
            assert_eq!(to.start, end);
            assert!(!to.is_empty());
            if let Step::Copy { from, to } = step {
                assert!(from + to.len() <= inline);
            }
            if let Step::Read { source, to } = step {
                assert_eq!(source.length() as usize, to.len());
            }
            end = to.end;
        }
        assert_eq!(end, plan.length());
    }
    assert!(planned > 1000, "{planned}");
}
