//! The parts of a binding that this runtime does not carry out, refused before a core starts or connects.

use haulage_proto::rpc::{Binding, Eligible, Procedure};
use thiserror::Error;

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
    /// More than one DDP-eligible argument.
    Arguments,
    /// More than one DDP-eligible result.
    Results,
    /// A procedure that is never answered with a Reply.
    CallOnly,
}

impl Declared {
    const fn words(self) -> &'static str {
        match self {
            Self::Arguments => "more than one DDP-eligible argument",
            Self::Results => "more than one DDP-eligible result",
            Self::CallOnly => "that it is call-only",
        }
    }
}

/// Checks that this runtime carries out everything that `binding` declares.
///
/// # Errors
/// The first declaration that it does not carry out.
pub(super) fn check(binding: &Binding) -> Result<(), Unsupported> {
    let unsupported = |procedure: &Procedure| {
        let declared = match procedure {
            Procedure { call_only: true, .. } => Declared::CallOnly,
            Procedure { arguments, .. } if items(arguments) > CHUNKS_MAX => Declared::Arguments,
            Procedure { results, .. } if items(results) > CHUNKS_MAX => Declared::Results,
            _ => return None,
        };
        Some(Unsupported { procedure: procedure.name, declared })
    };
    binding.procedures.iter().find_map(unsupported).map_or(Ok(()), Err)
}

/// Returns the number of data items that these declarations allow.
fn items(eligible: &[Eligible]) -> u32 {
    eligible.iter().fold(0, |sum, one| sum.saturating_add(one.count_max))
}
