//! The events that a provider in software has to report, in order.

use std::collections::VecDeque;

use haulage_proto::verbs::{Completion, Handle, Opcode, QpNum, Status, WrId};

use super::listeners::ListenerId;
use crate::provider::events::{DisconnectReason, Event};
use crate::work::{Done, Quiesced};

/// Events that have not been polled yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    events: VecDeque<Event<ListenerId>>,
}

impl Reports {
    /// Reports an event for which there is no method of its own.
    pub(crate) fn push(&mut self, event: Event<ListenerId>) {
        self.events.push_back(event);
    }

    /// Reports a completion of work whose views have been dropped.
    pub(crate) fn completed(&mut self, completion: Completion) {
        self.push(Event::Completion(Done::new(completion)));
    }

    /// Reports the end of a work request whose views have been dropped.
    pub(crate) fn ended(&mut self, qp: QpNum, id: WrId, opcode: Opcode, status: Status) {
        self.completed(Completion { id, qp, opcode, status, length: 0, invalidated: None });
    }

    /// Reports that a LocalInv retired its handle.
    pub(crate) fn invalidated(&mut self, qp: QpNum, id: WrId, handle: Handle) {
        let (opcode, status, invalidated) = (Opcode::LocalInv, Status::Success, Some(handle));
        self.completed(Completion { id, qp, opcode, status, length: 0, invalidated });
    }

    /// Reports that a connection ended.
    pub(crate) fn disconnected(&mut self, qp: QpNum, reason: DisconnectReason) {
        self.push(Event::Disconnected { qp, reason });
    }

    /// Reports that every view of a queue pair has been dropped.
    pub(crate) fn quiesced(&mut self, qp: QpNum) {
        self.push(Event::Quiesced(Quiesced::new(qp)));
    }

    /// Moves the oldest events into `events`, until that has `limit`.
    #[inline]
    pub(crate) fn take(&mut self, events: &mut Vec<Event<ListenerId>>, limit: usize) {
        if !self.events.is_empty() {
            let count = limit.saturating_sub(events.len()).min(self.events.len());
            events.extend(self.events.drain(..count));
        }
    }

    /// Returns how many events have not been polled yet.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
