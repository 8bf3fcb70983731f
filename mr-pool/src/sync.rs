//! The atomics of what `tests/models` compiles over those of a model checker.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
