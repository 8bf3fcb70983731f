//! The segments of a chunk, kept apart from the message that they came in.

use haulage_proto::v2::header::Returned;
use haulage_proto::verbs::Segment;

/// Segments in the chunks of one direction of an RPC, ours and the peer's.
pub const SEGMENTS_MAX: usize = 16;

/// The segments of one chunk. Most chunks have one; more than [`SEGMENTS_FEW`] take a block of the heap.
#[derive(Clone, Debug)]
pub(crate) enum Segments {
    Few([Segment; SEGMENTS_FEW], u8),
    Many(Box<[Segment]>),
}

/// Segments that take no block of the heap.
const SEGMENTS_FEW: usize = 2;

impl Default for Segments {
    fn default() -> Self {
        Self::Few([Segment::default(); SEGMENTS_FEW], 0)
    }
}

impl Segments {
    /// Makes a chunk of one segment.
    #[inline]
    pub(crate) fn one(segment: Segment) -> Self {
        Self::Few([segment, Segment::default()], 1)
    }

    /// Collects at most [`SEGMENTS_MAX`] segments; the engine has refused longer chunks.
    pub(crate) fn collect(mut segments: impl Iterator<Item = Segment>) -> Self {
        let mut few = [Segment::default(); SEGMENTS_FEW];
        let mut count = 0;
        for place in &mut few {
            let Some(segment) = segments.next() else { return Self::Few(few, count) };
            *place = segment;
            count += 1;
        }
        match segments.next() {
            None => Self::Few(few, count),
            Some(next) => {
                let all = few.into_iter().chain([next]).chain(segments);
                Self::Many(all.take(SEGMENTS_MAX).collect())
            }
        }
    }

    /// Returns the segments in order.
    pub(crate) fn as_slice(&self) -> &[Segment] {
        match self {
            Self::Few(few, count) => few.get(..usize::from(*count)).unwrap_or_default(),
            Self::Many(segments) => segments,
        }
    }

    /// Returns the octets of all segments together, as a length of our own memory.
    pub(crate) fn octets(&self) -> usize {
        usize::try_from(self.length()).unwrap_or(usize::MAX)
    }

    /// Returns the chunk as a Reply returns it, with `length` octets written.
    pub(crate) fn returned(&self, length: usize) -> Returned<'_> {
        Returned { offered: self.as_slice(), length }
    }

    /// Returns the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns the octets of all segments together.
    pub(crate) fn length(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.length)).sum()
    }
}
