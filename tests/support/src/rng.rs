//! Random numbers that repeat.

/// A generator (splitmix64) that gives the same numbers for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws any number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws any word.
    pub const fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Draws any octet.
    pub const fn octet(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// Draws a number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    /// Draws a boolean.
    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Draws one of `all`.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Draws a length of any magnitude up to `2^bits`.
    pub fn length(&mut self, bits: usize) -> usize {
        let limit = 1 << self.below(bits + 1);
        self.below(limit + 1)
    }

    /// Draws at most `max` octets.
    ///
    /// # Panics
    /// If `max` exceeds 8192.
    pub fn octets(&mut self, max: usize) -> &'static [u8] {
        let length = self.below(max + 1);
        let start = self.below(OCTETS.len() - length + 1);
        &OCTETS[start..start + length]
    }

    /// Changes a few octets of `bytes`, or its length.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.octets(1).first().copied().unwrap_or(0)),
                // Lengths and counts tend to fail at small, huge or round values.
                2 if bytes.len() >= at + 4 => {
                    let word = self.of(&[0, 1, 2, 3, 64, 65, 4096, 4097, 0x7fff_ffff, u32::MAX]);
                    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}

/// The octets that random items are cut from.
static OCTETS: [u8; 8192] = {
    let mut octets = [0; 8192];
    let mut rng = Rng::new(0x6e66_7333);
    let mut at = 0;
    while at < octets.len() {
        octets[at] = rng.octet();
        at += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn what_is_drawn_is_within_its_bounds() {
        let mut rng = Rng::new(7);
        for _ in 0..1000 {
            assert!(rng.below(3) < 3);
            assert!(rng.length(4) <= 16);
            assert!(rng.octets(5).len() <= 5);
            assert!([1, 2].contains(&rng.of(&[1, 2])));
        }
    }
}
