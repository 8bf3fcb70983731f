//! The errors of creating a pool.

use std::fmt;

use crate::size::Octets;

/// Why a pool could not be created. The message states the size requested and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The size exceeds what one pool can manage, which is 2^32 - 1 pages of 4 KiB.
    TooLarge {
        /// The size requested, in octets.
        bytes: usize,
    },
    /// The system did not provide the memory.
    NoMemory {
        /// The size requested, rounded up to whole pages, in octets.
        bytes: usize,
        /// The reason in words.
        reason: String,
    },
}

impl PoolError {
    /// Makes the error for a region whose books have no room.
    pub(crate) fn no_books(bytes: usize) -> Self {
        Self::NoMemory { bytes, reason: "no room for its books".to_owned() }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => {
                write!(f, "a pool of {} exceeds what one pool can manage; use more", Octets(*bytes))
            }
            Self::NoMemory { bytes, reason } => write!(
                f,
                "no memory for a pool of {}: {reason}; ask for less or free memory \
                 (a pool is filled at start, once per core)",
                Octets(*bytes)
            ),
        }
    }
}

impl std::error::Error for PoolError {}
