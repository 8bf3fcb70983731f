//! Which cores may still read what was taken away.
//!
//! # Normal operation
//! There is one number for all cores. A core that took something away raises it. Each core notes, when it reads nothing, the number that it
//! finds; a core that rests notes that it reads nothing at all. Once every other core has noted a number, nobody reads any more what
//! was taken away before the number was raised to that.
//!
//! `tests/models/src/entries.rs` checks that with all orders of the accesses that a model checker finds.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, fence, word};

/// The turns of all cores that read the same.
#[derive(Debug)]
pub(crate) struct Turns {
    now: Line,
    /// By core, the number that it has noted.
    noted: Box<[Line]>,
}

/// A word that shares its line of the cache, and the one that the processor fetches along, with no other.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Turns {
    /// Makes the turns of a number of cores, all of which rest.
    pub(crate) fn new(cores: usize) -> Self {
        let noted = (0..cores).map(|_| Line(word(RESTS))).collect();
        Self { now: Line(word(1)), noted }
    }

    /// Notes that a core reads from now on. What it reads afterwards was not taken away at a number that other cores see it
    /// pass.
    pub(crate) fn begin(&self, core: usize) {
        // Release: what it read before it rested was read before whoever sees this number, and not that it rested, frees it.
        self.noted[core].0.store(self.now.0.load(Ordering::Acquire), Ordering::Release);
        // Either we see what a core took away, or that core, which passes a fence, too, before it looks, sees our number.
        fence(Ordering::SeqCst);
    }

    /// Notes that a core, which reads, has finished with all that it has read so far.
    #[inline]
    pub(crate) fn pass(&self, core: usize) {
        // Acquire: what was taken away before the number was raised is not found any more. Release: what was read so far was read
        // before whoever sees our number frees it.
        self.noted[core].0.store(self.now.0.load(Ordering::Acquire), Ordering::Release);
    }

    /// Notes that a core reads nothing until it begins again.
    pub(crate) fn rest(&self, core: usize) {
        self.noted[core].0.store(RESTS, Ordering::Release);
    }

    /// Raises the number, and returns it. What this core took away before is gone for others once they have all noted it.
    pub(crate) fn raise(&self) -> u64 {
        // Release: who notes the number no longer finds what was taken away.
        let number = self.now.0.fetch_add(1, Ordering::Release) + 1;
        fence(Ordering::SeqCst);
        number
    }

    /// Returns the least number that the cores other than this one have noted. What was taken away at that number, or before,
    /// is read by none of them.
    pub(crate) fn passed(&self, core: usize) -> u64 {
        let others = self.noted.iter().enumerate().filter(|(number, _)| *number != core);
        // Acquire: what they read came before.
        others.map(|(_, noted)| noted.0.load(Ordering::Acquire)).min().unwrap_or(RESTS)
    }
}

/// The number of a core that rests: more than any other.
const RESTS: u64 = u64::MAX;
