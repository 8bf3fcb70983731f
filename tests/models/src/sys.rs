//! Replacements for the system modules below the shm provider and below entries, and what of these is no replacement.

pub(crate) mod barrier;
#[path = "../../../runtime/src/sys/entries.rs"]
#[allow(
    unsafe_code,
    dead_code,
    unreachable_pub,
    reason = "a part of another crate, with its own proofs"
)]
pub(crate) mod entries;
pub(crate) mod shared;
#[path = "../../../runtime/src/sys/turns.rs"]
pub(crate) mod turns;
