//! Memory that the pools of several cores share.
//!
//! # Normal operation
//! One region is divided into tracts of 2 MiB. A pool takes tracts as its leases need them, and gives back those of which nothing is
//! leased. So a core can have nearly all of the memory, whatever the others were expected to need, and each block stays with the
//! pool that leased it.
//!
//! # Limits
//! A tract goes back only if all of it is free.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::region::{PageReport, Region};
use crate::size::{PAGE, TRACT, TRACT_PAGES};

/// A region from which the pools of one process take memory: see [`Pool::of`](crate::Pool::of).
#[derive(Clone)]
pub struct Reservoir(Arc<Tracts>);

struct Tracts {
    region: Arc<Region>,
    report: PageReport,
    /// The number of free tracts.
    count: AtomicUsize,
    free: Lock<Free>,
}

/// A lock that a core takes when it takes a tract, or gives some back.
#[expect(clippy::disallowed_types, reason = "a tract has room for more leases than a turn makes")]
type Lock<T> = std::sync::Mutex<T>;

/// Which tracts are free.
#[derive(Debug)]
struct Free {
    tracts: Vec<bool>,
    /// There is none before this one.
    from: usize,
}

impl Reservoir {
    /// Maps a region, and fills it with pages. Its size is rounded up to whole tracts.
    ///
    /// # Errors
    /// If the system does not have that much memory, or if no pool could manage it.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let too_large = || PoolError::TooLarge { bytes: config.bytes };
        let bytes = config.bytes.max(1).checked_next_multiple_of(TRACT).ok_or_else(too_large)?;
        u32::try_from(bytes / PAGE).ok().filter(|&pages| pages < u32::MAX).ok_or_else(too_large)?;
        let (region, report) = Region::new(bytes, config.pages, config.node)?;
        let (count, tracts) = (bytes / TRACT, vec![true; bytes / TRACT]);
        let free = Lock::new(Free { tracts, from: 0 });
        let count = AtomicUsize::new(count);
        Ok(Self(Arc::new(Tracts { region: Arc::new(region), report, count, free })))
    }

    /// Returns the number of octets that no pool has.
    pub fn free_bytes(&self) -> usize {
        self.0.count.load(Ordering::Relaxed) * TRACT
    }

    pub(crate) fn region(&self) -> Arc<Region> {
        Arc::clone(&self.0.region)
    }

    pub(crate) fn report(&self) -> &PageReport {
        &self.0.report
    }

    /// Takes tracts that adjoin each other, with as many octets, and returns their pages.
    pub(crate) fn take(&self, octets: usize) -> Option<Range<u32>> {
        let wanted = octets.div_ceil(TRACT).max(1);
        if self.0.count.load(Ordering::Relaxed) < wanted {
            return None;
        }
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Free { tracts, from } = &mut *free;
        *from += tracts[*from..].iter().take_while(|is_free| !**is_free).count();
        let mut start = *from;
        while start + wanted <= tracts.len() {
            match tracts[start..start + wanted].iter().rposition(|is_free| !is_free) {
                Some(taken) => start += taken + 1,
                None => {
                    tracts[start..start + wanted].fill(false);
                    self.0.count.fetch_sub(wanted, Ordering::Relaxed);
                    return Some(page_of(start)..page_of(start + wanted));
                }
            }
        }
        None
    }

    /// Takes back the tract that begins at a page.
    pub(crate) fn give(&self, page: u32) {
        let tract = (page / TRACT_PAGES) as usize;
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.tracts[tract] = true;
        free.from = free.from.min(tract);
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Reservoir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservoir").field("free_bytes", &self.free_bytes()).finish_non_exhaustive()
    }
}

/// Returns the first page of a tract.
#[expect(clippy::cast_possible_truncation, reason = "a region has fewer than 2^32 pages")]
const fn page_of(tract: usize) -> u32 {
    tract as u32 * TRACT_PAGES
}

#[cfg(test)]
mod tests;
