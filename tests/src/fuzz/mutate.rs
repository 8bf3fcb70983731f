//! New inputs from known ones, without knowledge of their format.

use crate::Rng;

/// A generator of inputs that resemble known ones.
#[derive(Debug)]
pub struct Mutator {
    known: Vec<Vec<u8>>,
    rng: Rng,
}

impl Mutator {
    /// Starts from `known`, which may be empty. Equal seeds give equal inputs.
    pub const fn new(known: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { known, rng: Rng::new(seed) }
    }

    /// Draws an input of at most [`LENGTH_MAX`] octets.
    pub fn draw(&mut self) -> Vec<u8> {
        let mut input = match self.known.len() {
            0 => Vec::new(),
            count => {
                let chosen = self.below(count);
                self.known[chosen].clone()
            }
        };
        if self.below(16) == 0 {
            input = self.random(256);
        }
        for _ in 0..=self.below(4) {
            self.change(&mut input);
        }
        input.truncate(LENGTH_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let left = input.len() - at;
        match self.below(8) {
            0 => input.truncate(at),
            1 => {
                let (from, length) = (self.below(input.len() + 1), self.below(64));
                let copied: Vec<_> = input[from..].iter().take(length).copied().collect();
                input.splice(at..at, copied);
            }
            2 => {
                let inserted = self.random(16);
                input.splice(at..at, inserted);
            }
            3 => drop(input.drain(at..at + self.below(left.min(32) + 1))),
            4 if !self.known.is_empty() => {
                let other = self.below(self.known.len());
                let from = self.below(self.known[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.known[other][from..]);
            }
            5 | 6 if left >= 4 => {
                // Words stand at multiples of four in every format but MPA.
                let at = at & !3;
                let word = self.word(u32::from_be_bytes([input[at], 0, 0, input[at + 3]]));
                input[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            _ if left > 0 => input[at] = self.octet(input[at]),
            _ => input.extend(self.random(8)),
        }
    }

    /// Draws a word that is likely to upset lengths, counts and offsets.
    fn word(&mut self, was: u32) -> u32 {
        const EDGES: [u32; 9] =
            [0, 1, 2, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_fffc, 0xffff_fffe, u32::MAX];
        match self.below(4) {
            0 => EDGES[self.below(EDGES.len())],
            1 => u32::try_from(self.below(32)).unwrap_or(0),
            2 => was.wrapping_add(1),
            _ => was.wrapping_sub(4),
        }
    }

    fn octet(&mut self, was: u8) -> u8 {
        match self.below(3) {
            0 => was ^ (1 << self.below(8)),
            1 => was.wrapping_add(1),
            _ => self.rng.next().to_be_bytes()[0],
        }
    }

    fn random(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.rng.next().to_be_bytes()[0]).collect()
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(0..bound as u64)).expect("below a usize")
    }
}

/// Length of the longest input drawn, in octets: more than a message at the default inline
/// threshold.
pub const LENGTH_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_inputs_and_they_stay_short() {
        let known = vec![vec![7; 4000], b"known".to_vec(), Vec::new()];
        let draw = |seed| {
            let mut mutator = Mutator::new(known.clone(), seed);
            (0..500).map(|_| mutator.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|input| input.len() <= LENGTH_MAX));
        assert!(draw(4).iter().any(|input| !known.contains(input)));
        assert_eq!(Mutator::new(Vec::new(), 1).draw(), Mutator::new(Vec::new(), 1).draw());
    }
}
