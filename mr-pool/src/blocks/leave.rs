//! Slabs and runs whose blocks go to other slabs, while others may still read them where they are.
//!
//! # Normal operation
//! The blocks of a slab of which few are in use, and those in runs of their own, find room in other slabs of their class. Their
//! owner leases there, copies them, and frees the old blocks once nobody reads these any more. Meanwhile nothing is leased in the slab
//! that they leave; its pages are free when the last block is.
//!
//! # Limits
//! A slab is chosen among the first [`EXAMINED`] of its class that have room, if all of its blocks have tags.

use super::class::{CLASSES, Class};
use super::page::{Block, NONE, Page};
use super::stretch::Resident;
use super::{Allocation, Blocks};

impl Blocks {
    /// Has the blocks of a slab, or of a run, leave it, and appends them to `found`; `tag` returns the tag of the block with a count.
    /// Appends none if moving blocks makes no page free.
    pub(crate) fn begin_to_leave(&mut self, found: &mut Vec<Resident>, tag: impl Fn(usize) -> u32) {
        self.free_idle();
        let mut classes = (0..CLASSES).rev().map(Class::nth);
        let chosen = classes.find_map(|class| {
            let first = self.run_to_leave(class).or_else(|| self.slab_to_leave(class));
            first.map(|first| (class, first))
        });
        let Some((class, first)) = chosen else { return };
        let (mut used, spilled) = match *self.runs.page(first) {
            Page::Slab { free, .. } => (class.all_free() & !free, None),
            _ => (1, Some(class)),
        };
        while used != 0 {
            #[allow(clippy::cast_possible_truncation, reason = "a bit's number is below 64")]
            let block = Block { first, index: used.trailing_zeros() as u8 };
            used &= used - 1;
            let (_, capacity, _) = self.place(block);
            let tag = tag(self.count_index(block));
            found.push(Resident { tag, block, capacity, spilled });
        }
        self.leave(first, class);
    }

    /// Leases a block for one that leaves, in a slab. A run is left for a new slab, too.
    pub(crate) fn take_for(&mut self, from: &Resident) -> Option<Allocation> {
        let block = match from.spilled {
            Some(class) => self.take_from_slab(class, u32::MAX),
            None => self.take_from_slab(Class::of(from.capacity)?, 0),
        };
        Some(self.lend(block?))
    }

    /// Has the blocks that are left in a slab, or in a run, stay there: there was no room for them.
    pub(crate) fn stay(&mut self, from: &Resident) {
        let first = from.block.first;
        match (self.runs.page_mut(first), from.spilled) {
            (Page::Slab { class, is_leaving: is_leaving @ true, free, .. }, None) => {
                *is_leaving = false;
                let (class, free) = (*class, *free);
                self.slabs[class.number()] += 1;
                self.leaving.pages -= class.pages();
                self.leaving.blocks[class.number()] -= class.blocks() - free.count_ones();
                self.list(first);
            }
            (Page::Run { spilled: None, .. }, Some(class)) => self.spill(first, class),
            // It is free by now.
            _ => {}
        }
    }

    /// Takes in that a block in a slab that blocks leave has come home, and frees the slab with the last one.
    #[cold]
    pub(super) fn has_left(&mut self, first: u32, class: Class) {
        self.leaving.blocks[class.number()] -= 1;
        if let Page::Slab { free, .. } = *self.runs.page(first)
            && free == class.all_free()
        {
            self.leaving.pages -= class.pages();
            self.runs.give(first, class.pages());
        }
    }

    /// Has nothing be leased any more where blocks are to leave.
    fn leave(&mut self, first: u32, class: Class) {
        match *self.runs.page(first) {
            Page::Slab { free, .. } => {
                self.unlist(first);
                if let Page::Slab { is_leaving, .. } = self.runs.page_mut(first) {
                    *is_leaving = true;
                }
                self.slabs[class.number()] -= 1;
                self.leaving.pages += class.pages();
                self.leaving.blocks[class.number()] += class.blocks() - free.count_ones();
            }
            _ => self.unspill(first, class),
        }
    }

    /// Returns a run whose block has a tag and finds room in a slab of this class, if that makes pages free.
    fn run_to_leave(&self, class: Class) -> Option<u32> {
        let mut first = self.spilled[class.number()].first;
        if first == NONE || self.mergeable_of(class) == 0 {
            return None;
        }
        if self.roomy[class.number()] == NONE && !self.runs.has(class.pages()) {
            return None;
        }
        for _ in 0..EXAMINED {
            let &Page::Run { is_tagged, next, .. } = self.runs.page_at(first)? else { return None };
            if is_tagged {
                return Some(first);
            }
            first = next;
        }
        None
    }

    /// Returns a slab of this class whose blocks have tags, and find room in the others: the one with the fewest blocks of the first
    /// ones with room.
    fn slab_to_leave(&self, class: Class) -> Option<u32> {
        let all = self.slabs[class.number()] * class.blocks();
        let out = self.out[class.number()] - self.leaving.blocks_of(class);
        // The others have room for its blocks if as many are free as it has, in it or in them.
        if all - out < class.blocks() {
            return None;
        }
        let (mut first, mut found, mut most) = (self.roomy[class.number()], None, 0);
        for _ in 0..EXAMINED {
            let Some(&Page::Slab { next, free, tagged, .. }) = self.runs.page_at(first) else {
                break;
            };
            if tagged == class.all_free() & !free && free.count_ones() > most {
                (found, most) = (Some(first), free.count_ones());
            }
            first = next;
        }
        found
    }
}

/// The most slabs or runs of a class that are examined for one to leave.
const EXAMINED: usize = 16;
