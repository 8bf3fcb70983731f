//! The allocator of a region's blocks: blocks of a size class come from slabs; larger blocks, and those that no slab
//! has room for, are page runs.
//!
//! It is plain arithmetic on page numbers and does not access the memory of the region.
//!
//! A block can have a tag, by which its owner finds it again. [`sweep`] gathers such blocks to be moved, so that blocks
//! free in slabs become free pages, and free pages longer runs.
//!
//! # Limits
//!
//! Every operation takes bounded time. Nothing is allocated after [`Blocks::new`].

use self::class::{CLASSES, Class};
use std::ops::Range;

use self::page::NONE;
use self::stretch::{Leaving, Sweep};
use crate::size::PAGE;

mod class;
mod leave;
mod page;
mod runs;
mod stretch;
mod sweep;
#[cfg(test)]
mod tests;

pub(crate) use self::class::SLAB_BLOCKS_MAX;
pub(crate) use self::page::{Block, Page};
pub(crate) use self::runs::Runs;
pub(crate) use self::stretch::{Resident, STRETCH_BLOCKS_MAX, STRETCH_OCTETS_MAX};

/// The longest lease, in octets.
pub(crate) const LEASE_MAX: usize = 1 << 30;

/// The number of size classes of slabs, and one more for all larger blocks.
pub(crate) const KINDS: usize = CLASSES + 1;

/// A block that was just allocated.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) block: Block,
    /// The offset from the start of the region, in octets.
    pub(crate) offset: usize,
    /// The length in octets, at least the length requested.
    pub(crate) capacity: usize,
}

/// The allocator of one region.
#[derive(Debug)]
pub(crate) struct Blocks {
    runs: Runs,
    /// The first slab with room of each class.
    roomy: [u32; CLASSES],
    /// The slab whose last block came home last: it is kept for the next block of its class until a run is wanted.
    idle: u32,
    /// The number of blocks in use, by class; the last entry counts page runs.
    out: [u32; KINDS],
    leased_bytes: usize,
    /// The octets of all blocks freed since the start and not only moved, modulo 2^64.
    freed_bytes: usize,
    /// The number of slabs, by class.
    slabs: [u32; CLASSES],
    /// The blocks for which there was no slab, by class.
    spilled: [Spilled; CLASSES],
    leaving: Leaving,
    sweep: Sweep,
}

/// Blocks of one class in runs of their own.
#[derive(Clone, Copy, Debug)]
struct Spilled {
    blocks: u32,
    pages: u32,
    /// The first of these runs.
    first: u32,
}

impl Spilled {
    const NONE: Self = Self { blocks: 0, pages: 0, first: NONE };
}

impl Blocks {
    /// Creates an allocator of `pages` free pages. Returns `None` if there is no memory for its
    /// state.
    pub(crate) fn new(pages: u32) -> Option<Self> {
        Some(Self::of(Runs::new(pages)?))
    }

    /// Creates an allocator of as many pages as `held` has, none of which is there yet: [`Self::take_in`] adds them. They are
    /// all held.
    pub(crate) fn none(held: Box<[Page]>) -> Self {
        Self::of(Runs::none(held))
    }

    fn of(runs: Runs) -> Self {
        Self {
            runs,
            roomy: [NONE; CLASSES],
            idle: NONE,
            out: [0; KINDS],
            leased_bytes: 0,
            freed_bytes: 0,
            slabs: [0; CLASSES],
            spilled: [Spilled::NONE; CLASSES],
            leaving: Leaving::default(),
            sweep: Sweep::default(),
        }
    }

    /// Takes in pages that are free from now on.
    pub(crate) fn take_in(&mut self, pages: Range<u32>) {
        self.runs.take_in(pages);
    }

    /// Gives up free pages in a row, `most` of them at most.
    pub(crate) fn give_up(&mut self, most: u32) -> Option<Range<u32>> {
        self.free_idle();
        self.runs.give_up(1, most)
    }

    /// Allocates a block of at least `length` octets.
    pub(crate) fn take(&mut self, length: usize) -> Option<Allocation> {
        if length > LEASE_MAX {
            return None;
        }
        // Where no slab fits any more, a run just long enough still may.
        let class = Class::of(length);
        let block = match class.and_then(|class| self.take_from_slab(class, u32::MAX)) {
            Some(block) => block,
            None => self.take_run(pages_of(length), class)?,
        };
        Some(self.lend(block))
    }

    /// Allocates a block of at least `length` octets, unless it takes more memory than such blocks do in a slab.
    pub(crate) fn take_dense(&mut self, length: usize) -> Option<Allocation> {
        match Class::of(length).filter(|class| class.saves_pages()) {
            Some(class) => self.take_from_slab(class, u32::MAX).map(|block| self.lend(block)),
            None => self.take(length),
        }
    }

    /// Allocates a page run of at least `length` octets, even if a slab has blocks of that length. It keeps no slab from
    /// becoming empty.
    pub(crate) fn take_pages(&mut self, length: usize) -> Option<Allocation> {
        let block = self.take_run(pages_of(length), None)?;
        Some(self.lend(block))
    }

    /// Returns whether blocks of `length` octets take less memory in slabs than alone.
    pub(crate) fn is_denser_in_slabs(length: usize) -> bool {
        Class::of(length).is_some_and(Class::saves_pages)
    }

    /// Frees a block.
    pub(crate) fn give(&mut self, block: Block) {
        let (_, capacity, kind) = self.place(block);
        self.out[kind] -= 1;
        self.leased_bytes -= capacity;
        self.freed_bytes = self.freed_bytes.wrapping_add(capacity);
        match *self.runs.page(block.first) {
            Page::Slab { .. } => self.give_to_slab(block),
            Page::Run { pages, spilled, .. } => {
                if let Some(class) = spilled {
                    self.unspill(block.first, class);
                }
                self.runs.give(block.first, pages);
            }
            other => unreachable!("a block that is out names the head of a run, not {other:?}"),
        }
    }

    /// Returns the index of the reference count of a block: no other block in use has it.
    ///
    /// Counts are stored outside the region, where no peer can write them. A block of a page or more has the count of
    /// the page it starts in. Smaller blocks have separate counts for each doubling of their size: as many for a page
    /// as it holds blocks of the least size. So the counts in use are as close together as the blocks are.
    #[inline]
    pub(crate) fn count_index(&self, block: Block) -> usize {
        let Page::Slab { class, .. } = *self.runs.page(block.first) else {
            return block.first as usize;
        };
        let Some(shift) = class.counts_shift() else {
            let (offset, ..) = self.place(block);
            return offset / PAGE;
        };
        // In front are a count for each page, and the counts of the smaller sizes.
        let before = self.runs.pages() * (1 + 2 * (COUNTS_PER_PAGE_MAX - (1 << shift)));
        before + ((block.first as usize) << shift) + usize::from(block.index)
    }

    /// Returns the number of counts for the blocks of `pages` pages.
    pub(crate) const fn counts(pages: u32) -> usize {
        pages as usize * COUNTS_PER_PAGE
    }

    /// Returns the number of blocks in use of each class; the last entry counts page runs.
    pub(crate) const fn out(&self) -> &[u32; KINDS] {
        &self.out
    }

    /// Returns whether every block is free.
    pub(crate) fn all_home(&self) -> bool {
        self.leased_bytes == 0
    }

    /// Returns the capacity of all blocks in use, in octets.
    pub(crate) const fn leased_bytes(&self) -> usize {
        self.leased_bytes
    }

    /// Returns the number of octets in free pages, those of the idle slab among them.
    pub(crate) fn free_bytes(&self) -> usize {
        let idle = match self.runs.page_at(self.idle) {
            Some(Page::Slab { class, .. }) => class.pages(),
            _ => 0,
        };
        (self.runs.free_pages() + idle) as usize * PAGE
    }

    /// Frees the pages of the idle slab.
    pub(crate) fn free_idle(&mut self) {
        let first = std::mem::replace(&mut self.idle, NONE);
        if let Some(Page::Slab { class, .. }) = self.runs.page_at(first) {
            let class = *class;
            self.unlist(first);
            self.slabs[class.number()] -= 1;
            self.runs.give(first, class.pages());
        }
    }

    /// Returns the length of a free run in octets; no other free run is more than an eighth longer.
    pub(crate) fn largest_run(&mut self) -> usize {
        self.free_idle();
        self.runs.largest() as usize * PAGE
    }

    /// Returns the capacity of blocks of a kind, or `None` for page runs, which are as long as
    /// requested.
    pub(crate) fn capacity_of(kind: usize) -> Option<usize> {
        (kind < CLASSES).then(|| Class::nth(kind).size())
    }

    /// Returns a block's offset, capacity and kind.
    fn place(&self, block: Block) -> (usize, usize, usize) {
        let start = address(block.first);
        match *self.runs.page(block.first) {
            Page::Slab { class, .. } => {
                let size = class.size();
                (start + size * usize::from(block.index), size, class.number())
            }
            Page::Run { pages, .. } => (start, pages as usize * PAGE, CLASSES),
            other => unreachable!("a block that is out names the head of a run, not {other:?}"),
        }
    }

    /// Counts a block as in use.
    fn lend(&mut self, block: Block) -> Allocation {
        let (offset, capacity, kind) = self.place(block);
        self.out[kind] += 1;
        self.leased_bytes += capacity;
        Allocation { block, offset, capacity }
    }

    /// Takes a run for one block, which would be of `class` in a slab.
    fn take_run(&mut self, pages: u32, class: Option<Class>) -> Option<Block> {
        self.free_idle();
        let first = self.runs.take(pages)?;
        if let Some(class) = class {
            self.spill(first, class);
        }
        Some(Block { first, index: 0 })
    }

    /// Lists the run of a block that would be in a slab of this class, had there been one.
    fn spill(&mut self, first: u32, class: Class) {
        let all = &mut self.spilled[class.number()];
        let behind = std::mem::replace(&mut all.first, first);
        if let Page::Run { pages, spilled, prev, next, .. } = self.runs.page_mut(first) {
            (*spilled, *prev, *next) = (Some(class), NONE, behind);
            all.blocks += 1;
            all.pages += *pages;
        }
        if let Some(Page::Run { prev, .. }) = self.runs.link(behind) {
            *prev = first;
        }
    }

    /// Takes a run off the list of its class.
    fn unspill(&mut self, first: u32, class: Class) {
        let Page::Run { pages, spilled, prev, next, .. } = self.runs.page_mut(first) else {
            unreachable!("only runs are listed so");
        };
        *spilled = None;
        let (pages, prev, next) = (*pages, *prev, *next);
        let all = &mut self.spilled[class.number()];
        all.blocks -= 1;
        all.pages -= pages;
        match self.runs.link(prev) {
            Some(Page::Run { next: link, .. }) => *link = next,
            _ => all.first = next,
        }
        if let Some(Page::Run { prev: link, .. }) = self.runs.link(next) {
            *link = prev;
        }
    }

    /// Takes a block from a slab, a new one of at most `pages_max` pages if none has room.
    fn take_from_slab(&mut self, class: Class, pages_max: u32) -> Option<Block> {
        let mut first = self.roomy[class.number()];
        if first == NONE {
            if class.pages() > pages_max {
                return None;
            }
            self.free_idle();
            first = self.runs.take(class.pages())?;
            *self.runs.page_mut(first) = Page::Slab {
                class,
                is_leaving: false,
                prev: NONE,
                next: NONE,
                free: class.all_free(),
                tagged: 0,
            };
            self.roomy[class.number()] = first;
            self.slabs[class.number()] += 1;
        }
        let Page::Slab { free, .. } = self.runs.page_mut(first) else {
            unreachable!("the list of roomy slabs holds slabs");
        };
        let index = free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.unlist(first);
        }
        if self.idle == first {
            self.idle = NONE;
        }
        // A bitmap has 64 bits, so the index fits.
        u8::try_from(index).ok().map(|index| Block { first, index })
    }

    fn give_to_slab(&mut self, Block { first, index }: Block) {
        let Page::Slab { class, is_leaving, free, tagged, .. } = self.runs.page_mut(first) else {
            unreachable!("the caller saw a slab");
        };
        let class = *class;
        let bit = 1 << index;
        assert!(*free & bit == 0, "a block comes home once");
        let was_full = *free == 0;
        *free |= bit;
        *tagged &= !bit;
        let is_idle = *free == class.all_free();
        if *is_leaving {
            return self.has_left(first, class);
        }
        if was_full {
            self.list(first);
        }
        if is_idle {
            self.free_idle();
            self.idle = first;
        }
    }

    /// Inserts a slab with room at the head of the list of its class.
    fn list(&mut self, first: u32) {
        let Page::Slab { class, next, prev, .. } = self.runs.page_mut(first) else {
            unreachable!("only slabs are listed");
        };
        let class = class.number();
        let head = std::mem::replace(&mut self.roomy[class], first);
        (*prev, *next) = (NONE, head);
        if let Some(Page::Slab { prev, .. }) = self.runs.link(head) {
            *prev = first;
        }
    }

    /// Removes a slab from the list of those with room.
    fn unlist(&mut self, first: u32) {
        let Page::Slab { class, prev, next, .. } = *self.runs.page(first) else {
            unreachable!("only slabs are listed");
        };
        match self.runs.link(prev) {
            Some(Page::Slab { next: link, .. }) => *link = next,
            _ => self.roomy[class.number()] = next,
        }
        if let Some(Page::Slab { prev: link, .. }) = self.runs.link(next) {
            *link = prev;
        }
    }
}

/// Returns the number of pages of a block of `length` octets that has them alone.
fn pages_of(length: usize) -> u32 {
    u32::try_from(length.div_ceil(PAGE).max(1)).unwrap_or(u32::MAX)
}

const fn address(page: u32) -> usize {
    page as usize * PAGE
}

/// The number of counts of one page for blocks of the smallest sizes.
const COUNTS_PER_PAGE_MAX: usize = PAGE / Class::nth(0).size();
/// The number of counts of one page: one for a block that starts there, and those of each doubling
/// below a page.
const COUNTS_PER_PAGE: usize = 1 + 2 * (COUNTS_PER_PAGE_MAX - 1);
