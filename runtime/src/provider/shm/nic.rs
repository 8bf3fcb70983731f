//! The part of a provider that all its connections use.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use haulage_mr_pool::{Handles, Pool, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Completion, Handle, Opcode, QpNum, Status, WrId};

use super::config::Config;
use super::leaving::READ_MAX;
use super::receives::Receives;
use super::regions::Regions;
use super::segment::{Layout, RING_BYTES_MIN};
use crate::provider::base::{Deadlines, ListenerId, Reports, Watches};
use crate::provider::{Caps, Counters, Done, Event, Promises};
use crate::sys::barrier;

/// Receives, completions, events and other state of one provider.
#[derive(Debug)]
pub(super) struct Nic {
    pub(super) config: Config,
    /// The layout of the segments we make, unless there are many.
    pub(super) layout: Layout,
    pub(super) region: Option<Region>,
    /// Maps the regions that peers pass.
    pub(super) regions: Regions,
    pub(super) handles: Handles,
    pub(super) receives: Receives,
    /// Completions of requests that were carried out, to be reported before `reports`.
    pub(super) done: VecDeque<Completion>,
    pub(super) reports: Reports,
    pub(super) deadlines: Deadlines,
    /// Connections that are checked for progress.
    pub(super) watches: Watches,
    /// Connections that wait for a peer that was copying when they ended.
    pub(super) quarantined: Vec<QpNum>,
    /// Closed connections, whose slots are to be freed.
    pub(super) closed: Vec<QpNum>,
    /// Handles reserved or registered, on all connections.
    pub(super) registrations: usize,
    /// This process takes part in heavy barriers.
    pub(super) barriers: bool,
    /// The time passed to the last call that had one.
    pub(super) now: Instant,
    pub(super) counters: Counters,
    pub(super) link: LinkCounters,
}

/// Events below RDMA. Plain integers of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Doorbells rung for a peer that was asleep.
    pub doorbells: u64,
    /// Times that a connection went from being polled to asking for doorbells.
    pub demotions: u64,
    /// Times a Send waited for a Receive.
    pub starvations: u64,
    /// Connections ended because the peer broke a rule.
    pub faults: u64,
    /// Connections ended because the peer made no progress.
    pub stalls: u64,
    /// Connections that ended while their peer was copying.
    pub quarantines: u64,
}

/// The memory that can be exposed: the region of a pool made for sharing.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) memfd: OwnedFd,
    start: u64,
    pub(super) length: u64,
}

impl Region {
    /// Describes the memory of `pool`, if a peer can map it.
    pub(super) fn of(pool: &Pool) -> std::io::Result<Option<Self>> {
        let Some(memfd) = pool.memfd() else { return Ok(None) };
        let memfd = memfd.as_fd().try_clone_to_owned()?;
        let region = pool.region();
        Ok(Some(Self { memfd, start: region.addr().get() as u64, length: region.len() as u64 }))
    }

    /// Returns the offset in the region of `length` octets at `address`, if they are there.
    pub(super) fn locate(&self, address: u64, length: u64) -> Option<u64> {
        let at = address.checked_sub(self.start)?;
        let end = at.checked_add(length)?;
        (end <= self.length).then_some(at)
    }
}

impl Nic {
    pub(super) fn new(config: Config, region: Option<Region>, handles: Handles) -> Self {
        let layout = Layout::new(config.ring_bytes, config.registrations_max);
        debug_assert!(layout.is_some() && config.ring_bytes >= RING_BYTES_MIN, "checked before");
        Self {
            watches: Watches::new(config.progress_timeout, config.connections_max),
            layout: layout.expect("checked before"),
            regions: Regions::new(&config),
            config,
            region,
            handles,
            receives: Receives::default(),
            done: VecDeque::new(),
            reports: Reports::default(),
            deadlines: Deadlines::default(),
            quarantined: Vec::new(),
            closed: Vec::new(),
            registrations: 0,
            barriers: barrier::join(),
            now: Instant::ZERO,
            counters: Counters::default(),
            link: LinkCounters::default(),
        }
    }

    /// Returns the layout for the next segment, given the number of `connections`.
    pub(super) fn next_layout(&self, connections: usize) -> Layout {
        if connections > LONG_RINGS_MAX {
            return self.layout.with_ring_at_most(RING_OF_MANY);
        }
        self.layout
    }

    pub(super) fn caps(&self) -> Caps {
        Caps {
            name: "shm",
            queue_pairs_max: self.config.connections_max,
            send_queue_max: self.config.send_queue_max,
            read_max: READ_MAX,
            placing_max: 0,
            turn_events: TURN_EVENTS,
            receive_queue_max: self.config.receive_queue_max,
            receives_each: None,
            registrations_max: self.config.registrations_max as usize,
            ord_max: self.config.ord_max,
            ird_max: self.config.ird_max,
            strategy: Strategy::FastReg,
            posting: None,
            // The peer that posts a Write copies it itself, and its target does not learn of it.
            promises: Promises { counts_placed: false, ..Promises::ALL },
        }
    }

    /// Moves events that are to be reported into `events`, until that has `limit`.
    #[inline]
    pub(super) fn report(&mut self, events: &mut Vec<Event<ListenerId>>, limit: usize) {
        if !self.done.is_empty() {
            let count = limit.saturating_sub(events.len()).min(self.done.len());
            events.extend(self.done.drain(..count).map(|done| Event::Completion(Done::new(done))));
        }
        self.reports.take(events, limit);
    }

    /// Notes the success of a request whose views have been dropped.
    #[inline]
    pub(super) fn complete(&mut self, qp: QpNum, id: WrId, opcode: Opcode) {
        let status = Status::Success;
        self.done.push_back(Completion { id, qp, opcode, status, length: 0, invalidated: None });
    }

    /// Notes that a LocalInv retired its handle.
    pub(super) fn complete_invalidation(&mut self, qp: QpNum, id: WrId, handle: Handle) {
        let (opcode, status) = (Opcode::LocalInv, Status::Success);
        let invalidated = Some(handle);
        self.done.push_back(Completion { id, qp, opcode, status, length: 0, invalidated });
    }

    /// Returns the slot that a handle names in a table of `entries`.
    pub(super) fn peer_slot(&self, handle: Handle, entries: u32) -> usize {
        if entries == self.layout.entries() {
            return self.handles.slot(handle);
        }
        handle.0 as usize >> 8 & (entries.next_power_of_two() as usize - 1)
    }

    /// Returns whether so many reports wait that no more work is done before some are taken.
    #[inline]
    pub(super) fn is_choked(&self) -> bool {
        self.done.len() >= REPORTS_HELD_MAX
    }

    /// Returns whether rare work waits, or something is still to be reported.
    #[inline]
    pub(super) fn has_chores(&self) -> bool {
        !self.closed.is_empty() || self.has_reports()
    }

    /// Returns whether something is still to be reported.
    #[inline]
    pub(super) fn has_reports(&self) -> bool {
        !self.done.is_empty() || !self.reports.is_empty()
    }

    /// Returns when quarantined connections are to be checked again.
    pub(super) fn quarantine_deadline(&self) -> Option<Instant> {
        (!self.quarantined.is_empty()).then(|| self.now.saturating_add(QUARANTINE_LOOK))
    }
}

/// Completions held for the application after which it must take some before more is done.
const REPORTS_HELD_MAX: usize = 8192;
/// The time between checks whether a peer is done copying.
pub(super) const QUARANTINE_LOOK: Duration = Duration::from_millis(1);

/// The peer is shown the answers after every sixteen messages ([`RUN_MAX`](crate::provider::RUN_MAX)), which with 32
/// NULL Calls in flight gave twice the rate of 32; more turns than that cost more than they bring.
const TURN_EVENTS: usize = 32;

/// The number of connections up to which new rings have their configured length.
pub(super) const LONG_RINGS_MAX: usize = 64;
/// Octets of the longest ring of a connection beyond these.
const RING_OF_MANY: u32 = 64 << 10;
