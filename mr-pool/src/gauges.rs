//! The gauges and counters of a pool.

use std::cell::Cell;
use std::ops::AddAssign;

use crate::region::PageKind;

/// The state of a pool in numbers. Those of several pools are combined by `+=`: most are sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// The kind of pages in the region. When the gauges of several pools are added up, it is the kind of the first pool.
    pub kind: PageKind,
    /// The size of the region, in octets.
    pub bytes: usize,
    /// The number of octets in free pages: room for leases of any size, fragmentation aside.
    pub free_bytes: usize,
    /// The length of a free run in octets; no other free run is more than an eighth longer. Of several pools, the longest.
    pub largest_run: usize,
    /// The capacity of all leased blocks, in octets.
    pub leased_bytes: usize,
    /// The number of `Local` leases. Leases dropped on other threads count until the pool has
    /// collected them.
    pub local: u64,
    /// The number of `Shared` references.
    pub shared: u64,
    /// The number of leases in posted work requests.
    pub posted: u64,
    /// The number of leases that a peer may access.
    pub exposed: u64,
    /// The number of leases dropped while posted or exposed, since the start. Their memory is never
    /// reused.
    pub orphans: u64,
    /// The number of registrations since the start.
    pub registrations: u64,
    /// The number of registrations that ended by an invalidation, since the start.
    pub fenced: u64,
}

impl AddAssign for Gauges {
    fn add_assign(&mut self, other: Self) {
        let Self {
            kind: _,
            largest_run,
            bytes,
            free_bytes,
            leased_bytes,
            local,
            shared,
            posted,
            exposed,
            orphans,
            registrations,
            fenced,
        } = other;
        self.largest_run = self.largest_run.max(largest_run);
        self.bytes += bytes;
        self.free_bytes += free_bytes;
        self.leased_bytes += leased_bytes;
        self.local += local;
        self.shared += shared;
        self.posted += posted;
        self.exposed += exposed;
        self.orphans += orphans;
        self.registrations += registrations;
        self.fenced += fenced;
    }
}

/// The leases of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassGauge {
    /// The capacity of each lease in octets; `None` for leases of whole pages, each as long as
    /// requested.
    pub capacity: Option<usize>,
    /// The number of leases.
    pub leases: u32,
}

/// The states of a lease, which say who may access its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Local,
    Shared,
    Posted,
    Exposed,
}

/// The numbers of leases by state, kept on the owner's thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    leases: [Cell<u64>; 4],
    pub(crate) orphans: Cell<u64>,
    pub(crate) registrations: Cell<u64>,
    pub(crate) fenced: Cell<u64>,
}

impl Counters {
    /// Counts a lease that enters a state.
    pub(crate) fn enter(&self, state: LeaseState) {
        bump(&self.leases[state as usize]);
    }

    /// Counts `count` leases that leave a state.
    pub(crate) fn leave(&self, state: LeaseState, count: u64) {
        let leases = &self.leases[state as usize];
        leases.set(leases.get() - count);
    }

    /// Counts a lease that changes its state.
    pub(crate) fn pass(&self, from: LeaseState, to: LeaseState) {
        self.leave(from, 1);
        self.enter(to);
    }

    /// Counts a lease that was dropped in a state in which it must not be returned.
    pub(crate) fn orphan(&self, from: LeaseState) {
        self.leave(from, 1);
        bump(&self.orphans);
    }

    /// Returns the number of leases in a state.
    pub(crate) fn get(&self, state: LeaseState) -> u64 {
        self.leases[state as usize].get()
    }
}

/// Increments a counter.
pub(crate) fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns gauges whose numbers are all different multiples of `unit`.
    const fn multiples_of(unit: usize) -> Gauges {
        let count = unit as u64;
        Gauges {
            kind: PageKind::Heap,
            bytes: unit,
            free_bytes: 2 * unit,
            largest_run: 3 * unit,
            leased_bytes: 4 * unit,
            local: 5 * count,
            shared: 6 * count,
            posted: 7 * count,
            exposed: 8 * count,
            orphans: 9 * count,
            registrations: 10 * count,
            fenced: 11 * count,
        }
    }

    #[test]
    fn gauges_of_two_pools_are_sums_but_for_the_largest_run() {
        for (one, other) in [(1, 4), (4, 1)] {
            let mut sum = multiples_of(one);
            sum += multiples_of(other);
            assert_eq!(sum, Gauges { largest_run: 3 * 4, ..multiples_of(5) });
        }
    }
}
