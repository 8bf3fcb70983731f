//! MPA (RFC 5044): FPDUs on a TCP stream, and the frames that open the stream.
//!
//! An FPDU is `ULPDU length u16, ULPDU, 0 to 3 octets of padding, CRC u32`. The CRC field is always
//! present, but it is checked only if either end requested CRCs.

mod fault;
pub mod frame;
pub mod handshake;

use super::ddp::Header;

/// The length of the ULPDU length field, in octets.
pub const LENGTH_LEN: usize = 2;
/// The length of the CRC field, in octets.
pub const CRC_LEN: usize = 4;

/// Returns the number of octets of padding after a ULPDU of `length` octets (RFC 5044 section 4.2),
/// which makes the FPDU a multiple of 4.
pub const fn pad(length: usize) -> usize {
    // The result is at most 3, so neither the negation nor the mask can overflow.
    length.wrapping_add(LENGTH_LEN).wrapping_neg() & 3
}

/// The length of the largest ULPDU that an end sends (MULPDU, RFC 5044 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mulpdu(u16);

impl Mulpdu {
    /// Returns the largest ULPDU whose FPDU fits a TCP segment of `mss` octets.
    ///
    /// Bounded below, so that every header and some payload fits whatever the peer announced, and
    /// above by what RFC 5044 section 4.5 allows.
    pub fn from_mss(mss: u32) -> Self {
        const OVERHEAD: usize = LENGTH_LEN + CRC_LEN;
        let mss = usize::try_from(mss).unwrap_or(usize::MAX);
        let ulpdu = (mss & !3).saturating_sub(OVERHEAD).clamp(Self::MIN, Self::MAX);
        Self(u16::try_from(ulpdu).unwrap_or(u16::MAX))
    }

    /// Returns the payload length of the largest tagged segment, in octets.
    pub fn tagged_payload(self) -> usize {
        usize::from(self.0).saturating_sub(Header::TAGGED_LEN)
    }

    /// Returns the payload length of the largest untagged segment, in octets.
    pub fn untagged_payload(self) -> usize {
        usize::from(self.0).saturating_sub(Header::UNTAGGED_LEN)
    }

    /// RFC 5044 section 4.5: at least 128 octets, so a Read Request and a Terminate are one segment.
    const MIN: usize = 128;
    /// RFC 5044 section 4.5: at most 64768 octets. Ours is 2 below, for an FPDU that needs no padding.
    const MAX: usize = 64_766;
}

impl Default for Mulpdu {
    /// Returns the size that fits an Ethernet frame with TCP timestamps, for use when the MSS is
    /// not known.
    fn default() -> Self {
        Self::from_mss(1448)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fpdus_are_multiples_of_four_and_fit_the_segment() {
        assert_eq!([0, 1, 2, 3, 4, 14, 18].map(pad), [2, 1, 0, 3, 2, 0, 0]);
        for mss in [0, 1, 536, 1447, 1448, 8948, 65_483, 65_495, u32::MAX] {
            let ulpdu = usize::from(Mulpdu::from_mss(mss).0);
            assert_eq!(pad(ulpdu), if ulpdu == Mulpdu::MIN { 2 } else { 0 }, "mss {mss}");
            let fpdu = ulpdu + pad(ulpdu) + LENGTH_LEN + CRC_LEN;
            assert!(fpdu <= mss as usize || ulpdu == Mulpdu::MIN, "mss {mss}");
        }
        assert_eq!(Mulpdu::default().tagged_payload(), 1448 - 6 - 14);
    }
}
