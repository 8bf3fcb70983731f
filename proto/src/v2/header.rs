//! Transport headers (version 2, section 6): the common prefix, the ten header types, and the raw headers of the
//! round-trip extensions.
//!
//! Decoding is total: any octets give a [`Message`] or a [`HeaderFault`] that names the broken rule, its offset and the
//! error to answer with.

mod decode;
mod encode;
pub(crate) mod extended;
mod single_chunk;
mod unchunked;

use core::fmt;

pub use decode::{decode, decode_transport};
pub use encode::{
    CallLists, MIDDLE_WIRE_LEN, Returned, call_inline_wire_len, encode_call_external,
    encode_call_inline, encode_call_middle, encode_connprop, encode_error, encode_grant,
    encode_reply_external, encode_reply_inline, encode_reply_middle, reply_inline_wire_len,
};
pub use single_chunk::SingleChunk;
pub use unchunked::Unchunked;

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
    /// The encoded length in octets (reading E4: sixteen).
    pub const WIRE_LEN: usize = 16;

    /// Parses the prefix and advances `r`.
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        if r.rest().len() < Self::WIRE_LEN {
            // The fault names the first word that is missing. Behind this check all words are there.
            let whole = r.rest().len() & !(UNIT - 1);
            return Err(Truncated { at: r.position().saturating_add(whole) });
        }
        Ok(Self { xid: r.u32()?, vers: r.u32()?, credit: r.u32()?, htype: r.u32()? })
    }

    /// Appends the prefix to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // [V2-4.1-1] every message begins with these words.
        //~ V2-4.1-1: `self.xid, self.vers` -> `self.vers, self.xid`
        w.words([self.xid, self.vers, self.credit, self.htype])
    }
}

/// A message whose transport header is valid.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// `RDMA2_ERROR`.
    Error {
        /// The prefix. It has the XID of the message at fault.
        prefix: Prefix,
        /// The error.
        error: ErrorBody,
    },
    /// `RDMA2_GRANT`.
    Grant {
        /// The prefix, which holds the credit word.
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
    /// A message of the round-trip extensions ([`crate::rtrext`]).
    Extended(Extended<'a>),
}

/// Transport properties of the peer, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct ConnProp<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// Whether more properties follow.
    pub kind: ConnPropKind,
    /// The properties as they arrived, unknown ones included.
    pub set: PropertySet<'a>,
}

/// A Call in Special format, whose Payload stream the Responder reads from the Requester.
#[derive(Clone, Copy, Debug)]
pub struct CallExternal<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The handle that the Reply may invalidate; zero for none.
    pub inv_handle: Handle,
    /// The Call chunk, which holds the Payload stream. It has at least one segment.
    pub call: ReadList<'a>,
    /// The Read chunks of reduced arguments.
    pub reads: ReadList<'a>,
    /// The Write chunks for reduced results.
    pub writes: WriteList<'a>,
    /// The Reply chunk, which may hold the whole Reply.
    pub reply: Option<WriteChunk<'a>>,
}

/// A part of a continued message that is not the last one.
#[derive(Clone, Copy)]
pub struct Fragment<'a> {
    /// The prefix, with the XID of the RPC message (E7).
    pub prefix: Prefix,
    /// The number of octets of the Payload stream that follow in later messages (E7).
    pub remaining: u32,
    /// This part of the Payload stream.
    pub payload: &'a [u8],
}

/// A Call whose Payload stream, or the last part of it, is inline.
#[derive(Clone, Copy)]
pub struct CallInline<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The handle that the Reply may invalidate; zero for none.
    pub inv_handle: Handle,
    /// The Read chunks of reduced arguments.
    pub reads: ReadList<'a>,
    /// The Write chunks for reduced results.
    pub writes: WriteList<'a>,
    /// The Reply chunk, which may hold the whole Reply.
    pub reply: Option<WriteChunk<'a>>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
}

/// A Reply in Special format, whose Payload stream was written into the Reply chunk.
#[derive(Clone, Copy, Debug)]
pub struct ReplyExternal<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The Write chunks, with the lengths of the reduced results written into them.
    pub writes: WriteList<'a>,
    /// The Reply chunk, with the length of the Payload stream written into it.
    pub reply: WriteChunk<'a>,
}

/// A Reply whose Payload stream, or the last part of it, is inline.
#[derive(Clone, Copy)]
pub struct ReplyInline<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The Write chunks, with the lengths of the reduced results written into them.
    pub writes: WriteList<'a>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
}

/// A message of the round-trip extensions, whose header [`crate::rtrext`] decodes.
#[derive(Clone, Copy)]
pub struct Extended<'a> {
    /// The prefix of the message.
    pub prefix: Prefix,
    /// The octets after the prefix.
    pub body: &'a [u8],
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
    /// The credit word, if the message is of version 2.
    pub credit: Option<u32>,
    /// The error to answer with; `None` if the receiver sends no answer.
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
    /// Returns the prefix of the message.
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

/// The header types of the draft, with its names.
pub const NAMES: [(&str, u32); 10] = [
    ("RDMA2_ERROR", ERROR),
    ("RDMA2_GRANT", GRANT),
    ("RDMA2_CONNPROP_MIDDLE", CONNPROP_MIDDLE),
    ("RDMA2_CONNPROP_FINAL", CONNPROP_FINAL),
    ("RDMA2_CALL_EXTERNAL", CALL_EXTERNAL),
    ("RDMA2_CALL_MIDDLE", CALL_MIDDLE),
    ("RDMA2_CALL_INLINE", CALL_INLINE),
    ("RDMA2_REPLY_EXTERNAL", REPLY_EXTERNAL),
    ("RDMA2_REPLY_MIDDLE", REPLY_MIDDLE),
    ("RDMA2_REPLY_INLINE", REPLY_INLINE),
];

/// Returns the draft's name of a header type, if it has the type.
pub fn name(htype: u32) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| *known == htype).map(|(name, _)| *name)
}

/// Returns whether a header type conveys a Reply.
const fn is_reply(htype: u32) -> bool {
    matches!(htype, REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE)
}

#[cfg(test)]
mod tests;
