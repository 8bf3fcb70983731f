//! One end's part in the authentication of one connection.

use std::fmt;
use std::sync::Arc;

use haulage_proto::v2::connection::Role;
use haulage_proto::v2::host_auth::{Authenticator, Progress, Refused};
use haulage_proto::v2::properties::ConnPropKind;

use super::keys::{KnownHosts, PublicKey, SecretKey};
use super::message::{Kind, Message};
use super::nonce::{NoEntropy, Nonce};
use super::transcript::Transcript;

/// One end's part in the authentication of one connection.
pub struct KeyAuthenticator {
    secret: Arc<SecretKey>,
    /// The hosts that are accepted; `None` if any is.
    accepted: Option<Arc<KnownHosts>>,
    nonce: Nonce,
    role: Role,
    transcript: Transcript,
    /// Whether the last CONNPROP message is a FINAL.
    last: bool,
    /// The octets of the key that the peer claims, whatever they are.
    claimed: Option<[u8; PublicKey::LEN]>,
    /// The key that the peer claims, if it is accepted.
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
    /// Makes the authenticator of one connection, which must not be used for another, of the host that has a secret key. It
    /// accepts the known hosts, or any host if there are none given.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new(
        secret: Arc<SecretKey>,
        accepted: Option<Arc<KnownHosts>>,
    ) -> Result<Self, NoEntropy> {
        Ok(Self::with_nonce(secret, accepted, Nonce::fresh()?))
    }

    fn with_nonce(secret: Arc<SecretKey>, accepted: Option<Arc<KnownHosts>>, nonce: Nonce) -> Self {
        Self {
            secret,
            accepted,
            nonce,
            role: Role::Client,
            transcript: Transcript::new(),
            last: false,
            claimed: None,
            peer: None,
            state: AuthState::Due(Kind::ClientHello),
        }
    }

    fn produce(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        if let Some(kind) = self.falls_to(self.role)? {
            let start = out.len();
            Message::begin(kind, &self.nonce, &self.secret.public(), out);
            if kind.is_signed() {
                let said = out.get(start..).unwrap_or_default();
                let signature = self.secret.sign(&self.transcript.statement(kind, said));
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
            self.claimed = Some(*key);
            let found = match &self.accepted {
                Some(known) => known.get(key),
                None => PublicKey::from_octets(key),
            };
            self.peer = Some(found.ok_or(Refused::UnknownPeer)?);
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

    fn claimed(&self) -> Option<&[u8]> {
        self.claimed.as_ref().map(<[u8; PublicKey::LEN]>::as_slice)
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
