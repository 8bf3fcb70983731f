//! The parts of a binding that this runtime does not carry out.

use thiserror::Error;

#[cfg(doc)]
use crate::limits::CHUNKS_MAX;

/// A declaration of a binding that this runtime does not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("procedure {procedure} declares {}, which this runtime does not support", .declared.words())]
pub struct Unsupported {
    /// Name of the procedure.
    pub procedure: &'static str,
    /// The declaration.
    pub declared: Declared,
}

/// The kinds of declaration that this runtime does not carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// More DDP-eligible arguments than [`CHUNKS_MAX`].
    Arguments,
    /// More DDP-eligible results than [`CHUNKS_MAX`].
    Results,
}

impl Declared {
    const fn words(self) -> &'static str {
        match self {
            Self::Arguments => "more than four DDP-eligible arguments",
            Self::Results => "more than four DDP-eligible results",
        }
    }
}
