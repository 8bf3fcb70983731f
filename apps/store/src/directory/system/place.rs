//! Places: `O_PATH` descriptors, and what is done to a file by one.
//!
//! A place refers to a file of any kind, takes no permission to open, follows no symbolic link, and stays with the file
//! when it is renamed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{
    self, AtFlags, Mode, OFlags, ResolveFlags, StatxAttributes, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::look::{Look, WANTED, look};
use super::mounted;
use crate::handle::FileId;
use crate::nfs3::{SetTime, Time};

/// A file that was just created, or found.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) place: OwnedFd,
    /// A descriptor that reads and writes, of a regular file.
    pub(crate) writing: Option<Arc<OwnedFd>>,
    pub(crate) look: Look,
}

impl Fresh {
    /// Reads the attributes of a file.
    pub(crate) fn new(place: OwnedFd, writing: Option<Arc<OwnedFd>>) -> Result<Self, Errno> {
        let look = look(&place)?;
        Ok(Self { place, writing, look })
    }
}

/// Returns a place of the file with a name in a directory; [`Errno::XDEV`] where another file system is mounted, which is
/// not asked.
pub(crate) fn place_of(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), WITHIN)
}

/// Returns the identity of the file with a name in the directory `id`, as `Node::child` does, mostly by one system
/// call, with attributes that are current on a file system whose attributes the system itself has. A file system that is
/// mounted there is asked for nothing that it has to fetch.
pub(crate) fn peek(dir: &OwnedFd, id: FileId, name: &[u8]) -> Result<Look, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match fs::statx(dir, name, flags, WANTED) {
        Ok(found) if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(Look::of(&found))
        }
        Err(Errno::NOENT) => Err(Errno::NOENT),
        // Another file system is mounted on the name; some refuse even `statx` to all but their owner.
        Ok(_) | Err(_) => match place_of(dir, name) {
            Err(Errno::XDEV) => Ok(mounted::look(mounted::id(id, name), look(dir)?.attributes)),
            place => look(place?),
        },
    }
}

/// Changes the user and the group of a place's file. To what it has already, too: the system takes SUID, SGID and
/// capabilities from it then.
pub(crate) fn give(place: &OwnedFd, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    // `chown` takes all ones as "do not change".
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno::INVAL);
    }
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    fs::chownat(place, "", uid, gid, AtFlags::EMPTY_PATH)
}

/// Sets the access and modification times of a place's file.
pub(crate) fn set_times(place: &OwnedFd, atime: SetTime, mtime: SetTime) -> Result<(), Errno> {
    if (atime, mtime) == (SetTime::Keep, SetTime::Keep) {
        return Ok(());
    }
    let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
    fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH)
}

const fn timespec(to: SetTime) -> Timespec {
    match to {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::ToServer => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(Time { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 }
        }
    }
}

/// Resolution flags by which no name leads up, through a link, or to another mount.
pub(crate) const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
