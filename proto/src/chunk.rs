//! Chunks: where parts of an RPC message are, when they do not travel with it.
//!
//! - [`list`]: Read and Write lists as they arrive, validated once and borrowed from the message.
//! - [`plan`]: which segments a data item fills, and whether a Reply filled them as it should.
//! - [`payload`]: reading a Payload stream from which an item may have been reduced.

pub mod list;
pub mod payload;
pub mod plan;

pub use list::{ListFault, ReadChunk, ReadList, Segments, WriteChunk, WriteList};
pub use payload::{Item, PayloadReader};
pub use plan::{ReturnFault, fill, returned, split};
