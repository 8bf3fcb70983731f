//! The sweep: which blocks to move, and to where, so that free memory becomes long runs.
//!
//! # Normal operation
//! Slabs with few blocks in use, and free runs too short for a slab, are free memory of which no use can be made. The
//! sweep goes through the region from its start to its end, one stretch of movable blocks after another. The owner of
//! the blocks copies those of a stretch aside and frees them, so that the whole stretch is one free run, and then leases
//! them again. They fill slabs that have room, wherever these are, then free runs that just fit, and then the front of
//! the stretch. What is left of it is one free run at its end, where the next stretch begins: it grows with all that is
//! free on its way, until it is as long as is wanted.
//!
//! A block with a tag can be moved while there is one reference to it. Other blocks are obstacles: the sweep leaves its
//! run in front of them, and goes on behind.
//!
//! # Limits
//! A step examines at most [`UNITS_PER_STEP`] runs and slabs. A stretch has at most [`STRETCH_BLOCKS_MAX`] blocks, of
//! [`STRETCH_OCTETS_MAX`](super::STRETCH_OCTETS_MAX) octets, or of [`STRETCH_OCTETS`] if they are in several slabs. A sweep ends after one lap.
//! None begins if less than one part in [`RESERVE_SHARE`] of the region would be left free after all were moved; nor
//! behind a lap in vain, before as many pages were freed, or asked for in vain, since that lap began.

use std::ops::Range;

use super::class::{CLASSES, Class};
use super::page::{Block, NONE, Page};
use super::stretch::{Resident, STRETCH_BLOCKS_MAX, Sweep};
use super::{Allocation, Blocks, Spilled};
use crate::size::PAGE;

impl Blocks {
    /// Notes that a block can be moved.
    pub(crate) fn tag(&mut self, block: Block) {
        match self.runs.page_mut(block.first) {
            Page::Slab { tagged, .. } => *tagged |= 1 << block.index,
            Page::Run { is_tagged, .. } => *is_tagged = true,
            other => unreachable!("a block that is out names the head of a run, not {other:?}"),
        }
    }

    /// Returns whether there is room for `length` octets: in a slab, or in free pages, wherever these are.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        match Class::of(length) {
            Some(class) if self.roomy[class.number()] != NONE => true,
            Some(class) if class.saves_pages() => self.runs.has(class.pages()),
            _ => self.runs.free_pages() as usize >= length.div_ceil(PAGE).max(1),
        }
    }

    /// Returns how many octets of free pages in a row a block of `length` octets takes if no slab has room.
    pub(crate) fn octets_in_a_row(length: usize) -> usize {
        (pages_in_a_row(length) as usize).saturating_mul(PAGE)
    }

    /// Returns whether there may be room for a block of `length` octets once enough blocks have moved. Called when
    /// there is none.
    pub(crate) fn may_make_room(&mut self, length: usize) -> bool {
        if self.room_pages() < pages_in_a_row(length) as usize {
            return false;
        }
        let reserve = self.reserve() * PAGE;
        let Sweep { swept, freed_before, .. } = &mut self.sweep;
        if *swept as usize > self.runs.pages() {
            if self.freed_bytes.wrapping_sub(*freed_before) < reserve {
                // Blocks that were in use may be movable by now, even if nothing was freed: let the next lap come
                // sooner.
                *freed_before = freed_before.wrapping_sub(PAGE);
                return false;
            }
            *swept = 0;
        }
        if *swept == 0 {
            *freed_before = self.freed_bytes;
        }
        true
    }

    /// Returns the number of free pages, or that of all pages that moving blocks can make free, if that is greater.
    pub(crate) fn room_pages(&mut self) -> usize {
        self.free_idle();
        let free = self.runs.free_pages() as usize;
        free.max((free + self.mergeable_pages()).saturating_sub(self.reserve()))
    }

    /// Returns the number of free pages, with all that moving blocks to other slabs can make free.
    pub(crate) fn room_pages_by_leaving(&mut self) -> usize {
        self.free_idle();
        (self.runs.free_pages() + self.leaving.pages) as usize + self.mergeable_pages()
    }

    /// Returns the number of pages that would be free as well if the blocks of each class were in as few slabs as can
    /// hold them.
    fn mergeable_pages(&self) -> usize {
        (0..CLASSES).map(|number| self.mergeable_of(Class::nth(number)) as usize).sum()
    }

    /// Returns the number of pages that would be free as well if the blocks of a class were in as few slabs as can hold them.
    pub(super) fn mergeable_of(&self, class: Class) -> u32 {
        let Spilled { blocks, pages, .. } = self.spilled[class.number()];
        let taken = self.slabs[class.number()] * class.pages() + pages;
        let out = self.out[class.number()] - self.leaving.blocks_of(class);
        let needed = (out + blocks).div_ceil(class.blocks());
        taken.saturating_sub(needed * class.pages())
    }

    /// Notes that there was room: the next sweep may go a whole lap.
    pub(crate) fn end_sweep(&mut self) {
        self.sweep.swept = 0;
    }

    /// Goes to the next stretch and appends its blocks to `found`. `tag` returns the tag of the block with a count, if
    /// there is only one reference to the block. Returns the pages of the stretch, or `None` if the sweep has met none
    /// yet.
    pub(crate) fn next_stretch(
        &mut self,
        found: &mut Vec<Resident>,
        tag: impl Fn(usize) -> Option<u32>,
    ) -> Option<Range<u32>> {
        let mut at = self.runs.cursor();
        let (mut start, mut octets) = (None, 0);
        for _ in 0..UNITS_PER_STEP {
            if at as usize >= self.runs.pages() {
                break;
            }
            let (pages, may_start) = self.unit(at);
            if !matches!(self.runs.page(at), Page::Free { .. }) {
                let before = found.len();
                let moves = (start.is_some() || may_start)
                    && self.residents(at, &tag, found)
                    && (before == 0 || octets + capacity(&found[before..]) <= STRETCH_OCTETS)
                    && found.len() <= STRETCH_BLOCKS_MAX;
                if !moves {
                    found.truncate(before);
                    if before > 0 {
                        break;
                    }
                    start = None;
                    at += pages;
                    continue;
                }
                octets += capacity(&found[before..]);
            }
            start = start.or(Some(at));
            at += pages;
        }
        // A stretch ends before pages in use, or at the end of the region.
        if (at as usize) < self.runs.pages()
            && let Page::Free { pages, .. } = *self.runs.page(at)
        {
            at += pages;
        }
        match start.filter(|_| !found.is_empty()) {
            Some(start) => Some(start..at),
            None => {
                self.end_stretch(at);
                None
            }
        }
    }

    /// Leases a block again that was in a stretch. `pages_max` is the most pages that a new slab may have if the block
    /// was a run: at most those of all runs of its [order](Resident::order) that are still to be leased.
    ///
    /// # Panics
    /// If there is no room: all blocks of the stretch were freed before, those of slabs are leased again first, and
    /// those of an order together. Those of slabs take no more new slabs than the stretch had; those of runs take no more
    /// pages than they had, or a slab of no more pages than all that go there had. What is left of the stretch is one
    /// run, from the front of which the allocator takes any number of pages that a slab or such a run has.
    pub(crate) fn take_again(
        &mut self,
        from: &Resident,
        length: usize,
        pages_max: u32,
    ) -> Allocation {
        let block = match from.spilled {
            None => Class::of(from.capacity).and_then(|class| self.take_from_slab(class, u32::MAX)),
            Some(class) => Some(class)
                .filter(|class| class.size() >= length)
                .and_then(|class| self.take_from_slab(class, pages_max))
                .or_else(|| self.take_run(from.pages(), Some(class))),
        };
        let Some(block) = block else { panic!("a stretch has room for its own blocks") };
        // Moving a block frees no octets.
        self.freed_bytes = self.freed_bytes.wrapping_sub(from.capacity);
        self.lend(block)
    }

    /// Ends a stretch that reached up to the page `end`.
    pub(crate) fn end_stretch(&mut self, end: u32) {
        let Sweep { reached, swept, .. } = &mut self.sweep;
        *swept = swept.saturating_add(end.saturating_sub(*reached));
        *reached = end;
        if end as usize >= self.runs.pages() {
            *reached = 0;
            return self.runs.set_cursor(0);
        }
        let next = self.runs.free_before(end).unwrap_or(end);
        self.runs.set_cursor(next);
    }

    /// Goes on behind the run or slab at the cursor, which cannot be moved after all.
    pub(crate) fn skip(&mut self, end: u32) {
        self.end_stretch(end);
        self.runs.set_cursor(end);
    }

    /// Returns the number of free pages for which no block is moved.
    fn reserve(&self) -> usize {
        (self.runs.pages() / RESERVE_SHARE).max(1)
    }

    /// Returns the number of pages of the run or slab at `head`, and whether a stretch may begin with it: with a free
    /// run, or with a block that may find room in a slab.
    fn unit(&self, head: u32) -> (u32, bool) {
        match *self.runs.page(head) {
            Page::Free { pages, .. } => (pages, true),
            Page::Run { pages, spilled, .. } => (pages, spilled.is_some()),
            Page::Slab { class, free, .. } => {
                let all = self.slabs[class.number()] * class.blocks();
                let is_sparse = all - self.out[class.number()] >= class.blocks();
                (class.pages(), free != 0 && is_sparse)
            }
            other => unreachable!("the cursor is at a head, not {other:?}"),
        }
    }

    /// Appends the blocks of the slab or run at `head`. Returns false if one of them cannot be moved.
    fn residents(
        &self,
        head: u32,
        tag: &impl Fn(usize) -> Option<u32>,
        found: &mut Vec<Resident>,
    ) -> bool {
        let (mut used, spilled) = match *self.runs.page(head) {
            Page::Slab { class, free, tagged, .. } if tagged == class.all_free() & !free => {
                (tagged, None)
            }
            Page::Run { spilled: Some(class), is_tagged: true, .. } => (1, Some(class)),
            _ => return false,
        };
        while used != 0 {
            #[allow(clippy::cast_possible_truncation, reason = "a bit's number is below 64")]
            let block = Block { first: head, index: used.trailing_zeros() as u8 };
            used &= used - 1;
            let Some(tag) = tag(self.count_index(block)) else { return false };
            let (_, capacity, _) = self.place(block);
            found.push(Resident { tag, block, capacity, spilled });
        }
        true
    }
}

/// Returns how many pages in a row a block of `length` octets takes if no slab has room: those of a slab, or its own if
/// that takes no more.
fn pages_in_a_row(length: usize) -> u32 {
    let alone = u32::try_from(length.div_ceil(PAGE).max(1)).unwrap_or(u32::MAX);
    Class::of(length).filter(|class| class.saves_pages()).map_or(alone, Class::pages)
}

fn capacity(residents: &[Resident]) -> usize {
    residents.iter().map(|resident| resident.capacity).sum()
}

/// The most octets in the blocks of a stretch of several slabs and runs.
const STRETCH_OCTETS: usize = 64 << 10;
/// The most runs and slabs that a step examines.
const UNITS_PER_STEP: usize = 4096;
/// The sweep leaves one part in this many of the region alone.
const RESERVE_SHARE: usize = 64;
