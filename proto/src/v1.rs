//! RPC-over-RDMA version 1 (RFC 5666), as it is deployed today.
//!
//! Where RFC 8166 and Linux depart from RFC 5666, this module follows them, because they are the
//! peers in use. `RDMA_MSGP` and `RDMA_DONE`, which only RFC 5666 has, are always decoded, and
//! honoured between ends that were configured for them (decision P11).

pub mod config;
pub mod connection;
mod credit;
pub mod error;
pub mod header;
mod held;
pub mod invalidation;
pub mod padding;
pub mod private_data;

/// The version word of every message.
pub const VERSION: u32 = 1;
