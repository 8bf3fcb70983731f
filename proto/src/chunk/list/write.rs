//! Write lists and Reply chunks: the memory that results are written to, and the lengths written.

use core::fmt;

use super::{ListFault, Rules, ends_beyond, entries, more};
use crate::verbs::{Handle, Segment};
use crate::xdr::{Reader, Truncated, Writer};

/// A Write list, borrowed from the message it arrived in.
#[derive(Clone, Copy, Default)]
pub struct WriteList<'a> {
    /// Whole entries: discriminator, segment count, segments.
    bytes: &'a [u8],
    chunks: u32,
}

impl<'a> WriteList<'a> {
    /// Parses a version 2 Write list, its end included.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, ListFault> {
        Self::decode_by(r, Rules::Version2)
    }

    /// Parses a version 1 Write list, its end included.
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
            // A list has fewer chunks than the message has words, so the count never wraps.
            chunks = chunks.wrapping_add(1);
            if !more(r, rules)? {
                return Ok(Self { bytes: entries(whole, r), chunks });
            }
        }
    }

    /// Parses an optional chunk of version 2, such as a Reply chunk.
    #[inline]
    pub fn decode_optional(r: &mut Reader<'a>) -> Result<Option<WriteChunk<'a>>, ListFault> {
        if more(r, Rules::Version2)? { WriteChunk::decode(r).map(Some) } else { Ok(None) }
    }

    /// Parses an optional chunk of version 1, such as a Reply chunk.
    pub fn decode_optional_v1(r: &mut Reader<'a>) -> Result<Option<WriteChunk<'a>>, ListFault> {
        if more(r, Rules::Version1)? { WriteChunk::decode(r).map(Some) } else { Ok(None) }
    }

    /// Returns the number of chunks.
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

    /// Appends a list of chunks, which may be empty.
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

    /// Appends an optional chunk, such as a Reply chunk.
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

    /// Returns the encoded length of a Write list in octets; `chunks` yields the number of segments
    /// of each chunk.
    pub fn wire_len(chunks: impl IntoIterator<Item = usize>) -> usize {
        let entries = chunks.into_iter().map(|segments| Self::wire_len_optional(Some(segments)));
        entries.fold(4, usize::saturating_add)
    }

    /// Returns the encoded length of an optional chunk of `segments` segments, in octets.
    pub const fn wire_len_optional(segments: Option<usize>) -> usize {
        match segments {
            Some(count) => count.saturating_mul(Segment::WIRE_LEN).saturating_add(8),
            None => 4,
        }
    }
}

/// One Write chunk or Reply chunk: a counted array of segments.
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
            // The sum of fewer than 2^32 lengths, each below 2^32, never wraps.
            sum = sum.wrapping_add(u64::from(segment.length));
            fits &= !ends_beyond(&segment);
        }
        if fits && sum <= u64::from(u32::MAX) { Ok(chunk) } else { Err(chunk.wraps(r.position())) }
    }

    /// Returns the fault for the first segment that makes this chunk, which ends at offset `end`,
    /// too long.
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
