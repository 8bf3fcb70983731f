//! Read and Write lists as they arrive: validated byte ranges that iterate without failing.

use core::fmt;

use crate::verbs::{ClaimedSegment, Handle, Segment};
use crate::xdr::{Reader, Truncated, UNIT, Writer};

/// Why a chunk list was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A Read list, borrowed from the message it arrived in.
#[derive(Clone, Copy, Default)]
pub struct ReadList<'a> {
    /// Whole entries, each [`READ_ENTRY`] octets: discriminator, position, segment.
    bytes: &'a [u8],
    chunks: u32,
}

impl<'a> ReadList<'a> {
    /// Parses a list of data item chunks, up to and with its end.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        // [V2-4.5.1-2] a multiple of four; [V2-6.3.7-1] zero is for Call chunks.
        Self::decode_at(r, Rules::Version2, |position| position != 0 && position.is_multiple_of(4))
    }

    /// Parses the list of segments that is a Call chunk, up to and with its end.
    pub fn decode_call_chunk(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        // [V2-6.6.3-1] all of it stands at the start of the Payload stream.
        Self::decode_at(r, Rules::Version2, |position| position == 0)
    }

    /// Parses a version 1 list, up to and with its end.
    ///
    /// Position zero is the RPC message itself. Chunks stand in any order, and the segments of one
    /// need not be together: whoever wants them in order sorts them.
    pub fn decode_v1(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        Self::decode_at(r, Rules::Version1, |position| position.is_multiple_of(4))
    }

    #[inline]
    fn decode_at(
        r: &mut Reader<'a>,
        rules: Rules,
        allowed: impl Fn(u32) -> bool,
    ) -> Result<Self, ListFault> {
        // Most lists are empty: for those this is all, at its caller's.
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
                // [V2-4.5.1.1-1] E5: non-decreasing.
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

    /// Returns how many chunks there are: runs of segments that share a position. (In an unsorted list
    /// of version 1 a chunk may be several runs.)
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

    /// Returns whether there is nothing to read.
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

    /// Appends a list of segments with their positions, which never decrease.
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

    /// Octets of a list of so many segments.
    pub const fn wire_len(segments: usize) -> usize {
        segments.saturating_mul(READ_ENTRY).saturating_add(4)
    }
}

/// One data item of a Call, to be fetched by RDMA Read.
#[derive(Clone, Copy)]
pub struct ReadChunk<'a> {
    position: u32,
    bytes: &'a [u8],
}

impl<'a> ReadChunk<'a> {
    /// Returns where the item stands in the unreduced Payload stream.
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        self.bytes.as_chunks().0.iter().filter_map(read_segment)
    }

    /// Returns how many segments there are.
    pub fn segment_count(&self) -> usize {
        self.bytes.chunks_exact(READ_ENTRY).len()
    }
}

/// A Write list, borrowed from the message it arrived in.
#[derive(Clone, Copy, Default)]
pub struct WriteList<'a> {
    /// Whole entries: discriminator, segment count, segments.
    bytes: &'a [u8],
    chunks: u32,
}

impl<'a> WriteList<'a> {
    /// Parses a list, up to and with its end.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        Self::decode_by(r, Rules::Version2)
    }

    /// Parses a version 1 list, up to and with its end.
    pub fn decode_v1(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        Self::decode_by(r, Rules::Version1)
    }

    #[inline(always)]
    fn decode_by(r: &mut Reader<'a>, rules: Rules) -> Result<Self, ListFault> {
        let whole = r.rest();
        if !more(r, rules)? {
            return Ok(Self::default());
        }
        Self::decode_entries(r, whole, rules)
    }

    /// Parses a list from behind the discriminator of its first chunk.
    #[inline(always)]
    fn decode_entries(
        r: &mut Reader<'a>,
        whole: &'a [u8],
        rules: Rules,
    ) -> Result<Self, ListFault> {
        let mut chunks = 0_u32;
        loop {
            WriteChunk::decode(r)?;
            // Fewer than the words of the message.
            chunks = chunks.wrapping_add(1);
            if !more(r, rules)? {
                return Ok(Self { bytes: entries(whole, r), chunks });
            }
        }
    }

    /// Parses an optional single chunk, such as a Reply chunk.
    #[inline]
    pub fn decode_optional(r: &mut Reader<'a>) -> Result<Option<WriteChunk<'a>>, ListFault> {
        if more(r, Rules::Version2)? { WriteChunk::decode(r).map(Some) } else { Ok(None) }
    }

    /// Parses an optional single chunk of version 1.
    pub fn decode_optional_v1(r: &mut Reader<'a>) -> Result<Option<WriteChunk<'a>>, ListFault> {
        if more(r, Rules::Version1)? { WriteChunk::decode(r).map(Some) } else { Ok(None) }
    }

    /// Returns how many chunks there are.
    pub const fn chunk_count(&self) -> u32 {
        self.chunks
    }

    /// Returns the chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = WriteChunk<'a>> + use<'a> {
        let mut r = Reader::new(self.bytes);
        core::iter::from_fn(move || {
            r.u32().ok()?;
            WriteChunk::take(&mut r).ok()
        })
    }

    /// Returns whether any segment has this handle.
    #[inline]
    pub fn names(&self, handle: Handle) -> bool {
        let mut r = Reader::new(self.bytes);
        while r.u32().is_ok() {
            if WriteChunk::take(&mut r).is_ok_and(|chunk| chunk.names(handle)) {
                return true;
            }
        }
        false
    }

    /// Appends a list of chunks, or the empty one.
    pub fn encode(
        w: &mut Writer<'_>,
        chunks: impl IntoIterator<Item = impl ExactSizeIterator<Item = Segment>>,
    ) -> Result<(), Truncated> {
        for segments in chunks {
            w.u32(1)?;
            WriteChunk::encode(w, segments)?;
        }
        w.u32(0)
    }

    /// Appends an optional single chunk, such as a Reply chunk.
    pub fn encode_optional(
        w: &mut Writer<'_>,
        chunk: Option<impl ExactSizeIterator<Item = Segment>>,
    ) -> Result<(), Truncated> {
        match chunk {
            Some(segments) => {
                w.u32(1)?;
                WriteChunk::encode(w, segments)
            }
            None => w.u32(0),
        }
    }

    /// Octets of a list of chunks of so many segments each.
    pub fn wire_len(chunks: impl IntoIterator<Item = usize>) -> usize {
        let entries = chunks.into_iter().map(|segments| Self::wire_len_optional(Some(segments)));
        entries.fold(4, usize::saturating_add)
    }

    /// Octets of an optional single chunk of so many segments.
    pub const fn wire_len_optional(segments: Option<usize>) -> usize {
        match segments {
            Some(count) => count.saturating_mul(Segment::WIRE_LEN).saturating_add(8),
            None => 4,
        }
    }
}

/// One counted array of segments.
#[derive(Clone, Copy)]
pub struct WriteChunk<'a> {
    bytes: &'a [u8],
}

impl<'a> WriteChunk<'a> {
    /// Parses one chunk.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        let chunk = Self::take(r)?;
        let (mut sum, mut fits) = (0_u64, true);
        for segment in chunk.segments() {
            // Fewer than 2^32 lengths, each below 2^32.
            sum = sum.wrapping_add(u64::from(segment.length));
            fits &= !ends_beyond(&segment);
        }
        if fits && sum <= u64::from(u32::MAX) { Ok(chunk) } else { Err(chunk.wraps(r.position())) }
    }

    /// Says which segment of this chunk, which ends at `end`, is one too many.
    #[cold]
    fn wraps(self, end: usize) -> ListFault {
        let mut sum = 0_u64;
        let before = self.segments().take_while(|segment| {
            sum = sum.saturating_add(u64::from(segment.length));
            !ends_beyond(segment) && sum <= u64::from(u32::MAX)
        });
        let skipped = before.count().saturating_mul(Segment::WIRE_LEN);
        let start = end.saturating_sub(self.bytes.len());
        ListFault::LengthWraps { at: start.saturating_add(skipped) }
    }

    /// Takes the octets of one chunk.
    #[inline]
    fn take(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let at = r.position();
        let count = usize::try_from(r.u32()?).map_err(|_| Truncated { at })?;
        // The bytes are there before anything loops over their count.
        let length = count.checked_mul(Segment::WIRE_LEN).ok_or(Truncated { at })?;
        Ok(Self { bytes: r.take(length)? })
    }

    /// Returns whether any segment has this handle.
    #[inline]
    pub fn names(&self, handle: Handle) -> bool {
        self.segments().any(|segment| segment.handle == handle)
    }

    /// Appends one chunk.
    pub fn encode(
        w: &mut Writer<'_>,
        segments: impl ExactSizeIterator<Item = Segment>,
    ) -> Result<(), Truncated> {
        w.u32(u32::try_from(segments.len()).map_err(|_| Truncated { at: w.position() })?)?;
        for segment in segments {
            segment.encode(w)?;
        }
        Ok(())
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> Segments<'a> {
        Segments(self.bytes.as_chunks().0.iter())
    }
}

/// The segments of a Write chunk.
#[derive(Clone)]
pub struct Segments<'a>(core::slice::Iter<'a, [u8; Segment::WIRE_LEN]>);

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        Segment::decode(&mut Reader::new(self.0.next()?)).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Segments<'_> {}

// The bytes of a list hold live handles, so what is printed is what they mean.

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

impl fmt::Debug for WriteList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.chunks()).finish()
    }
}

impl fmt::Debug for WriteChunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segments().fmt(f)
    }
}

impl fmt::Debug for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
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

/// Returns the segment of one Read list entry.
#[inline]
fn read_segment(entry: &[u8; READ_ENTRY]) -> Option<Segment> {
    Segment::decode(&mut Reader::new(entry.get(8..)?)).ok()
}

/// Returns the position of the Read list entry at the start of `bytes`.
fn read_position(bytes: &[u8]) -> Option<u32> {
    Reader::new(bytes.get(4..)?).u32().ok()
}

/// Octets of one Read list entry: discriminator, position, segment.
const READ_ENTRY: usize = 4 + 4 + Segment::WIRE_LEN;

#[cfg(test)]
mod tests;
