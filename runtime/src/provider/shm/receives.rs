//! The shared receive queue.

use std::collections::VecDeque;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::WrId;

use super::ring::{Consumer, Record};
use crate::provider::Receive;
use crate::sys::shared::prefetch_sink;

/// Receives, oldest first.
#[derive(Debug, Default)]
pub(super) struct Receives(VecDeque<Receive>);

/// A Receive that a connection fills part by part.
#[derive(Debug)]
pub(super) struct Filling {
    receive: Receive,
    /// Octets filled.
    filled: usize,
}

impl Receives {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends Receives.
    pub(super) fn extend(&mut self, receives: impl IntoIterator<Item = Receive>) {
        self.0.extend(receives);
    }

    /// Fills the first Receive with a whole record and uses it up. `None` if it is too short, or has
    /// more than one buffer: [`take`](Self::take) it then.
    #[inline]
    pub(super) fn fill_first(&mut self, consumer: &Consumer, record: &Record) -> Option<WrId> {
        let receive = self.0.front_mut().filter(|receive| receive.rest.is_empty())?;
        if !consumer.copy(record, 0, &mut receive.first, 0, record.length) {
            return None;
        }
        let id = receive.id;
        self.0.pop_front();
        // The next message's octets go there; its line is in no cache of ours.
        if let Some(next) = self.0.get(PREFETCH_AHEAD) {
            prefetch_sink(&next.first);
        }
        Some(id)
    }

    /// Takes the first Receive.
    pub(super) fn take(&mut self) -> Option<Filling> {
        Some(Filling { receive: self.0.pop_front()?, filled: 0 })
    }

    /// Puts back a Receive that was not used up after all.
    pub(super) fn put_back(&mut self, filling: Filling) {
        self.0.push_front(filling.receive);
    }
}

impl Filling {
    /// Returns whether `length` octets more fit.
    pub(super) fn has_room(&self, length: usize) -> bool {
        let capacity = self.receive.sinks().map(Sink::len).fold(0, usize::saturating_add);
        length <= capacity.saturating_sub(self.filled)
    }

    /// Appends the octets of a record, for which there is room.
    pub(super) fn append(&mut self, consumer: &Consumer, record: &Record) {
        let (mut skip, mut from) = (self.filled, 0);
        for sink in self.receive.sinks_mut() {
            let length = sink.len().saturating_sub(skip).min(record.length - from);
            consumer.copy(record, from, sink, skip.min(sink.len()), length);
            from += length;
            skip = skip.saturating_sub(sink.len());
        }
        self.filled += from;
    }

    /// Ends the Receive; returns its name and the octets of its message.
    pub(super) fn finish(self) -> (WrId, usize) {
        (self.receive.id, self.filled)
    }
}

/// How many Receives further on the next line is asked for.
const PREFETCH_AHEAD: usize = 1;
