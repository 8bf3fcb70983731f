//! The key-value service.
//!
//! Values live in registered memory: a GET is an RDMA Write from where the value lies, a PUT an RDMA
//! Read to where it stays.
//!
//! - [`protocol`]: the RPC program, its arguments and results.
//! - [`index`]: where each key's value is.
//! - [`service`]: the server's half; [`serve`]: the command that runs it.
//! - [`client`]: the other half; [`commands`]: `put`, `get`, `del`, `keys` and `stat`.
//! - [`bench`](mod@bench): the command that measures.
//! - [`stat`]: what a server says about itself.

pub mod bench;
pub mod client;
pub mod commands;
pub mod index;
pub mod protocol;
pub mod serve;
pub mod service;
pub mod stat;
