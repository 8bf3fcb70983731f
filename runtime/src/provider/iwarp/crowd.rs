//! Detects whether few connections are busy, or many.
//!
//! A few busy connections are served best by reading each at every poll. Of many, most such reads find nothing, and the
//! reactor reports which do not.

use haulage_proto::verbs::QpNum;

/// The connections that the reactor reported last.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    latest: [Option<QpNum>; HOT_MAX],
    oldest: usize,
    /// Grows with each connection that is not among the latest, and shrinks with those that are.
    strangers: u32,
}

impl Crowd {
    /// Notes that the reactor reported a connection.
    pub(super) fn heard(&mut self, qp: QpNum) {
        if self.latest.contains(&Some(qp)) {
            return self.found();
        }
        if let Some(place) = self.latest.get_mut(self.oldest) {
            *place = Some(qp);
        }
        self.oldest = (self.oldest + 1) % HOT_MAX;
        self.strangers = (self.strangers + 2).min(STRANGERS_MAX);
    }

    /// Notes that reading a hot connection found something.
    pub(super) const fn found(&mut self) {
        self.strangers = self.strangers.saturating_sub(1);
    }

    /// Returns whether more connections are busy than can be hot.
    pub(super) const fn is_here(&self) -> bool {
        self.strangers > CROWD_MIN
    }
}

/// The most connections that are hot. An empty read costs 0.3 us; asking io_uring about all of them costs nothing, but
/// one more system call once something came.
pub(super) const HOT_MAX: usize = 4;
/// Strangers that make a crowd: connections reported for the first time in a while.
const CROWD_MIN: u32 = 16;
/// The most strangers counted, and so how long a crowd is remembered, in messages of the same few connections.
const STRANGERS_MAX: u32 = 4 * CROWD_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_turn_are_a_crowd_until_few_are_heard_again_and_again() {
        let mut crowd = Crowd::default();
        let qp = |slot| QpNum::new(slot, 1);
        for round in 0..100 {
            (0..4).for_each(|slot| crowd.heard(qp(slot)));
            assert!(!crowd.is_here(), "round {round}");
        }
        (0..100).for_each(|slot| crowd.heard(qp(slot)));
        assert!(crowd.is_here());
        for _ in 0..STRANGERS_MAX / 4 {
            (0..4).for_each(|slot| crowd.heard(qp(slot)));
        }
        assert!(!crowd.is_here());
        // A connection that comes now and then between the messages of others makes no crowd.
        for slot in 0..100 {
            crowd.heard(qp(slot));
            (0..4).for_each(|_| crowd.found());
            assert!(!crowd.is_here());
        }
    }
}
