//! TCP sockets that never block.
//!
//! What `std::net` offers is used as it is; `unsafe` is only what it lacks: connecting without
//! blocking, sending without SIGPIPE, receiving straight into registered memory, the segment size, the
//! choice of congestion control, noticing peers that vanished, octets that a peer has yet to take.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use haulage_mr_pool::Sink;

use super::sock_diag::{self, ESTABLISHED, Found};
use super::unix::is_readable;
use crate::provider::PeerUser;

/// What a call that would have blocked returns instead.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

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

    /// Accepts a connection, if one waits. The system ends it as [`Vanished`] says.
    pub fn accept(&self, vanished: Vanished) -> io::Result<Option<(Socket, SocketAddr)>> {
        let Some((stream, peer)) = unless_blocked(self.0.accept())? else { return Ok(None) };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        vanished.end(&stream)?;
        let socket = Socket(stream);
        socket.suit_path_to(peer.ip());
        Ok(Some((socket, peer)))
    }

    /// Returns whether a connection waits.
    pub fn is_waited_for(&self) -> bool {
        is_readable(self.fd())
    }

    /// Returns the address really bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns the descriptor, for waiting.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A connected, or connecting, socket.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Starts connecting; the socket becomes writable when the outcome is known. The system ends the
    /// connection as [`Vanished`] says.
    pub fn connect(to: SocketAddr, vanished: Vanished) -> io::Result<Self> {
        let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes three integers and touches no memory of ours.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: `fd` was just returned by socket and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (address, length) = to_system(to);
        // SAFETY: `address` is live for the call and holds at least `length` octets, a sockaddr of
        // the family it names.
        let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
        match check(result) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => return Err(e),
            _ => {}
        }
        let stream = TcpStream::from(fd);
        stream.set_nodelay(true)?;
        vanished.end(&stream)?;
        let socket = Self(stream);
        socket.suit_path_to(to.ip());
        Ok(socket)
    }

    /// Returns how connecting ended, once the socket is writable.
    pub fn connected(&self) -> io::Result<()> {
        self.0.take_error()?.map_or(Ok(()), Err)
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
        // The kernel only reads what a message to send names.
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

    /// Receives `length` octets straight into `sink` from `offset`, and what follows them into
    /// `behind`. Returns the octets received, of both together, as [`Self::receive`] does.
    ///
    /// Fails with `InvalidInput` if the range is not inside the sink.
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
        let mut octets: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one integer, for which `octets` has room; it is live for the call.
        let result = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut octets) };
        check(result)?;
        Ok(u64::try_from(octets).unwrap_or(0))
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

    /// Returns which user the other end of this connection belongs to, as the kernel knows.
    pub fn peer_user(&self) -> PeerUser {
        let ends = self.0.local_addr().and_then(|local| Ok((local, self.0.peer_addr()?)));
        let Ok((local, peer)) = ends else { return PeerUser::Unknown };
        let found = sock_diag::tcp_owner(peer, local);
        // The four-tuple stays ours for as long as our end is established, and so a socket found by it
        // before this look at the state is our peer's and not that of a later connection.
        if !self.is_established() {
            return PeerUser::Unknown;
        }
        match found {
            Ok(Found::Owned(uid)) => PeerUser::Local(uid),
            Ok(Found::Ownerless) => PeerUser::Unknown,
            // A local address without a socket: address translation, or a kernel that does not tell.
            Ok(Found::Nothing) | Err(_) => PeerUser::by_address(peer.ip()),
        }
    }

    /// Returns whether the connection is open in both directions.
    fn is_established(&self) -> bool {
        let mut state = MaybeUninit::<u8>::uninit();
        let mut length = 1;
        // The state is the first octet of a tcp_info, of which the kernel writes as much as there is room for.
        // SAFETY: `state` has room for the one octet announced; both are live for the call.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                state.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        // SAFETY: getsockopt succeeded and wrote one octet.
        check(result).is_ok() && length == 1 && unsafe { state.assume_init() } == ESTABLISHED
    }

    /// Picks the congestion control of a path that does not leave this machine; leaves the
    /// operator's choice to every other.
    ///
    /// Nothing congests such a path, and what paces its segments all the same, as BBR does, makes the
    /// receiver wait for timers.
    fn suit_path_to(&self, peer: IpAddr) {
        let peer = peer.to_canonical();
        let stays = |local: SocketAddr| local.ip().to_canonical() == peer;
        if !peer.is_loopback() && !self.0.local_addr().is_ok_and(stays) {
            return;
        }
        let length = libc::socklen_t::try_from(UNPACED.len()).unwrap_or(0);
        // What the system then refuses works as it is, only slower.
        // SAFETY: the name is live for the call, which reads no more than `length` octets of it.
        let _ = unsafe {
            libc::setsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                UNPACED.as_ptr().cast(),
                length,
            )
        };
    }

    /// Says that we send no more. The peer reads to the end of what was sent.
    pub fn shutdown_write(&self) {
        // The only failure is a connection that is gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Ends both directions, for whoever else waits on this socket.
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
/// Without this the system keeps an idle connection to a machine that lost its power for ever. A peer that
/// is there and takes no octets is another matter: it is up to whoever has the connection.
#[derive(Clone, Copy, Debug)]
pub struct Vanished {
    /// Milliseconds that octets may be unacknowledged, or that the peer may have no room for them; 0: as
    /// many as the system chooses.
    user_timeout: libc::c_int,
}

impl Vanished {
    /// Has the system end connections whose peer answers no keepalive probe for about a minute. A peer that
    /// acknowledges nothing that was sent, or has no room, has as long, but never less than twice `progress`,
    /// the time that peers have to make any progress; if that is `None`, the system's own limit holds.
    pub fn after(progress: Option<Duration>) -> Self {
        let user_timeout = progress.map_or(0, |progress| {
            let doubled = progress.saturating_mul(2).as_millis();
            let doubled = libc::c_int::try_from(doubled).unwrap_or(libc::c_int::MAX);
            doubled.max(UNACKNOWLEDGED_MIN_MILLIS)
        });
        Self { user_timeout }
    }

    fn end(self, socket: &impl AsFd) -> io::Result<()> {
        let fd = socket.as_fd().as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_AFTER_SECONDS)?;
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_EVERY_SECONDS)?;
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES)?;
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, self.user_timeout)
    }
}

/// Seconds of silence after which the system asks whether the peer is still there.
const KEEPALIVE_AFTER_SECONDS: libc::c_int = 30;
/// Seconds between two such questions.
const KEEPALIVE_EVERY_SECONDS: libc::c_int = 10;
/// Questions without an answer after which the connection ends.
const KEEPALIVE_PROBES: libc::c_int = 3;
/// The least milliseconds that octets may be on their way without being acknowledged. The system applies the
/// limit to keepalive probes, too, in place of their number, so it is as long as all of them take.
const UNACKNOWLEDGED_MIN_MILLIS: libc::c_int =
    1000 * (KEEPALIVE_AFTER_SECONDS + KEEPALIVE_EVERY_SECONDS * KEEPALIVE_PROBES);

fn set_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(mem::size_of_val(&value)).unwrap_or(0);
    // SAFETY: `value` is live for the call, which reads no more than its `length` octets.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
    check(result).map(drop)
}

/// The congestion control every Linux has and lets everyone choose. It does not pace, and on a path
/// that loses nothing its window only grows.
const UNPACED: &[u8] = b"reno";

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

/// Returns `address` as the system has it, and how many octets of it count.
fn to_system(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: a sockaddr_in6 is integers, for which all zeros are valid.
    let mut room: libc::sockaddr_in6 = unsafe { mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let short = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: an IPv4 address is shorter than an IPv6 one, aligned no more strictly, and
            // `room` is ours.
            unsafe { (&raw mut room).cast::<libc::sockaddr_in>().write(short) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            room.sin6_family = family(libc::AF_INET6);
            room.sin6_port = v6.port().to_be();
            room.sin6_flowinfo = v6.flowinfo();
            room.sin6_addr.s6_addr = v6.ip().octets();
            room.sin6_scope_id = v6.scope_id();
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (room, libc::socklen_t::try_from(length).unwrap_or(0))
}

fn family(family: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(socket: &Socket, level: libc::c_int, name: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = -1;
        let mut length = libc::socklen_t::try_from(mem::size_of_val(&value)).unwrap();
        let room = (&raw mut value).cast();
        // SAFETY: `value` has room for the `length` octets announced; both are live for the call.
        let result = unsafe { libc::getsockopt(socket.fd(), level, name, room, &raw mut length) };
        check(result).unwrap();
        value
    }

    #[test]
    fn both_ends_notice_a_peer_that_vanishes() {
        for socket in <[Socket; 2]>::from(pair()) {
            assert_eq!(option(&socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
            for (name, value) in [
                (libc::TCP_KEEPIDLE, 30),
                (libc::TCP_KEEPINTVL, 10),
                (libc::TCP_KEEPCNT, 3),
                (libc::TCP_USER_TIMEOUT, 60_000),
            ] {
                assert_eq!(option(&socket, libc::IPPROTO_TCP, name), value, "{name}");
            }
        }
    }

    #[test]
    fn the_system_is_no_less_patient_than_the_time_that_peers_have() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let never = Some(Duration::MAX);
        let cases =
            [(seconds(10), 60_000), (seconds(45), 90_000), (None, 0), (never, libc::c_int::MAX)];
        for (progress, expected) in cases {
            let (active, passive) = pair_of(Vanished::after(progress));
            for socket in [active, passive] {
                let value = option(&socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
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

    fn congestion_control(socket: &Socket) -> Vec<u8> {
        let mut name = [0_u8; 16];
        let mut length = libc::socklen_t::try_from(name.len()).unwrap();
        // SAFETY: `name` has room for the `length` octets announced; both are live for the call.
        let result = unsafe {
            libc::getsockopt(
                socket.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        check(result).unwrap();
        name.into_iter().take_while(|octet| *octet != 0).collect()
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
        // Whoever has closed its end could have been anybody: the kernel says uid 0 of it.
        drop(active);
        assert_eq!(passive.peer_user(), PeerUser::Unknown);
    }

    #[test]
    fn neither_end_of_a_path_within_the_machine_is_paced() {
        let (active, passive) = pair();
        assert_eq!(congestion_control(&active), UNPACED);
        assert_eq!(congestion_control(&passive), UNPACED);
    }
}
