//! Encoding of version 2 transport headers.

use super::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE, ERROR, Fragment,
    GRANT, Message, Prefix, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE,
};
use crate::chunk::plan::filled;
use crate::chunk::{ReadList, WriteList};
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::properties::{ConnPropKind, Properties};
use crate::verbs::{Handle, Segment};
use crate::xdr::{Truncated, Writer};

/// Appends an `RDMA2_GRANT`.
pub fn encode_grant(w: &mut Writer<'_>, credit: u32) -> Result<(), Truncated> {
    // [V2-6.3.2-1] the XID of a grant is zero.
    //~ V2-6.3.2-1: `xid: 0` -> `xid: credit`
    Prefix { xid: 0, vers: VERSION, credit, htype: GRANT }.encode(w)
}

/// Appends an `RDMA2_ERROR` about the message that carried `xid` and `vers`.
pub fn encode_error(
    w: &mut Writer<'_>,
    xid: u32,
    vers: u32,
    credit: u32,
    error: &ErrorBody,
) -> Result<(), Truncated> {
    // [V2-7-4]
    //~ V2-7-4: `ERROR` -> `ERROR + 1`
    Prefix { xid, vers, credit, htype: ERROR }.encode(w)?;
    error.encode(w)
}

/// Appends an `RDMA2_CONNPROP_MIDDLE` or an `RDMA2_CONNPROP_FINAL`.
pub fn encode_connprop(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    kind: ConnPropKind,
    properties: &Properties,
) -> Result<(), Truncated> {
    let htype = match kind {
        ConnPropKind::Middle => CONNPROP_MIDDLE,
        ConnPropKind::Final => CONNPROP_FINAL,
    };
    Prefix { xid, vers: VERSION, credit, htype }.encode(w)?;
    properties.encode(w)
}

/// The chunk lists of a Call to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallLists<'a> {
    /// The handle that the Reply may invalidate: one of the header's, or zero.
    pub inv_handle: Handle,
    /// The Read chunks of reduced arguments: the position of each in the unreduced Payload stream, in ascending order,
    /// and its segments.
    pub reads: &'a [(u32, &'a [Segment])],
    /// The Write chunks for reduced results.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk, which may hold the whole Reply.
    pub reply: Option<&'a [Segment]>,
}

impl CallLists<'_> {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        if self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none() {
            // Most Calls: the ends of two lists, and no Reply chunk.
            return w.words([0; 3]);
        }
        let entries = self.reads.iter().flat_map(|&(position, segments)| {
            //~ V2-6.3.7-1: `(position, *segment)` -> `(0, *segment)`
            segments.iter().map(move |segment| (position, *segment))
        });
        ReadList::encode(w, entries)?;
        WriteList::encode(w, self.writes.iter().map(|segments| segments.iter().copied()))?;
        WriteList::encode_optional(w, self.reply.map(|segments| segments.iter().copied()))
    }
}

/// Returns the length of the header of an `RDMA2_CALL_INLINE` in octets. `reads` is the number of Read segments,
/// `writes` yields that of each Write chunk, and `reply` is that of the Reply chunk.
pub fn call_inline_wire_len(
    reads: usize,
    writes: impl IntoIterator<Item = usize>,
    reply: Option<usize>,
) -> usize {
    let lists = ReadList::wire_len(reads).saturating_add(WriteList::wire_len(writes));
    // The prefix, and rdma_inv_handle.
    let fixed = Prefix::WIRE_LEN.saturating_add(4);
    lists.saturating_add(WriteList::wire_len_optional(reply)).saturating_add(fixed)
}

/// Appends the header of an `RDMA2_CALL_INLINE`.
pub fn encode_call_inline(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    lists: &CallLists<'_>,
) -> Result<(), Truncated> {
    //~ V2-4.6.1-2: `vers: VERSION` -> `vers: if lists.inv_handle.0 == 0 { 1 } else { VERSION }`
    //~ V2-4.6.2-2: `VERSION` -> `1`
    Prefix { xid, vers: VERSION, credit, htype: CALL_INLINE }.encode(w)?;
    w.u32(lists.inv_handle.0)?;
    lists.encode(w)
}

/// Appends an `RDMA2_CALL_EXTERNAL` whose Payload stream is in the segments `call`.
pub fn encode_call_external(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    call: &[Segment],
    lists: &CallLists<'_>,
) -> Result<(), Truncated> {
    // [V2-6.3.5-1] E7: the XID is the Call's.
    //~ V2-6.3.5-1: `xid` -> `xid: xid.swap_bytes()`
    Prefix { xid, vers: VERSION, credit, htype: CALL_EXTERNAL }.encode(w)?;
    w.u32(lists.inv_handle.0)?;
    // [V2-6.6.3-1] a Call chunk stands at position zero.
    //~ V2-6.6.3-1: `(0, *segment)` -> `(4, *segment)`
    ReadList::encode(w, call.iter().map(|segment| (0, *segment)))?;
    lists.encode(w)
}

/// Appends the header of an `RDMA2_CALL_MIDDLE`, after which `remaining` octets of the Payload stream follow in later
/// messages.
pub fn encode_call_middle(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    remaining: u32,
) -> Result<(), Truncated> {
    // [V2-6.3.6-1]
    //~ V2-6.3.6-1: `xid` -> `xid: xid ^ 1`
    Prefix { xid, vers: VERSION, credit, htype: CALL_MIDDLE }.encode(w)?;
    w.u32(remaining)
}

/// A chunk that the Requester offered, and the number of octets written into it.
#[derive(Clone, Copy, Debug)]
pub struct Returned<'a> {
    /// All segments of the chunk, as offered.
    pub offered: &'a [Segment],
    /// The number of octets written into the segments, in order.
    pub length: usize,
}

impl<'a> Returned<'a> {
    // [V2-4.5.2.1-1] all segments come back, with the lengths that were written.
    fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + use<'a> {
        //~ V2-4.5.2.1-1: `filled(self.offered, self.length)` ->
        //~   `filled(self.offered, self.length).map(|it| if it.length > 0 { it } else { Segment::default() })`
        filled(self.offered, self.length)
    }
}

/// Appends the header of an `RDMA2_REPLY_INLINE`; `writes` are all the Write chunks of the Call.
pub fn encode_reply_inline(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    writes: &[Returned<'_>],
) -> Result<(), Truncated> {
    Prefix { xid, vers: VERSION, credit, htype: REPLY_INLINE }.encode(w)?;
    WriteList::encode(w, writes.iter().map(Returned::segments))
}

/// Returns the length of the header of an `RDMA2_REPLY_INLINE` in octets; `writes` yields the number of segments of
/// each Write chunk of the Call.
pub fn reply_inline_wire_len(writes: impl IntoIterator<Item = usize>) -> usize {
    WriteList::wire_len(writes).saturating_add(Prefix::WIRE_LEN)
}

/// Appends an `RDMA2_REPLY_EXTERNAL` whose Payload stream was written into `reply`.
pub fn encode_reply_external(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    writes: &[Returned<'_>],
    reply: &Returned<'_>,
) -> Result<(), Truncated> {
    // [V2-6.3.8-1] the XID is the Reply's.
    //~ V2-6.3.8-1: `xid` -> `xid: xid.swap_bytes()`
    Prefix { xid, vers: VERSION, credit, htype: REPLY_EXTERNAL }.encode(w)?;
    WriteList::encode(w, writes.iter().map(Returned::segments))?;
    // [V2-6.3.8-2] there is exactly one Reply chunk.
    //~ V2-6.3.8-2: `Some(reply.segments())` -> `Some(reply.segments()).filter(|_| !writes.is_empty())`
    WriteList::encode_optional(w, Some(reply.segments()))
}

/// Appends the header of an `RDMA2_REPLY_MIDDLE`, after which `remaining` octets of the Payload stream follow in later
/// messages.
pub fn encode_reply_middle(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    remaining: u32,
) -> Result<(), Truncated> {
    // [V2-6.3.9-1]
    //~ V2-6.3.9-1: `xid` -> `xid: xid ^ 1`
    Prefix { xid, vers: VERSION, credit, htype: REPLY_MIDDLE }.encode(w)?;
    w.u32(remaining)
}

/// The length of the header of an `RDMA2_CALL_MIDDLE` or `RDMA2_REPLY_MIDDLE`, in octets.
pub const MIDDLE_WIRE_LEN: usize = Prefix::WIRE_LEN + 4;

impl Message<'_> {
    /// Appends the message as it was received, Payload stream included.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.prefix().encode(w)?;
        match self {
            Self::Error { error, .. } => error.encode(w),
            Self::Grant { .. } => Ok(()),
            Self::ConnProp(properties) => properties.set.encode(w),
            Self::CallExternal(call) => {
                w.u32(call.inv_handle.0)?;
                ReadList::encode(w, call.call.entries())?;
                ReadList::encode(w, call.reads.entries())?;
                WriteList::encode(w, call.writes.chunks().map(|chunk| chunk.segments()))?;
                WriteList::encode_optional(w, call.reply.map(|chunk| chunk.segments()))
            }
            Self::CallInline(call) => {
                w.u32(call.inv_handle.0)?;
                ReadList::encode(w, call.reads.entries())?;
                WriteList::encode(w, call.writes.chunks().map(|chunk| chunk.segments()))?;
                WriteList::encode_optional(w, call.reply.map(|chunk| chunk.segments()))?;
                w.put(call.payload)
            }
            Self::CallMiddle(Fragment { remaining, payload, .. })
            | Self::ReplyMiddle(Fragment { remaining, payload, .. }) => {
                w.u32(*remaining)?;
                w.put(payload)
            }
            Self::ReplyExternal(reply) => {
                WriteList::encode(w, reply.writes.chunks().map(|chunk| chunk.segments()))?;
                WriteList::encode_optional(w, Some(reply.reply.segments()))
            }
            Self::Extended(extended) => w.put(extended.body),
            Self::ReplyInline(reply) => {
                WriteList::encode(w, reply.writes.chunks().map(|chunk| chunk.segments()))?;
                w.put(reply.payload)
            }
        }
    }
}
