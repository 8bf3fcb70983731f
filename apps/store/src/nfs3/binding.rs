//! Which arguments and results may be moved by direct data placement (RFC 8267), and how long
//! results get.

use haulage_proto::rpc::{Binding, Eligible, Procedure as Bound};

use super::attributes::{Attributes, Wcc};
use super::basic::FileHandle;
use super::procedure::Procedure;
use super::{PATH_MAX, PROGRAM, VERSION};

/// What a server takes and gives at most in one Call.
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
/// Exactly four items are DDP-eligible: what a READ returns and a WRITE brings, what a READLINK
/// returns and a SYMLINK brings. Names and lists of names never are.
pub fn binding(limits: &Limits) -> Binding {
    let procedures = Procedure::ALL.iter().map(|procedure| bound(*procedure, limits)).collect();
    Binding { program: PROGRAM, version: VERSION, procedures }
}

fn bound(procedure: Procedure, limits: &Limits) -> Bound {
    let bytes = |length: u32| Eligible::opaque(length as usize);
    let path = Eligible::opaque(PATH_MAX);
    let bound = Bound::new(name(procedure)).results_max(results_max(procedure, limits));
    let bound = match procedure {
        Procedure::Read => bound.result(bytes(limits.read_max)),
        Procedure::Write => bound.argument(bytes(limits.write_max)),
        Procedure::ReadLink => bound.result(path),
        Procedure::Symlink => bound.argument(path),
        _ => bound,
    };
    if is_idempotent(procedure) { bound.idempotent() } else { bound }
}

/// Returns whether a procedure carried out twice does no harm.
///
/// A WRITE that is repeated late undoes a later one, so it is none of these.
pub const fn is_idempotent(procedure: Procedure) -> bool {
    match procedure {
        Procedure::Null
        | Procedure::GetAttr
        | Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf
        | Procedure::Commit => true,
        Procedure::SetAttr
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Rename
        | Procedure::Link => false,
    }
}

/// Returns the octets of a procedure's longest results. DDP-eligible octets do not count.
fn results_max(procedure: Procedure, limits: &Limits) -> u32 {
    let rest = match procedure {
        Procedure::Null => return 0,
        Procedure::GetAttr => Attributes::WIRE_LEN,
        Procedure::SetAttr | Procedure::Remove | Procedure::RmDir => Wcc::WIRE_MAX,
        Procedure::Lookup => FileHandle::WIRE_MAX + 2 * POST_OP,
        Procedure::Access => POST_OP + 4,              // the rights
        Procedure::ReadLink => POST_OP + 4,            // the length of the path
        Procedure::Read => POST_OP + 4 + 4 + 4,        // count, end of file, length of the data
        Procedure::Write => Wcc::WIRE_MAX + 4 + 4 + 8, // count, stability, verifier
        Procedure::Create | Procedure::MkDir | Procedure::Symlink | Procedure::MkNod => {
            4 + FileHandle::WIRE_MAX + POST_OP + Wcc::WIRE_MAX
        }
        Procedure::Rename => 2 * Wcc::WIRE_MAX,
        Procedure::Link => POST_OP + Wcc::WIRE_MAX,
        Procedure::ReadDir | Procedure::ReadDirPlus => limits.readdir_max as usize,
        Procedure::FsStat => POST_OP + 6 * 8 + 4,
        Procedure::FsInfo => POST_OP + 7 * 4 + 8 + 8 + 4, // sizes, longest file, time, abilities
        Procedure::PathConf => POST_OP + 6 * 4,
        Procedure::Commit => Wcc::WIRE_MAX + 8, // verifier
    };
    u32::try_from(STATUS + rest).unwrap_or(u32::MAX)
}

const fn name(procedure: Procedure) -> &'static str {
    match procedure {
        Procedure::Null => "NULL",
        Procedure::GetAttr => "GETATTR",
        Procedure::SetAttr => "SETATTR",
        Procedure::Lookup => "LOOKUP",
        Procedure::Access => "ACCESS",
        Procedure::ReadLink => "READLINK",
        Procedure::Read => "READ",
        Procedure::Write => "WRITE",
        Procedure::Create => "CREATE",
        Procedure::MkDir => "MKDIR",
        Procedure::Symlink => "SYMLINK",
        Procedure::MkNod => "MKNOD",
        Procedure::Remove => "REMOVE",
        Procedure::RmDir => "RMDIR",
        Procedure::Rename => "RENAME",
        Procedure::Link => "LINK",
        Procedure::ReadDir => "READDIR",
        Procedure::ReadDirPlus => "READDIRPLUS",
        Procedure::FsStat => "FSSTAT",
        Procedure::FsInfo => "FSINFO",
        Procedure::PathConf => "PATHCONF",
        Procedure::Commit => "COMMIT",
    }
}

/// Octets of a status.
const STATUS: usize = 4;
/// Octets of attributes that may be absent.
const POST_OP: usize = 4 + Attributes::WIRE_LEN;
