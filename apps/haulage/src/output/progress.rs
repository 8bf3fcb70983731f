//! A progress line on standard error, if that is a terminal that can clear a line. The line is cleared when the work is
//! done.

use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haulage::sys::clock;
use haulage_proto::time::Instant;

/// A step of work, shown on the progress line until it is dropped.
#[derive(Debug)]
pub struct Step {
    drawn: Instant,
}

impl Step {
    /// Begins a step and shows it.
    pub fn begin(what: Arguments<'_>) -> Self {
        draw(what);
        Self { drawn: clock::now() }
    }

    /// Replaces the shown step by the next one.
    pub fn next(&mut self, what: Arguments<'_>) {
        draw(what);
        self.drawn = clock::now();
    }

    /// Updates the line with the progress of the step, at most once per [`TICK`].
    pub fn update(&mut self, what: Arguments<'_>) {
        if clock::now().saturating_since(self.drawn) >= TICK {
            self.next(what);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        clear();
    }
}

/// Returns whether the progress line is shown.
pub fn is_shown() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// Draws the line, replacing the old one.
pub fn draw(what: Arguments<'_>) {
    if is_shown() {
        let mut stderr = io::stderr().lock();
        // If the terminal is closed, the line is lost.
        let _ = write!(stderr, "{CLEAR}{what}").and_then(|()| stderr.flush());
        DRAWN.store(true, Ordering::Relaxed);
    }
}

/// Clears the line, before other output.
pub fn clear() {
    if DRAWN.swap(false, Ordering::Relaxed) {
        let _ = io::stderr().lock().write_all(CLEAR.as_bytes());
    }
}

/// Interval of drawing a line with progress.
pub const TICK: Duration = Duration::from_millis(100);
/// The control sequence that returns to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";
/// Whether a line is drawn.
static DRAWN: AtomicBool = AtomicBool::new(false);
