//! How a command ends when it does not succeed.

use std::io;
use std::process::ExitCode;

use haulage::cores::Panicked;
use thiserror::Error;

/// Why a command stopped. Its text is one line that says what happened and what to do.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// What was asked could not be done: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// What was typed cannot be asked: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// Whoever read our output has seen enough: exit status 0, and nothing to say.
    #[error("standard output is closed")]
    ClosedPipe,
}

impl Failure {
    /// Makes a failure of exit status 1 from one line of text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Makes a failure of exit status 2 from one line of text.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Files an error of writing to standard output.
    pub fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Failed(format!("cannot write to standard output: {error}"))
        }
    }

    /// Returns the status the process exits with.
    pub fn status(&self) -> ExitCode {
        match self {
            Self::ClosedPipe => ExitCode::SUCCESS,
            Self::Failed(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }
}

impl From<Panicked> for Failure {
    fn from(panicked: Panicked) -> Self {
        Self::failed(panicked.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("cannot start a thread: {error}"))
    }
}
