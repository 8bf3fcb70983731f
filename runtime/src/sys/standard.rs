//! Which of the three standard descriptors this process was started without, and whether anybody is at their other ends.
//!
//! Before `main`, the standard library opens `/dev/null` in place of those that are closed, so that a program which
//! asks later finds them open: what it writes is lost, and what it reads is empty, without an error.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A standard descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// Standard input.
    Input = 0,
    /// Standard output.
    Output = 1,
}

impl Standard {
    /// Returns whether the descriptor was closed when the process started.
    pub fn was_closed(self) -> bool {
        CLOSED.load(Ordering::Relaxed) & (1 << self as u8) != 0
    }

    /// Returns whether the other end of a pipe, socket or terminal is closed, so that nobody reads what is written.
    pub fn is_cut_off(self) -> bool {
        let (input, output) = (io::stdin(), io::stdout());
        let descriptor = match self {
            Self::Input => input.as_fd(),
            Self::Output => output.as_fd(),
        };
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// One bit for each standard descriptor that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The entry by which the loader calls [`look`] before `main`.
// SAFETY: each entry of `.init_array` is the address of a function, which the loader calls once, before `main` and
// on the only thread. The function uses nothing that needs Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Notes which standard descriptors are closed.
extern "C" fn look() {
    for which in [Standard::Input, Standard::Output] {
        // SAFETY: the call reads the flags of a descriptor, which need not be open, and touches no memory.
        let flags = unsafe { libc::fcntl(which as libc::c_int, libc::F_GETFD) };
        if flags == -1 {
            CLOSED.fetch_or(1 << which as u8, Ordering::Relaxed);
        }
    }
}
