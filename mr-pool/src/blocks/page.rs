//! The state of each page, which is stored outside the region.

use super::class::Class;
use crate::size::PAGE;

/// The page number that ends a list.
pub(super) const NONE: u32 = u32::MAX;

/// The name of a block in use: the first page of its run, and its index in the slab there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: u32,
    pub(crate) index: u8,
}

/// The state of one page.
///
/// Only the ends of a run are kept up to date: its head gives the kind of the run, and the last
/// page of a free run refers to the head, so that neighbours can merge. The state of pages inside a
/// run may be out of date.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Page {
    /// Any other page of a run in use, or one of a tract that the pool does not have. All octets are zero, but for padding.
    Held = 0,
    /// The head of a free run.
    Free { pages: u32, prev: u32, next: u32 },
    /// The last page of a free run longer than one page.
    FreeEnd { first: u32 },
    /// The head of a run that is one block: the class that the block would have in a slab, and whether it has a tag.
    Run { pages: u32, spilled: Option<Class>, is_tagged: bool },
    /// The head of a slab: one bit per free block, one per block with a tag, and its neighbours in the list of slabs
    /// with room.
    Slab { class: Class, prev: u32, next: u32, free: u64, tagged: u64 },
}

// The books of a page, its returned bits (8), its link in the return stack (4) and its count (8) are at
// most one seventy-eighth of the page. Counts of smaller blocks (8 each) take memory as such blocks are in use;
// their addresses are a quarter of the region's length.
const _: () = assert!((size_of::<Page>() + 20) * 78 <= PAGE);
