//! Code that the tests of all crates share: a random number generator, a reader of hexadecimal digits, servers as
//! processes, namespaces with an rpcbind, and captures.
//!
//! The crate depends on no other, so that the tests inside any crate can use it.

pub mod capture;
pub mod hex;
pub mod namespaces;
mod rng;
mod started;

pub use rng::Rng;
pub use started::Started;
