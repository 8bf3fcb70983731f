//! Transport headers (RFC 5666 section 4): the common prefix, and the five message types.
//!
//! Decoding is total: any byte string gives a [`Message`] or a [`HeaderFault`] that says what broke,
//! where, and what to answer. It is as lenient as the servers and clients that are deployed, and no
//! more: any list discriminator but zero means that an entry follows, Read chunks stand in any
//! order, a chunk may have no segments, and an `RDMA_NOMSG` may carry a body all the same.

mod bare;
mod encode;

use core::fmt;

pub use bare::{BARE_LEN, bare};
pub use encode::{
    CallLists, Form, ReplyLists, call_wire_len, encode_call, encode_done, encode_error,
    encode_reply,
};

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
    /// `rdma_credit`: asked for in a Call, granted in a Reply.
    pub credit: u32,
    /// `proc`, the message type.
    pub proc: u32,
}

impl Prefix {
    /// Octets on the wire.
    pub const WIRE_LEN: usize = 16;

    /// Parses the prefix and advances `r`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { xid: r.u32()?, vers: r.u32()?, credit: r.u32()?, proc: r.u32()? })
    }

    /// Appends the prefix to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // [R5666-4.1-6] these words stand here in every version.
        w.words([self.xid, self.vers, self.credit, self.proc])
    }
}

/// A message that makes sense as far as its transport header goes.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// `RDMA_MSG`: the RPC message, or what is left of it, follows the header.
    Msg(Rpc<'a>),
    /// `RDMA_NOMSG`: the RPC message is where a chunk list says.
    NoMsg(Rpc<'a>),
    /// `RDMA_MSGP`: the RPC message follows, with padding in front of long opaques.
    MsgP(Padding, Rpc<'a>),
    /// `RDMA_DONE`: the Read chunks of a Reply are not needed any more.
    Done {
        /// Names the Reply.
        prefix: Prefix,
    },
    /// `RDMA_ERROR`.
    Error {
        /// Names the message it is about.
        prefix: Prefix,
        /// What it says.
        error: ErrorBody,
    },
}

/// A message that conveys RPC: a Call or a Reply, which the transport header does not say.
#[derive(Clone, Copy)]
pub struct Rpc<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// What is to be fetched: the whole RPC message at position zero, reduced items elsewhere.
    pub reads: ReadList<'a>,
    /// Of a Call, where reduced results go; of a Reply, how much of each was written.
    pub writes: WriteList<'a>,
    /// Of a Call, where the whole Reply may go; of a Reply, how much of it was written.
    pub reply: Option<WriteChunk<'a>>,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// How opaques of an `RDMA_MSGP` are aligned: see [`super::padding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// `rdma_align`: their first octet stands at a multiple of this.
    pub align: u32,
    /// `rdma_thresh`: opaques at least this long are aligned.
    pub thresh: u32,
}

/// Which way an RPC message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To a Responder.
    Call,
    /// To a Requester.
    Reply,
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeaderFault {
    /// The rule it breaks.
    pub rule: &'static str,
    /// Offset in the message.
    pub at: usize,
    /// Its prefix, if it has one.
    pub prefix: Option<Prefix>,
    /// What to answer; `None` where the receiver stays silent.
    pub report: Option<ErrorBody>,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.rule, self.at)
    }
}

impl core::error::Error for HeaderFault {}

impl Message<'_> {
    /// Returns the first four words.
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

    /// Returns whether the RPC message itself is to be fetched.
    pub fn is_read(&self) -> bool {
        self.reads.chunks().any(|chunk| chunk.position() == 0)
    }

    /// Returns what the message type word of the RPC message says, if it is here and says something.
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

/// Decodes one received message, and checks that a body that follows its header is of the RPC
/// message the header names.
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

/// Decodes the Transport stream of one message. What follows it may be any bytes.
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
            // [R5666-4.2-2] [R5666-4.2-3] say which versions are spoken, but not to an error: it echoes
            // the version of what it is about, and its answer would be answered in turn.
            report: Some(ErrorBody::Vers { low: VERSION, high: VERSION })
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

/// Checks the XID of the body at the end of a message of `length` octets, if it has one. (It need not
/// be looked at again: the header's is the same.)
fn check_xid(rpc: &Rpc<'_>, length: usize) -> Result<(), HeaderFault> {
    let Rpc { prefix, payload, .. } = rpc;
    let at = length.saturating_sub(payload.len());
    let fault = |rule, report| HeaderFault { rule, at, prefix: Some(*prefix), report };
    match Reader::new(payload).u32() {
        Ok(xid) if xid == prefix.xid => Ok(()),
        Ok(_) => {
            // [R5666-4.1-2] [R5666-4.1-8] [R8167-5.1-2] [R8167-5.2-2] a header of another RPC message.
            // Nobody at the other end waits for us where the body is a Reply.
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
    if r.is_empty() {
        Ok(())
    } else {
        Err(Broken { rule: "octets after the header", at: r.position() })
    }
}

/// What is wrong with a message behind its prefix.
#[derive(Debug)]
struct Broken {
    rule: &'static str,
    at: usize,
}

impl Broken {
    /// Says which message is broken, and what its sender is told.
    fn of(self, prefix: Prefix) -> HeaderFault {
        // What is wrong with an error is not answered with an error, and nobody waits after a DONE.
        let silent = matches!(prefix.proc, DONE | ERROR);
        HeaderFault {
            rule: self.rule,
            at: self.at,
            prefix: Some(prefix),
            // [R5666-4.2-4]
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
