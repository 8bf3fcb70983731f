//! The Upper-Layer Binding of NFS version 3 (RFC 8267): DDP-eligible items, and the maximum length of results.

use haulage_proto::rpc::{Binding, Eligible, Procedure as Bound};

use super::attributes::{Attributes, Wcc};
use super::basic::FileHandle;
use super::procedure::Procedure;
use super::{PATH_MAX, PROGRAM, VERSION};

/// The maximum transfer sizes of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of data in a READ.
    pub read_max: u32,
    /// Octets of data in a WRITE.
    pub write_max: u32,
    /// Octets of results of a READDIR or READDIRPLUS.
    pub readdir_max: u32,
}

/// Returns the program's Upper-Layer Binding.
///
/// Exactly four items are DDP-eligible: the data of READ and WRITE, and the path of READLINK and SYMLINK. Names and
/// lists of names are not.
pub fn binding(limits: &Limits) -> Binding {
    let procedures = Procedure::ALL.iter().map(|procedure| bound(*procedure, limits)).collect();
    Binding { program: PROGRAM, version: VERSION, procedures }
}

fn bound(procedure: Procedure, limits: &Limits) -> Bound {
    let bytes = |length: u32| Eligible::opaque(length as usize);
    let path = Eligible::opaque(PATH_MAX);
    let Row { name, results_max, is_idempotent, .. } = *row(procedure);
    let results_max = u32::try_from(results_max).unwrap_or(u32::MAX);
    let bound = Bound::new(name).results_max(results_max);
    let bound = match procedure {
        Procedure::Read => bound.result(bytes(limits.read_max)),
        Procedure::Write => bound.argument(bytes(limits.write_max)),
        //~ V2-4.4.2-1: `.result(path)` -> ``
        Procedure::ReadLink => bound.result(path),
        Procedure::Symlink => bound.argument(path),
        Procedure::ReadDir | Procedure::ReadDirPlus => {
            bound.results_max(results_max.saturating_add(limits.readdir_max))
        }
        _ => bound,
    };
    if is_idempotent { bound.idempotent() } else { bound }
}

/// Returns whether a procedure is idempotent: executing it twice does no harm.
///
/// WRITE is not: a late repetition would overwrite a later WRITE.
pub const fn is_idempotent(procedure: Procedure) -> bool {
    row(procedure).is_idempotent
}

/// The facts about a procedure that do not depend on the limits.
#[derive(Clone, Copy, Debug)]
struct Row {
    procedure: Procedure,
    name: &'static str,
    /// Maximum length of the results, in octets, without DDP-eligible octets and lists of names.
    results_max: usize,
    is_idempotent: bool,
}

impl Row {
    /// Creates the row of an idempotent procedure.
    const fn repeatable(procedure: Procedure, name: &'static str, results_max: usize) -> Self {
        Self { procedure, name, results_max, is_idempotent: true }
    }

    /// Creates the row of a procedure that is not idempotent.
    const fn once(procedure: Procedure, name: &'static str, results_max: usize) -> Self {
        Self { procedure, name, results_max, is_idempotent: false }
    }
}

const fn row(procedure: Procedure) -> &'static Row {
    &ROWS[procedure as usize]
}

/// A row for each procedure, in the order of their numbers.
const ROWS: [Row; Procedure::ALL.len()] = [
    Row::repeatable(Procedure::Null, "NULL", 0),
    Row::repeatable(Procedure::GetAttr, "GETATTR", STATUS + Attributes::WIRE_LEN),
    Row::once(Procedure::SetAttr, "SETATTR", STATUS + Wcc::WIRE_MAX),
    Row::repeatable(Procedure::Lookup, "LOOKUP", STATUS + FileHandle::WIRE_MAX + 2 * POST_OP),
    // The rights.
    Row::repeatable(Procedure::Access, "ACCESS", STATUS + POST_OP + 4),
    // The length of the path.
    Row::repeatable(Procedure::ReadLink, "READLINK", STATUS + POST_OP + 4),
    // Count, end of file, length of the data.
    Row::repeatable(Procedure::Read, "READ", STATUS + POST_OP + 4 + 4 + 4),
    // Count, stability, verifier.
    Row::once(Procedure::Write, "WRITE", STATUS + Wcc::WIRE_MAX + 4 + 4 + 8),
    Row::once(Procedure::Create, "CREATE", MADE),
    Row::once(Procedure::MkDir, "MKDIR", MADE),
    Row::once(Procedure::Symlink, "SYMLINK", MADE),
    Row::once(Procedure::MkNod, "MKNOD", MADE),
    Row::once(Procedure::Remove, "REMOVE", STATUS + Wcc::WIRE_MAX),
    Row::once(Procedure::RmDir, "RMDIR", STATUS + Wcc::WIRE_MAX),
    Row::once(Procedure::Rename, "RENAME", STATUS + 2 * Wcc::WIRE_MAX),
    Row::once(Procedure::Link, "LINK", STATUS + POST_OP + Wcc::WIRE_MAX),
    Row::repeatable(Procedure::ReadDir, "READDIR", STATUS),
    Row::repeatable(Procedure::ReadDirPlus, "READDIRPLUS", STATUS),
    Row::repeatable(Procedure::FsStat, "FSSTAT", STATUS + POST_OP + 6 * 8 + 4),
    // Sizes, longest file, time, abilities.
    Row::repeatable(Procedure::FsInfo, "FSINFO", STATUS + POST_OP + 7 * 4 + 8 + 8 + 4),
    Row::repeatable(Procedure::PathConf, "PATHCONF", STATUS + POST_OP + 6 * 4),
    // The verifier.
    Row::repeatable(Procedure::Commit, "COMMIT", STATUS + Wcc::WIRE_MAX + 8),
];

const _: () = {
    let mut number = 0;
    while number < ROWS.len() {
        assert!(ROWS[number].procedure as usize == number);
        number += 1;
    }
};

/// Octets of a status.
const STATUS: usize = 4;
/// Octets of attributes that may be absent.
const POST_OP: usize = 4 + Attributes::WIRE_LEN;
/// Octets of the results of a procedure that creates a file.
const MADE: usize = STATUS + 4 + FileHandle::WIRE_MAX + POST_OP + Wcc::WIRE_MAX;
