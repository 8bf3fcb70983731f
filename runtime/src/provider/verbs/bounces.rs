//! Registrations that last as long as their connection: what is exposed is copied. For who asks for it.
//!
//! # Normal operation
//!
//! A peer never reaches a lease. It reaches places set apart for its connection, each registered once, to be
//! read or to be written, under a handle of its own. What the peer is to read is copied into a place when
//! it is exposed; what it was to write is copied out when we close the handle, after its last word on it has
//! arrived. Neither takes the device or the system. A place whose handle is closed rests until the same
//! connection exposes something of about the same length again.
//!
//! # Memory ownership
//!
//! The handle of a place stays good until its connection ends. So closing one proves nothing of the place,
//! and what is proven is of the lease alone: the device never knew where that is, and the view of it is
//! dropped. A peer that uses a handle late, or beyond what it was told, reads what it was let read before,
//! or spoils the octets that another exposure of the same connection is to receive there; it reaches
//! nothing of another connection's. That is what opting in means. As an honest peer may be late, too, the
//! core closes a connection when it gives up a Call that was not answered, instead of exposing more on it.
//!
//! What a peer was to write and did not is what the place held: zeros, or what the same peer wrote there.
//! No handle is offered to be invalidated. A peer that does so all the same loses its connection: at once
//! where the device says what it did, or else with its next message that names the handle.
//!
//! # Limits
//!
//! As many handles are open at once as there may be registrations. A place has the least power of two of
//! octets that its lease fits in, from [`OCTETS_MIN`] on, and all together have at most what all our memory
//! could take if it were exposed at once: twice as much, and the least place for every registration. Where
//! that is reached, or the system gives no more, places that rest are given up.
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
    /// Octets that all places may have together, and those they have.
    octets_max: usize,
    octets: usize,
    /// Those whose handles are reserved or open, ascending by handle.
    used: Vec<(Handle, QpNum, Bounce)>,
    /// Those of each connection that are not, by slot, longest unused first.
    resting: Vec<VecDeque<Bounce>>,
    /// Where the last one that was reserved is.
    latest: u64,
    copied: Copied,
}

/// Octets copied for leases that were exposed and are closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    /// For the peer to read.
    pub(super) there: u64,
    /// That the peer was to write.
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

    /// Tells whether the device registers such places, by having it do so.
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

    /// Returns the offset, in a peer's terms, of the first octet of what was reserved last.
    pub(super) const fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns how much was copied so far.
    pub(super) const fn copied(&self) -> Copied {
        self.copied
    }

    /// Finds what was reserved as `handle` by `qp` and is not open yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&Bounce> {
        let (_, _, bounce) = self.used.get(self.find(handle, qp)?)?;
        (!bounce.is_open()).then_some(bounce)
    }

    /// Closes what `qp`'s peer knows as `handle`. Returns whether it was open, or reserved.
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

    /// Takes everything from a queue pair.
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

    /// Takes a place of `qp` that rests, the one used last, which is most likely still in a cache.
    fn rested(&mut self, qp: QpNum, octets: usize, access: Access) -> Option<Bounce> {
        let resting = self.resting.get_mut(qp.slot())?;
        let fits = |bounce: &Bounce| bounce.octets() == octets && bounce.access() == access;
        let at = resting.iter().rposition(fits)?;
        resting.remove(at)
    }

    /// Makes a place, if need be in the stead of some that rest.
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

/// The octets of the least place: one page, which is what a device registers.
const OCTETS_MIN: usize = 4096;
