//! What the devices of this process have reported, for every core to read.
//!
//! # Normal operation
//! Cores share the contexts that librdmacm opened, and a device gives each report to the first who asks. That core notes
//! it in one log, and wakes the others; each reads on from where it was. A report is acknowledged once it is noted: a
//! queue pair is destroyed only after that, so whatever is noted later is not of it. No lock is taken while nothing fails.
//!
//! # Limits
//! The log keeps [`KEPT_MAX`] faults. A core that has not read for longer learns that it missed some.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};

use crate::sys::wake::Waker;

/// A lock that no core takes while nothing fails.
#[expect(clippy::disallowed_types, reason = "devices fail rarely")]
type Lock<T> = std::sync::Mutex<T>;

/// A fault that a device reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A queue pair, by address, that was made before this moment; it may be gone.
    QueuePair {
        /// The address.
        at: usize,
        /// The moment of the report.
        moment: u64,
    },
    /// The device: it carries nothing any more.
    Device,
    /// Some port of some device of this process may have gone down.
    Port,
    /// Any that the core did not read in time.
    Missed,
}

/// What a device said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A queue pair failed, by address.
    QueuePair(usize),
    /// The device, by the address of its context, failed.
    Device(usize),
    /// A port went down.
    PortDown,
}

/// The faults that devices have reported.
#[derive(Debug)]
pub(super) struct News {
    log: Lock<Log>,
    /// The number of faults so far. Written under the lock.
    count: AtomicU64,
}

#[derive(Debug)]
struct Log {
    /// The latest faults, oldest first.
    latest: VecDeque<Said>,
    /// The cores that read, by number.
    readers: BTreeMap<u64, Waker>,
    next_reader: u64,
}

/// One core's place in the news.
#[derive(Debug)]
pub(crate) struct Reader {
    news: &'static News,
    number: u64,
    /// The number of faults that it has read.
    read: u64,
}

/// The news of this process.
pub(super) static NEWS: News = News::new();

/// Faults that are kept for cores that have not read them.
const KEPT_MAX: usize = 1024;

impl News {
    const fn new() -> Self {
        let log = Log { latest: VecDeque::new(), readers: BTreeMap::new(), next_reader: 0 };
        Self { log: Lock::new(log), count: AtomicU64::new(0) }
    }

    /// Returns a place from which later faults are read. Each of them signals `waker`, unless the same core took it.
    pub(super) fn join(&'static self, waker: Waker) -> Reader {
        let mut log = self.lock();
        let number = log.next_reader;
        log.next_reader += 1;
        log.readers.insert(number, waker);
        Reader { news: self, number, read: self.moment() }
    }

    /// Returns the present moment: what was noted before is older.
    pub(super) fn moment(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // A log is whole whenever the lock is free.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Returns whether there are faults that this core has not read.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.news.moment() != self.read
    }

    /// Notes what a device said, and wakes the other cores.
    pub(super) fn note(&self, said: Said) {
        let mut log = self.news.lock();
        if log.latest.len() == KEPT_MAX {
            log.latest.pop_front();
        }
        log.latest.push_back(said);
        self.news.count.fetch_add(1, Ordering::Release);
        let others = log.readers.iter().filter(|(number, _)| **number != self.number);
        others.for_each(|(_, waker)| waker.wake());
    }

    /// Returns the faults that this core has not read, without those of devices other than the one whose context is at
    /// `device`.
    pub(super) fn read(&mut self, device: usize) -> Vec<Fault> {
        if !self.has_more() {
            return Vec::new();
        }
        let log = self.news.lock();
        let count = self.news.moment();
        let first = count - log.latest.len() as u64;
        let missed = (self.read < first).then_some(Fault::Missed);
        let rest = (first..).zip(&log.latest).skip_while(|(moment, _)| *moment < self.read);
        let rest = rest.filter_map(|(moment, said)| match *said {
            Said::QueuePair(at) => Some(Fault::QueuePair { at, moment }),
            Said::Device(context) => (context == device).then_some(Fault::Device),
            Said::PortDown => Some(Fault::Port),
        });
        let faults = missed.into_iter().chain(rest).collect();
        self.read = count;
        faults
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.news.lock().readers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(news: &'static News) -> (Reader, Waker) {
        let waker = Waker::new().unwrap();
        (news.join(waker.clone()), waker)
    }

    fn news() -> &'static News {
        Box::leak(Box::new(News::new()))
    }

    #[test]
    fn every_core_learns_what_one_has_taken() {
        let news = news();
        let ([mut first, mut second], [waker, woken]) = {
            let ((first, waker), (second, woken)) = (reader(news), reader(news));
            ([first, second], [waker, woken])
        };
        for said in [Said::QueuePair(70), Said::Device(2), Said::PortDown] {
            first.note(said);
        }
        let of = |moment| Fault::QueuePair { at: 70, moment };
        assert_eq!(first.read(1), [of(0), Fault::Port]);
        assert!(!waker.take() && woken.take(), "the other one sleeps no longer");
        assert!(!first.has_more() && second.has_more());
        assert_eq!(second.read(2), [of(0), Fault::Device, Fault::Port]);
        assert!(!second.has_more() && second.read(2).is_empty());
        let (mut third, _) = reader(news);
        assert!(!third.has_more() && third.read(2).is_empty(), "it came later");
        drop(second);
        third.note(Said::Device(1));
        assert_eq!((first.read(1), third.read(2)), (vec![Fault::Device], Vec::new()));
        assert_eq!(news.lock().readers.len(), 2);
    }

    #[test]
    fn a_core_that_does_not_read_learns_that_it_missed_some() {
        let news = news();
        let ((mut first, _), (mut second, _)) = (reader(news), reader(news));
        (0..KEPT_MAX + 2).for_each(|at| first.note(Said::QueuePair(at)));
        let kept = Fault::QueuePair { at: 2, moment: 2 };
        for reader in [&mut first, &mut second] {
            let read = reader.read(0);
            assert_eq!((read.len(), &read[..2]), (KEPT_MAX + 1, &[Fault::Missed, kept][..]));
            assert!(reader.read(0).is_empty());
        }
        assert_eq!(news.moment(), KEPT_MAX as u64 + 2);
    }
}
