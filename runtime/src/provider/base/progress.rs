//! Deadlines of connections whose peers make no progress with work that waits for them.
//!
//! # Normal operation
//!
//! A provider puts a connection on its [`Watches`] when work begins to wait for the peer, and checks it four times in
//! the time that the peer has. A check compares the peer's mark with that of the check before ([`Progress`]). Progress
//! itself costs nothing: no clock is read when octets come.
//!
//! A check that comes late, because the core was busy or stopped, counts once, however late it is.
//!
//! # Limits
//!
//! A connection is at most once on the list, and leaves it at the first check that finds nothing waiting. A connection
//! that ended stays on the list until then.

use std::collections::VecDeque;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use crate::provider::Stall;

/// The peer's progress with one kind of work: numbers, at least one of which changes when it makes progress.
pub(crate) type Mark = [u64; 3];

/// The peer's progress with each kind of work; `None` if no such work waits for it.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// With answering RDMA Reads of ours.
    pub(crate) read: Option<Mark>,
    /// With taking our output.
    pub(crate) output: Option<Mark>,
    /// With a message that has begun.
    pub(crate) message: Option<Mark>,
    /// The peer waits for us, so the clocks of Reads and of messages stand still: they keep their counts, and a peer
    /// gains no time by sending more messages than there are Receives for.
    pub(crate) is_excused: bool,
}

/// The progress of one connection's peer at the last check. Each kind of work has a clock of its own, so progress with
/// one excuses no other.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The connection is on the list of those to be checked.
    watched: bool,
    read: Clock,
    output: Clock,
    message: Clock,
}

impl Progress {
    /// Puts the connection `qp` on the list of those to be checked, because work waits for its peer.
    #[inline]
    pub(crate) fn watch(&mut self, watches: &mut Watches, now: Instant, qp: QpNum) {
        if !self.watched {
            self.watched = watches.add(now, qp);
        }
    }

    /// Returns whether the connection is on the list of those to be checked.
    #[inline]
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched
    }

    /// Checks a connection that has left the list. Returns the kind of work with which its peer made no progress in all
    /// the time it has. If work still waits for the peer, the caller puts the connection on the list again.
    pub(crate) fn check(&mut self, marks: &Marks) -> Option<Stall> {
        self.watched = false;
        let listens = !marks.is_excused;
        let overdue = [
            (listens && self.read.has_run_out(marks.read)).then_some(Stall::Read),
            self.output.has_run_out(marks.output).then_some(Stall::Output),
            (listens && self.message.has_run_out(marks.message)).then_some(Stall::Message),
        ];
        overdue.into_iter().flatten().next()
    }
}

impl Marks {
    /// Returns whether anything waits for the peer.
    pub(crate) const fn is_any(&self) -> bool {
        self.read.is_some() || self.output.is_some() || self.message.is_some()
    }
}

/// The peer's mark at the last check of one kind of work, and how many checks found the same.
#[derive(Debug, Default)]
struct Clock {
    mark: Option<Mark>,
    checks: u8,
}

impl Clock {
    /// Compares the peer's mark with the one of the check before. Returns whether the peer made no progress in all the
    /// time it has.
    fn has_run_out(&mut self, mark: Option<Mark>) -> bool {
        if mark.is_none() || mark != self.mark {
            *self = Self { mark, checks: 0 };
            return false;
        }
        self.checks += 1;
        self.checks >= CHECKS
    }
}

/// Connections that are checked for progress.
#[derive(Debug)]
pub(crate) struct Watches {
    /// The time a peer has, if it is limited.
    timeout: Option<Duration>,
    /// Each connection with the time of its check. All wait equally long, so the first is due first.
    due: VecDeque<(Instant, QpNum)>,
}

impl Watches {
    /// Makes an empty list, for peers that have `timeout` to make some progress. Reserves room for `connections`
    /// entries, so that no turn allocates when many peers are slow.
    pub(crate) fn new(timeout: Option<Duration>, connections: usize) -> Self {
        let room = timeout.map_or(0, |_| connections);
        Self { timeout, due: VecDeque::with_capacity(room) }
    }

    /// Returns the time that peers have, if it is limited.
    pub(crate) const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Puts a connection on the list; returns whether it will be checked, which is false without a timeout.
    pub(crate) fn add(&mut self, now: Instant, qp: QpNum) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let interval = (timeout / u32::from(CHECKS)).max(INTERVAL_MIN);
        self.due.push_back((now.saturating_add(interval), qp));
        true
    }

    /// Takes the next connection whose check is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<QpNum> {
        self.due.pop_front_if(|(at, _)| *at <= now).map(|(_, qp)| qp)
    }

    /// Returns when the next connection is to be checked.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }
}

/// Number of checks in the time that a peer has. The first check after work began to wait comes on top, so a peer is
/// given up after between 1 and 1.25 times its time.
const CHECKS: u8 = 4;

/// The shortest time between two checks.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_out_after_four_checks_without_progress_and_restarts_with_any() {
        let mut clock = Clock::default();
        let mut has_run_out = |number| clock.has_run_out(Some([number, 0, 0]));
        assert!(!has_run_out(1));
        assert_eq!([1, 1, 1].map(&mut has_run_out), [false; 3]);
        assert!(!has_run_out(2), "there was progress");
        assert_eq!([2, 2, 2].map(&mut has_run_out), [false; 3]);
        assert!(!clock.has_run_out(None), "nothing waits");
        let mut has_run_out = |number| clock.has_run_out(Some([number, 0, 0]));
        assert!(!has_run_out(2));
        assert_eq!([2, 2, 2, 2].map(has_run_out), [false, false, false, true]);
    }

    #[test]
    fn checks_come_four_times_in_the_time_a_peer_has_however_late_they_are() {
        let qp = QpNum::new(1, 1);
        let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
        let mut watches = Watches::new(Some(Duration::from_secs(8)), 1);
        assert!(watches.add(at(0), qp));
        assert_eq!(watches.deadline(), Some(at(2)));
        assert_eq!((watches.pop(at(1)), watches.pop(at(100))), (None, Some(qp)));
        assert!(watches.add(at(100), qp));
        assert_eq!((watches.pop(at(101)), watches.deadline()), (None, Some(at(102))));
        assert!(!Watches::new(None, 1).add(at(0), qp), "there is no limit");
    }

    #[test]
    fn there_is_room_for_all_connections_at_once() {
        let connections = 5000;
        let mut watches = Watches::new(Some(Duration::from_secs(8)), connections);
        let room = watches.due.capacity();
        assert!((0..connections).all(|_| watches.add(Instant::ZERO, QpNum::new(1, 1))));
        assert_eq!(watches.due.capacity(), room, "the list grew");
    }
}
