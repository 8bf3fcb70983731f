//! Encoding of version 1 transport headers.

use super::{DONE, ERROR, MSG, MSGP, Message, NOMSG, Padding, Prefix, Rpc};
use crate::chunk::plan::filled;
use crate::chunk::{ReadList, WriteList};
use crate::v1::VERSION;
use crate::v1::error::ErrorBody;
use crate::verbs::Segment;
use crate::xdr::{Truncated, Writer};

/// The form of a message, which says where its RPC message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `RDMA_MSG`: the RPC message follows the header.
    Msg,
    /// `RDMA_NOMSG`: the RPC message is at position zero of the Read list, or in the Reply chunk.
    NoMsg,
    /// `RDMA_MSGP`: the RPC message follows the header, with padding.
    MsgP(Padding),
}

impl Form {
    fn encode(self, w: &mut Writer<'_>, xid: u32, credit: u32) -> Result<(), Truncated> {
        // [R8167-5.1-1] [R8167-5.2-1] messages of both directions have the same version.
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

/// The chunk lists of a Call to be sent. Every chunk must have a segment, because not every server
/// accepts an empty one.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallLists<'a> {
    /// The Read chunks: the position of each in the unreduced RPC message, and its segments. Position zero is the RPC
    /// message itself and comes first.
    pub reads: &'a [(u32, &'a [Segment])],
    /// The Write chunks for reduced results.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub reply: Option<&'a [Segment]>,
}

/// The chunk lists of a Reply to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyLists<'a> {
    /// The Read chunks of results, used only between ends that honour `RDMA_DONE`.
    pub reads: &'a [(u32, &'a [Segment])],
    /// All the Write chunks of the Call, with the number of octets written into each.
    pub writes: &'a [(&'a [Segment], usize)],
    /// The Reply chunk of the Call, with the number of octets written into it.
    pub reply: Option<(&'a [Segment], usize)>,
}

/// Returns the length of the header of a Call in octets. `reads` is the number of Read segments,
/// `writes` yields that of each Write chunk, and `reply` is that of the Reply chunk. (An
/// `RDMA_MSGP` header has two words more.)
pub fn call_wire_len(
    reads: usize,
    writes: impl IntoIterator<Item = usize>,
    reply: Option<usize>,
) -> usize {
    let lists = ReadList::wire_len(reads).saturating_add(WriteList::wire_len(writes));
    let fixed = lists.saturating_add(Prefix::WIRE_LEN);
    fixed.saturating_add(WriteList::wire_len_optional(reply))
}

/// Appends the header of a Call that requests `credit` credits.
pub fn encode_call(
    w: &mut Writer<'_>,
    xid: u32,
    credit: u32,
    form: Form,
    lists: &CallLists<'_>,
) -> Result<(), Truncated> {
    //~ R5666-4.1-2: `xid` -> `xid.to_be()`
    //~ R8167-5.1-1: `form.encode(w, xid, credit)` ->
    //~   `let vers = if lists.reads.is_empty() { VERSION } else { VERSION + 1 };
    //~   Prefix { xid, vers, credit, proc: MSG }.encode(w)`
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
    //~ R5666-4.1-8: `xid` -> `xid.wrapping_add(1)`
    //~ R8167-5.2-1: `form.encode(w, xid, credit)` -> `Prefix { xid, vers: VERSION + 1, credit, proc: MSG }.encode(w)`
    form.encode(w, xid, credit)?;
    encode_reads(w, lists.reads)?;
    // [R5666-3.4-7] [R5666-3.6-1] all chunks come back as they were offered, except for the lengths.
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
    // [R5666-4.2-3] an error has the version of the message that it answers.
    //~ R5666-4.1-6: `` -> `if vers != VERSION { w.words([xid, vers, ERROR])?; return error.encode(w); }`
    Prefix { xid, vers, credit, proc: ERROR }.encode(w)?;
    error.encode(w)
}

fn encode_reads(w: &mut Writer<'_>, reads: &[(u32, &[Segment])]) -> Result<(), Truncated> {
    let entries = reads
        .iter()
        //~ R5666-2-1: `(position, *segment)` ->
        //~   `(position, Segment { offset: segment.offset & 0xffff_ffff, ..*segment })`
        .flat_map(|&(position, segments)| segments.iter().map(move |segment| (position, *segment)));
    ReadList::encode(w, entries)
}

impl Message<'_> {
    /// Appends the message as it was received, with the octets after its header.
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
