//! The registrations of a device that has no memory windows: each by a call, slow and safe.
//!
//! # Limits
//!
//! A peer of any queue pair of a protection domain may use grants made in it, and on iWARP these include the targets of
//! our RDMA Reads. So no two connections share a domain ([`ConnectionDomain`](super::domains::ConnectionDomain)).

use std::sync::Arc;

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, Handle, QpNum};

use crate::sys::ibverbs::{AccessGrant, Domain};

/// The grants of one provider.
#[derive(Debug)]
pub(super) struct Grants {
    most: usize,
    /// All grants, ascending by handle.
    granted: Vec<(Handle, QpNum, AccessGrant)>,
}

impl Grants {
    pub(super) fn new(most: usize) -> Self {
        Self { most, granted: Vec::with_capacity(most) }
    }

    /// Registers the memory of `lease`, or `scrap` for a lease that is empty, in the connection's own domain; `None` if
    /// the device refuses, or too many are granted.
    pub(super) fn reserve(
        &mut self,
        (qp, domain): (QpNum, &Arc<Domain>),
        lease: &Local,
        access: Access,
        scrap: Option<u64>,
    ) -> Option<Handle> {
        if self.granted.len() >= self.most {
            return None;
        }
        let grant = AccessGrant::new(domain, lease, access, scrap?).ok()?;
        let handle = grant.key();
        let at = self.granted.partition_point(|(known, ..)| known.0 < handle.0);
        self.granted.insert(at, (handle, qp, grant));
        Some(handle)
    }

    /// Finds the grant that `qp` reserved as `handle` and that is not open yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&AccessGrant> {
        let (_, _, grant) = self.granted.get(self.find(handle, qp)?)?;
        (!grant.is_open()).then_some(grant)
    }

    /// Takes back the grant that `qp`'s peer knows as `handle`. Returns whether it was granted.
    pub(super) fn close(&mut self, handle: Handle, qp: QpNum) -> bool {
        let found = self.find(handle, qp);
        found.map(|at| self.granted.remove(at)).is_some()
    }

    /// Takes back all grants of a queue pair.
    pub(super) fn release(&mut self, qp: QpNum) {
        self.granted.retain(|(_, owner, _)| *owner != qp);
    }

    pub(super) fn clear(&mut self) {
        self.granted.clear();
    }

    fn find(&self, handle: Handle, qp: QpNum) -> Option<usize> {
        let at = self.granted.binary_search_by_key(&handle.0, |(known, ..)| known.0).ok()?;
        self.granted.get(at).filter(|(_, owner, _)| *owner == qp).map(|_| at)
    }
}
