//! The registrations of a provider: by windows, by calls, or by copies.

use std::sync::Arc;

use haulage_mr_pool::{Local, Sink, Source, Strategy};
use haulage_proto::verbs::{Access, Exposure, Handle, QpNum};

use super::bounces::{Bounces, Copied};
use super::config::Unavailable;
use super::grants::Grants;
use super::windows::Windows;
use crate::provider::Operation;
use crate::sys::ibverbs::{Binding, CarriedOut, Domain, Window};

/// The registrations of one provider.
#[derive(Debug)]
pub(super) enum Registrations {
    Windows(Box<Windows>),
    Grants(Grants),
    Bounces(Bounces),
}

impl Registrations {
    pub(super) fn new(
        domain: &Arc<Domain>,
        strategy: Strategy,
        (count, connections): (usize, usize),
    ) -> Result<Self, Unavailable> {
        Ok(match strategy {
            Strategy::Window => Self::Windows(Box::new(Windows::new(domain, count, connections)?)),
            Strategy::Persistent => Self::Bounces(Bounces::new(count, connections)),
            Strategy::FastReg | Strategy::PerCall => Self::Grants(Grants::new(count)),
        })
    }

    /// Returns whether each connection needs a protection domain of its own.
    pub(super) const fn need_domains(&self) -> bool {
        matches!(self, Self::Grants(_) | Self::Bounces(_))
    }

    /// Notes that `octets` more of our memory may be exposed.
    pub(super) const fn cover(&mut self, octets: usize) {
        if let Self::Bounces(bounces) = self {
            bounces.cover(octets);
        }
    }

    /// Draws a handle for `qp`. The protection domain, if given, is the connection's own.
    pub(super) fn reserve(
        &mut self,
        (qp, domain): (QpNum, Option<&Arc<Domain>>),
        lease: &Local,
        access: Access,
        scrap: Option<u64>,
    ) -> Option<Handle> {
        match self {
            Self::Windows(windows) => windows.reserve(qp),
            Self::Grants(grants) => grants.reserve((qp, domain?), lease, access, scrap),
            Self::Bounces(bounces) => bounces.reserve((qp, domain?), lease, access),
        }
    }

    /// Returns the offset of the lease that a handle was drawn for last. Windows begin at zero; a registration begins
    /// at the memory's address, which the peer thus learns.
    pub(super) fn offset(&self, lease: &Local) -> u64 {
        match self {
            Self::Windows(_) => 0,
            Self::Grants(_) => lease.bytes().as_ptr().addr() as u64,
            Self::Bounces(bounces) => bounces.latest(),
        }
    }

    /// Opens memory under a handle that `qp` has reserved. Returns the binding to post, for a window.
    pub(super) fn open(
        &self,
        handle: Handle,
        qp: QpNum,
        memory: Exposure<Source, Sink>,
    ) -> Option<Binding> {
        let is_open = match self {
            Self::Windows(_) => return Some(Binding { handle, memory }),
            Self::Grants(grants) => {
                grants.reserved(handle, qp).map(|grant| grant.opened(memory)).is_some()
            }
            Self::Bounces(bounces) => {
                bounces.reserved(handle, qp).is_some_and(|bounce| bounce.opened(memory).is_ok())
            }
        };
        debug_assert!(is_open, "it was reserved");
        None
    }

    /// Finds the window that `qp` reserved as `handle` and that is not bound yet.
    pub(super) fn window(&self, handle: Handle, qp: QpNum) -> Option<&Window> {
        match self {
            Self::Windows(windows) => windows.reserved(handle, qp),
            Self::Grants(_) | Self::Bounces(_) => None,
        }
    }

    /// Returns whether the device carries out a request that is about to be posted on `qp`.
    pub(super) fn carried_out(&self, operation: &Operation, qp: QpNum) -> CarriedOut {
        match (self, operation) {
            (Self::Windows(windows), Operation::LocalInv { handle })
                if !windows.is_open(*handle, qp) =>
            {
                CarriedOut::Already
            }
            // Without windows, a call deregisters the memory, or a copy takes it back, in the request's turn.
            (Self::Grants(_) | Self::Bounces(_), Operation::LocalInv { .. }) => CarriedOut::Already,
            _ => CarriedOut::ByDevice,
        }
    }

    /// Notes that the peer invalidated `qp`'s `handle`. Returns whether it was open, and the peer could invalidate it.
    pub(super) fn closed_by_peer(&mut self, handle: Handle, qp: QpNum) -> bool {
        match self {
            Self::Windows(_) | Self::Grants(_) => self.closed(handle, qp),
            // No handle is granted with remote invalidation.
            Self::Bounces(_) => false,
        }
    }

    /// Notes that `qp`'s `handle` was invalidated. Returns whether it was open.
    pub(super) fn closed(&mut self, handle: Handle, qp: QpNum) -> bool {
        match self {
            Self::Windows(windows) => windows.closed(handle, qp),
            Self::Grants(grants) => grants.close(handle, qp),
            Self::Bounces(bounces) => bounces.close(handle, qp),
        }
    }

    /// Returns how many octets were copied to open memory to peers.
    pub(super) fn copied(&self) -> Copied {
        match self {
            Self::Windows(_) | Self::Grants(_) => Copied::default(),
            Self::Bounces(bounces) => bounces.copied(),
        }
    }

    /// Notes that the device closed a handle for a peer that does not own it.
    pub(super) fn stolen(&mut self, handle: Handle) {
        if let Self::Windows(windows) = self {
            windows.stolen(handle);
        }
    }

    /// Takes back all registrations of a queue pair that has failed.
    pub(super) fn release(&mut self, qp: QpNum) {
        match self {
            Self::Windows(windows) => windows.release(qp),
            Self::Grants(grants) => grants.release(qp),
            Self::Bounces(bounces) => bounces.release(qp),
        }
    }

    /// Takes back all registrations.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Windows(windows) => windows.clear(),
            Self::Grants(grants) => grants.clear(),
            Self::Bounces(bounces) => bounces.clear(),
        }
    }
}
