//! The storage server, as commands: the framework itself is the crate `haulage_store`.
//!
//! - [`serve`]: the command that serves.

mod secrets;
pub mod serve;
