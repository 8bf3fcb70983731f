//! Chunks: the parts of an RPC message that RDMA Reads and Writes move instead of Sends.
//!
//! - [`list`]: Read and Write lists as they arrive, validated once and borrowed from the message.
//! - [`plan`]: the segments that a data item fills, and the check of those that a Reply returns.
//! - [`reduce`](mod@reduce): takes data items out of an encoded Payload stream.
//! - [`restore`](mod@restore): plans the RDMA Reads and copies that put data items back; [`layout`]
//!   says where each one belongs.
//! - [`payload`]: reads a Payload stream whose reduced items stay in their chunks.
//! - [`few`]: short lists that are stored in place.

pub mod few;
pub mod layout;
pub mod list;
pub mod payload;
pub mod plan;
pub mod reduce;
pub mod restore;
#[cfg(test)]
pub(crate) mod testing;

use core::fmt;

pub use few::{CHUNKS_MAX, Few};
pub use layout::{Layout, Piece, RestoreFault, Source};
pub use list::{ListFault, ReadChunk, ReadList, Segments, WriteChunk, WriteList};
pub use payload::{Item, PayloadReader, Returned};
pub use plan::{ReturnFault, claim, fill, returned, split};
pub use reduce::{DataItem, Kind, ReduceFault, Reduction, reduce};
pub use restore::{Restoration, Step, restore};

/// A version of RPC-over-RDMA, for rules that differ between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Version 1: RFC 5666 as practised.
    One,
    /// Version 2.
    Two,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "1",
            Self::Two => "2",
        })
    }
}

/// The format in which a message conveys its Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Simple format: the whole stream is in one message (`RDMA2_CALL_INLINE`,
    /// `RDMA2_REPLY_INLINE`; `RDMA_MSG`).
    Simple,
    /// Continued format, version 2 only: the stream is divided over two or more messages.
    Continued {
        /// The number of messages.
        messages: u32,
    },
    /// Special format: the stream is in a body chunk (`RDMA2_CALL_EXTERNAL`,
    /// `RDMA2_REPLY_EXTERNAL`; `RDMA_NOMSG`).
    Special,
}

/// Limits on the chunk lists of one received Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// The most Read chunks.
    pub read_chunks_max: u32,
    /// The most Write chunks.
    pub write_chunks_max: u32,
    /// The most segments in any one chunk.
    pub segments_max: u32,
}

/// A data item that was taken out of its Payload stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reduced {
    /// The offset of the item in the unreduced stream.
    pub position: u32,
    /// The length of the item in octets, without padding.
    pub length: u32,
}
