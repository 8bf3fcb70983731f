//! The log on standard error: events of the cores' connections, as text or JSON.
//!
//! # Normal operation
//! A thread prints the lines, so that no core waits for a terminal or a full pipe. `RUST_LOG` selects the events;
//! without it, `-v` does.
//!
//! # Limits
//! The queue of lines is bounded; when it is full, lines are dropped.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

use crate::cli::values::LogFormat;
use crate::failure::Failure;
use crate::output::{COMMAND, Output, progress};

/// The log of this process.
#[derive(Debug)]
pub struct Log {
    lines: SyncSender<Entry>,
}

impl Log {
    /// Starts the log in the format of `output`. A process has one log; a second one prints nothing.
    ///
    /// # Errors
    /// `RUST_LOG` is invalid, or the thread cannot be started.
    pub fn begin(output: &Output) -> Result<Self, Failure> {
        Self::with(filter(std::env::var(VARIABLE).ok().as_deref(), output)?, output)
    }

    /// Like [`Self::begin`], whatever `RUST_LOG` is.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin_as_usual(output: &Output) -> Result<Self, Failure> {
        Self::with(filter(None, output)?, output)
    }

    fn with(filter: EnvFilter, output: &Output) -> Result<Self, Failure> {
        let (lines, printed) = mpsc::sync_channel(LINES_MAX);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || print(&printed));
        thread.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_env_filter(filter);
        // No colours: the log may go to a file, and another crate may enable the feature.
        let log = log.with_writer(move || Line(writer.clone())).with_ansi(false);
        match output.log {
            LogFormat::Text => drop(tracing::subscriber::set_global_default(log.finish())),
            LogFormat::Json => {
                let log = log.json().flatten_event(true).with_current_span(false);
                let log = log.with_span_list(false).finish();
                drop(tracing::subscriber::set_global_default(log));
            }
        }
        Ok(Self { lines })
    }

    /// Waits until all lines are printed, for at most a second.
    pub fn end(self) {
        let (done, is_done) = mpsc::channel();
        // If the queue is full or the thread has ended, there is nothing to wait for.
        if self.lines.try_send(Entry::End(done)).is_ok() {
            let _ = is_done.recv_timeout(END_TIME);
        }
    }
}

/// Returns the filter for a value of `RUST_LOG`, or for its absence.
fn filter(asked: Option<&str>, output: &Output) -> Result<EnvFilter, Failure> {
    let usual = if output.verbose { "info" } else { "warn" };
    let asked = asked.filter(|asked| !asked.trim().is_empty()).unwrap_or(usual);
    let filter = EnvFilter::builder().parse(asked).map_err(|error| {
        Failure::usage(format!("{VARIABLE}: {error}; give levels such as warn or haulage=info"))
    })?;
    // The command's own messages are always printed.
    let always: Result<Directive, _> = format!("{COMMAND}=info").parse();
    Ok(always.into_iter().fold(filter, EnvFilter::add_directive))
}

/// An entry of the printing thread's queue.
#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// A request to confirm that all earlier lines are printed.
    End(mpsc::Sender<()>),
}

fn print(entries: &Receiver<Entry>) {
    for entry in entries {
        match entry {
            Entry::Line(line) => {
                progress::clear();
                // If standard error is closed, the line is lost.
                drop(io::stderr().lock().write_all(&line));
            }
            Entry::End(done) => drop(done.send(())),
        }
    }
}

/// A writer that queues one line, which is written in one piece.
#[derive(Debug)]
struct Line(SyncSender<Entry>);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A core does not wait for the printing thread.
        let _ = self.0.try_send(Entry::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
const VARIABLE: &str = "RUST_LOG";
/// Maximum number of queued lines.
const LINES_MAX: usize = 1024;
/// How long a command waits at its end for its last lines to be printed.
const END_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_logged_unless_more_is_asked_for() {
        for (asked, verbose, expected) in [
            (None, false, "haulage::command=info,warn"),
            (Some(" "), false, "haulage::command=info,warn"),
            (None, true, "haulage::command=info,info"),
            (Some("error"), true, "haulage::command=info,error"),
            (Some("haulage=trace"), false, "haulage::command=info,haulage=trace"),
        ] {
            let filter = filter(asked, &Output { verbose, ..Output::default() }).unwrap();
            assert_eq!(filter.to_string(), expected, "{asked:?} {verbose}");
        }
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_wrong_usage() {
        let Err(Failure::Usage(text)) = filter(Some("haulage=loud"), &Output::default()) else {
            panic!()
        };
        assert!(text.starts_with("RUST_LOG: ") && text.lines().count() == 1, "{text}");
    }
}
