//! Waking a sleeping core from another thread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Ends one core's sleep. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<File>);

impl Waker {
    /// Makes a waker on an eventfd of its own.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two integers and touches no memory of ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by eventfd and nobody else owns it.
        Ok(Self(Arc::new(unsafe { File::from_raw_fd(fd) })))
    }

    /// Wakes the core, now or at its next sleep.
    pub fn wake(&self) {
        // The only failure is a counter already at its maximum: a wake-up is pending then.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    /// Forgets wake-ups signaled so far.
    pub fn clear(&self) {
        // The only failure is an empty counter: nothing to forget.
        let _ = (&*self.0).read(&mut [0; 8]);
    }

    /// Returns the descriptor that becomes readable when the core is to wake.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Sleeps until `waker` is signaled, at most `limit`.
pub fn wait(waker: &Waker, limit: Duration) {
    let mut watched = libc::pollfd { fd: waker.fd(), events: libc::POLLIN, revents: 0 };
    let millis = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `watched` is one live, initialized entry, as the count says.
    let ready = unsafe { libc::poll(&raw mut watched, 1, millis.saturating_add(1)) };
    if ready > 0 {
        waker.clear();
    }
}
