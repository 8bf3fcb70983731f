//! A storage server framework.
//!
//! What exists so far are its first layers, which know of no transport:
//!
//! - [`nfs3`] and [`mount3`]: the arguments and results of NFS version 3 and MOUNT version 3, for both
//!   roles, with the Upper-Layer Binding of RFC 8267.
//! - [`handle`]: file handles that name a file and cannot be forged.
//!
//! There is no server yet, and no client.
#![forbid(unsafe_code)]

pub mod codec;
pub mod handle;
pub mod mount3;
pub mod nfs3;

#[cfg(test)]
mod testing;
