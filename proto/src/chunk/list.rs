//! Read and Write lists as they arrive: validated byte ranges that iterate without failing.

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
    /// It ends early.
    Truncated(Truncated),
    /// A list discriminator is neither 0 nor 1, where that matters.
    BadDiscriminator {
        /// Offset of the word.
        at: usize,
    },
    /// Positions go backwards.
    PositionOrder {
        /// Offset of the segment.
        at: usize,
    },
    /// A position is not a multiple of four, or zero where only data items may stand.
    BadPosition {
        /// Offset of the segment.
        at: usize,
    },
    /// A segment's end, or a chunk's length, is more than its field can hold.
    LengthWraps {
        /// Offset of the segment.
        at: usize,
    },
}

impl From<Truncated> for ListFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

/// Which version's peers a list must be understood from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// As deployed, Linux above all: any discriminator but zero goes on, any order will do.
    Version1,
    /// To the letter.
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
    if ends_beyond(&segment) { Err(ListFault::LengthWraps { at }) } else { Ok(segment) }
}

/// Returns whether a segment's end is beyond the address space.
#[inline]
fn ends_beyond(segment: &Segment) -> bool {
    ClaimedSegment::try_from(*segment).is_err()
}

#[cfg(test)]
mod tests;
