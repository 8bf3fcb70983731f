//! Closing files that have no name left.
//!
//! # Normal operation
//! The file system gives the room of a file back when its last name is gone and its last descriptor is closed. For a file
//! of many pieces that takes seconds, for which the core cannot wait. The place of a file is its last descriptor, since
//! transfers keep it open, too; a helper thread closes it if the file is gone and large.
//!
//! # Limits
//! At most [`WAITING_MAX`] files wait for the helper, which keep as many descriptors. No client removes a large file
//! while they do. A file that is removed beside the server, and closed then, is closed by the core.

use std::cell::OnceCell;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use rustix::fs::fstat;

use super::node::SECTOR;
use crate::nfs3::{Attributes, FileType};

/// The helper thread. It starts with the first file that it has to close.
#[derive(Clone, Debug, Default)]
pub(super) struct Closer(Rc<Helper>);

#[derive(Debug, Default)]
struct Helper {
    /// None inside if the system starts no thread.
    files: OnceCell<Option<SyncSender<OwnedFd>>>,
    /// Number of files that wait, the one being closed included.
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Returns whether the helper takes another file, if a file with these attributes needs it once it is removed.
    pub(super) fn has_room_for(&self, file: &Attributes) -> bool {
        let is_dear = file.kind == FileType::Regular && file.links == 1 && file.used >= DEAR;
        !is_dear || self.0.waiting.load(Ordering::Acquire) < WAITING_MAX
    }

    fn close(&self, file: OwnedFd) {
        let Some(files) = self.0.files.get_or_init(|| self.start()) else { return };
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = files.try_send(file) {
            self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn start(&self) -> Option<SyncSender<OwnedFd>> {
        let (files, gone) = sync_channel(WAITING_MAX);
        let waiting = Arc::clone(&self.0.waiting);
        let close = move || {
            for file in gone {
                drop(file);
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
        };
        thread::Builder::new().name("closing".to_owned()).spawn(close).ok().map(|_| files)
    }

    /// Returns whether the helper has ever had a file to close.
    #[cfg(test)]
    pub(super) fn has_started(&self) -> bool {
        self.0.files.get().is_some()
    }

    /// Returns whether the helper has closed all that it was given.
    #[cfg(test)]
    pub(super) fn has_closed_all(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire) == 0
    }

    /// Has as many files wait as may.
    #[cfg(test)]
    pub(super) fn fill(&self) {
        self.0.waiting.store(WAITING_MAX, Ordering::Release);
    }
}

/// A place: a descriptor that is closed by the helper if it is the last one of a large file without a name.
#[derive(Debug)]
pub(super) struct Place {
    /// Taken when it is dropped.
    file: Option<OwnedFd>,
    /// The helper, for a regular file.
    closer: Option<Closer>,
}

impl Place {
    /// Holds a place, of a regular file if there is a closer.
    pub(super) const fn new(file: OwnedFd, closer: Option<Closer>) -> Self {
        Self { file: Some(file), closer }
    }

    /// Closes a place of a file that has another one.
    pub(super) fn close_beside(mut self) {
        self.closer = None;
    }
}

impl Deref for Place {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.file.as_ref().unwrap_or_else(|| unreachable!("it is taken when it is dropped"))
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (Some(file), Some(closer)) = (self.file.take(), self.closer.take()) else { return };
        let is_dear = |found: rustix::fs::Stat| {
            found.st_nlink == 0 && found.st_blocks.cast_unsigned().saturating_mul(SECTOR) >= DEAR
        };
        if fstat(&file).is_ok_and(is_dear) {
            closer.close(file);
        }
    }
}

/// Octets of a file that takes longer to close than to hand to another thread: sixteen pieces at most.
const DEAR: u64 = 64 << 10;
/// Maximum number of files that wait to be closed.
const WAITING_MAX: usize = 64;
