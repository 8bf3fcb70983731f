//! The keys of a host: its own, and those of the hosts that it knows, which may change while it runs.

use std::fmt;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use haulage_proto::v2::host_auth::Authenticator;

use super::authenticator::KeyAuthenticator;
use super::keys::{KnownHosts, PublicKey, SecretKey};
use super::nonce::NoEntropy;
use crate::hosts::Hosts;

/// A lock that is held for a moment, twice for each connection.
#[expect(clippy::disallowed_types, reason = "it is no part of the data path")]
type Lock<T> = std::sync::Mutex<T>;

/// The secret key of this host, and the hosts that it accepts as peers.
pub struct HostKeys {
    secret: Arc<SecretKey>,
    known: Lock<Arc<KnownHosts>>,
    meet: Option<Box<Meet>>,
}

/// Takes in the key of a host that is met for the first time, and returns its name.
type Meet = dyn Fn(&PublicKey) -> String + Send + Sync;

impl HostKeys {
    /// Makes the keys of a host. Its own key is not among the known ones unless it was put there.
    pub fn new(secret: SecretKey, known: KnownHosts) -> Self {
        Self { secret: Arc::new(secret), known: Lock::new(Arc::new(known)), meet: None }
    }

    /// While no host is known, accepts the first one that proves to have a key, whichever it is. `meet` is called with the key,
    /// on the core's thread, and returns the name by which the host is known from then on.
    #[must_use]
    pub fn meeting(self, meet: impl Fn(&PublicKey) -> String + Send + Sync + 'static) -> Self {
        Self { meet: Some(Box::new(meet)), ..self }
    }

    /// Replaces the known hosts. Connections that are there keep their hosts until they are judged again
    /// ([`Group::judge_hosts`](crate::cores::group::Group::judge_hosts)).
    pub fn replace(&self, known: KnownHosts) {
        *self.lock() = Arc::new(known);
    }

    /// Returns the key by which other hosts know this one.
    pub fn public(&self) -> PublicKey {
        self.secret.public()
    }

    /// Makes the authenticator of one connection, which must not be used for another.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn authenticator(&self) -> Result<KeyAuthenticator, NoEntropy> {
        let known = Arc::clone(&self.lock());
        let accepted = Some(known).filter(|known| self.meet.is_none() || !known.is_empty());
        KeyAuthenticator::new(Arc::clone(&self.secret), accepted)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<KnownHosts>> {
        // What is in it is replaced whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts for HostKeys {
    fn authenticator(&self) -> io::Result<Box<dyn Authenticator>> {
        Ok(Box::new(Self::authenticator(self).map_err(io::Error::other)?))
    }

    fn name(&self, identity: &[u8]) -> Option<Arc<str>> {
        let mut known = self.lock();
        if let Some(meet) = &self.meet
            && known.is_empty()
            && let Ok(octets) = identity.try_into()
            && let Some(key) = PublicKey::from_octets(octets)
        {
            let mut met = KnownHosts::default();
            met.add(&meet(&key), key);
            *known = Arc::new(met);
        }
        known.name(identity)
    }

    fn show(&self, identity: &[u8]) -> String {
        hex::encode(identity)
    }
}

impl fmt::Debug for HostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut s = f.debug_struct("HostKeys");
        s.field("secret", &self.secret).field("known", &self.known).finish_non_exhaustive()
    }
}
