//! The life of a connection over TCP: when it is read, when it sends, and whether its peer still does.

/// The states of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    reading: Reading,
    sending: Sending,
    peer: Peer,
}

/// When a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Once the system tells that octets have arrived.
    Told,
    /// In its turn with those of its address.
    Queued,
    /// Once it has less under way.
    Held,
    /// No more: it ends in this turn.
    Closing,
}

/// The events that change when a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadingChange {
    /// There may be octets, or room for what lies there.
    Arrived,
    /// Its turn has come.
    Begun,
    /// It has much under way.
    Full,
    /// We want it closed.
    Closed,
}

/// When a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// Once there is something to send.
    Idle,
    /// With the turn.
    Queued,
    /// Once the system tells that the socket takes octets again.
    Full,
    /// Once it does; it is looked at with the turn all the same, as what is under way has changed.
    FullQueued,
}

/// The events that change when a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendingChange {
    /// There is something to send.
    Made,
    /// It is looked at.
    Begun,
    /// The socket takes nothing now.
    Filled,
    /// The socket takes octets again.
    Writable,
}

/// Whether the peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It may.
    Sends,
    /// The system has told that it sends no more, or is gone; that is not read yet.
    Ends,
    /// It sends no more.
    Over,
}

impl Reading {
    /// The whole transition table.
    pub(super) const fn on(self, change: ReadingChange) -> Self {
        use ReadingChange::{Arrived, Begun, Closed, Full};
        match (self, change) {
            (Self::Closing, _) | (_, Closed) => Self::Closing,
            (_, Arrived) | (Self::Queued, Full) => Self::Queued,
            (_, Begun) => Self::Told,
            (Self::Told | Self::Held, Full) => Self::Held,
        }
    }
}

impl Sending {
    /// The whole transition table.
    pub(super) const fn on(self, change: SendingChange) -> Self {
        use SendingChange::{Begun, Filled, Made, Writable};
        match (self, change) {
            (Self::Idle | Self::Queued, Made) | (Self::FullQueued | Self::Queued, Writable) => {
                Self::Queued
            }
            (Self::Full | Self::FullQueued, Made) | (Self::Queued | Self::FullQueued, Filled) => {
                Self::FullQueued
            }
            (Self::Full | Self::FullQueued, Begun) | (Self::Idle | Self::Full, Filled) => {
                Self::Full
            }
            (Self::Idle | Self::Queued, Begun) | (Self::Idle | Self::Full, Writable) => Self::Idle,
        }
    }
}

impl Life {
    /// Begins the life of a connection that was just accepted.
    pub(super) const fn new() -> Self {
        Self { reading: Reading::Told, sending: Sending::Idle, peer: Peer::Sends }
    }

    /// Applies a change of when it is read. Returns whether its turn is to come now, and was not before.
    pub(super) fn read_on(&mut self, change: ReadingChange) -> bool {
        let before = self.reading;
        self.reading = before.on(change);
        self.reading == Reading::Queued && before != Reading::Queued
    }

    /// Applies a change of when it sends. Returns whether it is to be looked at now, and was not before.
    pub(super) fn send_on(&mut self, change: SendingChange) -> bool {
        let is_queued = |sending| matches!(sending, Sending::Queued | Sending::FullQueued);
        let before = self.sending;
        self.sending = before.on(change);
        is_queued(self.sending) && !is_queued(before)
    }

    /// Notes that the system has told that the peer sends no more, or is gone.
    pub(super) const fn note_ending(&mut self) {
        if matches!(self.peer, Peer::Sends) {
            self.peer = Peer::Ends;
        }
    }

    /// Notes that the end of what the peer sends was read.
    pub(super) const fn note_end(&mut self) {
        self.peer = Peer::Over;
    }

    /// Returns whether the connection is not read until it has less under way.
    pub(super) fn is_held(&self) -> bool {
        self.reading == Reading::Held
    }

    /// Returns whether the connection ends in this turn.
    pub(super) fn is_closing(&self) -> bool {
        self.reading == Reading::Closing
    }

    /// Returns whether the socket takes nothing until the system says so.
    pub(super) const fn is_full(&self) -> bool {
        matches!(self.sending, Sending::Full | Sending::FullQueued)
    }

    /// Returns whether the system will tell of octets and of the end: it has not told of an end.
    pub(super) fn is_told(&self) -> bool {
        self.peer == Peer::Sends
    }

    /// Returns whether the end of what the peer sends was read.
    pub(super) fn is_over(&self) -> bool {
        self.peer == Peer::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `life.snapshot` is reviewed like code.
    #[test]
    fn the_transitions_are_those_reviewed() {
        use ReadingChange::{Arrived, Closed};
        use SendingChange::{Filled, Made, Writable};
        let mut matrix = String::new();
        for state in [Reading::Told, Reading::Queued, Reading::Held, Reading::Closing] {
            for change in [Arrived, ReadingChange::Begun, ReadingChange::Full, Closed] {
                matrix += &format!("{state:?} {change:?} {:?}\n", state.on(change));
            }
        }
        for state in [Sending::Idle, Sending::Queued, Sending::Full, Sending::FullQueued] {
            for change in [Made, SendingChange::Begun, Filled, Writable] {
                matrix += &format!("{state:?} {change:?} {:?}\n", state.on(change));
            }
        }
        assert_eq!(matrix, include_str!("life.snapshot"));
    }

    #[test]
    fn a_connection_is_queued_once_however_much_arrives_or_is_made() {
        use ReadingChange::{Arrived, Begun, Closed, Full};
        let mut life = Life::new();
        let queued = [Arrived, Arrived, Begun, Full, Arrived, Full, Closed, Arrived];
        let queued = queued.map(|change| life.read_on(change));
        assert_eq!(queued, [true, false, false, false, true, false, false, false]);
        use SendingChange::{Begun as Looked, Filled, Made, Writable};
        let looked = [Made, Made, Looked, Filled, Made, Writable, Looked, Made];
        let looked = looked.map(|change| life.send_on(change));
        assert_eq!(looked, [true, false, false, false, true, false, false, true]);
    }
}
