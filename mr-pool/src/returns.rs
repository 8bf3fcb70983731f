//! The return of blocks that were freed on other threads.
//!
//! Freed blocks are kept in a stack of runs, each with one bit per returned block. A thread that frees a block sets its
//! bit; the thread that sets the first bit of a run pushes the run. There are no locks and no allocations. The owner
//! takes the whole stack at once, which avoids the ABA problem.
//!
//! `tests/models/src/homecoming.rs` checks, for all orders of the accesses with at most three preemptions, that every
//! block is returned once, and that the thread that returned it accesses neither the block nor the stack afterwards.

use std::sync::atomic::Ordering;

use crate::blocks::Block;
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::table;

/// The blocks that other threads have returned.
#[derive(Debug)]
pub(crate) struct Returns {
    /// The first run of the stack.
    pub(crate) head: AtomicU32,
    /// The returned blocks of each run, indexed by the run's first page.
    pub(crate) marks: Box<[AtomicU64]>,
    /// The next run on the stack, indexed by a run's first page.
    pub(crate) links: Box<[AtomicU32]>,
}

impl Returns {
    /// Creates an empty stack for runs among `pages`. Returns `None` if there is no memory for it.
    pub(crate) fn new(pages: u32) -> Option<Self> {
        let marks = table(pages as usize, || AtomicU64::new(0))?;
        Some(Self::of(marks, table(pages as usize, || AtomicU32::new(0))?))
    }

    /// Creates an empty stack of zeroes.
    pub(crate) fn of(marks: Box<[AtomicU64]>, links: Box<[AtomicU32]>) -> Self {
        Self { head: AtomicU32::new(NONE), marks, links }
    }

    /// Returns a block to the owner, from any thread.
    ///
    /// After the last atomic operation in this function the owner may have freed the stack. So the function takes the
    /// parts, which are all atomics, and not `&self`: a reference to atomics requires validity only while each
    /// operation runs.
    pub(crate) fn push(
        head: &AtomicU32,
        marks: &[AtomicU64],
        links: &[AtomicU32],
        Block { first, index }: Block,
    ) {
        let run = first as usize;
        // Release: what this thread wrote to the block comes before the owner lends it again.
        // Acquire: the owner has read this run's link before we set it again.
        let before = marks[run].fetch_or(1 << index, Ordering::AcqRel);
        if before != 0 {
            return; // Whoever set the first bit pushes, or has pushed, the run.
        }
        let mut top = head.load(Ordering::Relaxed);
        loop {
            links[run].store(top, Ordering::Relaxed);
            // Release: the link is visible to whoever finds the run.
            match head.compare_exchange_weak(top, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all returned blocks, on the owner's thread. Returns their number.
    pub(crate) fn drain(&self, mut each: impl FnMut(Block)) -> u64 {
        if self.head.load(Ordering::Relaxed) == NONE {
            return 0;
        }
        let mut count = 0;
        let mut first = self.head.swap(NONE, Ordering::Acquire);
        while first != NONE {
            let run = first as usize;
            // Before the bits: once they are clear another thread may push the run anew.
            let next = self.links[run].load(Ordering::Relaxed);
            let mut bits = self.marks[run].swap(0, Ordering::AcqRel);
            while bits != 0 {
                let index = bits.trailing_zeros();
                bits &= bits - 1;
                count += 1;
                #[allow(clippy::cast_possible_truncation, reason = "a bit's number is below 64")]
                each(Block { first, index: index as u8 });
            }
            first = next;
        }
        count
    }
}

const NONE: u32 = u32::MAX;
