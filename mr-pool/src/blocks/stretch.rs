//! The blocks of a stretch of the region that are moved together, how far the sweep has come, and what blocks leave.

use super::class::{CLASSES, Class};
use super::page::Block;
use crate::size::PAGE;

/// A block in use that can be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) tag: u32,
    pub(crate) block: Block,
    /// Octets of the block.
    pub(crate) capacity: usize,
    /// The class that the block would have in a slab, if it is a run.
    pub(super) spilled: Option<Class>,
}

impl Resident {
    /// Returns the order in which blocks are leased again: those of slabs, then runs by class, then those that are too
    /// long for it by now.
    pub(crate) fn order(&self, length: usize) -> usize {
        match self.spilled {
            None => 0,
            Some(class) if length <= class.size() => 1 + class.number(),
            Some(_) => 1 + CLASSES,
        }
    }

    /// Returns the pages of the block, if it is a run.
    #[allow(clippy::cast_possible_truncation, reason = "such a run has at most 16 pages")]
    pub(crate) const fn pages(&self) -> u32 {
        match self.spilled {
            Some(_) => (self.capacity / PAGE) as u32,
            None => 0,
        }
    }
}

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The page up to which it went in this lap.
    pub(super) reached: u32,
    /// The number of pages that it went in this lap, which began when there was no room.
    pub(super) swept: u32,
    /// [`Blocks::freed_bytes`](super::Blocks) when the lap began, less a page for each time that the lap was in vain.
    pub(super) freed_before: usize,
}

/// The slabs that blocks leave.
#[derive(Debug)]
pub(super) struct Leaving {
    /// Their blocks in use, by class.
    pub(super) blocks: [u32; CLASSES],
    pub(super) pages: u32,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { blocks: [0; CLASSES], pages: 0 }
    }
}

impl Leaving {
    /// Returns how many blocks of a class are in slabs that they leave.
    pub(super) const fn blocks_of(&self, class: Class) -> u32 {
        self.blocks[class.number()]
    }
}

/// The most blocks in a stretch.
pub(crate) const STRETCH_BLOCKS_MAX: usize = 256;
/// The most octets in the blocks of a stretch.
pub(crate) const STRETCH_OCTETS_MAX: usize = 256 << 10;
