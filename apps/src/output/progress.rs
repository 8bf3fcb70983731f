//! What takes a while, for whoever watches a terminal: a line on standard error that goes away again. Nothing where
//! standard error is not a terminal.

use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haulage::sys::clock;
use haulage_proto::time::Instant;

/// Something that is being done, and said until it is done.
#[derive(Debug)]
pub struct Step {
    drawn: Instant,
}

impl Step {
    /// Says what is begun.
    pub fn begin(what: Arguments<'_>) -> Self {
        draw(what);
        Self { drawn: clock::now() }
    }

    /// Says what is begun next.
    pub fn next(&mut self, what: Arguments<'_>) {
        draw(what);
        self.drawn = clock::now();
    }

    /// Says how far it has come, not more often than people can read.
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

/// Returns whether anybody watches.
pub fn is_shown() -> bool {
    io::stderr().is_terminal()
}

/// Draws the line, in place of the one before.
pub fn draw(what: Arguments<'_>) {
    if is_shown() {
        let mut stderr = io::stderr().lock();
        // A closed terminal leaves nobody to show it to.
        let _ = write!(stderr, "{CLEAR}{what}").and_then(|()| stderr.flush());
        DRAWN.store(true, Ordering::Relaxed);
    }
}

/// Takes the line away, before anything else is printed.
pub fn clear() {
    if DRAWN.swap(false, Ordering::Relaxed) {
        let _ = io::stderr().lock().write_all(CLEAR.as_bytes());
    }
}

/// How often a line is drawn that tells how far something has come.
pub const TICK: Duration = Duration::from_millis(100);
/// Goes to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";
/// There is a line.
static DRAWN: AtomicBool = AtomicBool::new(false);
