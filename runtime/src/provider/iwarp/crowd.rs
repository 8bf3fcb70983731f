//! Whether few connections are busy or many.
//!
//! A few busy connections are served best by reading each at every poll; of many, most such reads find
//! nothing, and the reactor tells which do not.

use haulage_proto::verbs::QpNum;

/// Who was heard of last.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    latest: [Option<QpNum>; HOT_MAX],
    oldest: usize,
    /// Grows with each connection that is not among the latest, and shrinks with those that are.
    strangers: u32,
}

impl Crowd {
    /// The reactor told of a connection.
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

    /// Reading a connection unasked found something.
    pub(super) const fn found(&mut self) {
        self.strangers = self.strangers.saturating_sub(1);
    }

    /// Returns whether more connections are busy than are read unasked.
    pub(super) const fn is_here(&self) -> bool {
        self.strangers > CROWD_MIN
    }
}

/// Connections read at every poll. An empty read costs 0.3 us; asking io_uring about all of them costs
/// nothing, but a system call more once something came.
pub(super) const HOT_MAX: usize = 4;
/// What makes a crowd: half as many connections, each heard of for the first time in a while.
const CROWD_MIN: u32 = 16;
/// How long a crowd is remembered, in messages of the same few connections.
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
        // One that comes now and then between the messages of others is none.
        for slot in 0..100 {
            crowd.heard(qp(slot));
            (0..4).for_each(|_| crowd.found());
            assert!(!crowd.is_here());
        }
    }
}
