//! What an `iwarp` provider is to be like.

use std::fmt;
use std::time::Duration;

use crate::sys::uring::Unavailable;

/// Limits and choices of an `iwarp` provider.
#[derive(Clone, Debug)]
pub struct Config {
    /// How it waits for sockets.
    pub backend: Backend,
    /// When MPA CRCs are asked for.
    pub crc: Crc,
    /// Connect by revision 2 of MPA, which negotiates Reads. Without it revision 1 is used, for peers
    /// that know no other; what connects to us decides itself.
    pub enhanced: bool,
    /// Offer the peer-to-peer model when connecting, so that the passive end may send first, and at
    /// once: without it, that has to wait for our first message, or for a nudge.
    ///
    /// Not to Linux siw, which is not robust against a connection that ends before it has read the
    /// indication that opens the stream. Requesters send first anyway.
    pub ready_to_receive: bool,
    /// Connections at once, those being set up and those closing included; at most 65,536.
    pub connections_max: usize,
    /// Work requests one send queue holds.
    pub send_queue_max: usize,
    /// Receives the shared queue holds.
    pub receive_queue_max: usize,
    /// Registrations at once, the sinks of outstanding Reads included.
    pub registrations_max: usize,
    /// RDMA Reads a connection may have outstanding.
    pub ord_max: u32,
    /// RDMA Reads a connection may serve at once.
    pub ird_max: u32,
    /// Receive buffers shared by all connections, a power of two; io_uring only.
    pub receive_buffers: u16,
    /// Octets of each, and of the one a connection is read into directly.
    pub receive_buffer_bytes: u32,
    /// How long a peer may take for its part of connection setup.
    pub handshake_timeout: Duration,
    /// How long closing may take to send what was posted, and then to read what the peer still sends.
    pub close_timeout: Duration,
    /// How long a peer may leave an RDMA Read unanswered, output untaken or a message incomplete without
    /// any progress before its connection ends; `None`: for ever.
    ///
    /// The system ends the connection of a peer that acknowledges nothing after twice as long, and after a
    /// minute at the earliest; with `None` after the time that it has for all connections.
    pub progress_timeout: Option<Duration>,
    /// Makes handles and offsets repeat, for tests. They are secrets: leave it `None` elsewhere.
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

/// How a provider waits for sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or plain sockets where it is not to be had.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// Plain non-blocking sockets and epoll.
    Sockets,
}

/// When we ask for MPA CRCs. They are in force if either end asks (RFC 5044 section 7.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// Never of our own accord.
    IfAsked,
    /// When we connect; a peer that connects to us decides itself.
    #[default]
    Connecting,
    /// Always.
    Always,
}

/// The backend in use, and why it is not the better one.
#[derive(Debug)]
pub enum BackendReport {
    /// io_uring.
    Uring,
    /// Plain sockets, because they were asked for.
    Sockets,
    /// Plain sockets, because io_uring is not to be had.
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
