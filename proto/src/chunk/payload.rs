//! A reader of Payload streams from which data items may have been reduced.

use super::{Reduced, Version};
use crate::v1::padding::Padding;
use crate::xdr::{Reader, Truncated};

/// A cursor over an inline Payload stream that accounts for the data items missing from it.
///
/// It reads the stream and returns the lengths of reduced items, whose octets stay in their chunks. In a Call the
/// position of a Read chunk identifies the reduced item; in a Reply each Write chunk stands for one DDP-eligible
/// result, in order.
#[derive(Clone, Debug)]
pub struct PayloadReader<'a> {
    reader: Reader<'a>,
    missing: Missing<'a>,
    /// The number of octets before this point that are in the unreduced stream only.
    removed: u64,
    version: Version,
}

/// The reduced items that were not taken yet: the next one, and those after it.
#[derive(Clone, Copy, Debug)]
enum Missing<'a> {
    Nothing,
    Call((u32, u64), &'a [Reduced]),
    Reply(Returned, &'a [Returned]),
    /// Nothing, but long opaques have padding in front of them. The stream begins at this offset of its message.
    Padding(Padding, u32),
}

/// A Write chunk returned in a Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// The length of the chunk as offered, in octets.
    pub offered: u32,
    /// The number of octets written into the chunk.
    pub written: u32,
}

/// A DDP-eligible opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The opaque is in the Payload stream.
    Unreduced(&'a [u8]),
    /// Only the length word is in the Payload stream; the octets are in a chunk.
    Reduced {
        /// The length of the opaque in octets.
        length: u64,
    },
}

impl<'a> PayloadReader<'a> {
    /// Creates a reader of the arguments of a Call, which start at offset `at` of its Payload
    /// stream. `chunk` is the position and length of its Read chunk.
    #[inline]
    pub fn call(payload: &'a [u8], at: usize, chunk: Option<(u32, u64)>) -> Self {
        let missing = chunk.map_or(Missing::Nothing, |chunk| Missing::Call(chunk, &[]));
        Self::new(payload, at, missing)
    }

    /// Creates a reader of the arguments of a Call with any number of Read chunks, in ascending
    /// order of position.
    pub fn call_of_many(payload: &'a [u8], at: usize, chunks: &'a [Reduced]) -> Self {
        Self::new(payload, at, Missing::first_of_call(chunks))
    }

    /// Creates a reader of the results of a Reply, which start at offset `at` of its Payload
    /// stream. `reduced` is the number of octets written into the only Write chunk, which is taken
    /// to be large enough for any item.
    pub fn reply(payload: &'a [u8], at: usize, reduced: Option<u32>) -> Self {
        let missing = reduced.map_or(Missing::Nothing, |written| {
            Missing::Reply(Returned { offered: u32::MAX, written }, &[])
        });
        Self::new(payload, at, missing)
    }

    /// Creates a reader of the results of a Reply with any number of Write chunks.
    #[inline]
    pub fn reply_of_many(payload: &'a [u8], at: usize, chunks: &'a [Returned]) -> Self {
        Self::new(payload, at, Missing::first_of_reply(chunks))
    }

    /// Sets the version whose rules the reader applies; the default is version 2. On version 1 a chunk may contain the
    /// padding of its item, and a result may be inline although its Write chunk is large enough.
    #[must_use]
    pub const fn of_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Has the reader pass over the padding of an `RDMA_MSGP` without reduced items, whose Payload stream begins at offset
    /// `base` of the message. The padding must be [usable](Padding::is_usable).
    #[must_use]
    pub const fn padded(mut self, padding: Padding, base: u32) -> Self {
        self.missing = Missing::Padding(padding, base);
        self
    }

    /// Returns the padding that the reader passes over, and the offset of the next octet in the message.
    pub fn padding(&self) -> Option<(Padding, u32)> {
        let Missing::Padding(padding, base) = self.missing else { return None };
        let position = u32::try_from(self.reader.position()).unwrap_or(u32::MAX);
        Some((padding, base.saturating_add(position)))
    }

    /// Returns the version whose rules the reader applies.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Takes an unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.reader.u32()
    }

    /// Takes an unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.reader.u64()
    }

    /// Takes an opaque of at most `max` octets that is never reduced.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        match self.missing {
            Missing::Padding(padding, base) => self.padded_opaque(padding, base, max),
            _ => self.reader.opaque(max),
        }
    }

    /// Takes `length` octets without a length word, and their padding: an opaque of a fixed length, or an item of another
    /// type that was not reduced.
    pub fn fixed(&mut self, length: usize) -> Result<&'a [u8], Truncated> {
        let octets = self.reader.take(length)?;
        self.reader.skip_pad(length)?;
        Ok(octets)
    }

    /// Takes a DDP-eligible opaque. An inline opaque has at most `max` octets. The length word of a
    /// reduced opaque must equal the length of its chunk, and neither octets nor padding follow the
    /// word.
    pub fn eligible_opaque(&mut self, max: usize) -> Result<Item<'a>, Truncated> {
        let at = self.reader.position();
        let mut ahead = self.clone();
        // [V2-4.5.3.1-1] the length word of a reduced item stays; its octets and padding do not [V2-4.5.3.1-2].
        let word = ahead.reader.u32()?;
        let Some(length) = ahead.eligible()? else {
            if let Missing::Padding(padding, base) = self.missing {
                return self.padded_opaque(padding, base, max).map(Item::Unreduced);
            }
            let mut reader = self.reader;
            let bytes = reader.opaque(max)?;
            // E21: on version 2 an item is not unreduced where the offered chunk could take it.
            if self.version == Version::Two && self.next_takes(bytes.len()) {
                return Err(Truncated { at });
            }
            (self.reader, self.missing) = (reader, ahead.missing);
            return Ok(Item::Unreduced(bytes));
        };
        // [V2-4.5.3.1-3] [R5666-3.4-6] the length word equals the length of the chunk.
        let word = u64::from(word);
        let fits = match self.version {
            //~ R5666-3.4-6: `length == word || length == word.next_multiple_of(4)` -> `length >= word`
            //~ R5666-3.7-1: `length == word || ` -> ``
            Version::One => length == word || length == word.next_multiple_of(4),
            Version::Two => length == word,
        };
        if !fits {
            return Err(Truncated { at });
        }
        *self = ahead;
        Ok(Item::Reduced { length: word })
    }

    /// Takes a DDP-eligible item of any other type, which follows the count or discriminator that stays in the stream.
    /// Returns the number of octets in its chunk, or `None` if the item was not reduced and follows inline. The result
    /// of a Reply may be inline only if its Write chunk is too small; only the caller knows the length of the item and
    /// can check this.
    pub fn eligible(&mut self) -> Result<Option<u64>, Truncated> {
        let at = Truncated { at: self.reader.position() };
        let length = match self.missing {
            Missing::Call((position, length), _) => {
                // [V2-4.5.1-1] positions count in the unreduced stream.
                let here = u64::try_from(self.reader.position()).unwrap_or(u64::MAX);
                if here.checked_add(self.removed) != Some(u64::from(position)) {
                    return Ok(None);
                }
                length
            }
            Missing::Reply(Returned { written, .. }, _) => u64::from(written),
            Missing::Nothing | Missing::Padding(..) => return Ok(None),
        };
        let is_reply = matches!(self.missing, Missing::Reply(..));
        self.advance();
        if is_reply && length == 0 {
            return Ok(None);
        }
        // [V2-4.5.3-2] in the unreduced stream the item takes a whole number of units.
        //~ V2-4.5.3-2: `length.checked_next_multiple_of(4)` -> `Some(length)`
        let gone = length.checked_next_multiple_of(4).ok_or(at)?;
        self.removed = self.removed.checked_add(gone).ok_or(at)?;
        Ok(Some(length))
    }

    /// Passes over a DDP-eligible result that is absent from this Reply: its Write chunk is unused.
    pub fn absent(&mut self) -> Result<(), Truncated> {
        match self.eligible()? {
            None => Ok(()),
            Some(_) => Err(Truncated { at: self.reader.position() }),
        }
    }

    /// Returns whether the whole stream and all reduced items were taken.
    pub fn is_empty(&self) -> bool {
        let taken = match self.missing {
            Missing::Nothing | Missing::Padding(..) => true,
            Missing::Call(..) => false,
            Missing::Reply(next, rest) => {
                next.written == 0 && rest.iter().all(|chunk| chunk.written == 0)
            }
        };
        taken && self.reader.is_empty()
    }

    /// Returns the offset of the next octet in the inline Payload stream.
    pub const fn position(&self) -> usize {
        self.reader.position()
    }

    /// Returns the octets that were not taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Returns the number of octets written into the next Write chunk of a Reply, if any were and it was not taken yet. A
    /// result for whose chunk nothing was written is in the Payload stream, or has no octets.
    pub const fn reduced(&self) -> Option<u32> {
        match self.missing {
            Missing::Reply(chunk, _) if chunk.written > 0 => Some(chunk.written),
            _ => None,
        }
    }

    /// Returns the Write chunks of a Reply whose results were not taken yet.
    pub fn returned(&self) -> impl Iterator<Item = Returned> + use<'a> {
        let (next, rest) = match self.missing {
            Missing::Reply(next, rest) => (Some(next), rest),
            Missing::Nothing | Missing::Call(..) | Missing::Padding(..) => (None, &[][..]),
        };
        next.into_iter().chain(rest.iter().copied())
    }

    #[inline]
    fn new(payload: &'a [u8], at: usize, missing: Missing<'a>) -> Self {
        let (reader, version) = (starting(payload, at), Version::Two);
        Self { reader, missing, removed: 0, version }
    }

    /// Takes an opaque of at most `max` octets, with the padding in front of it.
    #[cold]
    fn padded_opaque(
        &mut self,
        padding: Padding,
        base: u32,
        max: usize,
    ) -> Result<&'a [u8], Truncated> {
        let mut reader = self.reader;
        let base = usize::try_from(base).unwrap_or(usize::MAX);
        let octets = padding.opaque(&mut reader, base, max)?;
        self.reader = reader;
        Ok(octets)
    }

    /// Moves on to the chunk after the next one.
    fn advance(&mut self) {
        self.missing = match self.missing {
            Missing::Nothing | Missing::Padding(..) => self.missing,
            Missing::Call(_, rest) => Missing::first_of_call(rest),
            Missing::Reply(_, rest) => Missing::first_of_reply(rest),
        };
    }

    /// Returns whether the next Write chunk of a Reply was offered with room for `length` octets, and not empty.
    fn next_takes(&self, length: usize) -> bool {
        let Missing::Reply(chunk, _) = self.missing else { return false };
        length > 0 && usize::try_from(chunk.offered).is_ok_and(|offered| offered >= length)
    }
}

impl<'a> Missing<'a> {
    #[inline]
    fn first_of_call(chunks: &'a [Reduced]) -> Self {
        match chunks {
            [] => Self::Nothing,
            [next, rest @ ..] => Self::Call((next.position, u64::from(next.length)), rest),
        }
    }

    #[inline]
    const fn first_of_reply(chunks: &'a [Returned]) -> Self {
        match chunks {
            [] => Self::Nothing,
            [next, rest @ ..] => Self::Reply(*next, rest),
        }
    }
}

#[inline]
fn starting(payload: &[u8], at: usize) -> Reader<'_> {
    let mut reader = Reader::new(payload);
    // The RPC header ended at `at`, so the octets before it exist.
    let skipped = reader.take(at);
    debug_assert!(skipped.is_ok(), "arguments start within their message");
    reader
}

#[cfg(test)]
mod tests;
