//! Deadlines of connections whose peer makes no progress with what waits for it.
//!
//! # Normal operation
//!
//! A provider puts a connection on its [`Watches`] when something begins to wait for the peer, and checks it
//! four times in the time that the peer has. A check compares a mark of how far the peer has come with that
//! of the check before ([`Progress`]). Progress itself costs nothing: nobody reads a clock when octets come.
//!
//! A check that comes late, because the core was busy or stopped, counts once, however late it is.
//!
//! # Limits
//!
//! A connection is at most once on the list, and leaves it at the first check that finds nothing waiting. One
//! that ended stays on it until then.

use std::collections::VecDeque;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use crate::provider::Stall;

/// How far a peer has come with something: numbers of which some change when it makes progress.
pub(crate) type Mark = [u64; 3];

/// How far a peer is now with each kind of work, `None` if nothing waits for it.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// With RDMA Reads of ours.
    pub(crate) read: Option<Mark>,
    /// With taking what we send.
    pub(crate) output: Option<Mark>,
    /// With a message that has begun.
    pub(crate) message: Option<Mark>,
    /// The peer waits for us, so the clocks of Reads and of messages stand still: they keep what they have
    /// counted, and a peer gains no time by sending more than there are Receives for.
    pub(crate) is_excused: bool,
}

/// How far the peer of one connection had come at the last check. Each kind of work has a clock of its own, so
/// progress with one excuses no other.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The connection is on the list of those that are checked.
    watched: bool,
    read: Clock,
    output: Clock,
    message: Clock,
}

impl Progress {
    /// Has the connection `qp` checked, as something waits for its peer.
    #[inline]
    pub(crate) fn watch(&mut self, watches: &mut Watches, now: Instant, qp: QpNum) {
        if !self.watched {
            self.watched = watches.add(now, qp);
        }
    }

    /// Returns whether the connection is on the list of those that are checked.
    #[inline]
    pub(crate) const fn is_watched(&self) -> bool {
        self.watched
    }

    /// Checks a connection that has left the list. Returns with what its peer made no progress in all the time
    /// it has. Where something waits for the peer still, the connection is to be watched again.
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

/// How far a peer had come at the last check with one kind of work, and how many checks found the same.
#[derive(Debug, Default)]
struct Clock {
    mark: Option<Mark>,
    checks: u8,
}

impl Clock {
    /// Compares how far the peer is now with the check before. Returns whether it made no progress in all the
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
    /// When which connection is checked. All wait equally long, so the first is due first.
    due: VecDeque<(Instant, QpNum)>,
}

impl Watches {
    /// Makes an empty list for peers that have this time to make some progress, with room for all of so many
    /// `connections`: no turn allocates when many peers are slow.
    pub(crate) fn new(timeout: Option<Duration>, connections: usize) -> Self {
        let room = timeout.map_or(0, |_| connections);
        Self { timeout, due: VecDeque::with_capacity(room) }
    }

    /// Returns the time that peers have, if it is limited.
    pub(crate) const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Has a connection checked; returns whether it will be.
    pub(crate) fn add(&mut self, now: Instant, qp: QpNum) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let interval = (timeout / u32::from(CHECKS)).max(INTERVAL_MIN);
        self.due.push_back((now.saturating_add(interval), qp));
        true
    }

    /// Takes the next connection to check.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<QpNum> {
        self.due.pop_front_if(|(at, _)| *at <= now).map(|(_, qp)| qp)
    }

    /// Returns when the next connection is to be checked.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }
}

/// Checks in the time that a peer has. The first check after something began to wait comes on top, so a
/// peer is given up after between one and one and a quarter times what it has.
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
