//! Changes of names: creating, linking, removing and renaming files.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Directory;
use super::node::Node;
use crate::backend::{New, NewKind};
use crate::handle::FileId;
use crate::nfs3::{FileType, Name, Status};

impl Directory {
    /// Creates a file, and sets its owner and permission bits.
    pub(super) fn make_in(
        &mut self,
        dir: FileId,
        name: Name<'_>,
        new: &New<'_>,
    ) -> Result<FileId, Status> {
        let dir = self.tree.directory(dir)?;
        let names = self.before_change(&dir, FileType::Directory)?;
        let name = name.0;
        // Only this Call knows a file that it cannot complete.
        let undo = || {
            let directory = matches!(new.kind, NewKind::Directory);
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = fs::unlinkat(&dir.place, name, flags);
        };
        // Until its owner is set, only this process's user may use the file.
        let (alone, open) = (Mode::RWXU, || dir.child(name).inspect_err(|_| undo()));
        let (node, look) = match new.kind {
            NewKind::Regular => dir.create(name, &self.tree.descriptors)?,
            NewKind::Directory => {
                fs::mkdirat(&dir.place, name, alone)?;
                open()?
            }
            NewKind::Symlink(path) => {
                fs::symlinkat(path, &dir.place, name)?;
                open()?
            }
            NewKind::Special(kind, device) => {
                let kind = special(kind)?;
                let device = fs::makedev(device.major, device.minor);
                fs::mknodat(&dir.place, name, kind, Mode::RUSR | Mode::WUSR, device)?;
                open()?
            }
        };
        if look.attributes.kind != new.kind.file_type() {
            // Another process replaced the file.
            return Err(Status::Jukebox);
        }
        // A file of another owner was not created here, or its file system keeps no owners: leave it as it is.
        let ours = look.attributes.uid == geteuid().as_raw();
        let given = if ours { self.give(&node, new) } else { Ok(()) };
        let file = given.and_then(|()| self.before_change(&node, look.attributes.kind));
        let file = file.inspect_err(|_| {
            if ours {
                undo()
            }
        })?;
        let node = self.tree.keep(node, dir.id, name);
        self.settle(names)?;
        self.settle(file)?;
        Ok(node.id)
    }

    /// Sets the owner and the permission bits of a new file.
    fn give(&self, node: &Node, new: &New<'_>) -> Result<(), Errno> {
        if self.owner.is_none() {
            node.give(Some(new.uid), Some(new.gid))?;
        }
        if matches!(new.kind, NewKind::Symlink(_)) {
            return Ok(());
        }
        self.tree.descriptors.set_mode(node, new.mode)
    }

    pub(super) fn link_in(
        &mut self,
        file: FileId,
        dir: FileId,
        name: Name<'_>,
    ) -> Result<(), Status> {
        let (node, look) = self.tree.find(file)?;
        let dir = self.tree.directory(dir)?;
        if look.is_directory() {
            return Err(Status::Inval);
        }
        let names = self.before_change(&dir, FileType::Directory)?;
        let file = self.before_change(&node, look.attributes.kind)?;
        self.tree.descriptors.link(&node, &dir, name.0)?;
        self.tree.saw(&node, dir.id, name.0);
        self.settle(names)?;
        self.settle(file)
    }

    /// Removes a name, of a directory if `flags` say so.
    pub(super) fn unlink_in(
        &mut self,
        dir: FileId,
        name: Name<'_>,
        flags: AtFlags,
    ) -> Result<(), Status> {
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
        let names = self.before_change(&dir, FileType::Directory)?;
        fs::unlinkat(&dir.place, name.0, flags).map_err(|errno| match errno {
            // Some file systems return EEXIST for a directory that is not empty.
            Errno::EXIST => Status::NotEmpty,
            errno => errno.into(),
        })?;
        self.reap(&node);
        self.settle(names)
    }

    pub(super) fn rename_in(
        &mut self,
        (from_dir, from): (FileId, Name<'_>),
        (to_dir, to): (FileId, Name<'_>),
    ) -> Result<(), Status> {
        let from_dir = self.tree.directory(from_dir)?;
        let to_dir = self.tree.directory(to_dir)?;
        let (moved, _) = self.tree.child(&from_dir, from.0)?;
        let target = self.tree.child(&to_dir, to.0).ok();
        let from_names = self.before_change(&from_dir, FileType::Directory)?;
        let to_names = self.before_change(&to_dir, FileType::Directory)?;
        fs::renameat(&from_dir.place, from.0, &to_dir.place, to.0).map_err(
            |errno| match errno {
                // These errors are about the target.
                Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY => Status::Exist,
                errno => errno.into(),
            },
        )?;
        match target {
            // Renaming one name of a file to another of its names changes nothing.
            Some((target, _)) if target.id == moved.id => {}
            target => {
                if let Some((target, _)) = target {
                    self.reap(&target);
                }
                self.tree.saw(&moved, to_dir.id, to.0);
            }
        }
        self.settle(from_names)?;
        self.settle(to_names)
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

    /// Brings a change to stable storage, with all data of the file. The system reports once that it lost data of a
    /// file: a failure counts as one of a COMMIT, which will not hear of it.
    pub(super) fn settle(&mut self, changed: Option<Sync>) -> Result<(), Status> {
        let settled = match changed {
            None => Ok(()),
            Some(Sync::File(file)) => fs::fsync(file),
            Some(Sync::FileSystem(file)) => fs::syncfs(file),
        };
        settled.map_err(|errno| self.lost(errno))
    }

    /// Forgets a file that has no name left.
    fn reap(&mut self, node: &Node) {
        if node.look().is_ok_and(|look| look.attributes.links == 0) {
            self.tree.forget(node.id);
        }
    }
}

/// What is brought to stable storage after a change.
#[derive(Debug)]
pub(super) enum Sync {
    /// This file.
    File(Rc<OwnedFd>),
    /// The file system with this file.
    FileSystem(Rc<OwnedFd>),
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
