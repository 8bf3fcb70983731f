//! How far a benchmark has come, for whoever watches a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::plan::Plan;

/// A bar on standard error; nothing where that is not a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    drawn: bool,
    run: u32,
    runs: u32,
    time: Duration,
}

impl Progress {
    pub(crate) fn new(plan: &Plan) -> Self {
        let time = plan.pace.warm + plan.pace.time;
        Self { shown: io::stderr().is_terminal(), drawn: false, run: 0, runs: plan.runs, time }
    }

    /// A run begins, with the limits of the machine.
    pub(crate) fn begin_run(&mut self, number: u32) {
        self.run = number;
        self.draw("measuring the machine's limits");
    }

    /// Returns how long to wait until the bar is drawn again: this thread may be on a CPU that is measured.
    pub(crate) const fn interval(&self) -> Duration {
        if self.shown { TICK } else { Duration::MAX }
    }

    /// Calls have been made for so long.
    pub(crate) fn tick(&mut self, since: Duration) {
        let line = bar(since, self.time);
        self.draw(&line);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            // A closed terminal leaves nobody to show it to.
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }

    fn draw(&mut self, what: &str) {
        if !self.shown {
            return;
        }
        let run = self.run + 1;
        let of =
            if self.runs > 1 { format!("run {run} of {}  ", self.runs) } else { String::new() };
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[K{of}{what}").and_then(|()| stderr.flush());
        self.drawn = true;
    }
}

/// Draws how much of `time` is over.
fn bar(since: Duration, time: Duration) -> String {
    let part = (since.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, reason = "the part is at most one")]
    #[expect(clippy::cast_sign_loss, reason = "the part is not negative")]
    let full = (part * WIDTH as f64) as usize;
    let (done, left) = ("#".repeat(full), ".".repeat(WIDTH - full));
    format!("[{done}{left}] {:.1} of {:.1} s", since.min(time).as_secs_f64(), time.as_secs_f64())
}

const WIDTH: usize = 40;
/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);

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
