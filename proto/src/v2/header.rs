//! Transport headers (version 2, section 6): the common prefix, the ten header types, and what is left
//! to the round-trip extensions.
//!
//! Decoding is total: any byte string gives a [`Message`] or a [`HeaderFault`] that says what broke,
//! where, and what to answer.

mod encode;

use core::fmt;

pub use encode::{
    CallLists, MIDDLE_WIRE_LEN, Returned, call_inline_wire_len, encode_call_external,
    encode_call_inline, encode_call_middle, encode_connprop, encode_error, encode_grant,
    encode_reply_external, encode_reply_inline, encode_reply_middle, reply_inline_wire_len,
};

use super::VERSION;
use super::error::ErrorBody;
use super::properties::{PropertyFault, PropertySet};
use crate::chunk::{ListFault, ReadList, WriteChunk, WriteList};
use crate::rtrext::header_name;
use crate::verbs::{Handle, Segment};
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
    /// `RDMA2_CONNPROP_MIDDLE` or `RDMA2_CONNPROP_FINAL`.
    ConnProp(ConnProp<'a>),
    /// `RDMA2_CALL_EXTERNAL`.
    CallExternal(CallExternal<'a>),
    /// `RDMA2_CALL_MIDDLE`.
    CallMiddle(Fragment<'a>),
    /// `RDMA2_CALL_INLINE`.
    CallInline(CallInline<'a>),
    /// `RDMA2_REPLY_EXTERNAL`.
    ReplyExternal(ReplyExternal<'a>),
    /// `RDMA2_REPLY_MIDDLE`.
    ReplyMiddle(Fragment<'a>),
    /// `RDMA2_REPLY_INLINE`.
    ReplyInline(ReplyInline<'a>),
    /// Any header type of [`crate::rtrext`].
    Extended(Extended<'a>),
}

/// What the peer says about itself, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct ConnProp<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// Whether this is the FINAL: no more properties follow.
    pub last: bool,
    /// The properties as they arrived, with what we do not know.
    pub set: PropertySet<'a>,
}

/// A Call whose Payload stream is to be read from the Requester.
#[derive(Clone, Copy, Debug)]
pub struct CallExternal<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// What the Requester would like the Reply to invalidate; zero for nothing.
    pub inv_handle: Handle,
    /// The Call chunk: where the Payload stream is. It has at least one segment.
    pub call: ReadList<'a>,
    /// Reduced arguments.
    pub reads: ReadList<'a>,
    /// Where reduced results go.
    pub writes: WriteList<'a>,
    /// Where the whole Reply may go.
    pub reply: Option<WriteChunk<'a>>,
}

/// A part of a continued message, not its last.
#[derive(Clone, Copy)]
pub struct Fragment<'a> {
    /// Of the message conveyed (E7).
    pub prefix: Prefix,
    /// Octets of the Payload stream that follow in further fragments (E7).
    pub remaining: u32,
    /// This part of the Payload stream.
    pub payload: &'a [u8],
}

/// A Call whose Payload stream, or the last part of it, is in the message.
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

/// A Reply whose Payload stream was written into the Reply chunk.
#[derive(Clone, Copy, Debug)]
pub struct ReplyExternal<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// How much of each reduced result was written.
    pub writes: WriteList<'a>,
    /// How much of the Payload stream was written.
    pub reply: WriteChunk<'a>,
}

/// A Reply whose Payload stream, or the last part of it, is in the message.
#[derive(Clone, Copy)]
pub struct ReplyInline<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// How much of each reduced result was written.
    pub writes: WriteList<'a>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
}

/// A message of the round-trip extensions, whose header is theirs to judge.
#[derive(Clone, Copy)]
pub struct Extended<'a> {
    /// Of the message.
    pub prefix: Prefix,
    /// All that follows the prefix.
    pub body: &'a [u8],
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
        let reply = |prefix: &Prefix| prefix.vers == VERSION && is_reply(prefix.htype);
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

impl fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fragment = f.debug_struct("Fragment");
        fragment.field("prefix", &self.prefix).field("remaining", &self.remaining);
        fragment.field("payload_length", &self.payload.len()).finish()
    }
}

impl fmt::Debug for ReplyInline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reply = f.debug_struct("ReplyInline");
        reply.field("prefix", &self.prefix).field("writes", &self.writes);
        reply.field("payload_length", &self.payload.len()).finish()
    }
}

impl fmt::Debug for Extended<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut extended = f.debug_struct("Extended");
        extended.field("prefix", &self.prefix).field("body_length", &self.body.len()).finish()
    }
}

impl Message<'_> {
    /// Returns the first four words.
    pub const fn prefix(&self) -> &Prefix {
        match self {
            Self::Error { prefix, .. }
            | Self::Grant { prefix }
            | Self::ConnProp(ConnProp { prefix, .. })
            | Self::CallExternal(CallExternal { prefix, .. })
            | Self::CallMiddle(Fragment { prefix, .. })
            | Self::CallInline(CallInline { prefix, .. })
            | Self::ReplyExternal(ReplyExternal { prefix, .. })
            | Self::ReplyMiddle(Fragment { prefix, .. })
            | Self::ReplyInline(ReplyInline { prefix, .. })
            | Self::Extended(Extended { prefix, .. }) => prefix,
        }
    }

    /// Checks that the Payload stream of this message, which is `length` octets long, starts with the
    /// XID of the transport header. Only a continued message goes on with anything else.
    ///
    /// # Errors
    /// See [`HeaderFault`].
    pub fn check_start(&self, length: usize) -> Result<(), HeaderFault> {
        let (Self::CallMiddle(Fragment { prefix, payload, .. })
        | Self::CallInline(CallInline { prefix, payload, .. })
        | Self::ReplyMiddle(Fragment { prefix, payload, .. })
        | Self::ReplyInline(ReplyInline { prefix, payload, .. })) = self
        else {
            return Ok(());
        };
        // E9: the RPC message starts with the first word after the header. E7: it is the one that
        // `rdma_xid` names.
        let at = length.saturating_sub(payload.len());
        let broken = match Reader::new(payload).u32() {
            // [V2-4.6.1-1] [V2-4.6.2-1] [V2-6.3.6-1] [V2-6.3.9-1] [V2-7.2.1-1]
            Ok(first) if first == prefix.xid => return Ok(()),
            Ok(_) => Broken::new("rdma_xid is not the XID of the RPC message", at),
            Err(_) => Truncated { at }.into(),
        };
        Err(broken.of(*prefix))
    }
}

/// Decodes one received message that is not part of a continued one, and checks that its Payload
/// stream is of the RPC message its header names.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    let decoded = decode_transport(message)?;
    decoded.check_start(message.len())?;
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
        CONNPROP_MIDDLE | CONNPROP_FINAL => {
            let set = PropertySet::decode(r)?;
            end(r)?;
            Message::ConnProp(ConnProp { prefix, last: prefix.htype == CONNPROP_FINAL, set })
        }
        CALL_EXTERNAL => {
            let at = r.position();
            let inv_handle = Handle(r.u32()?);
            let start = r.position();
            let call = ReadList::decode_call_chunk(r)?;
            if call.is_empty() {
                return Err(Broken::new("no Call chunk", start));
            }
            let (reads, writes, reply) = decode_lists(r)?;
            check_inv_handle(inv_handle, &[call, reads], &writes, reply, at)?;
            end(r)?;
            Message::CallExternal(CallExternal { prefix, inv_handle, call, reads, writes, reply })
        }
        CALL_MIDDLE => {
            Message::CallMiddle(Fragment { prefix, remaining: r.u32()?, payload: r.rest() })
        }
        CALL_INLINE => {
            let at = r.position();
            let inv_handle = Handle(r.u32()?);
            let (reads, writes, reply) = decode_lists(r)?;
            check_inv_handle(inv_handle, &[reads], &writes, reply, at)?;
            let payload = r.rest();
            Message::CallInline(CallInline { prefix, inv_handle, reads, writes, reply, payload })
        }
        REPLY_EXTERNAL => {
            let writes = WriteList::decode(r)?;
            let at = r.position();
            // [V2-6.3.8-2] exactly one.
            let reply = WriteList::decode_optional(r)?.ok_or(Broken::new("no Reply chunk", at))?;
            end(r)?;
            Message::ReplyExternal(ReplyExternal { prefix, writes, reply })
        }
        REPLY_MIDDLE => {
            Message::ReplyMiddle(Fragment { prefix, remaining: r.u32()?, payload: r.rest() })
        }
        REPLY_INLINE => {
            let writes = WriteList::decode(r)?;
            Message::ReplyInline(ReplyInline { prefix, writes, payload: r.rest() })
        }
        // [RTR-1.4-1] an extension has header types of its own (E10), not one for all extensions.
        htype if header_name(htype).is_some() => {
            Message::Extended(Extended { prefix, body: r.rest() })
        }
        // [V2-6.1-2] [V2-7.1.3-1] those above are all there are [V2-6.1-1].
        _ => {
            let report = Some(ErrorBody::InvalHtype);
            return Err(Broken { report, ..Broken::new("unknown header type", 12) });
        }
    })
}

/// The chunk lists that both kinds of Call header end with.
type CallChunks<'a> = (ReadList<'a>, WriteList<'a>, Option<WriteChunk<'a>>);

fn decode_lists<'a>(r: &mut Reader<'a>) -> Result<CallChunks<'a>, Broken> {
    Ok((ReadList::decode(r)?, WriteList::decode(r)?, WriteList::decode_optional(r)?))
}

/// Checks that a handle offered for invalidation, if any, is one of the header (section 6.5).
fn check_inv_handle(
    inv_handle: Handle,
    reads: &[ReadList<'_>],
    writes: &WriteList<'_>,
    reply: Option<WriteChunk<'_>>,
    at: usize,
) -> Result<(), Broken> {
    if inv_handle == Handle(0) {
        return Ok(());
    }
    let mut read = reads.iter().flat_map(ReadList::entries).map(|(_, segment)| segment);
    let written = writes.chunks().chain(reply).flat_map(|chunk| chunk.segments());
    let is_named = |segment: Segment| segment.handle == inv_handle;
    if read.any(is_named) || written.into_iter().any(is_named) {
        return Ok(());
    }
    Err(Broken::new("rdma_inv_handle names no segment of the header", at))
}

/// Whether a header type conveys a Reply.
const fn is_reply(htype: u32) -> bool {
    matches!(htype, REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE)
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
        let silent = matches!(prefix.htype, ERROR | GRANT) || is_reply(prefix.htype);
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
/// `rdma_htype` of a [`Message::ConnProp`] that is not the last.
pub const CONNPROP_MIDDLE: u32 = 6;
/// `rdma_htype` of a [`Message::ConnProp`] that is the last.
pub const CONNPROP_FINAL: u32 = 7;
/// `rdma_htype` of [`Message::CallExternal`].
pub const CALL_EXTERNAL: u32 = 8;
/// `rdma_htype` of [`Message::CallMiddle`].
pub const CALL_MIDDLE: u32 = 9;
/// `rdma_htype` of [`Message::CallInline`].
pub const CALL_INLINE: u32 = 10;
/// `rdma_htype` of [`Message::ReplyExternal`].
pub const REPLY_EXTERNAL: u32 = 11;
/// `rdma_htype` of [`Message::ReplyMiddle`].
pub const REPLY_MIDDLE: u32 = 12;
/// `rdma_htype` of [`Message::ReplyInline`].
pub const REPLY_INLINE: u32 = 13;

#[cfg(test)]
mod tests;
