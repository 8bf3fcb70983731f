//! The atomics of the files that `tests/models` compiles with those of a model checker instead.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};
