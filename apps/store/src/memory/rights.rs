//! The judgement of changes by permission bits: what a system has for files that lie on disks.

use crate::access::{Caller, SET_GID, SET_UID, WRITE};
use crate::nfs3::{Attributes, FileType, SetAttributes, SetTime, Status};
use crate::service::allow;

/// Returns the changes of a file's attributes to make, if the caller may make them.
pub(super) fn permitted(
    caller: &Caller,
    file: &Attributes,
    mut to: SetAttributes,
) -> Result<SetAttributes, Status> {
    let owns = caller.owns(file);
    // The owner may "change" a user or group to its present value.
    let (uid, gid) =
        (to.uid.is_some_and(|uid| uid != file.uid), to.gid.is_some_and(|g| g != file.gid));
    allow(!uid || caller.is_root(), Status::Perm)?;
    allow(
        !gid || caller.is_root() || owns && to.gid.is_some_and(|g| caller.is_of(g)),
        Status::Perm,
    )?;
    let owned = to.mode.is_some() || to.uid.is_some() || to.gid.is_some();
    allow(!owned || owns, Status::Perm)?;
    if to.size.is_some() {
        allow(file.kind == FileType::Regular, Status::Inval)?;
        allow(owns || caller.may(file, WRITE), Status::Acces)?;
    }
    for time in [to.atime, to.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::ToServer => allow(owns || caller.may(file, WRITE), Status::Acces)?,
            SetTime::To(_) => allow(owns, Status::Perm)?,
        }
    }
    // Naming an owner or a group counts as a change, even to its present value, as in chown(2).
    let is_given = to.uid.is_some() || to.gid.is_some();
    let change = if is_given { Change::Owner } else { Change::Octets };
    if to.mode.is_none() && (is_given || to.size.is_some()) {
        to.mode = without_set_id(caller, file, change);
    } else if let Some(mode) = to.mode.filter(|_| !caller.is_root()) {
        // A caller may not set SGID for a group that it is not in.
        let group = to.gid.unwrap_or(file.gid);
        let keep = file.kind == FileType::Directory || caller.is_of(group);
        to.mode = Some(if keep { mode } else { mode & !SET_GID });
    }
    Ok(to)
}

/// The kind of a change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The data.
    Octets,
    /// The owner or the group.
    Owner,
}

/// Returns the new permission bits of a file that was changed or given away, if they must change: a program loses SUID
/// and SGID once another user may have changed it.
pub(super) fn without_set_id(caller: &Caller, file: &Attributes, change: Change) -> Option<u32> {
    let changes = file.kind == FileType::Regular
        && file.mode & (SET_UID | SET_GID) != 0
        && (change == Change::Owner || !caller.is_root());
    changes.then_some(file.mode & !(SET_UID | SET_GID))
}
