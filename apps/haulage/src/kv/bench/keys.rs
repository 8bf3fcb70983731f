//! The keys of a benchmark, and the order in which its Calls ask for them.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::trace::Trace;
use crate::cli::BenchKv;
use crate::failure::Failure;

/// The keys of a benchmark. Each has a number, from zero on.
#[derive(Debug)]
pub(super) struct Keys {
    named: Named,
    drawn: Drawn,
    /// The share of GETs among all Calls, 0 to 1.
    gets: f64,
    random: SmallRng,
}

/// What the keys are called, and the octets of their values.
#[derive(Clone, Debug)]
enum Named {
    /// By their numbers; all values are as long.
    Numbered { count: u32, size: usize },
    /// As in a trace.
    Traced(Arc<Trace>),
}

/// Which key the next Call is for.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    /// Any, each as likely as the others.
    Evenly,
    /// The key of number n with a likelihood in proportion to (n + 1)^-s.
    Zipf(Zipf<f64>),
    /// The first, with this likelihood if it is a GET; else any.
    Hot(f64),
    /// That of access `next` of the trace, which begins again at its end, and then the one `step` accesses later.
    InOrder { next: usize, step: usize },
}

impl Keys {
    /// Chooses the keys that the options ask for.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(super) fn of(options: &BenchKv, size: usize) -> Result<Self, Failure> {
        let count = options.keys.0;
        let (named, drawn) = match (&options.trace, options.zipf, options.hot) {
            (Some(path), ..) => {
                let trace = Trace::read(path, options.block_size.0)?;
                (Named::Traced(Arc::new(trace)), Drawn::InOrder { next: 0, step: 1 })
            }
            (None, zipf, hot) => {
                let zipf = zipf.and_then(|exponent| Zipf::new(f64::from(count), exponent.0).ok());
                let hot = hot.map_or(Drawn::Evenly, |share| Drawn::Hot(share.0));
                (Named::Numbered { count, size }, zipf.map_or(hot, Drawn::Zipf))
            }
        };
        let random = SmallRng::seed_from_u64(SEED);
        Ok(Self { named, drawn, gets: options.get_ratio.0, random })
    }

    /// Returns the keys of client `number` of `count`, from zero. Each draws at random by itself, or has every `count`th
    /// access of a trace, so that together they make all of them.
    pub(super) fn part(&self, number: u32, count: u32) -> Self {
        let drawn = match self.drawn {
            Drawn::InOrder { .. } => Drawn::InOrder { next: number as usize, step: count as usize },
            drawn => drawn,
        };
        let seed = SEED.wrapping_mul(u64::from(number) * 2 + 1);
        let random = SmallRng::seed_from_u64(seed);
        Self { named: self.named.clone(), drawn, gets: self.gets, random }
    }

    /// Returns the number of keys.
    pub(super) fn count(&self) -> u32 {
        match &self.named {
            Named::Numbered { count, .. } => *count,
            Named::Traced(trace) => trace.keys(),
        }
    }

    /// Returns the octets of the value of a key.
    pub(super) fn size(&self, number: u32) -> usize {
        match &self.named {
            Named::Numbered { size, .. } => *size,
            Named::Traced(trace) => trace.size(number),
        }
    }

    /// Returns the octets of the longest value.
    pub(super) fn size_max(&self) -> usize {
        match &self.named {
            Named::Numbered { size, .. } => *size,
            Named::Traced(trace) => trace.size_max(),
        }
    }

    /// Returns the octets of the values that Calls are for, on average.
    pub(super) fn size_mean(&self) -> usize {
        match &self.named {
            Named::Numbered { size, .. } => *size,
            Named::Traced(trace) => trace.size_mean(),
        }
    }

    /// Calls `f` with the octets of a key.
    pub(super) fn with_name<R>(&self, number: u32, f: impl FnOnce(&[u8]) -> R) -> R {
        match &self.named {
            Named::Numbered { .. } => f(&name(number)),
            Named::Traced(trace) => f(trace.name(number)),
        }
    }

    /// Draws the next Call: whether it is a GET, and the number of its key.
    pub(super) fn draw(&mut self) -> (bool, u32) {
        let get = self.random.random::<f64>() < self.gets;
        let count = self.count();
        let key = match &mut self.drawn {
            Drawn::Evenly => self.random.random_range(0..count),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a rank is at most the number of keys"
            )]
            #[expect(clippy::cast_sign_loss, reason = "a rank is at least one")]
            Drawn::Zipf(zipf) => zipf.sample(&mut self.random) as u32 - 1,
            Drawn::Hot(share) if get && self.random.random::<f64>() < *share => 0,
            Drawn::Hot(_) => self.random.random_range(0..count),
            Drawn::InOrder { next, step } => {
                let access = *next;
                *next = next.wrapping_add(*step);
                match &self.named {
                    Named::Traced(trace) => trace.access(access),
                    Named::Numbered { .. } => 0,
                }
            }
        };
        (get, key)
    }
}

/// Formats a key: `bench-` and eight digits.
fn name(mut number: u32) -> [u8; 14] {
    let mut name = *b"bench-00000000";
    for digit in name[6..].iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    name
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u32, drawn: Drawn, gets: f64) -> Keys {
        let random = SmallRng::seed_from_u64(SEED);
        Keys { named: Named::Numbered { count, size: 1 }, drawn, gets, random }
    }

    /// Returns how many of ten thousand Calls are GETs, and how many are for each key.
    fn drawn(mut keys: Keys) -> (u32, Vec<u32>) {
        let (mut gets, mut of_key) = (0, vec![0; keys.count() as usize]);
        for _ in 0..10_000 {
            let (get, key) = keys.draw();
            gets += u32::from(get);
            of_key[key as usize] += 1;
        }
        (gets, of_key)
    }

    #[test]
    fn keys_are_named_by_their_numbers() {
        assert_eq!((&name(0), &name(99_999_999)), (b"bench-00000000", b"bench-99999999"));
        assert_eq!(&name(1_234_567), b"bench-01234567");
    }

    #[test]
    fn all_keys_are_drawn_alike() {
        let (gets, of_key) = drawn(keys(5, Drawn::Evenly, 0.75));
        assert!((7300..7700).contains(&gets), "{gets} of 10000 are gets");
        assert!(of_key.iter().all(|count| (1800..2200).contains(count)), "{of_key:?}");
    }

    #[test]
    fn clients_share_out_a_trace_and_draw_by_themselves() {
        let trace = Trace::of_accesses(&[0, 1, 2, 3, 4]);
        let named = Named::Traced(Arc::new(trace));
        let random = SmallRng::seed_from_u64(SEED);
        let drawn = Drawn::InOrder { next: 0, step: 1 };
        let all = Keys { named, drawn, gets: 1.0, random };
        let order = |number, count| -> Vec<_> {
            let mut part = all.part(number, count);
            (0..6).map(|_| part.draw().1).collect()
        };
        assert_eq!(order(0, 1), [0, 1, 2, 3, 4, 0]);
        assert_eq!((order(0, 2), order(1, 2)), (vec![0, 2, 4, 1, 3, 0], vec![1, 3, 0, 2, 4, 1]));
        assert_eq!(order(6, 7), [1, 3, 0, 2, 4, 1], "more clients than accesses");
        let all = keys(1000, Drawn::Evenly, 0.5);
        let drawn = |mut keys: Keys| -> Vec<_> { (0..10).map(|_| keys.draw()).collect() };
        assert_ne!(drawn(all.part(0, 2)), drawn(all.part(1, 2)));
        assert_eq!(drawn(all.part(0, 2)), drawn(all), "the first as one alone");
    }

    #[test]
    fn by_zipfs_law_the_nth_key_is_drawn_an_nth_as_often_as_the_first() {
        let zipf = Zipf::new(100.0, 1.0).unwrap();
        let (_, of_key) = drawn(keys(100, Drawn::Zipf(zipf), 1.0));
        // The sum of the first hundred reciprocals is 5.19.
        assert!((1830..2030).contains(&of_key[0]), "{of_key:?}");
        assert!((860..1070).contains(&of_key[1]) && (130..260).contains(&of_key[9]), "{of_key:?}");
        assert!(of_key.iter().sum::<u32>() == 10_000);
    }

    #[test]
    fn a_hot_key_has_its_share_of_the_gets_and_no_more_puts_than_others() {
        let (_, of_key) = drawn(keys(1000, Drawn::Hot(0.3), 1.0));
        assert!((2850..3150).contains(&of_key[0]), "{}", of_key[0]);
        let (_, of_key) = drawn(keys(1000, Drawn::Hot(0.3), 0.0));
        assert!(of_key[0] < 40, "{}", of_key[0]);
    }
}
