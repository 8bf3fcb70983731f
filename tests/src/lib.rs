//! Tests across crates, and what they share.
//!
//! - [`rng`]: the seeded generator every randomised test draws from.
//! - [`source`]: the workspace's files, with comments and literals told apart from code.
//! - [`tidy`]: the rules of the house that no compiler checks.
#![forbid(unsafe_code)]

pub mod rng;
pub mod source;
pub mod tidy;
