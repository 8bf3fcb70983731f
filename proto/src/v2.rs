//! RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! `READINGS.md` says how contradictory sentences of the draft are read; code cites them as `E1`,
//! and decisions the draft leaves open as `P1`.
//!
//! Below [`crate::rtrext`] lie the messages: [`error`], [`header`], [`properties`], [`continuation`]. Above it
//! lies [`connection`], which composes all of them.

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
