//! The regions that peers pass, and how many octets of them are mapped.
//!
//! # Limits
//!
//! A peer makes a memfd of any length at no cost, and every mapping takes addresses of our process, of which
//! there are 2^47. So one region has at most [`Config::region_bytes_max`](super::Config::region_bytes_max)
//! octets, and all regions of a provider together [`Config::regions_bytes_max`](super::Config::regions_bytes_max).

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use super::config::Config;
use super::hello::Refusal;
use crate::sys::shared::{Shared, Unfit};

/// Counts the octets of the peers' regions that one provider has mapped.
#[derive(Debug)]
pub(super) struct Regions {
    mapped: Rc<Cell<u64>>,
    one_max: u64,
    all_max: u64,
}

/// A peer's region, counted until dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    memory: Shared,
    all: Rc<Cell<u64>>,
}

/// Why a peer's region is not mapped.
#[derive(Debug)]
pub(super) enum Unmapped {
    /// It exceeds a limit.
    Refused(Refusal),
    /// It is not memory as it should be.
    Unfit(Unfit),
}

impl Regions {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            mapped: Rc::default(),
            one_max: config.region_bytes_max,
            all_max: config.regions_bytes_max,
        }
    }

    /// Maps a memfd that a peer passed as its region of `length` octets.
    pub(super) fn map(&self, memfd: BorrowedFd<'_>, length: u64) -> Result<Mapped, Unmapped> {
        if length > self.one_max {
            return Err(Unmapped::Refused(Refusal::RegionTooLong));
        }
        if length > self.all_max.saturating_sub(self.mapped.get()) {
            return Err(Unmapped::Refused(Refusal::NoRoomForRegion));
        }
        let length = usize::try_from(length).map_err(|_| Unmapped::Unfit(Unfit::Length))?;
        Shared::open(memfd, length).map(|memory| self.hold(memory)).map_err(Unmapped::Unfit)
    }

    /// Counts a region that is mapped.
    pub(super) fn hold(&self, memory: Shared) -> Mapped {
        self.mapped.set(self.mapped.get().saturating_add(memory.len() as u64));
        Mapped { memory, all: Rc::clone(&self.mapped) }
    }
}

impl Mapped {
    #[inline]
    pub(super) const fn memory(&self) -> &Shared {
        &self.memory
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.all.set(self.all.get().saturating_sub(self.memory.len() as u64));
    }
}
