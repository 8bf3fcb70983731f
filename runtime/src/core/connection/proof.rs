//! The host at the other end of a connection, which it may have to prove.

use std::sync::Arc;

use haulage_proto::negotiate::{Connection as Engine, Engine as Spoken};
use haulage_proto::v1::private_data::PrivateData;
use haulage_proto::v2::host_auth::Policy;

use crate::hosts::{HostAuth, HostRefusal, Refused};
use crate::service::CallError;

/// What the other end has to prove about its host, and what it has proved.
#[derive(Debug)]
pub(crate) struct Proof {
    auth: Option<HostAuth>,
    /// The private data of a client, as it was sent.
    client: Option<PrivateData>,
    /// The name of the host that was proved.
    host: Option<Arc<str>>,
}

impl Proof {
    /// Makes the state of a connection on which nothing is proved. `client` is the private data of the client's end.
    pub(crate) const fn new(auth: Option<HostAuth>, client: Option<PrivateData>) -> Self {
        Self { auth, client, host: None }
    }

    /// Returns whether the other end has to prove something.
    pub(crate) fn policy(&self) -> Policy {
        HostAuth::policy(self.auth.as_ref())
    }

    /// Gives the engine an authenticator, which signs and checks the messages of setup. Call it when the connection is
    /// established. `server` is the private data that the server sent.
    pub(super) fn begin(
        &self,
        engine: &mut Engine,
        server: Option<PrivateData>,
    ) -> Result<(), CallError> {
        let begun =
            //~ V2-11.1.1-1: `self.auth.as_ref()` -> `self.auth.as_ref().filter(|auth| !auth.policy.requires())`
            self.auth.as_ref().map_or(Ok(()), |auth| auth.begin(engine, self.client, server));
        begun.map_err(|error| {
            CallError::Disconnected(format!("host authentication cannot begin: {error}"))
        })
    }

    /// Takes in that RPC messages may flow.
    pub(super) fn settle(&mut self, engine: &Spoken) -> Result<(), HostRefusal> {
        if let Some(auth) = &self.auth {
            self.host = auth.proved(engine)?;
        }
        Ok(())
    }

    /// Describes why the engine refuses the other end's proof.
    pub(super) fn refused(&self, engine: &Spoken, why: Refused) -> HostRefusal {
        let plain = HostRefusal::Refused { why, claimed: None };
        self.auth.as_ref().map_or(plain, |auth| auth.refused(engine, why))
    }

    /// Asks once more which host has the identity that was proved.
    pub(super) fn judge(&mut self, engine: &Spoken) -> Result<(), HostRefusal> {
        let (Some(host), Some(auth)) = (&self.host, &self.auth) else { return Ok(()) };
        let named = auth.proved(engine).map_err(|_| HostRefusal::Forgotten(Arc::clone(host)))?;
        self.host = named;
        Ok(())
    }

    /// Returns the name of the host that the other end proved to be.
    pub(crate) fn host(&self) -> Option<&Arc<str>> {
        self.host.as_ref()
    }
}
