//! Names in a directory, as the system lists them.
//!
//! A cookie is the place that the system's own listing has behind a name, moved up by what the server
//! keeps for itself. File systems that serve NFS keep such places for as long as a name exists,
//! whatever comes and goes around it, and over a restart: ext4 and XFS make them of the name's hash or
//! position, btrfs and tmpfs of a number that is never used again. So a listing goes on where it
//! stopped at no cost, however long it is and whoever changes the directory.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use super::node::Node;
use crate::backend::COOKIE_MIN;

/// Names behind a place, one after the other. `.` and `..` are left out.
pub(super) struct Names {
    dir: OwnedFd,
    /// What the system listed and was not taken yet.
    listed: Vec<Listed>,
    at: usize,
    /// The names' octets.
    octets: Vec<u8>,
    buffer: Box<[MaybeUninit<u8>]>,
}

/// A name, as the system listed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) name: &'a [u8],
    pub(super) inode: u64,
    /// The place behind it.
    pub(super) cookie: u64,
    /// Whether it is a directory's, as far as the system says without looking.
    pub(super) may_be_directory: bool,
}

/// A name whose octets are elsewhere.
#[derive(Clone, Copy, Debug)]
struct Listed {
    name: (usize, usize),
    inode: u64,
    cookie: u64,
    may_be_directory: bool,
}

impl Names {
    /// Begins behind a place; zero is that before the first.
    pub(super) fn open(dir: &Node, after: u64) -> Result<Self, Errno> {
        let dir = dir.listing()?;
        if let Some(place) = after.checked_sub(SHIFT).filter(|place| *place > 0) {
            // Where there never was a name the system finds the next, or says that there is none.
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

    /// Asks the system for more. Returns whether there is more.
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

/// What places are moved up by: the least behind a name is one.
const SHIFT: u64 = COOKIE_MIN - 1;
/// Octets of names asked for at once.
const BUFFER_LEN: usize = 32 << 10;
