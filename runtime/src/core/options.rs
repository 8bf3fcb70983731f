//! What a client says when it connects.

use crate::hosts::HostAuth;
use crate::identity::Identity;
use crate::service::{Binding, Program};

/// The Calls that go on a connection of ours: see [`Core::connect`](super::Core::connect).
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    pub(super) binding: Binding,
    pub(super) identity: Identity,
    pub(super) serves: Vec<Program>,
    pub(super) auth: Option<HostAuth>,
}

impl ConnectOptions {
    /// Describes a connection on which Calls are made with `binding`.
    pub const fn new(binding: Binding) -> Self {
        Self { binding, identity: Identity::Anonymous, serves: Vec::new(), auth: None }
    }

    /// Has the Calls carry the credential of `identity`.
    #[must_use]
    pub fn identity(self, identity: Identity) -> Self {
        Self { identity, ..self }
    }

    /// Has this end serve programs to the server on the connection (reverse direction): its Calls come to
    /// [`Service::call`](super::Service::call), as all others. A server of version 2 is told that they may take any form, and
    /// on version 1 they have no chunks.
    #[must_use]
    pub fn serving(self, programs: Vec<Program>) -> Self {
        Self { serves: programs, ..self }
    }

    /// Has both ends prove which hosts they are, before Calls go. The hosts that `auth` knows should be the server's
    /// alone: any of them passes for it.
    #[must_use]
    pub fn host_auth(self, auth: HostAuth) -> Self {
        Self { auth: Some(auth), ..self }
    }
}

impl From<Binding> for ConnectOptions {
    fn from(binding: Binding) -> Self {
        Self::new(binding)
    }
}
