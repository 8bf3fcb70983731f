//! The pool: one region, one owner, leases.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::blocks::Blocks;
use crate::error::PoolError;
use crate::gauges::{ClassGauge, Gauges, State};
use crate::home::Keeper;
use crate::lease::Local;
use crate::region::{PagePreference, PageReport, Region};
use crate::size::PAGE;
use crate::view::Span;

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Octets, rounded up to whole pages: 2 MiB where huge pages are wanted, else 4 KiB. 1 GiB pages
    /// are used if that is a multiple of 1 GiB.
    pub bytes: usize,
    /// Which pages to try.
    pub pages: PagePreference,
    /// The NUMA node to take memory from; `None` leaves it to the system.
    pub node: Option<u32>,
}

/// A core's registered memory.
///
/// Made on the core's own thread and used there only:
///
/// ```compile_fail,E0277
/// # use haulage_mr_pool::Pool;
/// fn send<T: Send>() {}
/// send::<Pool>();
/// ```
///
/// # Memory ownership
///
/// Dropping a pool gives its region back to the system if every block is home, and leaks it
/// otherwise: someone may still read or write it.
#[derive(Debug)]
pub struct Pool {
    keeper: Keeper,
    report: PageReport,
    _here: PhantomData<*const ()>,
}

impl Pool {
    /// Takes a region from the machine, fills it with pages and owns it on this thread.
    ///
    /// # Errors
    ///
    /// If the machine has not that much memory, or no pool could manage it. Pages that are not to be
    /// had are no error: the next kind is taken, and [`Pool::pages`] tells why.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let too_large = PoolError::TooLarge { bytes: config.bytes };
        let bytes = config.pages.round_up(config.bytes).ok_or(too_large.clone())?;
        let pages = u32::try_from(bytes / PAGE).ok().filter(|&p| p < u32::MAX).ok_or(too_large)?;
        let (region, report) = Region::new(bytes, config.pages, config.node)?;
        let no_books = || PoolError::NoMemory { bytes, reason: "no room for its books".to_owned() };
        let keeper = Keeper::new(region, pages).ok_or_else(no_books)?;
        Ok(Self { keeper, report, _here: PhantomData })
    }

    /// Leases a block of at least `length` octets, with that length. Zero is a length.
    ///
    /// Returns `None` if there is none: the pool is exhausted, or too fragmented for so long a run, or
    /// `length` exceeds 1 GiB.
    /// Takes bounded time and nothing from the heap.
    pub fn lease(&self, length: usize) -> Option<Local> {
        let home = self.keeper.home();
        Span::take(home, length).map(|(block, span)| Local::new(home, block, span))
    }

    /// Takes home the leases that were dropped on other threads. `lease` does so when it runs short.
    pub fn collect(&self) {
        self.keeper.home().collect();
    }

    /// Returns what the region is made of, and what would make it better.
    pub const fn pages(&self) -> &PageReport {
        &self.report
    }

    /// Returns where the region is, for who registers it with the system. Who may touch the octets is
    /// said by leases alone.
    pub fn region(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.keeper.start(), self.usable())
    }

    /// Returns the sealed memfd the region is in, if it was made with [`PagePreference::Shared`].
    ///
    /// Whoever is given it can read and write every octet of the region, at any moment and in any state of
    /// its lease, also while a slice of it is borrowed. Who passes it vouches for the peer: see "Shared
    /// regions" in the documentation of the crate.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.keeper.memfd()
    }

    /// Returns the octets of the region.
    pub const fn usable(&self) -> usize {
        self.report.bytes
    }

    /// Returns the octets in free pages: room for leases of any size, fragmentation apart.
    pub fn free_bytes(&self) -> usize {
        self.blocks(Blocks::free_bytes)
    }

    /// Returns the pool's state in numbers.
    pub fn gauges(&self) -> Gauges {
        let home = self.keeper.home();
        let counters = &home.owner().counters;
        Gauges {
            kind: self.report.kind,
            bytes: self.usable(),
            free_bytes: self.free_bytes(),
            largest_run: self.blocks(Blocks::largest_run),
            leased_bytes: self.blocks(Blocks::leased_bytes),
            local: counters.get(State::Local),
            shared: counters.get(State::Shared),
            posted: counters.get(State::Posted),
            exposed: counters.get(State::Exposed),
            orphans: counters.orphans.get(),
            registrations: counters.registrations.get(),
            fenced: counters.fenced.get(),
        }
    }

    /// Returns the leases out by size class, smallest first.
    pub fn classes(&self) -> impl Iterator<Item = ClassGauge> + use<> {
        let out = self.blocks(|blocks| *blocks.out());
        let gauge = |(kind, leases)| ClassGauge { capacity: Blocks::capacity_of(kind), leases };
        out.into_iter().enumerate().map(gauge)
    }

    fn blocks<T>(&self, look: impl FnOnce(&Blocks) -> T) -> T {
        look(&self.keeper.home().owner().blocks.borrow())
    }
}
