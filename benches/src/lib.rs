//! How long Haulage's own code takes, without a network: wire formats, memory, rings, and a Call through
//! two whole cores.
//!
//! The crate is its benches, run with `cargo bench -p haulage-benches`; each of them says what it
//! measures. The numbers are for comparing two versions on one machine, not machines. Numbers over
//! a real transport are `haulage demo`'s.
#![forbid(unsafe_code)]

mod world;

pub use world::{Keeper, Kind, Part, Speech, World, loopback, memory, shm_part};
