//! Received Read and Write lists: byte ranges that were validated once and iterate without failing.

mod read;
mod write;

pub use read::{ReadChunk, ReadList};
pub use write::{Segments, WriteChunk, WriteList};

use crate::verbs::{ClaimedSegment, Segment};
use crate::xdr::{Reader, Truncated, UNIT};

/// Why a chunk list was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListFault {
    /// The list ends early.
    Truncated(Truncated),
    /// A list discriminator is neither 0 nor 1, in a version 2 message.
    BadDiscriminator {
        /// The offset of the discriminator.
        at: usize,
    },
    /// A position is lower than the one before it.
    PositionOrder {
        /// The offset of the segment.
        at: usize,
    },
    /// A position is not a multiple of four, or zero where only data items may stand.
    BadPosition {
        /// The offset of the segment.
        at: usize,
    },
    /// The end of a segment or the length of a chunk exceeds the range of its field.
    LengthWraps {
        /// The offset of the segment.
        at: usize,
    },
}

impl From<Truncated> for ListFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

/// The version whose rules a list is decoded by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// Version 1 as deployed, by Linux above all: any nonzero discriminator announces an entry, and
    /// positions may come in any order.
    Version1,
    /// Version 2, with every rule of the draft enforced.
    Version2,
}

/// Returns the entries of a list that began with `whole` and whose end `r` has just taken.
fn entries<'a>(whole: &'a [u8], r: &Reader<'_>) -> &'a [u8] {
    // The end of the list, one word, lies between the two.
    let end = whole.len().wrapping_sub(r.rest().len()).wrapping_sub(UNIT);
    whole.get(..end).unwrap_or_default()
}

/// Takes a list discriminator.
#[inline]
fn more(r: &mut Reader<'_>, rules: Rules) -> Result<bool, ListFault> {
    let at = r.position();
    match (r.u32()?, rules) {
        (0, _) => Ok(false),
        (1, _) | (_, Rules::Version1) => Ok(true),
        (_, Rules::Version2) => Err(ListFault::BadDiscriminator { at }),
    }
}

#[inline]
fn decode_segment(r: &mut Reader<'_>) -> Result<Segment, ListFault> {
    let at = r.position();
    let segment = Segment::decode(r)?;
    //~ V2-4.4.1-2: `ends_beyond(&segment)` -> `ends_beyond(&segment) || !segment.length.is_multiple_of(4)`
    if ends_beyond(&segment) { Err(ListFault::LengthWraps { at }) } else { Ok(segment) }
}

/// Returns whether a segment's end is beyond the address space.
#[inline]
fn ends_beyond(segment: &Segment) -> bool {
    ClaimedSegment::try_from(*segment).is_err()
}

#[cfg(test)]
mod tests;
