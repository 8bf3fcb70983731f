//! Abstract Unix sockets that never block and pass descriptors.
//!
//! An abstract name lives as long as its socket: nothing is left on a disk. Anybody in the same network
//! namespace can take or reach one, so both ends ask the system who the other is.

use std::io::{self, ErrorKind, Read as _};
use std::mem::{self, MaybeUninit};
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

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
        is_readable(self.fd())
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
        // SAFETY: a sockaddr_un is integers, for which all zeros are valid.
        let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
        // The first octet stays zero, which makes the name abstract.
        let places = address.sun_path.get_mut(1..).unwrap_or_default();
        if name.len() > places.len() {
            return Err(ErrorKind::InvalidInput.into());
        }
        for (place, octet) in places.iter_mut().zip(name) {
            *place = libc::c_char::from_ne_bytes([*octet]);
        }
        let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        let length = libc::socklen_t::try_from(length).unwrap_or_default();
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes three integers.
        let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: socket succeeded, so `fd` is open and nobody else's.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the kernel reads `length` octets of `address`, which has as many and lives through the
        // call.
        match check(unsafe { libc::connect(fd, (&raw const address).cast(), length) }) {
            Ok(_) => Ok(Some(Self(stream))),
            Err(e) if is_later(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends `bytes`, all or none, and copies of `fds` with them. Fails with `WouldBlock` if there is
    /// no room.
    ///
    /// # Panics
    ///
    /// If there are more than [`FDS_MAX`] descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= FDS_MAX, "no more than {FDS_MAX} descriptors are passed at once");
        let mut control = Control::new();
        let mut piece =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut message = message(&mut piece);
        if !fds.is_empty() {
            control.put(fds);
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = CONTROL_ALIGNED + fds.len().next_multiple_of(2) * FD_OCTETS;
        }
        // SAFETY: `message`, the piece it names (which is only read) and its control octets live through
        // the call, and are as long as it says.
        let sent =
            octets(unsafe { libc::sendmsg(self.fd(), &raw const message, libc::MSG_NOSIGNAL) });
        // A stream takes a short message whole or not at all, but does not promise it.
        if sent? == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Receives octets and appends the descriptors that came with them to `fds`; `Some(0)` is the end,
    /// `None` that nothing waits.
    ///
    /// Fails with `InvalidData` if more than [`FDS_MAX`] descriptors came at once.
    pub fn receive(&self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<Option<usize>> {
        let mut control = Control::new();
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut message = message(&mut piece);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        // SAFETY: `message`, the piece it names and its control octets are writable, live through the
        // call, and are as long as it says.
        let received = unsafe {
            libc::recvmsg(self.fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT)
        };
        let received = match octets(received) {
            Err(e) if is_later(&e) => return Ok(None),
            other => other?,
        };
        control.take(message.msg_controllen, fds);
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Some(received))
    }

    /// Forgets the octets that wait; returns whether the other end can still send. One that sent very
    /// many counts as one that cannot.
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

    /// Tells the other end, once it has read what was sent, that this is all; and everybody who waits.
    pub fn shutdown(&self) {
        // The only failure is a connection that is gone already.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Returns as whom the other end ran when it connected, or listened.
    pub fn peer(&self) -> io::Result<Peer> {
        let credentials: libc::ucred = self.option(libc::SO_PEERCRED)?;
        Ok(Peer { user: credentials.uid, process: credentials.pid })
    }

    /// Returns what tells when the process at the other end is gone.
    pub fn peer_process(&self) -> io::Result<Process> {
        // Since Linux 6.5; it cannot name another process that has the number now.
        if let Ok(fd) = self.option::<libc::c_int>(SO_PEERPIDFD) {
            // SAFETY: the option makes a descriptor for us, and nobody else has it.
            return Ok(Process(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
        let process = self.peer()?.process;
        // SAFETY: pidfd_open takes integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: pidfd_open succeeded, so `fd` is open and nobody else's.
        Ok(Process(unsafe { OwnedFd::from_raw_fd(fd) }))
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

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The effective user.
    pub user: u32,
    /// The process number, which another process may have by now.
    pub process: i32,
}

impl Peer {
    /// Returns whether a process of `user` admits this peer: it is the same user, or root. Both ends of a
    /// connection ask this of each other, so that only processes of equal users share memory.
    pub const fn may_share_with(self, user: u32) -> bool {
        self.user == user || self.user == 0
    }
}

/// Returns the effective user of this process.
pub fn user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Returns whether no thread of it runs any more.
    pub fn is_gone(&self) -> bool {
        is_readable(self.0.as_raw_fd())
    }
}

/// Descriptors that come or go with one message.
pub const FDS_MAX: usize = 4;

/// Room for one control message of [`FDS_MAX`] descriptors, laid out as the system wants it.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    fds: [libc::c_int; FDS_MAX],
}

const FD_OCTETS: usize = size_of::<libc::c_int>();
const CONTROL_ALIGNED: usize = size_of::<libc::cmsghdr>();
// The descriptors follow the header with nothing between: its size is a multiple of its alignment.
const _: () = assert!(mem::offset_of!(Control, fds) == CONTROL_ALIGNED);
const _: () = assert!(CONTROL_ALIGNED.is_multiple_of(size_of::<usize>()));

impl Control {
    const fn new() -> Self {
        let header = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
        Self { header, fds: [-1; FDS_MAX] }
    }

    fn put(&mut self, fds: &[BorrowedFd<'_>]) {
        for (place, fd) in self.fds.iter_mut().zip(fds) {
            *place = fd.as_raw_fd();
        }
        self.header.cmsg_len = CONTROL_ALIGNED + fds.len() * FD_OCTETS;
        (self.header.cmsg_level, self.header.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    }

    /// Takes the descriptors that came, `length` octets of control messages having been written.
    fn take(&self, length: usize, fds: &mut Vec<OwnedFd>) {
        let Self { header, .. } = self;
        let is_fds = (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        if length < CONTROL_ALIGNED || !is_fds {
            return;
        }
        let count = header.cmsg_len.saturating_sub(CONTROL_ALIGNED) / FD_OCTETS;
        for fd in self.fds.iter().take(count).filter(|fd| **fd >= 0) {
            // SAFETY: the system put the descriptor here for us, and nobody else has it.
            fds.push(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
    }
}

fn message(piece: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: a msghdr is integers and pointers, for which all zeros are valid: no name, no pieces, no
    // control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (piece, 1);
    message
}

/// Returns whether `fd` can be read, or its connection accepted, without waiting.
pub(super) fn is_readable(fd: RawFd) -> bool {
    let mut watched = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `watched` is one live, initialized entry, as the count says.
    unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn octets(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
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
    fn nobody_there_and_names_too_long_are_errors() {
        let refused = Stream::connect(b"haulage-test-nobody").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(Stream::connect(&[b'x'; 200]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
