//! Detects whether few connections are busy, or many.
//!
//! A few busy connections are served best by reading each at every poll. Of many, most such reads find nothing, and the
//! reactor reports which do not.

use haulage_proto::verbs::QpNum;

/// The connections that the reactor reported last.
#[derive(Debug, Default)]
pub(super) struct Contention {
    latest: [Option<QpNum>; HOT_MAX],
    oldest: usize,
    /// Grows with each connection that is not among the latest, and shrinks with those that are.
    strangers: u32,
}

impl Contention {
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
    pub(super) const fn is_high(&self) -> bool {
        self.strangers > CONTENTION_MIN
    }
}

/// The most connections that are hot. An empty read costs 0.3 us; asking io_uring about all of them costs nothing, but
/// one more system call once something came.
pub(super) const HOT_MAX: usize = 4;
/// Strangers above which contention is high: connections reported for the first time in a while.
const CONTENTION_MIN: u32 = 16;
/// The most strangers counted, and so how long high contention is remembered, in messages of the same few connections.
const STRANGERS_MAX: u32 = 4 * CONTENTION_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_turn_contend_until_few_are_heard_again_and_again() {
        let mut contention = Contention::default();
        let qp = |slot| QpNum::new(slot, 1);
        for round in 0..100 {
            (0..4).for_each(|slot| contention.heard(qp(slot)));
            assert!(!contention.is_high(), "round {round}");
        }
        (0..100).for_each(|slot| contention.heard(qp(slot)));
        assert!(contention.is_high());
        for _ in 0..STRANGERS_MAX / 4 {
            (0..4).for_each(|slot| contention.heard(qp(slot)));
        }
        assert!(!contention.is_high());
        // A connection that comes now and then between the messages of others makes no contention.
        for slot in 0..100 {
            contention.heard(qp(slot));
            (0..4).for_each(|_| contention.found());
            assert!(!contention.is_high());
        }
    }
}
