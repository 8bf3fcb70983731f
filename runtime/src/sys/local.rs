//! Connecting to a local socket within a time, which `std` does for TCP only.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`, or fails with `TimedOut` if its queue stays full for so long.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    // SAFETY: a sockaddr_un is integers, for which all zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    let octets = path.as_os_str().as_bytes();
    // One octet stays zero, to end the name.
    if octets.len() >= address.sun_path.len() || octets.contains(&0) {
        return Err(ErrorKind::InvalidInput.into());
    }
    for (place, octet) in address.sun_path.iter_mut().zip(octets) {
        *place = libc::c_char::from_ne_bytes([*octet]);
    }
    let length = libc::socklen_t::try_from(mem::size_of_val(&address)).unwrap_or_default();

    // SAFETY: socket takes three integers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: socket succeeded, so `fd` is open and nobody else's.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // On Linux this bounds connecting too.
    stream.set_write_timeout(Some(timeout))?;
    // SAFETY: the kernel reads `length` octets of `address`, which has as many and lives through the
    // call.
    let result = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 {
        return Ok(stream);
    }
    let error = io::Error::last_os_error();
    Err(if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_path_that_is_no_socket_is_refused() {
        let failure = |path: &Path| connect(path, Duration::from_secs(5)).unwrap_err().kind();
        assert_eq!(failure(Path::new("/proc/self/absent")), ErrorKind::NotFound);
        assert_eq!(failure(Path::new(&"x".repeat(200))), ErrorKind::InvalidInput);
        assert_eq!(failure(Path::new("a\0b")), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_full_queue_is_waited_for_and_no_longer() {
        let path = std::env::temp_dir().join(format!("haulage-local-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: listen takes two integers; the descriptor is the listener's, which lives.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let mut first = connect(&path, Duration::from_secs(5)).unwrap();
        let second = connect(&path, Duration::from_millis(10)).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::TimedOut);
        first.write_all(b"x").unwrap();
        let mut octets = [0];
        listener.accept().unwrap().0.read_exact(&mut octets).unwrap();
        assert_eq!(&octets, b"x");
        drop(listener);
        let gone = connect(&path, Duration::from_secs(5)).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(path).unwrap();
    }
}
