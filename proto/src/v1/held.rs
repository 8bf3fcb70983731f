//! Replies whose results stay exposed until the client sends `RDMA_DONE` (RFC 5666 section 3.8).
//!
//! # Limits
//! The number of held Replies and the time of each are bounded: a client that never sends
//! `RDMA_DONE` costs the server a bounded amount of memory for a bounded time.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::time::Instant;

/// The held Replies of one connection.
#[derive(Debug)]
pub(super) struct Held {
    /// XIDs and deadlines, oldest first: all have the same timeout.
    replies: VecDeque<(u32, Instant)>,
    max: usize,
    timeout: Duration,
}

impl Held {
    pub(super) fn new(max: usize, timeout: Duration) -> Self {
        Self { replies: VecDeque::with_capacity(max), max, timeout }
    }

    /// Returns whether another Reply may be held.
    pub(super) fn has_room(&self) -> bool {
        //~ R5666-11-5: `self.max` -> `usize::MAX`
        self.replies.len() < self.max
    }

    /// Holds a Reply from now on.
    pub(super) fn hold(&mut self, now: Instant, xid: u32) {
        self.replies.push_back((xid, now.saturating_add(self.timeout)));
    }

    /// Releases the oldest Reply with this XID. Returns whether there was one.
    pub(super) fn release(&mut self, xid: u32) -> bool {
        let at = self.replies.iter().position(|(held, _)| *held == xid);
        at.and_then(|at| self.replies.remove(at)).is_some()
    }

    /// Releases one Reply whose deadline has passed. Returns its XID.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u32> {
        //~ R5666-11-8: `<= now` -> `> now`
        let (xid, _) = self.replies.front().filter(|(_, deadline)| *deadline <= now)?;
        let xid = *xid;
        self.replies.pop_front();
        Some(xid)
    }

    /// Returns the deadline of the oldest Reply.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.replies.front().map(|(_, deadline)| *deadline)
    }
}
