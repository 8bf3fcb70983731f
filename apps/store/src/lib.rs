//! A storage server framework.
//!
//! What exists so far are its first layers, which know of no transport:
//!
//! - [`nfs3`] and [`mount3`]: the arguments and results of NFS version 3 and MOUNT version 3, for both
//!   roles, with the Upper-Layer Binding of RFC 8267.
//! - [`handle`]: file handles that name a file and cannot be forged.
//! - [`backend`]: what a server needs from storage. READ data leaves from registered memory as
//!   [`Pieces`](haulage_mr_pool::Pieces), WRITE data stays in the lease it was placed in.
//! - [`memory`]: a file system in registered memory, the first backend.
//! - [`access`]: who calls, as far as they are believed, and what they may do.
//! - [`service`]: one Call in, one Reply out, for all procedures and any backend.
//! - [`mounts`]: the same for MOUNT.
//! - [`replays`]: what was answered to Calls that may come again.
//!
//! No transport is joined to them yet: there is no server to mount, and no client.
#![forbid(unsafe_code)]

pub mod access;
pub mod backend;
pub mod codec;
pub mod handle;
pub mod memory;
pub mod mount3;
pub mod mounts;
pub mod nfs3;
pub mod replays;
pub mod server;
pub mod service;

#[cfg(test)]
mod testing;
