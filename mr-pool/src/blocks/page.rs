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
/// The head of a run gives its kind, and the last page of a free run refers to the head, so that neighbours can merge. All
/// other pages are held.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Page {
    /// Any other page of a run, or one that the pool does not have. All octets are zero, but for padding.
    Held = 0,
    /// The head of a free run.
    Free { pages: u32, prev: u32, next: u32 },
    /// The last page of a free run longer than one page.
    FreeEnd { first: u32 },
    /// The head of a run that is one block, and whether it has a tag. If the block would be in a slab, had there been one: the class
    /// of that, and its neighbours in the list of such runs.
    Run { pages: u32, spilled: Option<Class>, is_tagged: bool, prev: u32, next: u32 },
    /// The head of a slab: one bit per free block, one per block with a tag, and its neighbours in the list of slabs
    /// with room. One whose blocks are to go elsewhere is not in the list.
    Slab { class: Class, is_leaving: bool, prev: u32, next: u32, free: u64, tagged: u64 },
}

// The books of a page, its returned bits (8), its link in the return stack (4) and its count (8) are at
// most one seventy-eighth of the page. Counts of smaller blocks (8 each) take memory as such blocks are in use;
// their addresses are a quarter of the region's length.
const _: () = assert!((size_of::<Page>() + 20) * 78 <= PAGE);
