//! Connecting to a local socket within a timeout, which `std` supports for TCP only.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connects to the socket at `path`, or fails with `TimedOut` if its queue stays full for `timeout`.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path).map_err(|_| ErrorKind::InvalidInput)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let stream = UnixStream::from(socket);
    // On Linux this bounds connecting, too.
    stream.set_write_timeout(Some(timeout))?;
    match net::connect(&stream, &address).map_err(io::Error::from) {
        Ok(()) => Ok(stream),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
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
        net::listen(&listener, 0).unwrap();
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
