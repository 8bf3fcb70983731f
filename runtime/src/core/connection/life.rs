//! The life of a connection: its state, when it was last active, what it counts against, and how it ends.

use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;

use crate::core::trace::{Manner, Traffic};
use crate::origin::Origin;
use crate::provider::Place;
use crate::service::CallError;

/// The life of a connection.
#[derive(Debug)]
pub(crate) struct Life {
    state: SessionState,
    /// The origin that the connection counts against; `None` while it is closing.
    origin: Option<Origin>,
    /// The origin of a connection that is closing.
    left: Option<Origin>,
    /// The place that the peer was dealt, until the connection is gone.
    place: Place,
    /// The time of the last activity.
    active: Instant,
    /// Whether the connection became ready. Only then does the service learn of its end.
    was_ready: bool,
    /// Whether the peer has closed it in order, having every Reply.
    has_all: bool,
    /// Counts of the RPC messages received on it.
    traffic: Traffic,
    /// Whether its end is ordinary, unless we close it in order.
    manner: Manner,
    /// Why it is going away, for the callers of its Calls.
    failure: Option<CallError>,
}

/// The states of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// Transport setup is under way.
    New,
    /// The first messages are under way.
    Negotiating,
    /// RPC messages flow.
    Ready,
    /// We asked the provider to close it.
    Draining,
    /// The server did not answer: we ask the provider to close it, and it begins anew.
    Leaving,
    /// The queue pair is gone, and the connection begins anew once the provider holds no memory of it.
    Between,
    /// The connection is gone; the provider may still hold memory of it.
    Closed,
}

/// The events that change the state of a connection.
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
    /// It begins anew, or is to do so.
    Anew,
}

impl SessionState {
    /// The whole transition table; anything not listed is a bug in this crate.
    pub(crate) fn on(self, change: Change) -> Option<Self> {
        use Change::{Anew, Closing, Established, Gone, Opened};
        Some(match (self, change) {
            (Self::New, Established) => Self::Negotiating,
            (Self::Negotiating, Opened) => Self::Ready,
            (
                Self::New | Self::Negotiating | Self::Ready | Self::Draining | Self::Leaving,
                Closing,
            ) => Self::Draining,
            (Self::New | Self::Negotiating | Self::Ready | Self::Draining, Gone)
            | (Self::Between, Closing) => Self::Closed,
            (Self::Negotiating, Anew) => Self::Leaving,
            (Self::Leaving, Gone) => Self::Between,
            (Self::Between, Anew) => Self::New,
            _ => return None,
        })
    }
}

impl Life {
    /// Begins the life of a connection whose transport setup is under way.
    pub(super) fn new() -> Self {
        Self {
            state: SessionState::New,
            origin: None,
            left: None,
            place: Place::default(),
            active: Instant::ZERO,
            was_ready: false,
            has_all: false,
            traffic: Traffic::default(),
            manner: Manner::Broken,
            failure: None,
        }
    }

    /// Applies one change; an impossible one is our own bug.
    pub(crate) fn change(&mut self, change: Change) {
        let Some(next) = self.state.on(change) else { panic!("{change:?} in {:?}", self.state) };
        self.state = next;
    }

    /// Returns whether the connection is still being set up.
    pub(crate) const fn is_connecting(&self) -> bool {
        use SessionState::{Between, Leaving, Negotiating, New};
        matches!(self.state, New | Negotiating | Leaving | Between)
    }

    /// Returns whether the first messages are under way.
    pub(crate) fn is_negotiating(&self) -> bool {
        self.state == SessionState::Negotiating
    }

    /// Returns whether the connection is to begin anew, and has not done so yet.
    #[inline]
    pub(crate) const fn is_renewing(&self) -> bool {
        matches!(self.state, SessionState::Leaving | SessionState::Between)
    }

    /// Returns whether the connection begins anew as soon as the provider holds no memory of it.
    pub(crate) fn is_between(&self) -> bool {
        self.state == SessionState::Between
    }

    /// Returns whether RPC messages flow.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == SessionState::Ready
    }

    /// Returns whether the connection is neither closing nor gone.
    #[inline]
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, SessionState::New | SessionState::Negotiating | SessionState::Ready)
    }

    /// Returns whether the provider is to close the connection's queue pair, which is not gone yet.
    pub(crate) const fn gives_up(&self) -> bool {
        matches!(self.state, SessionState::Draining | SessionState::Leaving)
    }

    /// Returns whether the connection is gone.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.state == SessionState::Closed
    }

    /// Notes that RPC messages may flow. Returns whether that is news.
    pub(crate) fn open(&mut self) -> bool {
        let is_news = self.state == SessionState::Negotiating;
        if is_news {
            self.change(Change::Opened);
            self.was_ready = true;
        }
        is_news
    }

    /// Notes that the peer has closed the connection in order, having every Reply.
    pub(crate) const fn peer_has_all(&mut self) {
        self.has_all = true;
    }

    /// Notes that the end of the connection is in the ordinary course of things.
    pub(crate) const fn ends_ordinarily(&mut self) {
        self.manner = Manner::Ordinary;
    }

    /// Notes why the connection goes away; the first reason stands. One that was not ready yet is not merely lost.
    pub(crate) fn fail(&mut self, reason: CallError) {
        self.failure.get_or_insert(match reason {
            CallError::Disconnected(why) if !self.was_ready => CallError::Unready(why),
            reason => reason,
        });
    }

    /// Returns why the connection goes away, if that is known.
    pub(crate) const fn failure(&self) -> Option<&CallError> {
        self.failure.as_ref()
    }

    /// Describes the end of the connection, which is for `reason` unless another one was noted before.
    pub(crate) fn end(&mut self, reason: CallError) -> End {
        let Self { was_ready, has_all, traffic, manner, .. } = *self;
        let reason = self.failure.take().unwrap_or(reason);
        End { reason, manner, traffic, was_ready, has_all }
    }

    /// Keeps the place that the peer was dealt, which is a connection's from now on.
    pub(crate) fn take_place(&mut self, mut place: Place) {
        place.become_connection();
        self.place = place;
    }

    /// Notes that the connection is active.
    #[inline]
    pub(crate) const fn be_active(&mut self, now: Instant) {
        self.active = now;
    }

    /// Returns the time of the last activity.
    pub(crate) const fn active(&self) -> Instant {
        self.active
    }

    /// Counts RPC messages that were received.
    #[inline]
    pub(crate) const fn count(&mut self, kind: Kind, messages: u64) {
        let Traffic { calls_received, replies_received } = &mut self.traffic;
        *match kind {
            Kind::Call => calls_received,
            Kind::Reply => replies_received,
        } += messages;
    }

    /// Returns whether the peer has answered a Call.
    pub(crate) const fn has_replied(&self) -> bool {
        self.traffic.replies_received > 0
    }

    /// Returns whether the peer has made a Call.
    pub(crate) const fn has_called(&self) -> bool {
        self.traffic.calls_received > 0
    }

    /// Returns the origin that the connection counts against.
    pub(crate) const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Counts the connection against an origin.
    pub(crate) const fn enter(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// Stops counting the connection against its origin. Returns the origin, if it did count.
    pub(crate) const fn leave(&mut self) -> Option<Origin> {
        if self.origin.is_some() {
            self.left = self.origin;
        }
        self.origin.take()
    }

    /// Counts the connection against the origin that it left once more. Returns that origin.
    pub(crate) const fn return_to_origin(&mut self) -> Option<Origin> {
        let origin = self.left.take();
        if origin.is_some() {
            self.origin = origin;
        }
        origin
    }
}

/// The end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) reason: CallError,
    pub(crate) manner: Manner,
    pub(crate) traffic: Traffic,
    /// Whether the connection became ready. Only then does the service learn of its end.
    pub(crate) was_ready: bool,
    /// Whether the peer has closed it in order, having every Reply.
    pub(crate) has_all: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_matrix_is_the_reviewed_one() {
        use Change::{Anew, Closing, Established, Gone, Opened};
        let mut matrix = String::new();
        for state in [
            SessionState::New,
            SessionState::Negotiating,
            SessionState::Ready,
            SessionState::Draining,
            SessionState::Leaving,
            SessionState::Between,
            SessionState::Closed,
        ] {
            for change in [Established, Opened, Closing, Gone, Anew] {
                let next = state.on(change).map_or("-".into(), |next| format!("{next:?}"));
                matrix += &format!("{state:?} {change:?} {next}\n");
            }
        }
        assert_eq!(matrix, include_str!("life.snapshot"));
    }
}
