//! Reading a Payload stream from which data items may have been reduced.

use super::{Reduced, Version};
use crate::xdr::{Reader, Truncated};

/// A cursor over an inline Payload stream that knows what is missing from it.
///
/// It reads the stream and hands out the lengths of items that were reduced from it, which stay
/// wherever their chunks put them. Of a Call it knows by their positions which items those are; of a
/// Reply each Write chunk stands for one DDP-eligible result, in order.
#[derive(Clone, Debug)]
pub struct PayloadReader<'a> {
    reader: Reader<'a>,
    missing: Missing<'a>,
    /// Octets of the unreduced stream before this point that are not in the reduced one.
    removed: u64,
    version: Version,
}

/// What was reduced and has not been taken: the next item, and those after it.
#[derive(Clone, Copy, Debug)]
enum Missing<'a> {
    Nothing,
    Call((u32, u64), &'a [Reduced]),
    Reply(Returned, &'a [Returned]),
}

/// A Write chunk returned in a Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Octets it could have taken.
    pub offered: u32,
    /// Octets it took.
    pub written: u32,
}

/// A DDP-eligible opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// It is in the Payload stream.
    Inline(&'a [u8]),
    /// Only its length is.
    Reduced {
        /// Octets, equal to the chunk's length.
        length: u64,
    },
}

impl<'a> PayloadReader<'a> {
    /// Reads the arguments of a Call, which start at `at` of its Payload stream. `chunk` is the
    /// position and length of its Read chunk.
    #[inline]
    pub fn call(payload: &'a [u8], at: usize, chunk: Option<(u32, u64)>) -> Self {
        let missing = chunk.map_or(Missing::Nothing, |chunk| Missing::Call(chunk, &[]));
        Self::new(payload, at, missing)
    }

    /// Reads the arguments of a Call with any number of Read chunks, which are in order.
    pub fn call_of_many(payload: &'a [u8], at: usize, chunks: &'a [Reduced]) -> Self {
        Self::new(payload, at, Missing::first_of_call(chunks))
    }

    /// Reads the results of a Reply, which start at `at` of its Payload stream. `reduced` is what
    /// the returned Write chunk says was written; it could have taken any item.
    pub fn reply(payload: &'a [u8], at: usize, reduced: Option<u32>) -> Self {
        let missing = reduced.map_or(Missing::Nothing, |written| {
            Missing::Reply(Returned { offered: u32::MAX, written }, &[])
        });
        Self::new(payload, at, missing)
    }

    /// Reads the results of a Reply with any number of Write chunks.
    #[inline]
    pub fn reply_of_many(payload: &'a [u8], at: usize, chunks: &'a [Returned]) -> Self {
        Self::new(payload, at, Missing::first_of_reply(chunks))
    }

    /// Reads by the rules of `version`, which is 2 unless said otherwise. On version 1 a chunk may
    /// contain the padding of its item, and a result may be inline although a Write chunk could have
    /// taken it.
    #[must_use]
    pub const fn of_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Returns by the rules of which version it reads.
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
        self.reader.opaque(max)
    }

    /// Takes a DDP-eligible opaque. Inline it has at most `max` octets; reduced, the length in the
    /// stream must be the chunk's, and neither octets nor padding follow.
    pub fn eligible_opaque(&mut self, max: usize) -> Result<Item<'a>, Truncated> {
        let at = self.reader.position();
        let mut ahead = self.clone();
        // [V2-4.5.3.1-1] the length stays; octets and padding do not [V2-4.5.3.1-2].
        let word = ahead.reader.u32()?;
        let Some(length) = ahead.eligible()? else {
            let mut reader = self.reader;
            let bytes = reader.opaque(max)?;
            // Version 2, A.1: what an offered chunk can take is in it.
            if self.version == Version::Two && self.next_takes(bytes.len()) {
                return Err(Truncated { at });
            }
            (self.reader, self.missing) = (reader, ahead.missing);
            return Ok(Item::Inline(bytes));
        };
        // [V2-4.5.3.1-3] [R5666-3.4-6] the length is the chunk's.
        let word = u64::from(word);
        let fits = match self.version {
            Version::One => length == word || length == word.next_multiple_of(4),
            Version::Two => length == word,
        };
        if !fits {
            return Err(Truncated { at });
        }
        *self = ahead;
        Ok(Item::Reduced { length: word })
    }

    /// Takes a DDP-eligible item of any other type, standing behind the count or discriminator that
    /// stays in the stream. Returns the octets in its chunk, or `None` if the item was not reduced and
    /// follows inline. A Reply's item may be inline only if its Write chunk could not have taken it;
    /// how long it is only its caller can say, so that is not judged here.
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
            Missing::Nothing => return Ok(None),
        };
        let is_reply = matches!(self.missing, Missing::Reply(..));
        self.advance();
        if is_reply && length == 0 {
            return Ok(None);
        }
        // [V2-4.5.3-2] in the unreduced stream it is a whole number of units.
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

    /// Returns whether everything was taken, the reduced items with it.
    pub fn is_empty(&self) -> bool {
        let taken = match self.missing {
            Missing::Nothing => true,
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

    /// Returns what has not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Returns the octets in the next Write chunk of a Reply, if there is one that was not taken.
    pub const fn reduced(&self) -> Option<u32> {
        match self.missing {
            Missing::Reply(chunk, _) => Some(chunk.written),
            _ => None,
        }
    }

    #[inline]
    fn new(payload: &'a [u8], at: usize, missing: Missing<'a>) -> Self {
        Self { reader: starting(payload, at), missing, removed: 0, version: Version::Two }
    }

    /// Turns to the chunk after the next.
    fn advance(&mut self) {
        self.missing = match self.missing {
            Missing::Nothing => Missing::Nothing,
            Missing::Call(_, rest) => Missing::first_of_call(rest),
            Missing::Reply(_, rest) => Missing::first_of_reply(rest),
        };
    }

    /// Returns whether the next Write chunk of a Reply had room for so many octets, and some at all.
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
    // The RPC header ended there, so the octets before it exist.
    let skipped = reader.take(at);
    debug_assert!(skipped.is_ok(), "arguments start within their message");
    reader
}

#[cfg(test)]
mod tests;
