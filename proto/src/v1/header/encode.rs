//! Transport headers as we send them.

use super::{DONE, ERROR, MSG, MSGP, Message, NOMSG, Padding, Prefix, Rpc};
use crate::chunk::plan::filled;
use crate::chunk::{ReadList, WriteList};
use crate::v1::VERSION;
use crate::v1::error::ErrorBody;
use crate::verbs::Segment;
use crate::xdr::{Truncated, Writer};

/// Where the RPC message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `RDMA_MSG`: behind the header.
    Msg,
    /// `RDMA_NOMSG`: at position zero of the Read list, or in the Reply chunk.
    NoMsg,
    /// `RDMA_MSGP`: behind the header, padded.
    MsgP(Padding),
}

impl Form {
    fn encode(self, w: &mut Writer<'_>, xid: u32, credit: u32) -> Result<(), Truncated> {
        // [R8167-5.1-1] [R8167-5.2-1] one version, whichever way a message goes.
        let prefix = |proc| Prefix { xid, vers: VERSION, credit, proc };
        match self {
            Self::Msg => prefix(MSG).encode(w),
            Self::NoMsg => prefix(NOMSG).encode(w),
            Self::MsgP(padding) => {
                prefix(MSGP).encode(w)?;
                padding.encode(w)
            }
        }
    }
}

impl Padding {
    fn encode(self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.align)?;
        w.u32(self.thresh)
    }
}

/// The chunk lists of a Call to be sent. No chunk is without segments: not every server takes one.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallLists<'a> {
    /// Where each chunk stands in the unreduced RPC message, and where it is. Position zero is the RPC
    /// message itself and comes first.
    pub reads: &'a [(u32, &'a [Segment])],
    /// Where each reduced result goes.
    pub writes: &'a [&'a [Segment]],
    /// Where the whole Reply may go.
    pub reply: Option<&'a [Segment]>,
}

/// The chunk lists of a Reply to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyLists<'a> {
    /// Results to be fetched: only between ends that honour `RDMA_DONE`.
    pub reads: &'a [(u32, &'a [Segment])],
    /// All the Write chunks of the Call, and how many octets were written into each.
    pub writes: &'a [(&'a [Segment], usize)],
    /// The Reply chunk of the Call, and how many octets were written into it.
    pub reply: Option<(&'a [Segment], usize)>,
}

/// Returns the octets of the header of a Call with so many Read segments, Write chunks of so many
/// segments each, and a Reply chunk of so many. (Padded, it has two words more.)
pub fn call_wire_len(
    reads: usize,
    writes: impl IntoIterator<Item = usize>,
    reply: Option<usize>,
) -> usize {
    let lists = ReadList::wire_len(reads).saturating_add(WriteList::wire_len(writes));
    let fixed = lists.saturating_add(Prefix::WIRE_LEN);
    fixed.saturating_add(WriteList::wire_len_optional(reply))
}

/// Appends the header of a Call that asks for `credit` credits.
pub fn encode_call(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    form: Form,
    lists: &CallLists<'_>,
) -> Result<(), Truncated> {
    form.encode(w, xid, credit)?;
    encode_reads(w, lists.reads)?;
    WriteList::encode(w, lists.writes.iter().map(|segments| segments.iter().copied()))?;
    WriteList::encode_optional(w, lists.reply.map(|segments| segments.iter().copied()))
}

/// Appends the header of a Reply that grants `credit` credits.
pub fn encode_reply(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    form: Form,
    lists: &ReplyLists<'_>,
) -> Result<(), Truncated> {
    form.encode(w, xid, credit)?;
    encode_reads(w, lists.reads)?;
    // [R5666-3.4-7] [R5666-3.6-1] all come back as they were offered but for their lengths.
    let returned = |&(offered, length)| filled(offered, length);
    WriteList::encode(w, lists.writes.iter().map(returned))?;
    WriteList::encode_optional(w, lists.reply.as_ref().map(returned))
}

/// Appends an `RDMA_DONE` about the Reply with this XID.
pub fn encode_done(w: &mut Writer<'_>, xid: u32, credit: u32) -> Result<(), Truncated> {
    Prefix { xid, vers: VERSION, credit, proc: DONE }.encode(w)
}

/// Appends an `RDMA_ERROR` about the message that carried `xid` and `vers`.
pub fn encode_error(
    w: &mut Writer<'_>,
    xid: u32,
    vers: u32,
    credit: u32,
    error: &ErrorBody,
) -> Result<(), Truncated> {
    // [R5666-4.2-3] the version its receiver spoke.
    Prefix { xid, vers, credit, proc: ERROR }.encode(w)?;
    error.encode(w)
}

fn encode_reads(w: &mut Writer<'_>, reads: &[(u32, &[Segment])]) -> Result<(), Truncated> {
    let entries = reads
        .iter()
        .flat_map(|&(position, segments)| segments.iter().map(move |segment| (position, *segment)));
    ReadList::encode(w, entries)
}

impl Message<'_> {
    /// Appends the message as it was received, what follows its header included.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.prefix().encode(w)?;
        match self {
            Self::Msg(rpc) | Self::NoMsg(rpc) => rpc.encode(w),
            Self::MsgP(padding, rpc) => {
                padding.encode(w)?;
                rpc.encode(w)
            }
            Self::Done { .. } => Ok(()),
            Self::Error { error, .. } => error.encode(w),
        }
    }
}

impl Rpc<'_> {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        ReadList::encode(w, self.reads.entries())?;
        WriteList::encode(w, self.writes.chunks().map(|chunk| chunk.segments()))?;
        WriteList::encode_optional(w, self.reply.map(|chunk| chunk.segments()))?;
        w.put(self.payload)
    }
}
