//! Two ends of each connection that exchange random RPCs in a world where everything may be late.
//!
//! - [`choices`]: every decision, from a seed or a fuzzer.
//! - [`memory`]: blocks that are read only while nobody else may touch them.
//! - [`fabric`]: queue pairs whose every step is chosen.

pub mod choices;
pub mod fabric;
pub mod memory;
