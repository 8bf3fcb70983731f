//! Why a pool could not be made.

use std::fmt;

use crate::size::Octets;

/// Why a pool could not be made. The message says how much was asked for and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// More than one pool can manage, which is 2^32 - 1 pages of 4 KiB.
    TooLarge {
        /// Octets asked for.
        bytes: usize,
    },
    /// The machine would not give the memory.
    NoMemory {
        /// Octets asked for, rounded up to whole pages.
        bytes: usize,
        /// What stood in the way.
        reason: String,
    },
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
