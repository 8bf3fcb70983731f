//! The key-value service.
//!
//! Values live in registered memory: a GET is an RDMA Write from where the value lies, a PUT an RDMA
//! Read to where it stays.
//!
//! - [`protocol`]: the RPC program, its arguments and results.
//! - [`index`]: the hash table of keys.
//! - [`service`]: the server; [`serve`]: the command that runs it.
//! - [`client`]: the client; [`commands`]: `put`, `get`, `del`, `keys` and `stat`.
//! - [`bench`](mod@bench): the benchmark.
//! - [`stat`]: the statistics of a server.

pub mod bench;
pub mod client;
pub mod commands;
pub mod index;
pub mod protocol;
pub mod serve;
pub mod service;
pub mod stat;
