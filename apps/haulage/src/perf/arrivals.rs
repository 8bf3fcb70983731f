//! The arrivals of an open loop: a Poisson process.

use std::time::Duration;

use haulage_proto::time::Instant;

/// A sequence of arrival times with exponential gaps. The gaps are drawn from a table, so that the next arrival takes
/// no logarithm.
#[derive(Debug)]
pub struct Arrivals {
    /// The next arrival; `None` before the process begins and after it has ended.
    due: Option<Instant>,
    /// Gaps in nanoseconds, 16 bits of them fractions.
    gaps: Box<[u64]>,
    /// Fractions of nanoseconds carried over.
    rest: u64,
    state: u64,
}

impl Arrivals {
    /// Creates a process of `rate` arrivals a second on average, which has not begun. The same `seed` gives the same
    /// arrivals.
    pub fn new(rate: f64, seed: u64) -> Self {
        let mean = 1e9 / rate * f64::from(1_u32 << FRACTION_BITS);
        // Each entry is one quantile of the distribution; all are equally likely.
        let gap = |n: usize| -mean * (1.0 - (n as f64 + 0.5) / GAPS as f64).ln();
        #[expect(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
        #[expect(clippy::cast_sign_loss, reason = "no gap is negative")]
        let gaps = (0..GAPS).map(|n| gap(n) as u64).collect();
        Self { due: None, gaps, rest: 0, state: seed | 1 }
    }

    /// Begins the process at `start`.
    pub fn begin(&mut self, start: Instant) {
        self.due = Some(start);
        self.advance();
    }

    /// Returns the time of the next arrival, or `None` before the process begins and after it has ended.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Ends the process. Returns the expected number of further arrivals until `end`.
    pub fn end(&mut self, end: Instant) -> u64 {
        let Some(due) = self.due.take() else { return 0 };
        let gap = self.gaps.iter().map(|gap| *gap as f64).sum::<f64>() / GAPS as f64;
        let time = end.saturating_since(due).as_secs_f64() * 1e9;
        #[expect(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
        #[expect(clippy::cast_sign_loss, reason = "neither time nor gap is negative")]
        let count = (time * f64::from(1_u32 << FRACTION_BITS) / gap.max(1.0)) as u64;
        count
    }

    /// Advances to the next arrival.
    pub fn advance(&mut self) {
        // xorshift: the table is what has the distribution.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let drawn = usize::try_from(self.state >> 32).unwrap_or_default() % GAPS;
        let gap = self.rest.saturating_add(self.gaps[drawn]);
        self.rest = gap & ((1 << FRACTION_BITS) - 1);
        let gap = Duration::from_nanos(gap >> FRACTION_BITS);
        self.due = self.due.map(|due| due.saturating_add(gap));
    }
}

/// Entries of the table: enough that few gaps exceed the longest, and few enough to stay in a near cache.
const GAPS: usize = 1 << 12;
const FRACTION_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        for rate in [3.0, 1e5, 2e7] {
            let mut arrivals = Arrivals::new(rate, 7);
            arrivals.begin(Instant::ZERO);
            let (mut last, count) = (Instant::ZERO, 200_000);
            let mean = 1.0 / rate;
            let mut longer = 0;
            for _ in 0..count {
                let due = arrivals.due().unwrap();
                longer += u32::from(due.saturating_since(last).as_secs_f64() > mean);
                last = due;
                arrivals.advance();
            }
            let measured = last.saturating_since(Instant::ZERO).as_secs_f64() / f64::from(count);
            assert!((measured / mean - 1.0).abs() < 0.02, "{rate}: {measured}");
            let part = f64::from(longer) / f64::from(count);
            assert!(
                (part - (-1_f64).exp()).abs() < 0.02,
                "{rate}: {part} are longer than the mean"
            );
            let rest = arrivals.end(last.saturating_add(Duration::from_secs_f64(1000.0 * mean)));
            assert!((990..=1010).contains(&rest), "{rate}: {rest} were left");
            assert_eq!((arrivals.due(), arrivals.end(last)), (None, 0));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_moments() {
        let moments = |seed| {
            let mut arrivals = Arrivals::new(1e6, seed);
            arrivals.begin(Instant::from_nanos(5));
            let next = std::iter::repeat_with(move || {
                arrivals.advance();
                arrivals.due()
            });
            next.take(100).collect::<Vec<_>>()
        };
        assert_eq!(moments(3), moments(3));
        assert!(moments(3) != moments(4) && moments(3).is_sorted());
    }
}
