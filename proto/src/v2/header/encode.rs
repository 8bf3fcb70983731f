//! Transport headers as we send them: at most one data item chunk each way.

use super::{CALL_INLINE, CONNPROP_FINAL, ERROR, GRANT, Message, Prefix, REPLY_INLINE};
use crate::chunk::plan::filled;
use crate::chunk::{ReadList, WriteList};
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::properties::Properties;
use crate::verbs::{Handle, Segment};
use crate::xdr::{Truncated, Writer};

/// Appends an `RDMA2_GRANT`.
pub fn encode_grant(w: &mut Writer<'_>, credit: u32) -> Result<(), Truncated> {
    // [V2-6.3.2-1] its XID is zero.
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
    Prefix { xid, vers, credit, htype: ERROR }.encode(w)?;
    error.encode(w)
}

/// Appends an `RDMA2_CONNPROP_FINAL`.
pub fn encode_connprop_final(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    properties: &Properties,
) -> Result<(), Truncated> {
    Prefix { xid, vers: VERSION, credit, htype: CONNPROP_FINAL }.encode(w)?;
    properties.encode(w)
}

/// The transport header of an `RDMA2_CALL_INLINE` to be sent.
#[derive(Clone, Copy, Debug)]
pub struct CallInlineHeader<'a> {
    /// Of the Call.
    pub xid: u32,
    /// The credit word.
    pub credit: u32,
    /// One of the handles below, or zero.
    pub inv_handle: Handle,
    /// Where the reduced argument stands in the unreduced Payload stream.
    pub position: u32,
    /// Where the reduced argument is; empty if nothing was reduced.
    pub reads: &'a [Segment],
    /// Where the reduced result goes; empty if none is wanted.
    pub writes: &'a [Segment],
}

impl CallInlineHeader<'_> {
    /// Appends the header to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let (xid, credit) = (self.xid, self.credit);
        Prefix { xid, vers: VERSION, credit, htype: CALL_INLINE }.encode(w)?;
        w.u32(self.inv_handle.0)?;
        ReadList::encode(w, self.reads.iter().map(|segment| (self.position, *segment)))?;
        let chunk = Some(self.writes).filter(|writes| !writes.is_empty());
        WriteList::encode(w, chunk.map(|writes| writes.iter().copied()))?;
        w.u32(0)
    }

    /// Octets of the header with so many segments.
    pub const fn wire_len(reads: usize, writes: usize) -> usize {
        let chunk = if writes == 0 { None } else { Some(writes) };
        let lists = ReadList::wire_len(reads).saturating_add(WriteList::wire_len(chunk));
        // The prefix, rdma_inv_handle, and no Reply chunk.
        lists.saturating_add(Prefix::WIRE_LEN).saturating_add(8)
    }
}

/// The transport header of an `RDMA2_REPLY_INLINE` to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ReplyInlineHeader<'a> {
    /// Of the Call.
    pub xid: u32,
    /// The credit word.
    pub credit: u32,
    /// The Write chunk the Requester offered, if it did.
    pub offered: Option<&'a [Segment]>,
    /// Octets of the result that were written into it.
    pub length: usize,
}

impl ReplyInlineHeader<'_> {
    /// Appends the header to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let (xid, credit) = (self.xid, self.credit);
        Prefix { xid, vers: VERSION, credit, htype: REPLY_INLINE }.encode(w)?;
        // [V2-4.5.2.1-1] count and segments come back, the lengths say what was written.
        WriteList::encode(w, self.offered.map(|segments| filled(segments, self.length)))
    }

    /// Octets of the header when the Requester offered so many segments.
    pub const fn wire_len(offered: Option<usize>) -> usize {
        WriteList::wire_len(offered).saturating_add(Prefix::WIRE_LEN)
    }
}

impl Message<'_> {
    /// Appends the message as it was received, Payload stream included.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.prefix().encode(w)?;
        match self {
            Self::Error { error, .. } => error.encode(w),
            Self::Grant { .. } => Ok(()),
            Self::ConnPropFinal { set, .. } => set.encode(w),
            Self::CallInline(call) => {
                w.u32(call.inv_handle.0)?;
                ReadList::encode(w, call.reads.entries())?;
                WriteList::encode(w, call.writes.chunks().map(|chunk| chunk.segments()))?;
                WriteList::encode_optional(w, call.reply.map(|chunk| chunk.segments()))?;
                w.put(call.payload)
            }
            Self::ReplyInline(reply) => {
                WriteList::encode(w, reply.writes.chunks().map(|chunk| chunk.segments()))?;
                w.put(reply.payload)
            }
        }
    }
}
