//! Hosts that prove to each other which they are: host authentication of connections over RDMA.
//!
//! # Normal operation
//! A server is given a [`HostAuth`] by [`Core::authenticate`](crate::core::Core::authenticate), a client's connection by
//! [`ConnectOptions::host_auth`](crate::core::ConnectOptions::host_auth). While version 2 sets a connection up, both ends prove
//! which host they are. No Call is served, and no memory is exposed, before an end that requires it has the peer's proof.
//! From then on [`Cx::host`](crate::core::Cx::host) names the host at the other end.
//!
//! The module `host_auth`, of the feature of that name, has [`Hosts`] with Ed25519 keys.
//!
//! # Limits
//! Version 1 and TCP have no host authentication. Under [`Policy::Required`] neither is spoken (P9).
//!
//! # Recovery
//! A host that is not known any more loses its connections with
//! [`Core::judge_hosts`](crate::core::Core::judge_hosts).

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use haulage_proto::negotiate::{Connection as Engine, Engine as Spoken};
use haulage_proto::v1::private_data::PrivateData;
use haulage_proto::xdr::Writer;
use thiserror::Error;

pub use haulage_proto::v2::host_auth::{Authenticator, Policy, Progress, Refused};

/// Proves to peers which host this is, and says which hosts they are.
pub trait Hosts: Debug + Send + Sync {
    /// Makes the authenticator of one connection.
    ///
    /// # Errors
    /// The system's error, such as that it has no randomness.
    fn authenticator(&self) -> io::Result<Box<dyn Authenticator>>;

    /// Returns the name of the host that proved to have an identity; `None` if it is not known, or not any more.
    fn name(&self, identity: &[u8]) -> Option<Arc<str>>;

    /// Returns an identity as reports show it.
    fn show(&self, identity: &[u8]) -> String;
}

/// The host authentication of one end.
#[derive(Clone, Debug)]
pub struct HostAuth {
    /// Whether peers have to prove which host they are.
    pub policy: Policy,
    /// The hosts: this one, and those that are known.
    pub hosts: Arc<dyn Hosts>,
}

/// Why a connection ended: because of the host at the other end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostRefusal {
    /// The peer does not prove which host it is, and this end requires that.
    #[error("the peer does not prove which host it is, and has to")]
    Unproven,
    /// The proof failed.
    #[error("{why}{}", claim(claimed.as_deref()))]
    Refused {
        /// What was wrong.
        why: Refused,
        /// The identity that the peer claimed, if it did.
        claimed: Option<String>,
    },
    /// The host of this name proved itself once, and is not among the known hosts any more.
    #[error("{0} is not among the known hosts any more")]
    Forgotten(Arc<str>),
}

fn claim(claimed: Option<&str>) -> String {
    claimed.map_or_else(String::new, |claimed| format!(": {claimed}"))
}

impl HostAuth {
    /// Returns the policy of an end that may have none.
    pub(crate) fn policy(auth: Option<&Self>) -> Policy {
        auth.map_or(Policy::Off, |auth| auth.policy)
    }

    /// Begins to authenticate both ends of a connection on which these private data were exchanged.
    ///
    /// # Errors
    /// See [`Hosts::authenticator`].
    pub(crate) fn begin(
        &self,
        engine: &mut Engine,
        client: Option<PrivateData>,
        server: Option<PrivateData>,
    ) -> io::Result<()> {
        // Carriers add octets to private data. Both ends know what was meant.
        let [client, server] = [client, server].map(encoded);
        engine.authenticate(self.policy, self.hosts.authenticator()?, &client, &server);
        Ok(())
    }

    /// Returns the name of the host at the other end of a connection that has just opened, if it proved which it is.
    ///
    /// # Errors
    /// The host is not known any more.
    pub(crate) fn proved(&self, engine: &Spoken) -> Result<Option<Arc<str>>, HostRefusal> {
        let Spoken::Two(two) = engine else { return Ok(None) };
        let Some(identity) = two.peer_identity() else { return Ok(None) };
        match self.hosts.name(identity) {
            Some(name) => Ok(Some(name)),
            None => Err(HostRefusal::Forgotten(self.hosts.show(identity).into())),
        }
    }

    /// Describes why the proof of a peer was refused.
    pub(crate) fn refused(&self, engine: &Spoken, why: Refused) -> HostRefusal {
        let claimed = match engine {
            Spoken::One(_) => None,
            Spoken::Two(two) => two.claimed_identity(),
        };
        HostRefusal::Refused { why, claimed: claimed.map(|identity| self.hosts.show(identity)) }
    }
}

/// Returns private data as one end sent it; nothing if it sent none.
fn encoded(data: Option<PrivateData>) -> Vec<u8> {
    let mut octets = [0; PrivateData::WIRE_LEN];
    let written = data.is_some_and(|data| data.encode(&mut Writer::new(&mut octets)).is_ok());
    if written { octets.to_vec() } else { Vec::new() }
}
