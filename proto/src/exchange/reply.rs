//! The Requester's check of a Reply against its own record of the offer.
//!
//! Nothing a Responder says about the Requester's memory is trusted: handles and offsets in a Reply are ignored, and
//! lengths must lie within the offer. Only the RNIC knows how many octets were placed: a caller whose RNIC counts them
//! compares the counts with [`Arrived`]. [`PayloadReader`](crate::chunk::PayloadReader), which takes
//! [`Arrived::writes`], checks that the lengths of reduced results match the length words in the Payload stream.

use core::fmt;

use crate::chunk::payload::Returned;
use crate::chunk::{Few, ReturnFault, Version, WriteChunk, WriteList, plan};
use crate::verbs::Segment;

/// The Requester's record of the chunks that a Call offered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered<'a> {
    /// The segments of each Write chunk.
    pub writes: &'a [&'a [Segment]],
    /// The segments of the Reply chunk.
    pub reply: Option<&'a [Segment]>,
    /// Whether the Reply may have a Read list, which the Requester restores it from (version 1, RFC 5666).
    pub reads: bool,
}

/// The chunk lists of a Reply and the form of its header.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyLists<'a> {
    /// The Write list.
    pub writes: WriteList<'a>,
    /// The Reply chunk.
    pub reply: Option<WriteChunk<'a>>,
    /// Whether the header type puts the Payload stream in the Reply chunk: `RDMA2_REPLY_EXTERNAL`,
    /// `RDMA_NOMSG`.
    pub external: bool,
    /// Whether the header has a Read list that is not empty. Version 2 Replies have no Read list.
    pub reads: bool,
}

/// The contents of the chunks of a valid Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The octets written into each Write chunk.
    pub writes: Few<Returned>,
    /// The place of the Payload stream.
    pub body: Body,
}

/// The place of the Payload stream of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The stream is in the message and, if continued, in the messages before it.
    Inline,
    /// The stream is in the Reply chunk.
    ReplyChunk {
        /// The length of the stream in octets.
        length: u32,
    },
    /// The stream, or results that were reduced from it, is in Read chunks: see [`restore`](crate::chunk::restore()).
    Read,
}

/// Why a Reply is refused. The RPC fails; the connection can stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyFault {
    /// The Reply returns a different number of Write chunks.
    WriteCount,
    /// A Write chunk does not match the offer.
    Write(ReturnFault),
    /// The Reply chunk does not match the offer.
    Reply(ReturnFault),
    /// The Reply uses a Reply chunk although none was offered.
    NoReplyChunk,
    /// The length of the Reply chunk is zero or not a multiple of the XDR unit.
    ReplyLength,
    /// The Reply is in the message or to be read, and its Reply chunk reports octets as well.
    TwoBodies,
    /// The Reply has a Read list, although none is taken.
    ReadList,
}

impl ReplyFault {
    /// Returns the rule that was broken, in words.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::WriteCount => "another number of Write chunks was returned",
            Self::Write(fault) | Self::Reply(fault) => fault.rule(),
            Self::NoReplyChunk => "the Reply is in a Reply chunk that was not offered",
            Self::ReplyLength => "the length of the Reply chunk is not that of a Reply",
            Self::TwoBodies => "the Reply is inline or to be read, and in the Reply chunk",
            Self::ReadList => "a Reply has a Read list",
        }
    }
}

impl fmt::Display for ReplyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl core::error::Error for ReplyFault {}

/// Checks the chunk lists of a Reply against the chunks that its Call offered.
///
/// # Errors
/// See [`ReplyFault`].
pub fn check_reply(
    version: Version,
    offered: &Offered<'_>,
    reply: &ReplyLists<'_>,
) -> Result<Arrived, ReplyFault> {
    if reply.reads && !offered.reads {
        return Err(ReplyFault::ReadList);
    }
    let writes = check_writes(version, offered, &reply.writes)?;
    let written = match (offered.reply, reply.reply) {
        (Some(offer), Some(chunk)) => {
            plan::returned_segments(offer, chunk.segments()).map_err(ReplyFault::Reply)?
        }
        (None, Some(chunk)) if chunk.segments().any(|segment| segment.length > 0) => {
            return Err(ReplyFault::NoReplyChunk);
        }
        (_, _) => 0,
    };
    let body = if reply.reads && written == 0 {
        Body::Read
    } else if reply.external && !reply.reads {
        if offered.reply.is_none() {
            return Err(ReplyFault::NoReplyChunk);
        }
        // [V2-4.5.3-1] a body is written with its padding. Version 1 peers need not do so.
        let whole = version == Version::One || written.is_multiple_of(4);
        if written == 0 || !whole {
            return Err(ReplyFault::ReplyLength);
        }
        Body::ReplyChunk { length: written }
    } else if written > 0 {
        return Err(ReplyFault::TwoBodies);
    } else {
        Body::Inline
    };
    Ok(Arrived { writes, body })
}

fn check_writes(
    version: Version,
    offered: &Offered<'_>,
    writes: &WriteList<'_>,
) -> Result<Few<Returned>, ReplyFault> {
    let mut arrived = Few::default();
    let mut chunks = writes.chunks();
    // Version 1: an empty list returns every chunk unused.
    let all_unused = version == Version::One && writes.chunk_count() == 0;
    for offer in offered.writes {
        let room = offer.iter().fold(0_u32, |sum, segment| sum.saturating_add(segment.length));
        let written = match chunks.next() {
            Some(chunk) => {
                plan::returned_segments(offer, chunk.segments()).map_err(ReplyFault::Write)?
            }
            None if all_unused => 0,
            None => return Err(ReplyFault::WriteCount),
        };
        if !arrived.push(Returned { offered: room, written }) {
            return Err(ReplyFault::WriteCount);
        }
    }
    if chunks.next().is_some() {
        return Err(ReplyFault::WriteCount);
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests;
