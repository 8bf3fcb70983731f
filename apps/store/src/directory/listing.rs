//! Listing of a directory by `getdents`.
//!
//! A cookie is the system's directory offset after a name, plus the number of cookies reserved for the server. File
//! systems that support NFS keep these offsets valid while a name exists, whatever is added or removed around it, and
//! over a restart: ext4 and XFS derive them from the name's hash or position, btrfs and tmpfs from a number that is
//! never reused. So a listing continues where it stopped at no cost, even in a directory that is long or changing.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use super::node::Node;
use crate::backend::COOKIE_MIN;

/// An iterator over the names of a directory, from a cookie on. `.` and `..` are left out.
pub(super) struct Names {
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
pub(super) struct Named<'a> {
    pub(super) name: &'a [u8],
    pub(super) inode: u64,
    /// The cookie from which a listing continues after this name.
    pub(super) cookie: u64,
    /// Whether the name may be a directory's: the system says so, or does not tell.
    pub(super) may_be_directory: bool,
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
    /// Starts a listing after a cookie; zero is the start.
    pub(super) fn open(dir: &Node, after: u64) -> Result<Self, Errno> {
        let dir = dir.listing()?;
        if let Some(place) = after.checked_sub(SHIFT).filter(|place| *place > 0) {
            // For an offset without a name the system continues at the next name, or ends.
            seek(&dir, SeekFrom::Start(place.min(i64::MAX.cast_unsigned())))?;
        }
        let buffer = vec![MaybeUninit::uninit(); BUFFER_LEN].into();
        Ok(Self { dir, listed: Vec::new(), at: 0, octets: Vec::new(), buffer })
    }

    /// Returns the next name.
    pub(super) fn next(&mut self) -> Option<Result<Named<'_>, Errno>> {
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
                    cookie: entry.next_entry_cookie().saturating_add(SHIFT),
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

/// The difference between a cookie and the system's offset, which is at least one after a name.
const SHIFT: u64 = COOKIE_MIN - 1;
/// Octets of entries read at once.
const BUFFER_LEN: usize = 32 << 10;
