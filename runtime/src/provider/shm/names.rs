//! Names of sockets: their `epoll` tokens, and the names that stand for ports.

use haulage_proto::verbs::QpNum;

/// Returns the `epoll` token of a connection.
pub(super) fn token(qp: QpNum) -> u64 {
    u64::from(qp.generation()) << 16 | qp.slot() as u64
}

/// The `epoll` token of the waker.
pub(super) const WAKER: u64 = u64::MAX;
/// The `epoll` token of the first listener; the others follow.
pub(super) const LISTENERS: u64 = 1 << 32;
/// Returns the name of the socket that stands for a port.
pub(super) fn name(port: u16) -> Vec<u8> {
    format!("haulage-shm-{port}").into_bytes()
}

/// The first port to choose from, and how many follow: no service is assigned to them.
pub(super) const PORT_FIRST: u16 = 49152;
pub(super) const PORTS: u16 = 16384;
