//! Reading a Payload stream from which a data item may have been reduced.

use crate::xdr::{Reader, Truncated};

/// A cursor over an inline Payload stream that knows what is missing from it.
#[derive(Clone, Debug)]
pub struct PayloadReader<'a> {
    reader: Reader<'a>,
    reduced: Reduced,
}

/// What was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduced {
    Nothing,
    /// Of a Call: the item at this position, of this length.
    At(u32, u64),
    /// Of a Reply: the DDP-eligible item, of this length; a Write chunk has no position.
    Eligible(u32),
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
        let reduced =
            chunk.map_or(Reduced::Nothing, |(position, length)| Reduced::At(position, length));
        Self { reader: starting(payload, at), reduced }
    }

    /// Reads the results of a Reply, which start at `at` of its Payload stream. `reduced` is what
    /// the returned Write chunk says was written.
    pub fn reply(payload: &'a [u8], at: usize, reduced: Option<u32>) -> Self {
        let reduced = reduced.map_or(Reduced::Nothing, Reduced::Eligible);
        Self { reader: starting(payload, at), reduced }
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

    /// Takes the DDP-eligible opaque. Inline it has at most `max` octets; reduced, the length in the
    /// stream must be the chunk's, and neither octets nor padding follow.
    pub fn eligible_opaque(&mut self, max: usize) -> Result<Item<'a>, Truncated> {
        let at = self.reader.position();
        let data_at = u32::try_from(at).ok().and_then(|at| at.checked_add(4));
        let expected = match self.reduced {
            // [V2-4.5.1-1] up to here nothing was reduced, so both streams count alike.
            Reduced::At(position, length) if data_at == Some(position) => length,
            Reduced::Eligible(length) => u64::from(length),
            _ => return self.reader.opaque(max).map(Item::Inline),
        };
        // [V2-4.5.3.1-1] [V2-4.5.3.2-1] the length stays, and [V2-4.5.3.1-3] is the chunk's;
        // [V2-4.5.3.1-2] [V2-4.5.3.2-2] octets and padding do not.
        let length = u64::from(self.reader.u32()?);
        if length != expected {
            return Err(Truncated { at });
        }
        self.reduced = Reduced::Nothing;
        Ok(Item::Reduced { length })
    }

    /// Returns whether everything was taken, the reduced item with it.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty() && self.reduced == Reduced::Nothing
    }

    /// Returns the offset of the next octet in the inline Payload stream.
    pub const fn position(&self) -> usize {
        self.reader.position()
    }

    /// Returns what has not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }

    /// Returns the octets that were reduced from a Reply, if any were and have not been taken.
    pub const fn reduced(&self) -> Option<u32> {
        match self.reduced {
            Reduced::Eligible(length) => Some(length),
            _ => None,
        }
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
