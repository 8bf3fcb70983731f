//! Changes of names: creating, linking, removing and renaming files.

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Directory;
use super::node::{Look, Node};
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
        // Until its owner is set, only this process's user may use the file.
        let (alone, name) = (Mode::RWXU, name.0);
        let (node, look) = match new.kind {
            NewKind::Regular => dir.create(name, &self.tree.descriptors)?,
            NewKind::Directory => {
                fs::mkdirat(&dir.place, name, alone)?;
                dir.child(name)?
            }
            NewKind::Symlink(path) => {
                fs::symlinkat(path, &dir.place, name)?;
                dir.child(name)?
            }
            NewKind::Special(kind, device) => {
                let kind = special(kind)?;
                let device = fs::makedev(device.major, device.minor);
                fs::mknodat(&dir.place, name, kind, Mode::RUSR | Mode::WUSR, device)?;
                dir.child(name)?
            }
        };
        if look.attributes.kind != new.kind.file_type() {
            // Another process replaced the file.
            return Err(Status::Jukebox);
        }
        // A file of another owner was not created here, or its file system keeps no owners: leave it as it is.
        let ours = look.attributes.uid == geteuid().as_raw();
        let given = if ours { self.give(&node, new) } else { Ok(()) };
        if let Err(errno) = given {
            let directory = matches!(new.kind, NewKind::Directory);
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            // The file lacks its owner or mode, and only this Call knows it: remove it.
            let _ = fs::unlinkat(&dir.place, name, flags);
            return Err(errno.into());
        }
        let node = self.tree.keep(node, dir.id, name);
        self.settle_names(&dir)?;
        self.settle(&node, look)?;
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
        self.tree.descriptors.link(&node, &dir, name.0)?;
        self.tree.saw(&node, dir.id, name.0);
        self.settle_names(&dir)?;
        self.settle(&node, look)
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
        fs::unlinkat(&dir.place, name.0, flags).map_err(|errno| match errno {
            // Some file systems return EEXIST for a directory that is not empty.
            Errno::EXIST => Status::NotEmpty,
            errno => errno.into(),
        })?;
        self.reap(&node);
        self.settle_names(&dir)
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
        self.settle_names(&from_dir)?;
        self.settle_names(&to_dir)
    }

    /// Brings the names of a directory to stable storage.
    fn settle_names(&self, dir: &Node) -> Result<(), Status> {
        if self.stable {
            dir.sync(FileType::Directory, &self.tree.descriptors)?;
        }
        Ok(())
    }

    /// Brings a file's attributes to stable storage.
    pub(super) fn settle(&self, node: &Node, look: Look) -> Result<(), Status> {
        if self.stable {
            node.sync(look.attributes.kind, &self.tree.descriptors)?;
        }
        Ok(())
    }

    /// Forgets a file that has no name left.
    fn reap(&mut self, node: &Node) {
        if node.look().is_ok_and(|look| look.attributes.links == 0) {
            self.tree.forget(node.id);
        }
    }
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
