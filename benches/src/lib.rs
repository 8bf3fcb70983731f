//! Benches of Haulage's own code, without a network: wire formats, memory, rings, and a Call through two whole cores.
//!
//! The crate is its benches, run with `cargo bench -p haulage-benches`; each module says what it measures. The numbers
//! compare two versions on one machine, not two machines. `haulage demo` measures over a real transport.
#![forbid(unsafe_code)]

mod streams;
mod world;

pub use streams::StreamWorld;
pub use world::{Asked, Keeper, Kind, Part, Speech, World, loopback, memory, shm_part};
