//! Axes of a plot, linear and logarithmic.

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// The positions of both ends in the drawing.
    ends: (f64, f64),
    powers: bool,
}

impl Scale {
    /// Creates a logarithmic axis for values from `low` to `high`.
    pub(super) fn powers(low: f64, high: f64, ends: (f64, f64)) -> Self {
        let low = if low.is_finite() { low.max(1e-3) } else { 1e-3 };
        let high = high.max(low);
        let (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
        Self { low, high: high.max(low * 10.0), ends, powers: true }
    }

    /// Creates a linear axis for values from zero to `high`.
    pub(super) fn straight(high: f64, ends: (f64, f64)) -> Self {
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        Self { low: 0.0, high, ends, powers: false }
    }

    /// Returns the position of `value`; values beyond the axis are clamped to its ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let part = if self.powers {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.ends.0 + (self.ends.1 - self.ends.0) * part
    }

    /// Returns the position of `value`, if it is on the axis.
    pub(super) fn place_within(&self, value: f64) -> Option<f64> {
        (self.low..=self.high).contains(&value).then(|| self.place(value))
    }

    /// Returns the ticks: round values with their positions, few enough to be legible.
    pub(super) fn ticks(&self) -> Vec<(f64, f64)> {
        let mut ticks = Vec::new();
        if self.powers {
            let few = self.high / self.low < 1e4;
            let digits: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let mut power = self.low;
            while power <= self.high * 1.001 {
                ticks.extend(digits.iter().map(|digit| power * digit));
                power *= 10.0;
            }
        } else {
            let about = 10_f64.powf((self.high / 5.0).log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * about);
            let step = step.into_iter().find(|step| self.high / step <= 6.0).unwrap_or(about);
            let mut tick = 0.0;
            while tick <= self.high {
                ticks.push(tick);
                tick += step;
            }
        }
        ticks.retain(|tick| *tick <= self.high * 1.001);
        ticks.into_iter().map(|tick| (tick, self.place(tick))).collect()
    }
}

/// Formats a value with its significant digits.
pub(super) fn label(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e4 => (value / 1e3, " k"),
        value => (value, ""),
    };
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_between_the_ends_and_ticks_are_round() {
        let scale = Scale::powers(3.0, 400.0, (100.0, 0.0));
        assert_eq!((scale.place(1.0), scale.place(1000.0)), (100.0, 0.0));
        assert!((scale.place(10.0) - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!((scale.place(0.1), scale.place_within(0.1)), (100.0, None));
        let ticks: Vec<_> = scale.ticks().iter().map(|(tick, _)| label(*tick)).collect();
        assert_eq!(ticks, ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000"]);
        let scale = Scale::straight(4.4, (0.0, 10.0));
        let ticks: Vec<_> = scale.ticks().iter().map(|(tick, _)| label(*tick)).collect();
        assert_eq!(ticks, ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn an_axis_for_nothing_is_an_axis() {
        for scale in [
            Scale::powers(f64::INFINITY, 0.0, (0.0, 1.0)),
            Scale::powers(0.0, 0.0, (0.0, 1.0)),
            Scale::straight(0.0, (0.0, 1.0)),
        ] {
            assert!(scale.place(0.0).is_finite() && scale.ticks().len() < 20, "{scale:?}");
        }
    }

    #[test]
    fn labels_have_the_digits_that_matter() {
        let labels = [0.0, 0.18, 2.5, 33.333, 310.2, 9999.0, 20_000.0, 4_300_000.0].map(label);
        assert_eq!(labels, ["0", "0.18", "2.5", "33.3", "310", "9999", "20 k", "4.3 M"]);
    }
}
