//! Repeatable random numbers: all of them come from one seed.

use std::ops::Range;

/// A small seeded generator (xorshift64*). Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes the generator of a seed; equal seeds give equal draws.
    pub const fn new(seed: u64) -> Self {
        // The state must not be 0; the odd constant keeps small seeds far apart.
        let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(if state == 0 { 1 } else { state })
    }

    /// Draws any number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Draws a number of `range`, which must not be empty.
    pub const fn below(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_alike_and_others_do_not() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(draw(u64::MAX), [0; 3]);
    }
}
