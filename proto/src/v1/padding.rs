//! Padding of `RDMA_MSGP` (RFC 5666 section 3.9), which aligns long opaques in the receiver's
//! buffer. Only ends configured for it send and accept it (P11).
//!
//! The first octet of an opaque of at least `thresh` octets is at a multiple of `align`, counted from the first octet
//! of the message, which is the start of the receiver's buffer. The padding is between the opaque's length word and its
//! first octet. RFC 5666 says both "at or above" and "exceeds" of the threshold; an end that sends no opaque of exactly
//! that length satisfies both readings.

use crate::xdr::{Reader, Truncated, Writer};

/// The alignment of opaques in an `RDMA_MSGP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// `rdma_align`: the first octet of an aligned opaque is at a multiple of this offset.
    pub align: u32,
    /// `rdma_thresh`: the length from which opaques are aligned.
    pub thresh: u32,
}

impl Padding {
    /// The longest opaque that no usable padding aligns: the longest credential or verifier (RFC 5531 section 8.2).
    pub const UNALIGNED_MAX: usize = 400;

    /// Returns whether the padding is unambiguous: the alignment is a multiple of the XDR unit, and
    /// no credential of an RPC header is long enough to be padded.
    pub const fn is_usable(&self) -> bool {
        self.align != 0
            && self.align.is_multiple_of(4)
            && self.thresh as usize > Self::UNALIGNED_MAX
    }

    /// Returns the number of octets of padding before an opaque of `length` octets that would start
    /// at offset `at` of the message.
    pub fn before(&self, at: usize, length: usize) -> usize {
        let aligned = usize::try_from(self.thresh).is_ok_and(|thresh| length >= thresh);
        match usize::try_from(self.align) {
            Ok(align) if aligned => {
                let over = at.checked_rem(align).unwrap_or_default();
                //~ R5666-6.2-6: `.saturating_sub(over)` -> ``
                if over == 0 { 0 } else { align.saturating_sub(over) }
            }
            _ => 0,
        }
    }

    /// Takes a variable-length opaque of at most `max` octets, with the padding before and after it. `r` began at offset
    /// `base` of the message.
    pub fn opaque<'a>(
        &self,
        r: &mut Reader<'a>,
        base: usize,
        max: usize,
    ) -> Result<&'a [u8], Truncated> {
        let at = r.position();
        let length = usize::try_from(r.u32()?).map_err(|_| Truncated { at })?;
        if length > max {
            return Err(Truncated { at });
        }
        // [R5666-3.9-1] [R5666-3.9-2] [R5666-6.2-6] the header's alignment and threshold give the padding to skip.
        //~ R5666-3.9-2: `saturating_add` -> `max`
        let start = base.saturating_add(r.position());
        //~ R5666-3.9-1: `self.before` -> `Self { align: 4, ..*self }.before`
        r.take(self.before(start, length))?;
        let octets = r.take(length)?;
        r.skip_pad(length)?;
        Ok(octets)
    }
}

/// A cursor over the body of a received `RDMA_MSGP`.
#[derive(Clone, Copy, Debug)]
pub struct PaddedReader<'a> {
    r: Reader<'a>,
    base: usize,
    padding: Padding,
}

impl<'a> PaddedReader<'a> {
    /// Creates a cursor at the first octet of `body`, which is at offset `base` of the message.
    pub const fn new(body: &'a [u8], base: usize, padding: Padding) -> Self {
        Self { r: Reader::new(body), base, padding }
    }

    /// Takes `count` octets without padded opaques, such as the RPC header.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Truncated> {
        self.r.take(count)
    }

    /// Takes an unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.r.u32()
    }

    /// Takes a variable-length opaque of at most `max` octets, with the padding before and after
    /// it.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        self.padding.opaque(&mut self.r, self.base, max)
    }

    /// Returns whether all octets were taken.
    pub const fn is_empty(&self) -> bool {
        self.r.is_empty()
    }
}

/// Appends a variable-length opaque to an `RDMA_MSGP`; `w` has written the message from its transport header on.
pub fn put_padded(w: &mut Writer<'_>, padding: Padding, octets: &[u8]) -> Result<(), Truncated> {
    let at = w.position();
    w.u32(u32::try_from(octets.len()).map_err(|_| Truncated { at })?)?;
    let mut gap = padding.before(w.position(), octets.len());
    while gap > 0 {
        let part = ZEROS.get(..gap).unwrap_or(&ZEROS);
        w.put(part)?;
        gap = gap.saturating_sub(part.len());
    }
    w.put(octets)?;
    w.pad(octets.len())
}

const ZEROS: [u8; 64] = [0; 64];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, Xdr};
    use crate::v1::header::tests::vector;
    use crate::v1::header::{Message, decode};
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn a_padded_opaque_is_found_behind_its_padding() {
        let bytes = vector("forms/msgp");
        let Ok(Message::MsgP(padding, rpc)) = decode(&bytes) else { panic!("not an RDMA_MSGP") };
        let mut r = PaddedReader::new(rpc.payload, bytes.len() - rpc.payload.len(), padding);
        assert_eq!(r.take(40).unwrap().len(), 40, "the RPC header");
        assert_eq!(r.opaque(8).unwrap(), b"abcdefgh");
        assert!(r.is_empty());
    }

    #[test]
    fn only_opaques_from_the_threshold_on_are_aligned() {
        let padding = Padding { align: 4096, thresh: 512 };
        assert_eq!(padding.before(100, 511), 0);
        assert_eq!(padding.before(100, 512), 3996);
        assert_eq!(padding.before(4096, 512), 0, "it is aligned already");
        assert_eq!(padding.before(4097, usize::MAX), 4095);
        assert_eq!(Padding { align: 0, thresh: 0 }.before(100, 512), 0, "no alignment, no padding");
    }

    #[test]
    fn what_would_pad_credentials_or_break_xdr_is_not_usable() {
        assert!(Padding { align: 4, thresh: 401 }.is_usable());
        for (align, thresh) in [(0, 512), (6, 512), (32, 400), (32, 0)] {
            assert!(!Padding { align, thresh }.is_usable(), "{align} {thresh}");
        }
    }

    #[test]
    fn what_is_padded_reads_back_wherever_it_starts() {
        let mut rng = Rng::new(0x5666_0309);
        for _ in 0..500 {
            let padding =
                Padding { align: 4 << rng.below(9), thresh: 401 + 4 * (rng.octet() as u32) };
            let base = 4 * rng.below(64);
            let items: Vec<Vec<u8>> = (0..rng.below(5))
                .map(|_| (0..rng.below(2048)).map(|_| rng.octet()).collect())
                .collect();
            let mut memory = vec![0; 64 << 10];
            let mut w = Writer::new(&mut memory);
            w.put(vec![7; base]).unwrap();
            for item in &items {
                put_padded(&mut w, padding, item).unwrap();
                w.u32(9).unwrap();
            }
            let message = w.written();
            let mut r = PaddedReader::new(&message[base..], base, padding);
            for item in &items {
                let octets = r.opaque(usize::MAX).unwrap();
                assert_eq!(octets, item);
                let at = octets.as_ptr() as usize - message.as_ptr() as usize;
                let long = item.len() >= padding.thresh as usize;
                assert!(!long || at.is_multiple_of(padding.align as usize), "{at} {padding:?}");
                assert_eq!(r.u32(), Ok(9));
            }
            assert!(r.is_empty());
        }
    }

    #[test]
    fn padding_beyond_the_message_is_refused() {
        let padding = Padding { align: 1 << 31, thresh: 4 };
        let body = Xdr::default().opaque(b"abcd").0;
        assert_eq!(PaddedReader::new(&body, 36, padding).opaque(4), Err(Truncated { at: 4 }));
        assert_eq!(PaddedReader::new(&body, 36, padding).opaque(3), Err(Truncated { at: 0 }));
        let mut memory = [0; 64];
        assert!(put_padded(&mut Writer::new(&mut memory), padding, b"abcd").is_err());
    }
}
