//! What a pool counts.

use std::cell::Cell;

use crate::region::PageKind;

/// A pool's state, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// The pages the region is made of.
    pub kind: PageKind,
    /// Octets of the region.
    pub bytes: usize,
    /// Octets in free pages: room for leases of any size, fragmentation apart.
    pub free_bytes: usize,
    /// Octets of a free run such that no other is an eighth longer.
    pub largest_run: usize,
    /// Octets of all blocks out, at their capacities.
    pub leased_bytes: usize,
    /// `Local` leases, those on other threads included until the pool has collected them.
    pub local: u64,
    /// `Shared` references.
    pub shared: u64,
    /// Leases in posted work requests.
    pub posted: u64,
    /// Leases a peer may touch: registrations in flight.
    pub exposed: u64,
    /// Leases dropped while posted or exposed, since the start. Their memory stays out of use.
    pub orphans: u64,
    /// Registrations since the start.
    pub registrations: u64,
    /// Registrations taken back by an invalidation since the start.
    pub fenced: u64,
}

/// Leases of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassGauge {
    /// Octets of each; `None` for leases made of whole pages, each as long as was asked.
    pub capacity: Option<usize>,
    /// How many are out.
    pub leases: u32,
}

/// Who may touch a lease's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Local,
    Shared,
    Posted,
    Exposed,
}

/// Leases by state, kept on the owner's thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    leases: [Cell<u64>; 4],
    pub(crate) orphans: Cell<u64>,
    pub(crate) registrations: Cell<u64>,
    pub(crate) fenced: Cell<u64>,
}

impl Counters {
    /// Counts a lease that enters a state.
    pub(crate) fn enter(&self, state: State) {
        bump(&self.leases[state as usize]);
    }

    /// Counts `count` leases that leave a state.
    pub(crate) fn leave(&self, state: State, count: u64) {
        let leases = &self.leases[state as usize];
        leases.set(leases.get() - count);
    }

    /// Counts a lease that changes its state.
    pub(crate) fn pass(&self, from: State, to: State) {
        self.leave(from, 1);
        self.enter(to);
    }

    /// Counts a lease that was dropped where it must not be returned.
    pub(crate) fn orphan(&self, from: State) {
        self.leave(from, 1);
        bump(&self.orphans);
    }

    /// Returns the leases in a state.
    pub(crate) fn get(&self, state: State) -> u64 {
        self.leases[state as usize].get()
    }
}

/// Adds one.
pub(crate) fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
