//! What was said, as one running hash.
//!
//! Every entry begins with a letter of its own and says how long its parts are, so that no two
//! histories of a connection are hashed from the same octets.

use haulage_proto::v2::connection::Role;
use sha2::{Digest as _, Sha256};

use super::message::Kind;

/// Everything both ends said up to now.
#[derive(Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new() -> Self {
        Self(Sha256::new_with_prefix(PURPOSE))
    }

    /// Enters what was agreed before the first message.
    pub(super) fn bind(&mut self, version: u32, client: &[u8], server: &[u8]) {
        self.0.update(b"B");
        self.0.update(version.to_be_bytes());
        self.put(client);
        self.put(server);
    }

    /// Enters the properties of a CONNPROP message.
    pub(super) fn heard(&mut self, from: Role, last: bool, properties: &[u8]) {
        self.0.update([b'P', letter(from), u8::from(last)]);
        self.put(properties);
    }

    /// Enters a host authentication message.
    pub(super) fn said(&mut self, kind: Kind, octets: &[u8]) {
        self.0.update([b'A', letter(kind.author())]);
        self.put(octets);
    }

    /// Returns what the author of `kind` signs: that it said `said` after all that was entered.
    pub(super) fn statement(&self, kind: Kind, said: &[u8]) -> Vec<u8> {
        let mut all = self.clone();
        all.said(kind, said);
        [PURPOSE, &kind.tag(), &all.0.finalize()].concat()
    }

    fn put(&mut self, octets: &[u8]) {
        self.0.update((octets.len() as u64).to_be_bytes());
        self.0.update(octets);
    }
}

const fn letter(role: Role) -> u8 {
    match role {
        Role::Client => b'C',
        Role::Server => b'S',
    }
}

/// Keeps signatures made for this from meaning anything elsewhere.
const PURPOSE: &[u8] = b"Haulage RPC-over-RDMA host authentication\0";
