//! The tree of names, with the link counts of files.

use super::Memory;
use super::directory::Directory;
use super::inodes::Kind;
use crate::access::{EXECUTE, WRITE};
use crate::backend::Context;
use crate::handle::FileId;
use crate::nfs3::{Name, Status, Time};

impl Memory {
    /// Returns the directory that a client names.
    pub(super) fn directory(&self, dir: FileId) -> Result<&Directory, Status> {
        match &self.inodes.get(dir)?.kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(Status::NotDir),
        }
    }

    /// Returns the directory with this inode number, which must be one.
    fn directory_mut(&mut self, number: u64) -> &mut Directory {
        match &mut self.inodes.at_mut(number).kind {
            Kind::Directory(names) => names,
            _ => unreachable!("the caller saw a directory"),
        }
    }

    /// Returns whether this inode number is a directory's.
    pub(super) fn is_directory(&self, number: u64) -> bool {
        matches!(self.inodes.at(number).kind, Kind::Directory(_))
    }

    /// Returns the inode number of the file with a name.
    pub(super) fn find(&self, dir: FileId, name: Name<'_>) -> Result<u64, Status> {
        self.directory(dir)?.find(name.0).ok_or(Status::NoEnt)
    }

    /// Checks that a directory's permission bits allow the caller to change its names.
    pub(super) fn check_change_of_names(
        &self,
        cx: &Context<'_>,
        dir: FileId,
    ) -> Result<(), Status> {
        self.directory(dir)?;
        cx.caller.check(&self.inodes.get(dir)?.attributes(dir.inode), WRITE | EXECUTE)
    }

    /// Checks that the caller may remove a name. Returns the inode number of its file.
    pub(super) fn check_unlink(
        &self,
        cx: &Context<'_>,
        dir: FileId,
        name: Name<'_>,
    ) -> Result<u64, Status> {
        self.check_change_of_names(cx, dir)?;
        let number = self.find(dir, name)?;
        let attributes = |number| self.inodes.at(number).attributes(number);
        let may = cx.caller.may_unlink(&attributes(dir.inode), &attributes(number));
        if may { Ok(number) } else { Err(Status::Perm) }
    }

    /// Checks that a name can be added.
    pub(super) fn check_free(&self, dir: FileId, name: Name<'_>) -> Result<(), Status> {
        if self.directory(dir)?.find(name.0).is_some() {
            return Err(Status::Exist);
        }
        // Handles of removed directories are stale, so `dir` is in the tree.
        if self.names >= self.names_max { Err(Status::NoSpc) } else { Ok(()) }
    }

    /// Adds a free name, and increments the link count of its file.
    pub(super) fn attach(&mut self, dir: FileId, name: Name<'_>, number: u64, now: Time) {
        self.names += 1;
        self.directory_mut(dir.inode).add(name.0, number);
        if self.is_directory(number) {
            self.directory_mut(number).parent = dir.inode;
            self.inodes.at_mut(dir.inode).links += 1;
        } else {
            self.inodes.at_mut(number).links += 1;
        }
        self.inodes.at_mut(dir.inode).times.modify(now);
        self.inodes.at_mut(number).times.touch(now);
    }

    /// Removes a name, and decrements the link count of its file. Returns the file's inode number.
    pub(super) fn detach(&mut self, dir: FileId, name: Name<'_>, now: Time) -> Option<u64> {
        let number = self.directory_mut(dir.inode).remove(name.0)?;
        self.names -= 1;
        if self.is_directory(number) {
            self.inodes.at_mut(dir.inode).links -= 1;
        } else {
            self.inodes.at_mut(number).links -= 1;
        }
        self.inodes.at_mut(dir.inode).times.modify(now);
        self.inodes.at_mut(number).times.touch(now);
        Some(number)
    }

    /// Removes a file that has no name left.
    pub(super) fn reap(&mut self, number: u64) {
        if self.is_directory(number) || self.inodes.at(number).links == 0 {
            self.inodes.remove(number);
        }
    }

    /// Returns whether directory `number` is `outer`, or below it at any depth.
    pub(super) fn is_within(&self, mut number: u64, outer: u64) -> bool {
        while number != outer {
            match &self.inodes.at(number).kind {
                Kind::Directory(names) if names.parent != number => number = names.parent,
                _ => return false,
            }
        }
        true
    }
}
