//! Registrations that last as long as their connection: exposed data is copied. Used only if asked for.
//!
//! # Normal operation
//!
//! A peer never reaches a lease. It reaches places set apart for its connection, each registered once, to be read or to
//! be written, under a handle of its own. Data for the peer to read is copied into a place when it is exposed; data
//! from the peer is copied out when we close the handle, after the peer's last use of it has arrived. Neither takes a
//! call of the device or the system. A place whose handle is closed rests until the same connection exposes something
//! of about the same length again.
//!
//! # Memory ownership
//!
//! The handle of a place stays valid until its connection ends. So closing it proves nothing about the place, only
//! about the lease: the device never knew where the lease is, and the view of it is dropped. A peer that uses a handle
//! late, or beyond its range, reads data that it was allowed to read before, or spoils the octets that another exposure
//! of the same connection is to receive there; it reaches no memory of another connection. A user who chooses this
//! strategy accepts that. As an honest peer may be late, too, the core closes a connection when it gives up a Call that
//! was not answered, instead of exposing more on it.
//!
//! Octets that a peer was to write and did not are the earlier octets of the place: zeros, or octets that the same peer
//! wrote there. No handle is offered to be invalidated. A peer that invalidates one all the same loses its connection:
//! at once where the device reports the invalidation, or else with its next message that names the handle.
//!
//! # Limits
//!
//! As many handles are open at once as there may be registrations. A place has the smallest power of two of octets that
//! its lease fits in, from [`OCTETS_MIN`] on. All places together have at most the octets that exposing all our memory
//! at once could take: twice as many as it has, and the smallest place for every registration. When that is reached, or
//! the system gives no more, resting places are given up.
//!
//! Connections have protection domains as with [`Grants`](super::grants::Grants).

use std::collections::VecDeque;
use std::sync::Arc;

use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, Handle, QpNum};

use crate::sys::ibverbs::{Bounce, Domain, Refused};

/// The places of one provider.
#[derive(Debug)]
pub(super) struct Bounces {
    most: usize,
    /// The most octets that all places may have together, and the octets that they have.
    octets_max: usize,
    octets: usize,
    /// Places whose handles are reserved or open, ascending by handle.
    used: Vec<(Handle, QpNum, Bounce)>,
    /// The resting places of each connection, by slot, longest unused first.
    resting: Vec<VecDeque<Bounce>>,
    /// The offset of the place that was reserved last.
    latest: u64,
    copied: Copied,
}

/// Octets copied for leases that were exposed and are closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    /// Octets copied for the peer to read.
    pub(super) there: u64,
    /// Octets that the peer was to write, copied back.
    pub(super) back: u64,
}

impl Bounces {
    /// Prepares for `most` handles at once on at most `connections`.
    pub(super) fn new(most: usize, connections: usize) -> Self {
        Self {
            most,
            octets_max: most.saturating_mul(OCTETS_MIN),
            octets: 0,
            used: Vec::with_capacity(most),
            resting: std::iter::repeat_with(VecDeque::new).take(connections).collect(),
            latest: 0,
            copied: Copied::default(),
        }
    }

    /// Checks that the device registers such places, by having it do so.
    pub(super) fn probe(domain: &Arc<Domain>) -> Result<(), Refused> {
        [Access::RemoteRead, Access::RemoteWrite]
            .into_iter()
            .try_for_each(|access| Bounce::new(domain, OCTETS_MIN, access).map(drop))
    }

    /// Makes room for exposing `octets` more of our memory.
    pub(super) const fn cover(&mut self, octets: usize) {
        self.octets_max = self.octets_max.saturating_add(octets.saturating_mul(2));
    }

    /// Finds a place for `lease`, in the connection's own domain; `None` if there is none and can be none.
    pub(super) fn reserve(
        &mut self,
        (qp, domain): (QpNum, &Arc<Domain>),
        lease: &Local,
        access: Access,
    ) -> Option<Handle> {
        if self.used.len() >= self.most {
            return None;
        }
        let octets = lease.len().checked_next_power_of_two()?.max(OCTETS_MIN);
        let rested = self.rested(qp, octets, access);
        let bounce = rested.or_else(|| self.make(domain, octets, access))?;
        self.latest = bounce.address();
        let handle = bounce.key();
        let at = self.used.partition_point(|(known, ..)| known.0 < handle.0);
        self.used.insert(at, (handle, qp, bounce));
        Some(handle)
    }

    /// Returns the offset of the place that was reserved last, in the peer's terms.
    pub(super) const fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns how many octets were copied so far.
    pub(super) const fn copied(&self) -> Copied {
        self.copied
    }

    /// Finds the place that `qp` reserved as `handle` and that is not open yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&Bounce> {
        let (_, _, bounce) = self.used.get(self.find(handle, qp)?)?;
        (!bounce.is_open()).then_some(bounce)
    }

    /// Closes the place that `qp`'s peer knows as `handle`. Returns whether it was open, or reserved.
    pub(super) fn close(&mut self, handle: Handle, qp: QpNum) -> bool {
        let Some((_, _, bounce)) = self.find(handle, qp).map(|at| self.used.remove(at)) else {
            return false;
        };
        let copied = bounce.closed() as u64;
        match bounce.access() {
            Access::RemoteRead => self.copied.there += copied,
            Access::RemoteWrite => self.copied.back += copied,
        }
        match self.resting.get_mut(qp.slot()) {
            Some(resting) => resting.push_back(bounce),
            None => self.octets -= bounce.octets(),
        }
        true
    }

    /// Takes all places from a queue pair.
    pub(super) fn release(&mut self, qp: QpNum) {
        let Self { octets, used, resting, .. } = self;
        used.retain(|(_, owner, bounce)| {
            let stays = *owner != qp;
            *octets -= if stays { 0 } else { bounce.octets() };
            stays
        });
        let rested = resting.get_mut(qp.slot()).map(std::mem::take).unwrap_or_default();
        *octets -= rested.iter().map(Bounce::octets).sum::<usize>();
    }

    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.resting.clear();
        self.octets = 0;
    }

    /// Takes a resting place of `qp`, the one used last, which is most likely still in a cache.
    fn rested(&mut self, qp: QpNum, octets: usize, access: Access) -> Option<Bounce> {
        let resting = self.resting.get_mut(qp.slot())?;
        let fits = |bounce: &Bounce| bounce.octets() == octets && bounce.access() == access;
        let at = resting.iter().rposition(fits)?;
        resting.remove(at)
    }

    /// Makes a place, giving up resting places if there is no room.
    fn make(&mut self, domain: &Arc<Domain>, octets: usize, access: Access) -> Option<Bounce> {
        loop {
            if octets <= self.octets_max.saturating_sub(self.octets)
                && let Ok(bounce) = Bounce::new(domain, octets, access)
            {
                self.octets += octets;
                return Some(bounce);
            }
            let most = self.resting.iter_mut().max_by_key(|resting| resting.len());
            self.octets -= most.and_then(VecDeque::pop_front)?.octets();
        }
    }

    fn find(&self, handle: Handle, qp: QpNum) -> Option<usize> {
        let at = self.used.binary_search_by_key(&handle.0, |(known, ..)| known.0).ok()?;
        self.used.get(at).filter(|(_, owner, _)| *owner == qp).map(|_| at)
    }
}

/// Octets of the smallest place: one page, the unit in which a device registers.
const OCTETS_MIN: usize = 4096;
