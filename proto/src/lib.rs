//! RPC-over-RDMA, ONC RPC and iWARP as sans-I/O state machines.
//!
//! The library has no I/O, no clock, no threads and no unsafe code. Every input is an argument, time included, and
//! every effect is a value that the caller carries out. The same state machines therefore run in a simulator, over the
//! software RNIC and over libibverbs.
//!
//! The README has an example: two connections of version 2 negotiate in memory and exchange a Call and its Reply.
//!
//! - [`iwarp`]: MPA, DDP and RDMAP, the protocols of a software RNIC.
//! - [`xdr`]: a bounded reader and writer of XDR.
//! - [`verbs`]: work requests, completions and segments, shared with the memory pool and the
//!   runtime.
//! - [`time`]: instants, which callers pass as arguments.
//! - [`rpc`]: ONC RPC message headers, credentials and Upper-Layer Bindings.
//! - [`chunk`]: chunk lists, and the reduction and restoration of Payload streams.
//! - [`exchange`]: plans the formats and chunks of Calls and Replies.
//! - [`engine`]: the inputs and outputs of a connection, whatever its version.
//! - [`negotiate`]: a connection of either version, and the choice between them.
//! - [`v1`]: RPC-over-RDMA version 1.
//! - [`v2`]: RPC-over-RDMA version 2.
//! - [`rtrext`]: the round-trip extensions to version 2.
//! - `describe`, a module of the feature of this name: descriptions of headers as data.
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
#[cfg(feature = "describe")]
pub mod describe;
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
