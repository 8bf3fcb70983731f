//! Unpredictable handles.
//!
//! ```text
//!  31                       8 7         0
//! +------------------+-------+-----------+
//! | random           | slot  | key       |
//! +------------------+-------+-----------+
//! ```
//! The slot is an index into a table. All other bits are new for each registration, and the whole
//! handle is compared: a guessed or expired handle does not match.

use std::fmt;

use haulage_proto::verbs::Handle;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// The error of a system that provides no randomness, without which handles could be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEntropy;

impl fmt::Display for NoEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system has no randomness to make handles of")
    }
}

impl std::error::Error for NoEntropy {}

/// A generator of handles and offsets for the registrations of a software RNIC.
pub struct Handles {
    random: ChaCha12Rng,
    slot_bits: u32,
}

impl Handles {
    /// Creates a generator for `slots` slots, seeded with the system's randomness.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the system provides no randomness.
    ///
    /// # Panics
    ///
    /// If `slots` is not 1 to 65536.
    pub fn new(slots: usize) -> Result<Self, NoEntropy> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| NoEntropy)?;
        Ok(Self::from(ChaCha12Rng::from_seed(seed), slots))
    }

    /// Creates a generator for `slots` slots from a seed, so that a test can be repeated.
    ///
    /// # Panics
    ///
    /// If `slots` is not 1 to 65536.
    pub fn seeded(slots: usize, seed: u64) -> Self {
        Self::from(ChaCha12Rng::seed_from_u64(seed), slots)
    }

    /// Makes a handle for a slot whose last handle was `last`. The key of the new handle differs
    /// from the last one and from 0.
    pub fn fresh(&mut self, slot: u32, last: Handle) -> Handle {
        let random = self.random.next_u32();
        let last_key = last.0 & 0xff;
        let key = 1 + (random & 0xff) % 254;
        let key = if last_key != 0 && key >= last_key { key + 1 } else { key };
        let index = random >> 8 << self.slot_bits | slot;
        Handle(index << 8 | key)
    }

    /// Returns the slot in a handle. It is meaningful only if the handle is one of this
    /// generator's.
    pub const fn slot(&self, handle: Handle) -> usize {
        (handle.0 >> 8 & ((1 << self.slot_bits) - 1)) as usize
    }

    /// Returns a random offset below 2^47, a multiple of 4096, by which a peer addresses the first
    /// octet of a registration. It reveals no address, and does not wrap for any length of memory.
    pub fn offset(&mut self) -> u64 {
        self.random.next_u64() >> 17 & !0xfff
    }

    fn from(random: ChaCha12Rng, slots: usize) -> Self {
        assert!((1..=SLOTS_MAX).contains(&slots), "{slots} slots are not 1 to {SLOTS_MAX}");
        Self { random, slot_bits: slots.next_power_of_two().ilog2() }
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handles(..)")
    }
}

/// The most slots of a table, which leave at least 15 unpredictable bits in a handle.
const SLOTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_slot_and_its_key_is_neither_zero_nor_the_last() {
        let mut handles = Handles::seeded(1000, 1);
        let mut last = [Handle(0); 3];
        for _ in 0..5000 {
            for (slot, last) in [0, 511, 999].into_iter().zip(&mut last) {
                let fresh = handles.fresh(slot, *last);
                assert_eq!(handles.slot(fresh), slot as usize);
                assert!(fresh.0 & 0xff != 0 && fresh.0 & 0xff != last.0 & 0xff);
                *last = fresh;
            }
        }
    }

    #[test]
    fn every_bit_but_the_slot_varies() {
        let mut handles = Handles::seeded(16, 7);
        let drawn = std::iter::repeat_with(|| handles.fresh(5, Handle(0)).0).take(1000);
        let (all, any) = drawn.fold((u32::MAX, 0), |(all, any), h| (all & h, any | h));
        assert_eq!((all, any), (5 << 8, !(0b1010 << 8)));
    }

    #[test]
    fn offsets_are_aligned_and_below_2_to_the_47() {
        let mut handles = Handles::seeded(1, 7);
        let drawn = std::iter::repeat_with(|| handles.offset()).take(1000);
        assert_eq!(drawn.fold(0, |any, offset| any | offset), (1 << 47) - 4096);
    }

    #[test]
    fn a_seed_repeats_and_the_system_does_not() {
        let draw = |mut handles: Handles| [handles.offset(), handles.offset()];
        assert_eq!(draw(Handles::seeded(9, 3)), draw(Handles::seeded(9, 3)));
        assert_ne!(draw(Handles::new(9).unwrap()), draw(Handles::new(9).unwrap()));
    }
}
