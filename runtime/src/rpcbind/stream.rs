//! A connection to rpcbind that exchanges records until a deadline.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use haulage_proto::rpc::record::Mark;
use haulage_proto::time::Instant;

use crate::sys::{clock, local};

/// An address at which rpcbind listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The path of a local socket.
    Local(PathBuf),
    /// An IP address and port.
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A connection that fails at a deadline.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    deadline: Instant,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl Stream {
    /// Connects to `endpoint`.
    ///
    /// # Errors
    /// The system's error; `TimedOut` at the deadline.
    pub fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Self> {
        let left = left(deadline)?;
        let socket = match endpoint {
            Endpoint::Tcp(address) => Socket::Tcp(TcpStream::connect_timeout(address, left)?),
            Endpoint::Local(path) => Socket::Local(local::connect(path, left)?),
        };
        Ok(Self { socket, deadline })
    }

    /// Sends a record and returns the next one received.
    ///
    /// # Errors
    /// The system's error; `TimedOut` at the deadline, `InvalidData` if the record is too long.
    pub fn exchange(&mut self, record: &[u8]) -> io::Result<Vec<u8>> {
        let length = u32::try_from(record.len()).ok();
        let mark = length.and_then(Mark::last).ok_or(ErrorKind::InvalidData)?;
        self.write_all(&[&mark.encode(), record].concat())?;

        let mut reply = Vec::new();
        loop {
            let mut octets = [0; Mark::WIRE_LEN];
            self.read_exact(&mut octets)?;
            let mark = Mark::decode(octets);
            let start = reply.len();
            let end =
                usize::try_from(mark.length()).ok().and_then(|length| start.checked_add(length));
            let end = end.filter(|end| *end <= REPLY_MAX).ok_or(ErrorKind::InvalidData)?;
            reply.resize(end, 0);
            self.read_exact(reply.get_mut(start..).unwrap_or_default())?;
            if mark.is_last() {
                return Ok(reply);
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        in_time(match &mut self.socket {
            Socket::Tcp(socket) => {
                socket.set_read_timeout(left)?;
                socket.read(octets)
            }
            Socket::Local(socket) => {
                socket.set_read_timeout(left)?;
                socket.read(octets)
            }
        })
    }
}

impl Write for Stream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        in_time(match &mut self.socket {
            Socket::Tcp(socket) => {
                socket.set_write_timeout(left)?;
                socket.write(octets)
            }
            Socket::Local(socket) => {
                socket.set_write_timeout(left)?;
                socket.write(octets)
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the time that is left, which is never zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_since(clock::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reports the end of a socket's timeout as `TimedOut`.
fn in_time<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })
}

/// Octets of the longest reply that is read.
pub const REPLY_MAX: usize = 1 << 20;
