//! The short way in: an FPDU all of whose octets lie together.
//!
//! Most do. [`Receiver::whole`] looks at one without moving the machine, CRC included, and
//! [`Receiver::pass`] moves it to where [`Receiver::next`] would have brought it. What it does not
//! offer is not wrong for that: `next` judges it.

use super::{AHEAD, Receiver, SendQueue, Stage};
use crate::iwarp::rdmap::{Kind, Segment};
use crate::iwarp::{CRC_INIT, crc_octets, mpa};
use crate::verbs::Handle;
use crate::xdr::Reader;

/// An FPDU that is whole and right: a segment of a Write, or a Send that is one FPDU.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<'a> {
    segment: Segment,
    payload: &'a [u8],
    length: usize,
}

/// What a [`Whole`] FPDU is for.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Its payload belongs into memory we opened for writing. The caller checks handle and bounds,
    /// unless there is no payload.
    Write {
        /// The registration named.
        handle: Handle,
        /// Where in it the payload starts.
        offset: u64,
        /// The message ends with it.
        last: bool,
    },
    /// Its payload is a message.
    Send {
        /// Our handle to invalidate before the Receive completes.
        invalidate: Option<Handle>,
    },
}

impl<'a> Whole<'a> {
    /// Returns the payload.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the octets of the FPDU.
    pub const fn wire_len(&self) -> usize {
        self.length
    }

    /// Returns what it is for; `None` of what [`Receiver::whole`] does not return.
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
    /// Looks at the FPDU that `bytes` start with, behind so many Sends that were looked at before and are still
    /// to be passed. `None` if the stream does not stand between two, or it is not all there, or anything about
    /// it is to be judged by [`Self::next`].
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

    /// Moves the stream behind an FPDU that [`Self::whole`] has just returned, and those before it, whose
    /// payloads are in their places.
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
    /// Returns whether the message of this number is the next one, and none of it has come.
    #[inline]
    fn is_at(&self, msn: u32) -> bool {
        self.msn == msn && self.offset == 0 && self.variant.is_none()
    }
}
