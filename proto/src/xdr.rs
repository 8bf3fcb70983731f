//! XDR (RFC 4506) on slices: a bounded reader of received octets and a bounded writer into a
//! buffer.
//!
//! Both track their position, because a Read chunk identifies its data item by an offset in the
//! Payload stream.

use core::fmt;

/// The length of one XDR unit in octets.
pub const UNIT: usize = 4;

/// The input ended before the item, or the output buffer has no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The offset at which more octets were needed.
    pub at: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "truncated at byte {}", self.at)
    }
}

impl core::error::Error for Truncated {}

/// Returns the number of octets of roundup padding after an opaque of `length` octets (RFC 4506 section 4.10).
pub const fn pad(length: usize) -> usize {
    // At most 3, so neither the negation nor the mask can overflow.
    length.wrapping_neg() & (UNIT - 1)
}

/// A cursor over received octets.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The octets that were not taken yet. Their length gives the position, so that taking a word
    /// needs one comparison.
    rest: &'a [u8],
    /// The number of octets at the start.
    length: usize,
}

impl<'a> Reader<'a> {
    /// Creates a cursor at the first of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// Takes `count` octets without padding.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        let split = self.rest.split_at_checked(count);
        let Some((taken, rest)) = split else { return Err(self.truncated()) };
        self.rest = rest;
        Ok(taken)
    }

    /// Takes `N` octets as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let split = self.rest.split_first_chunk();
        let Some((taken, rest)) = split else { return Err(self.truncated()) };
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes an unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes an unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes the padding after an opaque of `length` octets, whatever it contains.
    pub fn skip_pad(&mut self, length: usize) -> Result<(), Truncated> {
        self.take(pad(length)).map(|_| ())
    }

    /// Takes a variable-length opaque of at most `max` octets and its padding.
    ///
    /// A length beyond `max` is reported as truncation at the length word.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        let at = self.position();
        let length = usize::try_from(self.u32()?).map_err(|_| Truncated { at })?;
        if length > max {
            return Err(Truncated { at });
        }
        let bytes = self.take(length)?;
        self.skip_pad(length)?;
        Ok(bytes)
    }

    /// Returns the offset of the next octet.
    pub const fn position(&self) -> usize {
        // This never wraps, since `rest` is a part of the octets at the start; wrapping costs no comparison.
        self.length.wrapping_sub(self.rest.len())
    }

    /// Returns the octets that were not taken yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether all octets were taken.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the fault of an item that ends early. By value and out of line, so that a cursor
    /// over good input stays in registers.
    #[cold]
    const fn truncated(self) -> Truncated {
        Truncated { at: self.position() }
    }
}

/// A cursor over a buffer that is being filled, usually a registered send buffer.
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
    end: End,
}

/// The treatment of octets behind the end of a buffer.
#[derive(Clone, Copy)]
enum End {
    /// Octets behind the end are refused.
    Refuses,
    /// Octets behind the end are counted.
    Counts,
}

impl End {
    /// Judges octets at `at` that have no room. By value and out of line, so that a cursor with room stays in registers.
    #[cold]
    const fn reached(self, at: usize) -> Result<(), Truncated> {
        match self {
            Self::Refuses => Err(Truncated { at }),
            Self::Counts => Ok(()),
        }
    }
}

impl<'a> Writer<'a> {
    /// Creates a cursor at the first of `bytes`.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, end: End::Refuses }
    }

    /// Creates a cursor that goes on behind the end of `bytes`: octets without room are counted and not written, so that
    /// the position tells how much room all of them take.
    pub const fn counting(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, end: End::Counts }
    }

    /// Appends `bytes` without padding.
    #[inline]
    pub fn put(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Truncated> {
        let bytes = bytes.as_ref();
        let end = self.at.checked_add(bytes.len()).ok_or(Truncated { at: self.at })?;
        match self.bytes.get_mut(self.at..end) {
            Some(room) => room.copy_from_slice(bytes),
            None => self.end.reached(self.at)?,
        }
        self.at = end;
        Ok(())
    }

    /// Appends an unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), Truncated> {
        self.put(value.to_be_bytes())
    }

    /// Appends unsigned integers, all of them or none.
    #[inline]
    pub fn words<const N: usize>(&mut self, values: [u32; N]) -> Result<(), Truncated> {
        self.put(values.map(u32::to_be_bytes).as_flattened())
    }

    /// Appends an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), Truncated> {
        self.put(value.to_be_bytes())
    }

    /// Appends the padding after an opaque of `length` octets.
    pub fn pad(&mut self, length: usize) -> Result<(), Truncated> {
        self.put([0; UNIT].get(..pad(length)).unwrap_or_default())
    }

    /// Appends a variable-length opaque: length, octets, padding.
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), Truncated> {
        let length = u32::try_from(bytes.len()).map_err(|_| Truncated { at: self.at })?;
        self.u32(length)?;
        self.put(bytes)?;
        self.pad(bytes.len())
    }

    /// Returns the number of octets appended so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of octets that still fit.
    pub fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Returns the octets written so far; none if some of them were only counted.
    pub fn written(&self) -> &[u8] {
        self.bytes.get(..self.at).unwrap_or_default()
    }
}

// Payload never reaches a log, so a cursor prints where it is and not what it is over.

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} of {} bytes)", self.position(), self.length)
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} of {} bytes)", self.at, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_completes_the_unit() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(pad), [0, 3, 2, 1, 0, 3]);
    }

    #[test]
    fn opaque_survives_the_round_trip_with_its_padding() {
        let mut memory = [0xff; 16];
        let mut w = Writer::new(&mut memory);
        w.opaque(b"hello").unwrap();
        w.u32(7).unwrap();
        assert_eq!(w.written(), b"\0\0\0\x05hello\0\0\0\0\0\0\x07");
        let mut r = Reader::new(w.written());
        assert_eq!((r.opaque(5).unwrap(), r.u32().unwrap()), (&b"hello"[..], 7));
        assert!(r.is_empty());
    }

    #[test]
    fn a_length_beyond_the_bound_or_the_bytes_is_refused_where_it_stands() {
        let bytes = b"\0\0\0\x06hello\0\0\0";
        assert_eq!(Reader::new(bytes).opaque(5), Err(Truncated { at: 0 }));
        assert_eq!(Reader::new(b"\xff\xff\xff\xff").opaque(usize::MAX), Err(Truncated { at: 4 }));
        assert_eq!(Reader::new(b"\0\0\0\x05hello").opaque(5), Err(Truncated { at: 9 }));
    }

    #[test]
    fn a_full_writer_refuses_and_keeps_what_it_had() {
        let mut memory = [0; 6];
        let mut w = Writer::new(&mut memory);
        w.u32(1).unwrap();
        assert_eq!(w.u32(2), Err(Truncated { at: 4 }));
        assert_eq!((w.written(), w.room()), (&b"\0\0\0\x01"[..], 2));
    }

    #[test]
    fn a_counting_writer_goes_on_behind_its_end_and_writes_nothing_there() {
        let mut memory = [0xff; 10];
        let mut w = Writer::counting(&mut memory);
        w.u32(1).unwrap();
        w.opaque(b"hello").unwrap();
        assert_eq!((w.position(), w.room(), w.written()), (4 + 4 + 8, 0, &[][..]));
        // Once an item did not fit, no later item is written, however short.
        w.put([7]).unwrap();
        assert_eq!(w.position(), 17);
        assert_eq!(memory, *b"\0\0\0\x01\0\0\0\x05\xff\xff");
    }
}
