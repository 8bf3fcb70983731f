//! What stands in for the system below the shm provider.

pub(crate) mod barrier;
pub(crate) mod shared;
