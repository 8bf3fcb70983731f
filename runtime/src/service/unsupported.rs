//! The parts of a binding that this runtime does not carry out.

use thiserror::Error;

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
    /// More than one DDP-eligible argument.
    Arguments,
    /// More than one DDP-eligible result.
    Results,
}

impl Declared {
    const fn words(self) -> &'static str {
        match self {
            Self::Arguments => "more than one DDP-eligible argument",
            Self::Results => "more than one DDP-eligible result",
        }
    }
}
