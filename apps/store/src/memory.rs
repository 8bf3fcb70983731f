//! A backend in registered memory, lost when the server ends.
//!
//! # Memory ownership
//! The data of files and symbolic links is in leases of the core's pool, and is sent from there. Names and attributes
//! are on the heap.
//!
//! # Limits
//! Files and names are bounded by [`Limits`], data by the pool.

use haulage_mr_pool::Pool;

use crate::access::WRITE;
use crate::backend::{
    Backend, Capabilities, Context, Incoming, New, NewKind, Progress, ReadDone, Room, Setting,
    Shown, Ticket, WriteDone,
};
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Attributes, FileType, Name, SetTime, Status, Time, Verifier};
use haulage_mr_pool::Piece;

mod contents;
mod directory;
mod inodes;
mod rights;
mod tree;

use contents::Contents;
use directory::Directory;
use inodes::{Inode, Inodes, Kind, Times};
use rights::{Change, permitted, without_set_id};

/// The limits of a memory backend on files and names, which are on the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of files, of all kinds.
    pub files_max: u64,
    /// Maximum number of names, hard links included.
    pub names_max: u64,
}

/// A file system in registered memory.
#[derive(Debug)]
pub struct Memory {
    inodes: Inodes,
    root: FileId,
    names: u64,
    names_max: u64,
    /// A block of zeros, sent for holes.
    zeros: Piece,
    /// The number of this run.
    run: u64,
}

impl Memory {
    /// Creates a file system of one empty directory, owned by the superuser and writable by all. `run` is a number that
    /// no earlier run had, so that handles of earlier runs are stale.
    ///
    /// Returns `None` if the pool has no room for a block of zeros.
    pub fn new(pool: &Pool, limits: Limits, run: u64, now: Time) -> Option<Self> {
        let mut zeros = pool.lease(contents::BLOCK)?;
        zeros.bytes_mut().fill(0);
        let zeros = Piece::whole(zeros.share());
        let mut inodes = Inodes::new(limits.files_max.max(1), run);
        let top = Inode {
            kind: Kind::Directory(Directory::new(TOP)),
            mode: 0o1777,
            links: 2,
            uid: 0,
            gid: 0,
            times: Times::new(now),
        };
        let root = inodes.add(top).ok()?;
        Some(Self { inodes, root, names: 0, names_max: limits.names_max, zeros, run })
    }

    /// Returns a regular file's contents and times, and the block of zeros for holes.
    fn regular_mut(&mut self, file: FileId) -> Result<(&mut Contents, &mut Times, &Piece), Status> {
        match self.inodes.get_mut(file)? {
            Inode { kind: Kind::Regular(contents), times, .. } => {
                Ok((contents, times, &self.zeros))
            }
            _ => Err(Status::Inval),
        }
    }
}

impl Memory {
    /// Changes a file's attributes, as its permission bits allow it.
    fn set(&mut self, cx: &Context<'_>, file: FileId, setting: &Setting) -> Result<(), Status> {
        let before = self.inodes.get(file)?.attributes(file.inode);
        if setting.guard.is_some_and(|ctime| ctime != before.ctime) {
            return Err(Status::NotSync);
        }
        let to = permitted(cx.caller, &before, setting.to)?;
        if let Some(size) = to.size {
            let (contents, times, _) = self.regular_mut(file)?;
            contents.set_length(cx.pool, size)?;
            times.modify(cx.now);
        }
        let inode = self.inodes.get_mut(file)?;
        inode.mode = to.mode.map_or(inode.mode, |mode| mode & MODE_MASK);
        inode.uid = to.uid.unwrap_or(inode.uid);
        inode.gid = to.gid.unwrap_or(inode.gid);
        inode.times.touch(cx.now);
        inode.times.atime = set(to.atime, inode.times.atime, cx.now);
        inode.times.mtime = set(to.mtime, inode.times.mtime, cx.now);
        Ok(())
    }

    fn make_at(
        &mut self,
        cx: &Context<'_>,
        (dir, name): (FileId, Name<'_>),
        new: &New<'_>,
    ) -> Result<FileId, Status> {
        self.check_change_of_names(cx, dir)?;
        self.check_free(dir, name)?;
        let kind = match new.kind {
            NewKind::Regular => {
                let mut contents = Contents::default();
                if let Some(size) = new.size {
                    contents.set_length(cx.pool, size)?;
                }
                Kind::Regular(contents)
            }
            NewKind::Directory => Kind::Directory(Directory::new(dir.inode)),
            NewKind::Symlink(path) => {
                let mut lease = cx.pool.lease(path.len()).ok_or(Status::NoSpc)?;
                lease.bytes_mut().copy_from_slice(path);
                Kind::Symlink(Piece::whole(lease.share()))
            }
            NewKind::Special(FileType::Regular | FileType::Directory | FileType::Symlink, _) => {
                return Err(Status::BadType);
            }
            NewKind::Special(kind, device) => Kind::Special(kind, device),
        };
        // A directory has a second link: its own `.`.
        let links = if matches!(kind, Kind::Directory(_)) { 2 } else { 0 };
        let mut times = Times::new(cx.now);
        times.atime = set(new.atime, times.atime, cx.now);
        times.mtime = set(new.mtime, times.mtime, cx.now);
        let made = self.inodes.add(Inode {
            kind,
            mode: new.mode & MODE_MASK,
            links,
            uid: new.uid,
            gid: new.gid,
            times,
        })?;
        self.attach(dir, name, made.inode, cx.now);
        Ok(made)
    }

    fn link_at(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        (dir, name): (FileId, Name<'_>),
    ) -> Result<(), Status> {
        self.inodes.get(file)?;
        if self.is_directory(file.inode) {
            return Err(Status::Inval);
        }
        self.check_change_of_names(cx, dir)?;
        self.check_free(dir, name)?;
        self.attach(dir, name, file.inode, cx.now);
        Ok(())
    }

    fn unlink(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<(), Status> {
        let number = self.check_unlink(cx, dir, name)?;
        if self.is_directory(number) {
            return Err(Status::IsDir);
        }
        self.detach(dir, name, cx.now);
        self.reap(number);
        Ok(())
    }

    fn unlink_dir(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<(), Status> {
        let number = self.check_unlink(cx, dir, name)?;
        match &self.inodes.at(number).kind {
            Kind::Directory(names) if names.is_empty() => {}
            Kind::Directory(_) => return Err(Status::NotEmpty),
            _ => return Err(Status::NotDir),
        }
        self.detach(dir, name, cx.now);
        self.reap(number);
        Ok(())
    }

    fn rename_at(
        &mut self,
        cx: &Context<'_>,
        (from_dir, from): (FileId, Name<'_>),
        (to_dir, to): (FileId, Name<'_>),
    ) -> Result<(), Status> {
        let moved = self.check_unlink(cx, from_dir, from)?;
        let target = match self.check_unlink(cx, to_dir, to) {
            Ok(target) => Some(target),
            Err(Status::NoEnt) => None,
            Err(status) => return Err(status),
        };
        // Moving a directory changes its `..`.
        if self.is_directory(moved) && from_dir != to_dir {
            cx.caller.check(&self.inodes.at(moved).attributes(moved), WRITE)?;
        }
        if target == Some(moved) {
            return Ok(());
        }
        if self.is_directory(moved) && self.is_within(to_dir.inode, moved) {
            return Err(Status::Inval);
        }
        if let Some(target) = target {
            let both = (&self.inodes.at(moved).kind, &self.inodes.at(target).kind);
            let compatible = match both {
                (Kind::Directory(_), Kind::Directory(names)) => names.is_empty(),
                (Kind::Directory(_), _) | (_, Kind::Directory(_)) => false,
                _ => true,
            };
            if !compatible {
                return Err(Status::Exist);
            }
            self.detach(to_dir, to, cx.now);
            self.reap(target);
        }
        self.detach(from_dir, from, cx.now);
        self.attach(to_dir, to, moved, cx.now);
        Ok(())
    }
}

impl Backend for Memory {
    fn root(&self) -> FileId {
        self.root
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: 255,
            links_max: u32::MAX,
            file_max: contents::FILE_MAX,
            time_delta: Time { seconds: 0, nanoseconds: 1 },
        }
    }

    fn exhausted(&self) -> Status {
        Status::NoSpc
    }

    fn room(&mut self, cx: &Context<'_>) -> Result<Room, Status> {
        let free_bytes = cx.pool.free_bytes() as u64;
        let free_files = self.inodes.room().min(self.names_max - self.names);
        Ok(Room {
            total_bytes: cx.pool.usable() as u64,
            free_bytes,
            available_bytes: free_bytes,
            total_files: self.inodes.max(),
            free_files,
            available_files: free_files,
        })
    }

    fn attributes(&mut self, _: &Context<'_>, file: FileId) -> Result<Attributes, Status> {
        Ok(self.inodes.get(file)?.attributes(file.inode))
    }

    fn change(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        file: FileId,
        setting: &Setting,
    ) -> Progress<()> {
        self.set(cx, file, setting).into()
    }

    fn lookup(&mut self, _: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<FileId, Status> {
        let number = match name.0 {
            b"." => self.directory(dir).map(|_| dir.inode)?,
            b".." => self.directory(dir)?.parent,
            _ => self.find(dir, name)?,
        };
        Ok(self.inodes.id(number))
    }

    fn make(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        at: (FileId, Name<'_>),
        new: New<'_>,
    ) -> Progress<FileId> {
        self.make_at(cx, at, &new).into()
    }

    fn link(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        file: FileId,
        at: (FileId, Name<'_>),
    ) -> Progress<()> {
        self.link_at(cx, file, at).into()
    }

    fn remove(&mut self, cx: &Context<'_>, _: Ticket, dir: FileId, name: Name<'_>) -> Progress<()> {
        self.unlink(cx, dir, name).into()
    }

    fn remove_dir(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        self.unlink_dir(cx, dir, name).into()
    }

    fn rename(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Progress<()> {
        self.rename_at(cx, from, to).into()
    }

    fn list(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status> {
        let names = self.directory(dir)?;
        let complete = names.behind(after).all(|(cookie, name, number)| {
            show(Shown { name: Name(name), file: self.inodes.id(number), cookie })
        });
        self.inodes.at_mut(dir.inode).times.atime = cx.now;
        Ok(complete)
    }

    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status> {
        let inode = self.inodes.get_mut(link)?;
        let Kind::Symlink(path) = &inode.kind else { return Err(Status::Inval) };
        inode.times.atime = cx.now;
        Ok(path.clone())
    }

    fn read(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Progress<ReadDone> {
        Progress::Ended(self.regular_mut(file).map(|(contents, times, zeros)| {
            times.atime = cx.now;
            contents.read(offset, count, zeros)
        }))
    }

    fn write(
        &mut self,
        cx: &Context<'_>,
        _: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone> {
        let verifier = Verifier(self.run);
        let written = self.regular_mut(file).and_then(|(contents, times, _)| {
            let count = contents.write(cx.pool, write.offset, write.data)?;
            if count > 0 {
                times.modify(cx.now);
            }
            Ok(count)
        });
        Progress::Ended(written.and_then(|count| {
            let inode = self.inodes.get_mut(file)?;
            let left = without_set_id(cx.caller, &inode.attributes(file.inode), Change::Octets);
            inode.mode = left.unwrap_or(inode.mode);
            // The data lives exactly as long as the server, so that it counts as stable.
            Ok(WriteDone { count, stable: Stable::FileSync, verifier })
        }))
    }

    fn commit(
        &mut self,
        _: &Context<'_>,
        _: Ticket,
        file: FileId,
        _: u64,
        _: u32,
    ) -> Progress<Verifier> {
        let verifier = Verifier(self.run);
        Progress::Ended(self.regular_mut(file).map(|_| verifier))
    }
}

/// Returns the new value of a time.
const fn set(to: SetTime, old: Time, now: Time) -> Time {
    match to {
        SetTime::Keep => old,
        SetTime::ToServer => now,
        SetTime::To(time) => time,
    }
}

/// The inode number of the top directory.
const TOP: u64 = 1;
/// All permission bits.
const MODE_MASK: u32 = 0o7777;

#[cfg(test)]
mod tests;
