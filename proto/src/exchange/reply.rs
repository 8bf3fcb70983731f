//! The Requester's check of a Reply against its own record of what it offered.
//!
//! Nothing a Responder says about our memory is trusted: handles and offsets in a Reply are not looked
//! at, and lengths only within what was offered. Whether as much was placed as they say, only the RNIC knows:
//! whoever has one that counts compares [`Arrived`] with that. Whether the lengths of reduced results are those left
//! in the Payload stream is checked where it is parsed, by
//! [`PayloadReader`](crate::chunk::PayloadReader), to which [`Arrived::writes`] is an input.

use core::fmt;

use crate::chunk::payload::Returned;
use crate::chunk::{Few, ReturnFault, Version, WriteChunk, WriteList, plan};
use crate::verbs::Segment;

/// Our record of what a Call offered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offered<'a> {
    /// The segments of each Write chunk.
    pub writes: &'a [&'a [Segment]],
    /// The segments of the Reply chunk.
    pub reply: Option<&'a [Segment]>,
}

/// The chunk lists of a Reply, and what else of its header matters.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyLists<'a> {
    /// The Write list.
    pub writes: WriteList<'a>,
    /// The Reply chunk.
    pub reply: Option<WriteChunk<'a>>,
    /// Whether the header says that the Payload stream is in the Reply chunk:
    /// `RDMA2_REPLY_EXTERNAL`, `RDMA_NOMSG`.
    pub external: bool,
    /// Whether there is a Read list that is not empty. Version 2 Replies have no place for one.
    pub reads: bool,
}

/// What a Reply that makes sense says was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Into each Write chunk.
    pub writes: Few<Returned>,
    /// Where the Payload stream is.
    pub body: Body,
}

/// Where the Payload stream of a Reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the message, or in messages before it.
    Inline,
    /// In the Reply chunk.
    ReplyChunk {
        /// Its octets.
        length: u32,
    },
}

/// Why a Reply is refused. The RPC fails; the connection can stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyFault {
    /// It returns another number of Write chunks.
    WriteCount,
    /// One of its Write chunks is not as it was offered.
    Write(ReturnFault),
    /// Its Reply chunk is not as it was offered.
    Reply(ReturnFault),
    /// It uses a Reply chunk although none was offered.
    NoReplyChunk,
    /// Its Reply chunk holds nothing, or not a whole number of units.
    ReplyLength,
    /// It is in the message, but its Reply chunk is not unused.
    TwoBodies,
    /// It wants to be read from.
    ReadList,
}

impl ReplyFault {
    /// Says which rule was broken.
    pub const fn rule(self) -> &'static str {
        match self {
            Self::WriteCount => "another number of Write chunks was returned",
            Self::Write(fault) | Self::Reply(fault) => fault.rule(),
            Self::NoReplyChunk => "the Reply is in a Reply chunk that was not offered",
            Self::ReplyLength => "the length of the Reply chunk is not that of a Reply",
            Self::TwoBodies => "the Reply is inline and in the Reply chunk",
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

/// Checks the chunk lists of a Reply against what its Call offered.
///
/// # Errors
/// See [`ReplyFault`].
pub fn check_reply(
    version: Version,
    offered: &Offered<'_>,
    reply: &ReplyLists<'_>,
) -> Result<Arrived, ReplyFault> {
    if reply.reads {
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
    let body = if reply.external {
        if offered.reply.is_none() {
            return Err(ReplyFault::NoReplyChunk);
        }
        // [V2-4.5.3-1] with its padding. Version 1 peers need not be held to that.
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
