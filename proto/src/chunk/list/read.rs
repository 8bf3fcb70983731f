//! Read lists: chunks that a Responder fetches by RDMA Read, each segment with its position.

use core::fmt;

use super::{ListFault, Rules, decode_segment, entries, more};
use crate::verbs::{Handle, Segment};
use crate::xdr::{Reader, Truncated, Writer};

/// A Read list, borrowed from the message it arrived in.
#[derive(Clone, Copy, Default)]
pub struct ReadList<'a> {
    /// Whole entries, each [`READ_ENTRY`] octets: discriminator, position, segment.
    bytes: &'a [u8],
    chunks: u32,
}

impl<'a> ReadList<'a> {
    /// Parses a list of data item chunks, its end included.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        // [V2-4.5.1-2] a position is a multiple of four; [V2-6.3.7-1] position zero is for Call chunks.
        //~ V2-4.5.1-2: `0 && position.is_multiple_of(4)` -> `0`
        Self::decode_at(r, Rules::Version2, |position| position != 0 && position.is_multiple_of(4))
    }

    /// Parses the list of segments that make up a Call chunk, its end included.
    pub fn decode_call_chunk(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        // [V2-6.6.3-1] all segments of a Call chunk have the position of the start of the Payload stream.
        Self::decode_at(r, Rules::Version2, |position| position == 0)
    }

    /// Parses a version 1 Read list, its end included.
    ///
    /// Position zero is the RPC message itself. Chunks may come in any order, and the segments of
    /// one chunk need not be adjacent: a caller that needs them in order sorts them.
    pub fn decode_v1(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        Self::decode_at(r, Rules::Version1, |position| position.is_multiple_of(4))
    }

    #[inline]
    fn decode_at(
        r: &mut Reader<'a>,
        rules: Rules,
        allowed: impl Fn(u32) -> bool,
    ) -> Result<Self, ListFault> {
        // Most lists are empty, and for those this inlined part is all that runs.
        let whole = r.rest();
        if !more(r, rules)? {
            return Ok(Self::default());
        }
        // The cursor goes in and out by value: a caller that gets this far seldom keeps it in registers.
        let (list, after) = Self::decode_entries(*r, whole, rules, allowed)?;
        *r = after;
        Ok(list)
    }

    /// Parses a list from behind the discriminator of its first entry.
    #[inline(never)]
    fn decode_entries(
        mut r: Reader<'a>,
        whole: &'a [u8],
        rules: Rules,
        allowed: impl Fn(u32) -> bool,
    ) -> Result<(Self, Reader<'a>), ListFault> {
        let r = &mut r;
        let (mut chunks, mut last, mut sum) = (0_u32, None, 0_u64);
        loop {
            let at = r.position();
            let position = r.u32()?;
            let segment = decode_segment(r)?;
            if !allowed(position) {
                return Err(ListFault::BadPosition { at });
            }
            match last {
                // [V2-4.5.1.1-1] E5: positions do not decrease.
                Some(last) if position < last && rules == Rules::Version2 => {
                    return Err(ListFault::PositionOrder { at });
                }
                Some(last) if position == last => {}
                _ => {
                    chunks = chunks.saturating_add(1);
                    sum = 0;
                }
            }
            last = Some(position);
            sum = sum.saturating_add(u64::from(segment.length));
            if sum > u64::from(u32::MAX) {
                return Err(ListFault::LengthWraps { at });
            }
            if !more(r, rules)? {
                return Ok((Self { bytes: entries(whole, r), chunks }, *r));
            }
        }
    }

    /// Returns the number of chunks, which are runs of segments that share a position. (In an unsorted version 1 list
    /// one chunk may consist of several runs.)
    pub const fn chunk_count(&self) -> u32 {
        self.chunks
    }

    /// Returns whether any segment has this handle.
    #[inline]
    pub fn names(&self, handle: Handle) -> bool {
        let (entries, _) = self.bytes.as_chunks::<READ_ENTRY>();
        let segment = |entry| read_segment(entry).is_some_and(|segment| segment.handle == handle);
        !self.is_empty() && entries.iter().any(segment)
    }

    /// Returns whether the list has no entries.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = ReadChunk<'a>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let position = read_position(rest)?;
            let same =
                rest.chunks_exact(READ_ENTRY).take_while(|e| read_position(e) == Some(position));
            let (chunk, after) = rest.split_at_checked(same.count().saturating_mul(READ_ENTRY))?;
            rest = after;
            Some(ReadChunk { position, bytes: chunk })
        })
    }

    /// Returns all segments in order, each with its position.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Segment)> + use<'a> {
        self.chunks().flat_map(|chunk| chunk.segments().map(move |s| (chunk.position, s)))
    }

    /// Appends a list of segments with their positions, which must not decrease.
    pub fn encode(
        w: &mut Writer<'_>,
        entries: impl IntoIterator<Item = (u32, Segment)>,
    ) -> Result<(), Truncated> {
        for (position, segment) in entries {
            w.u32(1)?;
            w.u32(position)?;
            segment.encode(w)?;
        }
        w.u32(0)
    }

    /// Returns the encoded length of a list of `segments` segments, in octets.
    pub const fn wire_len(segments: usize) -> usize {
        segments.saturating_mul(READ_ENTRY).saturating_add(4)
    }
}

/// One data item of a Call, which the Responder fetches by RDMA Read.
#[derive(Clone, Copy)]
pub struct ReadChunk<'a> {
    position: u32,
    bytes: &'a [u8],
}

impl<'a> ReadChunk<'a> {
    /// Returns the position of the item in the unreduced Payload stream.
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        self.bytes.as_chunks().0.iter().filter_map(read_segment)
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> usize {
        self.bytes.chunks_exact(READ_ENTRY).len()
    }
}

impl fmt::Debug for ReadList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.chunks()).finish()
    }
}

impl fmt::Debug for ReadChunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = fmt::from_fn(|f| f.debug_list().entries(self.segments()).finish());
        let mut chunk = f.debug_struct("ReadChunk");
        chunk.field("position", &self.position).field("segments", &segments).finish()
    }
}

/// Returns the segment of one Read list entry.
#[inline]
fn read_segment(entry: &[u8; READ_ENTRY]) -> Option<Segment> {
    Segment::decode(&mut Reader::new(entry.get(8..)?)).ok()
}

/// Returns the position of the Read list entry at the start of `bytes`.
fn read_position(bytes: &[u8]) -> Option<u32> {
    Reader::new(bytes.get(4..)?).u32().ok()
}

/// The encoded length of one Read list entry: discriminator, position, segment.
const READ_ENTRY: usize = 4 + 4 + Segment::WIRE_LEN;
