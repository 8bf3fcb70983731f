//! RDMA devices: RoCE, InfiniBand and iWARP through libibverbs and librdmacm.
//!
//! # Normal operation
//!
//! Each provider has one completion queue on one device, and a queue pair for each connection, which share
//! a receive queue if the device has that, or else have one each. Work requests of one [`Port::post`]
//! are chained and handed over with one doorbell, by `ibv_wr_*` if the device's library has that;
//! completions are taken from the queue without a system call. The connection manager is asked when
//! something waits for it, when a sleep was ended by it, and now and then.
//!
//! # Registration
//!
//! The core's memory is registered once, for ourselves. A peer is let in by memory windows of type 2:
//! bound to a range, an access and one queue pair by a work request, closed by another or by the peer's
//! Send with Invalidate. Offsets begin at zero. Of a handle the device chooses 24 bits and we 8. Where a
//! device has none, each lease is registered by a call. Who asks for it, by [`Config::registration`], has
//! neither: what is exposed is copied to or from memory that stays registered (`bounces.rs`).
//!
//! # Memory ownership
//!
//! A view lies in the send queue, in its window or in the receive queue until a completion says that the
//! device is done with it. When a connection ends its queue pair is failed, what comes back is
//! reported, its windows are freed, and the queue pair is destroyed; only then `Quiesced` is reported.
//!
//! # Limits
//!
//! A peer whose Send meets no Receive sends it again, as often as [`Config::retries_no_receive`] says.
//! What a peer writes by RDMA nobody counts but the peer.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulage_mr_pool::{Local, Pool, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Flags, Handle, QpNum, Segment, WrId};

use self::bounces::Copied;
use self::choice::Chosen;
use self::connection::{Connection, Numbers, Objects, Phase, Slots};
use self::device::Fitted;
use self::domains::{Order, Prepared};
use self::helper::Helper;
use self::receives::Receives;
use self::registrations::Registrations;
use self::setup::{count, failure, token};
use self::work::Share;
use super::supply::Supply;
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, OpenResult, Operation,
    PeerUser, Port, Provider, QueueFull, Receive, Refused, Waker, WorkQueue, WorkRequest, expose,
    sealed,
};
use crate::sys::epoll::Epoll;
use crate::sys::ibverbs::{
    Chain, CmId, CompletionQueue, Device, Domain, Ended, EventChannel, Polled, QueuePairLimits,
    Region, SharedReceives,
};

mod bounces;
mod choice;
mod config;
mod connection;
mod device;
mod domains;
mod grants;
mod helper;
mod place;
mod receives;
mod registrations;
mod setup;
mod windows;
mod work;

pub use config::{Config, Unavailable};
pub use device::{DeviceReport, devices};
pub use place::{Gid, GidKind};
pub use receives::ReceiveQueues;

/// Names a listener of a [`Verbs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(u32);

/// One core's part of an RDMA device. It stays on the thread that made it.
#[derive(Debug)]
pub struct Verbs {
    config: Config,
    caps: Caps,
    chosen: Chosen,
    slots: Slots,
    numbers: Numbers,
    /// Connections that wait for something, with a deadline.
    pending: Vec<QpNum>,
    listeners: Vec<(ListenerId, CmId)>,
    listened: u32,
    registrations: Registrations,
    receives: Receives,
    regions: Vec<Region>,
    queue: Rc<CompletionQueue>,
    domain: Arc<Domain>,
    /// Registers our memory in other domains; for how many connections on their way up.
    helper: Helper<Order, Prepared>,
    preparing: usize,
    device: Device,
    channel: Rc<EventChannel>,
    ask_manager_at: Instant,
    limits: QueuePairLimits,
    share: Share,
    /// Entries of all send queues that are taken.
    occupied: usize,
    reports: VecDeque<Event<ListenerId>>,
    now: Instant,
    waker: Waker,
    epoll: Epoll,
    counters: Counters,
    // Storage of one turn.
    chain: Chain,
    polled: Vec<Polled>,
    ended: Vec<Ended>,
}

impl Verbs {
    /// Takes part of a device.
    ///
    /// # Errors
    ///
    /// There is no device that will do, or it has no more to give.
    pub fn new(config: &Config) -> Result<Self, Unavailable> {
        let channel = EventChannel::new().map_err(device::none)?;
        let chosen = Chosen::new(config, &channel)?;
        let device = chosen.device.clone();
        let domain = Domain::new(&device)?;
        let Fitted { caps, limits, share } = device::fit(config, &device, &chosen.name, &domain)?;
        device.report_faults()?;
        let completions = share.all + caps.receive_queue_max;
        let queue = CompletionQueue::new(&device, completions)?;
        let receives = if caps.receives_each.is_some() {
            Receives::Own(Supply::new(caps.receive_queue_max))
        } else {
            let room = u32::try_from(caps.receive_queue_max).unwrap_or(u32::MAX);
            Receives::Shared(SharedReceives::new(&domain, room)?)
        };
        let counts = (caps.registrations_max, caps.queue_pairs_max);
        let registrations = Registrations::new(&domain, caps.strategy, counts)?;

        let system =
            |error| Unavailable::Refused(crate::sys::ibverbs::Refused::of("waiting", error));
        let waker = Waker::new().map_err(system)?;
        let mut epoll = Epoll::new().map_err(system)?;
        let fds = [
            (waker.fd(), WAKER),
            (queue.fd(), QUEUE),
            (channel.fd(), CHANNEL),
            (device.fault_fd(), CHANNEL),
        ];
        for (fd, token) in fds {
            epoll.watch(fd, token).map_err(system)?;
        }
        Ok(Self {
            slots: Slots::new(caps.queue_pairs_max),
            numbers: Numbers::default(),
            pending: Vec::with_capacity(caps.queue_pairs_max),
            listeners: Vec::new(),
            listened: 0,
            registrations,
            receives,
            regions: Vec::new(),
            queue,
            domain,
            helper: Helper::new(waker.clone(), Order::carry_out),
            preparing: 0,
            device,
            channel,
            ask_manager_at: Instant::ZERO,
            limits,
            share,
            occupied: 0,
            reports: VecDeque::with_capacity(REPORTS),
            now: Instant::ZERO,
            waker,
            epoll,
            counters: Counters::default(),
            chain: Chain::new(),
            polled: Vec::with_capacity(POLLED),
            ended: Vec::with_capacity(caps.send_queue_max),
            config: config.clone(),
            caps,
            chosen,
        })
    }

    /// Registers the memory of `pool`, which everything that is posted lies in. It stays registered, and
    /// mapped, as long as the provider lives.
    ///
    /// # Errors
    ///
    /// The system does not allow as much to be locked.
    pub fn register(&mut self, pool: &Pool) -> Result<(), Unavailable> {
        let region = Region::new(&self.domain, pool, self.caps.strategy == Strategy::Window)
            .map_err(|refused| Unavailable::memory(pool.usable(), refused))?;
        self.regions.push(region);
        self.registrations.cover(pool.usable());
        Ok(())
    }

    /// Returns the name of the device.
    pub fn device_name(&self) -> &str {
        &self.chosen.name
    }

    /// Returns its name, why it was chosen, and the best of its GIDs, for people.
    pub fn describe(&self) -> String {
        let Some(gid) = self.chosen.gids().into_iter().next() else {
            return self.chosen.to_string();
        };
        format!("{}; {gid}", self.chosen)
    }

    /// Returns an address of this machine that leads to the device: that of its best GID, if it has one.
    pub fn address(&self) -> Option<IpAddr> {
        self.chosen.address(&self.channel)
    }

    /// Says no to a peer that wants a connection.
    fn reject_request(&mut self, qp: QpNum, private_data: &[u8]) {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase == Phase::Requested) else {
            return;
        };
        if let Some(id) = connection.id() {
            // If it fails the peer is gone, which suits us.
            let _ = id.reject(private_data);
        }
        self.forget(qp);
    }

    /// Opens a lease to the peer by a request that goes before whatever is posted next.
    fn open(&mut self, qp: QpNum, lease: Local, access: Access) -> OpenResult {
        let Self { slots, regions, registrations, .. } = self;
        let Some(connection) = slots.get(qp).filter(|connection| connection.phase.is_open()) else {
            return Err((lease, Refused::Gone));
        };
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let scrap = regions.first().map(Region::scrap);
        let reserved = registrations.reserve((qp, connection.domain()), &lease, access, scrap);
        let Some(handle) = reserved else { return Err((lease, Refused::Full)) };
        let offset = registrations.offset(&lease);
        let (exposed, memory) = expose(lease, handle, access);
        let operation = Operation::FastReg { handle, offset, memory };
        connection.opening.push_back(WorkRequest {
            id: WrId(0),
            flags: Flags::default(),
            operation,
        });
        Ok((exposed, Segment { handle, length, offset }))
    }

    /// Adds a connection to those that wait for something, unless it is among them.
    fn attend_to(&mut self, qp: QpNum) {
        if !self.pending.contains(&qp) {
            self.pending.push(qp);
        }
    }

    /// Tells whether a connection waits for the first message of a peer that may need a nudge.
    fn is_unheard(&self, qp: QpNum) -> bool {
        self.slots.peek(qp).is_some_and(|connection| connection.is_unheard)
    }

    /// Sends a peer that has said nothing an RDMA Write of no octets, which names no memory.
    ///
    /// Soft-iWARP, accepting a connection, may not see what arrives just behind its answer before more
    /// octets come.
    fn nudge(&mut self, now: Instant, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        // The entry that is kept for a mark is to stay free.
        if connection.pair().is_some_and(|pair| pair.is_idle()) {
            connection.is_unheard = false;
            self.mark(qp);
        } else {
            connection.deadline = now.saturating_add(setup::NUDGE_AFTER);
        }
    }

    /// Does what is due for connections that wait for something.
    fn attend(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(qp) = self.pending.get(at).copied() {
            let waits = self.slots.get(qp).map(|c| (c.phase, now >= c.deadline));
            let idle = self.slots.get(qp).and_then(Connection::pair).is_none_or(|p| p.is_idle());
            match waits {
                Some((Phase::Closing, late)) if idle || late => {
                    self.pending.swap_remove(at);
                    self.end(now, qp, super::DisconnectReason::Local);
                    continue;
                }
                Some((Phase::Flushing, late)) if idle || late => {
                    self.pending.swap_remove(at);
                    self.dismantle(now, qp);
                    continue;
                }
                Some((Phase::Resolving | Phase::Connecting, true)) => {
                    self.pending.swap_remove(at);
                    self.failed(qp, ConnectError::TimedOut);
                    continue;
                }
                Some((Phase::Accepting, true)) => {
                    self.pending.swap_remove(at);
                    self.end(now, qp, super::DisconnectReason::Lost);
                    continue;
                }
                Some((Phase::Established, late)) if self.is_unheard(qp) => {
                    if late {
                        self.nudge(now, qp);
                    }
                    at += 1;
                }
                Some((phase, _)) if phase.is_pending() => at += 1,
                _ => {
                    self.pending.swap_remove(at);
                }
            }
        }
    }
}

impl sealed::Sealed for Verbs {}

impl Provider for Verbs {
    type Listener = ListenerId;
    type Port<'a> = VerbsPort<'a>;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.listened += 1;
        let listener = ListenerId(self.listened);
        let mut id = CmId::new(&self.channel, LISTENER | listener.0).map_err(|r| r.error)?;
        let listens = id.listen(at).map_err(|refused| refused.error);
        // Without an address it is on all devices, and others' peers are refused.
        let elsewhere = match &listens {
            Ok(()) => id.has_device() && !id.is_on(&self.device),
            Err(error) => error.raw_os_error() == Some(libc::ENODEV),
        };
        if elsewhere {
            let name = self.device_name();
            return Err(io::Error::other(format!("it does not lead to RDMA device {name}")));
        }
        listens?;
        let bound = id.local().ok_or(io::ErrorKind::AddrNotAvailable)?;
        self.listeners.push((listener, id));
        Ok((listener, bound))
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.retain(|(own, _)| *own != listener);
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        let limit = self.config.handshake_timeout;
        let connection = Connection {
            phase: Phase::Resolving,
            deadline: now.saturating_add(limit),
            objects: Objects::Nothing,
            regions: Vec::new(),
            ord: count(params.ord, self.caps.ord_max),
            ird: count(params.ird, self.caps.ird_max),
            to: Some(to),
            private_data: params.private_data.into(),
            early: Vec::new(),
            is_flushed: false,
            is_unheard: false,
            opening: WorkQueue::new(),
        };
        let qp = self.slots.add(connection).ok_or(ConnectError::NoQueuePair)?;
        let started = CmId::new(&self.channel, token(qp)).and_then(|mut id| {
            id.resolve(self.config.source, to, limit.min(setup::RESOLVE_AGAIN))?;
            Ok(id)
        });
        match started {
            Ok(id) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.objects = Objects::Id(id);
                }
                self.pending.push(qp);
                Ok(qp)
            }
            Err(refused) => {
                self.forget(qp);
                Err(failure(&refused.error))
            }
        }
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        match answer {
            ConnectionAnswer::Accept(params) => self.accept_request(now, qp, params),
            ConnectionAnswer::Reject(private_data) => self.reject_request(qp, private_data),
        }
    }

    /// A queue pair has no socket whose owner the system could name.
    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        let id = self.slots.get(qp).and_then(|connection| connection.id());
        let peer = id.and_then(|id| id.peer());
        peer.map_or(PeerUser::Unknown, |peer| PeerUser::by_address(peer.ip()))
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        let deadline = now.saturating_add(self.config.close_timeout);
        let Some(connection) = self.slots.get(qp) else { return };
        match connection.phase {
            Phase::Established => {
                connection.phase = Phase::Closing;
                connection.deadline = deadline;
                self.attend_to(qp);
                self.mark(qp);
            }
            Phase::Accepting => self.end(now, qp, super::DisconnectReason::Local),
            Phase::Resolving | Phase::Connecting => self.failed(qp, ConnectError::Refused),
            Phase::Requested => self.forget(qp),
            Phase::Closing | Phase::Flushing | Phase::Gone => {}
        }
    }

    fn port(&mut self, qp: QpNum) -> Option<VerbsPort<'_>> {
        Some(VerbsPort { verbs: self, qp })
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        self.take_receives(batch)
    }

    fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        self.reserve(qp, count);
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.now = now;
        self.reap(now, budget);
        if now >= self.ask_manager_at {
            self.take_connection_events(now);
        }
        if self.preparing > 0 {
            self.take_places(now);
        }
        if !self.pending.is_empty() {
            self.attend(now);
        }
        for _ in 0..budget.min(self.reports.len()) {
            let Some(event) = self.reports.pop_front() else { break };
            // The core knows; from now on the slot may be another's.
            match &event {
                Event::Quiesced(quiesced) => self.remove(quiesced.qp()),
                Event::Failed { qp, .. } => self.remove(*qp),
                _ => {}
            }
            events.push(event);
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        if !self.reports.is_empty() {
            return Some(self.now);
        }
        self.pending.iter().filter_map(|qp| self.slots.peek(*qp)).map(|c| c.deadline).min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        if !self.reports.is_empty() {
            return;
        }
        self.queue.arm();
        if self.reap(self.now, usize::MAX) {
            return;
        }
        self.counters.syscalls += 1;
        for ready in self.epoll.wait(limit) {
            match ready.token {
                WAKER => self.waker.clear(),
                QUEUE => self.queue.disarm(),
                _ => self.ask_manager_at = Instant::ZERO,
            }
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let Copied { there, back } = self.registrations.copied();
        counters.bytes_copied += back;
        counters.tagged_copied += there + back;
        counters
    }
}

/// Posts on one queue pair of a [`Verbs`].
#[derive(Debug)]
pub struct VerbsPort<'a> {
    verbs: &'a mut Verbs,
    qp: QpNum,
}

impl Port for VerbsPort<'_> {
    /// Is for software: a device has its own way of sending octets that are not kept.
    fn send(&mut self, _: &[u8], _: Option<Handle>) -> Result<(), Refused> {
        Err(Refused::TooLong)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        self.verbs.open(self.qp, lease, access)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.verbs.post_work(self.qp, batch)
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // No peer reaches anything from here on.
        for qp in self.slots.all().collect::<Vec<_>>() {
            if let Some(id) = self.slots.get(qp).and_then(Connection::id) {
                let _ = id.disconnect();
            }
        }
        self.registrations.clear();
    }
}

/// Of the names of ids, those of listeners.
const LISTENER: u32 = 1 << 31;

const WAKER: u64 = 0;
const QUEUE: u64 = 1;
const CHANNEL: u64 = 2;

/// Events held before more room is made for them.
const REPORTS: usize = 1024;
/// Completions taken before they are looked at.
const POLLED: usize = 32;
