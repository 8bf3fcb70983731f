//! The progress line of a benchmark.

use std::time::Duration;

use super::plan::Plan;
use crate::output::progress;

/// A progress line, with a bar for stages of known duration.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The stage; `None` during the measurement.
    stage: Option<&'static str>,
    /// The number of the run, from one.
    run: u32,
    runs: u32,
    time: Duration,
}

impl Progress {
    /// Makes the progress line of a benchmark that makes `runs` runs of this plan.
    pub(crate) fn new(plan: &Plan, runs: u32) -> Self {
        let time = plan.pace.warm + plan.pace.time;
        Self { stage: None, run: 0, runs, time }
    }

    /// Shows that the next run begins with measuring the machine's limits.
    pub(crate) fn begin_run(&mut self) {
        self.run += 1;
        self.begin("measuring the machine's limits");
    }

    /// Shows that a stage of unknown duration begins.
    pub(crate) fn begin(&mut self, what: &'static str) {
        self.stage = Some(what);
        self.draw(what);
    }

    /// Shows that the measurement begins.
    pub(crate) const fn measure(&mut self) {
        self.stage = None;
    }

    /// Returns the interval of drawing the bar; endless if no bar is shown, as this thread may be on a measured CPU.
    pub(crate) fn interval(&self) -> Duration {
        if progress::is_shown() { progress::TICK } else { Duration::MAX }
    }

    /// Draws the time `since` that the job has taken: in a stage as seconds, in the measurement as a bar.
    pub(crate) fn tick(&self, since: Duration) {
        match self.stage {
            Some(what) => self.draw(&format!("{what}: {:.1} s", since.as_secs_f64())),
            None => self.draw(&bar(since, self.time)),
        }
    }

    fn draw(&self, what: &str) {
        let (run, runs) = (self.run, self.runs);
        let of = if runs > 1 { format!("run {run} of {runs}  ") } else { String::new() };
        progress::draw(format_args!("{of}{what}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        progress::clear();
    }
}

/// Returns the bar that shows which part of `time` has passed.
fn bar(since: Duration, time: Duration) -> String {
    let part = (since.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "the part is at most one")]
    #[expect(clippy::cast_sign_loss, reason = "the part is not negative")]
    let full = (part * WIDTH as f64) as usize;
    let (done, left) = ("#".repeat(full), ".".repeat(WIDTH - full));
    format!("[{done}{left}] {:.1} of {:.1} s", since.min(time).as_secs_f64(), time.as_secs_f64())
}

const WIDTH: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_time_is_over() {
        let seconds = Duration::from_secs;
        assert_eq!(
            bar(seconds(1), seconds(4)),
            format!("[{}{}] 1.0 of 4.0 s", "#".repeat(10), ".".repeat(30))
        );
        assert_eq!(bar(seconds(9), seconds(4)), format!("[{}] 4.0 of 4.0 s", "#".repeat(40)));
        assert!(bar(seconds(1), Duration::ZERO).starts_with("[###"));
    }
}
