//! Code that the tests of all crates share: a random number generator, and a reader of hexadecimal digits.
//!
//! The crate depends on no other, so that the tests inside any crate can use it.

pub mod hex;
mod rng;

pub use rng::Rng;
