//! The structure of a receive buffer: `xmrbs_buf` (sections 7.2, 8.3).
//!
//! A Receive fills the segments of its buffer in order, so that the offset of an octet in a message determines its
//! place. A segment can be *targetable*, that is, reserved for bulk data. Targetable segments are numbered through all
//! transmissions of a group, empty ones included.

use core::ops::Range;

use super::Malformed;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// `xmrbs_seg`: one contiguous part of a receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSegment {
    /// `xmrseg_length`: the length of the segment in octets.
    pub length: u32,
    /// `xmrseg_align`: the guaranteed alignment of the segment.
    pub align: u32,
    /// `xmrseg_flags`: the flags of the segment.
    pub flags: u32,
}

impl BufferSegment {
    /// Returns whether bulk data may be placed in the segment.
    pub const fn is_targetable(&self) -> bool {
        // [RTR-7.2-1]
        //~ RTR-7.2-1: `!= 0` -> `== 0`
        self.flags & FLAG_TARGETABLE != 0
    }
}

/// The segments of every receive buffer of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    segments: [BufferSegment; SEGMENTS_MAX],
    count: usize,
}

impl Structure {
    /// Makes the structure of buffers with these segments. Returns `None` if there are none or too many, if one is
    /// empty, or if their sum exceeds the range of 32 bits.
    pub fn new(segments: &[BufferSegment]) -> Option<Self> {
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 0 };
        for segment in segments {
            structure.push(*segment)?;
        }
        (structure.count > 0).then_some(structure)
    }

    /// Makes the default structure, of buffers with one segment, in which nothing may be placed [RTR-5.3-1].
    pub fn single(length: u32) -> Self {
        let segment = BufferSegment { length: length.max(1), align: 1, flags: 0 };
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 1 };
        if let Some(first) = structure.segments.first_mut() {
            *first = segment;
        }
        structure
    }

    /// Parses the value of the Receive Buffer Structure property. Returns `None` for a structure
    /// that contradicts itself or has more than [`SEGMENTS_MAX`] segments: the default applies, as
    /// for any unusable value (section 8.1, E16).
    pub fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let length = r.u32()?;
        let groups = r.u32()?;
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 0 };
        let mut readable = Some(());
        // Each group takes four words, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..groups {
            let count = r.u32()?;
            let segment = BufferSegment { length: r.u32()?, align: r.u32()?, flags: r.u32()? };
            for _ in 0..count {
                readable = readable.and_then(|()| structure.push(segment));
                if readable.is_none() {
                    break;
                }
            }
        }
        let sound = readable.is_some() && structure.count > 0 && structure.length() == length;
        Ok(sound.then_some(structure))
    }

    /// Appends the value of the Receive Buffer Structure property.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.length())?;
        w.u32(u32::try_from(self.groups().count()).map_err(|_| Truncated { at: w.position() })?)?;
        for group in self.groups() {
            let segment = group.first().copied().unwrap_or_default();
            let count = u32::try_from(group.len()).map_err(|_| Truncated { at: w.position() })?;
            for word in [count, segment.length, segment.align, segment.flags] {
                w.u32(word)?;
            }
        }
        Ok(())
    }

    /// Returns the length of the property's value in octets.
    pub fn wire_len(&self) -> usize {
        self.groups().count().saturating_mul(4 * UNIT).saturating_add(2 * UNIT)
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> &[BufferSegment] {
        self.segments.get(..self.count).unwrap_or_default()
    }

    /// Returns the length of a whole buffer in octets.
    pub fn length(&self) -> u32 {
        self.segments().iter().fold(0, |sum, segment| sum.saturating_add(segment.length))
    }

    /// Returns the number of targetable segments in one buffer.
    pub fn targetable_count(&self) -> u32 {
        u32::try_from(self.targetable().count()).unwrap_or(u32::MAX)
    }

    /// Returns the targetable segments of one buffer: their indices, and the ranges of a message
    /// that they hold.
    pub fn targetable(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let all = self.ranges().enumerate().zip(self.segments());
        //~ RTR-5.3-1: `is_targetable()` -> `length > 0`
        all.filter(|(_, segment)| segment.is_targetable()).map(|(place, _)| place)
    }

    /// Returns the targetable octets of so many `messages` of at most `length` octets each, behind the first `front` ones of
    /// each, from the first targetable segment on that begins there: the room of one item by Send. An item that goes on in
    /// another segment fills the one before.
    pub fn room_behind(&self, front: usize, length: usize, messages: usize) -> usize {
        let ranges =
            || self.targetable().map(|(_, range)| range).filter(|range| range.start >= front);
        let whole = ranges().filter(|range| range.end <= length).map(|range| range.len());
        let last = ranges().map(|range| (range.start..range.end.min(length)).len());
        let before = whole.sum::<usize>().saturating_mul(messages.saturating_sub(1));
        before.saturating_add(last.sum())
    }

    /// Returns the places of the octets `range` of a message: indices of segments, and ranges in
    /// them.
    pub fn scatter(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<'_> {
        self.ranges().enumerate().filter_map(move |(index, held)| {
            let start = range.start.max(held.start);
            let end = range.end.min(held.end);
            let within = start.checked_sub(held.start)?..end.checked_sub(held.start)?;
            (within.start < within.end).then_some((index, within))
        })
    }

    /// Returns the range of a message that each segment holds.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.segments().iter().scan(0_usize, |at, segment| {
            let start = *at;
            *at = start.saturating_add(usize::try_from(segment.length).unwrap_or(usize::MAX));
            Some(start..*at)
        })
    }

    /// Returns the runs of equal segments: `xmrbs_group`.
    fn groups(&self) -> impl Iterator<Item = &[BufferSegment]> {
        self.segments().chunk_by(|a, b| a == b)
    }

    fn push(&mut self, segment: BufferSegment) -> Option<()> {
        self.length().checked_add(segment.length).filter(|_| segment.length > 0)?;
        *self.segments.get_mut(self.count)? = segment;
        self.count = self.count.checked_add(1)?;
        Some(())
    }
}

/// `XMRSFLAG_PLT`: the segment is a target for bulk data.
pub const FLAG_TARGETABLE: u32 = 1;

/// The most segments of a structure that is used.
pub const SEGMENTS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xdr;
    use std::vec::Vec;

    fn plain(length: u32) -> BufferSegment {
        BufferSegment { length, align: 1, flags: 0 }
    }

    fn target(length: u32) -> BufferSegment {
        BufferSegment { length, align: 4096, flags: FLAG_TARGETABLE }
    }

    #[test]
    fn a_structure_survives_the_round_trip_in_runs_of_like_segments() {
        let structure = Structure::new(&[plain(1024), target(4096), target(4096)]).unwrap();
        let value = Xdr::default().words(&[9216, 2, 1, 1024, 1, 0, 2, 4096, 4096, 1]).0;
        let mut memory = [0; 64];
        let mut w = Writer::new(&mut memory);
        structure.encode(&mut w).unwrap();
        assert_eq!((w.written(), structure.wire_len()), (&value[..], value.len()));
        assert_eq!(Structure::decode(&mut Reader::new(&value)), Ok(Some(structure)));
        for end in 0..value.len() {
            assert!(Structure::decode(&mut Reader::new(&value[..end])).is_err(), "{end}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_structure() {
        let decode = |words: &[u32]| {
            Structure::decode(&mut Reader::new(&Xdr::default().words(words).0)).unwrap()
        };
        assert_eq!(decode(&[8, 1, 2, 4, 1, 0]), Structure::new(&[plain(4), plain(4)]));
        assert_eq!(decode(&[8, 2, 0, 9, 1, 0, 2, 4, 1, 0]), Structure::new(&[plain(4), plain(4)]));
        assert_eq!(decode(&[9, 1, 2, 4, 1, 0]), None, "a length that is not the sum");
        assert_eq!(decode(&[0, 0]), None, "no segment");
        assert_eq!(decode(&[0, 1, 1, 0, 1, 0]), None, "an empty segment");
        assert_eq!(decode(&[17, 1, 17, 1, 1, 0]), None, "too many segments");
        assert_eq!(decode(&[u32::MAX, 1, u32::MAX, 1, 1, 0]), None, "far too many");
        assert_eq!(decode(&[0, 1, 2, 1 << 31, 1, 0]), None, "a sum of 2^32");
        assert_eq!(Structure::new(&[]), None);
        assert_eq!(Structure::single(0).length(), 1);
    }

    #[test]
    fn octets_land_where_the_receive_scatters_them() {
        let structure = Structure::new(&[plain(8), target(4), plain(2), target(6)]).unwrap();
        assert_eq!((structure.length(), structure.targetable_count()), (20, 2));
        assert_eq!(structure.targetable().collect::<Vec<_>>(), [(1, 8..12), (3, 14..20)]);
        let scattered: Vec<_> = structure.scatter(6..17).collect();
        assert_eq!(scattered, [(0, 6..8), (1, 0..4), (2, 0..2), (3, 0..3)]);
        assert_eq!(structure.scatter(8..12).collect::<Vec<_>>(), [(1, 0..4)]);
        assert_eq!(structure.scatter(20..30).count(), 0);
        assert_eq!(structure.scatter(3..3).count(), 0);
    }
}
