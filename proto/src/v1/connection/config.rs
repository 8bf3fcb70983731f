//! How a connection behaves.

use core::time::Duration;

use crate::engine::Role;

/// How a connection behaves, fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who opened the connection.
    pub role: Role,
    /// How many credits our Calls ask for, and use at most.
    pub credits_wanted: u32,
    /// How many credits the peer's Calls are granted at most. What is granted follows the Receives
    /// reserved, which the Replies to our own Calls come out of as well.
    pub credits_max: u32,
    /// What a Call may carry.
    pub calls: CallLimits,
    /// A client's: which Calls of its server it serves.
    pub reverse: Reverse,
    /// Set between ends that agreed on it by other means.
    pub profile: Option<Profile>,
}

/// The opt-in profile of RFC 5666 (P11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Replies of this connection that may wait for their `RDMA_DONE` at once. All clients together keep a
    /// server's memory exposed for as many times this as it admits connections.
    pub held_max: usize,
    /// How long each may wait.
    pub done_timeout: Duration,
    /// What becomes of a client that does not say it in time.
    pub late: Late,
}

/// What a server does when an `RDMA_DONE` does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Takes the memory back. A client that reads it after all loses the connection.
    Release,
    /// Closes the connection.
    Close,
}

/// What we accept in the chunk lists of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Read chunks of data items: runs of segments that share a position other than zero. The one chunk
    /// at position zero, the Call itself, does not count.
    pub read_chunks_max: u32,
    /// Write chunks.
    pub write_chunks_max: u32,
    /// Segments in any one chunk.
    pub segments_max: u32,
}

/// Which Calls of its server a client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reverse {
    /// None.
    None,
    /// Those without chunks.
    Inline,
    /// Any. [R8167-5.3-1] Not together with the profile: it could not be told whether an `RDMA_NOMSG`
    /// to be read is a Call or a Reply.
    Chunks,
}
