//! The atomics, and tables of them, of the files that `tests/models` compiles with those of a model checker instead.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use haulage_mr_pool::{Zero, zeroes};

/// Returns a word that is 0 or 1, and is 0.
pub(crate) const fn flag() -> AtomicU32 {
    AtomicU32::new(0)
}

/// Returns a word that several threads store.
pub(crate) const fn word(value: u64) -> AtomicU64 {
    AtomicU64::new(value)
}

/// Waits for another thread that is about to do something.
pub(crate) fn wait_a_moment() {
    std::hint::spin_loop();
    std::thread::yield_now();
}
