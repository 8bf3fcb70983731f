//! What the tests of all crates share: one generator of chance, and one reader of hexadecimal digits.
//!
//! Depends on no other crate, so that the tests inside any crate can use it.

pub mod hex;
mod rng;

pub use rng::Rng;
