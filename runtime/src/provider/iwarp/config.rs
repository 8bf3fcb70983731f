//! Configuration of an `iwarp` provider.

use std::fmt;
use std::time::Duration;

use crate::sys::uring::Unavailable;

/// Limits and choices of an `iwarp` provider.
#[derive(Clone, Debug)]
pub struct Config {
    /// The way sockets are waited for.
    pub backend: Backend,
    /// When MPA CRCs are asked for.
    pub crc: Crc,
    /// Connect by revision 2 of MPA, which negotiates Reads. If false, connect by revision 1, for peers that know no
    /// other. A peer that connects to us chooses its own revision.
    pub enhanced: bool,
    /// Offer the peer-to-peer model when connecting, so that the passive end may send first, and at once: without it,
    /// that end has to wait for our first message, or for a keepalive (`iwarp/opening.rs`).
    ///
    /// Leave it off for Linux siw, which is not robust against a connection that ends before it has read the indication
    /// that opens the stream. Requesters send first anyway.
    pub ready_to_receive: bool,
    /// Connections at once, including those being set up and those closing; at most 65,536.
    pub connections_max: usize,
    /// Work requests that one send queue holds.
    pub send_queue_max: usize,
    /// Receives that the shared queue holds.
    pub receive_queue_max: usize,
    /// Registrations at once, including the sinks of outstanding Reads.
    pub registrations_max: usize,
    /// RDMA Reads that a connection may have outstanding.
    pub ord_max: u32,
    /// RDMA Reads that a connection may serve at once.
    pub ird_max: u32,
    /// Receive buffers shared by all connections, a power of two; io_uring only.
    pub receive_buffers: u16,
    /// Octets of each receive buffer, and of the buffer that hot connections are read into.
    pub receive_buffer_bytes: u32,
    /// The time a peer has for its part of connection setup.
    pub handshake_timeout: Duration,
    /// The time that closing may take to send posted requests, and then to read until the peer has closed.
    pub close_timeout: Duration,
    /// The time a peer may leave an RDMA Read unanswered, output untaken or a message incomplete, without any progress,
    /// before its connection ends; `None`: no limit.
    ///
    /// The system ends the connection of a peer that acknowledges nothing after twice this time, and after a minute at
    /// the earliest; with `None`, after the system's own time for all connections.
    pub progress_timeout: Option<Duration>,
    /// Makes handles and offsets repeatable, for tests. They are secrets: leave it `None` elsewhere.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            crc: Crc::Connecting,
            enhanced: true,
            ready_to_receive: false,
            connections_max: 16_384,
            send_queue_max: 1024,
            receive_queue_max: 1 << 18,
            registrations_max: 65_536,
            ord_max: 128,
            ird_max: 128,
            receive_buffers: 16,
            receive_buffer_bytes: 128 << 10,
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
            progress_timeout: Some(Duration::from_secs(10)),
            seed: None,
        }
    }
}

/// The way a provider waits for sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or plain sockets where it is not available.
    #[default]
    Auto,
    /// io_uring; without it, no provider.
    Uring,
    /// Plain non-blocking sockets and epoll.
    Sockets,
}

/// When we ask for MPA CRCs. CRCs are in force if either end asks (RFC 5044 section 7.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// We ask only if the peer asks.
    IfAsked,
    /// We ask when we connect. A peer that connects to us decides itself.
    #[default]
    Connecting,
    /// We always ask.
    Always,
}

/// The backend in use, and the reason if it is not io_uring.
#[derive(Debug)]
pub enum BackendReport {
    /// io_uring.
    Uring,
    /// Plain sockets, because the configuration asks for them.
    Sockets,
    /// Plain sockets, because io_uring is not available.
    NoUring(Unavailable),
}

impl fmt::Display for BackendReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring => f.write_str("io_uring"),
            Self::Sockets => f.write_str("plain sockets"),
            Self::NoUring(why) => write!(f, "plain sockets ({why})"),
        }
    }
}
