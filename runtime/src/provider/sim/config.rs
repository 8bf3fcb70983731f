//! Configuration of a simulated fabric.

use std::time::Duration;

use crate::provider::Promises;

/// Configuration of a fabric. Times are virtual.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// Decides every delay and every handle.
    pub seed: u64,
    /// The shortest time a message travels, in nanoseconds.
    pub latency_min_ns: u64,
    /// The longest time a message travels, in nanoseconds.
    pub latency_max_ns: u64,
    /// The percentage of Sends and Writes that complete before they arrive, as on a socket; the others complete after.
    pub eager_percent: u8,
    /// The percentage of short messages that are copied as they are sent; the others are taken.
    pub copied_percent: u8,
    /// The time that connection setup may take.
    pub handshake_timeout: Duration,
    /// The time that a `disconnect` may take to send posted requests.
    pub close_timeout: Duration,
    /// Connections that a node may have at once.
    pub queue_pairs_max: u16,
    /// Work requests that one send queue holds.
    pub send_queue_max: usize,
    /// Receives that a node holds.
    pub receive_queue_max: usize,
    /// Receives that one queue pair may have reserved, if each has a receive queue of its own.
    pub receives_each: Option<usize>,
    /// Registrations that a node may have at once.
    pub registrations_max: usize,
    /// RDMA Reads that a connection may have outstanding as Requester.
    pub ord_max: u32,
    /// RDMA Reads that a connection may serve at once.
    pub ird_max: u32,
    /// The most octets of each Write that are placed. The rest is lost, and the Write succeeds all the same: like that
    /// of a peer whose Reply claims more octets than it wrote.
    pub placed_max: usize,
    /// The promises of the providers. Without `remote_invalidation`, a peer that invalidates a handle loses the
    /// connection; without `sends_wait`, a peer whose Send finds no Receive does. The other promises are kept in any
    /// case.
    pub promises: Promises,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            latency_min_ns: 1_000,
            latency_max_ns: 20_000,
            eager_percent: 25,
            copied_percent: 100,
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
