//! The regions that peers pass, and how many octets of them are mapped, or will be.
//!
//! # Limits
//!
//! A peer makes a memfd of any length at no cost, and every mapping takes addresses of our process, of which there are
//! 2^47. So one region has at most [`Config::region_bytes_max`](super::Config::region_bytes_max) octets, and all
//! regions of a provider together [`Config::regions_bytes_max`](super::Config::regions_bytes_max). The regions of one
//! process together have at most half of that: the length of a region says nothing of the memory behind it, so one
//! process could otherwise take all the room with one memfd. Processes to which the system gives no number here,
//! because they are outside our PID namespace, share one half.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use super::config::Config;
use super::hello::Refusal;
use crate::sys::shared::{Shared, Unfit};

/// Counts the octets of the peers' regions that one provider has mapped, or will map.
#[derive(Debug)]
pub(super) struct Regions {
    mapped: Rc<RefCell<Sums>>,
    one_max: u64,
    all_max: u64,
}

/// Room for a peer's region, counted until dropped.
#[derive(Debug)]
pub(super) struct Room {
    sums: Rc<RefCell<Sums>>,
    process: i32,
    octets: usize,
}

/// A peer's region, counted until dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    memory: Shared,
    _room: Room,
}

/// Octets of the regions that are mapped.
#[derive(Debug, Default)]
struct Sums {
    all: u64,
    /// Octets of the regions of each process that has any, by its number.
    of: HashMap<i32, u64>,
}

/// The reason that a peer's region is not mapped.
#[derive(Debug)]
pub(super) enum Unmapped {
    /// It exceeds a limit.
    Refused(Refusal),
    /// The memfd is not suitable.
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

    /// Checks a memfd that the process `process` passed as its region of `length` octets. Returns room to map it.
    pub(super) fn check(
        &self,
        memfd: BorrowedFd<'_>,
        length: u64,
        process: i32,
    ) -> Result<Room, Unmapped> {
        if length > self.one_max {
            return Err(Unmapped::Refused(Refusal::RegionTooLong));
        }
        if length > self.room_for(process) {
            return Err(Unmapped::Refused(Refusal::NoRoomForRegion));
        }
        let length = usize::try_from(length).map_err(|_| Unmapped::Unfit(Unfit::Length))?;
        Shared::check(memfd, length).map_err(Unmapped::Unfit)?;
        Ok(self.take(process, length))
    }

    /// Counts a region of a process that is mapped.
    #[cfg(test)]
    pub(super) fn hold(&self, memory: Shared, process: i32) -> Mapped {
        Mapped { _room: self.take(process, memory.len()), memory }
    }

    fn take(&self, process: i32, octets: usize) -> Room {
        self.mapped.borrow_mut().add(process, octets as u64);
        Room { sums: Rc::clone(&self.mapped), process, octets }
    }

    /// Returns how many more octets a process may have mapped.
    fn room_for(&self, process: i32) -> u64 {
        let sums = self.mapped.borrow();
        let own = sums.of.get(&process).copied().unwrap_or(0);
        let share = self.all_max / 2;
        self.all_max.saturating_sub(sums.all).min(share.saturating_sub(own))
    }
}

impl Sums {
    fn add(&mut self, process: i32, octets: u64) {
        self.all = self.all.saturating_add(octets);
        let own = self.of.entry(process).or_default();
        *own = own.saturating_add(octets);
    }

    fn subtract(&mut self, process: i32, octets: u64) {
        self.all = self.all.saturating_sub(octets);
        let Some(own) = self.of.get_mut(&process) else { return };
        *own = own.saturating_sub(octets);
        if *own == 0 {
            self.of.remove(&process);
        }
    }
}

impl Mapped {
    #[inline]
    pub(super) const fn memory(&self) -> &Shared {
        &self.memory
    }
}

impl Room {
    /// Maps the region that the room is for.
    pub(super) fn map(self, memfd: BorrowedFd<'_>) -> Result<Mapped, Unfit> {
        let memory = Shared::open(memfd, self.octets)?;
        Ok(Mapped { memory, _room: self })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.sums.borrow_mut().subtract(self.process, self.octets as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn regions() -> (Regions, OwnedFd) {
        let config =
            Config { region_bytes_max: 4 * MIB, regions_bytes_max: 10 * MIB, ..Config::default() };
        (Regions::new(&config), Shared::create(c"test", 4 << 20).unwrap().1)
    }

    #[test]
    fn a_process_has_half_of_the_room_and_gives_it_back() {
        let (regions, memfd) = regions();
        let map = |process| regions.check(memfd.as_fd(), 4 * MIB, process);
        let no_room = |result| matches!(result, Err(Unmapped::Refused(Refusal::NoRoomForRegion)));
        let first = map(1).unwrap().map(memfd.as_fd()).unwrap();
        assert!(no_room(map(1)), "one process has its share");
        let second = map(2).unwrap();
        assert!(no_room(map(3)), "the whole is in use");
        drop(first);
        assert!(no_room(map(2)));
        let again = map(1).unwrap();
        drop((second, again));
        assert_eq!(regions.mapped.borrow().all, 0);
        assert!(regions.mapped.borrow().of.is_empty(), "no process is remembered");
    }
}
