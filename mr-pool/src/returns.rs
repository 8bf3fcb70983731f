//! The way home for blocks freed on other threads.
//!
//! A stack of runs, each with a bit per block that came back. A thread that frees a block sets its
//! bit; the one that set the first bit of a run pushes the run. Nothing locks and nothing allocates.
//! The owner takes the whole stack at once, so there is no ABA.
//!
//! `tests/models/src/homecoming.rs` shows, in all orders of the accesses with at most three preemptions, that
//! every block comes home once, and that the thread that sent it accesses neither it nor the stack after that.

use std::sync::atomic::Ordering;

use crate::blocks::Block;
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::table;

/// Blocks on their way home.
#[derive(Debug)]
pub(crate) struct Returns {
    /// First run of the stack.
    pub(crate) head: AtomicU32,
    /// For each page that is the head of a run, the blocks that came back.
    pub(crate) marks: Box<[AtomicU64]>,
    /// For each page that is the head of a run, the next one on the stack.
    pub(crate) links: Box<[AtomicU32]>,
}

impl Returns {
    /// Starts empty, for runs among `pages`; `None` if there is no memory for that.
    pub(crate) fn new(pages: u32) -> Option<Self> {
        Some(Self {
            head: AtomicU32::new(NONE),
            marks: table(pages as usize, || AtomicU64::new(0))?,
            links: table(pages as usize, || AtomicU32::new(NONE))?,
        })
    }

    /// Sends a block home from any thread.
    ///
    /// After the last atomic operation in here the owner may have freed the stack. So this takes the
    /// parts, all atomics, and not `&self`: a reference to atomics promises no more than each
    /// operation needs.
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

    /// Takes everything that came back; the owner's side. Returns how many blocks that were.
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
