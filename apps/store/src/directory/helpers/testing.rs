//! What tests see of the helpers, and how they keep them from acting.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::crew::DEAR_MAX;
use super::{Helpers, Job, OURS};

impl<J: Job> Helpers<J> {
    /// Returns whether a helper was ever needed.
    pub(crate) fn has_started(&self) -> bool {
        !self.0.borrow().threads.is_empty()
    }

    /// Returns whether the helpers have nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        let mut crew = self.0.borrow_mut();
        crew.hear();
        crew.idle.len() == crew.threads.len()
    }

    /// Returns the number of helpers that have something to do other than to list.
    pub(crate) fn busy(&self) -> usize {
        self.0.borrow().busy.held()
    }

    /// Returns what keeps every helper from acting while it is true, like the lock of an inode.
    pub(crate) fn gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().signs.gates.all)
    }

    /// Returns what keeps every helper from syncing while it is true.
    pub(crate) fn sync_gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().signs.gates.sync)
    }

    /// Returns what keeps every helper from giving room back while it is true.
    pub(crate) fn close_gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().signs.gates.close)
    }

    /// Returns the number of jobs that wait for room.
    pub(crate) fn roomless(&self) -> usize {
        self.0.borrow().roomless.len()
    }

    /// Has as many dear jobs under way as may.
    pub(crate) fn fill(&self) {
        self.0.borrow_mut().dear.waiting.take(OURS, DEAR_MAX);
    }
}
