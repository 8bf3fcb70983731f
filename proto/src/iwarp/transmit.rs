//! The sender of a stream: it makes FPDUs around payload that is not copied.
//!
//! A caller divides a message into FPDUs by repeated calls with the rest of the message; each call returns the octets
//! before the payload, the number of payload octets in this FPDU, and the octets after them. The call computes the CRC,
//! so the payload must not change until it has been sent: it belongs to a posted work request or to a registration that
//! a peer may only read.

use super::fault::Code;
use super::mpa::{self, Mulpdu};
use super::rdmap::{Kind, ReadRequest, Segment};
use super::terminate::{Quote, Terminate};
use super::{CRC_INIT, Crc32c, crc_octets, ddp};
use crate::verbs::Handle;
use crate::xdr::Writer;

/// One FPDU: `prefix`, then `payload_len` octets of the caller's payload, then `trailer`.
#[derive(Clone, Copy, Debug)]
pub struct Fpdu {
    prefix: [u8; PREFIX_MAX],
    trailer: Trailer,
    prefix_len: u8,
    payload_len: u16,
}

impl Fpdu {
    /// Returns the ULPDU length and the headers.
    pub fn prefix(&self) -> &[u8] {
        self.prefix.get(..usize::from(self.prefix_len)).unwrap_or_default()
    }

    /// Returns the number of payload octets that follow the prefix.
    pub fn payload_len(&self) -> usize {
        usize::from(self.payload_len)
    }

    /// Returns the padding and the CRC.
    pub fn trailer(&self) -> &[u8] {
        self.trailer.octets()
    }
}

/// The padding and CRC of an FPDU.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Trailer {
    octets: [u8; TRAILER_MAX],
    length: u8,
}

impl Trailer {
    /// Returns the octets of the padding and the CRC.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Writes `pad` zeros and the CRC; `sum` computes the CRC register of the octets before them.
    #[inline]
    fn seal(&mut self, pad: usize, crc: Option<Crc32c>, sum: impl FnOnce(Crc32c) -> u32) {
        let end = pad.saturating_add(mpa::CRC_LEN);
        self.length = u8::try_from(end).unwrap_or(u8::MAX);
        let Some(crc) = crc else { return };
        let mut state = sum(crc);
        if pad > 0 {
            state = crc(state, self.octets.get(..pad).unwrap_or_default());
        }
        if let Some(field) = self.octets.get_mut(pad..end) {
            field.copy_from_slice(&crc_octets(state));
        }
    }
}

/// The sender of one stream: message numbers, CRC and segment size.
#[derive(Clone, Debug)]
pub struct Transmitter {
    crc: Option<Crc32c>,
    mulpdu: Mulpdu,
    send_msn: u32,
    read_msn: u32,
}

impl Transmitter {
    /// Creates the sender of a new stream. Without `crc` the CRC field is zero.
    pub const fn new(crc: Option<Crc32c>, mulpdu: Mulpdu) -> Self {
        Self { crc, mulpdu, send_msn: MSN_FIRST, read_msn: MSN_FIRST }
    }

    /// Makes the next FPDU of a Send, of which `done` octets were sent and `rest` is left.
    pub fn send(&mut self, invalidate: Option<Handle>, done: u32, rest: &[u8]) -> Fpdu {
        let (payload, last) = head(rest, self.mulpdu.untagged_payload());
        let msn = self.send_msn;
        if last {
            self.send_msn = msn.wrapping_add(1);
        }
        let kind = Kind::Send { invalidate, solicited: false, msn, offset: done };
        self.seal(Segment { last, kind }, payload)
    }

    /// Begins a Send that is one FPDU: returns the octets before its `length` octets of payload, which are at most
    /// [`Self::send_payload_max`]. [`Self::end_whole`] returns those after the payload.
    #[doc(hidden)]
    #[inline]
    pub fn begin_whole(
        &mut self,
        invalidate: Option<Handle>,
        length: usize,
    ) -> [u8; UNTAGGED_PREFIX_LEN] {
        debug_assert!(length <= self.send_payload_max(), "the message is one FPDU");
        let msn = self.send_msn;
        self.send_msn = msn.wrapping_add(1);
        let kind = Kind::Send { invalidate, solicited: false, msn, offset: 0 };
        let mut prefix = [0; UNTAGGED_PREFIX_LEN];
        let (field, header) = prefix.split_at_mut(mpa::LENGTH_LEN);
        let ulpdu = header.len().saturating_add(length);
        field.copy_from_slice(&u16::try_from(ulpdu).unwrap_or(u16::MAX).to_be_bytes());
        let written = Segment { last: true, kind }.encode(&mut Writer::new(header));
        debug_assert!(written.is_ok(), "the prefix has room for the header");
        prefix
    }

    /// Returns the padding and CRC of an FPDU, whose octets before them are `sealed`.
    #[doc(hidden)]
    #[inline]
    pub fn end_whole(&self, sealed: &[u8]) -> Trailer {
        let pad = mpa::pad(sealed.len().saturating_sub(mpa::LENGTH_LEN));
        let mut trailer = Trailer { octets: [0; TRAILER_MAX], length: 0 };
        trailer.seal(pad, self.crc, |crc| crc(CRC_INIT, sealed));
        trailer
    }

    /// Makes the next FPDU of an RDMA Write; `offset` is that of `rest` in the peer's memory.
    pub fn write(&self, handle: Handle, offset: u64, rest: &[u8]) -> Fpdu {
        let (payload, last) = head(rest, self.mulpdu.tagged_payload());
        self.seal(Segment { last, kind: Kind::Write { handle, offset } }, payload)
    }

    /// Makes the next FPDU of a Read Response; `offset` is that of `rest` in the sink.
    pub fn read_response(&self, handle: Handle, offset: u64, rest: &[u8]) -> Fpdu {
        let (payload, last) = head(rest, self.mulpdu.tagged_payload());
        self.seal(Segment { last, kind: Kind::ReadResponse { handle, offset } }, payload)
    }

    /// Makes the FPDU of a Read Request, which has no payload of the caller.
    pub fn read_request(&mut self, request: &ReadRequest) -> Fpdu {
        let msn = self.read_msn;
        self.read_msn = msn.wrapping_add(1);
        let mut body = [0; ReadRequest::WIRE_LEN];
        let written = request.encode(&mut Writer::new(&mut body));
        debug_assert!(written.is_ok(), "the body has the length of a Read Request");
        self.seal_own(Segment { last: true, kind: Kind::ReadRequest { msn, offset: 0 } }, &body)
    }

    /// Makes the FPDU of a Terminate, the last of a stream.
    pub fn terminate(&self, code: Code, fault: Option<&Quote<'_>>) -> Fpdu {
        let mut body = [0; Terminate::WIRE_MAX];
        let mut w = Writer::new(&mut body);
        let written = Terminate::encode(code, fault, &mut w);
        debug_assert!(written.is_ok(), "the body has the length of the longest Terminate");
        let kind = Kind::Terminate { msn: MSN_FIRST, offset: 0 };
        self.seal_own(Segment { last: true, kind }, w.written())
    }

    /// Returns whether CRCs are used, so that making an FPDU reads its payload.
    pub const fn has_crc(&self) -> bool {
        self.crc.is_some()
    }

    /// Returns the payload length of the largest FPDU of a Send, in octets.
    pub fn send_payload_max(&self) -> usize {
        self.mulpdu.untagged_payload()
    }

    /// Returns the payload length of the largest tagged FPDU, in octets.
    pub fn tagged_payload_max(&self) -> usize {
        self.mulpdu.tagged_payload()
    }

    /// Changes the size of later segments, after the path MTU has changed.
    pub const fn set_segment_size(&mut self, mulpdu: Mulpdu) {
        self.mulpdu = mulpdu;
    }

    /// Makes an FPDU whose payload is part of the prefix.
    fn seal_own(&self, segment: Segment, body: &[u8]) -> Fpdu {
        let mut fpdu = self.seal(segment, body);
        let end = usize::from(fpdu.prefix_len).saturating_add(body.len());
        if let Some(room) = fpdu.prefix.get_mut(usize::from(fpdu.prefix_len)..end) {
            room.copy_from_slice(body);
            fpdu.prefix_len = u8::try_from(end).unwrap_or(u8::MAX);
            fpdu.payload_len = 0;
        }
        fpdu
    }

    fn seal(&self, segment: Segment, payload: &[u8]) -> Fpdu {
        let mut prefix = [0; PREFIX_MAX];
        let (length_field, header) = prefix.split_at_mut(mpa::LENGTH_LEN);
        let mut w = Writer::new(header);
        let written = segment.encode(&mut w);
        debug_assert!(written.is_ok(), "the prefix has room for the longest header");
        let header_len = w.position();
        // Payload is at most a MULPDU less its header, so nothing here saturates.
        let ulpdu = header_len.saturating_add(payload.len());
        length_field.copy_from_slice(&u16::try_from(ulpdu).unwrap_or(u16::MAX).to_be_bytes());
        let prefix_len = header_len.saturating_add(mpa::LENGTH_LEN);

        let mut trailer = Trailer { octets: [0; TRAILER_MAX], length: 0 };
        trailer.seal(mpa::pad(ulpdu), self.crc, |crc| {
            crc(crc(CRC_INIT, prefix.get(..prefix_len).unwrap_or_default()), payload)
        });
        Fpdu {
            prefix,
            trailer,
            prefix_len: u8::try_from(prefix_len).unwrap_or(u8::MAX),
            payload_len: u16::try_from(payload.len()).unwrap_or(u16::MAX),
        }
    }
}

/// Returns at most `most` octets of `rest`, and whether they are all of it.
fn head(rest: &[u8], most: usize) -> (&[u8], bool) {
    rest.get(..most).map_or((rest, true), |head| (head, rest.len() == most))
}

/// The first message number of every queue (RFC 5041 section 5.1).
pub(super) const MSN_FIRST: u32 = 1;

const UNTAGGED_PREFIX_LEN: usize = mpa::LENGTH_LEN + ddp::Header::UNTAGGED_LEN;
const PREFIX_MAX: usize = mpa::LENGTH_LEN + ddp::Header::UNTAGGED_LEN + Terminate::WIRE_MAX;
const TRAILER_MAX: usize = 3 + mpa::CRC_LEN;

#[cfg(test)]
mod tests;
