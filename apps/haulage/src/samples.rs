//! Statistics of measured durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Durations up to a minute, kept to three digits. Recording one does not allocate.
#[derive(Clone, Debug)]
pub struct Samples(Histogram<u64>);

impl Default for Samples {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(NANOS_MAX, DIGITS);
        Self(histogram.expect("the bounds are constants that satisfy the constructor"))
    }
}

impl Samples {
    /// Adds one duration; a longer one than a minute counts as a minute.
    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all durations of `others`.
    pub fn merge(&mut self, others: &Self) {
        self.0.add(&others.0).expect("all histograms have the same bounds");
    }

    /// Returns the `quantile` (0 to 1) of the durations, in microseconds; zero if there are none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Returns the longest duration, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Removes all durations; keeps the memory.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }
}

const NANOS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut samples = Samples::default();
        assert_eq!((samples.quantile_us(0.5), samples.count()), (0.0, 0));
        (1..=100).for_each(|us| samples.record(Duration::from_micros(us)));
        let mut others = Samples::default();
        others.record(Duration::from_secs(3600));
        samples.merge(&others);
        let near = |quantile, us: f64| (samples.quantile_us(quantile) / us - 1.0).abs() < 0.002;
        assert!(near(0.5, 51.0) && near(0.99, 100.0) && near(1.0, 60e6));
        assert!((samples.max_us() / 60e6 - 1.0).abs() < 0.002);
        assert_eq!(samples.count(), 101);
        samples.clear();
        assert_eq!((samples.max_us(), samples.count()), (0.0, 0));
    }
}
