//! The headers of an InfiniBand packet after UDP (InfiniBand Architecture volume 1, chapter 9).
//!
//! Wire: base transport header (BTH): opcode u8, `SE M pad(2) version(4)`, partition u16, reserved u8, queue pair u24,
//! `A reserved(7)`, PSN u24. Then, by opcode: DETH (datagrams: key u32, reserved u8, source queue pair u24), RETH (offset
//! u64, handle u32, length u32), AETH (syndrome u8, message number u24), immediate data u32 or IETH (handle u32), payload,
//! padding, and the invariant CRC u32.

use haulage_proto::describe::Refusal;
use haulage_proto::xdr::{Reader, Truncated};

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The opcode, with the class of the connection.
    pub opcode: u8,
    /// What the packet is a part of.
    pub operation: Operation,
    /// Which part it is.
    pub position: Position,
    /// The receiver's queue pair.
    pub queue_pair: u32,
    /// The packet sequence number.
    pub psn: u32,
    /// The memory that a Write or a Read names.
    pub target: Option<Target>,
    /// What else the header has.
    pub part: Part,
}

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// The request of an RDMA Read.
    ReadRequest,
    /// The response of an RDMA Read.
    ReadResponse,
    /// An atomic operation.
    Atomic,
    /// An acknowledgment, or a refusal.
    Acknowledge,
    /// A Send without a connection, as the connection manager uses.
    Datagram,
    /// Anything else.
    Other,
}

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Whether it begins the message.
    pub first: bool,
    /// Whether it ends the message.
    pub last: bool,
}

/// Memory of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The handle (`R_Key`).
    pub handle: u32,
    /// The virtual address.
    pub offset: u64,
    /// Octets of the whole message.
    pub length: u32,
}

/// A part of a header that some operations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// None.
    None,
    /// The handle to invalidate.
    Invalidate(u32),
    /// Immediate data.
    Immediate(u32),
    /// The syndrome of an acknowledgment.
    Syndrome(u8),
    /// The sender's queue pair.
    Source(u32),
}

impl Header {
    /// Parses the headers of a datagram. Returns them with the payload.
    ///
    /// # Errors
    /// The datagram is too short for its headers, or of another version.
    pub fn decode(octets: &[u8]) -> Result<(Self, &[u8]), Refusal> {
        let truncated = |fault: Truncated| Refusal::silent("truncated", fault.at);
        let Some((covered, _crc)) = octets.split_last_chunk::<CRC_LEN>() else {
            return Err(Refusal::silent("truncated", octets.len()));
        };
        let mut r = Reader::new(covered);
        let [opcode, flags] = r.array().map_err(truncated)?;
        if flags & VERSION_MASK != 0 {
            return Err(Refusal::silent("transport header version", 1));
        }
        r.take(2).map_err(truncated)?;
        let [_, queue_pair @ ..] = r.array::<4>().map_err(truncated)?;
        let [_, psn @ ..] = r.array::<4>().map_err(truncated)?;
        let (operation, position, extra) = meaning(opcode);
        let mut header = Self {
            opcode,
            operation,
            position,
            queue_pair: word(queue_pair),
            psn: word(psn),
            target: None,
            part: Part::None,
        };
        if operation == Operation::Datagram {
            let [_, _, _, _, _, source @ ..] = r.array::<8>().map_err(truncated)?;
            header.part = Part::Source(word(source));
        }
        header.take_extra(extra, &mut r).map_err(truncated)?;
        let pad = usize::from(flags >> PAD_SHIFT & PAD_MASK);
        let length = r.rest().len().checked_sub(pad);
        let payload = length.and_then(|length| r.rest().get(..length));
        Ok((header, payload.ok_or(Refusal::silent("padding", 1))?))
    }

    fn take_extra(&mut self, extra: Extra, r: &mut Reader<'_>) -> Result<(), Truncated> {
        match extra {
            Extra::None => {}
            Extra::Target => self.take_target(r)?,
            Extra::TargetAndImmediate => {
                self.take_target(r)?;
                self.part = Part::Immediate(r.u32()?);
            }
            Extra::Immediate => self.part = Part::Immediate(r.u32()?),
            Extra::Invalidate => self.part = Part::Invalidate(r.u32()?),
            Extra::Syndrome => {
                let [syndrome, ..] = r.array::<4>()?;
                self.part = Part::Syndrome(syndrome);
            }
        }
        Ok(())
    }

    fn take_target(&mut self, r: &mut Reader<'_>) -> Result<(), Truncated> {
        let offset = r.u64()?;
        self.target = Some(Target { handle: r.u32()?, offset, length: r.u32()? });
        Ok(())
    }

    /// Returns whether the packet only acknowledges.
    pub fn is_plain_acknowledgment(&self) -> bool {
        let refuses =
            matches!(self.part, Part::Syndrome(syndrome) if syndrome & SYNDROME_KIND != 0);
        self.operation == Operation::Acknowledge && !refuses
    }

    /// Returns the name of the operation: that of the same operation of RDMAP, where there is one.
    pub fn name(&self) -> Option<&'static str> {
        Some(match (self.operation, self.part) {
            (Operation::Send, Part::Invalidate(_)) => "SEND_INV",
            (Operation::Send, Part::Immediate(_)) => "SEND_IMM",
            (Operation::Send, _) => "SEND",
            (Operation::Write, Part::Immediate(_)) => "WRITE_IMM",
            (Operation::Write, _) => "WRITE",
            (Operation::ReadRequest, _) => "READ_REQUEST",
            (Operation::ReadResponse, _) => "READ_RESPONSE",
            (Operation::Atomic, _) => "ATOMIC",
            (Operation::Acknowledge, _) => "NAK",
            (Operation::Datagram, _) => "UD_SEND",
            (Operation::Other, _) => return None,
        })
    }
}

/// What follows the base transport header.
#[derive(Clone, Copy, Debug)]
enum Extra {
    None,
    Target,
    TargetAndImmediate,
    Immediate,
    Invalidate,
    Syndrome,
}

/// Returns what an opcode means.
const fn meaning(opcode: u8) -> (Operation, Position, Extra) {
    const FIRST: Position = Position { first: true, last: false };
    const MIDDLE: Position = Position { first: false, last: false };
    const LAST: Position = Position { first: false, last: true };
    const ONLY: Position = Position { first: true, last: true };
    match opcode {
        0x00 => (Operation::Send, FIRST, Extra::None),
        0x01 => (Operation::Send, MIDDLE, Extra::None),
        0x02 => (Operation::Send, LAST, Extra::None),
        0x03 => (Operation::Send, LAST, Extra::Immediate),
        0x04 => (Operation::Send, ONLY, Extra::None),
        0x05 => (Operation::Send, ONLY, Extra::Immediate),
        0x06 => (Operation::Write, FIRST, Extra::Target),
        0x07 => (Operation::Write, MIDDLE, Extra::None),
        0x08 => (Operation::Write, LAST, Extra::None),
        0x09 => (Operation::Write, LAST, Extra::Immediate),
        0x0a => (Operation::Write, ONLY, Extra::Target),
        0x0b => (Operation::Write, ONLY, Extra::TargetAndImmediate),
        0x0c => (Operation::ReadRequest, ONLY, Extra::Target),
        0x0d => (Operation::ReadResponse, FIRST, Extra::Syndrome),
        0x0e => (Operation::ReadResponse, MIDDLE, Extra::None),
        0x0f => (Operation::ReadResponse, LAST, Extra::Syndrome),
        0x10 => (Operation::ReadResponse, ONLY, Extra::Syndrome),
        0x11 => (Operation::Acknowledge, ONLY, Extra::Syndrome),
        0x12 => (Operation::Atomic, ONLY, Extra::Syndrome),
        0x13 | 0x14 => (Operation::Atomic, ONLY, Extra::Target),
        0x16 => (Operation::Send, LAST, Extra::Invalidate),
        0x17 => (Operation::Send, ONLY, Extra::Invalidate),
        0x64 | 0x65 => (Operation::Datagram, ONLY, Extra::None),
        _ => (Operation::Other, ONLY, Extra::None),
    }
}

fn word([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

const CRC_LEN: usize = 4;
const VERSION_MASK: u8 = 0x0f;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 3;
/// The bits of a syndrome that tell an acknowledgment from a refusal.
const SYNDROME_KIND: u8 = 0x60;
