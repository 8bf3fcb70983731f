//! The errors that end a command, and their exit statuses.

use std::io;
use std::process::ExitCode;

use haulage::cores::Panicked;
use thiserror::Error;

/// An error that ends a command. Its text is one line that says what happened and what to do.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The command failed: exit status 1.
    #[error("{0}")]
    Failed(String),
    /// The command line is wrong: exit status 2.
    #[error("{0}")]
    Usage(String),
    /// The reader of standard output closed the pipe: exit status 0, and no message. It ends commands that do nothing but
    /// print; others go on by [`Output::tell`](crate::output::Output::tell).
    #[error("standard output is closed")]
    ClosedPipe,
}

impl Failure {
    /// Creates a failure of exit status 1 from one line of text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// Creates a failure of exit status 2 from one line of text.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Converts an error of writing to standard output; a broken pipe becomes [`Self::ClosedPipe`].
    pub fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Failed(format!("cannot write to standard output: {error}"))
        }
    }

    /// Returns every failure but that of a closed pipe.
    pub fn unless_closed(self) -> Result<(), Self> {
        match self {
            Self::ClosedPipe => Ok(()),
            Self::Failed(_) | Self::Usage(_) => Err(self),
        }
    }

    /// Returns the exit status of the process.
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
