//! Restoring a Call from any Read list.

use haulage_proto::chunk::Version;
use haulage_proto::chunk::restore::{Step, restore};
use haulage_proto::verbs::{Handle, Segment};

use super::super::bound::{FIXED, within};
use super::super::octets::{read_list, segments, short, word};
use crate::world::choices::Choices;

/// Checks that the steps of a restoration fill every octet once, from places that the lists name.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let version = choices.pick(&[Version::One, Version::Two]);
    let inline = choices.below(512);
    let call = if choices.one_in(4) { drawn(&mut choices) } else { Vec::new() };
    let mut reads: Vec<_> = if choices.one_in(4) {
        read_list(&mut choices).into_iter().map(|(at, s)| (at, segment(s))).collect()
    } else {
        let mut position = 0;
        let mut reads = Vec::new();
        for _ in 0..choices.of(0..=4) {
            position += short(choices.below(64));
            reads.extend(drawn(&mut choices).into_iter().map(|segment| (position, segment)));
        }
        reads
    };
    if choices.one_in(8) {
        reads.reverse();
    }
    let length_max = choices.pick(&[0, 64, 1 << 20, usize::MAX]);

    let most = PER_SEGMENT * (call.len() + reads.len()) as u64 + FIXED;
    let plan = within(most, || {
        restore(version, inline, call.iter().copied(), reads.iter().copied(), length_max)
    });
    let Ok(plan) = plan else { return };
    assert!(plan.length() <= length_max, "longer than allowed");
    assert!(plan.steps().len() <= 4 * (call.len() + reads.len()) + 2, "steps follow the lists");

    let mut filled: Vec<_> = plan.steps().iter().map(range).collect();
    filled.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in filled {
        assert_eq!(range.start, end, "a gap, or an octet filled twice");
        assert!(!range.is_empty(), "a step without octets");
        end = range.end;
    }
    assert_eq!(end, plan.length(), "and nothing is left");

    let known: Vec<_> = call.iter().chain(reads.iter().map(|(_, segment)| segment)).collect();
    for step in plan.steps() {
        match step {
            Step::Copy { from, to } => assert!(from + to.len() <= inline, "copied from beyond"),
            Step::Read { source, to } => {
                assert_eq!(usize::try_from(source.length()), Ok(to.len()));
                let inside = |segment: &&&Segment| {
                    segment.handle == source.handle()
                        && segment.offset <= source.offset()
                        && source.offset() + u64::from(source.length())
                            <= segment.offset + u64::from(segment.length)
                };
                assert!(known.iter().any(|segment| inside(&segment)), "read from no segment");
            }
            Step::Zero { to } => assert!(to.len() < 4, "padding completes a unit"),
        }
    }
}

fn range(step: &Step) -> std::ops::Range<usize> {
    match step {
        Step::Copy { to, .. } | Step::Read { to, .. } | Step::Zero { to } => to.clone(),
    }
}

/// Draws the segments of a chunk, most of them short.
fn drawn(choices: &mut Choices) -> Vec<Segment> {
    if choices.one_in(8) {
        return segments(choices, 0).into_iter().map(segment).collect();
    }
    let count = choices.of(0..=3);
    let segment = |_| {
        let offset = word(choices).into();
        Segment { handle: Handle(word(choices)), length: short(choices.below(64)), offset }
    };
    (0..count).map(segment).collect()
}

fn segment((handle, length, offset): (u32, u32, u64)) -> Segment {
    Segment { handle: Handle(handle), length, offset }
}

/// Octets allocated for the plan of a segment, vectors that double included. In a message a segment
/// has sixteen octets.
const PER_SEGMENT: u64 = 1024;
