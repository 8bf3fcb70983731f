//! The work of a connection that waits to be posted.

use std::collections::VecDeque;

use haulage_mr_pool::Source;
use haulage_proto::verbs::Handle;

use crate::provider::{WorkQueue, WorkRequest};
use crate::sys::ibverbs::{Binding, Doorbell};

/// Bindings and requests that wait for the doorbell, or for room in the send queue.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Windows to be bound before the next posted request is carried out.
    bindings: VecDeque<Binding>,
    /// Requests of messages that were copied or taken, for the next doorbell.
    chained: VecDeque<Chained>,
    /// Requests for which the doorbell was rung, and the send queue had no room yet.
    due: VecDeque<Chained>,
}

/// A request that waits to be posted.
#[derive(Debug)]
pub(super) enum Chained {
    /// The Send of a copy, which may invalidate a handle of the peer's. No completion reports it.
    Copy(Source, Option<Handle>),
    /// A request of the core's.
    Request(WorkRequest),
}

/// What is posted next.
#[derive(Debug)]
pub(super) enum Next {
    Bind(Binding),
    Post(Chained),
}

impl Outbound {
    /// Has a window bound before the next request is posted.
    pub(super) fn bind(&mut self, binding: Binding) {
        self.bindings.push_back(binding);
    }

    /// Has a request wait for the next doorbell.
    pub(super) fn chain(&mut self, chained: Chained) {
        self.chained.push_back(chained);
    }

    /// Rings the doorbell for what waits for it.
    pub(super) fn ring(&mut self) {
        self.due.append(&mut self.chained);
    }

    /// Takes requests of `batch` as if the doorbell was rung for them: up to one whose end will be reported.
    pub(super) fn take_reported(&mut self, batch: &mut WorkQueue) {
        let told = batch.iter().position(|request| request.flags.signaled);
        let count = told.map_or(batch.len(), |told| told + 1);
        self.due.extend(batch.drain(..count).map(Chained::Request));
    }

    /// Takes what is posted next, if it fits: bindings, then what the doorbell was rung for, and then what is in
    /// `batch`.
    pub(super) fn next(&mut self, batch: &mut WorkQueue, doorbell: &Doorbell<'_>) -> Option<Next> {
        if !self.bindings.is_empty() {
            return self.bindings.pop_front_if(|_| doorbell.fits_one()).map(Next::Bind);
        }
        let next = if self.due.is_empty() {
            batch.pop_front_if(|request| doorbell.fits(request)).map(Chained::Request)
        } else {
            self.due.pop_front_if(|chained| match chained {
                Chained::Copy(..) => doorbell.fits_one(),
                Chained::Request(request) => doorbell.fits(request),
            })
        };
        next.map(Next::Post)
    }

    /// Drops the bindings that were not posted.
    pub(super) fn drop_bindings(&mut self) {
        self.bindings.clear();
    }

    /// Takes all requests, in their order.
    pub(super) fn take_all(&mut self) -> VecDeque<Chained> {
        self.ring();
        std::mem::take(&mut self.due)
    }

    /// Returns how many bindings and requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.bindings.len() + self.due.len() + self.chained.len()
    }

    /// Returns whether a binding waits, or a request for which the doorbell was rung.
    pub(super) fn has_next(&self) -> bool {
        !self.bindings.is_empty() || self.has_due()
    }

    /// Returns whether a request waits for which the doorbell was rung.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns whether a request waits for the doorbell.
    pub(super) fn has_chained(&self) -> bool {
        !self.chained.is_empty()
    }

    /// Returns whether a request waits whose end will be reported.
    pub(super) fn owes_report(&self) -> bool {
        let told = |chained: &Chained| match chained {
            Chained::Copy(..) => false,
            Chained::Request(request) => request.flags.signaled,
        };
        self.due.iter().chain(&self.chained).any(told)
    }
}
