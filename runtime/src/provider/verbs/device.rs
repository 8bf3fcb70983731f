//! Devices of this machine, and how much of a configuration a device can provide.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use haulage_mr_pool::Strategy;
use haulage_proto::verbs::SCATTER_MAX;

use super::bounces::Bounces;
use super::config::{Config, ReceiveQueues, Unavailable};
use super::place::{self, Gid};
use super::share::Share;
use super::windows::Windows;
use crate::limits::RECEIVES_IDLE;
use crate::provider::{Caps, PLACING_MAX, Promises};
use crate::sys::ibverbs::{
    Attributes, Device, Domain, EventChannel, Link, Posting, QueuePairLimits, Refused, WindowUse,
};

/// A device of this machine, for display.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its first port carries messages.
    pub is_active: bool,
    /// The reason that we cannot use it, if any.
    pub lacking: Option<&'static str>,
    /// It has memory windows of type 2. Without them, each connection has a protection domain of its own.
    pub has_windows: bool,
    /// Its connections share a receive queue. Otherwise, each has one of its own.
    pub shares_receives: bool,
    /// The posting interface of its library: `ibv_wr`, or only `ibv_post_send`.
    pub posting: &'static str,
    /// It holds peers to the range they were granted.
    pub exact_bounds: bool,
    /// The addresses by which peers reach it, the best first.
    pub gids: Vec<Gid>,
    /// The NUMA node it is on, if the machine says so.
    pub node: Option<usize>,
}

impl DeviceReport {
    /// Returns whether a provider can use it now.
    pub const fn is_usable(&self) -> bool {
        self.is_active && self.lacking.is_none()
    }
}

/// Lists the devices of this machine.
///
/// # Errors
///
/// No device can be listed: libraries, kernel or permission are missing.
pub fn devices() -> Result<Vec<DeviceReport>, Unavailable> {
    EventChannel::new().map_err(none)?;
    let report = |device: &Device| {
        let attributes = device.attributes().ok();
        let domain = Domain::new(device).ok();
        let both = attributes.zip(domain.as_ref());
        let has_windows = both.is_some_and(|(found, domain)| has_windows(&found, domain));
        let windows = if has_windows { WindowUse::Bound } else { WindowUse::Never };
        let posting = domain.map(|domain| Posting::probe(device, &domain, windows));
        let (root, name) = (Path::new("/"), device.name());
        DeviceReport {
            has_windows,
            posting: posting.unwrap_or(Posting::List).name(),
            gids: place::gids(root, &name),
            node: place::node_of(root, &name),
            exact_bounds: attributes.is_some_and(|found| found.vendor != SOFT_ROCE),
            name,
            is_active: device.link().is_ok_and(|link| link.is_active),
            lacking: attributes.map_or(Some("readable limits"), |found| {
                shares_receives(&found, ReceiveQueues::Any, Strategy::Window).err()
            }),
            shares_receives: attributes.is_some_and(|found| {
                shares_receives(&found, ReceiveQueues::Any, Strategy::Window) == Ok(true)
            }),
        }
    };
    Ok(Device::all().map_err(Unavailable::NoRdma)?.iter().map(report).collect())
}

/// Finds out why there is no connection manager. The library's error tells only that there is none.
pub(super) fn none(refused: Refused) -> Unavailable {
    if !refused.is_no_kernel() {
        return Unavailable::NoRdma(refused);
    }
    match File::options().read(true).write(true).open(MANAGER) {
        Ok(_) => Unavailable::NoDevice,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Unavailable::NoRdma(Refused::of("opening the RDMA connection manager", error))
        }
        Err(_) => Unavailable::NoRdma(refused),
    }
}

/// The abilities and limits used of a device.
pub(super) struct Fitted {
    pub(super) caps: Caps,
    pub(super) limits: QueuePairLimits,
    pub(super) share: Share,
}

/// Fits the configuration to the device.
pub(super) fn fit(
    config: &Config,
    device: &Device,
    name: &str,
    domain: &Arc<Domain>,
) -> Result<Fitted, Unavailable> {
    let has = device.attributes()?;
    let Link { message_max, .. } = device.link()?;
    let strategy = strategy(config, name, domain, &has)?;
    let windows = strategy == Strategy::Window;
    let shares = shares_receives(&has, config.receive_queues, strategy)
        .map_err(|what| Unavailable::Lacking { device: name.to_owned(), what })?;
    // Each Receive has a place in the completion queue, too.
    let receives_max = if shares { has.shared_receives } else { has.completions / 2 };
    let receives = config.receive_queue_max.min(receives_max);
    let each = config.receives_each_max.max(RECEIVES_LEAST).min(has.work_requests);
    // One entry of each send queue is kept for the mark that tells when it is empty.
    let send_queue = config.send_queue_max.min(has.work_requests.saturating_sub(1)).max(1);
    let least = send_queue.min(SHARE_MIN);
    let completions = has.completions.saturating_sub(receives);
    let fitting = completions / (least + 1);
    let queue_pairs = config.connections_max.min(has.queue_pairs).min(fitting).max(1);
    let share = Share {
        all: completions.min(queue_pairs * (send_queue + 1)),
        each: u32::try_from(least + 1).unwrap_or(u32::MAX),
        queue_pairs,
    };
    let is_soft_iwarp = has.vendor == SOFT_IWARP;
    let windows_max = if windows { has.windows } else { usize::MAX };
    let registrations = config.registrations_max.min(windows_max);
    let posting = if config.extended_posting {
        Posting::probe(device, domain, window_use(strategy))
    } else {
        Posting::List
    };
    let caps = Caps {
        name: "verbs",
        queue_pairs_max: queue_pairs,
        send_queue_max: send_queue,
        // The doorbell is a system call or a device register: one for each message would cost more than a view.
        read_max: 0,
        placing_max: PLACING_MAX,
        turn_events: TURN_EVENTS,
        receive_queue_max: receives,
        receives_each: (!shares).then_some(each),
        registrations_max: registrations,
        ord_max: config.ord_max.min(has.reads_outstanding),
        ird_max: config.ird_max.min(has.reads_served),
        strategy,
        posting: Some(posting.name()),
        promises: Promises {
            exact_bounds: has.vendor != SOFT_ROCE,
            exact_access: !is_soft_iwarp,
            remote_invalidation: windows,
            handles_end: strategy != Strategy::Persistent,
            // The device places octets, and does not report how many.
            counts_placed: false,
            // iWARP has no answer but the end to a Send that finds no Receive.
            sends_wait: config.retries_no_receive == RETRIES_WITHOUT_END && !has.is_iwarp,
            grants_reads: !is_soft_iwarp,
            explains_ends: !is_soft_iwarp,
        },
    };
    let limits = QueuePairLimits {
        send_queue: u32::try_from(send_queue + 1).unwrap_or(u32::MAX),
        receive_queue: if shares { 0 } else { u32::try_from(each).unwrap_or(u32::MAX) },
        copied_max: config.copied_max,
        message_max: message_max.max(1),
        is_iwarp: has.is_iwarp,
        posting,
    };
    Ok(Fitted { caps, limits, share })
}

/// Chooses the way memory is opened to peers, as `config` says.
fn strategy(
    config: &Config,
    name: &str,
    domain: &Arc<Domain>,
    has: &Attributes,
) -> Result<Strategy, Unavailable> {
    let has_windows = has_windows(has, domain);
    let lacking = |what| Err(Unavailable::Lacking { device: name.to_owned(), what });
    match config.registration {
        None | Some(Strategy::Window) if has_windows => Ok(Strategy::Window),
        None | Some(Strategy::PerCall) => Ok(Strategy::PerCall),
        Some(Strategy::Persistent) => Ok(Bounces::probe(domain).map(|()| Strategy::Persistent)?),
        Some(Strategy::Window) => lacking("memory windows of type 2"),
        Some(Strategy::FastReg) => lacking("fast registration for user space"),
    }
}

/// Returns the use of memory windows under a strategy.
pub(super) const fn window_use(strategy: Strategy) -> WindowUse {
    match strategy {
        Strategy::Window => WindowUse::Bound,
        _ => WindowUse::Never,
    }
}

/// Returns whether the device has memory windows of type 2: it must say so, and make one when asked.
fn has_windows(has: &Attributes, domain: &Arc<Domain>) -> bool {
    has.windows_type_2 && has.windows > 0 && Windows::probe(domain).is_ok()
}

/// Returns whether receive queues are shared, which they are if they may be; otherwise each queue pair has its own. The
/// error is the ability that the device lacks.
fn shares_receives(
    has: &Attributes,
    wanted: ReceiveQueues,
    strategy: Strategy,
) -> Result<bool, &'static str> {
    // Without windows, queue pairs and a shared receive queue are in different domains.
    let may_share = strategy == Strategy::Window || has.vendor != SOFT_ROCE;
    let shared = may_share && has.shared_receives > 0 && has.shared_scatter >= SCATTER_MAX;
    let own = has.scatter >= SCATTER_MAX && has.work_requests >= RECEIVES_LEAST;
    match wanted {
        ReceiveQueues::Any if shared || own => Ok(shared),
        ReceiveQueues::Any => Err("receive queues for scattered messages"),
        ReceiveQueues::Shared => shared.then_some(true).ok_or("shared receive queues"),
        ReceiveQueues::Own => {
            own.then_some(false).ok_or("suitable receive queues for single connections")
        }
    }
}

/// Receives that every connection has, however quiet it is.
const RECEIVES_LEAST: usize = RECEIVES_IDLE as usize;
/// Entries of a send queue that every connection has, whatever the others do: no fewer than a Reply takes with the
/// Writes of its result.
const SHARE_MIN: usize = 128;

/// The vendor id of soft-RoCE (rxe). If a peer has a window, it does not check the octets in it that the peer names, up
/// to the region's ends. It looks up the memory of a Receive in the queue pair's protection domain, even if the Receive
/// was of a shared queue in another.
const SOFT_ROCE: u32 = 0xff_ffff;
/// The vendor id of soft-iWARP (siw). It answers a Read of memory granted for writing, grants as many Reads as it is
/// asked for, and does not report why a connection ended.
const SOFT_IWARP: u32 = 0x62_6d74;
/// The count of retries that means no limit.
const RETRIES_WITHOUT_END: u8 = 7;
/// The kernel's part of the connection manager.
const MANAGER: &str = "/dev/infiniband/rdma_cm";

/// The number of `iwarp`: no device was measured at its own speed.
const TURN_EVENTS: usize = 64;
