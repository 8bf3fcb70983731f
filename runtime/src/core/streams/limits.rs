//! The limits of connections over TCP, and what is counted of them.

use std::time::Duration;

use crate::counts::counts;
use crate::provider::Accepts;

/// The limits of a port over TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpLimits {
    /// Maximum connections.
    pub connections_max: u32,
    /// Maximum length of a record, in octets.
    pub record_max: usize,
    /// Memory for the records of all ports that are longer than 16 KiB or come in fragments, in octets, of which networks have
    /// shares. Twice the longest record at least.
    pub records_octets: usize,
    /// How long a connection may be silent between two records; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long each 64 KiB of a record or of a Reply, and the rest, may take.
    pub progress_timeout: Duration,
}

impl TcpLimits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        connections_max: 256,
        // An item of 1 MiB with its headers.
        record_max: (1 << 20) + 4096,
        records_octets: 64 << 20,
        idle_timeout: Some(Duration::from_secs(360)),
        progress_timeout: Duration::from_secs(30),
    };
}

counts! {
    /// Counts of a core's connections over TCP.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TcpCounters {
        /// Connections that were accepted.
        pub accepted: u64,
        /// Connections that were turned away for want of room.
        pub rejected: u64,
        /// Connections that gave way to others.
        pub replaced: u64,
        /// Connections closed because they were silent for too long, or slow.
        pub late: u64,
        /// Calls received.
        pub calls: u64,
        /// Octets received.
        pub received: u64,
        /// Octets sent.
        pub sent: u64,
        /// System calls.
        pub syscalls: u64,
        /// Accepts that failed.
        pub accepts: Accepts,
    }
}

/// Whether a peer may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The service admits it.
    Admitted,
    /// The service does not: it has a few Calls of programs that are open to all.
    Stranger,
}

/// Maximum connections of addresses that may not connect.
pub(in crate::core) const STRANGERS_MAX: u32 = 16;
/// Maximum Calls on a connection of an address that may not connect: a client makes a NULL Call, then MNT.
pub(in crate::core) const STRANGER_CALLS_MAX: u32 = 4;
/// Calls of one connection in service, at most.
pub(in crate::core) const CALLS_EACH_MAX: u32 = 128;
