//! Changes of names: creating, linking, removing and renaming files.

use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Directory;
use super::acts::{self, Act, At, By, Link, Rename, Sync, Unlink};
use super::changes::{Change, Then};
use super::closing::has_room_for;
use super::data::check_end;
use super::helpers::Cost;
use super::node::{self, Look, MODE_MASK, Node};
use super::rights::group_of;
use crate::access::{Caller, STICKY};
use crate::backend::{New, NewKind, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Attributes, FileType, Name, Status};

impl Directory {
    /// Creates a file, with its owner and its permission bits from the beginning.
    pub(super) fn make_in(
        &mut self,
        caller: &Caller,
        (dir, name): (FileId, Name<'_>),
        new: &New<'_>,
    ) -> Result<FileId, Status> {
        let dir = self.tree.directory(dir)?;
        let parent = dir.look()?.attributes;
        let names = self.before_change(&dir, FileType::Directory)?;
        let name = name.0;
        let (node, look) = self.create(caller, (&dir, name), new)?;
        let file = self
            .complete(caller, (&node, &look), &parent, new)
            .and_then(|()| Ok(self.before_change(&node, look.attributes.kind)?));
        // Only this Call knows a file that it cannot complete.
        let file = file.inspect_err(|_| self.undo(caller, (&dir, name), new))?;
        let node = self.tree.keep(node, dir.id, name);
        self.settle(names.as_ref())?;
        self.settle(file.as_ref())?;
        Ok(node.id)
    }

    /// Creates a file as its owner, and opens it. One that is no regular file is opened by its name: what is found need
    /// not be what was created.
    fn create(
        &self,
        caller: &Caller,
        (dir, name): (&Node, &[u8]),
        new: &New<'_>,
    ) -> Result<(Node, Look), Status> {
        let acting = self.rights.as_maker(caller, new)?;
        let mode = Mode::from_raw_mode(new.mode & MODE_MASK);
        match new.kind {
            NewKind::Regular => return Ok(dir.create(name, mode, &self.tree.descriptors)?),
            NewKind::Directory => fs::mkdirat(&dir.place, name, mode)?,
            NewKind::Symlink(path) => fs::symlinkat(path, &dir.place, name)?,
            NewKind::Special(kind, device) => {
                let device = fs::makedev(device.major, device.minor);
                fs::mknodat(&dir.place, name, special(kind)?, mode, device)?;
            }
        }
        drop(acting);
        #[cfg(test)]
        (self.between.0)();
        let found = dir.child(name).inspect_err(|_| self.undo(caller, (dir, name), new))?;
        if found.1.attributes.kind != new.kind.file_type() {
            // Another process replaced the file.
            return Err(Status::Jukebox);
        }
        Ok(found)
    }

    /// Sets what the system does not give a new file when it is created. A file that is not exactly as a new one was
    /// replaced by another process, or is on a file system that keeps no owners, or in a directory with a default ACL:
    /// it is left as it is. A file that was opened by its name is changed as its owner, who may do as much to all that
    /// it can be.
    fn complete(
        &self,
        caller: &Caller,
        (node, look): (&Node, &Look),
        parent: &Attributes,
        new: &New<'_>,
    ) -> Result<(), Status> {
        let is_regular = matches!(new.kind, NewKind::Regular);
        let is_sole_owner = self.rights.is_sole_owner();
        let uid = if is_sole_owner { geteuid().as_raw() } else { new.uid };
        let by_name = !is_regular && !is_sole_owner;
        // What is the superuser's and older than this Call is not changed, though its owner might.
        let is_foreign = by_name && uid == ROOT && !look.is_born_since(parent.ctime);
        if look.attributes.uid != uid || is_foreign {
            return Ok(());
        }
        let acting = if by_name { self.rights.as_owner(caller, new)? } else { None };
        let (mode, gid) = given(caller, parent, new);
        let found = &look.attributes;
        if !is_sole_owner && found.gid == gid && gid != new.gid {
            node::give(&node.place, None, Some(new.gid))?;
        }
        if found.mode == mode && (mode != new.mode || gid != new.gid) {
            self.tree.descriptors.set_mode(node, new.mode)?;
        }
        if let Some(size) = new.size {
            check_end(size, 0)?;
            fs::ftruncate(node.writer(&self.tree.descriptors)?, size)?;
        }
        node::set_times(&node.place, new.atime, new.mtime)?;
        drop(acting);
        Ok(())
    }

    /// Removes the name of a file that could not be completed, as far as its owner may.
    fn undo(&self, caller: &Caller, (dir, name): (&Node, &[u8]), new: &New<'_>) {
        let is_dir = matches!(new.kind, NewKind::Directory);
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        if let Ok(_acting) = self.rights.as_owner(caller, new) {
            let _ = fs::unlinkat(&dir.place, name, flags);
        }
    }

    /// Gives a file one more name. As for a local process, the system may refuse a file that is not the caller's
    /// (`/proc/sys/fs/protected_hardlinks` in proc(5)).
    pub(super) fn begin_link(
        &mut self,
        (caller, ticket): (&Caller, Ticket),
        file: FileId,
        (dir, name): (FileId, Name<'_>),
    ) -> Result<Option<()>, Status> {
        self.check_uncut(file)?;
        let (node, look) = self.tree.find(file)?;
        let dir = self.tree.directory(dir)?;
        if look.is_directory() {
            return Err(Status::Inval);
        }
        let act = Act::Link(Link {
            by: self.by(caller),
            descriptors: Arc::clone(&self.tree.descriptors),
            place: node.another_place()?,
            at: self.at(&dir, name)?,
            changed: self.before_change(&node, look.attributes.kind)?,
        });
        let files = [Some(node.id), Some(dir.id)];
        let then = Then::See { node, dir: dir.id, name: name.0.into() };
        self.begin_change(ticket, act, Change { files, cost: Cost::Little, then })
    }

    /// Removes a name, of a directory if `flags` say so.
    pub(super) fn begin_unlink(
        &mut self,
        (caller, ticket): (&Caller, Ticket),
        (dir, name): (FileId, Name<'_>),
        flags: AtFlags,
    ) -> Result<Option<()>, Status> {
        let dir = self.tree.directory(dir)?;
        let (node, look) = self.tree.child(&dir, name.0)?;
        let wants_dir = flags.contains(AtFlags::REMOVEDIR);
        match (look.is_directory(), wants_dir) {
            (true, false) => return Err(Status::IsDir),
            (false, true) => return Err(Status::NotDir),
            _ => {}
        }
        if node.is_stand_in() {
            return Err(Status::Acces);
        }
        self.check_uncut(node.id)?;
        if !has_room_for(&self.tree.helpers, &look.attributes) {
            return Err(Status::Jukebox);
        }
        let at = self.at(&dir, name)?;
        let act = Act::Unlink(Unlink { by: self.by(caller), at, flags });
        let (files, then) = ([Some(dir.id), None], Then::Reap(node));
        self.begin_change(ticket, act, Change { files, cost: Cost::Little, then })
    }

    pub(super) fn begin_rename(
        &mut self,
        (caller, ticket): (&Caller, Ticket),
        (from_dir, from): (FileId, Name<'_>),
        (to_dir, to): (FileId, Name<'_>),
    ) -> Result<Option<()>, Status> {
        let from_dir = self.tree.directory(from_dir)?;
        let to_dir = self.tree.directory(to_dir)?;
        let (node, _) = self.tree.child(&from_dir, from.0)?;
        let target = self.tree.child(&to_dir, to.0).ok();
        self.check_uncut(node.id)?;
        if let Some((target, look)) = &target {
            self.check_uncut(target.id)?;
            if !has_room_for(&self.tree.helpers, &look.attributes) {
                return Err(Status::Jukebox);
            }
        }
        let (at_from, at_to) = (self.at(&from_dir, from)?, self.at(&to_dir, to)?);
        let act = Act::Rename(Rename { by: self.by(caller), from: at_from, to: at_to });
        let files = [Some(from_dir.id), Some(to_dir.id)];
        let target = target.map(|(target, _)| target);
        let then = Then::Move { node, target, dir: to_dir.id, name: to.0.into() };
        self.begin_change(ticket, act, Change { files, cost: Cost::Little, then })
    }

    fn by(&self, caller: &Caller) -> By {
        By { rights: Arc::clone(&self.rights), caller: *caller }
    }

    /// Opens what the change of a name takes.
    fn at(&self, dir: &Node, name: Name<'_>) -> Result<At, Errno> {
        let changed = self.before_change(dir, FileType::Directory)?;
        Ok(At { dir: dir.another_place()?, name: name.0.into(), changed })
    }

    /// Returns by what a change of a file is brought to stable storage, if it is to be. It is opened before the change:
    /// a client that is told to try again for want of descriptors must not find its change done. A file that this
    /// process may change and not open, such as another user's directory for all to write and none to read, needs the
    /// whole file system. The stand-in for a place where another file system is mounted is not changed.
    pub(super) fn before_change(&self, node: &Node, kind: FileType) -> Result<Option<Sync>, Errno> {
        if node.is_stand_in() {
            return Err(Errno::ROFS);
        }
        if !self.stable {
            return Ok(None);
        }
        let open = &self.tree.descriptors;
        match node.syncing(kind, open) {
            Err(Errno::ACCESS) => {
                let top = self.tree.root().syncing(FileType::Directory, open)?;
                Ok(top.map(Sync::FileSystem))
            }
            file => Ok(file?.map(Sync::File)),
        }
    }

    /// Brings a change to stable storage. The system reports once that it lost data of a file: a failure counts as one of
    /// a COMMIT, which will not hear of it.
    pub(super) fn settle(&mut self, changed: Option<&Sync>) -> Result<(), Status> {
        acts::settle(changed).map_err(|errno| self.lost(errno))
    }
}

/// Returns the permission bits and the group that the system gives a new file.
fn given(caller: &Caller, parent: &Attributes, new: &New<'_>) -> (u32, u32) {
    let inherits = parent.mode & SET_GID != 0;
    let gid = if inherits { parent.gid } else { group_of(caller, new) };
    let mode = match new.kind {
        NewKind::Directory => {
            new.mode & (PERMISSIONS | STICKY) | if inherits { SET_GID } else { 0 }
        }
        NewKind::Regular | NewKind::Symlink(_) | NewKind::Special(..) => new.mode,
    };
    (mode, gid)
}

fn special(kind: FileType) -> Result<fs::FileType, Status> {
    match kind {
        FileType::Block => Ok(fs::FileType::BlockDevice),
        FileType::Character => Ok(fs::FileType::CharacterDevice),
        FileType::Socket => Ok(fs::FileType::Socket),
        FileType::Fifo => Ok(fs::FileType::Fifo),
        FileType::Regular | FileType::Directory | FileType::Symlink => Err(Status::BadType),
    }
}

/// The user that no permission bits stop.
const ROOT: u32 = 0;
/// The bits of permissions alone.
const PERMISSIONS: u32 = 0o777;
/// New files in a directory with this bit get its group.
const SET_GID: u32 = 0o2000;
