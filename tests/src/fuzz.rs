//! Properties that hold for every byte string: a decoder refuses it or reproduces it, and a state machine keeps its
//! invariants whatever its inputs.
//!
//! A [`Target`] is a function of bytes that panics when a property does not hold. Four drivers call the same functions:
//! `tests/codecs.rs` with messages that are valid by construction, `tests/fuzz.rs` with the committed corpus,
//! `examples/fuzz.rs` with seeded mutations of the corpus, and the crate in `tests/fuzz` with inputs from libFuzzer.
//!
//! - `beside`: a provider under attack, and an honest connection beside the attacker's.
//! - [`bound`]: limits on the allocations of a decoder.
//! - [`corpus`]: the committed inputs.
//! - [`mutate`]: new inputs from known ones.
//! - `octets`: messages built by hand, independent of the encoders under test.

use std::{fmt, panic};

use crate::world::choices::Choices;

mod beside;
pub mod bound;
mod capture;
mod chunk;
pub mod corpus;
mod hosts;
mod http;
mod iwarp;
mod kv;
mod mount;
pub mod mutate;
mod nfs;
mod octets;
mod rpc;
mod rtrext;
mod shm;
mod state;
mod v1;
mod v2;

/// A function to run on byte strings.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and of the directory in the corpus.
    pub name: &'static str,
    /// The meaning of the bytes.
    pub kind: Kind,
    /// The directories of `proto/vectors` with messages that the target decodes.
    pub vectors: &'static [&'static str],
}

/// The meaning of the bytes to a target.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A message to decode.
    Codec(Codec),
    /// The choices of a schedule: the messages that arrive, and the events between them.
    Machine(fn(&[u8])),
}

/// A decoder and its encoder.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// Builds a message that the decoder has to accept, in the form that the encoder writes.
    pub valid: fn(&mut Choices) -> Vec<u8>,
    /// Decodes, looks at every part, and encodes again. Returns `None` if the decoder refuses.
    pub again: fn(&[u8]) -> Option<Vec<u8>>,
}

/// Every target.
pub const TARGETS: [Target; 24] = [
    Target { name: "v2_message", kind: Kind::Codec(v2::MESSAGE), vectors: &["v2"] },
    Target { name: "v2_connection", kind: Kind::Machine(v2::connection::run), vectors: &[] },
    Target { name: "v1_message", kind: Kind::Codec(v1::MESSAGE), vectors: &["v1"] },
    Target { name: "v1_connection", kind: Kind::Machine(v1::connection::run), vectors: &[] },
    Target { name: "private_data", kind: Kind::Codec(v1::PRIVATE_DATA), vectors: &["v1"] },
    Target { name: "rtrext_message", kind: Kind::Codec(rtrext::MESSAGE), vectors: &["rtrext"] },
    Target { name: "rtrext_group", kind: Kind::Machine(rtrext::group::run), vectors: &[] },
    Target { name: "chunk_restore", kind: Kind::Machine(chunk::restore::run), vectors: &[] },
    Target { name: "payload_reader", kind: Kind::Machine(chunk::payload_reader), vectors: &[] },
    Target { name: "rpc", kind: Kind::Codec(rpc::HEADER), vectors: &["rpc"] },
    Target { name: "iwarp_header", kind: Kind::Codec(iwarp::HEADER), vectors: &[] },
    Target { name: "iwarp_receive", kind: Kind::Machine(iwarp::receive::run), vectors: &[] },
    Target { name: "iwarp_observe", kind: Kind::Machine(iwarp::observe::run), vectors: &[] },
    Target { name: "capture", kind: Kind::Machine(capture::run), vectors: &[] },
    Target { name: "mpa_handshake", kind: Kind::Machine(iwarp::handshake::run), vectors: &[] },
    Target { name: "nfs", kind: Kind::Machine(nfs::run), vectors: &[] },
    Target { name: "mount", kind: Kind::Machine(mount::run), vectors: &[] },
    Target { name: "kv", kind: Kind::Machine(kv::run), vectors: &[] },
    Target { name: "state_files", kind: Kind::Machine(state::run), vectors: &[] },
    Target { name: "host_auth", kind: Kind::Machine(hosts::run), vectors: &[] },
    Target { name: "http", kind: Kind::Machine(http::run), vectors: &[] },
    Target { name: "shm_hello", kind: Kind::Machine(shm::hello::run), vectors: &[] },
    Target { name: "shm_ring", kind: Kind::Machine(shm::ring::run), vectors: &[] },
    Target { name: "iwarp_provider", kind: Kind::Machine(iwarp::provider::run), vectors: &[] },
];

/// Returns the target with a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// An input for which a property does not hold. The panic has named the property; the display form is a command that
/// repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the target.
    pub target: &'static str,
    /// The input.
    pub data: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{0} fails, as it does again with `{REPEAT} {0} --input ", self.target)?;
        self.data.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
        f.write_str("`")
    }
}

impl std::error::Error for Failure {}

impl Target {
    /// Tries `data`.
    ///
    /// # Panics
    /// If a property does not hold for `data`.
    pub fn run(&self, data: &[u8]) {
        match self.kind {
            Kind::Codec(codec) => codec.run(data),
            Kind::Machine(run) => run(data),
        }
    }

    /// Tries `data`, and returns it if a property does not hold.
    ///
    /// # Errors
    /// Returns the input that failed.
    pub fn attempt(&self, data: &[u8]) -> Result<(), Failure> {
        let outcome = panic::catch_unwind(|| self.run(data));
        outcome.map_err(|_| Failure { target: self.name, data: data.to_vec() })
    }
}

impl Codec {
    fn run(&self, data: &[u8]) {
        let Some(again) = (self.again)(data) else { return };
        assert_eq!(
            again.len(),
            data.len(),
            "what was accepted is as long when it is written again"
        );
        // A decoder does not check padding, and version 1 takes any word but zero for "one more": the encoder writes
        // the canonical octets there.
        let canonical = |(written, read): (&u8, &u8)| written == read || *written <= 1;
        assert!(again.iter().zip(data).all(canonical), "and says the same");
        assert_eq!((self.again)(&again).as_ref(), Some(&again), "and is written that way for good");
    }
}

/// The driver that takes an input as an argument.
const REPEAT: &str = "cargo run --profile fuzz -p haulage-tests --example fuzz --";
