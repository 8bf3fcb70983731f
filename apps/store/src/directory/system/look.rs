//! What a file is like, as `statx` tells it.

use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::handle::FileId;
use crate::nfs3::{Attributes, Device, FileType, Status, Time};

/// The identity and attributes of a file, from `statx`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) id: FileId,
    /// The attributes, as the protocol has them.
    pub(crate) attributes: Attributes,
    /// What nobody may change of the file, whatever its permission bits.
    pub(crate) hold: Hold,
}

/// What nobody may change of a file (`chattr +i`, `chattr +a`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    /// All may be changed.
    #[default]
    None,
    /// Data and names may be added; none may be changed or removed.
    Appended,
    /// Nothing may be changed.
    Immutable,
}

/// Reads a file's identity and attributes by `statx`.
pub(crate) fn look(place: impl AsFd) -> Result<Look, Errno> {
    Ok(Look::of(&fs::statx(place, "", AtFlags::EMPTY_PATH, WANTED)?))
}

impl Look {
    /// Returns what `statx` found of a file.
    pub(crate) fn of(found: &Statx) -> Self {
        let id = FileId { inode: found.stx_ino, generation: generation(found) };
        let kind = fs::FileType::from_raw_mode(u32::from(found.stx_mode));
        let attributes = Attributes {
            kind: file_type(kind),
            mode: u32::from(found.stx_mode) & MODE_MASK,
            links: found.stx_nlink,
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            used: found.stx_blocks.saturating_mul(SECTOR),
            device: Device { major: found.stx_rdev_major, minor: found.stx_rdev_minor },
            fsid: 0,
            fileid: found.stx_ino,
            atime: time(found.stx_atime),
            mtime: time(found.stx_mtime),
            ctime: time(found.stx_ctime),
        };
        let hold = if found.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
            Hold::Immutable
        } else if found.stx_attributes.contains(StatxAttributes::APPEND) {
            Hold::Appended
        } else {
            Hold::None
        };
        Self { id, attributes, hold }
    }

    /// Returns whether the system refuses all writes: those of a client may be anywhere in the file.
    pub(crate) const fn is_held(&self) -> bool {
        match self.hold {
            Hold::None => false,
            Hold::Appended => matches!(self.attributes.kind, FileType::Regular),
            Hold::Immutable => true,
        }
    }

    /// Returns whether it is a directory.
    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.attributes.kind, FileType::Directory)
    }

    /// Returns whether the file was created at a time, or later, if its file system keeps the time.
    pub(crate) const fn is_born_since(&self, at: Time) -> bool {
        self.id.generation >= at.seconds as u64 * NANOS + at.nanoseconds as u64
    }

    /// Returns this look if the file is a directory.
    pub(crate) const fn directory(self) -> Result<Self, Status> {
        if self.is_directory() { Ok(self) } else { Err(Status::NotDir) }
    }

    /// Returns this look if the file is a regular file.
    pub(crate) const fn regular(self) -> Result<Self, Status> {
        match self.attributes.kind {
            FileType::Regular => Ok(self),
            _ => Err(Status::Inval),
        }
    }
}

/// Returns the generation of a file: its creation time, which distinguishes it from files that had its inode number
/// before. Zero if the file system does not keep that time.
fn generation(found: &Statx) -> u64 {
    if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let born = found.stx_btime;
    // Distinct for all times within 500 years of 1970.
    born.tv_sec.cast_unsigned().wrapping_mul(NANOS).wrapping_add(u64::from(born.tv_nsec))
}

const fn file_type(kind: fs::FileType) -> FileType {
    match kind {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::BlockDevice => FileType::Block,
        fs::FileType::CharacterDevice => FileType::Character,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::Fifo => FileType::Fifo,
        _ => FileType::Regular,
    }
}

/// Converts a time to the protocol's, which reaches from 1970 to 2106.
fn time(at: StatxTimestamp) -> Time {
    match u32::try_from(at.tv_sec) {
        Ok(seconds) => Time { seconds, nanoseconds: at.tv_nsec },
        Err(_) if at.tv_sec < 0 => Time::default(),
        Err(_) => Time { seconds: u32::MAX, nanoseconds: at.tv_nsec },
    }
}

/// Checks that a WRITE ends within [`FILE_MAX`].
pub(crate) fn check_end(offset: u64, length: usize) -> Result<(), Status> {
    let end = offset.checked_add(length as u64);
    end.filter(|end| *end <= FILE_MAX).map(drop).ok_or(Status::FBig)
}

/// Maximum size of a file, in octets.
pub(crate) const FILE_MAX: u64 = i64::MAX as u64;
/// The `statx` fields read of every file.
pub(crate) const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
/// All permission bits.
pub(crate) const MODE_MASK: u32 = 0o7777;
/// The unit of `stx_blocks`, in octets.
pub(crate) const SECTOR: u64 = 512;
const NANOS: u64 = 1_000_000_000;
