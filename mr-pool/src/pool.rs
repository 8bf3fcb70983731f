//! The pool: one region with one owner, which hands out leases.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::blocks::{Allocation, Blocks, LEASE_MAX};
use crate::error::PoolError;
use crate::gauges::{ClassGauge, Gauges, LeaseState};
use crate::lease::Local;
use crate::leases::Leases;
use crate::pool_core::PoolCore;
use crate::region::{PagePreference, PageReport, Region};
use crate::size::PAGE;
use crate::view::Span;

/// The configuration of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// The size in octets, rounded up to whole pages: 2 MiB if huge pages are preferred, else 4 KiB. 1 GiB pages are
    /// used only if the size is a multiple of 1 GiB.
    pub bytes: usize,
    /// The kinds of pages to try.
    pub pages: PagePreference,
    /// The NUMA node to take memory from; `None` leaves it to the system.
    pub node: Option<u32>,
}

/// How much memory a lease may take beside its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Density {
    /// Whole pages, if no slab has room.
    Any,
    /// No more than such leases take in a slab. Where there is no such block, a [`Mover`](crate::Mover) may make room.
    Full,
}

/// The registered memory of one core.
///
/// A pool is created on the core's own thread and used only there:
///
/// ```compile_fail,E0277
/// # use haulage_mr_pool::Pool;
/// fn send<T: Send>() {}
/// send::<Pool>();
/// ```
///
/// # Memory ownership
///
/// Dropping a pool returns its region to the system if every block is free, and leaks the region
/// otherwise, because it may still be read or written.
#[derive(Debug)]
pub struct Pool {
    core: PoolCore,
    report: PageReport,
    _here: PhantomData<*const ()>,
}

impl Pool {
    /// The most octets that a pool manages.
    pub const BYTES_MAX: usize = (u32::MAX as usize - 1) * PAGE;

    /// Creates a pool: maps a region, fills it with pages, and makes this thread its owner.
    ///
    /// # Errors
    ///
    /// If the system does not have that much memory, or if no pool could manage it. Unavailable kinds of pages are not
    /// an error: the next kind is used, and [`Pool::pages`] tells why.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let too_large = PoolError::TooLarge { bytes: config.bytes };
        let bytes = config.pages.round_up(config.bytes).ok_or(too_large.clone())?;
        let pages = u32::try_from(bytes / PAGE).ok().filter(|_| bytes <= Self::BYTES_MAX);
        let pages = pages.ok_or(too_large)?;
        let (region, report) = Region::new(bytes, config.pages, config.node)?;
        let no_books = || PoolError::NoMemory { bytes, reason: "no room for its books".to_owned() };
        let core = PoolCore::new(region, pages).ok_or_else(no_books)?;
        Ok(Self { core, report, _here: PhantomData })
    }

    /// Leases a block of at least `length` octets. The lease has exactly that length, which may be
    /// zero.
    ///
    /// Returns `None` if the pool is exhausted or too fragmented, or if `length` exceeds 1 GiB. Leasing takes bounded
    /// time and allocates nothing from the heap.
    #[inline(never)]
    pub fn lease(&self, length: usize) -> Option<Local> {
        self.take(length, |blocks| blocks.take(length))
    }

    /// Leases a block of this density, otherwise as [`Self::lease`] does.
    pub fn lease_as(&self, length: usize, density: Density) -> Option<Local> {
        match density {
            Density::Any => self.lease(length),
            Density::Full => self.take(length, |blocks| blocks.take_dense(length)),
        }
    }

    /// Leases `length` octets in one block, as [`Self::lease_as`] does, or, if there is none, in as few free runs of pages
    /// as have them. No part of a slab is among several, so that none of them keeps a slab from becoming empty.
    ///
    /// Returns `None`, and keeps nothing, if the free pages have fewer octets, or the heap has no room for the list of
    /// the leases. Takes time for each of them.
    pub fn leases(&self, length: usize, density: Density) -> Option<Leases> {
        match self.lease_as(length, density) {
            Some(lease) => Some(lease.into()),
            None if density == Density::Full && Blocks::is_denser_in_slabs(length) => None,
            None => self.lease_runs(length),
        }
    }

    /// Frees the leases that were dropped on other threads. [`Self::lease`] does so itself when memory runs short.
    pub fn collect(&self) {
        self.core.pool().collect();
    }

    /// Returns the report on the region's pages, and on the commands that would improve them.
    pub const fn pages(&self) -> &PageReport {
        &self.report
    }

    /// Returns the address range of the region, for registering it with the system. Only leases permit access to the
    /// octets.
    pub fn region(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.core.start(), self.usable())
    }

    /// Returns the sealed memfd of the region, if the pool was created with
    /// [`PagePreference::Shared`].
    ///
    /// A process that receives the memfd can read and write every octet of the region, at any moment and in any state
    /// of its lease, even while a slice of it is borrowed. The caller is responsible for the peer it passes the memfd
    /// to: see "Shared regions" in the documentation of the crate.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.core.memfd()
    }

    /// Returns the size of the region in octets.
    pub const fn usable(&self) -> usize {
        self.report.bytes
    }

    /// Returns the number of octets in free pages: room for leases of any size, fragmentation
    /// aside.
    pub fn free_bytes(&self) -> usize {
        self.blocks(|blocks| blocks.free_bytes())
    }

    /// Returns the pool's state in numbers.
    pub fn gauges(&self) -> Gauges {
        let pool = self.core.pool();
        let counters = &pool.owner().counters;
        Gauges {
            kind: self.report.kind,
            bytes: self.usable(),
            free_bytes: self.free_bytes(),
            largest_run: self.blocks(Blocks::largest_run),
            leased_bytes: self.blocks(|blocks| blocks.leased_bytes()),
            local: counters.get(LeaseState::Local),
            shared: counters.get(LeaseState::Shared),
            posted: counters.get(LeaseState::Posted),
            exposed: counters.get(LeaseState::Exposed),
            orphans: counters.orphans.get(),
            registrations: counters.registrations.get(),
            fenced: counters.fenced.get(),
        }
    }

    /// Returns the numbers of leases by size class, smallest class first.
    pub fn classes(&self) -> impl Iterator<Item = ClassGauge> + use<> {
        let out = self.blocks(|blocks| *blocks.out());
        let gauge = |(kind, leases)| ClassGauge { capacity: Blocks::capacity_of(kind), leases };
        out.into_iter().enumerate().map(gauge)
    }

    /// Leases a block of at least `length` octets that `take` allocates.
    #[inline(always)]
    pub(crate) fn take(
        &self,
        length: usize,
        take: impl FnMut(&mut Blocks) -> Option<Allocation>,
    ) -> Option<Local> {
        let pool = self.core.pool();
        Span::take(pool, length, take).map(|(block, span)| Local::new(pool, block, span))
    }

    /// Leases `length` octets, for which no block is long enough, in free runs, the longest first.
    #[cold]
    fn lease_runs(&self, length: usize) -> Option<Leases> {
        if length > self.free_bytes() {
            return None;
        }
        let (mut leases, mut left) = (Vec::new(), length);
        while left > 0 {
            leases.try_reserve(1).ok()?;
            let run = left.min(self.blocks(Blocks::largest_run)).min(LEASE_MAX);
            let lease = self.take(run, |blocks| blocks.take_pages(run));
            let lease = lease.filter(|lease| !lease.is_empty())?;
            left -= lease.len();
            leases.push(lease);
        }
        Some(Leases::Several(leases))
    }

    /// Returns the number of octets in free pages, and in those that a [`Mover`](crate::Mover) can free if all leases
    /// have tags.
    pub fn room_bytes(&self) -> usize {
        self.blocks(Blocks::room_pages) * PAGE
    }

    pub(crate) const fn core(&self) -> &PoolCore {
        &self.core
    }

    fn blocks<T>(&self, look: impl FnOnce(&mut Blocks) -> T) -> T {
        look(&mut self.core.pool().owner().blocks.borrow_mut())
    }
}
