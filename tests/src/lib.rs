//! Tests across crates, and the code they share.
//!
//! - [`bed`]: two providers, stepped by hand, in virtual or real time.
//! - [`callback`]: the callback program of NFS version 4.1, for a client that holds delegations.
//! - [`contract`]: the contract of `Provider`, one check per line, for any provider.
//! - [`cores`]: cores that make Calls to each other, in steps chosen by a seed.
//! - [`ends`]: cores over iWARP for tests that act as the other end.
//! - [`fuzz`]: properties of decoders and state machines that hold for every byte string.
//! - [`link`]: one iWARP connection to any peer, for the programs of the lab.
//! - [`mutation`]: markers in the code that break one sentence of a specification each.
//! - [`network`]: the networks of the providers under test.
//! - [`pattern`]: octets that show when one is out of place.
//! - [`source`]: the workspace's files, with comments and literals told apart from code.
//! - [`tidy`]: rules of this project that no compiler checks.
//! - [`world`]: connections that exchange random RPCs, in steps chosen by a seed.
#![forbid(unsafe_code)]

pub mod bed;
pub mod by_number;
pub mod callback;
pub mod contract;
pub mod cores;
pub mod ends;
pub mod fuzz;
pub mod link;
pub mod mutation;
pub mod network;
pub mod pattern;
pub mod source;
pub mod tidy;
pub mod world;

pub use haulage::provider::sim::Rng;
