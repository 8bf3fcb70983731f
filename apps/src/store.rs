//! Storage, as commands: the framework itself is the crate `haulage_store`.
//!
//! - [`serve`]: the command that serves.
//! - [`session`]: a client's connection; [`commands`]: `ls`, `stat`, `df`, `get` and `put`; [`show`]:
//!   how they print what they are told.

pub mod commands;
mod export;
mod secrets;
pub mod serve;
pub mod session;
pub mod show;
