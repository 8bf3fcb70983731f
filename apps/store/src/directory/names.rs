//! Changes of names: creating, linking, removing and renaming files.

use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::changes::{ACROSS, Change, Changes, Plan, Then};
use super::closing::has_room_for;
use super::helpers::Cost;
use super::jobs::acts::{Act, Link, Rename, Unlink};
use super::jobs::change::{At, By};
use super::jobs::making::Make;
use super::jobs::syncing::{Shut, Sync};
use super::node::Node;
use super::tree::Tree;
use crate::access::Caller;
use crate::backend::New;
use crate::handle::FileId;
use crate::nfs3::{FileType, Name, Status};

impl Changes {
    /// Creates a file, with its owner and its permission bits from the beginning.
    pub(super) fn make(
        &self,
        tree: &mut Tree,
        caller: &Caller,
        (dir, name): (FileId, Name<'_>),
        new: &New<'_>,
    ) -> Result<Plan, Status> {
        let dir = tree.directory(dir)?;
        let parent = dir.look()?.attributes;
        let (new, path) = Make::apart(new);
        let act = Act::Make(Make {
            by: self.by(caller),
            at: self.at(tree, &dir, name)?,
            descriptors: Arc::clone(&tree.files.descriptors),
            parent,
            new,
            path,
            top: self.is_stable.then(|| Arc::clone(&tree.files.top)),
            #[cfg(test)]
            between: self.between.clone(),
        });
        let (files, cost) = (vec![dir.id], Cost::Little);
        let then = Then::Keep { dir: dir.id, name: name.0.into() };
        let change = Change { files, name: Some(name.0.into()), cost, then };
        Ok((act, change))
    }

    /// Gives a file one more name. As for a local process, the system may refuse a file that is not the caller's
    /// (`/proc/sys/fs/protected_hardlinks` in proc(5)).
    pub(super) fn link(
        &self,
        tree: &mut Tree,
        caller: &Caller,
        file: FileId,
        (dir, name): (FileId, Name<'_>),
    ) -> Result<Plan, Status> {
        self.check_uncut(file)?;
        let (node, look) = tree.find(file)?;
        let dir = tree.directory(dir)?;
        if look.is_directory() {
            return Err(Status::Inval);
        }
        let act = Act::Link(Link {
            by: self.by(caller),
            descriptors: Arc::clone(&tree.files.descriptors),
            place: node.another_place()?,
            at: self.at(tree, &dir, name)?,
            changed: self.before_change(tree, &node, look.attributes.kind)?,
        });
        let (files, cost) = (vec![node.id, dir.id], Cost::Little);
        let then = Then::See { node, dir: dir.id, name: name.0.into() };
        Ok((act, Change { files, name: None, cost, then }))
    }

    /// Removes a name, of a directory if `flags` say so.
    pub(super) fn unlink(
        &self,
        tree: &mut Tree,
        caller: &Caller,
        (dir, name): (FileId, Name<'_>),
        flags: AtFlags,
    ) -> Result<Plan, Status> {
        let dir = tree.directory(dir)?;
        let (node, look) = tree.child(&dir, name.0)?;
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
        if !has_room_for(&tree.files.helpers, &look.attributes) {
            return Err(Status::Jukebox);
        }
        let at = self.at(tree, &dir, name)?;
        let act = Act::Unlink(Unlink { by: self.by(caller), at, flags });
        let (files, cost) = (vec![dir.id, node.id], Cost::Little);
        let name = (!wants_dir).then(|| name.0.into());
        let change = Change { files, name, cost, then: Then::Reap(node) };
        Ok((act, change))
    }

    /// Renames a file. What has the new name is removed.
    pub(super) fn rename(
        &self,
        tree: &mut Tree,
        caller: &Caller,
        (from_dir, from): (FileId, Name<'_>),
        (to_dir, to): (FileId, Name<'_>),
    ) -> Result<Plan, Status> {
        let from_dir = tree.directory(from_dir)?;
        let to_dir = tree.directory(to_dir)?;
        let (node, _) = tree.child(&from_dir, from.0)?;
        let target = tree.child(&to_dir, to.0).ok();
        self.check_uncut(node.id)?;
        if let Some((target, look)) = &target {
            self.check_uncut(target.id)?;
            if !has_room_for(&tree.files.helpers, &look.attributes) {
                return Err(Status::Jukebox);
            }
        }
        let (at_from, at_to) = (self.at(tree, &from_dir, from)?, self.at(tree, &to_dir, to)?);
        let act = Act::Rename(Rename { by: self.by(caller), from: at_from, to: at_to });
        let target = target.map(|(target, _)| target);
        let mut files = vec![from_dir.id, to_dir.id, node.id];
        files.extend(target.as_ref().map(|target| target.id));
        files.extend((from_dir.id != to_dir.id).then_some(ACROSS));
        let cost = Cost::Little;
        let then = Then::Move { node, target, dir: to_dir.id, name: to.0.into() };
        Ok((act, Change { files, name: None, cost, then }))
    }

    /// Returns the rights of a change for a caller.
    pub(super) fn by(&self, caller: &Caller) -> By {
        By { rights: Arc::clone(&self.rights), caller: *caller }
    }

    /// Opens what the change of a name takes.
    fn at(&self, tree: &Tree, dir: &Node, name: Name<'_>) -> Result<At, Errno> {
        let changed = self.before_change(tree, dir, FileType::Directory)?;
        Ok(At { dir: dir.another_place()?, name: name.0.into(), changed })
    }

    /// Returns by what a change of a file is brought to stable storage, if it is to be. It is opened before the change:
    /// a client that is told to try again for want of descriptors must not find its change done. A file that this
    /// process may change and not open, such as another user's directory for all to write and none to read, needs the
    /// whole file system. The stand-in for a place where another file system is mounted is not changed.
    pub(super) fn before_change(
        &self,
        tree: &Tree,
        node: &Node,
        kind: FileType,
    ) -> Result<Option<Sync>, Errno> {
        if node.is_stand_in() {
            return Err(Errno::ROFS);
        }
        if !self.is_stable {
            return Ok(None);
        }
        let descriptors = &tree.files.descriptors;
        match node.syncing(kind, descriptors) {
            Err(Errno::ACCESS) => Ok(Some(Sync::Shut(Shut {
                id: node.id,
                descriptors: Arc::clone(descriptors),
                place: Arc::new(node.another_place()?),
                is_directory: kind == FileType::Directory,
                top: Arc::clone(&tree.files.top),
            }))),
            file => Ok(file?.map(|file| Sync::File(node.id, file))),
        }
    }
}
