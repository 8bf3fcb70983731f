//! Abstract Unix sockets that never block and pass descriptors.
//!
//! An abstract name lives as long as its socket: nothing is left on a disk. Any process in the same network namespace
//! can take or reach one, so both ends ask the system for the user of the other.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags};

/// A listening socket.
#[derive(Debug)]
pub struct Listener(UnixListener);

impl Listener {
    /// Listens under the abstract `name`.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Accepts a connection, if one waits.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        match self.0.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                Ok(Some(Stream(stream)))
            }
            Err(e) if is_later(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns whether a connection waits.
    pub fn is_waited_for(&self) -> bool {
        is_readable(&self.0)
    }

    /// Returns the descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A connected socket. The other end may be in this process.
#[derive(Debug)]
pub struct Stream(UnixStream);

impl Stream {
    /// Connects to the abstract `name`; `None` if its queue is full at the moment.
    pub fn connect(name: &[u8]) -> io::Result<Option<Self>> {
        let address = SocketAddrUnix::new_abstract_name(name);
        let address = address.map_err(|_| ErrorKind::InvalidInput)?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = UnixStream::from(net::socket_with(family, kind, flags, None)?);
        match net::connect(&stream, &address).map_err(io::Error::from) {
            Ok(()) => Ok(Some(Self(stream))),
            Err(e) if is_later(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends `bytes`, all or none, and copies of `fds` with them.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room.
    ///
    /// # Panics
    ///
    /// If there are more than [`FDS_MAX`] descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= FDS_MAX, "no more than {FDS_MAX} descriptors are passed at once");
        let mut room = [MaybeUninit::uninit(); CONTROL_MAX];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "there is room for {FDS_MAX} descriptors");
        }
        let pieces = [IoSlice::new(bytes)];
        let sent = net::sendmsg(&self.0, &pieces, &mut control, SendFlags::NOSIGNAL)?;
        // A stream takes a short message whole or not at all, but this is not guaranteed.
        if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Receives octets and appends the descriptors that came with them to `fds`; `Some(0)` is the end of the stream,
    /// `None` that nothing waits.
    ///
    /// # Errors
    ///
    /// `InvalidData` if more than [`FDS_MAX`] descriptors came at once.
    pub fn receive(&self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Option<usize>> {
        let mut room = [MaybeUninit::uninit(); CONTROL_MAX];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut pieces = [IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = net::recvmsg(&self.0, &mut pieces, &mut control, flags);
        let received = match received.map_err(io::Error::from) {
            Err(e) if is_later(&e) => return Ok(None),
            other => other?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                fds.extend(came);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Some(received.bytes))
    }

    /// Discards the octets that wait; returns whether the other end can still send. An end that sent very many octets
    /// counts as one that cannot.
    pub fn discard(&self) -> bool {
        let mut octets = [0; 256];
        for _ in 0..DISCARDS_MAX {
            match (&self.0).read(&mut octets) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return is_later(&e),
            }
        }
        false
    }

    /// Closes both directions: the other end reads to the end of the stream, and everything that waits on the socket
    /// wakes.
    pub fn shutdown(&self) {
        // The only failure is a connection that is gone already.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Returns the user and process of the other end at the time it connected, or listened.
    pub fn peer(&self) -> io::Result<Peer> {
        let credentials: libc::ucred = self.option(libc::SO_PEERCRED)?;
        Ok(Peer { user: credentials.uid, process: credentials.pid })
    }

    /// Returns a value that tells when the process at the other end is gone.
    pub fn peer_process(&self) -> io::Result<Process> {
        // Since Linux 6.5. The descriptor cannot name a later process with the same number.
        match self.option::<libc::c_int>(SO_PEERPIDFD) {
            Ok(fd) => {
                // SAFETY: the option makes a descriptor for us, and nobody else has it.
                return Ok(Process(Some(unsafe { OwnedFd::from_raw_fd(fd) })));
            }
            // Systems that know the option refuse it so once the process has been waited for.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ESRCH)) => {
                return Ok(Process(None));
            }
            Err(_) => {}
        }
        Process::numbered(self.peer()?.process)
    }

    /// Returns the descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn option<T: Copy>(&self, name: libc::c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
        // SAFETY: `value` has room for the `length` octets announced; both live through the call.
        let result = unsafe {
            let value = value.as_mut_ptr().cast();
            libc::getsockopt(self.fd(), libc::SOL_SOCKET, name, value, &raw mut length)
        };
        check(result)?;
        // SAFETY: it was zeroed and then written by the system; we ask for integers and structures of
        // integers only, for which any octets are valid.
        Ok(unsafe { value.assume_init() })
    }
}

/// The user and the process of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The effective user.
    pub user: u32,
    /// The process number, which may belong to another process by now.
    pub process: i32,
}

impl Peer {
    /// Returns whether a process of `user` admits this peer: it is the same user, or root. Both ends of a connection
    /// ask this of each other, so that only processes of equal users share memory.
    pub const fn may_share_with(self, user: u32) -> bool {
        self.user == user || self.user == 0
    }
}

/// Returns the effective user of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A process, identified even after its number is used again.
///
/// It has no descriptor if its parent had waited for it before it was looked for.
#[derive(Debug)]
pub struct Process(Option<OwnedFd>);

impl Process {
    /// Finds the process with this number.
    fn numbered(number: i32) -> io::Result<Self> {
        let number = Pid::from_raw(number).ok_or(ErrorKind::NotFound)?;
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Ok(Self(Some(fd))),
            Err(Errno::SRCH) => Ok(Self(None)),
            Err(e) => Err(e.into()),
        }
    }

    /// Returns whether no thread of it runs any more.
    pub fn is_gone(&self) -> bool {
        self.0.as_ref().is_none_or(is_readable)
    }
}

/// The most descriptors in one message.
pub const FDS_MAX: usize = 4;

/// Octets of a control message with [`FDS_MAX`] descriptors.
const CONTROL_MAX: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// Returns whether `fd` can be read, or its connection accepted, without waiting.
pub(super) fn is_readable(fd: &impl AsFd) -> bool {
    let mut watched = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Reads of one [`Stream::discard`].
const DISCARDS_MAX: usize = 16;

/// Not in `libc` for every target.
const SO_PEERPIDFD: libc::c_int = 77;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    fn pair(name: &str) -> (Stream, Stream, Listener) {
        let name = format!("haulage-test-{name}-{}", std::process::id());
        let listener = Listener::bind(name.as_bytes()).unwrap();
        assert!(listener.accept().unwrap().is_none(), "nobody is there yet");
        let active = Stream::connect(name.as_bytes()).unwrap().expect("room in the queue");
        let passive = listener.accept().unwrap().expect("it connected");
        (active, passive, listener)
    }

    #[test]
    fn descriptors_travel_with_octets() {
        let (active, passive, _) = pair("descriptors");
        let mut octets = [0; 16];
        let mut fds = Vec::new();
        assert!(passive.receive(&mut octets, &mut fds).unwrap().is_none());
        let files = [File::open("/proc/self/stat").unwrap(), File::open("/dev/null").unwrap()];
        for count in [1, 2] {
            let sent: Vec<_> = files.iter().take(count).map(|file| file.as_fd()).collect();
            active.send(b"hello", &sent).unwrap();
            assert_eq!(passive.receive(&mut octets, &mut fds).unwrap(), Some(5));
            assert_eq!((&octets[..5], fds.len()), (&b"hello"[..], count));
            let mut text = String::new();
            let mut first = File::from(fds.remove(0));
            io::Seek::rewind(&mut first).unwrap();
            first.read_to_string(&mut text).unwrap();
            assert!(text.starts_with(&std::process::id().to_string()), "{text}");
            fds.clear();
        }
        active.send(b"more", &[]).unwrap();
        assert!(passive.discard());
        assert!(passive.receive(&mut octets, &mut fds).unwrap().is_none(), "it was forgotten");
        active.send(&[0; 8192], &[]).unwrap();
        assert!(!passive.discard(), "nobody says so much");
        while passive.receive(&mut octets, &mut fds).unwrap().is_some() {}
        drop(active);
        assert_eq!(passive.receive(&mut octets, &mut fds).unwrap(), Some(0));
        assert!(!passive.discard());
    }

    #[test]
    fn descriptors_of_two_messages_are_not_mixed() {
        let (active, passive, _) = pair("many");
        let null = File::open("/dev/null").unwrap();
        active.send(b"x", &[null.as_fd(); FDS_MAX]).unwrap();
        active.send(b"y", &[null.as_fd(); FDS_MAX]).unwrap();
        let mut fds = Vec::new();
        assert_eq!(passive.receive(&mut [0; 8], &mut fds).unwrap(), Some(1));
        assert_eq!(fds.len(), FDS_MAX);
    }

    #[test]
    fn each_end_knows_who_the_other_is() {
        let (active, passive, _) = pair("who");
        let us = Peer { user: user(), process: i32::try_from(std::process::id()).unwrap() };
        assert_eq!((active.peer().unwrap(), passive.peer().unwrap()), (us, us));
        assert!(!passive.peer_process().unwrap().is_gone(), "it is us");
        let peer = |user| Peer { user, process: 1 };
        assert!(peer(7).may_share_with(7) && peer(0).may_share_with(7));
        assert!(!peer(8).may_share_with(7) && !peer(7).may_share_with(0));
    }

    #[test]
    fn a_process_that_left_no_trace_is_gone() {
        let us = i32::try_from(std::process::id()).unwrap();
        assert!(!Process::numbered(us).unwrap().is_gone());
        // Linux gives no process such a high number.
        assert!(Process::numbered(i32::MAX).unwrap().is_gone());
        assert_eq!(Process::numbered(0).unwrap_err().kind(), ErrorKind::NotFound, "it is hidden");
    }

    #[test]
    fn nobody_there_and_names_too_long_are_errors() {
        let refused = Stream::connect(b"haulage-test-nobody").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(Stream::connect(&[b'x'; 200]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
