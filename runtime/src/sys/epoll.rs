//! Waiting for sockets where io_uring is not available.
//!
//! Every descriptor is watched edge-triggered in both directions from the start: after a read or a write that would
//! block, the next change is reported, and no call re-arms anything.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// An event of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the descriptor is watched under.
    pub token: u64,
    /// There may be something to read, including the end of the stream.
    pub readable: bool,
    /// There may be room to write, or connecting is over.
    pub writable: bool,
    /// The peer sends no more, or the descriptor has failed.
    pub is_ending: bool,
}

/// An epoll instance, with room for its events.
pub struct Epoll {
    fd: OwnedFd,
    room: [libc::epoll_event; EVENTS_MAX],
}

impl Epoll {
    /// Makes an instance.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes an integer and touches no memory of ours.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by epoll_create1 and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, room: [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// Watches `fd` until it is closed.
    pub fn watch(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: token };
        // SAFETY: `event` is live for the call, and the kernel copies it.
        let result = unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the descriptor, which is readable while there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Waits at most `limit` (`None`: without limit) and returns the events.
    ///
    /// An interrupted wait returns none.
    pub fn wait(&mut self, limit: Option<Duration>) -> impl Iterator<Item = Ready> + '_ {
        // Rounded up, so that a deadline has passed when the wait for it ends.
        let limit = limit.map_or(-1, |limit| {
            libc::c_int::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let most = libc::c_int::try_from(self.room.len()).unwrap_or(1);
        // SAFETY: `room` has `most` entries, is borrowed exclusively and live for the call.
        let count =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.room.as_mut_ptr(), most, limit) };
        let events = self.room.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
        events.iter().map(|event| {
            let failed = libc::EPOLLERR | libc::EPOLLHUP;
            let any = |mask: libc::c_int| event.events & mask.cast_unsigned() != 0;
            Ready {
                token: event.u64,
                readable: any(libc::EPOLLIN | libc::EPOLLRDHUP | failed),
                writable: any(libc::EPOLLOUT | failed),
                is_ending: any(libc::EPOLLRDHUP | failed),
            }
        })
    }
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Events taken by one wait.
const EVENTS_MAX: usize = 64;
