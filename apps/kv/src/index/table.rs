//! Numbers of slots, by the hash of their key: a table of fixed size, in which a search looks at one line of the cache as a
//! rule.
//!
//! # Normal operation
//! An entry lies at its home, which the upper bits of its hash name, or behind it, with no free entry in between. Half of
//! the entries stay free, so that runs are short. A removed entry is filled by one from behind it that may lie there: no
//! tombstone is left.

use haulage::sys::shared::prefetch_value;

/// A table with room for a number of entries that was given once.
#[derive(Debug)]
pub(super) struct Table {
    /// A power of two, of which one is free at least.
    entries: Box<[u64]>,
    len: usize,
}

/// The number of a slot in the lower half, and in the upper half what the table keeps of the hash of its key: zero if free.
/// Memory that the system has zeroed, and nobody has touched, is free.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    slot: Option<u32>,
}

impl Entry {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
    const fn of(packed: u64) -> Self {
        // One more than the number.
        Self { tag: tag(packed), slot: (packed as u32).checked_sub(1) }
    }

    const fn packed(tag: u32, slot: u32) -> u64 {
        (tag as u64) << u32::BITS | (slot as u64 + 1)
    }
}

impl Table {
    /// Octets of the entries for each of `capacity` numbers, at most: twice as many, rounded up to a power of two.
    pub(super) const OCTETS_EACH: usize = 2 * 2 * size_of::<u64>();

    /// Octets of the smallest table.
    pub(super) const OCTETS_LEAST: usize = 2 * size_of::<u64>();

    /// Makes a table with room for `capacity` numbers.
    pub(super) fn new(capacity: u32) -> Self {
        let count = (capacity as usize * 2).next_power_of_two().clamp(2, 1 << u32::BITS);
        Self { entries: vec![0; count].into(), len: 0 }
    }

    /// Returns how many numbers it has.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number with this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        Entry::of(*self.entries.get(self.position(hash, is)?)?).slot
    }

    /// Has the processor fetch what a search for a hash reads first.
    #[inline]
    pub(super) fn foresee(&self, hash: u64) {
        prefetch_value(&self.entries[self.home(tag(hash))]);
    }

    /// Returns the first number whose hash may be this one.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// Adds a number, for which the caller has the room.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        let tag = tag(hash);
        let mut at = self.home(tag);
        while self.entries[at] != 0 {
            at = self.next(at);
        }
        self.entries[at] = Entry::packed(tag, slot);
        self.len += 1;
    }

    /// Removes the number with this hash for which `is` returns true, and returns it.
    pub(super) fn remove(&mut self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut free = self.position(hash, is)?;
        let removed = Entry::of(std::mem::take(&mut self.entries[free])).slot;
        self.len -= 1;
        let mut at = self.next(free);
        while let Entry { tag, slot: Some(_) } = Entry::of(self.entries[at]) {
            if self.steps(self.home(tag), at) >= self.steps(free, at) {
                self.entries[free] = std::mem::take(&mut self.entries[at]);
                free = at;
            }
            at = self.next(at);
        }
        removed
    }

    /// Returns the octets of the entries.
    #[cfg(test)]
    pub(super) fn octets(&self) -> usize {
        size_of_val(&*self.entries)
    }

    #[inline]
    fn position(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        let tag = tag(hash);
        let mut at = self.home(tag);
        loop {
            let Entry { tag: found, slot } = Entry::of(self.entries[at]);
            let slot = slot?;
            if found == tag && is(slot) {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    /// Returns where entries with this tag lie at best: their upper bits name it.
    #[inline]
    const fn home(&self, tag: u32) -> usize {
        tag as usize >> (u32::BITS - self.entries.len().trailing_zeros())
    }

    #[inline]
    const fn next(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Returns how many steps lead from one entry to another.
    const fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

/// Returns what the table keeps of a hash.
#[inline]
const fn tag(hash: u64) -> u32 {
    (hash >> u32::BITS) as u32
}
