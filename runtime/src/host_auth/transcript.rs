//! The transcript of a connection's setup, as one running hash.
//!
//! Every entry begins with a letter of its own and says how long its parts are, so that no two
//! histories of a connection are hashed from the same octets.

use haulage_proto::v2::connection::Role;
use haulage_proto::v2::properties::ConnPropKind;
use sha2::{Digest as _, Sha256};

use super::message::Kind;

/// The hash of everything that both ends have said.
#[derive(Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new() -> Self {
        Self(Sha256::new_with_prefix(PURPOSE))
    }

    /// Enters the version and the private data, which are agreed before the first message.
    pub(super) fn bind(&mut self, version: u32, client: &[u8], server: &[u8]) {
        self.0.update(b"B");
        self.0.update(version.to_be_bytes());
        self.put(client);
        self.put(server);
    }

    /// Enters the properties of a CONNPROP message.
    pub(super) fn heard(&mut self, from: Role, kind: ConnPropKind, properties: &[u8]) {
        self.0.update([b'P', letter(from), u8::from(kind == ConnPropKind::Final)]);
        self.put(properties);
    }

    /// Enters a host authentication message.
    pub(super) fn said(&mut self, kind: Kind, octets: &[u8]) {
        self.0.update([b'A', letter(kind.author())]);
        self.put(octets);
    }

    /// Returns the octets that the author of `kind` signs: they stand for the transcript so far, followed by `said`.
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

/// A prefix that keeps these signatures from being valid for any other purpose.
const PURPOSE: &[u8] = b"Haulage RPC-over-RDMA host authentication\0";

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Role = Role::Client;
    const SERVER: Role = Role::Server;
    const MIDDLE: ConnPropKind = ConnPropKind::Middle;
    const FINAL: ConnPropKind = ConnPropKind::Final;

    fn statement(enter: impl FnOnce(&mut Transcript), kind: Kind, said: &[u8]) -> Vec<u8> {
        let mut transcript = Transcript::new();
        enter(&mut transcript);
        transcript.statement(kind, said)
    }

    #[test]
    fn no_two_histories_make_one_statement() {
        let histories: [fn(&mut Transcript); 18] = [
            |_| {},
            |t| t.bind(1, b"ab", b"cd"),
            |t| t.bind(2, b"ab", b"cd"),
            |t| t.bind(2, b"a", b"bcd"),
            |t| t.bind(2, b"ab", b""),
            |t| t.bind(2, b"", b"ab"),
            |t| t.heard(CLIENT, MIDDLE, b"ab"),
            |t| t.heard(CLIENT, FINAL, b"ab"),
            |t| t.heard(SERVER, MIDDLE, b"ab"),
            |t| t.heard(CLIENT, MIDDLE, b"ac"),
            |t| t.heard(CLIENT, MIDDLE, b""),
            |t| [b"a", b"b"].into_iter().for_each(|p| t.heard(CLIENT, MIDDLE, p)),
            |t| t.said(Kind::ClientHello, b"ab"),
            |t| t.said(Kind::ServerHello, b"ab"),
            |t| t.said(Kind::ClientHello, b"ac"),
            |t| t.said(Kind::ClientHello, b""),
            |t| (0..2).for_each(|_| t.said(Kind::ClientHello, b"")),
            |t| [b"a", b"b"].into_iter().for_each(|p| t.said(Kind::ClientHello, p)),
        ];
        let statements: Vec<_> =
            histories.iter().map(|enter| statement(enter, Kind::ClientProof, b"x")).collect();
        for (at, one) in statements.iter().enumerate() {
            assert_eq!(statements.iter().position(|other| other == one), Some(at));
        }
    }

    #[test]
    fn a_statement_is_of_one_message_and_its_beginning() {
        let made = |kind, said| statement(|_| {}, kind, said);
        let one = made(Kind::ClientProof, b"a");
        assert_ne!(one, made(Kind::ClientProof, b"b"));
        // The tag stands beside the hash, too: the same history makes another statement for another message.
        let tag = PURPOSE.len()..PURPOSE.len() + 4;
        assert_eq!(one[tag.clone()], Kind::ClientProof.tag());
        assert_eq!(made(Kind::ServerProof, b"a")[tag], Kind::ServerProof.tag());
        assert!(one.starts_with(PURPOSE));
    }
}
