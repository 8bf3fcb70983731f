//! Everything the command prints: results on standard output, the rest on standard error.

use std::io::{self, Write};

use crate::cli::values::LogFormat;
use crate::failure::Failure;
use crate::logging::COMMAND;

pub mod json;
pub mod progress;
pub mod table;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Results are JSON, for programs.
    pub json: bool,
    /// Standard error tells more.
    pub verbose: bool,
    /// The form of what goes to standard error.
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

    /// Prints text that brings its own line ends.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        progress::clear();
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        written.map_err(|error| Failure::of_output(&error))
    }

    /// Tells the person at the terminal something that is not a result.
    pub fn note(&self, line: &str) {
        match self.log {
            LogFormat::Text => say(line),
            LogFormat::Json => tracing::warn!(target: COMMAND, "{line}"),
        }
    }

    /// Like [`Self::note`], for those who asked for more.
    pub fn detail(&self, line: &str) {
        match self.log {
            LogFormat::Text if self.verbose => say(line),
            LogFormat::Json if self.verbose => tracing::info!(target: COMMAND, "{line}"),
            _ => {}
        }
    }

    /// Says why the command failed, if there is anything to say.
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
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(io::stderr().lock(), "haulage: {line}");
}
