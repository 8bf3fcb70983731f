//! Leases on files, which a process takes to hear that another is about to open the file (`F_SETLEASE` in fcntl(2)).
//! Until it gives the lease up, that other waits, for as long as `/proc/sys/fs/lease-break-time` says.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What a lease is broken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opening the file for writing, or truncating it.
    Read,
    /// Opening or truncating the file.
    Write,
}

/// A lease on a file. Its holder is told by a signal that is ignored by default, and keeps the lease: it ends when this
/// is dropped.
#[derive(Debug)]
pub struct Lease {
    _file: File,
}

impl Lease {
    /// Takes a lease on an open file, which nobody else may have open in a way that breaks it.
    ///
    /// # Errors
    /// The system's: `EAGAIN` if somebody has the file open so, `EINVAL` if the file system has no leases, `EACCES` if
    /// the file is another user's.
    pub fn take(file: File, kind: Kind) -> io::Result<Self> {
        let kind = match kind {
            Kind::Read => libc::F_RDLCK,
            Kind::Write => libc::F_WRLCK,
        };
        for (command, argument) in [(F_SETSIG, libc::SIGURG), (libc::F_SETLEASE, kind)] {
            // SAFETY: both commands take an integer, and the descriptor is open.
            if unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { _file: file })
    }
}

/// Chooses the signal; the library has no name for it.
const F_SETSIG: i32 = 10;
