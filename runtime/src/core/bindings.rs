//! The parts of a binding that this runtime does not carry out, refused before a core starts or connects.

use haulage_proto::rpc::{Binding, Eligible, Procedure};

use crate::limits::CHUNKS_MAX;
use crate::service::{Declared, Unsupported};

/// Checks that this runtime carries out everything that `binding` declares.
///
/// # Errors
/// The first declaration that it does not carry out.
pub(super) fn check(binding: &Binding) -> Result<(), Unsupported> {
    let unsupported = |procedure: &Procedure| {
        let declared = match procedure {
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
