//! Hosts of a world that prove which they are: by their names, under a digest of what both ends said.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};

use haulage::core::Cx;
use haulage::hosts::{Authenticator, HostAuth, Hosts, Policy, Progress, Refused};
use haulage::service::{ConnectionId, Role};
use haulage_proto::time::Instant;
use haulage_proto::v2::properties::ConnPropKind;

/// A lock, because what the cores of a server share has to be fit for threads.
#[expect(clippy::disallowed_types, reason = "a world has one thread")]
type Lock<T> = std::sync::Mutex<T>;

/// The hosts that a node knows, by their names.
#[derive(Debug)]
pub struct Roster {
    /// The name that the node shows.
    own: String,
    /// The names that it accepts.
    known: Lock<Vec<String>>,
    /// Whether each peer has to prove which host it is.
    policy: Policy,
}

/// A client that a server does not know for a while.
#[derive(Clone, Copy, Debug)]
pub struct Forgotten {
    /// The number of the client.
    pub client: usize,
    /// When the server knows it again.
    pub until: Instant,
}

impl Roster {
    /// Makes the roster of a node that shows the name `own` and knows those in `known`.
    pub fn new(own: String, known: Vec<String>, policy: Policy) -> Arc<Self> {
        Arc::new(Self { own, known: Lock::new(known), policy })
    }

    /// Returns the policy of the node.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the host authentication of the node.
    pub fn auth(self: &Arc<Self>) -> HostAuth {
        HostAuth { policy: self.policy, hosts: Arc::clone(self) as _ }
    }

    /// Does not know a host any more.
    pub fn forget(&self, name: &str) {
        self.known().retain(|known| known != name);
    }

    /// Knows a host again.
    pub fn remember(&self, name: String) {
        self.known().push(name);
    }

    /// Returns whether a host is known.
    pub fn knows(&self, name: &str) -> bool {
        self.known().iter().any(|known| known == name)
    }

    /// Checks the host of a connection on which a Call arrived. Returns whether it has proved which it is.
    pub fn check(&self, cx: &Cx<'_>, connection: ConnectionId) -> bool {
        let address = cx.peer(connection).expect("a Call has a connection").ip();
        let host = cx.host(connection);
        assert!(host.is_some() || !self.policy.requires(), "a Call came before a proof");
        assert!(host.is_none_or(|host| host == name_of(address)), "{host:?} is not at {address}");
        host.is_some()
    }

    fn known(&self) -> MutexGuard<'_, Vec<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the host at an address.
pub fn name_of(address: IpAddr) -> String {
    format!("the host at {address}")
}

impl Hosts for Roster {
    fn authenticator(&self) -> io::Result<Box<dyn Authenticator>> {
        let (own, known) = (self.own.clone(), self.known().clone());
        Ok(Box::new(Named { own, known, said: Vec::new(), peer: None }))
    }

    fn name(&self, identity: &[u8]) -> Option<Arc<str>> {
        let known = self.known();
        known.iter().find(|name| name.as_bytes() == identity).map(|name| name.as_str().into())
    }

    fn show(&self, identity: &[u8]) -> String {
        String::from_utf8_lossy(identity).into_owned()
    }
}

/// One end's part on one connection. Each message has a digest of all that was said before, and its sender's name.
#[derive(Debug)]
struct Named {
    own: String,
    known: Vec<String>,
    /// What both ends have said.
    said: Vec<u8>,
    peer: Option<Vec<u8>>,
}

impl Named {
    fn digest(&self) -> [u8; 8] {
        let fnv = |sum: u64, octet: &u8| (sum ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        self.said.iter().fold(0xcbf2_9ce4_8422_2325, fnv).to_be_bytes()
    }
}

impl Authenticator for Named {
    fn bind(&mut self, _: Role, version: u32, client: &[u8], server: &[u8]) {
        self.said.extend(version.to_be_bytes());
        self.said.extend([client, b"|", server].concat());
    }

    fn hear(&mut self, _: Role, kind: ConnPropKind, properties: &[u8]) {
        self.said.push(u8::from(kind == ConnPropKind::Final));
        self.said.extend(properties);
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused> {
        let mut message = self.digest().to_vec();
        message.extend(self.own.bytes());
        self.said.extend(&message);
        out.append(&mut message);
        Ok(if self.peer.is_some() { Progress::Done } else { Progress::More })
    }

    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused> {
        let (digest, name) = octets.split_first_chunk().ok_or(Refused::Malformed)?;
        if *digest != self.digest() {
            return Err(Refused::WrongProof);
        }
        if !self.known.iter().any(|known| known.as_bytes() == name) {
            return Err(Refused::UnknownPeer);
        }
        self.said.extend(octets);
        self.peer = Some(name.to_vec());
        Ok(Progress::Done)
    }

    fn peer(&self) -> Option<&[u8]> {
        self.peer.as_deref()
    }
}
