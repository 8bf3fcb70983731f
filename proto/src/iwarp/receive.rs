//! The receiver of a stream: it takes slices of any size and checks the FPDUs in them.
//!
//! # Normal operation
//!
//! [`Receiver::next`] consumes the front of a slice and returns one event at a time. `Header` gives the place of the
//! payload that follows; `Payload` lends some of the payload, to be placed after the previous part; `End` reports that
//! the FPDU is complete and its CRC correct, and what it delivers. Payload may be placed, but not acted upon, before
//! its `End`. A caller may also receive payload directly into its place ([`Receiver::payload_remaining`]) and report it
//! with [`Receiver::placed`].
//!
//! # Memory ownership
//!
//! The receiver stores one header and no payload; its size is fixed.
//!
//! # Recovery
//!
//! There is none: a fault ends the stream. A fault in a header, found by the receiver or by the caller
//! ([`Receiver::refuse`]), is reported only after the CRC of its FPDU was checked, so that a damaged header is reported
//! as a CRC fault; without CRCs it is reported at once.

use super::fault::Fault;
use super::mpa;
use super::rdmap::{Kind, ReadRequest, Segment};
use super::terminate::{Quote, Terminate};
use super::transmit::MSN_FIRST;
use super::{CRC_INIT, Crc32c, crc_octets, ddp};
use crate::verbs::Handle;
use crate::xdr::Reader;

mod whole;

pub use whole::{Carried, Whole};

/// An event of a received stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An FPDU with payload to place begins; its header was checked.
    Header(Header),
    /// The next octets of the payload.
    Payload(&'a [u8]),
    /// The FPDU is complete and its CRC is correct.
    End(Delivery),
}

/// The place of an FPDU's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// RDMA Write: the payload belongs into memory exposed for writing. The caller checks handle and bounds, unless
    /// `length` is 0: a Write of no octets names no memory (RFC 5040 section 5.2.1).
    Write {
        /// The handle of the registration.
        handle: Handle,
        /// The offset in the registration at which the payload starts.
        offset: u64,
        /// Octets of payload in this FPDU.
        length: u32,
    },
    /// Read Response: the payload belongs into the sink of the oldest outstanding Read, against
    /// which it was checked.
    ReadResponse {
        /// The handle of the sink's registration.
        handle: Handle,
        /// The offset in the registration at which the payload starts.
        offset: u64,
        /// Octets of payload in this FPDU.
        length: u32,
    },
    /// Send: the payload belongs into the Receive of this message.
    Send {
        /// The number of octets of the message before this FPDU; at 0 the message takes a Receive.
        offset: u32,
        /// Octets of payload in this FPDU.
        length: u32,
    },
}

/// The message that the end of an FPDU delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing yet: the message continues.
    Segment,
    /// A complete RDMA Write, which is in place.
    Write,
    /// A complete Send, which is in its Receive.
    Send {
        /// Octets of the message.
        length: u32,
        /// The local handle to invalidate before the Receive completes.
        invalidate: Option<Handle>,
        /// Whether the sender asked for an event.
        solicited: bool,
    },
    /// A complete Read Response, which completes the oldest outstanding Read.
    ReadResponse {
        /// The handle of the sink's registration.
        handle: Handle,
    },
    /// A Read Request of the peer.
    ReadRequest(ReadRequest),
    /// A Terminate, with which the peer ends the stream.
    Terminate(Terminate),
}

/// The receiver of one stream.
#[derive(Debug)]
pub struct Receiver {
    crc: Option<Crc32c>,
    stage: Stage,
    /// The ULPDU length and the headers of this FPDU, and the body of a Read Request or Terminate.
    held: [u8; HELD_MAX],
    held_len: usize,
    /// Padding and CRC field.
    tail: [u8; TAIL_MAX],
    tail_len: usize,
    /// The CRC register.
    sum: u32,
    /// Octets of payload still to come.
    left: usize,
    /// Octets of payload of this FPDU.
    payload_len: u32,
    /// Octets of padding of this FPDU.
    pad: usize,
    /// The segment being received, or the fault for which it is refused.
    segment: Result<Segment, Fault>,
    /// Whether the caller places the payload.
    lends: bool,
    send: SendQueue,
    read_msn: u32,
    /// The part of the oldest outstanding Read that has not arrived.
    read: Option<Expected>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Between,
    Header,
    Payload,
    Trailer,
    Dead(Fault),
}

/// The progress of queue 0.
#[derive(Clone, Copy, Debug)]
struct SendQueue {
    msn: u32,
    /// Octets of the current message received.
    offset: u32,
    /// Whether the current message invalidates and is solicited: the same in all its segments.
    variant: Option<(bool, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    handle: Handle,
    offset: u64,
    left: u32,
}

impl Receiver {
    /// Creates the receiver of a new stream. Without `crc` the CRC field is ignored.
    pub const fn new(crc: Option<Crc32c>) -> Self {
        Self {
            crc,
            stage: Stage::Between,
            held: [0; HELD_MAX],
            held_len: 0,
            tail: [0; TAIL_MAX],
            tail_len: 0,
            sum: CRC_INIT,
            left: 0,
            payload_len: 0,
            pad: 0,
            segment: Err(Fault::UlpduLength),
            lends: false,
            send: SendQueue { msn: MSN_FIRST, offset: 0, variant: None },
            read_msn: MSN_FIRST,
            read: None,
        }
    }

    /// Consumes the front of `bytes` up to the next event. Returns `None` once all octets are
    /// consumed.
    ///
    /// An event that needs no further octets is returned even for an empty slice. After a fault every call returns that
    /// fault.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        loop {
            match self.stage {
                Stage::Between if bytes.is_empty() => return Ok(None),
                Stage::Between => {
                    self.held_len = 0;
                    self.stage = Stage::Header;
                }
                Stage::Header => {
                    if !self.gather_header(bytes) {
                        return Ok(None);
                    }
                    if let Some(header) = self.on_header()? {
                        return Ok(Some(Event::Header(header)));
                    }
                }
                Stage::Payload if self.left == 0 => {
                    self.tail_len = 0;
                    self.stage = Stage::Trailer;
                }
                Stage::Payload => {
                    let piece = take(bytes, self.left);
                    if piece.is_empty() {
                        return Ok(None);
                    }
                    self.left = self.left.saturating_sub(piece.len());
                    if let Some(crc) = self.crc {
                        self.sum = crc(self.sum, piece);
                    }
                    if self.lends && self.segment.is_ok() {
                        return Ok(Some(Event::Payload(piece)));
                    }
                    if self.segment.is_ok() {
                        append(&mut self.held, &mut self.held_len, piece);
                    }
                }
                Stage::Trailer => {
                    let missing =
                        self.pad.saturating_add(mpa::CRC_LEN).saturating_sub(self.tail_len);
                    let piece = take(bytes, missing);
                    append(&mut self.tail, &mut self.tail_len, piece);
                    if piece.len() < missing {
                        return Ok(None);
                    }
                    return self.on_trailer().map(|delivery| Some(Event::End(delivery)));
                }
                Stage::Dead(fault) => return Err(fault),
            }
        }
    }

    /// Refuses the FPDU whose header was returned last, or whose payload is arriving.
    ///
    /// If CRCs are used, the rest of the FPDU is skipped and `next` reports `fault`, or a CRC fault
    /// if the CRC is wrong. Otherwise the stream ends at once.
    pub fn refuse(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.crc.is_none() {
            self.stage = Stage::Dead(fault);
            return Err(fault);
        }
        self.segment = Err(fault);
        Ok(())
    }

    /// Reports that the caller received the next `count` octets of payload directly into their
    /// place.
    ///
    /// `add` adds these octets to the CRC register it is given; it is called only if CRCs are used.
    pub fn placed(&mut self, count: usize, add: impl FnOnce(u32) -> u32) {
        debug_assert!(count <= self.payload_remaining(), "more placed than the FPDU has");
        self.left = self.left.saturating_sub(count);
        if self.crc.is_some() {
            self.sum = add(self.sum);
        }
    }

    /// Declares that the oldest outstanding Read fills `length` octets of `handle` from `offset`.
    ///
    /// Call it when the Read becomes the oldest, before its response can arrive.
    pub fn expect_read(&mut self, handle: Handle, offset: u64, length: u32) {
        self.read = Some(Expected { handle, offset, left: length });
    }

    /// Returns the number of payload octets of this FPDU that the caller may still receive directly
    /// into place.
    pub fn payload_remaining(&self) -> usize {
        let lent = self.stage == Stage::Payload && self.lends && self.segment.is_ok();
        if lent { self.left } else { 0 }
    }

    /// Returns the number of payload octets of this FPDU that have arrived to be placed.
    pub fn payload_arrived(&self) -> usize {
        let in_fpdu = matches!(self.stage, Stage::Payload | Stage::Trailer);
        let lent = in_fpdu && self.lends && self.segment.is_ok();
        if lent { self.payload_length().saturating_sub(self.left) } else { 0 }
    }

    /// Returns the payload length of the FPDU being received, in octets, including the octets that
    /// have arrived.
    pub fn payload_length(&self) -> usize {
        usize::try_from(self.payload_len).unwrap_or(usize::MAX)
    }

    /// Returns whether the FPDU being received is the last of its message.
    pub fn is_last(&self) -> bool {
        self.segment.is_ok_and(|segment| segment.last)
    }

    /// Returns whether the FPDU being received, or received last, is valid so far and not the last of its message.
    pub fn goes_on(&self) -> bool {
        self.segment.is_ok_and(|segment| !segment.last)
    }

    /// Returns whether the stream is between two FPDUs, the only point at which it may end.
    pub fn is_between(&self) -> bool {
        self.stage == Stage::Between
    }

    /// Returns whether a Send has begun and is not complete.
    ///
    /// An FPDU belongs to no message until its header is complete.
    pub fn has_send_begun(&self) -> bool {
        let in_fpdu = matches!(self.stage, Stage::Payload | Stage::Trailer);
        let is_send = matches!(self.segment, Ok(Segment { kind: Kind::Send { .. }, .. }));
        self.send.variant.is_some() || in_fpdu && is_send
    }

    /// Returns the number of octets that the oldest outstanding Read still waits for, if there is a
    /// Read.
    pub fn read_remaining(&self) -> Option<usize> {
        let read = self.read?;
        let is_response =
            matches!(self.segment, Ok(Segment { kind: Kind::ReadResponse { .. }, .. }));
        let arrived = if is_response { self.payload_arrived() } else { 0 };
        Some(usize::try_from(read.left).unwrap_or(usize::MAX).saturating_sub(arrived))
    }

    /// Returns the segment being received, or received last, for a Terminate to quote.
    pub fn quote(&self) -> Option<Quote<'_>> {
        let (length, rest) = self.held.get(..self.held_len)?.split_first_chunk()?;
        let (ddp, body) = rest.split_at_checked(ddp::Header::length(*rest.first()?))?;
        let reads = matches!(self.segment, Ok(Segment { kind: Kind::ReadRequest { .. }, .. }));
        let rdmap = if reads { body } else { &[] };
        Some(Quote { length: u16::from_be_bytes(*length), ddp, rdmap })
    }

    /// Moves header octets from `bytes` to `held`; returns whether the header is complete.
    fn gather_header(&mut self, bytes: &mut &[u8]) -> bool {
        if self.held_len == 0
            && let Some(ahead) = bytes.first_chunk::<AHEAD>()
        {
            // Mostly the whole header is here, and a copy of fixed size is a few instructions.
            if let Some(room) = self.held.first_chunk_mut() {
                *room = *ahead;
            }
            self.held_len = header_end(ahead);
            take(bytes, self.held_len);
            return true;
        }
        loop {
            let end = header_end(self.held.get(..self.held_len).unwrap_or_default());
            let missing = end.saturating_sub(self.held_len);
            if missing == 0 {
                return true;
            }
            let piece = take(bytes, missing);
            if piece.is_empty() {
                return false;
            }
            append(&mut self.held, &mut self.held_len, piece);
        }
    }

    /// Checks a complete header and determines what follows it.
    fn on_header(&mut self) -> Result<Option<Header>, Fault> {
        let held = self.held.get(..self.held_len).unwrap_or_default();
        if let Some(crc) = self.crc {
            self.sum = crc(CRC_INIT, held);
        }
        let ulpdu = ulpdu_length(held).unwrap_or(0);
        self.pad = mpa::pad(ulpdu);
        self.left = ulpdu.saturating_add(mpa::LENGTH_LEN).saturating_sub(held.len());
        self.payload_len = u32::try_from(self.left).unwrap_or(u32::MAX);
        self.stage = Stage::Payload;
        self.lends = false;
        let mut r = Reader::new(held.get(mpa::LENGTH_LEN..).unwrap_or_default());
        match Segment::decode(&mut r).and_then(|segment| Ok((segment, self.check(segment)?))) {
            Ok((segment, header)) => {
                self.segment = Ok(segment);
                self.lends = header.is_some();
                Ok(header)
            }
            Err(fault) => self.refuse(fault).map(|()| None),
        }
    }

    /// Checks a segment against the state of its queue.
    fn check(&self, segment: Segment) -> Result<Option<Header>, Fault> {
        let length = self.payload_len;
        match segment.kind {
            Kind::Write { handle, offset } => {
                // RFC 5041 section 7.1: the offset may not wrap within a segment.
                offset.checked_add(u64::from(length)).ok_or(Fault::TaggedWrap)?;
                Ok(Some(Header::Write { handle, offset, length }))
            }
            Kind::ReadResponse { handle, offset } => {
                let Some(read) = self.read.filter(|read| read.handle == handle) else {
                    return Err(Fault::TaggedStag);
                };
                let fits = if segment.last { length == read.left } else { length < read.left };
                if offset != read.offset || !fits {
                    return Err(Fault::TaggedBounds);
                }
                Ok(Some(Header::ReadResponse { handle, offset, length }))
            }
            Kind::Send { invalidate, solicited, msn, offset } => {
                check_number(msn, self.send.msn)?;
                if offset != self.send.offset || offset.checked_add(length).is_none() {
                    return Err(Fault::MessageOffset);
                }
                let variant = (invalidate.is_some(), solicited);
                if self.send.variant.is_some_and(|begun| begun != variant) {
                    return Err(Fault::UnexpectedOpcode);
                }
                Ok(Some(Header::Send { offset, length }))
            }
            Kind::ReadRequest { msn, offset } => {
                // A MULPDU is never so small that a Read Request needs two segments.
                check_number(msn, self.read_msn)?;
                check_single(&segment, offset)?;
                let whole = usize::try_from(length) == Ok(ReadRequest::WIRE_LEN);
                if whole { Ok(None) } else { Err(Fault::UlpduLength) }
            }
            Kind::Terminate { msn, offset } => {
                check_number(msn, MSN_FIRST)?;
                check_single(&segment, offset)?;
                let least = usize::try_from(length).is_ok_and(|l| l >= Terminate::WIRE_MIN);
                if least { Ok(None) } else { Err(Fault::UlpduLength) }
            }
        }
    }

    /// Checks the CRC, then delivers.
    fn on_trailer(&mut self) -> Result<Delivery, Fault> {
        let delivery = self.check_crc().and(self.segment).and_then(|segment| self.deliver(segment));
        match delivery {
            Ok(_) => self.stage = Stage::Between,
            Err(fault) => self.stage = Stage::Dead(fault),
        }
        delivery
    }

    fn check_crc(&self) -> Result<(), Fault> {
        let Some(crc) = self.crc else { return Ok(()) };
        let tail = self.tail.get(..self.tail_len).and_then(|t| t.split_at_checked(self.pad));
        let Some((pad, field)) = tail else { return Err(Fault::Crc) };
        let sum = if pad.is_empty() { self.sum } else { crc(self.sum, pad) };
        if crc_octets(sum) == field { Ok(()) } else { Err(Fault::Crc) }
    }

    /// Advances the queue of a segment that arrived completely.
    fn deliver(&mut self, segment: Segment) -> Result<Delivery, Fault> {
        let length = self.payload_len;
        let body = self.held.get(BODY_AT..self.held_len).unwrap_or_default();
        Ok(match segment.kind {
            Kind::Write { .. } if segment.last => Delivery::Write,
            Kind::ReadResponse { handle, .. } if segment.last => {
                self.read = None;
                Delivery::ReadResponse { handle }
            }
            Kind::Send { invalidate, solicited, msn, offset } if segment.last => {
                self.send = SendQueue { msn: msn.wrapping_add(1), offset: 0, variant: None };
                Delivery::Send { length: offset.saturating_add(length), invalidate, solicited }
            }
            Kind::Write { .. } => Delivery::Segment,
            Kind::ReadResponse { offset, .. } => {
                if let Some(read) = &mut self.read {
                    // `check` found that the segment lies within the Read.
                    read.left = read.left.saturating_sub(length);
                    read.offset = offset.wrapping_add(u64::from(length));
                }
                Delivery::Segment
            }
            Kind::Send { invalidate, solicited, offset, .. } => {
                self.send.offset = offset.saturating_add(length);
                self.send.variant = Some((invalidate.is_some(), solicited));
                Delivery::Segment
            }
            Kind::ReadRequest { msn, .. } => {
                let request = ReadRequest::decode(&mut Reader::new(body));
                self.read_msn = msn.wrapping_add(1);
                Delivery::ReadRequest(request.map_err(|_| Fault::UlpduLength)?)
            }
            Kind::Terminate { .. } => {
                let terminate = Terminate::decode(&mut Reader::new(body));
                Delivery::Terminate(terminate.map_err(|_| Fault::UlpduLength)?)
            }
        })
    }
}

/// Returns the end of the header that starts with `held`, as far as it is known from `held`.
fn header_end(held: &[u8]) -> usize {
    let Some(ulpdu) = ulpdu_length(held) else { return mpa::LENGTH_LEN };
    let header = held.get(mpa::LENGTH_LEN).map_or(1, |control| ddp::Header::length(*control));
    // A ULPDU shorter than its header ends first, and is found out when it is parsed.
    ulpdu.min(header).saturating_add(mpa::LENGTH_LEN)
}

fn ulpdu_length(held: &[u8]) -> Option<usize> {
    held.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
}

/// Checks that the number of a message is `due`, the one expected next.
const fn check_number(msn: u32, due: u32) -> Result<(), Fault> {
    // [V2-4.2-1] a reliable connection delivers each message once, in order.
    //~ V2-4.2-1: `msn == due` -> `msn <= due`
    if msn == due { Ok(()) } else { Err(Fault::MessageNumber) }
}

/// Checks the segment at `offset` of a message that always has exactly one segment.
const fn check_single(segment: &Segment, offset: u32) -> Result<(), Fault> {
    if offset != 0 {
        Err(Fault::MessageOffset)
    } else if !segment.last {
        Err(Fault::UlpduLength)
    } else {
        Ok(())
    }
}

/// Takes at most `most` octets off the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at_checked(most).unwrap_or((bytes, &[]));
    *bytes = rest;
    taken
}

/// Appends as much of `piece` as fits.
fn append(room: &mut [u8], length: &mut usize, piece: &[u8]) {
    for (slot, octet) in room.iter_mut().skip(*length).zip(piece) {
        *slot = *octet;
        *length = length.saturating_add(1);
    }
}

/// The offset of the body of an untagged message in `held`.
const BODY_AT: usize = mpa::LENGTH_LEN + ddp::Header::UNTAGGED_LEN;
const HELD_MAX: usize = BODY_AT + ReadRequest::WIRE_LEN;
/// The length of the longest header, in octets.
const AHEAD: usize = BODY_AT;
const TAIL_MAX: usize = 3 + mpa::CRC_LEN;

#[cfg(test)]
mod tests;
