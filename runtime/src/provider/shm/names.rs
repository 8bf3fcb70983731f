//! Names of sockets: those with which `epoll` tells of them, and those that stand for ports.

use haulage_proto::verbs::QpNum;

/// Returns the name of a connection with `epoll`.
pub(super) fn token(qp: QpNum) -> u64 {
    u64::from(qp.generation()) << 16 | qp.slot() as u64
}

/// The waker's name with `epoll`.
pub(super) const WAKER: u64 = u64::MAX;
/// The name of the first listener with `epoll`; the others follow.
pub(super) const LISTENERS: u64 = 1 << 32;
/// Returns the name of the socket that stands for a port.
pub(super) fn name(port: u16) -> Vec<u8> {
    format!("haulage-shm-{port}").into_bytes()
}

/// Ports to choose from: those no service is assigned.
pub(super) const PORT_FIRST: u16 = 49152;
pub(super) const PORTS: u16 = 16384;
