//! Transport headers (version 2, section 6): the common prefix, and the header types spoken here.
//!
//! Decoding is total: any byte string gives a [`Message`] or a [`HeaderFault`] that says what broke,
//! where, and what to answer. Header types of version 2 that are not in [`Message`] are answered
//! with `RDMA2_ERR_INVAL_HTYPE`, like unknown ones.

mod encode;

use core::fmt;

pub use encode::{
    CallInlineHeader, ReplyInlineHeader, encode_connprop_final, encode_error, encode_grant,
};

use super::VERSION;
use super::error::ErrorBody;
use super::properties::{Properties, PropertyFault, PropertySet};
use crate::chunk::{ListFault, ReadList, WriteChunk, WriteList};
use crate::verbs::Handle;
use crate::xdr::{Reader, Truncated, Writer};

/// The first four words of every message: XVCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub vers: u32,
    /// `rdma_credit`, one word (reading E6).
    pub credit: u32,
    /// `rdma_htype`.
    pub htype: u32,
}

impl Prefix {
    /// Octets on the wire (reading E4: sixteen).
    pub const WIRE_LEN: usize = 16;

    /// Parses the prefix and advances `r`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { xid: r.u32()?, vers: r.u32()?, credit: r.u32()?, htype: r.u32()? })
    }

    /// Appends the prefix to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // [V2-4.1-1] nothing is sent that does not start with these words.
        for word in [self.xid, self.vers, self.credit, self.htype] {
            w.u32(word)?;
        }
        Ok(())
    }
}

/// A message that makes sense as far as its transport header goes.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// `RDMA2_ERROR`.
    Error {
        /// Names the message it is about.
        prefix: Prefix,
        /// What it says.
        error: ErrorBody,
    },
    /// `RDMA2_GRANT`.
    Grant {
        /// Carries the credit.
        prefix: Prefix,
    },
    /// `RDMA2_CONNPROP_FINAL`.
    ConnPropFinal {
        /// Of the message.
        prefix: Prefix,
        /// What the peer said about itself, defaults where it said nothing.
        properties: Properties,
        /// The same as it arrived, with what we do not know.
        set: PropertySet<'a>,
    },
    /// `RDMA2_CALL_INLINE`.
    CallInline(CallInline<'a>),
    /// `RDMA2_REPLY_INLINE`.
    ReplyInline(ReplyInline<'a>),
}

/// A Call whose Payload stream is in the message.
#[derive(Clone, Copy)]
pub struct CallInline<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// What the Requester would like the Reply to invalidate; zero for nothing.
    pub inv_handle: Handle,
    /// Reduced arguments.
    pub reads: ReadList<'a>,
    /// Where reduced results go.
    pub writes: WriteList<'a>,
    /// Where the whole Reply may go.
    pub reply: Option<WriteChunk<'a>>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
}

/// A Reply whose Payload stream is in the message.
#[derive(Clone, Copy)]
pub struct ReplyInline<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// How much of each reduced result was written.
    pub writes: WriteList<'a>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFault {
    /// The rule it breaks.
    pub rule: &'static str,
    /// Offset in the message.
    pub at: usize,
    /// Its prefix, if it has one.
    pub prefix: Option<Prefix>,
    /// Its credit word, if it is version 2's.
    pub credit: Option<u32>,
    /// What to answer; `None` where the receiver stays silent.
    pub report: Option<ErrorBody>,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.rule, self.at)
    }
}

impl core::error::Error for HeaderFault {}

impl HeaderFault {
    /// Returns the XID of the Call that a malformed Reply was meant for.
    pub(super) fn failed_call(&self) -> Option<u32> {
        let reply = |prefix: &Prefix| prefix.vers == VERSION && prefix.htype == REPLY_INLINE;
        self.prefix.filter(reply).map(|prefix| prefix.xid)
    }
}

// Payload never reaches a log, so only its length is printed.

impl fmt::Debug for CallInline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut call = f.debug_struct("CallInline");
        call.field("prefix", &self.prefix).field("inv_handle", &self.inv_handle);
        call.field("reads", &self.reads).field("writes", &self.writes);
        call.field("reply", &self.reply).field("payload_length", &self.payload.len()).finish()
    }
}

impl fmt::Debug for ReplyInline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reply = f.debug_struct("ReplyInline");
        reply.field("prefix", &self.prefix).field("writes", &self.writes);
        reply.field("payload_length", &self.payload.len()).finish()
    }
}

impl Message<'_> {
    /// Returns the first four words.
    pub const fn prefix(&self) -> &Prefix {
        match self {
            Self::Error { prefix, .. }
            | Self::Grant { prefix }
            | Self::ConnPropFinal { prefix, .. }
            | Self::CallInline(CallInline { prefix, .. })
            | Self::ReplyInline(ReplyInline { prefix, .. }) => prefix,
        }
    }
}

/// Decodes one received message, and checks that its Payload stream is of the RPC message its
/// header names.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    let decoded = decode_transport(message)?;
    if let Message::CallInline(CallInline { prefix, payload, .. })
    | Message::ReplyInline(ReplyInline { prefix, payload, .. }) = &decoded
    {
        let at = message.len().saturating_sub(payload.len());
        check_xid(payload, prefix.xid, at).map_err(|broken| broken.of(*prefix))?;
    }
    Ok(decoded)
}

/// Decodes the Transport stream of one message. Its Payload stream may be any bytes.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode_transport(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    let mut r = Reader::new(message);
    // [V2-7-1] without a whole prefix nothing can be trusted, not even the XID.
    let prefix = Prefix::decode(&mut r).map_err(|fault| HeaderFault {
        rule: "shorter than the common prefix",
        at: fault.at,
        prefix: None,
        credit: None,
        report: None,
    })?;
    if prefix.vers != VERSION {
        // [V2-7.1.1-1] say which versions are spoken. E13: but not to an error, which
        // echoes the version of what it is about, has this type in every version, and would be
        // answered in turn.
        return Err(HeaderFault {
            rule: "unsupported version",
            at: 4,
            prefix: Some(prefix),
            credit: None,
            report: Some(ErrorBody::Vers { low: VERSION, high: VERSION })
                .filter(|_| prefix.htype != ERROR),
        });
    }
    decode_body(&mut r, prefix).map_err(|broken| broken.of(prefix))
}

fn decode_body<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    Ok(match prefix.htype {
        ERROR => {
            let at = r.position();
            // [V2-7-5] an unknown error code is dropped without a word.
            let error = ErrorBody::decode(r)?.ok_or(Broken::new("unknown error code", at))?;
            end(r)?;
            Message::Error { prefix, error }
        }
        GRANT => {
            end(r)?;
            Message::Grant { prefix }
        }
        CONNPROP_FINAL => {
            let set = PropertySet::decode(r)?;
            end(r)?;
            Message::ConnPropFinal { prefix, properties: set.properties(), set }
        }
        CALL_INLINE => {
            let at = r.position();
            let inv_handle = Handle(r.u32()?);
            let reads = ReadList::decode(r)?;
            let writes = WriteList::decode(r)?;
            let reply = WriteList::decode_optional(r)?;
            let call = CallInline { prefix, inv_handle, reads, writes, reply, payload: r.rest() };
            let named = reads.chunks().flat_map(|chunk| chunk.segments());
            let named = named.chain(writes.chunks().flat_map(|chunk| chunk.segments()));
            let mut named = named.chain(reply.into_iter().flat_map(|chunk| chunk.segments()));
            // Section 6.5: only a handle of this header may be offered for invalidation.
            if inv_handle != Handle(0) && !named.any(|segment| segment.handle == inv_handle) {
                return Err(Broken::new("rdma_inv_handle names no segment of the header", at));
            }
            Message::CallInline(call)
        }
        REPLY_INLINE => {
            let writes = WriteList::decode(r)?;
            Message::ReplyInline(ReplyInline { prefix, writes, payload: r.rest() })
        }
        // [V2-6.1-2] [V2-7.1.3-1] unknown, or not spoken.
        _ => {
            let report = Some(ErrorBody::InvalHtype);
            return Err(Broken { report, ..Broken::new("unsupported header type", 12) });
        }
    })
}

/// Checks that a Payload stream, which starts at `at`, begins with the XID of its transport header:
/// the RPC message starts with the first word after the header (E9), and the message conveyed is the
/// one `rdma_xid` names (E7).
fn check_xid(payload: &[u8], xid: u32, at: usize) -> Result<(), Broken> {
    let first = Reader::new(payload).u32().map_err(|_| Truncated { at })?;
    // [V2-4.6.1-1] [V2-4.6.2-1] [V2-7.2.1-1] a transport header of another RPC message.
    if first != xid {
        return Err(Broken::new("rdma_xid is not the XID of the RPC message", at));
    }
    Ok(())
}

/// Checks that nothing follows a header that carries no payload.
fn end(r: &Reader<'_>) -> Result<(), Broken> {
    if r.is_empty() { Ok(()) } else { Err(Broken::new("octets after the header", r.position())) }
}

/// What is wrong with a message behind its prefix.
#[derive(Debug)]
struct Broken {
    rule: &'static str,
    at: usize,
    report: Option<ErrorBody>,
}

impl Broken {
    const fn new(rule: &'static str, at: usize) -> Self {
        Self { rule, at, report: Some(ErrorBody::BadXdr) }
    }

    /// Says which message is broken, and what its sender is told.
    fn of(self, prefix: Prefix) -> HeaderFault {
        // E13: what is wrong with an error or a grant is never answered with an error, and what is
        // wrong with a Reply concerns the Call it answers: nobody at the other end waits for us.
        let silent = matches!(prefix.htype, ERROR | GRANT | REPLY_INLINE);
        HeaderFault {
            rule: self.rule,
            at: self.at,
            prefix: Some(prefix),
            credit: Some(prefix.credit),
            report: self.report.filter(|_| !silent),
        }
    }
}

impl From<Truncated> for Broken {
    fn from(fault: Truncated) -> Self {
        Self::new("truncated", fault.at)
    }
}

impl From<ListFault> for Broken {
    fn from(fault: ListFault) -> Self {
        match fault {
            ListFault::Truncated(fault) => fault.into(),
            ListFault::BadDiscriminator { at } => Self::new("list discriminator", at),
            ListFault::PositionOrder { at } => Self::new("Read list positions decrease", at),
            ListFault::BadPosition { at } => Self::new("Read chunk position", at),
            ListFault::LengthWraps { at } => Self::new("segment beyond the address space", at),
        }
    }
}

impl From<PropertyFault> for Broken {
    fn from(fault: PropertyFault) -> Self {
        match fault {
            PropertyFault::Truncated(fault) => fault.into(),
            // [V2-7.2.2-1] the value, not the header, is wrong.
            PropertyFault::BadValue { at } => {
                Self { report: Some(ErrorBody::BadPropval), ..Self::new("property value", at) }
            }
        }
    }
}

/// `rdma_htype` of [`Message::Error`], the same in every version.
pub const ERROR: u32 = 4;
/// `rdma_htype` of [`Message::Grant`].
pub const GRANT: u32 = 5;
/// `rdma_htype` of [`Message::ConnPropFinal`].
pub const CONNPROP_FINAL: u32 = 7;
/// `rdma_htype` of [`Message::CallInline`].
pub const CALL_INLINE: u32 = 10;
/// `rdma_htype` of [`Message::ReplyInline`].
pub const REPLY_INLINE: u32 = 13;

#[cfg(test)]
mod tests;
