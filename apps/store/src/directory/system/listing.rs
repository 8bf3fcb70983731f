//! Listing of a directory by `getdents`.
//!
//! A cookie is the system's directory offset after a name, plus the number of cookies reserved for the server. No cookie
//! is above the greatest offset of the system, which clients hand to their own programs: ext4's offset after the last
//! name is that already. A listing from the greatest cookie, or from one above, which earlier versions gave out, is at
//! the end of the directory. File
//! systems that support NFS keep these offsets valid while a name exists, whatever is added or removed around it, and
//! over a restart: ext4 and XFS derive them from the name's hash or position, btrfs and tmpfs from a number that is
//! never reused. So a listing continues where it stopped at no cost, even in a directory that is long or changing.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use crate::backend::COOKIE_MIN;

/// An iterator over the names of a directory, from a cookie on. `.` and `..` are left out.
pub(crate) struct Names {
    dir: OwnedFd,
    /// Entries that the system returned and that were not taken yet.
    listed: Vec<Listed>,
    at: usize,
    /// The names' octets.
    octets: Vec<u8>,
    buffer: Box<[MaybeUninit<u8>]>,
}

/// A name with its cookie and what the system tells of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) inode: u64,
    /// The cookie from which a listing continues after this name.
    pub(crate) cookie: u64,
    /// Whether the name may be a directory's: the system says so, or does not tell.
    pub(crate) may_be_directory: bool,
}

/// A name whose octets are a range of [`Names::octets`].
#[derive(Clone, Copy, Debug)]
struct Listed {
    name: (usize, usize),
    inode: u64,
    cookie: u64,
    may_be_directory: bool,
}

impl Names {
    /// Starts a listing of an open directory after a cookie; zero is the start. Of more than `wanted` names, only some are
    /// read from the system.
    pub(crate) fn of(dir: OwnedFd, after: u64, wanted: usize) -> Result<Self, Errno> {
        if let Some(place) = offset(after) {
            // For an offset without a name the system continues at the next name, or ends.
            seek(&dir, SeekFrom::Start(place))?;
        }
        let length = wanted.saturating_mul(NAMED_LEN).clamp(BUFFER_MIN, BUFFER_LEN);
        let buffer = vec![MaybeUninit::uninit(); length].into();
        Ok(Self { dir, listed: Vec::new(), at: 0, octets: Vec::new(), buffer })
    }

    /// Returns the next name.
    pub(crate) fn next(&mut self) -> Option<Result<Named<'_>, Errno>> {
        while self.at == self.listed.len() {
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let Listed { name: (from, to), inode, cookie, may_be_directory } =
            *self.listed.get(self.at)?;
        self.at += 1;
        let name = self.octets.get(from..to)?;
        Some(Ok(Named { name, inode, cookie, may_be_directory }))
    }

    /// Reads more names from the system. Returns whether there were any.
    fn refill(&mut self) -> Result<bool, Errno> {
        self.listed.clear();
        self.octets.clear();
        self.at = 0;
        let mut raw = RawDir::new(&self.dir, &mut self.buffer);
        let mut any = false;
        while let Some(entry) = raw.next() {
            let entry = entry?;
            any = true;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let from = self.octets.len();
                self.octets.extend(name);
                let kind = entry.file_type();
                self.listed.push(Listed {
                    name: (from, self.octets.len()),
                    inode: entry.ino(),
                    cookie: cookie(entry.next_entry_cookie()),
                    may_be_directory: matches!(kind, FileType::Directory | FileType::Unknown),
                });
            }
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(any)
    }
}

/// Returns the cookie for one of the system's offsets.
fn cookie(offset: u64) -> u64 {
    offset.saturating_add(SHIFT).min(OFFSET_MAX)
}

/// Returns the system's offset for a cookie; none for the start.
fn offset(cookie: u64) -> Option<u64> {
    let place = if cookie < OFFSET_MAX { cookie.saturating_sub(SHIFT) } else { OFFSET_MAX };
    Some(place).filter(|place| *place > 0)
}

/// The difference between a cookie and the system's offset, which is at least one after a name.
const SHIFT: u64 = COOKIE_MIN - 1;
/// The greatest offset of the system.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();
/// Octets of entries read at once, at most.
const BUFFER_LEN: usize = 32 << 10;
/// Octets of entries read at once, at least: some of the longest names.
const BUFFER_MIN: usize = 1 << 10;
/// Octets of the entry of a name of common length.
const NAMED_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_an_offset_for_every_client_and_leads_back() {
        for at in [1, 2, 3, 1 << 32, OFFSET_MAX - 3] {
            assert!(cookie(at) >= COOKIE_MIN);
            assert_eq!(offset(cookie(at)), Some(at), "{at}");
        }
        assert_eq!((offset(0), cookie(OFFSET_MAX)), (None, OFFSET_MAX));
        assert_eq!(offset(cookie(OFFSET_MAX)), Some(OFFSET_MAX));
        // Earlier versions gave out this cookie for the end of an ext4 directory.
        assert_eq!(offset(0x8000_0000_0000_0001), Some(OFFSET_MAX));
        assert_eq!(offset(u64::MAX), Some(OFFSET_MAX));
    }
}
