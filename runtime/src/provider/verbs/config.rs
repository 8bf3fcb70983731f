//! What a `verbs` provider is to be like, and why there is none.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use haulage_mr_pool::Strategy;

use crate::sys::ibverbs::Refused;
use crate::sys::process;

/// Limits and choices of a `verbs` provider. A device that has less lowers them.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device, by the name `rdma link` shows; `None` takes that of `source`, or one on `node`, or the
    /// first whose port is active.
    pub device: Option<String>,
    /// An address of ours, by which connections leave, and with it device, port and GID; `None` leaves it
    /// to the routes of the system.
    pub source: Option<IpAddr>,
    /// The NUMA node to prefer devices on; `None` is the one of the CPUs that the thread may run on.
    pub node: Option<usize>,
    /// How memory is opened to peers: by [`Strategy::Window`], [`Strategy::PerCall`], or, only if asked
    /// for, [`Strategy::Persistent`]; `None` is the first of these that the device has.
    pub registration: Option<Strategy>,
    /// Connections at once, those being set up and those closing included; at most 65,536.
    pub connections_max: usize,
    /// Work requests one send queue holds.
    pub send_queue_max: usize,
    /// Receives in all.
    pub receive_queue_max: usize,
    /// Whether queue pairs share a receive queue.
    pub receive_queues: ReceiveQueues,
    /// Receives one queue pair may have reserved, if each has a receive queue of its own: the highest
    /// credit it is ever granted, and one.
    pub receives_each_max: usize,
    /// Registrations at once: with [`Strategy::Persistent`], leases that are exposed.
    pub registrations_max: usize,
    /// RDMA Reads a connection may have outstanding.
    pub ord_max: u32,
    /// RDMA Reads a connection may serve at once.
    pub ird_max: u32,
    /// Octets sent from within the send queue, so that the device need not fetch them.
    pub inline_max: u32,
    /// Post by `ibv_wr_*` where the device's library has it; otherwise by `ibv_post_send`, as on all
    /// devices.
    pub extended_posting: bool,
    /// How often a message is sent again that nobody acknowledges, at most 7; the time between is the
    /// connection manager's.
    pub retries: u8,
    /// How often a Send is sent again for which the peer had no Receive, at most 6; 7 is without end.
    /// Within their credits peers need none, so this bounds how long a peer that is beyond them, or
    /// that stalls, holds a send queue up.
    pub retries_no_receive: u8,
    /// How long to wait in between, as verbs count it: 14 is 1.28 ms.
    pub no_receive_timer: u8,
    /// How long a peer may take for its part of connection setup.
    pub handshake_timeout: Duration,
    /// How long closing may take to send what was posted.
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
            inline_max: 128,
            extended_posting: true,
            retries: 7,
            retries_no_receive: 6,
            no_receive_timer: 14,
            handshake_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(1),
        }
    }
}

/// Which receive queues there are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveQueues {
    /// One that is shared, if the device has that.
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

/// Why there is no `verbs` provider here. One line says what, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unavailable {
    /// The libraries, or the kernel's part, or the permission is missing.
    NoRdma(Refused),
    /// There is no device.
    NoDevice,
    /// There is none of that name, but these.
    NoSuchDevice(String, Vec<String>),
    /// The address is not one of ours that leads to the device.
    NoSuchAddress(IpAddr),
    /// No port is active, of these devices.
    NoPort(Vec<String>),
    /// The device lacks an ability.
    Lacking {
        /// The device.
        device: String,
        /// What it has not.
        what: &'static str,
    },
    /// The system has no randomness, without which handles could be guessed.
    NoEntropy,
    /// Memory cannot be registered.
    Memory {
        /// Octets.
        bytes: usize,
        /// Octets that would be locked then, with what devices have locked already.
        wanted: u64,
        /// What the system said.
        refused: Refused,
    },
    /// The device refused something else.
    Refused(Refused),
}

impl Unavailable {
    /// The system has just refused to have `bytes` registered.
    pub(super) fn memory(bytes: usize, refused: Refused) -> Self {
        let wanted = process::pinned().unwrap_or(0).saturating_add(bytes as u64);
        Self::Memory { bytes, wanted, refused }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRdma(refused) if refused.is_no_library() => f.write_str(
                "libibverbs and librdmacm are not installed; `apt-get install libibverbs1 librdmacm1 \
                 ibverbs-providers` installs them",
            ),
            Self::NoRdma(refused) if refused.is_no_permission() => write!(
                f,
                "{refused}; /dev/infiniband/rdma_cm and uverbs* must be open to this user"
            ),
            Self::NoRdma(refused) if refused.is_no_kernel() => write!(
                f,
                "the kernel offers no RDMA ({refused}); `modprobe -a rdma_ucm ib_uverbs` loads it"
            ),
            Self::NoRdma(refused) | Self::Refused(refused) => write!(f, "{refused}"),
            Self::NoDevice => f.write_str(
                "there is no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one in software",
            ),
            Self::NoSuchDevice(name, others) => {
                write!(f, "there is no RDMA device {name}, but {}", others.join(", "))
            }
            Self::NoSuchAddress(address) => {
                write!(f, "{address} leads to no RDMA device that is to be used; `rdma link` and `ip \
                           address` show which do")
            }
            Self::NoPort(devices) => {
                write!(f, "no port is active of {}; `rdma link` shows why", devices.join(", "))
            }
            Self::NoEntropy => f.write_str("the system has no randomness to make handles of"),
            Self::Lacking { device, what } => write!(f, "RDMA device {device} has no {what}"),
            Self::Memory { bytes, wanted, refused } => {
                write!(f, "cannot register {bytes} bytes of memory: {}", refused.error)?;
                match process::memlock_limit() {
                    Some(limit) if limit < *wanted => write!(
                        f,
                        "; memlock allows {limit}: `prlimit --pid $$ --memlock={wanted}:{wanted}` as \
                         root allows as much"
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Unavailable {}

impl From<Refused> for Unavailable {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}
