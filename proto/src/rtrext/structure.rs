//! How a receive buffer is made up: `xmrbs_buf` (sections 7.2, 8.3).
//!
//! A Receive fills the segments of its buffer in order, so where an octet of a message lands follows
//! from its offset alone. A segment can be *targetable*: meant for bulk data. Targetable segments are
//! numbered through all transmissions of a group, and the numbers count those that stay empty too.

use core::ops::Range;

use super::Malformed;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// `xmrbs_seg`: one contiguous part of a receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSegment {
    /// `xmrseg_length`: its octets.
    pub length: u32,
    /// `xmrseg_align`: its guaranteed alignment.
    pub align: u32,
    /// `xmrseg_flags`: what else it is.
    pub flags: u32,
}

impl BufferSegment {
    /// Returns whether bulk data may be placed here.
    pub const fn is_targetable(&self) -> bool {
        // [RTR-7.2-1]
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
    /// Makes the structure of buffers with these segments; `None` if there are none or too many, one
    /// is empty, or their sum is beyond 2^32.
    pub fn new(segments: &[BufferSegment]) -> Option<Self> {
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 0 };
        for segment in segments {
            structure.push(*segment)?;
        }
        (structure.count > 0).then_some(structure)
    }

    /// Makes the structure of buffers in one piece, which is the default; nothing may be placed in it
    /// [RTR-5.3-1].
    pub fn single(length: u32) -> Self {
        let segment = BufferSegment { length: length.max(1), align: 1, flags: 0 };
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 1 };
        if let Some(first) = structure.segments.first_mut() {
            *first = segment;
        }
        structure
    }

    /// Parses the value of the Receive Buffer Structure property. Gives `None` for a structure that
    /// contradicts itself or has more than [`SEGMENTS_MAX`] segments: the default holds, as for any
    /// value that cannot be made sense of (section 8.1, E16).
    pub fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let length = r.u32()?;
        let groups = r.u32()?;
        let mut structure = Self { segments: [BufferSegment::default(); SEGMENTS_MAX], count: 0 };
        let mut readable = Some(());
        // Each takes four words, so a count beyond the bytes ends in `Truncated` soon.
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

    /// Octets of the property's value.
    pub fn wire_len(&self) -> usize {
        self.groups().count().saturating_mul(4 * UNIT).saturating_add(2 * UNIT)
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> &[BufferSegment] {
        self.segments.get(..self.count).unwrap_or_default()
    }

    /// Returns the octets of a whole buffer.
    pub fn length(&self) -> u32 {
        self.segments().iter().fold(0, |sum, segment| sum.saturating_add(segment.length))
    }

    /// Returns how many segments of one buffer are targetable.
    pub fn targetable_count(&self) -> u32 {
        u32::try_from(self.targetable().count()).unwrap_or(u32::MAX)
    }

    /// Returns the targetable segments of one buffer: their indices, and which octets of a message
    /// they hold.
    pub fn targetable(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let all = self.ranges().enumerate().zip(self.segments());
        all.filter(|(_, segment)| segment.is_targetable()).map(|(place, _)| place)
    }

    /// Returns where the octets `range` of a message land: indices of segments, and ranges in them.
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

    /// Which octets of a message each segment holds.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.segments().iter().scan(0_usize, |at, segment| {
            let start = *at;
            *at = start.saturating_add(usize::try_from(segment.length).unwrap_or(usize::MAX));
            Some(start..*at)
        })
    }

    /// Runs of like segments: `xmrbs_group`.
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

/// Segments in the largest structure we make use of.
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
