//! The configuration of a version 1 connection.

use core::time::Duration;

use crate::engine::Role;

/// The configuration of a connection, fixed for its lifetime.
#[derive(Clone, Debug)]
pub struct Config {
    /// The role of this end.
    pub role: Role,
    /// The number of credits that the Calls of this end request, and use at most.
    pub credits_wanted: u32,
    /// The most credits granted to the peer's Calls. Grants follow the reserved Receives, which the
    /// Replies to this end's own Calls use as well.
    pub credits_max: u32,
    /// The limits on received Calls.
    pub calls: CallLimits,
    /// At a client: the Calls of its server that it serves.
    pub reverse: Reverse,
    /// The RFC 5666 profile, if both ends agreed on it by other means.
    pub profile: Option<Profile>,
}

/// The opt-in profile of RFC 5666 (P11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The most Replies of this connection that await their `RDMA_DONE` at once. All clients together keep memory
    /// exposed for this number of Replies times the number of connections that the server admits.
    pub held_max: usize,
    /// The time that each Reply may wait for its `RDMA_DONE`.
    pub done_timeout: Duration,
    /// The treatment of a client whose `RDMA_DONE` is late.
    pub late: Late,
}

/// The treatment of a client whose `RDMA_DONE` does not arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Invalidate the memory. A client that reads it afterwards loses the connection.
    Release,
    /// Close the connection.
    Close,
}

/// Limits on the chunk lists of one received Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The most Read chunks of data items: runs of segments that share a position other than zero. The chunk at
    /// position zero, the Call itself, does not count.
    pub read_chunks_max: u32,
    /// The most Write chunks.
    pub write_chunks_max: u32,
    /// The most segments in any one chunk.
    pub segments_max: u32,
}

/// The Calls of its server that a client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reverse {
    /// The client serves no Calls.
    None,
    /// The client serves Calls without chunks.
    Inline,
    /// The client serves all Calls. [R8167-5.3-1] This excludes the profile, under which an `RDMA_NOMSG` with a Read
    /// list could be a Call or a Reply.
    Chunks,
}
