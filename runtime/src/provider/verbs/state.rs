//! One core's part of an RDMA device: its parts, and how it is made.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use haulage_mr_pool::Pool;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::choice::Chosen;
use super::config::{Config, Unavailable};
use super::connection::{Connection, Numbers};
use super::device::{self, Fitted, window_use};
use super::domains::Domains;
use super::group::Group;
use super::listening::Listening;
use super::manager::Manager;
use super::memory::Memory;
use super::names::ListenerId;
use super::receives::Receives;
use super::registrations::Registrations;
use super::share::Entries;
use crate::provider::base::Slots;
use crate::provider::{Caps, Counters, Event, Waker};
use crate::sys::epoll::Epoll;
use crate::sys::ibverbs::{
    Chain, CompletionQueue, Domain, Ended, EventChannel, Polled, QueuePairLimits, Refused,
    SharedReceives,
};

/// One core's part of an RDMA device. It stays on the thread that made it.
#[derive(Debug)]
pub struct Verbs {
    pub(super) config: Config,
    pub(super) caps: Caps,
    pub(super) chosen: Chosen,
    pub(super) slots: Slots<Connection>,
    pub(super) numbers: Numbers,
    /// Connections that wait for something, with a deadline.
    pub(super) pending: Vec<QpNum>,
    pub(super) listening: Listening,
    pub(super) registrations: Registrations,
    pub(super) receives: Receives,
    pub(super) memory: Memory,
    pub(super) queue: Rc<CompletionQueue>,
    pub(super) manager: Manager,
    pub(super) limits: QueuePairLimits,
    pub(super) entries: Entries,
    pub(super) reports: VecDeque<Event<ListenerId>>,
    pub(super) now: Instant,
    pub(super) waker: Waker,
    pub(super) epoll: Epoll,
    pub(super) counters: Counters,
    // Storage of one turn.
    pub(super) chain: Chain,
    pub(super) polled: Vec<Polled>,
    pub(super) ended: Vec<Ended>,
}

impl Verbs {
    /// Opens a device for one core.
    ///
    /// # Errors
    ///
    /// No device is suitable, or it has no more resources to give.
    pub fn new(config: &Config) -> Result<Self, Unavailable> {
        Self::make(config, None)
    }

    /// Opens a device for another core, in the protection domain of `group`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). The configuration leads to another device than the group's, or to no use of memory windows.
    pub fn join(config: &Config, group: &Group) -> Result<Self, Unavailable> {
        Self::make(config, Some(group))
    }

    fn make(config: &Config, group: Option<&Group>) -> Result<Self, Unavailable> {
        let channel = EventChannel::new().map_err(device::none)?;
        let chosen = Chosen::new(config, &channel)?;
        let (device, name) = (chosen.device.clone(), &chosen.name);
        let domain = match group {
            Some(group) => group.domain(&device, name)?,
            None => Domain::new(&device)?,
        };
        let Fitted { caps, limits, share } = device::fit(config, &device, name, &domain)?;
        if group.is_some() {
            Group::admit(caps.strategy, name)?;
        }
        device.report_faults()?;
        let completions = share.all + caps.receive_queue_max;
        let queue = CompletionQueue::new(&device, completions)?;
        let receives = if caps.receives_each.is_some() {
            Receives::own(caps.receive_queue_max)
        } else {
            let room = u32::try_from(caps.receive_queue_max).unwrap_or(u32::MAX);
            Receives::Shared(SharedReceives::new(&domain, room)?)
        };
        let counts = (caps.registrations_max, caps.queue_pairs_max);
        let registrations = Registrations::new(&domain, caps.strategy, counts)?;
        let system = |error| Unavailable::Refused(Refused::of("waiting", error));
        let waker = Waker::new().map_err(system)?;
        let domains = Domains::new(domain, waker.clone());
        let memory = Memory::new(domains, window_use(caps.strategy))?;
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
            slots: Slots::new(caps.queue_pairs_max.min(usize::from(u16::MAX))),
            numbers: Numbers::default(),
            pending: Vec::with_capacity(caps.queue_pairs_max),
            listening: Listening::default(),
            registrations,
            receives,
            memory,
            queue,
            manager: Manager::new(device, channel, waker.clone()),
            limits,
            entries: Entries::new(share),
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

    /// Registers the memory of `pool`. All posted work must lie in it. It stays registered, and mapped, as long as the
    /// provider lives.
    ///
    /// # Errors
    ///
    /// The system does not allow this much memory to be locked.
    pub fn register(&mut self, pool: &Pool) -> Result<(), Unavailable> {
        self.memory.add(pool, window_use(self.caps.strategy))?;
        self.registrations.cover(pool.usable());
        Ok(())
    }

    /// Returns the group of providers that share the protection domain of this one, which those of other cores can
    /// [`join`](Self::join). Without memory windows there is none: each connection then has a domain of its own.
    pub fn group(&self) -> Option<Group> {
        Group::of(self.memory.domains().first(), self.caps.strategy)
    }

    /// Returns the name of the device.
    pub fn device_name(&self) -> &str {
        &self.chosen.name
    }

    /// Returns a line of text: the device's name, why it was chosen, and the best of its GIDs.
    pub fn describe(&self) -> String {
        let Some(gid) = self.chosen.gids().into_iter().next() else {
            return self.chosen.to_string();
        };
        format!("{}; {gid}", self.chosen)
    }

    /// Returns an address of this machine that leads to the device: that of its best GID, if it has one.
    pub fn address(&self) -> Option<IpAddr> {
        self.chosen.address(self.manager.channel())
    }
}

// The event sources that end a sleep.
pub(super) const WAKER: u64 = 0;
pub(super) const QUEUE: u64 = 1;
pub(super) const CHANNEL: u64 = 2;

/// Events for which there is room at first.
const REPORTS: usize = 1024;
/// Completions taken from the queue in one call.
const POLLED: usize = 32;
