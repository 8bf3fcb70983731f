//! Output of the command: results on standard output, everything else on standard error.

use std::io::{self, Write};

use crate::cli::values::LogFormat;
use crate::failure::Failure;
use crate::logging::COMMAND;

pub mod json;
pub mod progress;
pub mod table;

/// The form of the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Whether results are JSON.
    pub json: bool,
    /// Whether standard error has details.
    pub verbose: bool,
    /// The format of standard error.
    pub log: LogFormat,
}

impl Output {
    /// Prints one line of results and flushes it.
    pub fn line(&self, line: &str) -> Result<(), Failure> {
        progress::clear();
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
        written.and_then(|()| stdout.flush()).map_err(|error| Failure::of_output(&error))
    }

    /// Prints text that has its own line ends.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes unchanged.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        progress::clear();
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        written.map_err(|error| Failure::of_output(&error))
    }

    /// Prints a note on standard error.
    pub fn note(&self, line: &str) {
        match self.log {
            LogFormat::Text => say(line),
            LogFormat::Json => tracing::warn!(target: COMMAND, "{line}"),
        }
    }

    /// Like [`Self::note`], but only with `-v`.
    pub fn detail(&self, line: &str) {
        match self.log {
            LogFormat::Text if self.verbose => say(line),
            LogFormat::Json if self.verbose => tracing::info!(target: COMMAND, "{line}"),
            _ => {}
        }
    }

    /// Prints the error of the command, if it has a message.
    pub fn complain(&self, failure: &Failure) {
        match (failure, self.log) {
            (Failure::ClosedPipe, _) => {}
            (_, LogFormat::Text) => say(&failure.to_string()),
            (_, LogFormat::Json) => tracing::error!(target: COMMAND, "{failure}"),
        }
    }
}

fn say(line: &str) {
    progress::clear();
    // If standard error is closed, the line is lost.
    let _ = writeln!(io::stderr().lock(), "haulage: {line}");
}
