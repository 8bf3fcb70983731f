//! The segments that a data item fills.

use core::ops::Range;

use crate::verbs::{ClaimedSegment, Handle, Segment};

/// Plans the RDMA Writes of a result of `length` octets, which fill the segments in order and
/// without gaps.
///
/// Each item is a window of the peer's memory and the range of the result that is written to it.
/// Together they cover the result or, if that is shorter, the chunk.
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

/// Returns the claim to the front of a segment that a result of `length` octets fills, if it is not longer than that.
#[doc(hidden)]
#[inline]
pub fn claim(segment: Segment, length: usize) -> Option<ClaimedSegment> {
    let length = u32::try_from(length).ok().filter(|length| *length <= segment.length)?;
    ClaimedSegment::try_from(Segment { length, ..segment }).ok()
}

/// Returns the segments of an offered chunk with the lengths that a Reply reports once a result of
/// `length` octets was written. No segment is left out.
pub fn filled(segments: &[Segment], length: usize) -> impl ExactSizeIterator<Item = Segment> + '_ {
    // [V2-4.5.2.4-2] the lengths report only the result itself: its padding is not written.
    //~ V2-4.5.2.4-2: `length` -> `length.saturating_add(3) & !3`
    let mut left = u64::try_from(length).unwrap_or(u64::MAX);
    segments.iter().map(move |segment| {
        let taken = left.min(u64::from(segment.length));
        left = left.saturating_sub(taken);
        Segment { length: u32::try_from(taken).unwrap_or(u32::MAX), ..*segment }
    })
}

/// Divides one registered range into segments of at most `segment_max` octets.
pub fn split(
    handle: Handle,
    offset: u64,
    length: u64,
    segment_max: u32,
) -> impl Iterator<Item = Segment> {
    let mut left = length;
    core::iter::from_fn(move || {
        // [V2-4.4.1-1] [V2-4.4.1-2] split wherever the peer's largest segment ends, even within a unit.
        //~ V2-4.4.1-1: `segment_max` -> `(segment_max & !3)`
        let taken = u32::try_from(left).unwrap_or(u32::MAX).min(segment_max.max(1));
        if taken == 0 {
            return None;
        }
        let offset = offset.wrapping_add(length.wrapping_sub(left));
        left = left.saturating_sub(u64::from(taken));
        Some(Segment { handle, length: taken, offset })
    })
}

/// Why a returned chunk does not match the chunk that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReturnFault {
    /// The chunk has a different number of segments.
    Count,
    /// A segment reports more octets than were offered.
    TooLong,
    /// A segment reports octets although the one before it is not full.
    Gap,
}

impl ReturnFault {
    /// Returns the rule that was broken, in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Count => "a returned chunk has another number of segments",
            Self::TooLong => "a returned segment is longer than offered",
            Self::Gap => "a returned chunk was not filled in order",
        }
    }
}

/// Checks a chunk returned in a Reply against the Requester's own record of the offer. Returns the
/// number of octets written. The returned handles and offsets are ignored and never used.
pub fn returned(offered: &[Segment], returned: &[Segment]) -> Result<u32, ReturnFault> {
    returned_segments(offered, returned.iter().copied())
}

/// Checks the segments of a returned chunk against the Requester's own record of the offer. Returns
/// the number of octets written. Unlike [`returned`], it takes an iterator.
pub fn returned_segments(
    offered: &[Segment],
    returned: impl ExactSizeIterator<Item = Segment>,
) -> Result<u32, ReturnFault> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn segments(lengths: &[u32]) -> Vec<Segment> {
        let named = |(length, number): (&u32, u32)| Segment {
            handle: Handle(number),
            length: *length,
            offset: 1000 * u64::from(number),
        };
        lengths.iter().zip(1..).map(named).collect()
    }

    /// Offered lengths, the length of a result, and what each segment gets of it.
    const TABLE: [(&[u32], usize, &[u32]); 14] = [
        (&[], 0, &[]),
        (&[], 5, &[]),
        (&[10], 0, &[0]),
        (&[10], 1, &[1]),
        (&[10], 9, &[9]),
        (&[10], 10, &[10]),
        (&[10], 11, &[10]),
        (&[4, 4, 4], 0, &[0, 0, 0]),
        (&[4, 4, 4], 4, &[4, 0, 0]),
        (&[4, 4, 4], 5, &[4, 1, 0]),
        (&[4, 0, 4], 6, &[4, 0, 2]),
        (&[0, 0], 3, &[0, 0]),
        (&[u32::MAX, 1], u32::MAX as usize, &[u32::MAX, 0]),
        (&[u32::MAX, 1], usize::MAX, &[u32::MAX, 1]),
    ];

    #[test]
    fn a_result_fills_a_chunk_in_segment_order() {
        for (offered, length, expected) in TABLE {
            let offered = segments(offered);
            let back: Vec<_> = filled(&offered, length).collect();
            assert_eq!(back.len(), offered.len(), "the count stays");
            for ((offer, got), length) in offered.iter().zip(&back).zip(expected) {
                assert_eq!(got, &Segment { length: *length, ..*offer }, "only lengths change");
            }
            let written: u64 = expected.iter().map(|length| u64::from(*length)).sum();
            assert_eq!(returned(&offered, &back).ok(), u32::try_from(written).ok());
        }
    }

    #[test]
    fn writes_cover_the_result_once_and_skip_empty_segments() {
        for (offered, length, expected) in TABLE {
            let offered = segments(offered);
            let mut at = 0;
            let mut filled_segments = Vec::new();
            for (target, range) in fill(&offered, length) {
                assert_eq!(range.start, at, "no octet is skipped or repeated");
                assert_eq!(range.len(), target.length() as usize);
                assert!(target.length() > 0, "nothing is posted for nothing");
                let offer = offered.iter().find(|offer| offer.handle == target.handle()).unwrap();
                assert_eq!(target.offset(), offer.offset);
                filled_segments.push(target.length());
                at = range.end;
            }
            let chunk: usize = offered.iter().map(|offer| offer.length as usize).sum();
            assert_eq!(at, length.min(chunk));
            assert!(filled_segments.into_iter().eq(expected.iter().copied().filter(|&l| l > 0)));
        }
    }

    #[test]
    fn a_range_splits_at_the_peers_largest_segment() {
        let cases: [(u64, u32, &[u32]); 9] = [
            (0, 10, &[]),
            (1, 10, &[1]),
            (10, 10, &[10]),
            (11, 10, &[10, 1]),
            (30, 10, &[10, 10, 10]),
            (3, 0, &[1, 1, 1]),
            (u64::from(u32::MAX), u32::MAX, &[u32::MAX]),
            (u64::from(u32::MAX) + 1, u32::MAX, &[u32::MAX, 1]),
            (2 * u64::from(u32::MAX), u32::MAX, &[u32::MAX, u32::MAX]),
        ];
        for (length, segment_max, expected) in cases {
            let split: Vec<_> = split(Handle(7), 4096, length, segment_max).collect();
            assert!(split.iter().map(|s| s.length).eq(expected.iter().copied()), "{length}");
            let mut offset = 4096;
            for segment in split {
                assert_eq!((segment.handle, segment.offset), (Handle(7), offset));
                offset += u64::from(segment.length);
            }
            assert_eq!(offset, 4096 + length);
        }
    }

    #[test]
    fn a_returned_chunk_is_held_to_the_offer() {
        type Case = (&'static [u32], &'static [u32], Result<u32, ReturnFault>);
        let cases: [Case; 15] = [
            (&[], &[], Ok(0)),
            (&[10], &[0], Ok(0)),
            (&[10], &[10], Ok(10)),
            (&[10], &[11], Err(ReturnFault::TooLong)),
            (&[10], &[], Err(ReturnFault::Count)),
            (&[10], &[10, 0], Err(ReturnFault::Count)),
            (&[4, 4], &[4, 4], Ok(8)),
            (&[4, 4], &[4, 0], Ok(4)),
            (&[4, 4], &[3, 0], Ok(3)),
            (&[4, 4], &[3, 1], Err(ReturnFault::Gap)),
            (&[4, 4], &[0, 1], Err(ReturnFault::Gap)),
            (&[4, 4, 4], &[4, 0, 1], Err(ReturnFault::Gap)),
            (&[4, 0, 4], &[4, 0, 1], Ok(5)),
            (&[u32::MAX, 1], &[u32::MAX, 0], Ok(u32::MAX)),
            (&[u32::MAX, 1], &[u32::MAX, 1], Err(ReturnFault::TooLong)),
        ];
        for (offered, got, expected) in cases {
            let (offered, mut got) = (segments(offered), segments(got));
            assert_eq!(returned(&offered, &got), expected, "{offered:?} {got:?}");
            // Handles and offsets in a returned chunk are ignored.
            got.iter_mut().for_each(|s| (s.handle, s.offset) = (Handle(99), 0));
            assert_eq!(returned(&offered, &got), expected);
        }
        for fault in [ReturnFault::Count, ReturnFault::TooLong, ReturnFault::Gap] {
            assert!(fault.rule().starts_with("a returned"));
        }
    }
}
