//! Limits on the FPDUs that one poll handles, and on FPDUs that deliver nothing.
//!
//! # Limits
//!
//! A poll handles at most [`FPDUS_PER_POLL`] FPDUs of a connection. Octets read beyond them wait in the connection's
//! backlog for the next poll, and nothing more is read meanwhile.
//!
//! An FPDU without payload costs a peer 20 octets and us as much as any other. No peer needs many, so a peer that sends
//! [`EMPTY_PER_SECOND_MAX`] of them in one window loses its connection (RFC 5042 section 6.4). A window ends with the
//! first octets that are handled a second or more after it began, whose FPDUs are not counted, and the next begins. So
//! in any one second, which may lie in two windows, a peer can send up to twice as many, and those of one turn.

use std::time::Duration;

use haulage_proto::time::Instant;

/// The recent work of a connection.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// FPDUs received.
    pub(super) fpdus: u64,
    /// The number of FPDUs that had been received when the turn began.
    begun_at: u64,
    /// The number of FPDUs that had been received when the last Send began that did not come whole.
    pub(super) send_begun_at: u64,
    /// The number of the poll in which the turn began.
    poll: u32,
    /// FPDUs that delivered nothing in the window that began at `counted_since`.
    pub(super) empty: u32,
    counted_since: Instant,
}

impl Turn {
    /// Starts a new turn, if there was another poll since the last one started.
    #[inline]
    pub(super) const fn begin(&mut self, poll: u32) {
        if self.poll != poll {
            (self.poll, self.begun_at) = (poll, self.fpdus);
        }
    }

    /// Returns whether the connection has had its turn.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.fpdus - self.begun_at >= u64::from(FPDUS_PER_POLL)
    }

    /// Returns whether too many FPDUs of this window delivered nothing. If the window is over, begins a new one with a
    /// count of zero.
    pub(super) fn is_flood(&mut self, now: Instant) -> bool {
        if now.saturating_since(self.counted_since) >= SECOND {
            (self.counted_since, self.empty) = (now, 0);
        }
        self.empty >= EMPTY_PER_SECOND_MAX
    }
}

/// FPDUs of a connection that one poll handles.
pub(super) const FPDUS_PER_POLL: u32 = 1024;
/// FPDUs without payload in one window of a second after which a connection ends.
pub(super) const EMPTY_PER_SECOND_MAX: u32 = 10_000;
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_after_its_fpdus_and_begins_anew_with_another_poll() {
        let mut turn = Turn { fpdus: 3, ..Turn::default() };
        turn.begin(1);
        for _ in 0..FPDUS_PER_POLL {
            assert!(!turn.is_over());
            turn.fpdus += 1;
        }
        assert!(turn.is_over());
        turn.begin(1);
        assert!(turn.is_over(), "it is the same poll");
        turn.begin(2);
        assert!(!turn.is_over());
    }

    #[test]
    fn a_flood_is_many_in_a_second_however_many_there_are_in_all() {
        let at = |millis| Instant::ZERO.saturating_add(Duration::from_millis(millis));
        let mut turn = Turn::default();
        for second in 1..100 {
            assert!(!turn.is_flood(at(1000 * second)));
            turn.empty += EMPTY_PER_SECOND_MAX - 1;
            assert!(!turn.is_flood(at(1000 * second + 999)));
        }
        turn.empty += 1;
        assert!(turn.is_flood(at(99_999)));
    }
}
