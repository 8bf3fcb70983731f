//! Descriptions of headers as data: the names that the specifications give to fields, and their values.
//!
//! The module exists with the feature `describe`. Its functions decode what they describe:
//!
//! - [`message`]: an RPC-over-RDMA message of version 1, of version 2 or of the round-trip extensions;
//! - [`rpc`]: the header of an ONC RPC message;
//! - [`iwarp::octets`], [`iwarp::frame`], [`iwarp::fpdu`]: MPA frames, and FPDUs with their DDP and RDMAP headers.
//!
//! [`Fields`] display as JSON, and are described in the book of Haulage (chapter "Looking inside messages").
//!
//! # Limits
//!
//! A description takes memory in proportion to the octets described. It borrows payload and copies none.

mod chunks;
pub mod iwarp;
mod refusal;
mod rpc;
mod rtrext;
mod v1;
mod v2;
mod value;

pub use refusal::Refusal;
pub use rpc::rpc;
pub use value::{Fields, Value};

use crate::v2::header::Prefix;
use crate::xdr::Reader;

/// Describes one RPC-over-RDMA message, whose version word selects the protocol.
///
/// # Errors
/// The message is not valid; see [`Refusal`].
pub fn message(octets: &[u8]) -> Result<Fields<'_>, Refusal> {
    let prefix = Prefix::decode(&mut Reader::new(octets)).ok();
    match prefix.map(|prefix| (prefix.vers, prefix.htype)) {
        Some((crate::v1::VERSION, _)) => v1::describe(octets),
        Some((crate::v2::VERSION, htype)) if crate::rtrext::header_name(htype).is_some() => {
            rtrext::describe(octets)
        }
        // Also messages with an unknown version, or without one.
        _ => v2::describe(octets),
    }
}

#[cfg(test)]
mod tests;
