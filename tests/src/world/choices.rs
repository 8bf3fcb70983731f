//! Every decision of a world, from a seed or from the bytes of a fuzzer.

use std::ops::RangeInclusive;

use crate::Rng;

/// The source of every decision in a world. Equal choices give equal runs.
#[derive(Debug)]
pub struct Choices {
    /// Bytes that decide first, for as long as they last.
    bytes: std::vec::IntoIter<u8>,
    rng: Rng,
}

impl Choices {
    /// Draws everything from a seed.
    pub fn seeded(seed: u64) -> Self {
        Self { bytes: Vec::new().into_iter(), rng: Rng::new(seed) }
    }

    /// Draws from `bytes` first, and then from a seed that is their count, so that every run ends.
    pub fn replayed(bytes: &[u8]) -> Self {
        let owned = bytes.to_vec();
        Self { bytes: owned.into_iter(), rng: Rng::new(bytes.len() as u64) }
    }

    /// Returns whether the bytes are used up.
    pub fn is_spent(&self) -> bool {
        self.bytes.as_slice().is_empty()
    }

    /// Draws any number.
    pub fn number(&mut self) -> u64 {
        let raw = self.bytes.as_slice().first_chunk::<8>().copied();
        let Some(raw) = raw else { return self.rng.next() };
        self.bytes.nth(7);
        u64::from_le_bytes(raw)
    }

    /// Draws a number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        let drawn = match self.bytes.next() {
            // A single byte for most choices lets a fuzzer learn sooner what each byte does.
            Some(byte) if bound > 256 => {
                let more = self.bytes.by_ref().take(3);
                more.fold(u64::from(byte), |drawn, byte| drawn << 8 | u64::from(byte))
            }
            Some(byte) => u64::from(byte),
            None => self.rng.next(),
        };
        usize::try_from(drawn % bound).expect("it is below a usize")
    }

    /// Draws a number in `range`.
    pub fn of(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// Draws an event with the odds of one in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Draws one of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_decide_first_and_a_seed_afterwards() {
        let mut choices = Choices::replayed(&[7, 0, 0, 1, 2, 255]);
        assert_eq!((choices.below(10), choices.below(1000)), (7, 258));
        assert_eq!(choices.below(256), 255);
        assert!(choices.is_spent());
        let mut seeded = Choices::seeded(6);
        assert_eq!(choices.number(), seeded.number());
    }

    #[test]
    fn a_range_is_drawn_with_both_its_ends() {
        let mut choices = Choices::seeded(1);
        let drawn: Vec<_> = (0..200).map(|_| choices.of(3..=5)).collect();
        assert!([3, 4, 5].iter().all(|n| drawn.contains(n)));
        assert!(drawn.iter().all(|n| (3..=5).contains(n)));
        assert!(["a", "b"].contains(&choices.pick(&["a", "b"])));
        assert!((0..200).any(|_| choices.one_in(2)));
    }
}
