//! When the ring of a connection is read.
//!
//! # Normal operation
//!
//! A hot ring is read in every poll. The peer of a cool one rings a doorbell, which heats it again. One that cooled while
//! no Receive was there for its next message hears no doorbell for that: it is on the provider's list of those that are
//! heated with the next Receive, and stays there until then, though a doorbell may heat it before.

use std::time::Duration;

use haulage_proto::time::Instant;

/// How often a ring is read, and the time of the last arrival.
#[derive(Debug)]
pub(super) struct Heat {
    degree: Degree,
    /// The connection is on the provider's list of those that are heated again with the next Receive.
    is_listed: bool,
    heard: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Degree {
    /// The ring is read in every poll.
    Hot,
    /// The ring is read once the peer has rung.
    Cool,
}

impl Heat {
    /// Begins cool.
    pub(super) const fn new(now: Instant) -> Self {
        Self { degree: Degree::Cool, is_listed: false, heard: now }
    }

    /// Has the ring read in every poll from now on. Returns whether it was cool.
    pub(super) fn rise(&mut self, now: Instant) -> bool {
        let was_cool = self.degree == Degree::Cool;
        if was_cool {
            (self.degree, self.heard) = (Degree::Hot, now);
        }
        was_cool
    }

    /// Has the ring no longer read in every poll.
    pub(super) const fn fall(&mut self) {
        self.degree = Degree::Cool;
    }

    /// Notes that something has arrived.
    #[inline]
    pub(super) const fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Notes that the connection is on the list of those to be heated with the next Receive. Returns whether it was not.
    pub(super) const fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// Notes that the connection has left that list.
    pub(super) const fn unlist(&mut self) {
        self.is_listed = false;
    }

    #[inline]
    pub(super) fn is_hot(&self) -> bool {
        self.degree == Degree::Hot
    }

    /// Returns the time since the last arrival, or since the ring was heated.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.saturating_since(self.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_heated_and_listed_once() {
        let at = |nanos| Instant::ZERO.saturating_add(Duration::from_nanos(nanos));
        let mut heat = Heat::new(at(1));
        assert!(!heat.is_hot() && heat.rise(at(5)) && heat.is_hot());
        assert!(!heat.rise(at(9)), "it is hot");
        assert_eq!(heat.silence(at(9)), Duration::from_nanos(4));
        heat.hear(at(7));
        assert_eq!(heat.silence(at(9)), Duration::from_nanos(2));
        heat.fall();
        assert!(heat.list() && !heat.list(), "it is listed once");
        assert!(heat.rise(at(10)), "a doorbell heats one that is listed");
        assert!(!heat.list(), "it is still listed");
        heat.unlist();
        assert!(heat.list());
    }
}
