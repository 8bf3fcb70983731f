//! The table of files, by inode number.

use super::contents::Contents;
use super::directory::Directory;
use crate::handle::FileId;
use crate::nfs3::{Attributes, Device, FileType, Status, Time};
use haulage_mr_pool::Piece;

/// A file.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) times: Times,
}

/// The times of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
}

/// The kind of a file, with its content.
#[derive(Debug)]
pub(super) enum Kind {
    Regular(Contents),
    Directory(Directory),
    Symlink(Piece),
    Special(FileType, Device),
}

impl Times {
    pub(super) const fn new(now: Time) -> Self {
        Self { atime: now, mtime: now, ctime: now }
    }

    /// Records a change of the attributes. Each change gets a later `ctime` than the one before, even if the clock
    /// stood still, so that clients detect it.
    pub(super) fn touch(&mut self, now: Time) {
        self.ctime = now.max(successor(self.ctime));
    }

    /// Records a change of the content.
    pub(super) fn modify(&mut self, now: Time) {
        self.touch(now);
        self.mtime = self.ctime;
    }
}

impl Inode {
    pub(super) fn attributes(&self, fileid: u64) -> Attributes {
        let (kind, size, used, device) = match &self.kind {
            Kind::Regular(contents) => {
                (FileType::Regular, contents.length(), contents.stored(), Device::default())
            }
            Kind::Directory(names) => {
                let size = names.len() as u64 * NAME_SIZE;
                (FileType::Directory, size, size, Device::default())
            }
            Kind::Symlink(path) => {
                let size = path.len() as u64;
                (FileType::Symlink, size, size, Device::default())
            }
            Kind::Special(kind, device) => (*kind, 0, 0, *device),
        };
        Attributes {
            kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            device,
            fsid: 0,
            fileid,
            atime: self.times.atime,
            mtime: self.times.mtime,
            ctime: self.times.ctime,
        }
    }
}

/// A bounded table of files. A freed inode number is reused with another generation.
#[derive(Debug)]
pub(super) struct Inodes {
    slots: Vec<Slot>,
    free: Vec<u64>,
    files_max: u64,
    /// The first generation of this run; generations of other runs differ.
    first_generation: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    inode: Option<Inode>,
}

impl Inodes {
    pub(super) const fn new(files_max: u64, first_generation: u64) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), files_max, first_generation }
    }

    /// Adds a file. Returns its ID.
    pub(super) fn add(&mut self, inode: Inode) -> Result<FileId, Status> {
        if let Some(number) = self.free.pop() {
            let slot = &mut self.slots[index(number)];
            slot.inode = Some(inode);
            return Ok(FileId { inode: number, generation: slot.generation });
        }
        if self.slots.len() as u64 >= self.files_max {
            return Err(Status::NoSpc);
        }
        let generation = self.first_generation;
        self.slots.push(Slot { generation, inode: Some(inode) });
        Ok(FileId { inode: self.slots.len() as u64, generation })
    }

    /// Removes a file with its content.
    pub(super) fn remove(&mut self, number: u64) {
        let slot = &mut self.slots[index(number)];
        slot.inode = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(number);
    }

    /// Returns the file with this ID, unless it is gone.
    pub(super) fn get(&self, file: FileId) -> Result<&Inode, Status> {
        let slot =
            file.inode.checked_sub(1).and_then(|at| self.slots.get(usize::try_from(at).ok()?));
        let slot = slot.filter(|slot| slot.generation == file.generation);
        slot.and_then(|slot| slot.inode.as_ref()).ok_or(Status::Stale)
    }

    /// Returns the file with this ID, unless it is gone, for changing it.
    pub(super) fn get_mut(&mut self, file: FileId) -> Result<&mut Inode, Status> {
        self.get(file)?;
        Ok(self.at_mut(file.inode))
    }

    /// Returns the file with this inode number, which must exist.
    pub(super) fn at(&self, number: u64) -> &Inode {
        self.slots[index(number)].inode.as_ref().unwrap_or_else(|| unreachable!("{NAMED}"))
    }

    /// Returns the file with this inode number, which must exist, for changing it.
    pub(super) fn at_mut(&mut self, number: u64) -> &mut Inode {
        self.slots[index(number)].inode.as_mut().unwrap_or_else(|| unreachable!("{NAMED}"))
    }

    /// Returns the ID of the file with this inode number, which must exist.
    pub(super) fn id(&self, number: u64) -> FileId {
        FileId { inode: number, generation: self.slots[index(number)].generation }
    }

    /// Returns the maximum number of files.
    pub(super) const fn max(&self) -> u64 {
        self.files_max
    }

    /// Returns the number of files that can still be added.
    pub(super) const fn room(&self) -> u64 {
        self.files_max - (self.slots.len() - self.free.len()) as u64
    }
}

/// Returns the index in the table of an inode number.
fn index(number: u64) -> usize {
    usize::try_from(number - 1).unwrap_or_else(|_| unreachable!("{NAMED}"))
}

/// Returns the time one nanosecond later.
pub(super) const fn successor(time: Time) -> Time {
    match time.nanoseconds {
        0..999_999_999 => Time { nanoseconds: time.nanoseconds + 1, ..time },
        _ => Time { seconds: time.seconds.saturating_add(1), nanoseconds: 0 },
    }
}

const NAMED: &str = "every name is of a file in the table";
/// The octets that each name adds to the reported size of its directory.
const NAME_SIZE: u64 = 32;
