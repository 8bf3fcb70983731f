//! Reduction of a Payload stream: the octets of a data item that leave it, and those that stay.
//!
//! # Normal operation
//! The encoder knows where the data items are that it wants to move, and describes each by a
//! [`DataItem`]. [`reduce`] checks them against the stream once. The [`Reduction`] then gives the
//! octets that stay inline ([`Reduction::kept`]) and the chunk of each item
//! ([`Reduction::chunks`]).
//!
//! Both protocol versions reduce in the same way: roundup padding is neither inline nor in the chunk. Version 2
//! requires this, and Linux does so on version 1.

use core::ops::Range;

use super::Reduced;
use crate::xdr::{Reader, UNIT, pad};

/// The XDR types that can be DDP-eligible.
///
/// [V2-4.5.3.4-1] A union is not eligible as a whole, only the item in one of its arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A variable-length opaque or a string, also as an arm of a union. Its length word stays in
    /// the stream.
    Opaque,
    /// A counted array of anything but octets. Its count stays in the stream.
    Array,
    /// Optional data. Its discriminator stays in the stream.
    Optional,
    /// The arm of a union that is neither opaque, array nor optional data. The union's
    /// discriminator stays in the stream.
    Arm,
    /// A fixed-length opaque, all of which leaves the stream.
    Fixed,
}

impl Kind {
    /// Returns the length of the word that stays in the stream, in octets.
    const fn stays(self) -> usize {
        match self {
            Self::Opaque | Self::Array | Self::Optional | Self::Arm => UNIT,
            Self::Fixed => 0,
        }
    }
}

/// One data item of an encoded Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataItem {
    kind: Kind,
    at: usize,
    length: usize,
}

impl DataItem {
    /// Describes an item by its type, the offset `at` at which it begins in the stream, and the number of octets that
    /// can leave the stream. The item begins with the word that stays, if its type has one; roundup padding does not
    /// count.
    pub const fn new(kind: Kind, at: usize, length: usize) -> Self {
        Self { kind, at, length }
    }

    /// Describes a variable-length opaque or string of `length` octets whose length word is at
    /// offset `at`.
    pub const fn opaque(at: usize, length: usize) -> Self {
        Self::new(Kind::Opaque, at, length)
    }

    /// Returns the XDR type of the item.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the offset at which the item begins in the stream.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of octets that can leave the stream, without padding.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Returns the range of the item's octets in the unreduced stream, without padding.
    pub const fn data(&self) -> Range<usize> {
        let start = self.at.saturating_add(self.kind.stays());
        start..start.saturating_add(self.length)
    }

    /// Returns the range that leaves the stream: the item's octets and their padding.
    const fn gone(&self) -> Range<usize> {
        // [V2-4.5.3.2-2] of an array all elements leave whole; [V2-4.5.3.3-2] of optional data, the data if present.
        let data = self.data();
        data.start..data.end.saturating_add(pad(self.length))
    }

    /// Checks that the stream holds the item this describes.
    fn check(&self, stream: &[u8]) -> Result<(), ReduceFault> {
        // [V2-4.5.1-2] a position is a multiple of four.
        if !self.at.is_multiple_of(UNIT) {
            return Err(ReduceFault::Misaligned);
        }
        // [V2-4.5.3-2] the octets that leave the stream are a whole number of units.
        if self.kind != Kind::Opaque && self.kind != Kind::Fixed && pad(self.length) != 0 {
            return Err(ReduceFault::Misaligned);
        }
        let gone = self.gone();
        if gone.end > stream.len() || u32::try_from(gone.end).is_err() {
            return Err(ReduceFault::Outside);
        }
        if self.is_described_in(stream) { Ok(()) } else { Err(ReduceFault::OtherItem) }
    }

    /// Returns whether the word of a stream that stays, where the item begins, describes the item. The octets that can
    /// leave may have left the stream already, and those of items before this one then, too.
    pub fn is_described_in(&self, stream: &[u8]) -> bool {
        let Ok(length) = u32::try_from(self.length) else { return false };
        let word = stream.get(self.at..).and_then(|rest| Reader::new(rest).u32().ok());
        self.at.is_multiple_of(UNIT)
            && match (self.kind, word) {
                (Kind::Fixed, _) => self.at <= stream.len(),
                // [V2-4.5.3.1-1] [V2-4.5.3.1-3] the length word stays, and is the length of the chunk, too.
                (Kind::Opaque, Some(word)) => word == length,
                // [V2-4.5.3.2-1] the count stays; no element is shorter than a unit.
                (Kind::Array, Some(count)) => count <= length / 4 && (count == 0) == (length == 0),
                // [V2-4.5.3.3-1] the discriminator stays, which says whether there is data to move.
                (Kind::Optional, Some(present)) => present == u32::from(length > 0),
                //~ V2-4.5.3.4-2: `true` -> `false`
                (Kind::Arm, Some(_)) => true,
                (_, None) => false,
            }
    }
}

/// Why a stream cannot be reduced by an item: the description does not match the encoded stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReduceFault {
    /// The offset or the length of the item is not a multiple of the XDR unit.
    Misaligned,
    /// The item ends beyond the stream.
    Outside,
    /// The word that stays does not match the item.
    OtherItem,
    /// The items overlap or are not in stream order.
    Order,
}

/// A plan of the items that leave a Payload stream.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    items: &'a [DataItem],
    unreduced: usize,
    length: usize,
}

/// Plans the reduction of an encoded Payload stream by `items`, which are in stream order.
///
/// # Errors
/// If the items do not match the stream; see [`ReduceFault`].
pub fn reduce<'a>(stream: &[u8], items: &'a [DataItem]) -> Result<Reduction<'a>, ReduceFault> {
    let (mut end, mut length) = (0, stream.len());
    for item in items {
        item.check(stream)?;
        if item.at < end {
            return Err(ReduceFault::Order);
        }
        let gone = item.gone();
        end = gone.end;
        length = length.saturating_sub(gone.len());
    }
    Ok(Reduction { items, unreduced: stream.len(), length })
}

impl<'a> Reduction<'a> {
    /// Returns the length of the reduced stream in octets.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Returns the position and length of the chunk that stands for each item, in order.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = Reduced> + use<'a> {
        self.items.iter().map(|item| {
            let data = item.data();
            // [V2-4.5.1-1] positions count from the start of the unreduced stream.
            let position = u32::try_from(data.start).unwrap_or(u32::MAX);
            // [V2-4.5.3.1-2] [R5666-3.7-2] the chunk leaves out the padding.
            //~ R5666-3.7-2: `data.len()` -> `item.gone().len()`
            Reduced { position, length: u32::try_from(data.len()).unwrap_or(u32::MAX) }
        })
    }

    /// Returns the ranges of the unreduced stream that make up the reduced one, in order, none of them empty.
    pub fn kept(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let end = self.unreduced..self.unreduced;
        let gone = self.items.iter().map(DataItem::gone).chain(core::iter::once(end));
        let parts = gone.scan(0, |at, gone| {
            let kept = *at..gone.start;
            *at = gone.end;
            Some(kept)
        });
        parts.filter(|kept| !kept.is_empty())
    }
}

#[cfg(test)]
mod tests;
