//! What the file system of an export is like.

use rustix::fs::{FsWord, StatVfsMountFlags};

use crate::nfs3::{Attributes, Time};

/// When reading a file sets its access time, as mount(8) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessTimes {
    Never,
    /// If the file was changed since, or the time is a day old.
    Relative,
    Always,
}

impl AccessTimes {
    /// Returns what the flags of a mount say, of statvfs(3).
    pub(crate) const fn of(flags: StatVfsMountFlags) -> Self {
        if flags.contains(StatVfsMountFlags::NOATIME) {
            Self::Never
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            Self::Relative
        } else {
            Self::Always
        }
    }

    /// Returns whether reading a file with these attributes now sets its access time.
    pub(crate) fn may_be_set(self, file: &Attributes, now: Time) -> bool {
        let Attributes { atime, mtime, ctime, .. } = file;
        match self {
            Self::Never => false,
            Self::Relative => {
                let is_old = now.seconds.saturating_sub(atime.seconds) >= DAY - 1;
                atime <= mtime || atime <= ctime || is_old
            }
            Self::Always => true,
        }
    }
}

/// Returns whether the system itself has all attributes of the files of a file system of this type, of statfs(2), and asks
/// no server for them: ext4 and its like, XFS, btrfs, F2FS, `tmpfs`.
pub(crate) const fn has_attributes(kind: FsWord) -> bool {
    matches!(kind, 0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | TMPFS)
}

/// The type of a file system that lies in memory, of statfs(2).
pub(crate) const TMPFS: FsWord = 0x0102_1994;
/// The types of XFS and of btrfs, which take data into the system's cache without waiting, where they can.
pub(crate) const PROMPT: [FsWord; 2] = [0x5846_5342, 0x9123_683e];
/// Seconds of a day.
const DAY: u32 = 24 * 60 * 60;
