//! The part of a provider that all its connections use.

use std::collections::VecDeque;

use haulage_mr_pool::{Stags, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::config::Config;
use super::transmit_queue::TransmitQueue;
use crate::provider::base::{Deadlines, Reports, Watches};
use crate::provider::{Caps, Counters, PLACING_MAX, Promises, Receive};

/// Registrations, Receives, events and scratch memory of one provider.
#[derive(Debug)]
pub(super) struct Nic {
    pub(super) config: Config,
    pub(super) stags: Stags,
    /// The shared receive queue, oldest first.
    pub(super) receives: VecDeque<Receive>,
    pub(super) reports: Reports,
    /// The buffer that sockets are read into when there is no better place. Taken out while its octets are handled.
    pub(super) scratch: Vec<u8>,
    /// Send queues that no connection uses.
    #[expect(clippy::vec_box, reason = "they are lent in their boxes, which connections hold")]
    queues: Vec<Box<TransmitQueue>>,
    /// Connections to be settled before the provider's work is done.
    pub(super) unsettled: VecDeque<QpNum>,
    /// Connections whose peer's Send waits for a Receive, longest first.
    pub(super) starved: VecDeque<QpNum>,
    /// Connections whose next Read waits for room in the table of registrations, longest first.
    pub(super) crowded: VecDeque<QpNum>,
    /// Connections whose turn of this poll ended before all their octets were handled.
    pub(super) throttled: VecDeque<QpNum>,
    /// Connections that are checked for progress.
    pub(super) watches: Watches,
    /// Polls so far, modulo 2^32.
    pub(super) polls: u32,
    pub(super) deadlines: Deadlines,
    /// The time passed to the last call that had one.
    pub(super) now: Instant,
    pub(super) counters: Counters,
    pub(super) wire: WireCounters,
}

/// Counters of the protocols below RDMA. Plain integers of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// FPDUs sent.
    pub fpdus_sent: u64,
    /// FPDUs received whole and with a right CRC.
    pub fpdus_received: u64,
    /// FPDUs whose CRC was wrong.
    pub crc_failures: u64,
    /// Connections ended because the peer broke a rule.
    pub faults: u64,
    /// Keepalive FPDUs, sent only because nothing had come from the peer.
    pub keepalives: u64,
    /// Connections ended because the peer made no progress.
    pub stalls: u64,
    /// Connections ended because the peer sent too many FPDUs that deliver nothing.
    pub floods: u64,
    /// Times a Send waited for a Receive.
    pub starvations: u64,
    /// Connections that became hot: read at every poll.
    pub promotions: u64,
}

impl Nic {
    pub(super) fn new(config: Config, stags: Stags) -> Self {
        let scratch = usize::try_from(config.receive_buffer_bytes).unwrap_or(0);
        Self {
            stags,
            receives: VecDeque::new(),
            reports: Reports::default(),
            scratch: vec![0; scratch],
            queues: Vec::new(),
            unsettled: VecDeque::new(),
            starved: VecDeque::new(),
            crowded: VecDeque::new(),
            throttled: VecDeque::with_capacity(config.connections_max),
            watches: Watches::new(config.progress_timeout, config.connections_max),
            polls: 0,
            deadlines: Deadlines::default(),
            now: Instant::ZERO,
            counters: Counters::default(),
            wire: WireCounters::default(),
            config,
        }
    }

    pub(super) fn caps(&self) -> Caps {
        Caps {
            name: "iwarp",
            queue_pairs_max: self.config.connections_max,
            send_queue_max: self.config.send_queue_max,
            read_max: 0,
            placing_max: PLACING_MAX,
            turn_events: TURN_EVENTS,
            receive_queue_max: self.config.receive_queue_max,
            receives_each: None,
            registrations_max: self.config.registrations_max,
            ord_max: self.config.ord_max,
            ird_max: self.config.ird_max,
            strategy: Strategy::FastReg,
            posting: None,
            promises: Promises::ALL,
        }
    }

    /// Returns how many more registrations there is room for.
    pub(super) const fn registrations_left(&self) -> usize {
        self.config.registrations_max.saturating_sub(self.stags.in_use())
    }

    /// Lends a send queue to a connection that has work.
    pub(super) fn lend_queue(&mut self) -> Box<TransmitQueue> {
        self.queues.pop().unwrap_or_default()
    }

    /// Takes back a send queue that is empty.
    pub(super) fn return_queue(&mut self, queue: Box<TransmitQueue>) {
        if self.queues.len() < QUEUES_KEPT_MAX {
            self.queues.push(queue);
        }
    }
}

/// Send queues kept for the next connection that has work. If more connections than this have work at once, more are
/// made, and freed again.
const QUEUES_KEPT_MAX: usize = 256;

/// With 128 NULL Calls in flight, 64 a turn gave 1.7 times the rate of 256, and 1.3 times that of 32.
const TURN_EVENTS: usize = 64;
