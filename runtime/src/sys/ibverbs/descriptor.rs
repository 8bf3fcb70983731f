//! Descriptors that the libraries made.

use std::io;
use std::os::fd::RawFd;

/// Has calls on a descriptor return at once.
pub(super) fn nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl takes integers here; the descriptor is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
