//! The Calls that can go on, and whose turn it is.
//!
//! Connections have turns, each for one of its Calls, oldest first. So a connection with many Calls, however long each of
//! them takes, keeps another waiting for one Call and not for all.

use std::collections::VecDeque;

use crate::key::{CallKey, ConnectionKey};

/// The Calls that can go on, by connection.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The slots of connections with Calls, in the order of their turns.
    rotation: VecDeque<usize>,
    /// The Calls of each connection's slot.
    queues: Vec<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first. The names of Calls that have ended are stale.
    calls: VecDeque<CallKey>,
    /// Whether the slot is in the rotation.
    is_queued: bool,
}

impl Turns {
    /// Makes room for `most` connections.
    pub(crate) fn new(most: u32) -> Self {
        Self { rotation: VecDeque::with_capacity(most as usize), queues: Vec::new() }
    }

    /// Queues a Call of a connection.
    pub(crate) fn push(&mut self, key: ConnectionKey, call: CallKey) {
        let slot = key.slot();
        if self.queues.len() <= slot {
            self.queues.resize_with(slot + 1, Queue::default);
        }
        let Some(queue) = self.queues.get_mut(slot) else { panic!("there is room for it") };
        queue.calls.push_back(call);
        if !std::mem::replace(&mut queue.is_queued, true) {
            self.rotation.push_back(slot);
        }
    }

    /// Takes the Call whose turn is next, if it may go on. A connection whose Call may not loses its turn.
    pub(crate) fn pop(&mut self, may_go_on: impl Fn(CallKey) -> bool) -> Option<CallKey> {
        for _ in 0..self.rotation.len() {
            let slot = self.rotation.pop_front()?;
            let Some(queue) = self.queues.get_mut(slot) else { continue };
            let call = queue.calls.pop_front_if(|call| may_go_on(*call));
            queue.is_queued = !queue.calls.is_empty();
            if queue.is_queued {
                self.rotation.push_back(slot);
            }
            if call.is_some() {
                return call;
            }
        }
        None
    }

    /// Returns whether no Call can go on.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rotation.is_empty()
    }

    /// Returns whether Calls of a connection can go on.
    #[inline]
    pub(crate) fn has_of(&self, key: ConnectionKey) -> bool {
        !self.is_empty() && self.queues.get(key.slot()).is_some_and(|queue| queue.is_queued)
    }

    /// Forgets the Calls of a connection, and gives back the memory of their queue.
    pub(crate) fn forget(&mut self, key: ConnectionKey) {
        if let Some(queue) = self.queues.get_mut(key.slot()) {
            queue.calls = VecDeque::new();
        }
    }
}
