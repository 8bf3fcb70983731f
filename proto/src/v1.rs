//! RPC-over-RDMA version 1 (RFC 5666), as its peers speak it today.
//!
//! Where RFC 8166 and Linux depart from RFC 5666 they win: nobody else is out there. What only
//! RFC 5666 has, `RDMA_MSGP` and `RDMA_DONE`, is decoded always and honoured between ends that were
//! configured for it (decision P11).

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
