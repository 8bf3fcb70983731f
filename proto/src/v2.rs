//! RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! `READINGS.md` explains how this module reads contradictory sentences of the draft; code cites
//! these readings as `E1` and so on, and decisions that the draft leaves open as `P1` and so on.
//!
//! [`crate::rtrext`] builds on the messages: [`error`], [`header`], [`properties`], [`continuation`]. [`connection`]
//! composes all of them, [`crate::rtrext`] included.

pub mod connection;
pub mod continuation;
pub mod credit;
pub mod error;
pub mod header;
pub mod host_auth;
pub mod invalidation;
pub mod properties;
pub mod requester;
pub mod reverse;
mod setup;
pub mod thresholds;

/// The version word of every message.
pub const VERSION: u32 = 2;
