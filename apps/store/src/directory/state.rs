//! The state directory of a server: the key of its file handles, and the journal of where files are.
//!
//! # Recovery
//! The key and the file system ID are written once, atomically, before they are used. With another key, all handles of
//! earlier runs are invalid.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::journal::Journal;
use crate::handle::KEY_LEN;

/// A directory of the server's own, which no other server uses at the same time.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// The key and the file system ID that make one server's handles distinct from all others.
#[derive(Clone, Copy)]
pub struct Kept {
    /// The key that seals file handles.
    pub key: [u8; KEY_LEN],
    /// The file system ID.
    pub fsid: u64,
}

impl State {
    /// Locks the directory at `path`; creates it if it does not exist.
    ///
    /// # Errors
    /// The system's error; [`ErrorKind::WouldBlock`] if another server has locked the directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = private().truncate(false).open(path.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Returns the stored key and ID. If there are none, stores `fresh` and returns it.
    pub fn keep(&self, fresh: Kept) -> io::Result<Kept> {
        let path = self.path.join("key");
        match File::open(&path) {
            Ok(file) => return Kept::read(file),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let new = self.path.join("key.new");
        let mut file = private().truncate(true).open(&new)?;
        file.write_all(&fresh.key)?;
        file.write_all(&fresh.fsid.to_be_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(&self.path)?.sync_all()?;
        Ok(fresh)
    }

    /// Opens the journal of where files are.
    pub(super) fn journal(&self) -> io::Result<Journal> {
        Journal::open(&self.path.join("names"))
    }
}

impl Kept {
    fn read(file: File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        // One octet more than expected detects a longer file.
        file.take(KEPT_LEN as u64 + 1).read_to_end(&mut bytes)?;
        let whole = (bytes.len() == KEPT_LEN).then_some(bytes);
        let parts = whole.as_ref().and_then(|bytes| {
            let (key, fsid) = bytes.split_first_chunk()?;
            Some(Self { key: *key, fsid: u64::from_be_bytes(fsid.try_into().ok()?) })
        });
        parts.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the file `key` is damaged"))
    }
}

/// Hides the key.
impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("fsid", &self.fsid).finish_non_exhaustive()
    }
}

/// Returns the options that create files which other users cannot read.
fn private() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    options
}

/// Length of the file `key`, in octets.
const KEPT_LEN: usize = KEY_LEN + 8;
