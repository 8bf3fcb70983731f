//! Configuration of a `shm` provider.

use std::time::Duration;

/// Limits and choices of a `shm` provider.
#[derive(Clone, Debug)]
pub struct Config {
    /// The peers that the pool's region is passed to.
    pub expose: Expose,
    /// Connections at once, including those being set up and those closing; at most 65,536.
    pub connections_max: usize,
    /// Work requests that one send queue holds while they cannot be carried out.
    pub send_queue_max: usize,
    /// Receives that the shared queue holds.
    pub receive_queue_max: usize,
    /// Registrations at once; at most 65,536. Each connection's table has room for all of them.
    pub registrations_max: u32,
    /// Octets of the ring we send on, for each connection: a power of two from 4 KiB to 8 MiB. Only the part in use
    /// takes memory. A ring that is longer than the caches of one core is faster: see
    /// docs/adr/0039-rings-are-longer-than-a-cores-cache.md. New connections beyond 64 have rings of 64 KiB at most, so
    /// that many take little.
    pub ring_bytes: u32,
    /// RDMA Reads that a connection may have outstanding. They are carried out one by one, so any number above zero has
    /// the effect of one.
    pub ord_max: u32,
    /// RDMA Reads that a connection may serve at once.
    pub ird_max: u32,
    /// Octets of the longest region that a peer can pass. The region is as long as the pool of the peer: a
    /// client with a larger pool is refused.
    pub region_bytes_max: u64,
    /// Octets that the regions of all peers have together, of which those of one process have at most half.
    /// Further peers that pass a region are refused until others leave. Regions take addresses of the process,
    /// not memory.
    pub regions_bytes_max: u64,
    /// The time a peer has for its part of connection setup.
    pub handshake_timeout: Duration,
    /// The time that closing may take to send posted requests.
    pub close_timeout: Duration,
    /// The time a peer may leave output untaken, or a message incomplete, without any progress before its connection
    /// ends; `None`: no limit.
    pub progress_timeout: Option<Duration>,
    /// Makes handles and offsets repeatable, for tests. They are secrets: leave it `None` elsewhere.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            expose: Expose::Connecting,
            connections_max: 16_384,
            send_queue_max: 1024,
            receive_queue_max: 1 << 18,
            registrations_max: 4096,
            ring_bytes: 2 << 20,
            ord_max: 128,
            ird_max: 128,
            region_bytes_max: 64 << 30,
            regions_bytes_max: 4 << 40,
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
            progress_timeout: Some(Duration::from_secs(10)),
            seed: None,
        }
    }
}

/// The peers that the region of our pool is passed to.
///
/// A peer that has the region can read and write all of it at any moment, whatever is registered:
/// registrations keep honest peers apart, and the system keeps out other users. So the bytes of every lease of
/// that pool are as trustworthy as the least honest of these peers: they can change while they are borrowed,
/// which Rust does not allow for a `&[u8]`. Pages that such a peer takes away end this process by SIGBUS.
/// Pass the region only to peers that are trusted like a part of the program; [`Pool::memfd`] says more.
///
/// [`Pool::memfd`]: haulage_mr_pool::Pool::memfd
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expose {
    /// The peers that we connect to: Requesters expose memory, Responders need not. A connection that was made to us
    /// has no handles to give.
    #[default]
    Connecting,
    /// Peers that connect to us, too: reverse Calls can move data then.
    Always,
}
