//! Code that the tests of all crates share: a random number generator, a reader of hexadecimal digits, and servers as
//! processes.
//!
//! The crate depends on no other, so that the tests inside any crate can use it.

pub mod hex;
mod rng;
mod started;

pub use rng::Rng;
pub use started::Started;
