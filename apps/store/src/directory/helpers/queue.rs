//! Jobs that wait for a thread.

use std::collections::VecDeque;

use haulage::shares::Shares;

use crate::handle::FileId;

/// How long a job takes where nobody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// The job takes as long as a few system calls.
    Little,
    /// The job takes as long as the system needs to free the room of a large file.
    Dear,
    /// The job takes as long as the system needs to list some hundred names.
    List,
    /// The job takes as long as the disk needs to write what was changed.
    Sync,
}

/// A job, and whose it is.
#[derive(Debug)]
pub(super) struct Task<J> {
    pub(super) job: J,
    pub(super) cost: Cost,
    pub(super) network: u64,
    /// The directory whose lock the job waits for, if others for the same lock may be given to the same thread.
    pub(super) lock: Option<FileId>,
    /// The number of the job among those that give room back, if it does.
    pub(super) frees: Option<u64>,
    /// Whether there was no room for the job before.
    pub(super) is_repeated: bool,
}

/// Jobs of one cost that wait for a thread.
#[derive(Debug)]
pub(super) struct Queue<J> {
    pub(super) tasks: VecDeque<Task<J>>,
    pub(super) waiting: Shares,
    pub(super) under_way: Shares,
}

impl<J> Task<J> {
    pub(super) const fn new(job: J, (cost, network): (Cost, u64)) -> Self {
        Self { job, cost, network, lock: None, frees: None, is_repeated: false }
    }
}

impl<J> Queue<J> {
    pub(super) fn new(waiting_max: usize, threads_max: usize) -> Self {
        let (waiting, under_way) = (Shares::new(waiting_max), Shares::new(threads_max));
        Self { tasks: VecDeque::new(), waiting, under_way }
    }

    /// Takes the first job of a network that has a share left.
    pub(super) fn next(&mut self, has_thread: impl Fn(u64) -> bool) -> Option<Task<J>> {
        let may_begin =
            |task: &Task<J>| self.under_way.has_room(task.network, 1) && has_thread(task.network);
        let first = self.tasks.iter().position(may_begin)?;
        self.tasks.remove(first)
    }
}
