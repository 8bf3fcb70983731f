//! Host authentication inside setup: it passes CONNPROP messages to the [`Authenticator`] (E11).
//!
//! Every CONNPROP message is passed to the authenticator, so that those of both ends see the same octets in the same
//! order. Authentication octets that one message cannot hold are carried by the next messages of this end, all of them
//! MIDDLEs; the peer's authenticator takes them piece by piece.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fault::Fault;
use crate::engine::Role;
use crate::v2::host_auth::{Authenticator, Policy, Progress, Refused};
use crate::v2::properties::{ConnPropKind, HOSTAUTH, PropertySet, host_auth_octets, push_property};

/// The authenticator of one connection and its progress.
#[derive(Debug, Default)]
pub(super) struct HostAuth {
    policy: Policy,
    authenticator: Option<Box<dyn Authenticator>>,
    stage: Stage,
    /// Whether the authenticator permits the next message of this end to be its FINAL.
    is_done: bool,
    /// Octets of the authenticator that no message has carried yet.
    unsaid: Vec<u8>,
    octets_received: usize,
}

/// The ends that authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The peer has sent nothing yet.
    #[default]
    Unknown,
    /// Both ends authenticate.
    Both,
    /// The peer does not authenticate.
    Alone,
}

impl HostAuth {
    /// Makes the host authentication of a connection under `policy`.
    pub(super) fn new(policy: Policy, authenticator: Box<dyn Authenticator>) -> Self {
        let authenticator = Some(authenticator).filter(|_| policy.offers());
        Self { policy, authenticator, ..Self::default() }
    }

    pub(super) const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns whether the next message of this end carries host authentication.
    pub(super) fn speaks(&self) -> bool {
        self.authenticator.is_some() && self.stage != Stage::Alone
    }

    /// Returns whether the next message of this end may be its FINAL.
    pub(super) fn may_end(&self) -> bool {
        self.is_done && self.unsaid.is_empty()
    }

    /// Returns whether the authenticator needs another message from the peer.
    pub(super) fn waits(&self) -> bool {
        !self.is_done && self.unsaid.is_empty()
    }

    /// Returns at most `room` authentication octets for the next message of this end, which also
    /// holds `properties`.
    pub(super) fn speak(
        &mut self,
        role: Role,
        kind: ConnPropKind,
        properties: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Fault> {
        let Some(authenticator) = &mut self.authenticator else { return Ok(Vec::new()) };
        authenticator.hear(role, kind, properties);
        if self.unsaid.is_empty() {
            let progress = authenticator.send(&mut self.unsaid).map_err(Fault::Refused)?;
            self.is_done = progress == Progress::Done;
        }
        if self.unsaid.len() > OCTETS_MAX
            || (kind == ConnPropKind::Final && self.unsaid.len() > room)
        {
            return Err(Fault::TooLong);
        }
        let rest = self.unsaid.split_off(room.min(self.unsaid.len()));
        Ok(core::mem::replace(&mut self.unsaid, rest))
    }

    /// Determines from the peer's first message whether the peer authenticates.
    pub(super) fn meet(&mut self, set: &PropertySet<'_>) -> Result<(), Fault> {
        if self.authenticator.is_none() {
            return Ok(());
        }
        let is_present = set.entries().any(|(which, _)| which == HOSTAUTH);
        self.stage = if is_present { Stage::Both } else { Stage::Alone };
        if !is_present && self.policy.requires() {
            return Err(Fault::Unauthenticated);
        }
        Ok(())
    }

    /// Passes a message of the peer to the authenticator.
    pub(super) fn listen(
        &mut self,
        from: Role,
        kind: ConnPropKind,
        set: &PropertySet<'_>,
    ) -> Result<(), Fault> {
        let Some(authenticator) = &mut self.authenticator else { return Ok(()) };
        if self.stage == Stage::Alone {
            return Ok(());
        }
        let (mut octets, mut others) = (Vec::new(), Vec::new());
        for (which, data) in set.entries() {
            match which {
                HOSTAUTH => octets.extend(host_auth_octets(data)),
                _ => push_property(&mut others, which, data),
            }
        }
        self.octets_received = self.octets_received.saturating_add(octets.len());
        if self.octets_received > OCTETS_MAX {
            return Err(Fault::TooLong);
        }
        authenticator.hear(from, kind, &others);
        let progress = authenticator.receive(&octets).map_err(Fault::Refused)?;
        self.is_done = progress == Progress::Done;
        if kind == ConnPropKind::Final && !self.is_done {
            return Err(Fault::Refused(Refused::Unfinished));
        }
        Ok(())
    }

    /// Returns the identity that the peer claims, proved or not.
    pub(super) fn claimed(&self) -> Option<&[u8]> {
        self.authenticator.as_ref()?.claimed()
    }

    /// Returns the identity that the peer has proved.
    pub(super) fn peer(&self) -> Option<&[u8]> {
        self.authenticator.as_ref().filter(|_| self.stage == Stage::Both)?.peer()
    }
}

/// The most octets of host authentication in one direction.
const OCTETS_MAX: usize = 64 << 10;
