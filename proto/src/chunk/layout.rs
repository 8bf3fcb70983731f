//! The layout of an unreduced Payload stream: the source of each range of its octets.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::Reduced;
use crate::xdr::{UNIT, pad};

/// A part of an unreduced Payload stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The source of the octets.
    pub source: Source,
    /// The range of the unreduced stream that this piece fills; never empty.
    pub to: Range<usize>,
}

/// The source of a part of an unreduced Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The reduced stream, from offset `at` on.
    Body {
        /// The offset in the reduced stream.
        at: usize,
    },
    /// All octets of one reduced item.
    Item {
        /// The index of the item, from 0.
        index: usize,
    },
    /// Roundup padding, which the receiver fills with zeros.
    Padding,
}

/// Why a Payload stream cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreFault {
    /// A position is not a multiple of four, or zero where only data items may stand.
    BadPosition,
    /// A position lies before the end of the item before it, padding included.
    Overlap,
    /// A position lies beyond what the reduced stream holds.
    Beyond,
    /// The reduced stream is not a whole number of units.
    Misaligned,
    /// Both the message and a Call chunk hold a Payload stream.
    TwoBodies,
    /// The end of a segment or the length of a chunk exceeds the range of its field.
    LengthWraps,
    /// The unreduced stream would be longer than allowed.
    TooLong,
}

impl RestoreFault {
    /// Returns the rule that was broken, in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::BadPosition => "a position is zero or not a multiple of four",
            Self::Overlap => "a data item starts within the one before it",
            Self::Beyond => "a position is beyond the reduced Payload stream",
            Self::Misaligned => "a Payload stream is not a multiple of four octets",
            Self::TwoBodies => "a Payload stream is inline and in a Call chunk",
            Self::LengthWraps => "a segment or chunk is longer than its field can say",
            Self::TooLong => "the Payload stream is longer than allowed",
        }
    }
}

impl fmt::Display for RestoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl core::error::Error for RestoreFault {}

/// An unreduced Payload stream as pieces, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pieces: Vec<Piece>,
    length: usize,
}

impl Layout {
    /// Lays out a stream from `body` octets that were not reduced and the reduced `items`, in stream order. The Read
    /// list of a Call gives the positions of its items; the parser of a Reply finds those of its items. The unreduced
    /// stream may have at most `length_max` octets.
    ///
    /// # Errors
    /// See [`RestoreFault`].
    pub fn of(
        body: usize,
        items: impl IntoIterator<Item = Reduced>,
        length_max: usize,
    ) -> Result<Self, RestoreFault> {
        let mut layout = Self { pieces: Vec::new(), length: 0 };
        let mut taken = 0_usize;
        for (index, item) in items.into_iter().enumerate() {
            let position = usize::try_from(item.position).map_err(|_| RestoreFault::TooLong)?;
            let length = usize::try_from(item.length).map_err(|_| RestoreFault::TooLong)?;
            // [V2-4.5.1-2] no item is reduced at position 0, where the RPC header starts.
            if position == 0 || !position.is_multiple_of(UNIT) {
                return Err(RestoreFault::BadPosition);
            }
            // [V2-4.5.1-1] a position counts the items restored in front of it as well.
            let kept = position.checked_sub(layout.length).ok_or(RestoreFault::Overlap)?;
            let after = taken.checked_add(kept).filter(|after| *after <= body);
            let after = after.ok_or(RestoreFault::Beyond)?;
            layout.push(Source::Body { at: taken }, kept, length_max)?;
            taken = after;
            layout.push(Source::Item { index }, length, length_max)?;
            // [V2-4.5.3-2] [V2-4.5.3.1-2] [R5666-3.7-1] the sender omitted the padding; restore it.
            layout.push(Source::Padding, pad(length), length_max)?;
        }
        let rest = body.saturating_sub(taken);
        layout.push(Source::Body { at: taken }, rest, length_max)?;
        Ok(layout)
    }

    /// Returns the pieces in stream order, without empty ones.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the length of the unreduced stream in octets.
    pub const fn length(&self) -> usize {
        self.length
    }

    fn push(
        &mut self,
        source: Source,
        count: usize,
        length_max: usize,
    ) -> Result<(), RestoreFault> {
        let end = self.length.checked_add(count).filter(|end| *end <= length_max);
        let end = end.ok_or(RestoreFault::TooLong)?;
        if count > 0 {
            self.pieces.push(Piece { source, to: self.length..end });
        }
        self.length = end;
        Ok(())
    }
}
