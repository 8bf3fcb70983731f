//! Transport headers (RFC 5666 section 4): the common prefix, and the five message types.
//!
//! Decoding is total: any octets give a [`Message`] or a [`HeaderFault`] that names the broken rule, its offset and the
//! error to answer with. Decoding is as lenient as the deployed servers and clients, and no more: any nonzero list
//! discriminator announces an entry, Read chunks may come in any order, a chunk may have no segments, and an
//! `RDMA_NOMSG` may carry a body.

mod encode;
mod single_chunk;
mod unchunked;

use core::fmt;

pub use encode::{
    CallLists, Form, ReplyLists, call_wire_len, encode_call, encode_done, encode_error,
    encode_reply,
};
pub use single_chunk::{SINGLE_CHUNK_LEN, single_chunk};
pub use unchunked::{UNCHUNKED_LEN, unchunked};

pub use super::padding::Padding;

use super::VERSION;
use super::error::ErrorBody;
use crate::chunk::{ListFault, ReadList, WriteChunk, WriteList};
use crate::verbs::Segment;
use crate::xdr::{Reader, Truncated, Writer};

/// The first four words of every message: XVCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub vers: u32,
    /// `rdma_credit`: the credits requested by a Call, or granted by a Reply.
    pub credit: u32,
    /// `proc`, the message type.
    pub proc: u32,
}

impl Prefix {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 16;

    /// Parses the prefix and advances `r`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { xid: r.u32()?, vers: r.u32()?, credit: r.u32()?, proc: r.u32()? })
    }

    /// Appends the prefix to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // [R5666-4.1-6] every version begins with these words.
        w.words([self.xid, self.vers, self.credit, self.proc])
    }
}

/// A message whose transport header is valid.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// `RDMA_MSG`: the RPC message, reduced or not, follows the header.
    Msg(Rpc<'a>),
    /// `RDMA_NOMSG`: the RPC message is in a chunk.
    NoMsg(Rpc<'a>),
    /// `RDMA_MSGP`: the RPC message follows the header, with padding before long opaques.
    MsgP(Padding, Rpc<'a>),
    /// `RDMA_DONE`: the Read chunks of a Reply are no longer needed.
    Done {
        /// The prefix. It has the XID of the Reply.
        prefix: Prefix,
    },
    /// `RDMA_ERROR`.
    Error {
        /// The prefix. It has the XID of the message at fault.
        prefix: Prefix,
        /// The error.
        error: ErrorBody,
    },
}

/// A message that conveys a Call or a Reply; the transport header does not tell which.
#[derive(Clone, Copy)]
pub struct Rpc<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The Read list: the whole RPC message at position zero, reduced items at other positions.
    pub reads: ReadList<'a>,
    /// The Write list: in a Call, memory for reduced results; in a Reply, the lengths written.
    pub writes: WriteList<'a>,
    /// The Reply chunk: in a Call, memory for the whole Reply; in a Reply, the length written.
    pub reply: Option<WriteChunk<'a>>,
    /// The octets after the header.
    pub payload: &'a [u8],
}

/// The direction of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A Call, sent to a Responder.
    Call,
    /// A Reply, sent to a Requester.
    Reply,
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderFault {
    /// The rule that the message breaks.
    pub rule: &'static str,
    /// The offset of the fault in the message.
    pub at: usize,
    /// The prefix of the message, if it is complete.
    pub prefix: Option<Prefix>,
    /// The error to answer with; `None` if the receiver sends no answer.
    pub report: Option<ErrorBody>,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.rule, self.at)
    }
}

impl core::error::Error for HeaderFault {}

impl Message<'_> {
    /// Returns the prefix of the message.
    pub const fn prefix(&self) -> &Prefix {
        match self {
            Self::Msg(rpc) | Self::NoMsg(rpc) | Self::MsgP(_, rpc) => &rpc.prefix,
            Self::Done { prefix } | Self::Error { prefix, .. } => prefix,
        }
    }
}

impl<'a> Rpc<'a> {
    /// Returns every segment of the header, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let reads = self.reads.entries().map(|(_, segment)| segment);
        let writes = self.writes.chunks().flat_map(|chunk| chunk.segments());
        reads.chain(writes).chain(self.reply.into_iter().flat_map(|chunk| chunk.segments()))
    }

    /// Returns whether the header has no chunk, not even one without segments.
    pub const fn has_no_chunks(&self) -> bool {
        self.reads.is_empty() && self.writes.chunk_count() == 0 && self.reply.is_none()
    }

    /// Returns whether the RPC message itself is in a Read chunk.
    pub fn is_read(&self) -> bool {
        self.reads.chunks().any(|chunk| chunk.position() == 0)
    }

    /// Returns the direction in the message type word of the RPC message, if that word is inline and valid.
    pub fn direction(&self) -> Option<Direction> {
        let mut r = Reader::new(self.payload);
        match (r.u32(), r.u32()) {
            (Ok(_), Ok(0)) => Some(Direction::Call),
            (Ok(_), Ok(1)) => Some(Direction::Reply),
            _ => None,
        }
    }
}

// Payload never reaches a log, so only its length is printed.
impl fmt::Debug for Rpc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rpc = f.debug_struct("Rpc");
        rpc.field("prefix", &self.prefix).field("reads", &self.reads);
        rpc.field("writes", &self.writes).field("reply", &self.reply);
        rpc.field("payload_length", &self.payload.len()).finish()
    }
}

/// Decodes one received message, and checks that a body after its header starts with the XID of the
/// header.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    let decoded = decode_transport(message)?;
    if let Message::Msg(rpc) | Message::NoMsg(rpc) | Message::MsgP(_, rpc) = &decoded {
        check_xid(rpc, message.len())?;
    }
    Ok(decoded)
}

/// Decodes the Transport stream of one message, whatever octets follow it.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode_transport(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    let mut r = Reader::new(message);
    // Without a whole prefix there is no XID to answer under.
    let prefix = Prefix::decode(&mut r).map_err(|fault| HeaderFault {
        rule: "shorter than the common prefix",
        at: fault.at,
        prefix: None,
        report: None,
    })?;
    if prefix.vers != VERSION {
        return Err(HeaderFault {
            rule: "unsupported version",
            at: 4,
            prefix: Some(prefix),
            // [R5666-4.2-2] [R5666-4.2-3] tell the versions spoken. An error is not answered: its version is that of
            // the message it is about, and the answer would be answered in turn.
            report: Some(ErrorBody::Vers { low: VERSION, high: VERSION })
                //~ V2-4.3.2-1: `ERROR` -> `ERROR && prefix.vers < VERSION`
                .filter(|_| prefix.proc != ERROR),
        });
    }
    decode_body(&mut r, prefix).map_err(|broken| broken.of(prefix))
}

fn decode_body<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    Ok(match prefix.proc {
        MSG => Message::Msg(decode_rpc(r, prefix)?),
        NOMSG => Message::NoMsg(decode_rpc(r, prefix)?),
        MSGP => {
            let padding = Padding { align: r.u32()?, thresh: r.u32()? };
            Message::MsgP(padding, decode_rpc(r, prefix)?)
        }
        DONE => {
            end(r)?;
            Message::Done { prefix }
        }
        ERROR => {
            let at = r.position();
            let unknown = Broken { rule: "unknown error code", at };
            let error = ErrorBody::decode(r)?.ok_or(unknown)?;
            end(r)?;
            Message::Error { prefix, error }
        }
        //~ R5666-4.2-1: `return Err(Broken { rule: "unknown message type", at: 12 })` ->
        //~   `Message::Msg(decode_rpc(r, prefix)?)`
        _ => return Err(Broken { rule: "unknown message type", at: 12 }),
    })
}

fn decode_rpc<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Rpc<'a>, Broken> {
    // [R5666-2-1] each segment has a handle of 32 bits and an offset of 64. [R5666-3.4-3]
    // [R5666-4-1] [R5666-5.2-1] any of the lists may be there.
    let reads = ReadList::decode_v1(r)?;
    let writes = WriteList::decode_v1(r)?;
    let reply = WriteList::decode_optional_v1(r)?;
    Ok(Rpc { prefix, reads, writes, reply, payload: r.rest() })
}

/// Checks that the body at the end of a message of `length` octets, if there is one, starts with the XID of the header.
fn check_xid(rpc: &Rpc<'_>, length: usize) -> Result<(), HeaderFault> {
    let Rpc { prefix, payload, .. } = rpc;
    let at = length.saturating_sub(payload.len());
    let fault = |rule, report| HeaderFault { rule, at, prefix: Some(*prefix), report };
    match Reader::new(payload).u32() {
        //~ R8167-5.1-2: `xid == prefix.xid` -> `xid == prefix.xid || rpc.direction() == Some(Direction::Call)` together
        Ok(xid) if xid == prefix.xid => Ok(()),
        Ok(_) => {
            // [R5666-4.1-2] [R5666-4.1-8] [R8167-5.1-2] [R8167-5.2-2] the header is that of another RPC message. If the
            // body is a Reply, its sender waits for no answer.
            let report = Some(ErrorBody::Chunk);
            let report = report.filter(|_| rpc.direction() != Some(Direction::Reply));
            Err(fault("rdma_xid is not the XID of the RPC message", report))
        }
        Err(_) if prefix.proc == NOMSG && payload.is_empty() => Ok(()),
        // [R5666-4.1-7] Linux says nothing to a header without a body, and neither do we.
        Err(_) => Err(fault("no RPC message follows the header", None)),
    }
}

/// Checks that nothing follows a header that carries no payload. [R5666-4.1-1]
fn end(r: &Reader<'_>) -> Result<(), Broken> {
    //~ R5666-4.1-1: `is_empty()` -> `is_empty() || r.position() > 0`
    if r.is_empty() {
        Ok(())
    } else {
        Err(Broken { rule: "octets after the header", at: r.position() })
    }
}

/// A fault of a message after its prefix.
#[derive(Debug)]
struct Broken {
    rule: &'static str,
    at: usize,
}

impl Broken {
    /// Completes the fault with the prefix of the message and the error to answer with.
    fn of(self, prefix: Prefix) -> HeaderFault {
        // A faulty error message is not answered by another error, and nobody waits after a DONE.
        let silent = matches!(prefix.proc, DONE | ERROR);
        HeaderFault {
            rule: self.rule,
            at: self.at,
            prefix: Some(prefix),
            // [R5666-4.2-4]
            //~ R5666-4.2-4: `ErrorBody::Chunk` -> `ErrorBody::Vers { low: VERSION, high: VERSION }`
            report: Some(ErrorBody::Chunk).filter(|_| !silent),
        }
    }
}

impl From<Truncated> for Broken {
    fn from(fault: Truncated) -> Self {
        Self { rule: "truncated", at: fault.at }
    }
}

impl From<ListFault> for Broken {
    fn from(fault: ListFault) -> Self {
        match fault {
            ListFault::Truncated(fault) => fault.into(),
            ListFault::BadDiscriminator { at } => Self { rule: "list discriminator", at },
            ListFault::PositionOrder { at } => Self { rule: "Read list positions decrease", at },
            ListFault::BadPosition { at } => Self { rule: "Read chunk position", at },
            ListFault::LengthWraps { at } => Self { rule: "segment beyond the address space", at },
        }
    }
}

/// `proc` of [`Message::Msg`].
pub const MSG: u32 = 0;
/// `proc` of [`Message::NoMsg`].
pub const NOMSG: u32 = 1;
/// `proc` of [`Message::MsgP`].
pub const MSGP: u32 = 2;
/// `proc` of [`Message::Done`].
pub const DONE: u32 = 3;
/// `proc` of [`Message::Error`], the same in every version.
pub const ERROR: u32 = 4;

#[cfg(test)]
pub(super) mod tests;
