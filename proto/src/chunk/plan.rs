//! Which segments a data item fills.

use core::ops::Range;

use crate::verbs::{ClaimedSegment, Handle, Segment};

/// Plans the RDMA Writes of a result of `length` octets: contiguously, in segment order.
///
/// Each item is a window of the peer's memory and the range of the result that goes there. Together
/// they are as long as the result or, if that is shorter, as the chunk.
pub fn fill(
    segments: &[Segment],
    length: usize,
) -> impl Iterator<Item = (ClaimedSegment, Range<usize>)> + '_ {
    filled(segments, length)
        .scan(0_usize, |at, segment| {
            let start = *at;
            *at = start.saturating_add(usize::try_from(segment.length).unwrap_or(usize::MAX));
            Some((segment, start..*at))
        })
        .filter(|(segment, _)| segment.length > 0)
        .filter_map(|(segment, range)| Some((ClaimedSegment::try_from(segment).ok()?, range)))
}

/// Returns an offered chunk with the lengths a result of `length` octets leaves: the count and all
/// segments stay, the lengths say what was written.
pub fn filled(segments: &[Segment], length: usize) -> impl ExactSizeIterator<Item = Segment> + '_ {
    let mut left = u64::try_from(length).unwrap_or(u64::MAX);
    segments.iter().map(move |segment| {
        let taken = left.min(u64::from(segment.length));
        left = left.saturating_sub(taken);
        Segment { length: u32::try_from(taken).unwrap_or(u32::MAX), ..*segment }
    })
}

/// Names one registered range by segments of at most `segment_max` octets.
pub fn split(
    handle: Handle,
    offset: u64,
    length: u64,
    segment_max: u32,
) -> impl Iterator<Item = Segment> {
    let mut left = length;
    core::iter::from_fn(move || {
        let taken = u32::try_from(left).unwrap_or(u32::MAX).min(segment_max.max(1));
        if taken == 0 {
            return None;
        }
        let offset = offset.wrapping_add(length.wrapping_sub(left));
        left = left.saturating_sub(u64::from(taken));
        Some(Segment { handle, length: taken, offset })
    })
}

/// How a returned chunk differs from what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnFault {
    /// It has another number of segments.
    Count,
    /// A segment says that more was written than it can hold.
    TooLong,
    /// A segment was written although the one before it is not full.
    Gap,
}

impl ReturnFault {
    /// Says which rule was broken.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Count => "a returned chunk has another number of segments",
            Self::TooLong => "a returned segment is longer than offered",
            Self::Gap => "a returned chunk was not filled in order",
        }
    }
}

/// Checks a chunk returned in a Reply against our own record of the offer. Returns how much was
/// written. The returned handles and offsets are not looked at: nothing is done with them.
pub fn returned(offered: &[Segment], returned: &[Segment]) -> Result<u32, ReturnFault> {
    if offered.len() != returned.len() {
        return Err(ReturnFault::Count);
    }
    let (mut sum, mut full) = (0_u32, true);
    for (offer, got) in offered.iter().zip(returned) {
        if got.length > offer.length {
            return Err(ReturnFault::TooLong);
        }
        if got.length > 0 && !full {
            return Err(ReturnFault::Gap);
        }
        full = got.length == offer.length;
        sum = sum.checked_add(got.length).ok_or(ReturnFault::TooLong)?;
    }
    Ok(sum)
}
