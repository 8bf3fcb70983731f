//! The parts of a binding that this runtime does not carry out, refused before a core starts or connects.

use haulage_proto::rpc::{Binding, Eligible, Procedure};

use crate::limits::CHUNKS_MAX;
use crate::service::{CallError, Declared, Program, Unsupported};

/// Why programs cannot be served.
#[derive(Clone, Debug)]
pub(super) enum Unserved {
    /// One declares something that this runtime does not carry out.
    Unsupported(Unsupported),
    /// This version of this program is there twice.
    Twice { program: u32, version: u32 },
}

/// Checks that `programs` can be served together.
///
/// # Errors
/// The first one that cannot.
pub(super) fn check_all(programs: &[Program]) -> Result<(), Unserved> {
    for (at, program) in programs.iter().enumerate() {
        check(program.binding()).map_err(Unserved::Unsupported)?;
        let Binding { program, version, .. } = *program.binding();
        let mut others = programs.iter().take(at).map(Program::binding);
        if others.any(|it| (it.program, it.version) == (program, version)) {
            return Err(Unserved::Twice { program, version });
        }
    }
    Ok(())
}

impl From<Unserved> for CallError {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Unsupported(what) => Self::Unsupported(what),
            Unserved::Twice { program, version } => Self::Twice { program, version },
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
