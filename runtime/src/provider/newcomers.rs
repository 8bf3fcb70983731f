//! Peers that are lost before a core hears of them: handshakes that fail, and accepts that the system refuses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haulage_proto::time::Instant;

use super::events::ConnectError;
use crate::counts::counts;

counts! {
    /// Counts of the newcomers that a provider did not report to its core.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Newcomers {
        /// Peers that closed the connection before their handshake was complete.
        pub closed: u64,
        /// Peers whose handshake broke a rule, such as programs that speak another protocol.
        pub malformed: u64,
        /// Peers that did not complete their handshake in time.
        pub timed_out: u64,
        /// Peers whose handshake was given up because there was no room for another one.
        pub crowded_out: u64,
        /// Peers that this process does not share memory with: programs of other users.
        pub forbidden: u64,
        /// Accepts that failed.
        pub accepts: Accepts,
    }
}

counts! {
    /// Counts of the accepts that failed at this machine.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Accepts {
        /// The process, or the system, had no descriptor left.
        pub descriptors: u64,
        /// The system had no memory left.
        pub memory: u64,
        /// Other failures.
        pub other: u64,
    }
}

impl Newcomers {
    /// Counts a handshake that failed at the passive end.
    pub(crate) const fn count(&mut self, why: &ConnectError) {
        *match why {
            ConnectError::TimedOut => &mut self.timed_out,
            ConnectError::NoQueuePair => &mut self.crowded_out,
            ConnectError::BadHandshake(_) => &mut self.malformed,
            _ => &mut self.closed,
        } += 1;
    }

    /// Returns the number of handshakes that failed.
    pub const fn handshakes_failed(&self) -> u64 {
        self.closed + self.malformed + self.timed_out + self.crowded_out + self.forbidden
    }
}

impl Accepts {
    /// Counts an accept that failed.
    pub fn count(&mut self, error: &io::Error) {
        *match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => &mut self.descriptors,
            Some(libc::ENOMEM | libc::ENOBUFS) => &mut self.memory,
            _ => &mut self.other,
        } += 1;
    }

    /// Returns how often the machine lacked something that its administrator can give.
    pub const fn exhausted(&self) -> u64 {
        self.descriptors + self.memory
    }
}

/// The failed accepts of listeners on threads of their own. Each thread has a clone, which reports now and then; all
/// clones count together.
#[derive(Clone, Debug, Default)]
pub struct AcceptFailures {
    counts: Arc<SharedAccepts>,
    seldom: Seldom,
}

/// [`Accepts`] that several threads count.
#[derive(Debug, Default)]
struct SharedAccepts {
    descriptors: AtomicU64,
    memory: AtomicU64,
    other: AtomicU64,
}

impl AcceptFailures {
    /// Counts an accept of `listener` that failed at `now`, and logs a warning if it lacked descriptors or memory.
    pub fn count(&mut self, listener: &str, error: &io::Error, now: Instant) {
        let mut one = Accepts::default();
        one.count(error);
        self.counts.descriptors.fetch_add(one.descriptors, Ordering::Relaxed);
        self.counts.memory.fetch_add(one.memory, Ordering::Relaxed);
        self.counts.other.fetch_add(one.other, Ordering::Relaxed);
        if one.exhausted() > 0 && self.seldom.passes(now, 1) {
            tracing::warn!(target: "haulage", listener, reason = %error, hint = HINT, "accept.failed");
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> Accepts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let SharedAccepts { descriptors, memory, other } = &*self.counts;
        Accepts { descriptors: read(descriptors), memory: read(memory), other: read(other) }
    }
}

/// A limit of one event in ten seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seldom {
    not_before: Instant,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::NEW
    }
}

impl Seldom {
    /// A limit that the first event passes.
    pub(crate) const NEW: Self = Self { not_before: Instant::ZERO };

    /// Returns whether an event at `now` passes, where `cores` cores share the limit.
    pub(crate) fn passes(&mut self, now: Instant, cores: u32) -> bool {
        let passes = now >= self.not_before;
        if passes {
            self.not_before = now.saturating_add(Duration::from_secs(10) * cores.max(1));
        }
        passes
    }
}

/// The advice to an administrator whose machine could not accept a connection.
pub(crate) const HINT: &str = "raise the limit of open files (ulimit -n), or lower --connections";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_accept_is_counted_by_what_was_lacking() {
        let mut failures = AcceptFailures::default();
        let counts = failures.clone();
        for errno in
            [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ENOMEM, libc::EPERM]
        {
            failures.count("tcp", &io::Error::from_raw_os_error(errno), Instant::ZERO);
        }
        let expected = Accepts { descriptors: 2, memory: 3, other: 1 };
        assert_eq!((counts.counts(), expected.exhausted()), (expected, 5));
    }

    #[test]
    fn a_failed_handshake_is_counted_by_its_reason() {
        let mut newcomers = Newcomers::default();
        let lost = ConnectError::System(io::ErrorKind::ConnectionReset);
        for why in
            [ConnectError::TimedOut, ConnectError::BadHandshake("of HTTP"), lost.clone(), lost]
        {
            newcomers.count(&why);
        }
        newcomers.count(&ConnectError::NoQueuePair);
        let expected = Newcomers {
            closed: 2,
            malformed: 1,
            timed_out: 1,
            crowded_out: 1,
            ..Newcomers::default()
        };
        assert_eq!((newcomers, expected.handshakes_failed()), (expected, 5));
    }

    #[test]
    fn one_event_in_ten_seconds_passes() {
        let mut seldom = Seldom::default();
        let at = |seconds| Instant::ZERO.saturating_add(Duration::from_secs(seconds));
        let passed: Vec<_> = (0..25).filter(|second| seldom.passes(at(*second), 1)).collect();
        assert_eq!(passed, [0, 10, 20]);
    }
}
