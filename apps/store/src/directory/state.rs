//! The state directory of a server: the key of its file handles, and the journal of where files are.
//!
//! # Recovery
//! The key and the file system ID are written once, atomically, before they are used. With another key, all handles of
//! earlier runs are invalid.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use haulage::sys::private;

use super::shared::journal::Journal;
use crate::handle::KEY_LEN;

/// A directory of the server's own, which no other server uses at the same time, and no other user at all.
#[derive(Debug)]
pub struct State {
    directory: Arc<private::Directory>,
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
    /// The system's error; [`ErrorKind::WouldBlock`] if another server has locked the directory; a [`private::Fault`] if
    /// other users have rights to it or to a file in it, or can put another in its place.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = private::Directory::open(path)?;
        let lock = directory.append("lock")?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        Ok(Self { directory: Arc::new(directory), _lock: lock })
    }

    /// Returns the stored key and ID. If there are none, stores `fresh` and returns it.
    ///
    /// # Errors
    /// The system's error; a [`private::Fault`] if the file of the key is not the server's own.
    pub fn keep(&self, fresh: Kept) -> io::Result<Kept> {
        let directory = &*self.directory;
        match directory.read("key") {
            Ok(file) => return Kept::read(file),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut file = directory.create("key.new")?;
        file.write_all(&fresh.key)?;
        file.write_all(&fresh.fsid.to_be_bytes())?;
        file.sync_all()?;
        directory.rename("key.new", "key")?;
        directory.sync()?;
        Ok(fresh)
    }

    /// Opens the journal of where files are.
    pub(super) fn journal(&self) -> io::Result<Journal> {
        Journal::open(Arc::clone(&self.directory))
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

/// Length of the file `key`, in octets.
const KEPT_LEN: usize = KEY_LEN + 8;
