//! The assignment of items to the targetable segments of the peer's buffers.

use alloc::vec::Vec;
use core::ops::Range;

use super::outgoing::{Source, Unfit};
use crate::rtrext::item::Item;
use crate::rtrext::structure::Structure;

/// The targetable segments of a buffer that are used.
#[derive(Debug)]
pub(super) struct Targets(Vec<Target>);

/// One targetable segment.
#[derive(Debug)]
struct Target {
    /// The number of the segment in the buffer.
    number: u32,
    /// The range of a transmission that the segment holds.
    held: Range<usize>,
    /// The end of the largest transmission in the segment.
    end: usize,
}

impl Targets {
    pub(super) fn new(structure: &Structure, first: usize, max: usize) -> Self {
        let numbered = (0..).zip(structure.targetable()).skip(first);
        let within = numbered.filter(|(_, (_, held))| held.start < max);
        let targets = within.map(|(number, (_, held))| {
            let end = held.end.min(max);
            Target { number, held, end }
        });
        Self(targets.collect())
    }

    /// Returns the offset of the first targetable segment in a transmission.
    pub(super) fn front(&self) -> Option<usize> {
        self.0.first().map(|target| target.held.start)
    }

    /// Assigns items to at most `count_max` buffers, each item to the start of a segment.
    pub(super) fn fill(
        &self,
        items: &[Item<Source>],
        count_max: usize,
    ) -> Result<Vec<TargetSlot>, Unfit> {
        let mut slots = Vec::new();
        let mut places = (0..count_max)
            .flat_map(|transmission| self.0.iter().map(move |target| (transmission, target)));
        for (nth, item) in items.iter().enumerate().filter(|(_, item)| item.is_bulk()) {
            let length = usize::try_from(item.length).unwrap_or(usize::MAX);
            let mut from = 0_usize;
            while from < length {
                let (transmission, target) = places.next().ok_or(Unfit::TooManyTransmissions)?;
                let left = length.saturating_sub(from);
                let at = target.held.start;
                let taken = if left <= target.end.saturating_sub(at) {
                    left
                } else if target.end == target.held.end {
                    target.held.len()
                } else {
                    // An item that goes on in another segment fills this one, for which the message is too short.
                    continue;
                };
                let end = from.saturating_add(taken);
                let number = target.number;
                slots.push(TargetSlot { item: nth, range: from..end, transmission, number, at });
                from = end;
            }
        }
        Ok(slots)
    }
}

/// A contiguous part of an item in one targetable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetSlot {
    /// The index of the item in the message.
    pub(super) item: usize,
    /// The range of the item.
    pub(super) range: Range<usize>,
    pub(super) transmission: usize,
    /// The segment's number in the group.
    pub(super) number: u32,
    /// The offset in the transmission.
    pub(super) at: usize,
}
