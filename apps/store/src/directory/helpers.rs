//! Threads that do what may wait for somebody.
//!
//! # Normal operation
//! The core must not wait. It gives what may have to wait to the helpers as a [`Job`], and goes on; a helper does it and
//! wakes the core, which asks what became of it ([`Helpers::next_ended`]). What the jobs are is known to those who make
//! them. Jobs that wait for one lock, which all of them name, follow each other on the thread that has it, or waits for
//! it.
//!
//! Some jobs give room back ([`Helpers::free`]). A job that finds no room is done once more when those are done that were
//! to give some back meanwhile. It takes no thread while it waits for that.
//!
//! # Limits
//! At most `THREADS_MAX` threads, started when they are needed, and some more that list, so that directories are
//! listed while all others wait. Some of the former do what is dear, of which a bounded number waits, and some sync; a
//! bounded number of other jobs waits, and as many lists and syncs. What is beyond is to be asked for again. All of these
//! are shared by network. When the backend ends, nobody waits for a helper, and what no helper has begun is not done if it
//! is [dispensable](Job::is_dispensable).

use std::cell::RefCell;
use std::rc::Rc;

use haulage::provider::Waker;

use crate::handle::FileId;

mod crew;
mod job;
mod queue;
mod thread;

#[cfg(test)]
pub(super) use crew::DEAR_THREADS_MAX;
pub(super) use crew::OURS;
pub(super) use job::{Attempt, Job};
pub(super) use queue::Cost;

use crew::Crew;
use queue::Task;

/// The helper threads of one backend.
#[derive(Debug)]
pub(super) struct Helpers<J: Job>(Rc<RefCell<Crew<J>>>);

impl<J: Job> Clone for Helpers<J> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<J: Job> Default for Helpers<J> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<J: Job> Helpers<J> {
    /// Has jobs done by the helpers from now on, which wake the core.
    pub(super) fn wake_by(&self, waker: Waker) {
        self.0.borrow_mut().waker = Some(waker);
    }

    /// Returns whether helpers do jobs.
    pub(super) fn has_waker(&self) -> bool {
        self.0.borrow().waker.is_some()
    }

    /// Gives a job of a network to the helpers, behind those that wait for the same lock. Returns it if there are none, or no
    /// room for it.
    pub(super) fn hand(
        &self,
        job: J,
        (cost, network): (Cost, u64),
        lock: Option<FileId>,
    ) -> Option<J> {
        let mut crew = self.0.borrow_mut();
        if crew.waker.is_none() {
            return Some(job);
        }
        crew.give(Task { lock, ..Task::new(job, (cost, network)) })
    }

    /// Gives a job that gives room back to the helpers, also if they do no others. Returns it if there is no room for it.
    pub(super) fn free(&self, job: J) -> Option<J> {
        self.0.borrow_mut().free(job)
    }

    /// Returns the last of the jobs that are to give room back: it has come when that is done.
    pub(super) fn last_freeing(&self) -> Option<u64> {
        self.0.borrow_mut().last_freeing()
    }

    /// Returns whether a job that gives room back is done, and all that were to be done before it.
    pub(super) fn has_freed(&self, last: u64) -> bool {
        self.0.borrow().has_freed(last)
    }

    /// Takes in that a list of a network was used, so that another one may be read.
    pub(super) fn end_list(&self, network: u64) {
        self.0.borrow_mut().end_list(network);
    }

    /// Returns what became of the next job that has ended.
    pub(super) fn next_ended(&self) -> Option<J::Ended> {
        self.0.borrow_mut().next_ended()
    }

    /// Returns whether as many jobs of a cost and a network wait for the helpers as may.
    pub(super) fn is_full(&self, cost: Cost, network: u64) -> bool {
        self.0.borrow_mut().is_full(cost, network)
    }

    /// Returns whether as many jobs of a cost wait for the helpers as may, for no Call.
    pub(super) fn is_full_for_us(&self, cost: Cost) -> bool {
        self.is_full(cost, OURS)
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
