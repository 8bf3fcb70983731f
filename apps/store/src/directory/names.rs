//! Changes of names: creating, linking, removing and renaming files.

use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::Directory;
use super::changes::{Change, Then};
use super::closing::has_room_for;
use super::found::ACROSS;
use super::helpers::Cost;
use super::jobs::acts::{Act, Link, Rename, Unlink};
use super::jobs::change::{At, By};
use super::jobs::making::Make;
use super::jobs::syncing::{Shut, Sync};
use super::node::Node;
use crate::access::Caller;
use crate::backend::{New, Ticket};
use crate::handle::FileId;
use crate::nfs3::{FileType, Name, Status};

impl Directory {
    /// Creates a file, with its owner and its permission bits from the beginning.
    pub(super) fn begin_make(
        &mut self,
        (caller, ticket): (&Caller, Ticket),
        (dir, name): (FileId, Name<'_>),
        new: &New<'_>,
    ) -> Result<Option<FileId>, Status> {
        let dir = self.tree.directory(dir)?;
        let parent = dir.look()?.attributes;
        let (new, path) = Make::apart(new);
        let act = Act::Make(Make {
            by: self.by(caller),
            at: self.at(&dir, name)?,
            descriptors: Arc::clone(&self.tree.files.descriptors),
            parent,
            new,
            path,
            top: self.stable.then(|| Arc::clone(&self.tree.files.top)),
            #[cfg(test)]
            between: self.between.clone(),
        });
        let (files, cost) = (vec![dir.id], Cost::Little);
        let then = Then::Keep { dir: dir.id, name: name.0.into() };
        let change = Change { files, name: Some(name.0.into()), cost, then };
        self.begin_change(ticket, act, change).map(|done| done.flatten())
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
            descriptors: Arc::clone(&self.tree.files.descriptors),
            place: node.another_place()?,
            at: self.at(&dir, name)?,
            changed: self.before_change(&node, look.attributes.kind)?,
        });
        let (files, cost) = (vec![node.id, dir.id], Cost::Little);
        let then = Then::See { node, dir: dir.id, name: name.0.into() };
        Ok(self.begin_change(ticket, act, Change { files, name: None, cost, then })?.map(drop))
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
        if !has_room_for(&self.tree.files.helpers, &look.attributes) {
            return Err(Status::Jukebox);
        }
        let at = self.at(&dir, name)?;
        let act = Act::Unlink(Unlink { by: self.by(caller), at, flags });
        let (files, cost) = (vec![dir.id, node.id], Cost::Little);
        let name = (!wants_dir).then(|| name.0.into());
        let change = Change { files, name, cost, then: Then::Reap(node) };
        Ok(self.begin_change(ticket, act, change)?.map(drop))
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
            if !has_room_for(&self.tree.files.helpers, &look.attributes) {
                return Err(Status::Jukebox);
            }
        }
        let (at_from, at_to) = (self.at(&from_dir, from)?, self.at(&to_dir, to)?);
        let act = Act::Rename(Rename { by: self.by(caller), from: at_from, to: at_to });
        let target = target.map(|(target, _)| target);
        let mut files = vec![from_dir.id, to_dir.id, node.id];
        files.extend(target.as_ref().map(|target| target.id));
        files.extend((from_dir.id != to_dir.id).then_some(ACROSS));
        let cost = Cost::Little;
        let then = Then::Move { node, target, dir: to_dir.id, name: to.0.into() };
        Ok(self.begin_change(ticket, act, Change { files, name: None, cost, then })?.map(drop))
    }

    /// Returns the rights of a change for a caller.
    pub(super) fn by(&self, caller: &Caller) -> By {
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
        let descriptors = &self.tree.files.descriptors;
        match node.syncing(kind, descriptors) {
            Err(Errno::ACCESS) => Ok(Some(Sync::Shut(Shut {
                id: node.id,
                descriptors: Arc::clone(descriptors),
                place: Arc::new(node.another_place()?),
                is_directory: kind == FileType::Directory,
                top: Arc::clone(&self.tree.files.top),
            }))),
            file => Ok(file?.map(|file| Sync::File(node.id, file))),
        }
    }
}
