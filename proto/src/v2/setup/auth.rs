//! Host authentication inside setup: what an [`Authenticator`] hears, says and is told (E11).
//!
//! Every CONNPROP message passes through here, so that both ends hear the same octets in the same
//! order. What the authenticator says in one go and one message cannot hold is carried on by our next
//! ones, all of them MIDDLEs; the peer's authenticator takes it piece by piece.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fault::Fault;
use crate::engine::Role;
use crate::v2::host_auth::{Authenticator, Policy, Progress, Refused};
use crate::v2::properties::{ConnPropKind, HOSTAUTH, PropertySet, push_property};

/// The authenticator of one connection, and how far it has come.
#[derive(Debug, Default)]
pub(super) struct HostAuth {
    policy: Policy,
    authenticator: Option<Box<dyn Authenticator>>,
    stage: Stage,
    /// Whether our next message may be our FINAL, as far as the authenticator goes.
    is_done: bool,
    /// Octets it has said and no message has carried yet.
    unsaid: Vec<u8>,
    octets_received: usize,
}

/// Whether the ends authenticate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The peer has said nothing yet.
    #[default]
    Unknown,
    /// Both do.
    Both,
    /// The peer does not.
    Alone,
}

impl HostAuth {
    /// Takes the authenticator; it is used as `policy` says.
    pub(super) fn new(policy: Policy, authenticator: Box<dyn Authenticator>) -> Self {
        let authenticator = Some(authenticator).filter(|_| policy.offers());
        Self { policy, authenticator, ..Self::default() }
    }

    pub(super) const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns whether our next message carries anything of it.
    pub(super) fn speaks(&self) -> bool {
        self.authenticator.is_some() && self.stage != Stage::Alone
    }

    /// Returns whether our next message may be our FINAL.
    pub(super) fn may_end(&self) -> bool {
        self.is_done && self.unsaid.is_empty()
    }

    /// Returns whether the authenticator needs another message of the peer.
    pub(super) fn waits(&self) -> bool {
        !self.is_done && self.unsaid.is_empty()
    }

    /// Returns the octets, at most `room`, for our next message, which says `properties` besides.
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

    /// Learns from the peer's first message whether the peer authenticates.
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

    /// Takes a message of the peer.
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
                HOSTAUTH => octets.extend(data),
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

    /// Returns the identity that the peer has proved.
    pub(super) fn peer(&self) -> Option<&[u8]> {
        self.authenticator.as_ref().filter(|_| self.stage == Stage::Both)?.peer()
    }
}

/// Octets of host authentication in one direction.
const OCTETS_MAX: usize = 64 << 10;
