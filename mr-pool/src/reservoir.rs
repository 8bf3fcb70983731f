//! Memory that the pools of several cores share.
//!
//! # Normal operation
//! Pools take free pages of one region as their leases need them, a tract of 2 MiB at a time, or what a longer lease takes, and give
//! back those that are free again. So a core can have nearly all of the memory, whatever the others were expected to need, and each
//! block stays with the pool that leased it.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::blocks::Runs;
use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::region::{PageReport, Region};
use crate::size::{PAGE, TRACT, TRACT_PAGES};
use crate::zeroes::zeroes;

/// A region from which the pools of one process take memory: see [`Pool::of`](crate::Pool::of).
#[derive(Clone)]
pub struct Reservoir(Arc<Shared>);

struct Shared {
    region: Arc<Region>,
    report: PageReport,
    /// The octets in free pages.
    free: AtomicUsize,
    runs: Lock<Runs>,
}

/// A lock that a core takes when it takes pages, or gives some back.
#[expect(clippy::disallowed_types, reason = "a tract has room for more leases than a turn makes")]
type Lock<T> = std::sync::Mutex<T>;

impl Reservoir {
    /// Maps a region, and fills it with pages. Its size is rounded up to whole tracts.
    ///
    /// # Errors
    /// If the system does not have that much memory, or if no pool could manage it.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let too_large = || PoolError::TooLarge { bytes: config.bytes };
        let bytes = config.bytes.max(1).checked_next_multiple_of(TRACT).ok_or_else(too_large)?;
        let pages = u32::try_from(bytes / PAGE).ok().filter(|&pages| pages < u32::MAX);
        let pages = pages.ok_or_else(too_large)?;
        let (region, report) = Region::new(bytes, config.pages, config.node)?;
        let books = zeroes(pages as usize).ok_or_else(|| PoolError::no_books(bytes))?;
        let mut runs = Runs::none(books);
        runs.take_in(0..pages);
        let (region, free, runs) = (Arc::new(region), AtomicUsize::new(bytes), Lock::new(runs));
        Ok(Self(Arc::new(Shared { region, report, free, runs })))
    }

    /// Returns the number of octets in pages that no pool has.
    pub fn free_bytes(&self) -> usize {
        self.0.free.load(Ordering::Relaxed)
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        Arc::clone(&self.0.region)
    }

    pub(crate) fn report(&self) -> &PageReport {
        &self.0.report
    }

    /// Takes pages in a row: whole tracts, if there are such, else a run with `octets` at least.
    pub(crate) fn take(&self, octets: usize) -> Option<Range<u32>> {
        let least = u32::try_from(octets.div_ceil(PAGE).max(1)).ok()?;
        if self.free_bytes() < octets {
            return None;
        }
        let mut runs = self.0.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = runs.give_up(least, least.checked_next_multiple_of(TRACT_PAGES)?)?;
        self.0.free.fetch_sub(taken.len() * PAGE, Ordering::Relaxed);
        Some(taken)
    }

    /// Takes back pages in a row.
    pub(crate) fn give(&self, pages: Range<u32>) {
        let octets = pages.len() * PAGE;
        let mut runs = self.0.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.take_in(pages);
        self.0.free.fetch_add(octets, Ordering::Relaxed);
    }
}

impl fmt::Debug for Reservoir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservoir").field("free_bytes", &self.free_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
