//! The configuration of a version 2 connection: the properties it announces and the messages it
//! accepts.

use core::time::Duration;

pub use crate::chunk::ChunkLimits;
use crate::chunk::{ReadList, WriteChunk, WriteList};
pub use crate::engine::Role;
use crate::v2::error::ErrorBody;
use crate::v2::header::{CallExternal, CallInline};
use crate::v2::properties::Properties;

/// The configuration of a connection, fixed for its lifetime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// The properties of this end. At a client they also determine the reverse Calls that it
    /// serves.
    pub properties: Properties,
    /// The XID of a client's first message; never zero.
    pub first_xid: u32,
    /// The limits on the chunks of received Calls.
    pub chunks: ChunkLimits,
    /// The length of the largest Payload stream of a Call that is accepted in Continued format, in octets; zero accepts
    /// none.
    pub continued_call_max: u32,
    /// The length of the largest Payload stream of a Reply that is accepted in Continued format, in octets; zero accepts
    /// none.
    pub continued_reply_max: u32,
    /// Whether Calls of this end use at most half of the credits, so that Calls of both ends get through at once. Otherwise
    /// the end with more credits may keep the other one from calling for as long as it is busy.
    pub shares_credits: bool,
    /// Whether this end can send Replies in Continued format.
    pub continues_replies: bool,
    /// The time that the peer may take to complete setup.
    pub setup_timeout: Duration,
}

impl Config {
    /// Returns a configuration with the defaults of the draft for all properties. It accepts Calls with one Read chunk
    /// and one Write chunk of at most 16 segments each, no Continued format, and gives the peer five seconds for setup.
    /// `first_xid` must not be zero.
    pub fn new(role: Role, first_xid: u32) -> Self {
        Self {
            role,
            properties: Properties::default(),
            first_xid,
            chunks: ChunkLimits { read_chunks_max: 1, write_chunks_max: 1, segments_max: 16 },
            continued_call_max: 0,
            continued_reply_max: 0,
            shares_credits: false,
            continues_replies: false,
            setup_timeout: Duration::from_secs(5),
        }
    }
}

/// The chunks of a Call, whatever its format.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallChunks<'a> {
    /// The Call chunk; empty in all but Special format.
    call: ReadList<'a>,
    reads: ReadList<'a>,
    writes: WriteList<'a>,
    reply: Option<WriteChunk<'a>>,
}

impl<'a> CallChunks<'a> {
    pub(super) fn of_inline(call: &CallInline<'a>) -> Self {
        let CallInline { reads, writes, reply, .. } = *call;
        Self { call: ReadList::default(), reads, writes, reply }
    }

    pub(super) const fn of_external(call: &CallExternal<'a>) -> Self {
        let CallExternal { call, reads, writes, reply, .. } = *call;
        Self { call, reads, writes, reply }
    }
}

impl Config {
    /// Checks that a Call is within the limits; returns the error to answer with if it is not.
    pub(super) fn check(&self, chunks: &CallChunks<'_>) -> Result<(), ErrorBody> {
        let ChunkLimits { read_chunks_max, write_chunks_max, segments_max } = self.chunks;
        // [V2-7.3.1-1] [V2-7.3.1-2] [V2-7.3.2-1] [V2-7.3.3-1] the errors tell the maximum, even if it is zero.
        if chunks.reads.chunk_count() > read_chunks_max {
            //~ V2-7.3.1-1: `read_chunks_max` -> `chunks.reads.chunk_count()`
            return Err(ErrorBody::ReadChunks { max: read_chunks_max });
        }
        if chunks.writes.chunk_count() > write_chunks_max {
            return Err(self.too_many_writes(write_chunks_max));
        }
        let reads = chunks.call.chunks().chain(chunks.reads.chunks());
        let mut counts = reads
            .map(|chunk| chunk.segment_count())
            .chain(chunks.writes.chunks().chain(chunks.reply).map(|chunk| chunk.segments().len()));
        if counts.any(|count| u32::try_from(count).is_ok_and(|count| count > segments_max)) {
            //~ V2-7.3.3-1: `segments_max` -> `segments_max.saturating_sub(1)`
            return Err(ErrorBody::Segments { max: segments_max });
        }
        self.check_lengths(chunks)
    }

    /// Checks that a Call has no chunks, where none are allowed (section 4.6.4); returns the error
    /// to answer with if it has.
    pub(super) fn check_chunkless(&self, chunks: &CallChunks<'_>) -> Result<(), ErrorBody> {
        // [V2-4.6.4-2] the error for too many chunks tells that none are served.
        if !chunks.call.is_empty() || !chunks.reads.is_empty() {
            //~ V2-7.3.1-2: `max: 0` -> `max: 1`
            return Err(ErrorBody::ReadChunks { max: 0 });
        }
        if chunks.writes.chunk_count() > 0 {
            return Err(self.too_many_writes(0));
        }
        //~ V2-4.6.4-2: `chunks.reply.is_some()` -> `false`
        if chunks.reply.is_some() { Err(REPLY_RESOURCE_UNKNOWN) } else { Ok(()) }
    }

    const fn too_many_writes(&self, max: u32) -> ErrorBody {
        //~ V2-7.3.2-3: `!self` -> `self`
        if max == 0 && !self.continues_replies {
            // [V2-7.3.2-3] without Write chunks, it is the Reply that does not fit.
            return REPLY_RESOURCE_UNKNOWN;
        }
        //~ V2-7.3.2-1: `{ max }` -> `{ max: 0 }`
        ErrorBody::WriteChunks { max }
    }

    fn check_lengths(&self, chunks: &CallChunks<'_>) -> Result<(), ErrorBody> {
        let read = chunks.call.entries().chain(chunks.reads.entries()).map(|(_, segment)| segment);
        let written = chunks.writes.chunks().chain(chunks.reply).flat_map(|chunk| chunk.segments());
        // Section 5.2.3 has no error of its own for a segment larger than we said we handle.
        let is_longer = |length: u32| length > self.properties.segment_size_max;
        if read.chain(written).any(|segment| is_longer(segment.length)) {
            // [V2-7.4.1-1] [V2-7.4.1-2] the peer is told, and the Call is dropped.
            //~ V2-7.4.1-1: `System` -> `BadXdr`
            return Err(ErrorBody::System);
        }
        Ok(())
    }
}

/// The error for a Reply whose length is not known.
const REPLY_RESOURCE_UNKNOWN: ErrorBody = ErrorBody::ReplyResource { length_needed: 0 };
