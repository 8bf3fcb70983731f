//! Transport headers (version 2, section 6): the common prefix, the ten header types, and what is left
//! to the round-trip extensions.
//!
//! Decoding is total: any byte string gives a [`Message`] or a [`HeaderFault`] that says what broke,
//! where, and what to answer.

mod bare;
mod decode;
mod encode;
pub(crate) mod extended;
mod one_chunk;

use core::fmt;

pub use bare::Bare;
pub use decode::{decode, decode_transport};
pub use encode::{
    CallLists, MIDDLE_WIRE_LEN, Returned, call_inline_wire_len, encode_call_external,
    encode_call_inline, encode_call_middle, encode_connprop, encode_error, encode_grant,
    encode_reply_external, encode_reply_inline, encode_reply_middle, reply_inline_wire_len,
};
pub use one_chunk::OneChunk;

use super::VERSION;
use super::error::ErrorBody;
use super::properties::{ConnPropKind, PropertySet};
use crate::chunk::{ReadList, WriteChunk, WriteList};
use crate::verbs::Handle;
use crate::xdr::{Reader, Truncated, UNIT, Writer};

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
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        if r.rest().len() < Self::WIRE_LEN {
            // The word that is missing; otherwise all are there, and none is looked for again.
            let whole = r.rest().len() & !(UNIT - 1);
            return Err(Truncated { at: r.position().saturating_add(whole) });
        }
        Ok(Self { xid: r.u32()?, vers: r.u32()?, credit: r.u32()?, htype: r.u32()? })
    }

    /// Appends the prefix to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // [V2-4.1-1] nothing is sent that does not start with these words.
        w.words([self.xid, self.vers, self.credit, self.htype])
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
    /// Whether more properties follow.
    pub kind: ConnPropKind,
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
#[non_exhaustive]
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

/// Whether a header type conveys a Reply.
const fn is_reply(htype: u32) -> bool {
    matches!(htype, REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE)
}

#[cfg(test)]
mod tests;
