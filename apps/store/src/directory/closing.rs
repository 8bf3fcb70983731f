//! Closing files that have no name left, and cutting files.
//!
//! # Normal operation
//! The file system gives the room of a file back when its last name is gone and its last descriptor is closed. For a file
//! of many pieces that takes seconds, for which the core cannot wait. The place of a file is its last descriptor, since
//! transfers keep it open, too; a helper thread closes it if the file is gone and large. Cutting a large file takes as
//! long, and the helper does it, too; then it wakes the core.
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
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use haulage::provider::Waker;
use rustix::fs::{fstat, ftruncate};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::node::SECTOR;
use crate::backend::Ticket;
use crate::nfs3::{Attributes, FileType};

/// The helper thread. It starts with the first file that it has to close or to cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Closer(Rc<Helper>);

#[derive(Debug, Default)]
struct Helper {
    /// None inside if the system starts no thread.
    jobs: OnceCell<Option<SyncSender<Job>>>,
    /// Results of cutting, and how the core hears of them.
    cut: OnceCell<(Waker, Sender<Cut>, Receiver<Cut>)>,
    /// Number of files that wait, the one being closed included.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Job {
    Close(OwnedFd),
    /// Cuts a file to a size, and tells the core of it.
    Cut {
        file: OwnedFd,
        size: u64,
        ticket: Ticket,
        waker: Waker,
        ended: Sender<Cut>,
    },
}

/// The result of cutting a file.
pub(super) type Cut = (Ticket, Result<(), Errno>);

impl Closer {
    /// Has files cut by the helper from now on, which wakes the core.
    pub(super) fn wake_by(&self, waker: Waker) {
        let (ended, ends) = channel();
        let _ = self.0.cut.set((waker, ended, ends));
    }

    /// Has the helper cut a file to a size. Returns whether it will: otherwise the core has to.
    pub(super) fn cut(&self, file: &OwnedFd, size: u64, ticket: Ticket) -> bool {
        let (Some((waker, ended, _)), Ok(file)) = (self.0.cut.get(), fcntl_dupfd_cloexec(file, 0))
        else {
            return false;
        };
        let (waker, ended) = (waker.clone(), ended.clone());
        self.give(Job::Cut { file, size, ticket, waker, ended })
    }

    /// Returns the next result of cutting a file.
    pub(super) fn next_cut(&self) -> Option<Cut> {
        self.0.cut.get()?.2.try_recv().ok()
    }

    /// Returns whether the helper takes another file, if a file with these attributes needs it once it is removed.
    pub(super) fn has_room_for(&self, file: &Attributes) -> bool {
        // A directory has one name, whatever the number of its links is.
        let is_last = file.kind == FileType::Directory || file.links == 1;
        let is_dear = may_be_large(file.kind) && is_last && file.used >= DEAR;
        !is_dear || !self.is_full()
    }

    /// Returns whether as many files wait for the helper as may.
    pub(super) fn is_full(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire) >= WAITING_MAX
    }

    /// Gives the helper a job. Returns whether it takes it.
    fn give(&self, job: Job) -> bool {
        let Some(jobs) = self.0.jobs.get_or_init(|| self.start()) else { return false };
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        let given = jobs.try_send(job).is_ok();
        if !given {
            self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        given
    }

    fn start(&self) -> Option<SyncSender<Job>> {
        let (jobs, given) = sync_channel::<Job>(WAITING_MAX);
        let waiting = Arc::clone(&self.0.waiting);
        let act = move || {
            for job in given {
                match job {
                    Job::Close(file) => drop(file),
                    Job::Cut { file, size, ticket, waker, ended } => {
                        // The backend may be gone.
                        let _ = ended.send((ticket, ftruncate(file, size)));
                        waker.wake();
                    }
                }
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
        };
        thread::Builder::new().name("closing".to_owned()).spawn(act).ok().map(|_| jobs)
    }

    /// Returns whether the helper has ever had a file to close.
    #[cfg(test)]
    pub(super) fn has_started(&self) -> bool {
        self.0.jobs.get().is_some()
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
    /// The helper, for a file that may be large.
    closer: Option<Closer>,
}

impl Place {
    /// Holds a place, of a file that may be large if there is a closer.
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
            closer.give(Job::Close(file));
        }
    }
}

/// Returns whether files of a kind have room that takes long to give back. A directory keeps what its names took.
pub(super) const fn may_be_large(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory)
}

/// Octets of a file that takes longer to close than to hand to another thread: sixteen pieces at most.
pub(super) const DEAR: u64 = 64 << 10;
/// Maximum number of files that wait to be closed.
const WAITING_MAX: usize = 64;
