//! The pool: a region, or a part of one, with one owner, which hands out leases.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::blocks::{Allocation, Blocks, LEASE_MAX};
use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::gauges::{ClassGauge, Gauges, LeaseState};
use crate::lease::Local;
use crate::leases::Leases;
use crate::pool_core::PoolCore;
use crate::region::{PageReport, Region};
use crate::reservoir::Reservoir;
use crate::size::PAGE;
use crate::view::Span;

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
    /// Where more memory comes from, if the region is not all ours.
    reservoir: Option<Reservoir>,
    /// The octets that this pool has of its region.
    bytes: Cell<usize>,
    _here: PhantomData<*const ()>,
}

impl Pool {
    /// The most octets that a pool manages.
    pub const BYTES_MAX: usize = (u32::MAX as usize - 1) * PAGE;

    /// The most octets of one lease.
    pub const LEASE_MAX: usize = LEASE_MAX;

    /// Creates a pool: maps a region, fills it with pages, and makes this thread its owner.
    ///
    /// # Errors
    ///
    /// If the system does not have that much memory, or if no pool could manage it. Unavailable kinds of pages are not
    /// an error: the next kind is used, and [`Pool::pages`] tells why.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let too_large = PoolError::TooLarge { bytes: config.bytes };
        let bytes = config.pages.round_up(config.bytes).ok_or(too_large.clone())?;
        if bytes > Self::BYTES_MAX {
            return Err(too_large);
        }
        let (region, report) = Region::new(bytes, config.pages, config.node)?;
        let core = PoolCore::new(Arc::new(region)).ok_or_else(|| PoolError::no_books(bytes))?;
        let bytes = Cell::new(bytes);
        Ok(Self { core, report, reservoir: None, bytes, _here: PhantomData })
    }

    /// Creates a pool that takes its memory from a reservoir, as it is leased, and makes this thread its owner.
    ///
    /// # Errors
    ///
    /// If there is no memory for its books.
    pub fn of(reservoir: &Reservoir) -> Result<Self, PoolError> {
        let report = reservoir.report().clone();
        let core = PoolCore::without_pages(reservoir.region());
        let core = core.ok_or_else(|| PoolError::no_books(report.bytes))?;
        let (reservoir, bytes) = (Some(reservoir.clone()), Cell::new(0));
        Ok(Self { core, report, reservoir, bytes, _here: PhantomData })
    }

    /// Leases a block of at least `length` octets. The lease has exactly that length, which may be
    /// zero.
    ///
    /// Returns `None` if the pool is exhausted or too fragmented, or if `length` exceeds [`Self::LEASE_MAX`]. Leasing takes
    /// bounded time and allocates nothing from the heap.
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
    /// [`PagePreference::Shared`](crate::PagePreference::Shared).
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

    /// Returns the number of octets in free pages, those that a reservoir has among them: room for leases of any size,
    /// fragmentation aside.
    pub fn free_bytes(&self) -> usize {
        self.own_free_bytes() + self.reservoir.as_ref().map_or(0, Reservoir::free_bytes)
    }

    /// Returns the number of octets in free pages that this pool has.
    pub fn own_free_bytes(&self) -> usize {
        self.blocks(|blocks| blocks.free_bytes())
    }

    /// Returns the reservoir that this pool takes memory from, if it does.
    pub const fn reservoir(&self) -> Option<&Reservoir> {
        self.reservoir.as_ref()
    }

    /// Gives free pages back to the reservoir, the longest runs first, as long as more than `kept` octets stay free here. Returns
    /// the number of octets given.
    pub fn give_back(&self, kept: usize) -> usize {
        let Some(reservoir) = &self.reservoir else { return 0 };
        self.collect();
        let mut given = 0;
        loop {
            let more = self.own_free_bytes().saturating_sub(kept) / PAGE;
            let most = u32::try_from(more).unwrap_or(u32::MAX);
            let pages = if most > 0 { self.blocks(|blocks| blocks.give_up(most)) } else { None };
            let Some(pages) = pages else { break };
            given += pages.len() * PAGE;
            reservoir.give(pages);
        }
        self.bytes.set(self.bytes.get() - given);
        given
    }

    /// Returns the pool's state in numbers.
    pub fn gauges(&self) -> Gauges {
        let pool = self.core.pool();
        let counters = &pool.owner().counters;
        Gauges {
            kind: self.report.kind,
            bytes: self.bytes.get(),
            free_bytes: self.own_free_bytes(),
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
        let mut take = take;
        let taken = match Span::take(pool, length, &mut take) {
            None if self.draw(length) => Span::take(pool, length, take),
            taken => taken,
        };
        taken.map(|(block, span)| Local::new(pool, block, span))
    }

    /// Takes free pages in a row with as many octets from the reservoir, or more. Returns whether it had any.
    #[cold]
    fn draw(&self, octets: usize) -> bool {
        let reservoir = self.reservoir.as_ref().filter(|_| octets <= LEASE_MAX);
        let drawn = reservoir.and_then(|reservoir| reservoir.take(octets));
        drawn.is_some_and(|pages| {
            self.bytes.set(self.bytes.get() + pages.len() * PAGE);
            self.blocks(|blocks| blocks.take_in(pages));
            true
        })
    }

    /// Leases `length` octets, for which no block is long enough, in free runs, the longest first.
    #[cold]
    fn lease_runs(&self, length: usize) -> Option<Leases> {
        if length > self.free_bytes() {
            return None;
        }
        // Pages that do not adjoin each other do as well.
        while self.own_free_bytes() < length && self.draw(1) {}
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

    /// Returns the number of octets in free pages, those that a reservoir has among them, and in those that a
    /// [`Mover`](crate::Mover) can free if all leases have tags.
    pub fn room_bytes(&self) -> usize {
        self.own_room_bytes() + self.reservoir.as_ref().map_or(0, Reservoir::free_bytes)
    }

    /// Returns the number of octets in free pages that this pool has, and in those that a [`Mover`](crate::Mover) can free if all
    /// leases have tags.
    pub fn own_room_bytes(&self) -> usize {
        let pages = match self.reservoir {
            None => self.blocks(Blocks::room_pages),
            Some(_) => self.blocks(Blocks::room_pages_by_leaving),
        };
        pages * PAGE
    }

    pub(crate) const fn core(&self) -> &PoolCore {
        &self.core
    }

    /// Returns whether there is room for `length` octets: in a slab, or in free pages, wherever these are.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        let wanted = Blocks::octets_in_a_row(length);
        self.reservoir.as_ref().is_some_and(|reservoir| reservoir.free_bytes() >= wanted)
            || self.blocks(|blocks| blocks.has_room(length))
    }

    fn blocks<T>(&self, look: impl FnOnce(&mut Blocks) -> T) -> T {
        look(&mut self.core.pool().owner().blocks.borrow_mut())
    }
}
