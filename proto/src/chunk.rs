//! Chunks: where parts of an RPC message are, when they do not travel with it.
//!
//! - [`list`]: Read and Write lists as they arrive, validated once and borrowed from the message.
//! - [`plan`]: which segments a data item fills, and whether a Reply filled them as it should.
//! - [`reduce`](mod@reduce): which octets of an encoded Payload stream leave it.
//! - [`restore`](mod@restore): how they come back, by RDMA Read; [`layout`] says where to.
//! - [`payload`]: reading a Payload stream whose reduced items stay where they are.
//! - [`few`]: short lists in place.

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
pub use plan::{ReturnFault, fill, returned, split};
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

/// How a message conveys its Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// In one message: `RDMA2_CALL_INLINE`, `RDMA2_REPLY_INLINE`; `RDMA_MSG`.
    Simple,
    /// In several messages, which only version 2 can. At least two.
    Continued {
        /// How many.
        messages: u32,
    },
    /// In a body chunk: `RDMA2_CALL_EXTERNAL`, `RDMA2_REPLY_EXTERNAL`; `RDMA_NOMSG`.
    Special,
}

/// What we accept in the chunk lists of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Read chunks.
    pub read_chunks_max: u32,
    /// Write chunks.
    pub write_chunks_max: u32,
    /// Segments in any one chunk.
    pub segments_max: u32,
}

/// A data item that is not in its Payload stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reduced {
    /// Where it stands in the unreduced stream.
    pub position: u32,
    /// Its octets, padding not counted.
    pub length: u32,
}
