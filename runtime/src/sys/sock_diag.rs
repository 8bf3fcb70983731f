//! The owner of a TCP socket of this machine, as the kernel's `sock_diag` interface tells it.
//!
//! The lookup names one socket by its four-tuple and does not list others. Two answers need care. A socket
//! that its process has closed, but that still sends, has no owner any more, and the kernel then reports
//! uid 0. And where no connection matches, the kernel reports a listener on the same port. Neither is an
//! owner here: only an established socket with an inode has one.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Result of looking up one end of a TCP connection on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An established socket of this user. Sockets of the kernel itself belong to uid 0.
    Owned(u32),
    /// A socket that is not established, or that no process holds any more.
    Ownerless,
    /// No such socket on this machine.
    Nothing,
}

/// Looks up the TCP socket with the address `local` that is connected to `remote`.
///
/// # Errors
/// The kernel's, such as a kernel without `sock_diag`, or a process that may not ask.
pub fn tcp_owner(local: SocketAddr, remote: SocketAddr) -> io::Result<Found> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes three integers and touches no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just returned by socket and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let question = question(local, remote)?;
    // SAFETY: the question is live for the call, which reads no more than its length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), question.as_ptr().cast(), question.len(), 0) };
    if usize::try_from(sent).ok() != Some(question.len()) {
        return Err(io::Error::last_os_error());
    }
    // The kernel answers within the sending call.
    let mut answer = [0_u8; ANSWER_MAX];
    // SAFETY: `answer` is writable and live for the call, which writes no more than its length.
    let length = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let answer = answer.get(..length).unwrap_or_default();
    parse(answer, local.port(), remote.port())
}

/// Encodes the request for one socket: a `nlmsghdr` and an `inet_diag_req_v2`.
fn question(local: SocketAddr, remote: SocketAddr) -> io::Result<Vec<u8>> {
    // A socket for both families has an IPv4 peer in IPv6 form; the kernel finds either by IPv4.
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = match (local_ip, remote_ip) {
        (IpAddr::V4(_), IpAddr::V4(_)) => libc::AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => libc::AF_INET6,
        _ => return Err(ErrorKind::InvalidInput.into()),
    };
    let mut body = Vec::with_capacity(REQUEST_LEN);
    let byte = |number: libc::c_int| u8::try_from(number).unwrap_or_default();
    body.extend([byte(family), byte(libc::IPPROTO_TCP), 0, 0]);
    // Sockets in every state.
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(remote.port().to_be_bytes());
    body.extend(address(local_ip));
    body.extend(address(remote_ip));
    body.extend(interface(local, remote).to_ne_bytes());
    body.extend(NO_COOKIE);
    let length = u32::try_from(HEADER_LEN + body.len()).unwrap_or_default();
    let flags = u16::try_from(libc::NLM_F_REQUEST).unwrap_or_default();
    let mut message = Vec::with_capacity(HEADER_LEN + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port: only one request is sent on the socket, and the kernel assigns the port.
    message.extend([0; 8]);
    message.extend(body);
    Ok(message)
}

/// Returns the interface of a link-local IPv6 address, which its socket is bound to, or zero.
fn interface(local: SocketAddr, remote: SocketAddr) -> u32 {
    let scope = |at| match at {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    scope(local).max(scope(remote))
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            octets
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Decodes an answer: a `nlmsghdr`, and an `inet_diag_msg` or an error number.
fn parse(answer: &[u8], local_port: u16, remote_port: u16) -> io::Result<Found> {
    let malformed = || io::Error::from(ErrorKind::InvalidData);
    let (kind, body) = (half(answer, 4), answer.get(HEADER_LEN..));
    let (kind, body) = kind.zip(body).ok_or_else(malformed)?;
    if kind == NLMSG_ERROR {
        let number = word(body, 0).ok_or_else(malformed)?.cast_signed();
        return match number.checked_neg() {
            Some(libc::ENOENT) => Ok(Found::Nothing),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Err(malformed()),
        };
    }
    if kind != SOCK_DIAG_BY_FAMILY {
        return Err(malformed());
    }
    let port = |at: usize| Some(u16::from_be_bytes(*body.get(at..)?.first_chunk()?));
    let ports = port(PORTS_AT).zip(port(PORTS_AT + 2)).ok_or_else(malformed)?;
    let state = *body.get(STATE_AT).ok_or_else(malformed)?;
    let (uid, inode) = word(body, UID_AT).zip(word(body, INODE_AT)).ok_or_else(malformed)?;
    let is_owned = state == ESTABLISHED && inode != 0 && ports == (local_port, remote_port);
    Ok(if is_owned { Found::Owned(uid) } else { Found::Ownerless })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Octets of a `nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Octets of an `inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;
/// Octets of an answer that are read; those behind an `inet_diag_msg` are not needed.
const ANSWER_MAX: usize = 1024;
/// The message type of a request and of its answer.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The message type of an error.
const NLMSG_ERROR: u16 = 2;
/// Matches any socket.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Offsets in an `inet_diag_msg`.
const STATE_AT: usize = 1;
const PORTS_AT: usize = 4;
const UID_AT: usize = 64;
const INODE_AT: usize = 68;
/// The state of a connection that is open in both directions.
pub(super) const ESTABLISHED: u8 = 1;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sys::unix;

    #[test]
    fn both_ends_of_a_loopback_connection_belong_to_this_user() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (passive, peer) = listener.accept().unwrap();
            let ours = passive.local_addr().unwrap();
            assert_eq!(tcp_owner(peer, ours).unwrap(), Found::Owned(unix::user()));
            assert_eq!(tcp_owner(ours, peer).unwrap(), Found::Owned(unix::user()));
            drop((active, passive));
        }
    }

    #[test]
    fn ipv4_in_ipv6_form_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mapped = |at: SocketAddr| {
            let IpAddr::V4(v4) = at.ip() else { panic!("{at}") };
            SocketAddr::new(v4.to_ipv6_mapped().into(), at.port())
        };
        let (own, peer) = (active.local_addr().unwrap(), active.peer_addr().unwrap());
        assert_eq!(tcp_owner(mapped(own), mapped(peer)).unwrap(), Found::Owned(unix::user()));
    }

    #[test]
    fn a_socket_that_was_closed_or_only_listens_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (passive, peer) = listener.accept().unwrap();
        let ours = passive.local_addr().unwrap();
        // Closed by its process, the socket waits for our end to close: the kernel still has it and reports uid 0.
        drop(active);
        assert_eq!(tcp_owner(peer, ours).unwrap(), Found::Ownerless);
        // Nothing is connected from the listener's port to this one, but the listener is there.
        let elsewhere = SocketAddr::new(ours.ip(), 9);
        assert_eq!(tcp_owner(ours, elsewhere).unwrap(), Found::Ownerless);
    }

    #[test]
    fn a_socket_that_is_not_there_is_not_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let nobody = "203.0.113.9:9".parse().unwrap();
        assert_eq!(tcp_owner(at, nobody).unwrap(), Found::Nothing);
    }

    #[test]
    fn answers_of_any_length_are_read_without_a_panic() {
        let mut answer = vec![0; HEADER_LEN + 72];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[HEADER_LEN + STATE_AT] = ESTABLISHED;
        answer[HEADER_LEN + UID_AT] = 7;
        answer[HEADER_LEN + INODE_AT] = 1;
        for length in 0..answer.len() {
            assert!(parse(&answer[..length], 0, 0).is_err(), "{length}");
        }
        let uid = u32::from_ne_bytes([7, 0, 0, 0]);
        assert_eq!(parse(&answer, 0, 0).unwrap(), Found::Owned(uid));
        assert_eq!(parse(&answer, 0, 1).unwrap(), Found::Ownerless, "of another connection");
        answer[HEADER_LEN + INODE_AT] = 0;
        assert_eq!(parse(&answer, 0, 0).unwrap(), Found::Ownerless, "closed by its process");
    }
}
