//! The state of each page, which is stored outside the region.

use super::class::Class;
use crate::size::PAGE;

/// The page number that ends a list.
pub(super) const NONE: u32 = u32::MAX;

/// The state of one page.
///
/// Only the ends of a run are kept up to date: its head gives the kind of the run, and the last
/// page of a free run refers to the head, so that neighbours can merge. The state of pages inside a
/// run may be out of date.
#[derive(Clone, Copy, Debug)]
pub(super) enum Page {
    /// The head of a free run.
    Free { pages: u32, prev: u32, next: u32 },
    /// The last page of a free run longer than one page.
    FreeEnd { first: u32 },
    /// The head of a run that is one block.
    Run { pages: u32 },
    /// The head of a slab: one bit per free block, and its neighbours in the list of slabs with
    /// room.
    Slab { class: Class, prev: u32, next: u32, free: u64 },
    /// Any other page of a run in use.
    Held,
}

// The books of a page, its returned bits (8), its link in the return stack (4) and its count (8) are at
// most one ninetieth of the page. Counts of smaller blocks (8 each) take memory as such blocks are in use;
// their addresses are a quarter of the region's length.
const _: () = assert!((size_of::<Page>() + 20) * 90 <= PAGE);
