//! Restoration of the Payload stream of a Call: the copies and RDMA Reads it takes.
//!
//! # Normal operation
//! A Responder that needs the stream in one piece provides [`Restoration::length`] octets of memory, carries out the
//! steps in any order, and has the unreduced stream once the Reads have completed. The parser of the upper layer then
//! decides whether the stream encodes a Call, and whether the reduced items are DDP-eligible ([`crate::rpc::binding`]).
//!
//! # Limits
//! The memory of the steps is proportional to the chunk lists in the message, whatever lengths
//! these claim. The caller's limit bounds the restored stream before anything is fetched.

use alloc::vec::Vec;
use core::ops::Range;

use super::layout::{Layout, RestoreFault, Source};
use super::{Reduced, Version};
use crate::verbs::{ClaimedSegment, Segment};
use crate::xdr::UNIT;

/// A plan to restore the Payload stream of one Call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoration {
    steps: Vec<Step>,
    length: usize,
}

/// One step of the restoration of a Payload stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy octets from the inline Payload stream.
    Copy {
        /// The offset in the inline Payload stream.
        from: usize,
        /// The range of the unreduced stream to copy them to.
        to: Range<usize>,
    },
    /// Fetch octets from the Requester by RDMA Read.
    Read {
        /// The Requester's memory, exactly as long as `to`.
        source: ClaimedSegment,
        /// The range of the unreduced stream to fetch them to.
        to: Range<usize>,
    },
    /// Fill the padding, which was not sent, with zeros.
    Zero {
        /// The range of the unreduced stream that the padding occupies.
        to: Range<usize>,
    },
}

impl Restoration {
    /// Returns the steps. Together they fill every octet of the unreduced stream once.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the length of the unreduced stream in octets.
    pub const fn length(&self) -> usize {
        self.length
    }
}

/// Plans the restoration of a Call whose message holds `inline` octets of the Payload stream.
///
/// `call` yields the segments of the Call chunk, `reads` those of the data item chunks with their positions. A version
/// 1 message has both in one Read list, in any order, with the Call chunk at position zero: the caller passes that list
/// as `reads`, and `call` is usually empty. The unreduced stream may have at most `length_max` octets.
///
/// # Errors
/// See [`RestoreFault`].
pub fn restore(
    version: Version,
    inline: usize,
    call: impl IntoIterator<Item = Segment>,
    reads: impl IntoIterator<Item = (u32, Segment)>,
    length_max: usize,
) -> Result<Restoration, RestoreFault> {
    let mut items: Vec<(u32, Segment)> = reads.into_iter().collect();
    let mut body: Vec<Segment> = call.into_iter().collect();
    if version == Version::One {
        // E23: version 1 lists come in any order. Segments of one chunk keep theirs.
        items.sort_by_key(|(position, _)| *position);
        let zeros = items.partition_point(|(position, _)| *position == 0);
        body.extend(items.drain(..zeros).map(|(_, segment)| segment));
    }
    let special = !body.is_empty();
    if special && inline > 0 {
        return Err(RestoreFault::TwoBodies);
    }
    let body_length = if special { total(&body)? } else { inline };
    // [V2-4.5.3-1] the body is a whole number of units. Version 1 bodies are judged by the parser of their stream.
    if version == Version::Two && !body_length.is_multiple_of(UNIT) {
        return Err(RestoreFault::Misaligned);
    }
    let chunks: Vec<&[(u32, Segment)]> = items.chunk_by(|a, b| a.0 == b.0).collect();
    let reduced: Vec<Reduced> =
        chunks.iter().map(|chunk| reduced(chunk)).collect::<Result<_, _>>()?;
    let layout = Layout::of(body_length, reduced, length_max)?;

    let mut body = Fetches::of(body.into_iter());
    let mut steps = Vec::new();
    for piece in layout.pieces() {
        let to = piece.to.clone();
        match piece.source {
            Source::Body { at } if !special => steps.push(Step::Copy { from: at, to }),
            // Pieces of the body come in order, so the octets left of it start with this piece.
            Source::Body { .. } => body.fill(to, &mut steps)?,
            Source::Item { index } => {
                let segments = chunks.get(index).copied().unwrap_or_default();
                Fetches::of(segments.iter().map(|(_, s)| *s)).fill(to, &mut steps)?;
            }
            Source::Padding => steps.push(Step::Zero { to }),
        }
    }
    Ok(Restoration { steps, length: layout.length() })
}

/// Returns the data item that one chunk stands for.
fn reduced(chunk: &[(u32, Segment)]) -> Result<Reduced, RestoreFault> {
    let sum = chunk.iter().try_fold(0_u32, |sum, (_, segment)| sum.checked_add(segment.length));
    let position = chunk.first().map_or(0, |(position, _)| *position);
    Ok(Reduced { position, length: sum.ok_or(RestoreFault::LengthWraps)? })
}

fn total(segments: &[Segment]) -> Result<usize, RestoreFault> {
    let sum = segments.iter().try_fold(0_u32, |sum, segment| sum.checked_add(segment.length));
    usize::try_from(sum.ok_or(RestoreFault::LengthWraps)?).map_err(|_| RestoreFault::TooLong)
}

/// Segments that are fetched in parts, in order.
struct Fetches<I> {
    segments: I,
    /// The rest of a segment that did not fit the previous range.
    left: Option<Segment>,
}

impl<I: Iterator<Item = Segment>> Fetches<I> {
    const fn of(segments: I) -> Self {
        Self { segments, left: None }
    }

    /// Plans the Reads that fill `to`. The segments together are as long as all ranges filled.
    fn fill(&mut self, to: Range<usize>, steps: &mut Vec<Step>) -> Result<(), RestoreFault> {
        let mut at = to.start;
        while at < to.end {
            let Some(segment) = self.left.take().or_else(|| self.segments.next()) else {
                debug_assert!(false, "the layout was made from these segments");
                return Err(RestoreFault::Beyond);
            };
            let room = u32::try_from(to.end.saturating_sub(at)).unwrap_or(u32::MAX);
            let taken = room.min(segment.length);
            // Empty segments are legal, and nothing is posted for them.
            if taken == 0 {
                continue;
            }
            let source =
                ClaimedSegment::try_from(segment).map_err(|_| RestoreFault::LengthWraps)?;
            let source = source.window(0, taken).map_err(|_| RestoreFault::LengthWraps)?;
            let end = at.saturating_add(usize::try_from(taken).unwrap_or(usize::MAX));
            steps.push(Step::Read { source, to: at..end });
            at = end;
            if taken < segment.length {
                self.left = Some(Segment {
                    handle: segment.handle,
                    length: segment.length.saturating_sub(taken),
                    offset: segment.offset.saturating_add(u64::from(taken)),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
