//! What holds for every byte string: a decoder refuses it or reproduces it, and a machine keeps its
//! promises whatever it is told.
//!
//! A [`Target`] is a function of bytes that panics when something does not hold. Four drivers call
//! the same functions: `tests/codecs.rs` with messages made valid on purpose, `tests/fuzz.rs` with the
//! committed corpus, `examples/fuzz.rs` with seeded mutations of it for as long as it is told, and the
//! crate in `fuzz/` with what libFuzzer finds worth trying.
//!
//! - `beside`: a provider that is attacked, and the connection of somebody else.
//! - [`bound`]: what a decoder may allocate.
//! - [`corpus`]: the committed inputs.
//! - [`mutate`]: new inputs from known ones.
//! - `octets`: messages built by hand, for want of an encoder that is not under test.

use std::{fmt, panic};

use crate::world::choices::Choices;

mod beside;
pub mod bound;
mod chunk;
pub mod corpus;
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

/// One thing to try bytes on.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Names it on the command line, and its directory of the corpus.
    pub name: &'static str,
    /// What the bytes are to it.
    pub kind: Kind,
    /// The directories of `proto/vectors` whose messages it understands.
    pub vectors: &'static [&'static str],
}

/// What bytes are to a target.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A message to decode.
    Codec(Codec),
    /// The choices of a schedule: what arrives, and what else happens in between.
    Machine(fn(&[u8])),
}

/// A decoder and its encoder.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// Makes a message the decoder has to accept, in the one form the encoder writes.
    pub valid: fn(&mut Choices) -> Vec<u8>,
    /// Decodes, looks at everything there is, and encodes again; `None` means refused.
    pub again: fn(&[u8]) -> Option<Vec<u8>>,
}

/// Every target.
pub const TARGETS: [Target; 21] = [
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
    Target { name: "mpa_handshake", kind: Kind::Machine(iwarp::handshake::run), vectors: &[] },
    Target { name: "nfs", kind: Kind::Machine(nfs::run), vectors: &[] },
    Target { name: "mount", kind: Kind::Machine(mount::run), vectors: &[] },
    Target { name: "kv", kind: Kind::Machine(kv::run), vectors: &[] },
    Target { name: "state_files", kind: Kind::Machine(state::run), vectors: &[] },
    Target { name: "http", kind: Kind::Machine(http::run), vectors: &[] },
    Target { name: "shm_hello", kind: Kind::Machine(shm::hello::run), vectors: &[] },
    Target { name: "shm_ring", kind: Kind::Machine(shm::ring::run), vectors: &[] },
    Target { name: "iwarp_provider", kind: Kind::Machine(iwarp::provider::run), vectors: &[] },
];

/// Returns the target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// An input for which something does not hold. The panic itself has said what; this says it as a
/// command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of what.
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
    /// If what must hold for every byte string does not hold for these.
    pub fn run(&self, data: &[u8]) {
        match self.kind {
            Kind::Codec(codec) => codec.run(data),
            Kind::Machine(run) => run(data),
        }
    }

    /// Tries `data`, and keeps it should something not hold.
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
        // A decoder is not asked to judge padding, and version 1 takes any word but zero for "one
        // more": there the canonical octets stand instead.
        let canonical = |(written, read): (&u8, &u8)| written == read || *written <= 1;
        assert!(again.iter().zip(data).all(canonical), "and says the same");
        assert_eq!((self.again)(&again).as_ref(), Some(&again), "and is written that way for good");
    }
}

/// The driver that takes an input as an argument.
const REPEAT: &str = "cargo run --profile fuzz -p haulage-tests --example fuzz --";
