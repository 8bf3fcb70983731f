//! The count of the references to a common block, which any thread changes.
//!
//! `tests/models/src/references_of_cores.rs` checks, for all orders of the accesses with at most three preemptions, that one drop is
//! the last, and that whatever was read through the other references was read before.

use std::sync::atomic::Ordering;

use crate::sync::{AtomicU32, fence};

/// Adds a reference. There are fewer than 2^32.
#[inline]
pub(crate) fn add(references: &AtomicU32) {
    // Relaxed: whoever adds one has another, which keeps the block out meanwhile.
    references.fetch_add(1, Ordering::Relaxed);
}

/// Returns whether there is only one reference, so that nobody but its owner reads the octets, or can have others do so.
#[inline]
pub(crate) fn is_one(references: &AtomicU32) -> bool {
    // Acquire: what others read through their references came before.
    references.load(Ordering::Acquire) == 1
}

/// Drops a reference. Returns whether it was the last one; if not, the count may be gone by now.
#[inline]
pub(crate) fn remove(references: &AtomicU32) -> bool {
    // The last reference is seen to be the last: nobody is left who could add one. That saves locking the line.
    is_one(references) || {
        // Release: what was read through this reference was read before the block is lent again.
        let before = references.fetch_sub(1, Ordering::Release);
        before == 1 && {
            fence(Ordering::Acquire);
            true
        }
    }
}
