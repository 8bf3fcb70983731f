//! RPC-over-RDMA, ONC RPC and iWARP as pure state machines.
//!
//! No I/O, no clock, no thread, no unsafe code: every input is an argument, time included, and every
//! effect is a value the caller carries out. The simulator, the software RNIC and libibverbs all
//! drive the same bytes.
//!
//! - [`iwarp`]: MPA, DDP and RDMAP, for the RNIC that is our own software.
//! - [`xdr`]: the bounded cursor everything is parsed and written with.
//! - [`verbs`]: the alphabet shared with the memory pool and the runtime.
//! - [`time`]: the instants that enter by argument.
//! - [`rpc`]: ONC RPC message headers.
//! - [`chunk`]: chunk lists, and the Payload streams items are reduced from.
//! - [`exchange`]: which format a message has, and which chunks.
//! - [`engine`]: what goes into a connection of any version, and what comes out.
//! - [`negotiate`]: which version a connection speaks, and a connection of either.
//! - [`v1`]: RPC-over-RDMA version 1.
//! - [`v2`]: RPC-over-RDMA version 2.
//! - [`rtrext`]: its round-trip extensions.
//!
//! # Items left out of this documentation
//!
//! The Haulage runtime handles short messages in runs: it recognises them by comparing whole headers, takes credits for
//! several at a time and writes headers from templates. The functions and types that serve only this are public and
//! `#[doc(hidden)]`: they change with the runtime. Everything they do can be done with the documented functions.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// The example of README.md, which runs as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod chunk;
pub mod engine;
pub mod exchange;
pub mod iwarp;
pub mod negotiate;
mod ring;
pub mod rpc;
pub mod rtrext;
#[cfg(test)]
mod testing;
pub mod time;
pub mod v1;
pub mod v2;
pub mod verbs;
pub mod xdr;
