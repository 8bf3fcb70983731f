//! The fast path of the receiver: an FPDU that is contiguous in one slice.
//!
//! Most FPDUs are contiguous. [`Receiver::whole`] checks one, CRC included, without changing the
//! receiver, and [`Receiver::pass`] advances the receiver to the state that [`Receiver::next`]
//! would have reached. An FPDU that `whole` does not accept may still be valid: `next` handles it.

use super::{AHEAD, Receiver, SendQueue, Stage};
use crate::iwarp::rdmap::{Kind, Segment};
use crate::iwarp::{CRC_INIT, crc_octets, mpa};
use crate::verbs::Handle;
use crate::xdr::Reader;

/// A complete and valid FPDU: a segment of a Write, or a Send that is one FPDU.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    segment: Segment,
    payload: &'a [u8],
    length: usize,
}

/// The message that a [`Whole`] FPDU belongs to.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// A segment of an RDMA Write, whose payload belongs into memory exposed for writing. The
    /// caller checks handle and bounds, unless there is no payload.
    Write {
        /// The handle of the registration.
        handle: Handle,
        /// The offset in the registration at which the payload starts.
        offset: u64,
        /// Whether the segment is the last of its message.
        last: bool,
    },
    /// A Send, whose payload is a whole message.
    Send {
        /// The local handle to invalidate before the Receive completes.
        invalidate: Option<Handle>,
    },
}

impl<'a> Whole<'a> {
    /// Returns the payload.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the length of the FPDU in octets.
    pub const fn wire_len(&self) -> usize {
        self.length
    }

    /// Returns the message that the FPDU belongs to; `None` for an FPDU that [`Receiver::whole`]
    /// does not return.
    #[inline]
    pub const fn carried(&self) -> Option<Carried> {
        match self.segment.kind {
            Kind::Write { handle, offset } => {
                Some(Carried::Write { handle, offset, last: self.segment.last })
            }
            Kind::Send { invalidate, .. } => Some(Carried::Send { invalidate }),
            _ => None,
        }
    }
}

impl Receiver {
    /// Checks the FPDU at the start of `bytes`, after `behind` Sends that were checked before and not passed yet.
    /// Returns `None` if the stream is not between two FPDUs, if the FPDU is incomplete, or if [`Self::next`] has to
    /// handle it.
    #[doc(hidden)]
    #[inline]
    pub fn whole<'a>(&self, bytes: &'a [u8], behind: u32) -> Option<Whole<'a>> {
        // The shortest FPDU, a Write of no octets, is as long as the longest header.
        let [high, low, header @ ..] = bytes.first_chunk::<AHEAD>()?;
        if self.stage != Stage::Between {
            return None;
        }
        let ulpdu = usize::from(u16::from_be_bytes([*high, *low]));
        let end = ulpdu.saturating_add(mpa::LENGTH_LEN);
        let covered = bytes.get(..end.saturating_add(mpa::pad(ulpdu)))?;
        let field = bytes.get(covered.len()..)?.first_chunk::<{ mpa::CRC_LEN }>()?;
        let mut r = Reader::new(header);
        let segment = Segment::decode(&mut r).ok()?;
        let payload = bytes.get(r.position().saturating_add(mpa::LENGTH_LEN)..end)?;
        match segment.kind {
            // RFC 5041 section 7.1: the offset may not wrap within a segment.
            Kind::Write { offset, .. } => offset.checked_add(payload.len().try_into().ok()?)?,
            Kind::Send { msn, offset: 0, .. }
                if segment.last && self.send.is_at(msn.wrapping_sub(behind)) =>
            {
                0
            }
            _ => return None,
        };
        if self.crc.is_some_and(|crc| crc_octets(crc(CRC_INIT, covered)) != *field) {
            return None;
        }
        let length = covered.len().saturating_add(field.len());
        Some(Whole { segment, payload, length })
    }

    /// Advances the stream past an FPDU that [`Self::whole`] has just returned, and past those before it, once their
    /// payloads are in place.
    #[doc(hidden)]
    #[inline]
    pub fn pass(&mut self, whole: &Whole<'_>) {
        if let Kind::Send { msn, .. } = whole.segment.kind {
            self.send = SendQueue { msn: msn.wrapping_add(1), offset: 0, variant: None };
        }
        self.segment = Ok(whole.segment);
        self.payload_len = u32::try_from(whole.payload.len()).unwrap_or(u32::MAX);
        self.held_len = 0;
    }
}

impl SendQueue {
    /// Returns whether the message of this number is the next one, and nothing of it has arrived.
    #[inline]
    fn is_at(&self, msn: u32) -> bool {
        self.msn == msn && self.offset == 0 && self.variant.is_none()
    }
}
