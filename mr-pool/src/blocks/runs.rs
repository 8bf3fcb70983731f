//! Page runs by two-level segregated fit: eight bins per doubling, a bitmap to find the first occupied bin, and tags at
//! both ends of free runs to merge neighbours.

use std::ops::Range;

use super::class::{bin_above, bin_of, bin_start};
use super::page::{NONE, Page};
use crate::table::table;

/// The free and used runs of one region's pages.
#[derive(Debug)]
pub(crate) struct Runs {
    pages: Box<[Page]>,
    /// The first free run of each bin.
    heads: [u32; BINS],
    /// One bit per occupied bin.
    occupied: [u64; BINS / 64],
    free: u32,
    /// The head of a free or used run, or of a slab, whatever becomes of the one that it was set to.
    cursor: u32,
}

impl Runs {
    /// Creates the state of one free run of all `pages`. Returns `None` if there is no memory for
    /// it.
    pub(super) fn new(pages: u32) -> Option<Self> {
        let mut runs = Self::none(table(pages as usize, || Page::Held)?);
        if pages > 0 {
            runs.give(0, pages);
        }
        Some(runs)
    }

    /// Creates the state of pages of which none is free. All are held.
    pub(crate) const fn none(pages: Box<[Page]>) -> Self {
        let (heads, occupied) = ([NONE; BINS], [0; BINS / 64]);
        Self { pages, heads, occupied, free: 0, cursor: 0 }
    }

    /// Takes out free pages in a row, which are held from then on: `most` of them if there are as many, else as many as there are, if
    /// these are `least` at least.
    pub(crate) fn give_up(&mut self, least: u32, most: u32) -> Option<Range<u32>> {
        let pages = most.min(self.largest().max(least));
        let first = self.take(pages)?;
        *self.page_mut(first) = Page::Held;
        Some(first..first + pages)
    }

    /// Takes in pages that are free from now on.
    pub(crate) fn take_in(&mut self, pages: Range<u32>) {
        self.give(pages.start, pages.end - pages.start);
    }

    /// Returns the number of pages.
    pub(super) const fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Allocates a run of at least one page and returns its first page.
    pub(super) fn take(&mut self, pages: u32) -> Option<u32> {
        let first = self.find(pages)?;
        let found = self.remove(first);
        if found > pages {
            self.insert(first + pages, found - pages);
        }
        *self.page_mut(first + pages - 1) = Page::Held;
        *self.page_mut(first) =
            Page::Run { pages, spilled: None, is_tagged: false, prev: NONE, next: NONE };
        self.free -= pages;
        Some(first)
    }

    /// Frees a run and merges it with its free neighbours.
    pub(super) fn give(&mut self, mut first: u32, mut pages: u32) {
        self.free += pages;
        // No page within the merged run stays the end of one.
        if let Some(before) = self.free_before(first) {
            pages += self.remove(before);
            *self.page_mut(first - 1) = Page::Held;
            *self.page_mut(first) = Page::Held;
            first = before;
        }
        let after = first + pages;
        if let Some(Page::Free { .. }) = self.pages.get(after as usize) {
            pages += self.remove(after);
            *self.page_mut(after) = Page::Held;
        }
        // A page within the merged run is no longer a head, where the cursor could stand.
        if self.cursor > first && self.cursor - first < pages {
            self.cursor = first;
        }
        self.insert(first, pages);
    }

    /// Moves the cursor to a head; to the first one from the end of the region.
    pub(super) fn set_cursor(&mut self, head: u32) {
        self.cursor = if (head as usize) < self.pages.len() { head } else { 0 };
    }

    /// Returns the cursor, which is a head.
    pub(super) const fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Returns the head of the free run that ends before `page`, which is a head or the end of the region.
    pub(super) fn free_before(&self, page: u32) -> Option<u32> {
        let last = page.checked_sub(1)?;
        match *self.page(last) {
            Page::Free { .. } => Some(last),
            Page::FreeEnd { first } => Some(first),
            _ => None,
        }
    }

    /// Returns whether there is a free run of at least `pages`.
    pub(super) fn has(&self, pages: u32) -> bool {
        self.find(pages).is_some()
    }

    /// Returns the number of pages in free runs.
    pub(super) const fn free_pages(&self) -> u32 {
        self.free
    }

    /// Returns the length of a run in the highest occupied bin, or 0 if there is none.
    pub(super) fn largest(&self) -> u32 {
        let word = self.occupied.iter().rposition(|&word| word != 0);
        word.map_or(0, |word| {
            let bin = word * 64 + self.occupied[word].ilog2() as usize;
            self.length(self.heads[bin])
        })
    }

    /// Returns the state of a page.
    pub(super) fn page(&self, page: u32) -> &Page {
        &self.pages[page as usize]
    }

    /// Returns the state of the page with this number, if there is one.
    pub(super) fn page_at(&self, page: u32) -> Option<&Page> {
        self.pages.get(page as usize)
    }

    /// Returns the state of a page, mutably.
    pub(super) fn page_mut(&mut self, page: u32) -> &mut Page {
        &mut self.pages[page as usize]
    }

    /// Returns the state of the page that a list link refers to, if it refers to one.
    pub(super) fn link(&mut self, page: u32) -> Option<&mut Page> {
        self.pages.get_mut(page as usize)
    }

    /// Returns the first page of a free run of at least `pages`.
    fn find(&self, pages: u32) -> Option<u32> {
        let from = bin_above(pages);
        let mut word = from / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            let Some(&next) = self.occupied.get(word) else { return self.probe(pages) };
            bits = next;
        }
        Some(self.heads[word * 64 + bits.trailing_zeros() as usize])
    }

    /// Returns the first run of the bin that `pages` itself belongs to, if it is long enough.
    fn probe(&self, pages: u32) -> Option<u32> {
        let first = self.heads[bin_of(pages)];
        (first != NONE && self.length(first) >= pages).then_some(first)
    }

    /// Returns the length of the free run that begins at `first`.
    fn length(&self, first: u32) -> u32 {
        match *self.page(first) {
            Page::Free { pages, .. } => pages,
            other => unreachable!("a bin lists heads of free runs, not {other:?}"),
        }
    }

    fn insert(&mut self, first: u32, pages: u32) {
        let bin = bin_of(pages);
        debug_assert!(bin_start(bin) <= pages);
        let next = std::mem::replace(&mut self.heads[bin], first);
        self.occupied[bin / 64] |= 1 << (bin % 64);
        if let Some(Page::Free { prev, .. }) = self.link(next) {
            *prev = first;
        }
        *self.page_mut(first + pages - 1) = Page::FreeEnd { first };
        *self.page_mut(first) = Page::Free { pages, prev: NONE, next };
    }

    /// Removes a free run from its bin and returns its length.
    fn remove(&mut self, first: u32) -> u32 {
        let Page::Free { pages, prev, next } = *self.page(first) else {
            unreachable!("a bin lists heads of free runs");
        };
        match self.link(prev) {
            Some(Page::Free { next: link, .. }) => *link = next,
            _ => {
                let bin = bin_of(pages);
                self.heads[bin] = next;
                if next == NONE {
                    self.occupied[bin / 64] &= !(1 << (bin % 64));
                }
            }
        }
        if let Some(Page::Free { prev: link, .. }) = self.link(next) {
            *link = prev;
        }
        pages
    }
}

/// Bins for runs of up to 2^32 - 1 pages, rounded up to whole words of the bitmap.
const BINS: usize = (bin_of(u32::MAX) + 1).next_multiple_of(64);
