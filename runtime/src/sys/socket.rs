//! TCP sockets that never block.
//!
//! Where `std::net` suffices, it is used. `unsafe` code adds the rest: connecting without blocking, sending without
//! SIGPIPE, receiving straight into registered memory, the segment size, the choice of congestion control, the
//! detection of peers that vanished, and the count of octets that a peer has yet to take.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use haulage_mr_pool::Sink;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use super::interfaces;
use super::sock_diag::{self, ESTABLISHED, Found};
use super::unix::is_readable;
use crate::work::PeerUser;

/// Turns a call that would have blocked, or was interrupted, into `None`.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the octets that were sent on a connection and that the peer's system has not acknowledged yet.
pub fn unacknowledged(stream: &TcpStream) -> io::Result<u64> {
    let mut octets: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one integer, for which `octets` has room; it is live for the call.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
    check(result)?;
    Ok(u64::try_from(octets).unwrap_or(0))
}

/// Returns whether the peer has closed its end of a connection, and all its octets have been received. Does not block.
fn is_over(stream: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    net::recv(stream, &mut [0_u8; 1], flags).is_ok_and(|(_, octets)| octets == 0)
}

/// Returns whether the peer has closed its end of a connection in order, having taken all octets that were sent to it.
/// Does not block.
fn has_left(stream: &TcpStream) -> bool {
    // A reset, with which a peer answers what it no longer takes, ends this state. So does a shutdown of this end.
    is_over(stream)
        && unacknowledged(stream).is_ok_and(|octets| octets == 0)
        && state(stream) == Some(CLOSE_WAIT)
}

/// Returns the state of a connection, as Linux numbers it.
fn state(stream: &TcpStream) -> Option<u8> {
    let mut state = MaybeUninit::<u8>::uninit();
    let mut length = 1;
    // The state is the first octet of a tcp_info, of which the kernel writes as much as there is room for.
    // SAFETY: `state` has room for the one octet announced; both are live for the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            state.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    // SAFETY: getsockopt succeeded and wrote one octet.
    (check(result).is_ok() && length == 1).then(|| unsafe { state.assume_init() })
}

/// The state in which the peer has closed its direction, and this end has not.
const CLOSE_WAIT: u8 = 8;

/// A listening socket.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens at `at`.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Finds out whether [`Self::bind`] would succeed, without listening: nobody who connects meanwhile is let in.
    ///
    /// # Errors
    /// The error of the system: the address is in use, may not be used, or is not one of this machine.
    pub fn check(at: SocketAddr) -> io::Result<()> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // As the standard library has it: connections that were closed a moment ago do not keep a port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        Ok(net::bind(&socket, &at)?)
    }

    /// Accepts a connection, if one waits. `vanished` decides when the system ends it.
    pub fn accept(&self, vanished: Vanished) -> io::Result<Option<(Socket, SocketAddr)>> {
        let Some((stream, peer)) = unless_blocked(self.0.accept())? else { return Ok(None) };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        vanished.end(&stream)?;
        let socket = Socket(stream);
        suit_path(&socket.0, peer.ip());
        Ok(Some((socket, peer)))
    }

    /// Returns whether a connection waits.
    pub fn is_waited_for(&self) -> bool {
        is_readable(&self.0)
    }

    /// Returns the address that was bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns the descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Returns whether an accept failed for the peer alone, so that the next one may succeed. accept(2) passes on errors that
/// the network reported for a connection that was not accepted yet, and the refusal of a firewall.
pub fn is_of_the_peer(error: &io::Error) -> bool {
    let of_the_peer = [
        Errno::CONNABORTED,
        Errno::PROTO,
        Errno::PERM,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
    ];
    Errno::from_io_error(error).is_some_and(|errno| of_the_peer.contains(&errno))
}

/// A connected, or connecting, socket.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Starts connecting; the socket becomes writable when the outcome is known. `vanished` decides when the system
    /// ends the connection.
    pub fn connect(to: SocketAddr, vanished: Vanished) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
        match net::connect(&fd, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        vanished.end(&stream)?;
        let socket = Self(stream);
        suit_path(&socket.0, to.ip());
        Ok(socket)
    }

    /// Returns the outcome of connecting, once the socket is writable.
    pub fn connected(&self) -> io::Result<()> {
        self.0.take_error()?.map_or(Ok(()), Err)
    }

    /// Has the system no longer end the connection because octets wait in it, but for a peer that acknowledges nothing at
    /// all, after some fifteen minutes. The time of [`Vanished`] also counts while the peer has little room and takes octets
    /// all the time, so a caller with a clock of its own judges peers to which it sends much.
    pub fn outlast_full_windows(&self) -> io::Result<()> {
        Ok(sockopt::set_tcp_user_timeout(&self.0, 0)?)
    }

    /// Returns the time after which the system ends the connection because octets wait in it, in milliseconds; 0: its own.
    #[cfg(test)]
    pub(crate) fn user_timeout(&self) -> u32 {
        sockopt::tcp_user_timeout(&self.0).unwrap()
    }

    /// Sends a prefix of `pieces`; `None` if the send buffer is full.
    pub fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        if let [piece] = pieces {
            let flags = libc::MSG_NOSIGNAL;
            // SAFETY: `piece` is live for the call, which reads no more than its length.
            let sent = unsafe { libc::send(self.fd(), piece.as_ptr().cast(), piece.len(), flags) };
            return unless_blocked(octets(sent));
        }
        let mut message = empty_message();
        // The kernel only reads the pieces of a message to send.
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len();
        // SAFETY: `message` and the pieces it names (IoSlice is an iovec, by its documentation) are
        // live for the call; it names nothing else.
        let sent = unsafe { libc::sendmsg(self.fd(), &raw const message, libc::MSG_NOSIGNAL) };
        unless_blocked(octets(sent))
    }

    /// Receives into ordinary memory; `Some(0)` is the end of the stream, `None` that nothing waits.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        unless_blocked((&self.0).read(bytes))
    }

    /// Receives `length` octets straight into `sink` from `offset`, and the octets behind them into `behind`. Returns
    /// the number of octets received, of both together, as [`Self::receive`] does.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the range is not inside the sink.
    pub fn receive_into(
        &self,
        sink: &mut Sink,
        offset: usize,
        length: usize,
        behind: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let (start, length) = sink.raw(offset, length).ok_or(ErrorKind::InvalidInput)?;
        let mut pieces = [
            libc::iovec { iov_base: start.as_ptr().cast(), iov_len: length },
            libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: behind.len() },
        ];
        let mut message = empty_message();
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        // SAFETY: both pieces are writable and live for the call, which writes nothing after it
        // returns: `behind` is borrowed exclusively; `raw` returned a range inside the sink's memory,
        // which nobody but the holder of the sink writes or reads while the sink exists.
        let received = unsafe { libc::recvmsg(self.fd(), &raw mut message, libc::MSG_DONTWAIT) };
        unless_blocked(octets(received))
    }

    /// Returns the octets that were sent and that the peer's system has not acknowledged yet.
    pub fn unacknowledged(&self) -> io::Result<u64> {
        unacknowledged(&self.0)
    }

    /// Returns whether the peer has closed its end, and all its octets have been received. Does not block.
    pub fn is_over(&self) -> bool {
        is_over(&self.0)
    }

    /// Returns whether the peer has closed its end in order, having taken all octets that were sent to it. Does not
    /// block.
    pub fn has_left(&self) -> bool {
        has_left(&self.0)
    }

    /// Returns the largest TCP segment this connection sends.
    pub fn segment_size(&self) -> io::Result<u32> {
        let mut size = MaybeUninit::<libc::c_int>::uninit();
        let mut length = libc::socklen_t::try_from(mem::size_of_val(&size)).unwrap_or(0);
        // SAFETY: `size` has room for the `length` octets announced; both are live for the call.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                size.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        check(result)?;
        // SAFETY: getsockopt succeeded, so it wrote the integer this option is.
        let size = unsafe { size.assume_init() };
        u32::try_from(size).map_err(|_| ErrorKind::InvalidData.into())
    }

    /// Returns the user that the other end of this connection belongs to, if the kernel knows.
    pub fn peer_user(&self) -> PeerUser {
        let ends = self.0.local_addr().and_then(|local| Ok((local, self.0.peer_addr()?)));
        let Ok((local, peer)) = ends else { return PeerUser::Unknown };
        let found = sock_diag::tcp_owner(peer, local);
        // The four-tuple stays ours for as long as our end is established. So if it still is, the socket found above is
        // our peer's and not that of a later connection.
        if !self.is_established() {
            return PeerUser::Unknown;
        }
        match found {
            Ok(Found::Owned(uid)) => PeerUser::Local(uid),
            Ok(Found::Ownerless) => PeerUser::Unknown,
            // A local address without a socket: address translation, or a kernel that does not tell.
            Ok(Found::Nothing) | Err(_) => interfaces::user_at(peer.ip()),
        }
    }

    /// Returns whether the connection is open in both directions.
    fn is_established(&self) -> bool {
        state(&self.0) == Some(ESTABLISHED)
    }

    /// Closes our direction. The peer reads to the end of the stream.
    pub fn shutdown_write(&self) {
        // The only failure is a connection that is gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Closes both directions, which wakes everything that waits on this socket.
    pub fn shutdown(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Returns the descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// When the system ends a TCP connection whose peer has vanished without closing it.
///
/// Without this the system keeps an idle connection to a machine that lost its power for ever. It does not cover a peer
/// that is there and takes no octets: the owner of the connection handles that.
#[derive(Clone, Copy, Debug)]
pub struct Vanished {
    /// Milliseconds that octets may be unacknowledged, or that the peer may have no room for them; 0: the system's
    /// choice.
    user_timeout: u32,
}

impl Vanished {
    /// Has the system end connections whose peer answers no keepalive probe for about a minute. A peer that
    /// acknowledges none of the octets sent, or has no room, has the same time, but never less than twice `progress`,
    /// the time that peers have to make any progress; if that is `None`, the system's own limit holds. Callers that send much
    /// judge their peers themselves ([`Socket::outlast_full_windows`]).
    pub fn after(progress: Option<Duration>) -> Self {
        let user_timeout = progress.map_or(0, |progress| {
            let doubled = progress.saturating_mul(2).as_millis();
            // The system takes the value as a signed number.
            let doubled =
                u32::try_from(doubled).map_or(LONGEST_MILLIS, |it| it.min(LONGEST_MILLIS));
            doubled.max(UNACKNOWLEDGED_MIN_MILLIS)
        });
        Self { user_timeout }
    }

    fn end(self, socket: &impl AsFd) -> io::Result<()> {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
        Ok(sockopt::set_tcp_user_timeout(socket, self.user_timeout)?)
    }
}

/// The longest possible user timeout, in milliseconds.
const LONGEST_MILLIS: u32 = i32::MAX.cast_unsigned();
/// The silence after which the system sends a keepalive probe.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
/// The time between two probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// The number of unanswered probes after which the connection ends.
const KEEPALIVE_PROBES: u32 = 3;
/// The shortest time that octets may be unacknowledged, in milliseconds. The system applies the limit to keepalive
/// probes, too, in place of their number, so it is as long as all of them take.
const UNACKNOWLEDGED_MIN_MILLIS: u32 = 60_000;
const _: () = assert!(
    KEEPALIVE_AFTER.as_millis() + KEEPALIVE_EVERY.as_millis() * KEEPALIVE_PROBES as u128
        == UNACKNOWLEDGED_MIN_MILLIS as u128
);

/// Chooses the congestion control of a connection to `peer` that does not leave this machine; every other one keeps the
/// operator's choice.
///
/// Nothing congests a local path, and an algorithm that paces its segments all the same, as BBR does, makes the
/// receiver wait for timers.
pub fn suit_path(stream: &TcpStream, peer: IpAddr) {
    let peer = peer.to_canonical();
    let stays = |local: SocketAddr| local.ip().to_canonical() == peer;
    if !peer.is_loopback() && !stream.local_addr().is_ok_and(stays) {
        return;
    }
    // If the system refuses, the connection works, only more slowly.
    let _ = sockopt::set_tcp_congestion(stream, UNPACED);
}

/// A congestion control that every Linux has and every user may choose. It does not pace, and on a path that loses
/// nothing its window only grows.
const UNPACED: &str = "reno";

fn empty_message() -> libc::msghdr {
    // SAFETY: a msghdr is integers and pointers, for which all zeros are valid: no name, no
    // pieces, no control data.
    unsafe { mem::zeroed() }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn octets(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_notice_a_peer_that_vanishes() {
        for Socket(socket) in <[Socket; 2]>::from(pair()) {
            assert!(sockopt::socket_keepalive(&socket).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap().as_secs(), 30);
            assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap().as_secs(), 10);
            assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 3);
            assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 60_000);
        }
    }

    #[test]
    fn the_system_is_no_less_patient_than_the_time_that_peers_have() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let never = Some(Duration::MAX);
        let cases =
            [(seconds(10), 60_000), (seconds(45), 90_000), (None, 0), (never, LONGEST_MILLIS)];
        for (progress, expected) in cases {
            let (active, passive) = pair_of(Vanished::after(progress));
            for Socket(socket) in [active, passive] {
                let value = sockopt::tcp_user_timeout(&socket).unwrap();
                assert_eq!(value, expected, "{progress:?}");
            }
        }
    }

    #[test]
    fn octets_count_as_unacknowledged_until_the_peer_has_room_for_them() {
        let (sender, receiver) = pair();
        let octets = [7; 64 << 10];
        let mut sent = 0;
        while let Some(count) = sender.send(&[IoSlice::new(&octets)]).unwrap() {
            sent += count as u64;
        }
        let waiting = sender.unacknowledged().unwrap();
        assert!(waiting > 0 && waiting <= sent, "{waiting} of {sent}");
        let mut room = [0; 64 << 10];
        let mut received = 0;
        while received < sent {
            received += receiver.receive(&mut room).unwrap().map_or(0, |count| count as u64);
        }
        while sender.unacknowledged().unwrap() > 0 {
            std::thread::yield_now();
        }
    }

    fn pair() -> (Socket, Socket) {
        pair_of(Vanished::after(Some(Duration::from_secs(10))))
    }

    fn pair_of(vanished: Vanished) -> (Socket, Socket) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let active = Socket::connect(listener.local_addr().unwrap(), vanished).unwrap();
        loop {
            if let Some((passive, _)) = listener.accept(vanished).unwrap() {
                return (active, passive);
            }
        }
    }

    #[test]
    fn a_peer_on_this_machine_is_known_by_the_owner_of_its_socket() {
        let (active, passive) = pair();
        assert_eq!(passive.peer_user(), PeerUser::Local(super::super::unix::user()));
        // The end has been closed and could have been any user's: the kernel reports uid 0 for it.
        drop(active);
        assert_eq!(passive.peer_user(), PeerUser::Unknown);
    }

    #[test]
    fn neither_end_of_a_path_within_the_machine_is_paced() {
        let (active, passive) = pair();
        for socket in [active, passive] {
            assert_eq!(sockopt::tcp_congestion(&socket.0).unwrap(), UNPACED);
        }
    }
}
