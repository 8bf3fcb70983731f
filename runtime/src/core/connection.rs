//! One connection as a core sees it: the protocol engine, and what waits for it.

use std::collections::VecDeque;
use std::rc::Rc;

use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Connection as Engine;
use haulage_proto::v2::properties::Properties;
use haulage_proto::verbs::QpNum;

use crate::core::inbound::InboundCall;
use crate::core::table::Key;
use crate::limits::{INLINE_SIZE, SEGMENTS_MAX};
use crate::provider::{WorkQueue, WorkRequest};
use crate::service::{Binding, CallError};

/// A connection of this core, in either role.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) qp: QpNum,
    pub(crate) state: State,
    pub(crate) engine: Engine,
    /// What our Calls on it may reduce.
    pub(crate) binding: Rc<Binding>,
    pub(crate) terms: Terms,
    /// Whether the peer serves RDMA Reads: the granted ORD is not zero.
    pub(crate) may_read: bool,
    /// Replies that wait for credit, in the order they became ready.
    pub(crate) replies: VecDeque<Key<InboundCall>>,
    /// Calls of ours that wait for credit, as slots.
    pub(crate) calls: VecDeque<usize>,
    /// Work requests for the next doorbell.
    pub(crate) queue: WorkQueue,
    /// Since when messages have waited for credit.
    pub(crate) stalled_since: Option<Instant>,
    /// Whether it is on the core's list of connections with something to post.
    pub(crate) dirty: bool,
    /// Why it is going away, for the callers that are told so.
    pub(crate) failure: Option<CallError>,
}

/// What both ends agreed on, from the peer's properties and ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The largest message we may send: transport header and inline Payload stream.
    pub(crate) inline_threshold: usize,
    /// The largest segment the peer takes.
    pub(crate) segment_max: u32,
    /// The most segments the peer takes in one header.
    pub(crate) segments_max: usize,
}

impl Terms {
    /// Settles the terms from the peer's properties.
    pub(crate) fn with(theirs: &Properties) -> Self {
        let inline = usize::try_from(theirs.receive_buffer_size).unwrap_or(usize::MAX);
        let segments = usize::try_from(theirs.segment_count_max).unwrap_or(usize::MAX);
        Self {
            inline_threshold: inline.min(INLINE_SIZE),
            segment_max: theirs.segment_size_max.max(1),
            segments_max: segments.min(SEGMENTS_MAX),
        }
    }
}

impl Terms {
    /// Returns how many segments an item of `length` octets takes.
    pub(crate) fn segments(&self, length: usize) -> usize {
        length.div_ceil(usize::try_from(self.segment_max).unwrap_or(usize::MAX))
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::with(&Properties::default())
    }
}

/// Life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Transport setup is under way.
    New,
    /// The first messages are under way.
    Negotiating,
    /// RPC messages flow.
    Ready,
    /// We asked the provider to close it.
    Draining,
    /// It is gone; waiting until the provider holds nothing of it.
    Closed,
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The provider says that messages can be carried.
    Established,
    /// The engine says that RPC messages may flow.
    Opened,
    /// We want it closed.
    Closing,
    /// The provider says that it is gone.
    Gone,
}

impl State {
    /// The whole transition table; anything not listed is a bug in this crate.
    pub(crate) fn on(self, change: Change) -> Option<Self> {
        use Change::{Closing, Established, Gone, Opened};
        Some(match (self, change) {
            (Self::New, Established) => Self::Negotiating,
            (Self::Negotiating, Opened) => Self::Ready,
            (Self::New | Self::Negotiating | Self::Ready | Self::Draining, Closing) => {
                Self::Draining
            }
            (Self::New | Self::Negotiating | Self::Ready | Self::Draining, Gone) => Self::Closed,
            _ => return None,
        })
    }
}

impl Connection {
    /// Makes the entry of a connection whose transport setup is under way.
    pub(crate) fn new(qp: QpNum, engine: Engine, binding: Rc<Binding>) -> Self {
        Self {
            qp,
            state: State::New,
            engine,
            binding,
            terms: Terms::default(),
            may_read: false,
            replies: VecDeque::new(),
            calls: VecDeque::new(),
            queue: WorkQueue::new(),
            stalled_since: None,
            dirty: false,
            failure: None,
        }
    }

    /// Applies one change; an impossible one is our own bug.
    pub(crate) fn change(&mut self, change: Change) {
        let next = self.state.on(change);
        debug_assert!(next.is_some(), "{change:?} in {:?}", self.state);
        self.state = next.unwrap_or(self.state);
    }

    /// Returns the memory it holds: its entry, and what its queues have grown to.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = 0;
        bytes += size_of::<Self>();
        bytes += self.replies.capacity() * size_of::<Key<InboundCall>>();
        bytes += self.calls.capacity() * size_of::<usize>();
        bytes += self.queue.capacity() * size_of::<WorkRequest>();
        bytes
    }

    /// Returns whether it is not known yet whether there is anybody to talk to.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.state, State::New | State::Negotiating)
    }

    /// Returns whether Calls may be queued on it, now or for when it is ready.
    pub(crate) fn takes_calls(&self) -> bool {
        matches!(self.state, State::New | State::Negotiating | State::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_matrix_is_the_reviewed_one() {
        use Change::{Closing, Established, Gone, Opened};
        let mut matrix = String::new();
        for state in [State::New, State::Negotiating, State::Ready, State::Draining, State::Closed]
        {
            for change in [Established, Opened, Closing, Gone] {
                let next = state.on(change).map_or("-".into(), |next| format!("{next:?}"));
                matrix += &format!("{state:?} {change:?} {next}\n");
            }
        }
        assert_eq!(matrix, include_str!("connection.snapshot"));
    }
}
