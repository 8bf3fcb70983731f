//! The commands of the key-value service, which is the package `haulage-kv`.
//!
//! - [`serve`]: the server.
//! - [`client`]: a client on a core of its own; [`commands`]: `put`, `get`, `del`, `keys` and `stat`;
//!   [`many`]: `mget` and `mput`; [`watch`]: `watch`.
//! - [`bench`](mod@bench): the benchmark.
//! - [`stat`]: the printed statistics of a server.

pub mod bench;
pub mod client;
pub mod commands;
pub mod many;
pub mod serve;
pub mod stat;
pub mod watch;
