//! Configuration of a `verbs` provider, and the reasons that there is none.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use haulage_mr_pool::Strategy;
use thiserror::Error;

use crate::sys::ibverbs::Refused;
use crate::sys::process;

/// Limits and choices of a `verbs` provider. A device that has less lowers them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device, by the name that `rdma link` shows; `None`: the device of `source`, or one on `node`, or the first
    /// whose port is active.
    pub device: Option<String>,
    /// The local address of connections, which determines device, port and GID; `None`: the system's routes decide.
    pub source: Option<IpAddr>,
    /// The NUMA node to prefer devices on; `None`: the node of the CPUs that the thread may run on.
    pub node: Option<usize>,
    /// The way memory is opened to peers: [`Strategy::Window`], [`Strategy::PerCall`], or, only if asked for,
    /// [`Strategy::Persistent`]; `None`: the first of these that the device has.
    pub registration: Option<Strategy>,
    /// Connections at once, including those being set up and those closing; at most 65,536.
    pub connections_max: usize,
    /// Work requests that one send queue holds.
    pub send_queue_max: usize,
    /// Receives in all.
    pub receive_queue_max: usize,
    /// Whether queue pairs share a receive queue.
    pub receive_queues: ReceiveQueues,
    /// Receives that one queue pair may have reserved, if each has a receive queue of its own: the highest credit that
    /// it is ever granted, and one.
    pub receives_each_max: usize,
    /// Registrations at once: with [`Strategy::Persistent`], leases that are exposed.
    pub registrations_max: usize,
    /// RDMA Reads that a connection may have outstanding.
    pub ord_max: u32,
    /// RDMA Reads that a connection may serve at once.
    pub ird_max: u32,
    /// Octets sent from within the send queue, so that the device need not fetch them.
    pub copied_max: u32,
    /// Post by `ibv_wr_*` where the device's library has it; otherwise by `ibv_post_send`, as on all
    /// devices.
    pub extended_posting: bool,
    /// The number of times that an unacknowledged message is sent again, at most 7; the connection manager sets the
    /// time between them.
    pub retries: u8,
    /// The number of times that a Send is sent again if the peer had no Receive for it, at most 6; 7 means no limit.
    /// Peers within their credits need none, so this bounds how long a peer that exceeds its credits, or that stalls,
    /// blocks a send queue.
    pub retries_no_receive: u8,
    /// The time between two of these, in the encoding of verbs: 14 is 1.28 ms.
    pub no_receive_timer: u8,
    /// The time a peer has for its part of connection setup.
    pub handshake_timeout: Duration,
    /// The time that closing may take to send posted requests.
    pub close_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: None,
            source: None,
            node: None,
            registration: None,
            connections_max: 256,
            send_queue_max: 1024,
            receive_queue_max: 4096,
            receive_queues: ReceiveQueues::Any,
            receives_each_max: 256,
            registrations_max: 1024,
            ord_max: 16,
            ird_max: 16,
            copied_max: 256,
            extended_posting: true,
            retries: 7,
            retries_no_receive: 6,
            no_receive_timer: 14,
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
        }
    }
}

/// The receive queues that queue pairs use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveQueues {
    /// One that is shared, if the device has shared ones.
    #[default]
    Any,
    /// One that is shared.
    Shared,
    /// One for each queue pair.
    Own,
}

impl fmt::Display for ReceiveQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Shared => "shared",
            Self::Own => "own",
        })
    }
}

/// The reason that there is no `verbs` provider here. Its one line tells the cause and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The libraries, or the kernel's part, or the permission is missing.
    #[error(fmt = no_rdma)]
    NoRdma(Refused),
    /// There is no device.
    #[error(
        "there is no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one in software"
    )]
    NoDevice,
    /// There is no device of this name, but these.
    #[error("there is no RDMA device {}, only {}", .0, .1.join(", "))]
    NoSuchDevice(String, Vec<String>),
    /// The address is not a local one that leads to the device.
    #[error(
        "{0} leads to no RDMA device that is to be used; `rdma link` and `ip address` show which do"
    )]
    NoSuchAddress(IpAddr),
    /// No port of these devices is active.
    #[error("no port of {} is active; `rdma link` shows why", .0.join(", "))]
    NoPort(Vec<String>),
    /// The device lacks an ability.
    #[error("RDMA device {device} has no {what}")]
    Lacking {
        /// The device.
        device: String,
        /// The missing ability.
        what: &'static str,
    },
    /// The system has no randomness, without which handles could be guessed.
    #[error("the system has no randomness for handles")]
    NoEntropy,
    /// Memory cannot be registered.
    #[error("cannot register {bytes} bytes of memory: {}{}", .refused.error, memlock(*.wanted))]
    Memory {
        /// Octets.
        bytes: usize,
        /// Octets that would be locked then, including those that devices have locked already.
        wanted: u64,
        /// The error of the system.
        refused: Refused,
    },
    /// The device refused another operation.
    #[error("{0}")]
    Refused(Refused),
}

impl Unavailable {
    /// Makes the error of a system that has just refused to register `bytes` octets.
    pub(super) fn memory(bytes: usize, refused: Refused) -> Self {
        let wanted = process::pinned().unwrap_or(0).saturating_add(bytes as u64);
        Self::Memory { bytes, wanted, refused }
    }
}

impl From<Refused> for Unavailable {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Says which part of RDMA the machine lacks, and what helps.
fn no_rdma(refused: &Refused, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if refused.is_no_library() {
        f.write_str(
            "libibverbs and librdmacm are not installed; `apt-get install libibverbs1 librdmacm1 \
             ibverbs-providers` installs them",
        )
    } else if refused.is_no_permission() {
        write!(f, "{refused}; /dev/infiniband/rdma_cm and uverbs* must be open to this user")
    } else if refused.is_no_kernel() {
        write!(
            f,
            "the kernel offers no RDMA ({refused}); `modprobe -a rdma_ucm ib_uverbs` loads it"
        )
    } else {
        write!(f, "{refused}")
    }
}

/// Returns how to lock `wanted` octets, for the end of a message; empty where the limit allows them.
fn memlock(wanted: u64) -> String {
    match process::memlock_limit() {
        Some(limit) if limit < wanted => format!(
            "; memlock allows {limit}: `prlimit --pid $$ --memlock={wanted}:{wanted}` as root allows \
             as much"
        ),
        _ => String::new(),
    }
}
