//! Descriptors made by the libraries.

use std::io;
use std::os::fd::RawFd;

/// Makes calls on a descriptor non-blocking.
pub(super) fn nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl takes integers here; the descriptor is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
