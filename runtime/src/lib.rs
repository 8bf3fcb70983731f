//! A kernel-bypass RPC-over-RDMA runtime: one core is one thread, run to completion.
//!
//! A [`Service`](core::Service) declares which arguments and results may be moved by direct data
//! placement; a [`Core`](core::Core) serves it over a [`Provider`](provider::Provider), a hardware
//! RNIC or software that behaves like one. The same core makes Calls, for its own service or, through
//! a [`RemoteClient`](remote::RemoteClient), for any other thread.
//!
//! `examples/echo.rs` is a service and its client; the chapter `docs/book/src/services.md` explains it.
//!
//! # Features
//! None is on by default.
//!
//! - `host-auth`: the module `host_auth`, in which both ends of a connection prove with Ed25519 keys who they are.
//! - `verbs`: the provider `provider::verbs`, for RDMA devices by libibverbs and librdmacm.
#![deny(unsafe_code)]

pub mod core;
mod core_number;
pub mod cores;
mod counts;
pub mod crowd;
#[cfg(feature = "host-auth")]
pub mod host_auth;
pub mod hosts;
pub mod identity;
mod items;
mod key;
pub mod limits;
mod origin;
mod outgoing;
pub mod polling;
pub mod provider;
pub mod remote;
pub mod rpcbind;
pub mod service;
pub mod shares;
mod sync;
#[doc(hidden)]
#[allow(unsafe_code, reason = "system calls, and the one place that mints completions")]
pub mod sys;
mod work;

pub use haulage_mr_pool as pool;
pub use haulage_proto as proto;

/// Runs the code of the book's chapters.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/services.md")]
    mod services {}
    #[doc = include_str!("../../docs/book/src/library.md")]
    mod library {}
}
