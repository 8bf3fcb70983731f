//! Deadlines of peers that make no progress with work that waits for them.
//!
//! # Normal operation
//!
//! A provider puts a connection on its [`Watches`] when work begins to wait for the peer, and checks it four times in
//! the time that the peer has. A check says which kinds of work wait ([`Waiting`]), and each kind's [`Clock`] knows
//! whether any of it was done since the check before. Progress itself costs nothing: no clock is read when octets come.
//!
//! What waits at two checks proves nothing about the time between them, in which thousands of requests may have been
//! carried out: the one that waits now may look like the one that waited then. So a clock has no place for what waits.
//! It counts what was done, or takes the peer's position, and neither comes back to where it was.
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

use crate::provider::events::Stall;

/// The kinds of work that wait for a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// RDMA Reads of ours wait for their answers.
    pub(crate) read: bool,
    /// Our output waits to be taken.
    pub(crate) output: bool,
    /// A message has begun.
    pub(crate) message: bool,
    /// The peer waits for us, so the clocks of Reads and of messages stand still: they keep their counts, and a peer
    /// gains no time by sending more messages than there are Receives for.
    pub(crate) is_excused: bool,
}

impl Waiting {
    /// Returns whether anything waits for the peer.
    pub(crate) const fn is_any(&self) -> bool {
        self.read || self.output || self.message
    }
}

/// The progress of one connection's peer. Each kind of work has a clock of its own, so progress with one excuses no
/// other.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The connection is on the list of those to be checked.
    watched: bool,
    /// Progress with answering our RDMA Reads.
    pub(crate) read: Clock,
    /// Progress with taking our output.
    pub(crate) output: Clock,
    /// Progress with a message that has begun.
    pub(crate) message: Clock,
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
    pub(crate) fn check(&mut self, waiting: &Waiting) -> Option<Stall> {
        self.watched = false;
        let Waiting { read, output, message, is_excused } = *waiting;
        let kinds = [
            (Stall::Read, &mut self.read, read, is_excused),
            (Stall::Output, &mut self.output, output, false),
            (Stall::Message, &mut self.message, message, is_excused),
        ];
        let mut overdue = None;
        for (stall, clock, waits, is_excused) in kinds {
            if is_excused {
                continue;
            }
            if !waits {
                clock.rest();
            } else if clock.has_run_out() {
                overdue = overdue.or(Some(stall));
            }
        }
        overdue
    }
}

/// Progress with one kind of work, as a number that changes whenever any of it is done and never comes back to an
/// earlier value, and the checks that found it unchanged. A clock either counts or takes positions.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    done: u64,
    /// `done` at the last check.
    seen: u64,
    /// Checks in a row that found work waiting and none done between them; 0 if none waited at the last one.
    checks: u8,
}

impl Clock {
    /// Returns the time between two checks of a peer that has `timeout` to get something done.
    pub(crate) fn interval(timeout: Duration) -> Duration {
        (timeout / u32::from(CHECKS)).max(INTERVAL_MIN)
    }

    /// Counts something that was done.
    #[inline]
    pub(crate) const fn count(&mut self) {
        self.done = self.done.wrapping_add(1);
    }

    /// Takes the position that the peer has reached since the connection began. One that it has passed is no news.
    pub(crate) fn reach(&mut self, position: u64) {
        self.done = self.done.max(position);
    }

    /// Returns the highest position that the peer has reached.
    pub(crate) const fn position(&self) -> u64 {
        self.done
    }

    /// Checks the peer while work waits for it. Returns whether none was done in all the time the peer has.
    pub(crate) const fn has_run_out(&mut self) -> bool {
        if self.checks == 0 || self.done != self.seen {
            (self.seen, self.checks) = (self.done, 1);
            return false;
        }
        self.checks = self.checks.saturating_add(1);
        self.checks > CHECKS
    }

    /// Notes that no work waits for the peer, which has all its time for the next.
    pub(crate) const fn rest(&mut self) {
        self.checks = 0;
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
        let interval = Clock::interval(timeout);
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
    use crate::provider::sim::Rng;

    #[test]
    fn a_clock_runs_out_after_four_checks_without_progress_and_restarts_with_any() {
        let mut clock = Clock::default();
        assert_eq!([(); 4].map(|()| clock.has_run_out()), [false; 4]);
        clock.count();
        assert_eq!([(); 4].map(|()| clock.has_run_out()), [false; 4]);
        clock.rest();
        assert_eq!([(); 5].map(|()| clock.has_run_out()), [false, false, false, false, true]);
    }

    #[test]
    fn a_position_that_was_passed_is_no_progress() {
        let mut clock = Clock::default();
        let mut has_run_out = |position| {
            clock.reach(position);
            clock.has_run_out()
        };
        assert_eq!([7, 3, 7, 0].map(&mut has_run_out), [false; 4]);
        assert!(has_run_out(7));
    }

    #[test]
    fn progress_with_one_kind_of_work_excuses_no_other() {
        let mut progress = Progress::default();
        let waiting = Waiting { read: true, output: true, message: true, is_excused: false };
        let mut check = || {
            progress.read.count();
            progress.message.reach(progress.message.position() + 1);
            progress.check(&waiting)
        };
        assert_eq!([(); 4].map(|()| check()), [None; 4]);
        assert_eq!(check(), Some(Stall::Output));
    }

    /// How a provider tells a clock that the peer has done the piece of work of this number.
    type Telling = fn(&mut Clock, u64);

    /// The providers and the core as they tell their clocks. All pieces of work look alike: Reads, messages and FPDUs
    /// of one length.
    const TELLINGS: [(&str, Telling); 5] = [
        ("requests and messages over shm, Replies of a core", |clock, _| clock.count()),
        ("octets that iwarp knows as acknowledged", |clock, number| clock.reach(1460 * number)),
        ("Reads over iwarp, each answered in full", |clock, number| {
            clock.reach(number * (4096 + 1) + 60 * number);
        }),
        ("Reads over iwarp of no octets", |clock, number| clock.reach(number)),
        ("FPDUs over iwarp", |clock, number| clock.reach(number << 16)),
    ];

    const LIMIT: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_millis(50);
    const HOUR: Duration = Duration::from_secs(3600);

    /// Runs a connection for an hour. In each step some work gets done before the peer stands still at `still_from`,
    /// and `waits` draws whether other work waits. Returns when its time ran out.
    fn run(tell: Telling, still_from: Instant, mut waits: impl FnMut() -> bool) -> Option<Instant> {
        let (mut progress, mut watches) = (Progress::default(), Watches::new(Some(LIMIT), 1));
        let (qp, mut rng) = (QpNum::new(1, 1), Rng::new(7));
        let (mut now, mut number) = (Instant::ZERO, 0);
        while now < Instant::ZERO.saturating_add(HOUR) {
            now = now.saturating_add(STEP);
            if now < still_from && rng.below(0..20) == 0 {
                for _ in 0..rng.below(1..100) {
                    number += 1;
                    tell(&mut progress.output, number);
                }
            }
            let output = waits();
            let is_due = watches.pop(now).is_some();
            let waiting = Waiting { output, ..Waiting::default() };
            if is_due && progress.check(&waiting).is_some() {
                return Some(now);
            }
            if output {
                progress.watch(&mut watches, now, qp);
            }
        }
        None
    }

    #[test]
    fn a_peer_that_gets_work_done_has_an_hour_and_more_whatever_waits_when_it_is_checked() {
        let end = Instant::ZERO.saturating_add(HOUR);
        for (name, tell) in TELLINGS {
            for waiting_of_4 in 1..=4 {
                let mut rng = Rng::new(waiting_of_4);
                let ran_out = run(tell, end, || rng.below(0..4) < waiting_of_4);
                assert_eq!(ran_out, None, "{name}, {waiting_of_4}");
            }
        }
    }

    #[test]
    fn a_peer_that_stands_still_has_its_time_and_at_most_a_quarter_more() {
        for (name, tell) in TELLINGS {
            for seconds in 0..40 {
                let still_from = Instant::ZERO.saturating_add(Duration::from_secs(seconds));
                let ran_out = run(tell, still_from, || true).expect(name);
                // The last progress may have been two seconds before, rarely more.
                let had = ran_out.saturating_since(still_from);
                assert!(had <= LIMIT + LIMIT / 4 + 2 * STEP, "{name}: {had:?}");
                assert!(had + Clock::interval(LIMIT) >= LIMIT, "{name}: {had:?}");
            }
        }
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
