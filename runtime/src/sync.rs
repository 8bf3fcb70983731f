//! The atomics of the files that `tests/models` compiles with those of a model checker instead.

pub(crate) use std::sync::atomic::AtomicU32;

/// Returns a word that is 0 or 1, and is 0.
pub(crate) const fn flag() -> AtomicU32 {
    AtomicU32::new(0)
}
