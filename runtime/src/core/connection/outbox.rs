//! The messages of a connection that wait to be sent, and the work requests that wait for a doorbell.

use std::collections::VecDeque;

use haulage_proto::time::Instant;

use crate::key::CallKey;
use crate::provider::{Clock, Port, WorkQueue, WorkRequest};

/// What waits to leave on a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Replies that wait for credit, in the order they became ready.
    replies: VecDeque<CallKey>,
    /// Calls of ours that wait for credit, by slot.
    calls: VecDeque<usize>,
    /// Control messages of which the provider holds the octets, or that wait for the next doorbell.
    controls: u32,
    /// Work requests for the next doorbell.
    requests: WorkQueue,
    /// Whether the port has messages that wait for a doorbell.
    rings: bool,
    /// The Replies that found credit.
    answered: Clock,
    /// When the peer is to be checked, while Replies wait for credit.
    check_at: Option<Instant>,
    /// Whether the connection is on the core's list of connections with something to post.
    is_marked: bool,
}

impl Outbox {
    /// Returns how many Replies wait for credit.
    #[inline]
    pub(crate) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// Adds a Reply that is ready.
    pub(crate) fn push_reply(&mut self, name: CallKey) {
        self.replies.push_back(name);
    }

    /// Returns the Reply that has waited longest.
    pub(crate) fn first_reply(&self) -> Option<CallKey> {
        self.replies.front().copied()
    }

    /// Takes away the Reply that has waited longest: it has found credit, or is refused.
    pub(crate) fn end_reply(&mut self) {
        self.replies.pop_front();
        // Other Replies may still wait, but credits came, so the time for the peer to give some begins anew.
        self.answered.count();
    }

    /// Returns when the peer is to be checked because Replies wait for its credit.
    pub(crate) const fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Checks the peer for which Replies wait. Returns whether none has found credit in all the time that the peer has.
    pub(crate) const fn has_run_out(&mut self) -> bool {
        self.answered.has_run_out()
    }

    /// Has the peer checked at a time.
    pub(crate) const fn check_by(&mut self, at: Instant) {
        self.check_at = Some(at);
    }

    /// Notes that no Reply waits for credit: the peer need not be checked.
    pub(crate) const fn stop_checking(&mut self) {
        self.check_at = None;
        self.answered.rest();
    }

    /// Returns how many Calls wait for credit.
    #[inline]
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Adds a Call, by its slot.
    pub(crate) fn push_call(&mut self, slot: usize) {
        self.calls.push_back(slot);
    }

    /// Takes the Call that has waited longest.
    pub(crate) fn next_call(&mut self) -> Option<usize> {
        self.calls.pop_front()
    }

    /// Puts a Call that found no credit back in front of all others.
    pub(crate) fn put_back_call(&mut self, slot: usize) {
        self.calls.push_front(slot);
    }

    /// Forgets a Call that was given up.
    pub(crate) fn forget_call(&mut self, slot: usize) {
        self.calls.retain(|&queued| queued != slot);
    }

    /// Returns whether a control message has not left yet.
    pub(crate) const fn has_controls(&self) -> bool {
        self.controls > 0
    }

    /// Counts a control message that is about to leave.
    pub(crate) const fn begin_control(&mut self) {
        self.controls += 1;
    }

    /// Notes that a control message has left.
    pub(crate) const fn end_control(&mut self) {
        self.controls -= 1;
    }

    /// Returns how many work requests wait. Everything else waits behind them.
    #[inline]
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Adds a work request for the next doorbell.
    #[inline]
    pub(crate) fn push(&mut self, request: WorkRequest) {
        self.requests.push_back(request);
    }

    /// Drops the work requests that were never posted.
    pub(crate) fn drop_requests(&mut self) {
        self.requests.clear();
    }

    /// Begins anew on another queue pair. The Calls that wait stay; nothing else waited.
    pub(crate) fn renew(&mut self) {
        self.drop_requests();
        (self.controls, self.rings) = (0, false);
    }

    /// Has the doorbell rung at the end of the turn: the port has messages that wait for it.
    #[inline]
    pub(crate) const fn ring(&mut self) {
        self.rings = true;
    }

    /// Returns whether the doorbell rings for messages that left in this turn, or more Calls wait.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.rings || !self.calls.is_empty()
    }

    /// Returns whether the doorbell has to be rung, and takes it as rung.
    #[inline]
    pub(crate) fn takes_doorbell(&mut self) -> bool {
        std::mem::take(&mut self.rings) || !self.requests.is_empty()
    }

    /// Posts the work requests, as far as the send queue has room, and rings the doorbell. The others are posted after
    /// the next completion.
    #[inline]
    pub(crate) fn post(&mut self, port: &mut impl Port) {
        let _ = port.post(&mut self.requests);
        // Gives back the memory of a queue that was long.
        if self.requests.is_empty() && self.requests.capacity() > REQUESTS_KEPT {
            self.requests = WorkQueue::new();
        }
    }

    /// Returns whether messages wait for credit, or a peer is to be checked because some did.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.replies.is_empty() || !self.calls.is_empty() || self.check_at.is_some()
    }

    /// Marks the connection as one with something to post. Returns whether that is news.
    #[inline]
    pub(crate) const fn mark(&mut self) -> bool {
        !std::mem::replace(&mut self.is_marked, true)
    }

    /// Returns whether the connection is marked as one with something to post.
    #[inline]
    pub(crate) const fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Takes the mark off the connection.
    #[inline]
    pub(crate) const fn unmark(&mut self) {
        self.is_marked = false;
    }

    /// Returns whether the connection is marked as one with something to post, or has messages that wait for credit.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_marked || !self.replies.is_empty() || !self.calls.is_empty()
    }

    /// Returns the heap memory of the queues, in octets.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = 0;
        bytes += self.replies.capacity() * size_of::<CallKey>();
        bytes += self.calls.capacity() * size_of::<usize>();
        bytes += self.requests.capacity() * size_of::<WorkRequest>();
        bytes
    }
}

/// Work requests that an empty queue keeps the memory for: those of an item in one lease, many times.
const REQUESTS_KEPT: usize = 256;
