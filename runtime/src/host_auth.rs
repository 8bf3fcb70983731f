//! Host authentication with public keys: both ends prove with Ed25519 that they hold a known key.
//!
//! The draft defines how host authentication travels, but not the protocol itself (E11). This is our own protocol; no
//! other implementation speaks it.
//!
//! # Normal operation
//! ```text
//! client                                         server
//!   CONNPROP_MIDDLE  nonce, key             -->
//!                <--  CONNPROP_MIDDLE  nonce, key, signature
//!   CONNPROP_FINAL   signature              -->
//!                <--  CONNPROP_FINAL   signature
//! ```
//! Each signature covers the transcript of everything that both ends said before it: the protocol version, the private
//! data of both ends, every property of every CONNPROP message in order and whether the message was a FINAL, and every
//! host authentication message before it. An end with more to say sends further MIDDLEs between; the signatures of the
//! FINALs cover them too.
//!
//! Each connection is given an authenticator of its own before it is established:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use haulage::host_auth::{HostKeys, KeyAuthenticator, KnownPeers, Policy, SecretKey};
//! use haulage::proto::v2::connection::Connection;
//!
//! # type Error = Box<dyn std::error::Error>;
//! fn read_keys() -> Result<Arc<HostKeys>, Error> {
//!     let secret = SecretKey::read(Path::new("host.key"))?;
//!     println!("others know us by {}", secret.public());
//!     Ok(Arc::new(HostKeys { secret, known: KnownPeers::read(Path::new("peers"))? }))
//! }
//!
//! fn prepare(connection: &mut Connection, keys: &Arc<HostKeys>) -> Result<(), Error> {
//!     let authenticator = KeyAuthenticator::new(Arc::clone(keys))?;
//!     connection.authenticate(Policy::Required, Box::new(authenticator), b"", b"");
//!     Ok(())
//! }
//! ```
//!
//! # What it guarantees
//! When [`Authenticator::peer`] returns a key, the holder of its secret took part in this very connection setup, and
//! both ends saw the same version, private data and properties. A replayed handshake, our own messages sent back, and
//! any change to what the transcript covers end in a [`Refused`] at one end at least, and with it the connection. So
//! does a peer whose key is not known. (P9)
//!
//! # What it does not guarantee
//! - An attacker between the ends who passes every octet on unchanged is not noticed: nothing ties the handshake to the
//!   hardware path that it took.
//! - Nothing after the handshake is protected. There is no session key: an attacker who can change packets on the
//!   network can change RPC messages and the data that RDMA moves. Protection takes IPsec, MACsec or a private network.
//! - Nothing is secret: nonces, keys and signatures travel in the clear, so an observer learns which hosts talk.
//! - With [`Policy::Optional`] at both ends, an attacker who can change messages can remove host authentication from
//!   them.
//!
//! # Limits
//! A message has at most [`MESSAGE_MAX`] octets, and each kind has one exact length. Both ends keep a running hash, not
//! the transcript.
//!
//! Nothing is compared that an attacker does not already know, so no comparison here needs to take
//! constant time; signing does, in the library that signs.

use std::fmt;
use std::sync::Arc;

use haulage_proto::v2::connection::Role;
use haulage_proto::v2::host_auth::{Authenticator, Progress, Refused};
use haulage_proto::v2::properties::ConnPropKind;

pub use haulage_proto::v2::host_auth::Policy;
pub use keys::{HostKeys, KeyFault, KnownPeers, PublicKey, SecretKey};
pub use message::MESSAGE_MAX;
pub use nonce::NoEntropy;

use message::{Kind, Message};
use nonce::Nonce;
use transcript::Transcript;

mod keys;
mod message;
mod nonce;
mod transcript;

/// One end's part in the authentication of one connection.
pub struct KeyAuthenticator {
    keys: Arc<HostKeys>,
    nonce: Nonce,
    role: Role,
    transcript: Transcript,
    /// Whether the last CONNPROP message is a FINAL.
    last: bool,
    /// The key that the peer claims.
    peer: Option<PublicKey>,
    state: AuthState,
}

/// The next step. Both ends agree on it at every moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthState {
    /// This message is due.
    Due(Kind),
    /// Both ends have proved who they are.
    Finished,
    /// The authentication failed for this reason.
    Failed(Refused),
}

impl KeyAuthenticator {
    /// Makes the authenticator of one connection, which must not be used for another.
    pub fn new(keys: Arc<HostKeys>) -> Result<Self, NoEntropy> {
        Ok(Self::with_nonce(keys, Nonce::fresh()?))
    }

    fn with_nonce(keys: Arc<HostKeys>, nonce: Nonce) -> Self {
        Self {
            keys,
            nonce,
            role: Role::Client,
            transcript: Transcript::new(),
            last: false,
            peer: None,
            state: AuthState::Due(Kind::ClientHello),
        }
    }

    fn produce(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        if let Some(kind) = self.falls_to(self.role)? {
            let start = out.len();
            Message::begin(kind, &self.nonce, &self.keys.secret.public(), out);
            if kind.is_signed() {
                let said = out.get(start..).unwrap_or_default();
                let signature = self.keys.secret.sign(&self.transcript.statement(kind, said));
                out.extend_from_slice(&signature);
            }
            self.pass(kind, out.get(start..).unwrap_or_default());
        }
        Ok(self.progress())
    }

    fn consume(&mut self, octets: &[u8]) -> Result<Progress, Refused> {
        let Some(kind) = self.falls_to(other(self.role))? else {
            return if octets.is_empty() { Ok(self.progress()) } else { Err(Refused::Malformed) };
        };
        let message = Message::decode(kind, octets)?;
        if let Some((nonce, key)) = message.identity {
            if nonce == self.nonce.octets() {
                return Err(Refused::Reflected);
            }
            self.peer = Some(self.keys.known.get(key).ok_or(Refused::UnknownPeer)?);
        }
        if let Some(signature) = message.signature {
            let peer = self.peer.ok_or(Refused::Unfinished)?;
            if !peer.verifies(&self.transcript.statement(kind, message.said), signature) {
                return Err(Refused::WrongProof);
            }
        }
        self.pass(kind, octets);
        Ok(self.progress())
    }

    /// Returns the kind of the host authentication message that belongs into the last CONNPROP message, if one does.
    /// `author` sent that message.
    fn falls_to(&self, author: Role) -> Result<Option<Kind>, Refused> {
        let kind = match self.state {
            AuthState::Due(kind) => kind,
            AuthState::Finished => return Ok(None),
            AuthState::Failed(refused) => return Err(refused),
        };
        if kind.author() == author && kind.is_final() == self.last {
            return Ok(Some(kind));
        }
        // An end that sends a FINAL must have nothing left to wait for, and no hello travels in a FINAL.
        if self.last { Err(Refused::Unfinished) } else { Ok(None) }
    }

    /// Moves on after a message that was sent or accepted.
    fn pass(&mut self, kind: Kind, octets: &[u8]) {
        self.transcript.said(kind, octets);
        self.state = kind.next().map_or(AuthState::Finished, AuthState::Due);
    }

    fn progress(&self) -> Progress {
        match (self.state, self.role) {
            (AuthState::Due(Kind::ClientHello | Kind::ServerHello), _)
            | (AuthState::Due(Kind::ClientProof), Role::Server)
            | (AuthState::Failed(_), _) => Progress::More,
            _ => Progress::Done,
        }
    }

    /// Remembers a refusal: there is no second attempt.
    fn settle(&mut self, result: Result<Progress, Refused>) -> Result<Progress, Refused> {
        if let Err(refused) = result {
            self.state = AuthState::Failed(refused);
        }
        result
    }
}

// [V2-11.1.1-1] both ends of a connection are authenticated cryptographically.
impl Authenticator for KeyAuthenticator {
    fn bind(&mut self, role: Role, version: u32, client: &[u8], server: &[u8]) {
        self.role = role;
        self.transcript.bind(version, client, server);
    }

    fn hear(&mut self, from: Role, kind: ConnPropKind, properties: &[u8]) {
        self.last = kind == ConnPropKind::Final;
        self.transcript.heard(from, kind, properties);
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        let result = self.produce(out);
        self.settle(result)
    }

    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused> {
        let result = self.consume(octets);
        self.settle(result)
    }

    fn peer(&self) -> Option<&[u8]> {
        let peer = self.peer.as_ref().filter(|_| self.state == AuthState::Finished);
        peer.map(|key| key.octets().as_slice())
    }
}

impl fmt::Debug for KeyAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("KeyAuthenticator");
        s.field("role", &self.role).field("peer", &self.peer).field("state", &self.state);
        s.finish_non_exhaustive()
    }
}

const fn other(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

#[cfg(test)]
mod tests;
