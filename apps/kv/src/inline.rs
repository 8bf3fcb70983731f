//! Which values travel in the messages, and which by a chunk.
//!
//! # Normal operation
//! A value of at most [`INLINE_MAX`] octets, over `shm` [`INLINE_MAX_SHM`], goes in the message if that has the room: no
//! memory is registered for it, and no handle has to die. A client that stores a value knows its length. One that fetches a value
//! expects the length that it had last; an unknown value is expected to be short while all others are, and long otherwise. A
//! server answers a GET that came without a chunk for a longer value by the length, and the value is asked for again.
//!
//! # Limits
//! [`Lengths`] has [`LENGTHS`] entries, each for all keys of one hash: where keys share one, the last one counts. It takes no
//! memory until one of the values is longer than goes inline.

use haulage::limits::ITEM_MAX;
use haulage::service::InlineRoom;

use crate::index::Seed;
use crate::protocol::{Key, opaque_len};

/// Octets of the longest value that goes in a message where both ends may choose. Over `iwarp` a value of this length goes at a
/// third more than the rate with a chunk, stored or fetched (`iwarp-kv-get-4k-inline` and `iwarp-kv-put-4k-inline` in
/// `docs/perf/read-write.tsv`). The next round number has no room in a message of 5 KiB.
pub const INLINE_MAX: usize = 4096;

/// Like [`INLINE_MAX`] over the provider `shm`, where nothing but memory is between the ends. A value of this length goes at
/// the rate with a chunk, stored or fetched (`shm-kv-get-1k-inline`, `shm-kv-put-1k-inline`); shorter ones gain by the message,
/// longer ones by a chunk (`shm-kv-get-256-inline`, `shm-kv-put-4k-inline`).
pub const INLINE_MAX_SHM: usize = 1024;

/// Returns the octets of the longest value that goes in a message over the provider of this name.
pub fn inline_max_over(provider: &str) -> usize {
    if provider == "shm" { INLINE_MAX_SHM } else { INLINE_MAX }
}

/// Entries of [`Lengths`].
pub const LENGTHS: usize = 4096;

/// What a client knows of the lengths of values: those that they had last, by the hash of their key.
#[derive(Debug)]
pub struct Lengths {
    /// Octets of the longest value that goes in a message that has the room.
    inline_max: usize,
    /// Without entries while all known values are short.
    last: Vec<u32>,
}

impl Default for Lengths {
    fn default() -> Self {
        Self::new(INLINE_MAX)
    }
}

impl Lengths {
    /// Knows no value. Those of at most `inline_max` octets go in messages that have the room.
    pub const fn new(inline_max: usize) -> Self {
        Self { inline_max, last: Vec::new() }
    }

    /// Returns the length that a value is expected to have, in octets, if that is too long for a message: then a GET of it
    /// offers a chunk.
    #[inline]
    pub fn expects_chunk(&self, key: Key<'_>, room: InlineRoom) -> Option<usize> {
        let fits = room.results.saturating_sub(STATUS + LENGTH) / UNIT * UNIT;
        Some(self.expected(key)).filter(|expected| *expected > self.inline_max.min(fits))
    }

    /// Returns whether a value of `length` octets goes in the Call that stores it.
    #[inline]
    pub const fn stores_inline(&self, key: Key<'_>, length: usize, room: InlineRoom) -> bool {
        let arguments = opaque_len(key.bytes().len()) + opaque_len(length);
        length <= self.inline_max && arguments <= room.arguments
    }

    /// Returns the length that a value is expected to have, in octets. If nothing is known of it, it is zero, or one more than
    /// goes in a message if another value is longer than that.
    #[inline]
    pub fn expected(&self, key: Key<'_>) -> usize {
        if self.last.is_empty() { 0 } else { self.found(key) }
    }

    /// Remembers the length of a value.
    #[inline]
    pub fn remember(&mut self, key: Key<'_>, length: usize) {
        if !self.last.is_empty() || length > self.inline_max {
            self.keep(key, length);
        }
    }

    /// Remembers that a value is longer than goes in a message, and has some `length` octets.
    pub fn remember_long(&mut self, key: Key<'_>, length: usize) {
        self.keep(key, length.max(self.inline_max + 1));
    }

    #[inline(never)]
    fn found(&self, key: Key<'_>) -> usize {
        self.last.get(place(key)).map_or(0, |length| *length as usize)
    }

    #[inline(never)]
    fn keep(&mut self, key: Key<'_>, length: usize) {
        if self.last.is_empty() {
            let long = u32::try_from(self.inline_max + 1).unwrap_or(u32::MAX);
            self.last.resize(LENGTHS, long);
        }
        if let Some(last) = self.last.get_mut(place(key)) {
            *last = u32::try_from(length.min(ITEM_MAX)).unwrap_or(u32::MAX);
        }
    }
}

/// Returns the entry of a key.
fn place(key: Key<'_>) -> usize {
    // The upper bits are at least as good as the lower ones.
    usize::try_from(SEED.hash(key.bytes()) >> (u64::BITS - LENGTHS.ilog2())).unwrap_or(0)
}

/// A client's keys are its own: nobody else can make them share an entry.
static SEED: Seed = Seed::fixed(0x9e37_79b9_7f4a_7c15, 0x2048_4b56);

/// Octets of the status in front of a value.
const STATUS: usize = 4;
/// Octets of the length word of a value.
const LENGTH: usize = 4;
/// Octets of an XDR unit.
const UNIT: usize = 4;

const _: () = assert!(LENGTHS.is_power_of_two());

#[cfg(test)]
mod tests;
