//! Replacements for the system modules below the shm provider.

pub(crate) mod barrier;
pub(crate) mod shared;
