//! Waking a sleeping core from another thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Ends one core's sleep. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Watched>);

/// What ends the sleep.
#[derive(Debug)]
struct Watched {
    signal: File,
    /// Becomes readable with the signal, and with whatever else is watched.
    all: OwnedFd,
}

impl Waker {
    /// Makes a waker on an eventfd of its own.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let all = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&all, &fd, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self(Arc::new(Watched { signal: File::from(fd), all })))
    }

    /// Has the sleep end when a descriptor becomes readable, too, as long as it is open.
    pub fn watch(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0.all, descriptor, EventData::new_u64(0), EventFlags::IN)?)
    }

    /// Has the sleep end when the other end of a descriptor is closed, too, as long as this one is open: that of a pipe, a
    /// socket or a terminal. A file has no other end.
    pub fn watch_end(&self, descriptor: impl AsFd) -> io::Result<()> {
        let watched =
            epoll::add(&self.0.all, descriptor, EventData::new_u64(0), EventFlags::empty());
        match watched {
            Err(Errno::PERM) => Ok(()),
            watched => Ok(watched?),
        }
    }

    /// Wakes the core, now or at its next sleep.
    pub fn wake(&self) {
        // The only failure is a counter already at its maximum: a wake-up is pending then.
        let _ = (&self.0.signal).write(&1_u64.to_ne_bytes());
    }

    /// Clears wake-ups signaled so far.
    pub fn clear(&self) {
        // The only failure is an empty counter: there is nothing to clear.
        let _ = (&self.0.signal).read(&mut [0; 8]);
    }

    /// Returns whether a wake-up was signaled, and clears it.
    #[cfg(test)]
    pub(crate) fn take(&self) -> bool {
        (&self.0.signal).read(&mut [0; 8]).is_ok()
    }

    /// Returns the descriptor that becomes readable when the core has to wake.
    pub fn fd(&self) -> RawFd {
        self.0.all.as_raw_fd()
    }

    /// Returns the eventfd that wakes the core when it is written to, for those that cannot call [`Self::wake`].
    pub fn signal_fd(&self) -> RawFd {
        self.0.signal.as_raw_fd()
    }
}

/// Sleeps until `waker` is signaled, at most `limit`.
pub fn wait(waker: &Waker, limit: Duration) {
    let mut watched = [PollFd::new(&waker.0.all, PollFlags::IN)];
    // A time beyond the system's range means no limit.
    let limit = Timespec::try_from(limit).ok();
    if poll(&mut watched, limit.as_ref()).is_ok_and(|ready| ready > 0) {
        waker.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_sleep_ends_when_what_is_watched_becomes_readable() {
        let waker = Waker::new().unwrap();
        let (watched, mut peer) = UnixStream::pair().unwrap();
        waker.watch(&watched).unwrap();
        let is_awake = || {
            let mut polled = [PollFd::new(&waker.0.all, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
        };
        assert!(!is_awake());
        peer.write_all(b"x").unwrap();
        assert!(is_awake());
        (&watched).read_exact(&mut [0]).unwrap();
        assert!(!is_awake());
        waker.wake();
        assert!(is_awake());
        waker.clear();
        assert!(!is_awake());
    }

    #[test]
    fn a_sleep_ends_when_the_other_end_of_what_is_written_to_is_closed() {
        let waker = Waker::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        waker.watch_end(&writer).unwrap();
        waker.watch_end(File::open("/proc/self/exe").unwrap()).unwrap();
        let is_awake = || {
            let mut polled = [PollFd::new(&waker.0.all, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
        };
        writer.write_all(b"x").unwrap();
        assert!(!is_awake());
        drop(reader);
        assert!(is_awake());
    }
}
