//! Record marks (RFC 5531 section 11), which delimit messages on a byte stream.

/// The mark before one fragment of a record: the fragment's length, and whether it is the last one.
///
/// Wire: one word, big-endian; the highest bit marks the last fragment, the other 31 are the
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

impl Mark {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 4;

    /// The length of the longest fragment, in octets.
    pub const LENGTH_MAX: u32 = LAST - 1;

    /// Makes the mark of the last fragment of a record; returns `None` if `length` exceeds
    /// [`Self::LENGTH_MAX`].
    pub const fn last(length: u32) -> Option<Self> {
        match Self::more(length) {
            Some(Self(length)) => Some(Self(length | LAST)),
            None => None,
        }
    }

    /// Makes the mark of a fragment that another one follows; returns `None` if `length` exceeds
    /// [`Self::LENGTH_MAX`].
    pub const fn more(length: u32) -> Option<Self> {
        if length > Self::LENGTH_MAX { None } else { Some(Self(length)) }
    }

    /// Decodes a mark; every word is valid.
    pub const fn decode(octets: [u8; Self::WIRE_LEN]) -> Self {
        Self(u32::from_be_bytes(octets))
    }

    /// Returns the encoded mark.
    pub const fn encode(self) -> [u8; Self::WIRE_LEN] {
        self.0.to_be_bytes()
    }

    /// Returns whether the fragment is the last one of its record.
    pub const fn is_last(self) -> bool {
        self.0 & LAST != 0
    }

    /// Returns the length of the fragment, which follows the mark, in octets.
    pub const fn length(self) -> u32 {
        self.0 & Self::LENGTH_MAX
    }
}

const LAST: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_length_and_a_bit() {
        for (last, length, octets) in [
            (true, 0x28, [0x80, 0, 0, 0x28]),
            (false, 0x28, [0, 0, 0, 0x28]),
            (true, Mark::LENGTH_MAX, [0xff; 4]),
            (false, 0, [0; 4]),
        ] {
            let mark = if last { Mark::last(length) } else { Mark::more(length) }.unwrap();
            assert_eq!(mark.encode(), octets);
            assert_eq!(Mark::decode(octets), mark);
            assert_eq!((mark.is_last(), mark.length()), (last, length));
        }
        assert_eq!(Mark::last(1 << 31), None);
        assert_eq!(Mark::more(1 << 31), None);
    }
}
