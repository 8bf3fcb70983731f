//! A helper: a thread that does one job after the other, and reports each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use haulage::provider::Waker;

use super::job::{Attempt, Job};
use super::queue::{Cost, Task};
use crate::handle::FileId;

/// A thread, and what it has to do.
#[derive(Debug)]
pub(super) struct Thread<J> {
    tasks: Sender<(Task<J>, Place)>,
    /// Number of tasks that it has not reported, and the lock that all of them wait for.
    pub(super) left: usize,
    pub(super) lock: Option<FileId>,
    /// What its first task counts as.
    pub(super) cost: Cost,
    pub(super) network: u64,
}

/// The place of a task among those that a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    /// The thread had another one to do.
    Behind,
    /// The backend has ended.
    Last,
}

/// What a thread says of a job.
#[derive(Debug)]
pub(super) struct Report<J: Job> {
    pub(super) thread: usize,
    /// What became of the job, if somebody waits for that.
    pub(super) ended: Option<J::Ended>,
    /// The number of the job, if it gave room back.
    pub(super) freed: Option<u64>,
    /// The job, if there was no room for it.
    pub(super) roomless: Option<Task<J>>,
}

/// The facts about the backend that every helper thread reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    /// Whether the backend has ended.
    pub(super) is_over: Arc<AtomicBool>,
    /// Whether jobs are left that give room back: what a thread asks that has found no room.
    pub(super) is_freeing: Arc<AtomicBool>,
    #[cfg(test)]
    pub(super) gates: Gates,
}

/// Whether a test keeps the helpers from acting, from syncing, and from giving room back.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    pub(super) all: Arc<AtomicBool>,
    pub(super) sync: Arc<AtomicBool>,
    pub(super) close: Arc<AtomicBool>,
}

/// What a thread works with.
struct Helper<J: Job> {
    thread: usize,
    given: Receiver<(Task<J>, Place)>,
    reporter: Sender<Report<J>>,
    waker: Option<Waker>,
    signs: Signs,
}

impl<J: Job> Thread<J> {
    /// Starts a thread with a number, which reports what it did and wakes the core then. Returns `None` if the system starts
    /// none.
    pub(super) fn start(
        thread: usize,
        reporter: Sender<Report<J>>,
        waker: Option<Waker>,
        signs: Signs,
    ) -> Option<Self> {
        let (tasks, given) = channel();
        let helper = Helper { thread, given, reporter, waker, signs };
        let started = thread::Builder::new().name("helper".to_owned()).spawn(|| helper.work());
        started.ok()?;
        Some(Self { tasks, left: 0, lock: None, cost: Cost::Little, network: 0 })
    }

    /// Gives the thread one more job.
    pub(super) fn send(&mut self, task: Task<J>) {
        let place = if self.left > 0 { Place::Behind } else { Place::First };
        self.left += 1;
        // A thread ends only with the crew.
        let _ = self.tasks.send((task, place));
    }

    /// Gives the thread a job that is left when the backend ends.
    pub(super) fn send_last(&self, task: Task<J>) {
        let _ = self.tasks.send((task, Place::Last));
    }
}

impl<J: Job> Helper<J> {
    fn work(self) {
        let Self { thread, given, reporter, waker, signs } = self;
        for (task, place) in given {
            // What no helper has begun when the backend ends is not done.
            let is_late = match place {
                Place::First => false,
                Place::Behind => signs.is_over.load(Ordering::Acquire),
                Place::Last => true,
            };
            #[cfg(test)]
            signs.gates.wait(&task);
            let Task { job, cost, network, lock, frees, is_repeated } = task;
            let attempt = if !is_repeated && signs.is_freeing.load(Ordering::Acquire) {
                Attempt::Repeatable
            } else {
                Attempt::Last
            };
            let done = if is_late && job.is_dispensable() {
                // To close what the job holds may take long, too.
                drop(job);
                Ok(None)
            } else {
                job.run(attempt)
            };
            let (ended, roomless) = match done {
                Ok(ended) => (ended, None),
                Err(job) => {
                    (None, Some(Task { job, cost, network, lock, frees, is_repeated: true }))
                }
            };
            // The backend may be gone.
            let _ = reporter.send(Report { thread, ended, freed: frees, roomless });
            waker.iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
impl Gates {
    /// Waits as long as a test keeps helpers from this job.
    fn wait<J>(&self, task: &Task<J>) {
        while self.all.load(Ordering::Acquire)
            || task.cost == Cost::Sync && self.sync.load(Ordering::Acquire)
            || task.frees.is_some() && self.close.load(Ordering::Acquire)
        {
            thread::yield_now();
        }
    }
}
