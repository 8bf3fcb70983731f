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
    Call(Option<(u32, u64)>, &'a [Reduced]),
    Reply(Option<Returned>, &'a [Returned]),
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
    pub fn call(payload: &'a [u8], at: usize, chunk: Option<(u32, u64)>) -> Self {
        Self::new(payload, at, Missing::Call(chunk, &[]))
    }

    /// Reads the arguments of a Call with any number of Read chunks, which are in order.
    pub fn call_of_many(payload: &'a [u8], at: usize, chunks: &'a [Reduced]) -> Self {
        let mut reader = Self::new(payload, at, Missing::Call(None, chunks));
        reader.advance();
        reader
    }

    /// Reads the results of a Reply, which start at `at` of its Payload stream. `reduced` is what
    /// the returned Write chunk says was written; it could have taken any item.
    pub fn reply(payload: &'a [u8], at: usize, reduced: Option<u32>) -> Self {
        let chunk = reduced.map(|written| Returned { offered: u32::MAX, written });
        Self::new(payload, at, Missing::Reply(chunk, &[]))
    }

    /// Reads the results of a Reply with any number of Write chunks.
    pub fn reply_of_many(payload: &'a [u8], at: usize, chunks: &'a [Returned]) -> Self {
        let mut reader = Self::new(payload, at, Missing::Reply(None, chunks));
        reader.advance();
        reader
    }

    /// Reads by the rules of `version`, which is 2 unless said otherwise. On version 1 a chunk may
    /// contain the padding of its item, and a result may be inline although a Write chunk could have
    /// taken it.
    #[must_use]
    pub const fn of_version(mut self, version: Version) -> Self {
        self.version = version;
        self
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
            let bytes = self.reader.opaque(max)?;
            // Version 2, A.1: what an offered chunk can take is in it.
            if self.version == Version::Two && self.next_takes(bytes.len()) {
                return Err(Truncated { at });
            }
            self.missing = ahead.missing;
            return Ok(Item::Inline(bytes));
        };
        // [V2-4.5.3.1-3] the length is the chunk's.
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
    /// follows inline.
    pub fn eligible(&mut self) -> Result<Option<u64>, Truncated> {
        let at = Truncated { at: self.reader.position() };
        let length = match self.missing {
            Missing::Call(Some((position, length)), _) => {
                // [V2-4.5.1-1] positions count in the unreduced stream.
                let here = u64::try_from(self.reader.position()).unwrap_or(u64::MAX);
                if here.checked_add(self.removed) != Some(u64::from(position)) {
                    return Ok(None);
                }
                length
            }
            Missing::Reply(Some(Returned { written, .. }), _) => u64::from(written),
            Missing::Call(None, _) | Missing::Reply(None, _) => return Ok(None),
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
            Missing::Call(next, _) => next.is_none(),
            Missing::Reply(next, rest) => next.iter().chain(rest).all(|chunk| chunk.written == 0),
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
            Missing::Reply(Some(chunk), _) => Some(chunk.written),
            _ => None,
        }
    }

    fn new(payload: &'a [u8], at: usize, missing: Missing<'a>) -> Self {
        Self { reader: starting(payload, at), missing, removed: 0, version: Version::Two }
    }

    /// Turns to the chunk after the next.
    fn advance(&mut self) {
        self.missing = match self.missing {
            Missing::Call(_, [next, rest @ ..]) => {
                Missing::Call(Some((next.position, u64::from(next.length))), rest)
            }
            Missing::Reply(_, [next, rest @ ..]) => Missing::Reply(Some(*next), rest),
            Missing::Call(_, []) => Missing::Call(None, &[]),
            Missing::Reply(_, []) => Missing::Reply(None, &[]),
        };
    }

    /// Returns whether the next Write chunk of a Reply had room for so many octets, and some at all.
    fn next_takes(&self, length: usize) -> bool {
        let Missing::Reply(Some(chunk), _) = self.missing else { return false };
        length > 0 && usize::try_from(chunk.offered).is_ok_and(|offered| offered >= length)
    }
}

fn starting(payload: &[u8], at: usize) -> Reader<'_> {
    let mut reader = Reader::new(payload);
    // The RPC header ended there, so the octets before it exist.
    let skipped = reader.take(at);
    debug_assert!(skipped.is_ok(), "arguments start within their message");
    reader
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xdr;

    const HEADER: usize = 40;

    fn call(arguments: &Xdr, chunk: Option<(u32, u64)>) -> (std::vec::Vec<u8>, Option<(u32, u64)>) {
        ([&[0xee; HEADER], &arguments.0[..]].concat(), chunk)
    }

    #[test]
    fn an_item_that_was_not_reduced_is_inline_with_its_padding() {
        let (payload, chunk) = call(&Xdr::default().opaque(b"hello").words(&[7]), None);
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.eligible_opaque(5), Ok(Item::Inline(b"hello")));
        assert_eq!((r.u32(), r.is_empty()), (Ok(7), true));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.eligible_opaque(4), Err(Truncated { at: HEADER }));
    }

    #[test]
    fn an_item_reduced_from_the_middle_leaves_its_length_and_nothing_else() {
        // A word, the length of the item, and directly behind it the next argument.
        let arguments = Xdr::default().words(&[1, 5]).opaque(b"next");
        let (payload, chunk) = call(&arguments, Some((48, 5)));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.u32(), Ok(1));
        assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 5 }));
        assert_eq!(r.position(), 48);
        assert_eq!((r.opaque(4), r.is_empty()), (Ok(&b"next"[..]), true));
    }

    #[test]
    fn an_item_reduced_from_the_end_leaves_its_length() {
        for length in [0, 1, 70001, u32::MAX] {
            let arguments = Xdr::default().words(&[length]);
            let (payload, chunk) = call(&arguments, Some((44, u64::from(length))));
            let mut r = PayloadReader::call(&payload, HEADER, chunk);
            assert!(!r.is_empty());
            let item = r.eligible_opaque(0);
            assert_eq!(item, Ok(Item::Reduced { length: u64::from(length) }));
            assert!(r.is_empty() && r.rest().is_empty());
        }
    }

    #[test]
    fn the_length_left_in_the_stream_is_the_chunks() {
        for chunk in [4, 6, 8, u64::from(u32::MAX) + 6] {
            let (payload, chunk) = call(&Xdr::default().words(&[5]), Some((44, chunk)));
            let mut r = PayloadReader::call(&payload, HEADER, chunk);
            assert_eq!(r.eligible_opaque(64), Err(Truncated { at: HEADER }), "{chunk:?}");
        }
    }

    #[test]
    fn a_chunk_at_another_position_is_not_this_item() {
        for position in [4, 40, 48, 0xffff_fffc] {
            let arguments = Xdr::default().opaque(b"hello");
            let (payload, chunk) = call(&arguments, Some((position, 5)));
            let mut r = PayloadReader::call(&payload, HEADER, chunk);
            assert_eq!(r.eligible_opaque(5), Ok(Item::Inline(b"hello")), "{position}");
            assert!(!r.is_empty(), "a chunk without its item is left over");
        }
    }

    #[test]
    fn a_chunk_stands_for_one_item_and_only_for_an_eligible_one() {
        let arguments = Xdr::default().words(&[5]).opaque(b"hello");
        let (payload, chunk) = call(&arguments, Some((44, 5)));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.eligible_opaque(5), Ok(Item::Reduced { length: 5 }));
        assert_eq!(r.eligible_opaque(5), Ok(Item::Inline(b"hello")));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        // The length is there, the octets are not: an item that is not eligible makes no sense.
        assert_ne!(r.opaque(5), Ok(&b"hello"[..]));
    }

    #[test]
    fn a_reply_says_how_much_of_its_eligible_item_was_written() {
        let results = Xdr::default().words(&[0, 4097, 9]).0;
        let mut r = PayloadReader::reply(&results, 0, Some(4097));
        assert_eq!((r.u32(), r.reduced()), (Ok(0), Some(4097)));
        assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 4097 }));
        assert_eq!((r.reduced(), r.u32(), r.is_empty()), (None, Ok(9), true));

        let mut r = PayloadReader::reply(&results, 0, Some(4096));
        assert_eq!(r.u32(), Ok(0));
        assert_eq!(r.eligible_opaque(0), Err(Truncated { at: 4 }), "not what was written");

        let inline = Xdr::default().opaque(b"hello").0;
        let mut r = PayloadReader::reply(&inline, 0, None);
        assert_eq!((r.eligible_opaque(5), r.reduced()), (Ok(Item::Inline(b"hello")), None));
        assert!(r.is_empty());
    }

    #[test]
    fn an_item_cut_short_is_truncated() {
        let arguments = Xdr::default().opaque(b"hello");
        let (payload, _) = call(&arguments, None);
        for end in HEADER..payload.len() {
            let mut r = PayloadReader::call(&payload[..end], HEADER, None);
            assert!(r.eligible_opaque(5).is_err(), "{end}");
            let mut r = PayloadReader::call(&payload[..end], HEADER, Some((44, 5)));
            assert_eq!(r.eligible_opaque(5).is_ok(), end >= 44, "{end}");
        }
        let mut r = PayloadReader::call(&payload, HEADER, None);
        assert_eq!(r.u64().map(|w| w >> 32), Ok(5));
    }
}
