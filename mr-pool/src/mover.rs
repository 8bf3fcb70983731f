//! Moves leases that their owner can find, so that long leases find room.
//!
//! # Memory ownership
//! In a pool that has its region alone, a lease is moved while nothing else refers to its block: no request reads it, and no other
//! reference to it exists. Its octets are copied aside, its block returns to the pool, and another block takes the octets; all of
//! that happens within [`Mover::step`], while nobody else acts on the pool.
//!
//! The leases of a pool that takes memory from a reservoir may be read by other cores at any time. There the octets are copied to
//! another block, the owner of the lease has that take the place of the old one, and the old one comes home when nobody reads it any
//! more. What was to become free is free only then.
//!
//! # Limits
//! A step moves at most 64 KiB in several slabs, or one slab, of at most 256 KiB, and at most 256 leases. It allocates
//! nothing from the heap.

use crate::Pool;
use crate::blocks::{Blocks, Resident, SLAB_BLOCKS_MAX, STRETCH_BLOCKS_MAX, STRETCH_OCTETS_MAX};
use crate::common::Common;
use crate::lease::{LeasePlace, Local};
use crate::pool_core::PoolRef;
use crate::view::Span;

/// The owner of leases with tags.
pub trait Keeper {
    /// Takes the lease at `place` out of where `tag` says that it is kept. Returns `None` if it is not there: then it
    /// is not moved now. A lease that is elsewhere, or to which there are other references, comes back by
    /// [`Self::put`].
    fn take(&mut self, tag: u32, place: LeasePlace) -> Option<Movable>;

    /// Takes a lease back that [`Self::take`] returned for the same `tag` and `place`. It may be at another place now,
    /// and has the same octets and the same tag.
    fn put(&mut self, tag: u32, place: LeasePlace, lease: Movable);

    /// Has another lease take the place of the one at `place`, which is kept where `tag` says and which others may read. `again`
    /// makes it of the octets of the old one, or returns `None` if there is no room. Called instead of [`Self::take`] if the pool
    /// takes memory from a reservoir.
    fn replace(
        &mut self,
        tag: u32,
        place: LeasePlace,
        again: &mut dyn FnMut(&[u8]) -> Option<Local>,
    ) -> Replaced;
}

/// The outcome of [`Keeper::replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Another lease is there now. The old one comes home when nobody reads it.
    Done,
    /// The lease is not there any more. It comes home, too.
    Gone,
    /// There is no room for another one: the lease stays.
    Stays,
}

/// A lease that can be moved.
#[derive(Debug)]
pub enum Movable {
    /// An owned one.
    Local(Local),
    /// A common one, to which there is no other reference.
    Common(Common),
}

impl Movable {
    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Local(lease) => lease.bytes(),
            Self::Common(lease) => lease.bytes(),
        }
    }

    /// Returns whether the lease is at `place`, and nothing else refers to its block.
    fn is_all_of(&self, place: LeasePlace) -> bool {
        match self {
            Self::Local(lease) => lease.place() == place,
            Self::Common(lease) => lease.place() == place && lease.is_alone(),
        }
    }
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is room.
    Room,
    /// There is no room yet: leases were moved or looked at, and another step may make room.
    More,
    /// There is no room, and moving makes none.
    Full,
}

/// Moves the leases of one pool.
#[derive(Debug)]
pub struct Mover {
    residents: Vec<Resident>,
    taken: Vec<Taken>,
    /// The octets of the leases that are being moved.
    aside: Box<[u8]>,
    moved: Moved,
}

/// The leases moved since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The number of leases.
    pub leases: u64,
    /// The octets of these leases.
    pub octets: u64,
}

/// A lease that is being moved.
#[derive(Debug)]
struct Taken {
    resident: Resident,
    /// `None` once its octets are copied aside.
    lease: Option<Movable>,
    is_common: bool,
    length: usize,
}

impl Taken {
    fn order(&self) -> usize {
        self.resident.order(self.length)
    }
}

impl Mover {
    /// Allocates the memory of a mover: some 300 KiB, of which little is in use before leases are moved.
    pub fn new() -> Self {
        Self {
            residents: Vec::with_capacity(STRETCH_BLOCKS_MAX + SLAB_BLOCKS_MAX),
            taken: Vec::with_capacity(STRETCH_BLOCKS_MAX),
            aside: vec![0; STRETCH_OCTETS_MAX].into(),
            moved: Moved::default(),
        }
    }

    /// Makes room for a lease of `length` octets, as far as one step does.
    pub fn step(&mut self, pool: &Pool, keeper: &mut impl Keeper, length: usize) -> Step {
        if pool.reservoir().is_some() {
            return self.leave(pool, keeper, length);
        }
        let pool = pool.core().pool();
        let blocks = &pool.owner().blocks;
        blocks.borrow_mut().free_idle();
        if blocks.borrow().has_room(length) {
            blocks.borrow_mut().end_sweep();
            return Step::Room;
        }
        if !blocks.borrow_mut().may_make_room(length) {
            return Step::Full;
        }
        self.residents.clear();
        if let Some(pages) = pool.next_stretch(&mut self.residents) {
            if self.take_out(keeper) {
                self.copy_aside();
                // With the idle slab freed as well, the stretch is one free run.
                blocks.borrow_mut().free_idle();
                self.copy_back(pool, keeper);
                blocks.borrow_mut().end_stretch(pages.end);
            } else {
                blocks.borrow_mut().skip(pages.end);
            }
        }
        // The caller may lease now, without another step that would end the sweep.
        if blocks.borrow().has_room(length) {
            blocks.borrow_mut().end_sweep();
        }
        Step::More
    }

    /// Has leases leave slabs in which there are few, and runs of their own.
    fn leave(&mut self, pool: &Pool, keeper: &mut impl Keeper, length: usize) -> Step {
        pool.collect();
        if pool.has_room(length) {
            return Step::Room;
        }
        let (mut octets, mut leases, pool) = (0, 0, pool.core().pool());
        'units: while octets < LEFT_PER_STEP && leases < STRETCH_BLOCKS_MAX - SLAB_BLOCKS_MAX {
            self.residents.clear();
            pool.begin_to_leave(&mut self.residents);
            if self.residents.is_empty() {
                break;
            }
            for resident in &self.residents {
                let place = LeasePlace(resident.block);
                let mut again = |octets: &[u8]| {
                    let take = |blocks: &mut Blocks| blocks.take_for(resident);
                    let (block, span) = Span::take(pool, octets.len(), take)?;
                    let mut lease = Local::new(pool, block, span);
                    lease.bytes_mut().copy_from_slice(octets);
                    lease.tag(resident.tag);
                    self.moved.leases += 1;
                    self.moved.octets += octets.len() as u64;
                    Some(lease)
                };
                if keeper.replace(resident.tag, place, &mut again) == Replaced::Stays {
                    pool.owner().blocks.borrow_mut().stay(resident);
                    break 'units;
                }
                octets += resident.capacity;
                leases += 1;
            }
        }
        if octets > 0 { Step::More } else { Step::Full }
    }

    /// Returns what was moved since the start.
    pub const fn moved(&self) -> Moved {
        self.moved
    }

    /// Takes the leases of a stretch from their owner, or none. Returns whether it has all of them.
    fn take_out(&mut self, keeper: &mut impl Keeper) -> bool {
        let Self { residents, taken, .. } = self;
        for resident in &*residents {
            let place = LeasePlace(resident.block);
            let Some(lease) = keeper.take(resident.tag, place) else { break };
            if !lease.is_all_of(place) {
                keeper.put(resident.tag, place, lease);
                break;
            }
            let (is_common, length) = (matches!(lease, Movable::Common(_)), lease.bytes().len());
            taken.push(Taken { resident: *resident, lease: Some(lease), is_common, length });
        }
        let has_all = taken.len() == residents.len();
        if !has_all {
            for Taken { resident, lease, .. } in taken.drain(..) {
                if let Some(lease) = lease {
                    keeper.put(resident.tag, LeasePlace(resident.block), lease);
                }
            }
        }
        has_all
    }

    /// Copies the octets of the leases aside and drops the leases, so that all of the stretch is free.
    fn copy_aside(&mut self) {
        let Self { taken, aside, .. } = self;
        taken.sort_unstable_by_key(Taken::order);
        let mut rest = &mut aside[..];
        for Taken { lease, .. } in taken {
            if let Some(lease) = lease.take() {
                let (part, behind) = rest.split_at_mut(lease.bytes().len());
                part.copy_from_slice(lease.bytes());
                rest = behind;
            }
        }
    }

    /// Leases again what was copied aside, and returns it to its owner.
    fn copy_back(&mut self, pool: PoolRef, keeper: &mut impl Keeper) {
        let Self { taken, aside, moved, .. } = self;
        let mut rest = &aside[..];
        for at in 0..taken.len() {
            let Taken { resident, is_common, length, .. } = taken[at];
            let order = taken[at].order();
            let alike = taken[at..].iter().take_while(|it| it.order() == order);
            let pages_max = alike.map(|it| it.resident.pages()).sum();
            let again = |blocks: &mut Blocks| Some(blocks.take_again(&resident, length, pages_max));
            let Some((block, span)) = Span::take(pool, length, again) else { continue };
            let mut lease = Local::new(pool, block, span);
            let (part, behind) = rest.split_at(length);
            lease.bytes_mut().copy_from_slice(part);
            rest = behind;
            lease.tag(resident.tag);
            let lease = if is_common {
                Movable::Common(lease.into_common())
            } else {
                Movable::Local(lease)
            };
            keeper.put(resident.tag, LeasePlace(resident.block), lease);
            moved.leases += 1;
            moved.octets += length as u64;
        }
        taken.clear();
    }
}

/// The octets of blocks that a step has leave, unless they are in one slab.
const LEFT_PER_STEP: usize = 64 << 10;

impl Default for Mover {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
