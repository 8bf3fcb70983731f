//! RDMAP operations (RFC 5040 section 4), the messages that DDP segments carry.
//!
//! RDMAP's control octet is `RV(2) rsvd(2) opcode(4)`, in the octet DDP reserves for it. The opcode
//! fixes the buffer model and, if untagged, the queue (RFC 5040 section 4.3, figure 3).

use super::ddp::{self, SegmentPlacement};
use super::fault::Fault;
use crate::verbs::Handle;
use crate::xdr::{Reader, Truncated, Writer};

/// The RDMAP version (RFC 5040 section 4.2).
pub const VERSION: u8 = 1;

/// One DDP segment of an RDMAP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// This segment is the last of its message.
    pub last: bool,
    /// The kind of message, and the place of this segment.
    pub kind: Kind,
}

/// The RDMAP messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RDMA Write: fills memory that the receiver exposed.
    Write {
        /// The handle of the receiver's registration.
        handle: Handle,
        /// The offset in the registration at which this segment starts.
        offset: u64,
    },
    /// RDMA Read Response: fills the sink named by a Read Request.
    ReadResponse {
        /// The handle of the sink's registration.
        handle: Handle,
        /// The offset in the registration at which this segment starts.
        offset: u64,
    },
    /// RDMA Read Request; the payload is one [`ReadRequest`].
    ReadRequest {
        /// Message number on queue 1.
        msn: u32,
        /// Octets of the message before this segment: 0.
        offset: u32,
    },
    /// The four Sends.
    Send {
        /// The handle of the receiver's registration to invalidate.
        invalidate: Option<Handle>,
        /// The sender asks for an event (the SE variants).
        solicited: bool,
        /// Message number on queue 0.
        msn: u32,
        /// Octets of the message before this segment.
        offset: u32,
    },
    /// Terminate; the payload gives the reason.
    Terminate {
        /// Message number on queue 2: 1.
        msn: u32,
        /// Octets of the message before this segment: 0.
        offset: u32,
    },
}

impl Segment {
    /// Parses the header of a segment.
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let header = ddp::Header::decode(r)?;
        if header.ulp >> VERSION_SHIFT != VERSION {
            return Err(Fault::RdmapVersion);
        }
        let kind = match (header.placement, header.ulp & OPCODE_MASK) {
            (SegmentPlacement::Tagged { handle, offset }, WRITE) => Kind::Write { handle, offset },
            (SegmentPlacement::Tagged { handle, offset }, READ_RESPONSE) => {
                Kind::ReadResponse { handle, offset }
            }
            (
                SegmentPlacement::Untagged { queue: QUEUE_SEND, ulp, msn, offset },
                opcode @ SEND..=SEND_SE_INV,
            ) => {
                let invalidates = opcode == SEND_INV || opcode == SEND_SE_INV;
                Kind::Send {
                    invalidate: invalidates.then_some(Handle(ulp)),
                    solicited: opcode >= SEND_SE,
                    msn,
                    offset,
                }
            }
            (SegmentPlacement::Untagged { queue: QUEUE_READ, msn, offset, .. }, READ_REQUEST) => {
                Kind::ReadRequest { msn, offset }
            }
            (SegmentPlacement::Untagged { queue: QUEUE_TERMINATE, msn, offset, .. }, TERMINATE) => {
                Kind::Terminate { msn, offset }
            }
            (SegmentPlacement::Untagged { queue, .. }, _) if queue > QUEUE_TERMINATE => {
                return Err(Fault::QueueNumber);
            }
            _ => return Err(Fault::UnexpectedOpcode),
        };
        Ok(Self { last: header.last, kind })
    }

    /// Appends the header to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let (opcode, placement) = match self.kind {
            Kind::Write { handle, offset } => (WRITE, SegmentPlacement::Tagged { handle, offset }),
            Kind::ReadResponse { handle, offset } => {
                (READ_RESPONSE, SegmentPlacement::Tagged { handle, offset })
            }
            Kind::ReadRequest { msn, offset } => (
                READ_REQUEST,
                SegmentPlacement::Untagged { ulp: 0, queue: QUEUE_READ, msn, offset },
            ),
            Kind::Send { invalidate, solicited, msn, offset } => {
                let opcode = match (invalidate.is_some(), solicited) {
                    (false, false) => SEND,
                    (true, false) => SEND_INV,
                    (false, true) => SEND_SE,
                    (true, true) => SEND_SE_INV,
                };
                let ulp = invalidate.unwrap_or_default().0;
                (opcode, SegmentPlacement::Untagged { ulp, queue: QUEUE_SEND, msn, offset })
            }
            Kind::Terminate { msn, offset } => (
                TERMINATE,
                SegmentPlacement::Untagged { ulp: 0, queue: QUEUE_TERMINATE, msn, offset },
            ),
        };
        ddp::Header { last: self.last, ulp: VERSION << VERSION_SHIFT | opcode, placement }.encode(w)
    }
}

/// The payload of an RDMA Read Request (RFC 5040 section 4.4).
///
/// Wire: sink STag u32, sink TO u64, length u32, source STag u32, source TO u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The handle of the requester's registration that the response fills.
    pub sink: Handle,
    /// The offset in the sink at which the response starts.
    pub sink_offset: u64,
    /// The number of octets to read.
    pub length: u32,
    /// The handle of the responder's registration to read.
    pub source: Handle,
    /// The offset in the source at which to start.
    pub source_offset: u64,
}

impl ReadRequest {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 28;

    /// Parses a Read Request.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            sink: Handle(r.u32()?),
            sink_offset: r.u64()?,
            length: r.u32()?,
            source: Handle(r.u32()?),
            source_offset: r.u64()?,
        })
    }

    /// Appends the Read Request to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.sink.0)?;
        w.u64(self.sink_offset)?;
        w.u32(self.length)?;
        w.u32(self.source.0)?;
        w.u64(self.source_offset)
    }
}

const VERSION_SHIFT: u8 = 6;
const OPCODE_MASK: u8 = 0x0f;

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;
const SEND_INV: u8 = 4;
const SEND_SE: u8 = 5;
const SEND_SE_INV: u8 = 6;
const TERMINATE: u8 = 7;

const QUEUE_SEND: u32 = 0;
const QUEUE_READ: u32 = 1;
const QUEUE_TERMINATE: u32 = 2;
