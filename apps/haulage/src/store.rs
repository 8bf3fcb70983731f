//! The `haulage store` commands, built on the crate `haulage_store`.
//!
//! - [`serve`]: the server command.
//! - [`session`]: a client's connection; [`commands`]: `ls`, `stat`, `df`, `get` and `put`; [`show`]: their output.

pub mod commands;
pub(crate) mod export;
mod secrets;
pub mod serve;
pub mod session;
pub mod show;
mod statuses;
