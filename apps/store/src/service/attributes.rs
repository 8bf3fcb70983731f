//! The procedures on attributes and file systems: GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use super::pending::Pending;
use super::{Answer, Service, allow};
use crate::access::permission;
use crate::backend::{Backend, Context, Setting};
use crate::nfs3::arguments::{Access, SetAttr};
use crate::nfs3::results::{FsInfo, FsStat, Granted, PathConf};
use crate::nfs3::{
    Failure, FileHandle, Procedure, Results, SetAttributes, Status, abilities, rights,
};

impl<B: Backend> Service<B> {
    pub(super) fn get_attr(&mut self, cx: &Context<'_>, file: FileHandle<'_>) -> Results<'static> {
        let found = self.sealer.open(file).and_then(|file| self.look(cx, file));
        Results::GetAttr(found.map_err(|status| Failure { status, rest: () }))
    }

    pub(super) fn set_attr(&mut self, cx: &Context<'_>, asked: &SetAttr<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let begun = self.changing(cx, asked.file, |service, file, _| {
            allow(asked.to.has_valid_times(), Status::Inval)?;
            let to = asked.to;
            let to = SetAttributes { uid: to.owner(), gid: to.group(), ..to };
            let setting = Setting { to, guard: asked.guard };
            let progress = service.backend.change(cx, ticket, file, &setting);
            service.until(progress, ticket, Pending::new(Procedure::SetAttr, file, cx))
        });
        self.answer(ticket, begun, Results::SetAttr)
    }

    pub(super) fn access(&mut self, cx: &Context<'_>, asked: &Access<'_>) -> Results<'static> {
        let outcome = self.on_file(cx, asked.file, |service, file, attributes| {
            let changes = rights::MODIFY | rights::EXTEND | rights::DELETE;
            let is_kept = asked.rights & changes != 0
                && (service.is_read_only(file) || service.backend.is_mounted_read_only());
            let left = if is_kept { !changes } else { u32::MAX };
            let mut granted = 0;
            for right in (0..u32::BITS).map(|bit| asked.rights & left & 1 << bit) {
                let Some(wanted) = permission(right, attributes.kind) else { continue };
                match service.backend.check(cx, file, attributes, wanted) {
                    Ok(()) => granted |= right,
                    Err(Status::Acces | Status::Perm) => {}
                    Err(status) => return Err(status),
                }
            }
            Ok(granted)
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

/// The recommended multiple of READ and WRITE sizes: a page.
const MULTIPLE: u32 = 4096;
