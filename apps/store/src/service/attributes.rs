//! The procedures on attributes and file systems: GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use super::data::Pending;
use super::{Answer, Service, allow};
use crate::access::{Caller, WRITE};
use crate::backend::{Backend, Context};
use crate::nfs3::arguments::{Access, SetAttr};
use crate::nfs3::results::{FsInfo, FsStat, Granted, PathConf};
use crate::nfs3::{
    Attributes, Failure, FileHandle, FileType, Procedure, Results, SetAttributes, SetTime, Status,
    abilities, rights,
};

impl<B: Backend> Service<B> {
    pub(super) fn get_attr(&mut self, cx: &Context<'_>, file: FileHandle<'_>) -> Results<'static> {
        let found = self.sealer.open(file).and_then(|file| self.look(cx, file));
        Results::GetAttr(found.map_err(|status| Failure { status, rest: () }))
    }

    pub(super) fn set_attr(&mut self, cx: &Context<'_>, asked: &SetAttr<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let begun = self.changing(cx, asked.file, |service, file, before| {
            let guarded = asked.guard.is_none_or(|ctime| ctime == before.ctime);
            allow(guarded, Status::NotSync)?;
            let to = permitted(cx.caller, before, asked.to)?;
            let progress = service.backend.change(cx, ticket, file, &to);
            service.until(progress, ticket, Pending::new(Procedure::SetAttr, file, cx))
        });
        self.answer(ticket, begun, Results::SetAttr)
    }

    pub(super) fn access(&mut self, cx: &Context<'_>, asked: &Access<'_>) -> Results<'static> {
        let outcome = self.on_file(cx, asked.file, |service, file, attributes| {
            let changes = rights::MODIFY | rights::EXTEND | rights::DELETE;
            let left = if service.is_read_only(file) { !changes } else { u32::MAX };
            Ok(cx.caller.rights(attributes, asked.rights & left))
        });
        Results::Access(outcome.map(|(rights, attributes)| Granted { attributes, rights }))
    }

    pub(super) fn fs_stat(&mut self, cx: &Context<'_>, file: FileHandle<'_>) -> Results<'static> {
        let outcome = self.on_file(cx, file, |service, _, _| service.backend.room(cx));
        Results::FsStat(outcome.map(|(room, attributes)| FsStat {
            attributes,
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            available_bytes: room.available_bytes,
            total_files: room.total_files,
            free_files: room.free_files,
            available_files: room.available_files,
            invariant_seconds: 0,
        }))
    }

    pub(super) fn fs_info(&mut self, cx: &Context<'_>, file: FileHandle<'_>) -> Results<'static> {
        let limits = self.config.limits;
        let outcome = self.on_file(cx, file, |service, _, _| Ok(service.backend.capabilities()));
        Results::FsInfo(outcome.map(|(can, attributes)| FsInfo {
            attributes,
            read_max: limits.read_max,
            read_preferred: limits.read_max,
            read_multiple: MULTIPLE,
            write_max: limits.write_max,
            write_preferred: limits.write_max,
            write_multiple: MULTIPLE,
            readdir_preferred: limits.readdir_max,
            file_max: can.file_max,
            time_delta: can.time_delta,
            abilities: abilities::LINK
                | abilities::SYMLINK
                | abilities::HOMOGENEOUS
                | abilities::CAN_SET_TIME,
        }))
    }

    pub(super) fn path_conf(&mut self, cx: &Context<'_>, file: FileHandle<'_>) -> Results<'static> {
        let outcome = self.on_file(cx, file, |service, _, _| Ok(service.backend.capabilities()));
        Results::PathConf(outcome.map(|(can, attributes)| PathConf {
            attributes,
            links_max: can.links_max,
            name_max: can.name_max,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }))
    }
}

/// Returns the changes of a file's attributes to make, if the caller may make them.
fn permitted(
    caller: &Caller,
    file: &Attributes,
    mut to: SetAttributes,
) -> Result<SetAttributes, Status> {
    let owns = caller.owns(file);
    (to.uid, to.gid) = (to.owner(), to.group());
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
        allow(caller.may_write(file), Status::Acces)?;
    }
    for time in [to.atime, to.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::ToServer => allow(owns || caller.may(file, WRITE), Status::Acces)?,
            SetTime::To(_) => allow(owns, Status::Perm)?,
        }
    }
    allow(to.has_valid_times(), Status::Inval)?;
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

/// The SUID bit: a program runs as its owner.
const SET_UID: u32 = 0o4000;
/// The SGID bit: a program runs as its group; new files in a directory get its group.
pub(super) const SET_GID: u32 = 0o2000;
/// The recommended multiple of READ and WRITE sizes: a page.
const MULTIPLE: u32 = 4096;
