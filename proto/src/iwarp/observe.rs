//! The observer of a stream: it reads what both ends send, as a capture has it.
//!
//! # Normal operation
//!
//! [`Observer::next`] takes octets that one end sent and returns what they complete: the MPA frame that opens the flow,
//! then FPDU after FPDU, each with the Send that it belongs to. Unlike the [receiver](super::receive) it places and
//! answers nothing, and a broken rule does not end it: the length of an FPDU says where the next one begins, whatever is
//! wrong within.
//!
//! # Recovery
//!
//! Octets that a capture lacks are reported with [`Observer::missing`]. The observer goes on if they lie within an FPDU
//! whose length it knows. Otherwise nothing says where the next FPDU begins (RFC 5044 section 4.3 has markers for that,
//! and nobody uses them), and the flow stays unreadable.
//!
//! # Limits
//!
//! Each flow holds at most one FPDU, and one Send of at most the length that the caller allows.

use alloc::vec::Vec;
use core::fmt;

use super::fault::Fault;
use super::mpa::frame::{Frame, Kind as FrameKind, gather};
use super::mpa::handshake::Fault as FrameFault;
use super::mpa::{CRC_LEN, LENGTH_LEN, pad};
use super::rdmap::{Kind, Segment};
use super::{CRC_INIT, Crc32c, crc_octets};
use crate::xdr::{Reader, Truncated};

/// The end that sent octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that sends the MPA Request.
    Active,
    /// The end that sends the MPA Reply.
    Passive,
}

/// Something that a flow completed.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The frame that opens the flow.
    Frame(Frame<'a>),
    /// An FPDU.
    Fpdu(Fpdu<'a>, Message<'a>),
}

/// The Send that an FPDU belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// The FPDU belongs to no Send.
    None,
    /// The Send continues. The octets are those up to and including this FPDU.
    Part(&'a [u8]),
    /// The Send is complete.
    Whole(&'a [u8]),
    /// The Send is not delivered: it breaks this rule, or has more octets than the observer keeps
    /// ([`Fault::MessageTooLong`]).
    Broken(Fault),
    /// Octets of the Send before this FPDU were missing, or an FPDU before it was broken.
    Incomplete,
}

/// A whole FPDU.
#[derive(Clone, Copy)]
pub struct Fpdu<'a> {
    /// The length of the ULPDU, in octets.
    pub ulpdu_length: u16,
    /// The header of the DDP segment, or the rule that it breaks.
    pub segment: Result<Segment, Fault>,
    /// The octets after the header.
    pub payload: &'a [u8],
    /// What the CRC field says.
    pub crc: CrcField,
}

/// The CRC field of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrcField {
    /// The field holds the CRC.
    Right,
    /// The field is zero, as it is where CRCs are not used.
    Zero,
    /// The field holds something else.
    Wrong,
}

/// Why an observer can read no more of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// The flow does not begin with an MPA frame that can be read, or has markers.
    Frame(FrameFault),
    /// Octets are missing, and nothing says where the next FPDU begins.
    Missing,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(fault) => fault.fmt(f),
            Self::Missing => {
                f.write_str("octets are missing, so where the next FPDU begins is unknown")
            }
        }
    }
}

impl core::error::Error for Unreadable {}

/// The observer of one connection.
#[derive(Debug)]
pub struct Observer {
    terms: Terms,
    active: Flow,
    passive: Flow,
}

/// What holds for both flows.
#[derive(Clone, Copy, Debug)]
struct Terms {
    crc: Crc32c,
    /// Whether either end asked for CRCs.
    uses_crc: bool,
    message_max: usize,
}

/// The octets that one end sends.
#[derive(Debug)]
struct Flow {
    stage: Stage,
    /// The frame or FPDU that is arriving, or the one that was shown last.
    held: Vec<u8>,
    /// Whether `held` was shown, and its room is free.
    is_shown: bool,
    /// Whether octets of the FPDU in `held` are missing.
    is_damaged: bool,
    /// Whether the other end asked for markers.
    has_markers: bool,
    message: Vec<u8>,
    /// The number of the Send whose octets `message` has.
    send: Option<u32>,
    /// Whether an FPDU that may belong to the Send that is arriving was missing or broken.
    is_incomplete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Frame(FrameKind),
    Fpdus,
    Dead(Unreadable),
}

impl Observer {
    /// Creates the observer of a connection from its first octet. A Send of more than `message_max` octets is not put
    /// together.
    pub const fn new(crc: Crc32c, message_max: usize) -> Self {
        Self {
            terms: Terms { crc, uses_crc: false, message_max },
            active: Flow::new(FrameKind::Request),
            passive: Flow::new(FrameKind::Reply),
        }
    }

    /// Takes octets that `sender` sent, up to the end of the next frame or FPDU. Returns `None` once all are taken.
    ///
    /// # Errors
    /// Nothing can be read of this flow any more; see [`Unreadable`]. Every later call returns the same.
    pub fn next(&mut self, sender: End, bytes: &mut &[u8]) -> Result<Option<Seen<'_>>, Unreadable> {
        let (flow, other) = match sender {
            End::Active => (&mut self.active, &mut self.passive),
            End::Passive => (&mut self.passive, &mut self.active),
        };
        flow.forget_shown();
        match flow.stage {
            Stage::Dead(why) => Err(why),
            Stage::Frame(kind) => {
                let Flow { held, stage, is_shown, has_markers, .. } = flow;
                match gather(kind, held, bytes) {
                    Err(fault) => {
                        *stage = Stage::Dead(Unreadable::Frame(fault));
                        Err(Unreadable::Frame(fault))
                    }
                    Ok(None) => Ok(None),
                    Ok(Some(frame)) => {
                        self.terms.uses_crc |= frame.flags.crc;
                        other.has_markers |= frame.flags.markers;
                        *stage = Stage::Fpdus;
                        if *has_markers {
                            *stage = Stage::Dead(Unreadable::Frame(FrameFault::Markers));
                        }
                        *is_shown = true;
                        Ok(Some(Seen::Frame(frame)))
                    }
                }
            }
            Stage::Fpdus if flow.has_markers => {
                let why = Unreadable::Frame(FrameFault::Markers);
                flow.stage = Stage::Dead(why);
                Err(why)
            }
            Stage::Fpdus => Ok(flow.next_fpdu(bytes, self.terms)),
        }
    }

    /// Reports that `count` octets of `sender` are missing here.
    ///
    /// # Errors
    /// They reach beyond an FPDU whose length is known, so nothing can be read of this flow any more.
    pub fn missing(&mut self, sender: End, count: u64) -> Result<(), Unreadable> {
        let flow = match sender {
            End::Active => &mut self.active,
            End::Passive => &mut self.passive,
        };
        flow.forget_shown();
        if let Stage::Dead(why) = flow.stage {
            return Err(why);
        }
        let wanted = flow.held.first_chunk().map_or(0, |length| wire_len(*length));
        let left = wanted.saturating_sub(flow.held.len());
        match usize::try_from(count) {
            Ok(count) if flow.stage == Stage::Fpdus && count <= left => {
                flow.held.resize(flow.held.len().saturating_add(count), 0);
                flow.is_damaged = true;
                Ok(())
            }
            _ => {
                flow.stage = Stage::Dead(Unreadable::Missing);
                Err(Unreadable::Missing)
            }
        }
    }

    /// Returns the number of octets of memory that the observer holds besides itself.
    pub fn memory(&self) -> usize {
        let flow = |flow: &Flow| flow.held.capacity().saturating_add(flow.message.capacity());
        flow(&self.active).saturating_add(flow(&self.passive))
    }
}

impl Flow {
    const fn new(kind: FrameKind) -> Self {
        Self {
            stage: Stage::Frame(kind),
            held: Vec::new(),
            is_shown: false,
            is_damaged: false,
            has_markers: false,
            message: Vec::new(),
            send: None,
            is_incomplete: false,
        }
    }

    /// Frees the room of what was shown last.
    fn forget_shown(&mut self) {
        if self.is_shown {
            self.held.clear();
            self.is_shown = false;
        }
        if self.send.is_none() && self.message.capacity() > KEPT {
            self.message = Vec::new();
        }
    }

    /// Takes octets up to the end of an FPDU.
    fn next_fpdu(&mut self, bytes: &mut &[u8], terms: Terms) -> Option<Seen<'_>> {
        loop {
            let wanted = self.held.first_chunk().map_or(LENGTH_LEN, |length| wire_len(*length));
            let missing = wanted.saturating_sub(self.held.len());
            let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
            self.held.extend_from_slice(taken);
            *bytes = rest;
            if taken.len() < missing {
                return None;
            }
            // Behind the length there is at least a CRC field.
            if self.held.len() == LENGTH_LEN {
                continue;
            }
            if !self.is_damaged {
                break;
            }
            // What it belonged to is damaged, too.
            self.held.clear();
            self.is_damaged = false;
            self.send = None;
            self.is_incomplete = true;
        }
        self.is_shown = true;
        let fpdu = Fpdu::decode(&mut Reader::new(&self.held), terms.crc).ok()?;
        let is_delivered = !terms.uses_crc || fpdu.crc == CrcField::Right;
        let message = match fpdu.segment {
            Ok(Segment { kind: Kind::Send { .. }, .. }) if !is_delivered => {
                self.send = None;
                self.is_incomplete = true;
                Message::Broken(Fault::Crc)
            }
            Ok(Segment { kind: Kind::Send { offset: 1.., .. }, .. }) if self.is_incomplete => {
                Message::Incomplete
            }
            Ok(Segment { last, kind: Kind::Send { msn, offset, .. } }) => {
                self.is_incomplete = false;
                let progress = (&mut self.message, &mut self.send);
                match join(progress, (msn, offset), fpdu.payload, terms.message_max) {
                    Err(fault) => {
                        self.is_incomplete = true;
                        Message::Broken(fault)
                    }
                    Ok(()) if last => {
                        self.send = None;
                        Message::Whole(&self.message)
                    }
                    Ok(()) => Message::Part(&self.message),
                }
            }
            _ => Message::None,
        };
        Some(Seen::Fpdu(fpdu, message))
    }
}

/// Appends the payload of an FPDU to its Send.
fn join(
    (message, send): (&mut Vec<u8>, &mut Option<u32>),
    (msn, offset): (u32, u32),
    payload: &[u8],
    message_max: usize,
) -> Result<(), Fault> {
    if offset == 0 {
        message.clear();
        *send = Some(msn);
    }
    let fault = if *send != Some(msn) {
        Fault::MessageNumber
    } else if usize::try_from(offset) != Ok(message.len()) {
        Fault::MessageOffset
    } else if message.len().saturating_add(payload.len()) > message_max {
        Fault::MessageTooLong
    } else {
        message.extend_from_slice(payload);
        return Ok(());
    };
    *send = None;
    Err(fault)
}

impl<'a> Fpdu<'a> {
    /// Parses a whole FPDU: ULPDU length, ULPDU, padding and CRC field. Markers are not supported.
    ///
    /// # Errors
    /// The octets end before the FPDU does.
    pub fn decode(r: &mut Reader<'a>, crc: Crc32c) -> Result<Self, Truncated> {
        let octets = r.rest();
        let start = r.position();
        let ulpdu_length = u16::from_be_bytes(r.array()?);
        let length = usize::from(ulpdu_length);
        let mut ulpdu = Reader::new(r.take(length)?);
        r.take(pad(length))?;
        let covered = octets.get(..r.position().saturating_sub(start)).unwrap_or_default();
        let field: [u8; CRC_LEN] = r.array()?;
        let crc = if field == crc_octets(crc(CRC_INIT, covered)) {
            CrcField::Right
        } else if field == [0; CRC_LEN] {
            CrcField::Zero
        } else {
            CrcField::Wrong
        };
        let segment = Segment::decode(&mut ulpdu);
        Ok(Self { ulpdu_length, segment, payload: ulpdu.rest(), crc })
    }
}

/// Returns the length of an FPDU that begins with this length field, in octets.
fn wire_len(length: [u8; LENGTH_LEN]) -> usize {
    let ulpdu = usize::from(u16::from_be_bytes(length));
    ulpdu.saturating_add(pad(ulpdu)).saturating_add(LENGTH_LEN).saturating_add(CRC_LEN)
}

/// The most octets of memory that a flow keeps for its next Send.
const KEPT: usize = 64 << 10;

// Payload never reaches a log, so only its length is printed.

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Part(octets) => f.debug_tuple("Part").field(&octets.len()).finish(),
            Self::Whole(octets) => f.debug_tuple("Whole").field(&octets.len()).finish(),
            Self::Broken(fault) => f.debug_tuple("Broken").field(fault).finish(),
            Self::Incomplete => f.write_str("Incomplete"),
        }
    }
}

impl fmt::Debug for Fpdu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fpdu = f.debug_struct("Fpdu");
        fpdu.field("ulpdu_length", &self.ulpdu_length).field("segment", &self.segment);
        fpdu.field("payload_length", &self.payload.len()).field("crc", &self.crc).finish()
    }
}

#[cfg(test)]
mod tests;
