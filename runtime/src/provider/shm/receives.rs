//! The shared receive queue.

use std::collections::VecDeque;

use haulage_mr_pool::Sink;
use haulage_proto::verbs::{SCATTER_MAX, WrId};

use super::ring::{Consumer, Record};
use crate::provider::Receive;
use crate::sys::shared::prefetch_sink;

/// Receives, oldest first.
///
/// Nearly all have one buffer, and take one cache line here; the others' further buffers are in a queue
/// of their own.
#[derive(Debug, Default)]
pub(super) struct Receives {
    queue: VecDeque<Posted>,
    scattered: VecDeque<Rest>,
}

/// A Receive whose further buffers, if any, are first in the queue of those.
#[derive(Debug)]
struct Posted {
    id: WrId,
    first: Option<Sink>,
    more: bool,
}

type Rest = [Option<Sink>; SCATTER_MAX - 1];

/// A Receive that a connection fills part by part.
#[derive(Debug)]
pub(super) struct Filling {
    id: WrId,
    buffers: [Option<Sink>; SCATTER_MAX],
    /// Octets filled.
    filled: usize,
}

impl Receives {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Appends a Receive.
    #[inline]
    pub(super) fn push(&mut self, receive: Receive) {
        let Receive { id, scatter: [first, second, third, fourth] } = receive;
        let rest = [second, third, fourth];
        let more = rest.iter().any(Option::is_some);
        if more {
            self.scattered.push_back(rest);
        }
        self.queue.push_back(Posted { id, first, more });
    }

    /// Fills the first Receive with a whole record and uses it up. `None` if it is too short, or has
    /// more than one buffer: [`take`](Self::take) it then.
    #[inline]
    pub(super) fn fill_first(&mut self, consumer: &Consumer, record: &Record) -> Option<WrId> {
        let posted = self.queue.front_mut()?;
        let sink = posted.first.as_mut().filter(|_| !posted.more)?;
        if !consumer.copy(record, 0, sink, 0, record.length) {
            return None;
        }
        let id = posted.id;
        self.queue.pop_front();
        // The next message's octets go there; its line is in no cache of ours.
        if let Some(Posted { first: Some(next), .. }) = self.queue.get(PREFETCH_AHEAD) {
            prefetch_sink(next);
        }
        Some(id)
    }

    /// Takes the first Receive.
    pub(super) fn take(&mut self) -> Option<Filling> {
        let Posted { id, first, more } = self.queue.pop_front()?;
        let rest =
            if more { self.scattered.pop_front().unwrap_or_default() } else { Rest::default() };
        let [second, third, fourth] = rest;
        Some(Filling { id, buffers: [first, second, third, fourth], filled: 0 })
    }

    /// Puts back a Receive that was not used up after all.
    pub(super) fn put_back(&mut self, filling: Filling) {
        let Filling { id, buffers: [first, second, third, fourth], .. } = filling;
        let rest = [second, third, fourth];
        let more = rest.iter().any(Option::is_some);
        if more {
            self.scattered.push_front(rest);
        }
        self.queue.push_front(Posted { id, first, more });
    }
}

impl Filling {
    /// Returns whether `length` octets more fit.
    pub(super) fn has_room(&self, length: usize) -> bool {
        let buffers = self.buffers.iter().map_while(Option::as_ref);
        let capacity = buffers.map(Sink::len).fold(0, usize::saturating_add);
        length <= capacity.saturating_sub(self.filled)
    }

    /// Appends the octets of a record, for which there is room.
    pub(super) fn append(&mut self, consumer: &Consumer, record: &Record) {
        let (mut skip, mut from) = (self.filled, 0);
        for sink in self.buffers.iter_mut().map_while(Option::as_mut) {
            let length = sink.len().saturating_sub(skip).min(record.length - from);
            consumer.copy(record, from, sink, skip.min(sink.len()), length);
            from += length;
            skip = skip.saturating_sub(sink.len());
        }
        self.filled += from;
    }

    /// Ends the Receive; returns its name and the octets of its message.
    pub(super) fn finish(self) -> (WrId, usize) {
        (self.id, self.filled)
    }
}

/// How many Receives further on the next line is asked for.
const PREFETCH_AHEAD: usize = 1;
