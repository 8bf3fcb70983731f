//! What a simulated fabric is like.

use std::time::Duration;

use crate::provider::Promises;

/// What a fabric is like. Times are virtual.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// Decides every delay and every handle.
    pub seed: u64,
    /// The shortest time a message travels, in nanoseconds.
    pub latency_min_ns: u64,
    /// The longest time a message travels, in nanoseconds.
    pub latency_max_ns: u64,
    /// Of a hundred Sends and Writes, how many complete before they arrive, as on a socket; the
    /// others complete after.
    pub eager_percent: u8,
    /// How long a connection may take to be set up.
    pub handshake_timeout: Duration,
    /// How long a `disconnect` may take to send what was posted.
    pub close_timeout: Duration,
    /// Connections a node may have at once.
    pub queue_pairs_max: u16,
    /// Work requests one send queue holds.
    pub send_queue_max: usize,
    /// Receives a node holds.
    pub receive_queue_max: usize,
    /// Receives one queue pair may have reserved, if each has a receive queue of its own.
    pub receives_each: Option<usize>,
    /// Registrations a node may have at once.
    pub registrations_max: usize,
    /// RDMA Reads a connection may have outstanding as Requester.
    pub ord_max: u32,
    /// RDMA Reads a connection may serve at once.
    pub ird_max: u32,
    /// Octets of each Write that are placed at most. Of longer ones the rest is lost, and the Write is answered
    /// as if it were not: as by a peer that says in a Reply that it wrote more than it did.
    pub placed_max: usize,
    /// What is promised. Without `remote_invalidation`, what a peer tries to invalidate costs it the
    /// connection, and without `sends_wait` a Send that finds no Receive does; the rest is kept whatever is
    /// said here.
    pub promises: Promises,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            latency_min_ns: 1_000,
            latency_max_ns: 20_000,
            eager_percent: 25,
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            queue_pairs_max: 64,
            send_queue_max: 256,
            receive_queue_max: 1024,
            receives_each: None,
            registrations_max: 1024,
            ord_max: 16,
            ird_max: 16,
            placed_max: usize::MAX,
            promises: Promises::ALL,
        }
    }
}
