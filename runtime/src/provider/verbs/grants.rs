//! The registrations of a device that has no memory windows: each by a call, slow and safe.
//!
//! # Limits
//!
//! A peer of any queue pair of a protection domain may use what is granted in it. So each connection that
//! we ask for has a domain of its own, in which our memory is registered once more. Those that peers ask
//! for, whose memory we use rather than they ours, share one, as one for each would count all memory
//! against memlock again: there nothing is granted but to the only connection there is, and while
//! anything is, there is no other.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, Handle, QpNum};

use crate::sys::ibverbs::{Domain, Grant};

/// What peers are granted.
#[derive(Debug)]
pub(super) struct Grants {
    /// The one that connections share.
    domain: Rc<Domain>,
    most: usize,
    /// Ascending by handle.
    granted: Vec<(Handle, QpNum, Grant)>,
}

impl Grants {
    pub(super) fn new(domain: &Rc<Domain>, most: usize) -> Self {
        Self { domain: Rc::clone(domain), most, granted: Vec::with_capacity(most) }
    }

    /// Tells whether anything is granted in the domain that connections share.
    pub(super) fn in_use(&self) -> bool {
        self.granted.iter().any(|(.., grant)| grant.is_in(&self.domain))
    }

    /// Registers the memory of `lease`, or `scrap` for one that is empty, in a domain that is the
    /// connection's alone, for now at least; `None` if the device refuses, or enough is granted.
    pub(super) fn reserve(
        &mut self,
        (qp, domain): (QpNum, &Rc<Domain>),
        lease: &Local,
        access: Access,
        scrap: Option<u64>,
    ) -> Option<Handle> {
        if self.granted.len() >= self.most {
            return None;
        }
        let grant = Grant::new(domain, lease, access, scrap?).ok()?;
        let handle = grant.key();
        let at = self.granted.partition_point(|(known, ..)| known.0 < handle.0);
        self.granted.insert(at, (handle, qp, grant));
        Some(handle)
    }

    /// Finds what was reserved as `handle` by `qp` and is not open yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&Grant> {
        let (_, _, grant) = self.granted.get(self.find(handle, qp)?)?;
        (!grant.is_open()).then_some(grant)
    }

    /// Takes back what `qp`'s peer knows as `handle`. Returns whether it was granted.
    pub(super) fn close(&mut self, handle: Handle, qp: QpNum) -> bool {
        let found = self.find(handle, qp);
        found.map(|at| self.granted.remove(at)).is_some()
    }

    /// Takes everything from a queue pair.
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
