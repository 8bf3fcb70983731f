//! The fabric itself: starts posted requests and carries packets between nodes, in virtual time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Weak;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{QpNum, Status, WrId};

use super::config::FabricConfig;
use super::node::{Newcomer, Node};
use super::queue_pair::{QueuePair, QueuePairState, Work};
use super::rng::Rng;
use super::schedule::{Body, End, Gone, Message, Packet, Schedule};
use crate::provider::base::Payload;
use crate::provider::{
    DisconnectReason, Event, Head, Outgoing, QueueFull, Receive, Sent, WorkQueue,
};

mod arrivals;
mod connections;
mod messages;

/// Octets of the longest message that is copied, and of what goes ahead of it: less than a Receive, so that tests use
/// both ways of sending.
pub(super) const COPIED_MAX: usize = 1024;

/// The state of a fabric: the clock, the nodes, and the packets between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: FabricConfig,
    /// The latest time any node was polled with.
    pub(super) clock: Instant,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    schedule: Schedule,
    /// Peers that were taken from their listeners and not adopted, by number.
    incoming: BTreeMap<u64, Taken>,
    /// Peers taken from their listeners so far.
    taken: u64,
    /// Buffers to copy into, so that nothing is allocated once they have grown.
    spare: Vec<Vec<u8>>,
}

/// A peer that was taken from its listener.
#[derive(Debug)]
struct Taken {
    newcomer: Newcomer,
    /// The node that took it.
    node: usize,
    /// Has no holder any more once the peer's `Incoming` is gone.
    held: Weak<u64>,
}

impl World {
    pub(super) fn new(config: FabricConfig) -> Self {
        let rng = Rng::new(config.seed);
        Self {
            config,
            clock: Instant::ZERO,
            rng,
            nodes: Vec::new(),
            schedule: Schedule::default(),
            incoming: BTreeMap::new(),
            taken: 0,
            spare: Vec::with_capacity(SPARE_MAX),
        }
    }

    /// Handles everything due by `now`, each event at its own time.
    pub(super) fn advance(&mut self, now: Instant) {
        self.refuse_dropped();
        while let Some((due, packet)) = self.schedule.pop(now) {
            self.clock = self.clock.max(due);
            match packet {
                Packet::Connect { from, peer, to, proposal } => {
                    self.on_connect(from, peer, to, proposal);
                }
                Packet::Refuse { to, reason } => self.fail(to, reason),
                Packet::Message { to, message } => self.on_message(to, message),
                Packet::Ack { to, seq } => self.complete(to, seq, Status::Success),
                Packet::Gone { to, how } => self.on_gone(to, how),
                Packet::Deadline { of } => self.on_deadline(of),
            }
        }
        self.clock = self.clock.max(now);
    }

    /// Returns the time of the next event. Removes deadlines that no longer apply.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        loop {
            let (due, of) = match self.schedule.peek()? {
                (due, Packet::Deadline { of }) => (due, *of),
                (due, _) => return Some(due),
            };
            if self.qp(of).is_some_and(|qp| qp.deadline == Some(due)) {
                return Some(due);
            }
            self.schedule.pop(due);
        }
    }

    pub(super) fn node(&self, at: IpAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.is_at(at))
    }

    pub(super) fn qp(&mut self, end: End) -> Option<&mut QueuePair> {
        self.nodes.get_mut(end.node)?.qp(end.qp)
    }

    // Requests of the consumer.

    /// Copies a message if it is short, and what goes ahead of it; otherwise takes it. It starts with the next post.
    pub(super) fn send_message(
        &mut self,
        end: End,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        if !self.takes_requests(end) {
            return Sent::Gone;
        }
        let Self { nodes, spare, rng, config, .. } = self;
        let Some(qp) = nodes[end.node].qp(end.qp) else { return Sent::Gone };
        let (written, requests) = match message.has_writes() {
            true => (message.written(), message.requests_max()),
            false => (0, 1),
        };
        let is_short = head.octets() <= COPIED_MAX && written <= COPIED_MAX && requests <= 16;
        let percent = u64::from(config.copied_percent);
        let copies = is_short && (percent == 100 || rng.below(0..100) < percent);
        let occupied = qp.occupied();
        if occupied + requests > config.send_queue_max && occupied > 0 {
            return Sent::Full;
        }
        if !copies {
            message.lend(head, id, |request| qp.post(request, Vec::new));
            return Sent::Taken;
        }
        message.copy_writes(|parts, target| {
            let mut copy = spare.pop().unwrap_or_default();
            parts.iter().for_each(|part| copy.extend_from_slice(part));
            qp.post_copied(Work::Write { payload: Payload::Copied(copy), target: *target });
            true
        });
        let mut copy = spare.pop().unwrap_or_default();
        copy.extend_from_slice(message.message(head));
        let invalidate = head.invalidated();
        qp.post_copied(Work::Send { payload: Payload::Copied(copy), invalidate });
        Sent::Copied
    }

    pub(super) fn takes_requests(&mut self, end: End) -> bool {
        let state = self.qp(end).map(|qp| qp.state);
        !matches!(
            state,
            None | Some(
                QueuePairState::Connecting | QueuePairState::Requested | QueuePairState::Abandoned
            )
        )
    }

    pub(super) fn post(&mut self, end: End, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let takes = self.takes_requests(end);
        while !batch.is_empty() {
            if !takes || self.nodes[end.node].room(end.qp) == 0 {
                self.pump(end);
                return Err(QueueFull);
            }
            let Self { nodes, spare, .. } = self;
            let qp = nodes[end.node].qp(end.qp);
            if let (Some(qp), Some(request)) = (qp, batch.pop_front()) {
                qp.post(request, || spare.pop().unwrap_or_default());
            }
        }
        self.pump(end);
        Ok(())
    }

    pub(super) fn post_receives(
        &mut self,
        node: usize,
        batch: &mut Vec<Receive>,
    ) -> Result<(), QueueFull> {
        let own = &mut self.nodes[node];
        let room = own.receives_room().min(batch.len());
        own.post_receives(batch.drain(..room));
        self.feed_starved(node);
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    pub(super) fn reserve_receives(&mut self, end: End, count: u32) {
        self.nodes[end.node].reserve_receives(end.qp, count);
        self.feed_starved(end.node);
    }

    // Faults of a node or a connection from outside.

    /// Ends a connection at both ends, now and without notice.
    pub(super) fn sever(&mut self, end: End) {
        let peer = self.qp(end).and_then(|qp| qp.peer);
        for end in [Some(end), peer].into_iter().flatten() {
            self.on_gone(end, Gone::Lost);
        }
    }

    /// Removes a node, and tells its peers that their connections are lost.
    pub(super) fn retire(&mut self, node: usize) {
        let own: Vec<QpNum> = self.nodes[node].qps().collect();
        for qp in own {
            let end = End { node, qp };
            self.tell_peer(end, Gone::Lost);
            self.nodes[node].remove(qp);
        }
        for Newcomer { from, .. } in std::mem::take(&mut self.nodes[node].arrivals) {
            self.send_alone(node, Packet::Gone { to: from, how: Gone::Lost });
        }
        self.nodes[node].retire();
        self.let_go();
    }

    /// Ends what waited for nodes that stood still and do so no more.
    pub(super) fn let_go(&mut self) {
        let clock = self.clock;
        for node in 0..self.nodes.len() {
            for qp in std::mem::take(&mut self.nodes[node].held) {
                if self.is_held(End { node, qp }) {
                    self.nodes[node].held.push(qp);
                } else {
                    self.nodes[node].report_end(clock, qp);
                }
            }
            let open: Vec<QpNum> = self.nodes[node].qps().collect();
            open.into_iter().for_each(|qp| self.pump(End { node, qp }));
        }
    }

    /// Returns whether the peer of a queue pair stands still in the middle of copying from or to memory opened to it.
    fn is_held(&mut self, end: End) -> bool {
        let peer = self.qp(end).and_then(|qp| qp.peer);
        peer.is_some_and(|peer| self.nodes[peer.node].copies)
    }

    // The steps of entries of send queues.

    /// Starts every entry that may start now, and reports those that ended.
    fn pump(&mut self, end: End) {
        while let Some(qp) = self.qp(end) {
            if qp.begins_with_invalidation() && self.is_held(end) {
                break;
            }
            let Some(seq) = self.qp(end).and_then(QueuePair::start) else { break };
            self.start(end, seq);
        }
        self.settle(end);
    }

    fn start(&mut self, end: End, seq: u64) {
        let carriage = match self.rng.below(0..100) < u64::from(self.config.eager_percent) {
            true => Carriage::Copy,
            false => Carriage::InPlace,
        };
        let Self { nodes, spare, .. } = self;
        let node = &mut nodes[end.node];
        let Some(qp) = node.qp(end.qp) else { return };
        let may_read = qp.ord > 0;
        let Some(entry) = qp.entry(seq) else { return };
        let started = match std::mem::replace(&mut entry.work, Work::Nothing) {
            Work::Send { payload, invalidate } => {
                node.counters.sends += 1;
                let (body, kept) = carry(seq, payload, carriage, spare);
                let kept = kept.map(|payload| Work::Send { payload, invalidate });
                Started::Sent(Message::Send { body, invalidate }, kept)
            }
            Work::Write { payload, target } if payload.bytes().len() == octets(target.length()) => {
                node.counters.tagged_sent += u64::from(target.length());
                let (body, kept) = carry(seq, payload, carriage, spare);
                let kept = kept.map(|payload| Work::Write { payload, target });
                Started::Sent(Message::Write { body, target }, kept)
            }
            Work::Read { sink, source } if may_read && sink.len() == octets(source.length()) => {
                let kept = Work::Read { sink, source };
                Started::Sent(Message::ReadRequest { seq, source }, Some(kept))
            }
            Work::LocalInv { handle } if node.stags.invalidate(handle, end.qp).is_ok() => {
                node.counters.invalidated_local += 1;
                if let Some(entry) = node.qp(end.qp).and_then(|qp| qp.entry(seq)) {
                    entry.invalidated = Some(handle);
                }
                Started::Ended(Status::Success)
            }
            Work::LocalInv { .. } | Work::Write { .. } | Work::Read { .. } | Work::Nothing => {
                Started::Ended(Status::LocalFault)
            }
        };
        let Some(qp) = self.qp(end) else { return };
        match started {
            Started::Ended(status) => qp.complete(seq, status),
            Started::Sent(message, kept) => {
                match (kept, qp.entry(seq)) {
                    (Some(work), Some(entry)) => entry.work = work,
                    _ => qp.complete(seq, Status::Success),
                }
                self.send(end, message);
            }
        }
    }

    /// Ends one entry, and starts and reports the entries that waited for it.
    fn complete(&mut self, end: End, seq: u64, status: Status) {
        if let Some(qp) = self.qp(end).filter(|qp| qp.is_live()) {
            qp.complete(seq, status);
            self.pump(end);
        }
    }

    /// Reports entries that ended, in order; ends the connection if one failed, and closes it once everything that had
    /// to be sent has been.
    fn settle(&mut self, end: End) {
        let clock = self.clock;
        let node = &mut self.nodes[end.node];
        if node.qp(end.qp).is_none_or(|qp| !qp.is_live()) {
            return;
        }
        while let Some(entry) = node.qp(end.qp).and_then(QueuePair::pop_succeeded) {
            node.report_entry(clock, end.qp, &entry);
        }
        let Some(qp) = node.qp(end.qp) else { return };
        if let Some(fault) = qp.fault() {
            self.end(end, DisconnectReason::Local, Some(fault));
            self.tell_peer(end, Gone::Lost);
        } else if qp.is_drained() {
            qp.state = QueuePairState::Closed;
            self.send(end, Message::Close);
        }
    }

    /// Ends a connection at one end: drops every view that its queue holds, and reports the end. Its registrations,
    /// which no peer reaches any more, go with the queue pair: at once, or when a peer that is copying lets go.
    fn end(&mut self, end: End, reason: DisconnectReason, failed: Option<(u64, Status)>) {
        let (clock, is_held) = (self.clock, self.is_held(end));
        let node = &mut self.nodes[end.node];
        let Some(qp) = node.qp(end.qp).filter(|qp| qp.is_live()) else { return };
        qp.end(failed);
        let inbound = std::mem::take(&mut qp.inbound);
        node.report(clock, Event::Disconnected { qp: end.qp, reason });
        if is_held {
            node.report_flush(clock, end.qp);
            node.held.push(end.qp);
        } else {
            node.report_end(clock, end.qp);
        }
        for message in inbound {
            self.reuse(message);
        }
    }

    // Messages on their way.

    /// Sends the next message of a connection; it arrives after those before it.
    fn send(&mut self, from: End, message: Message) {
        let due = self.arrival();
        let muted = self.nodes[from.node].muted;
        let Some(qp) = self.qp(from) else { return };
        qp.cut |= muted;
        qp.last_due = qp.last_due.max(due);
        let (due, peer) = (qp.last_due, qp.peer.filter(|_| !qp.cut));
        match peer {
            Some(to) => self.schedule.push(due, Packet::Message { to, message }),
            None => self.reuse(message),
        }
    }

    /// Notifies the peer of `from`, behind all messages sent to it, that nothing more will come.
    fn tell_peer(&mut self, from: End, how: Gone) {
        let due = self.arrival();
        let muted = self.nodes[from.node].muted;
        let Some(qp) = self.qp(from).filter(|qp| !muted && !qp.cut) else { return };
        if let Some(to) = qp.peer {
            let due = qp.last_due.max(due);
            self.schedule.push(due, Packet::Gone { to, how });
        }
    }

    /// Sends a packet outside any connection's order.
    fn send_alone(&mut self, from: usize, packet: Packet) {
        let due = self.arrival();
        if !self.nodes[from].muted {
            self.schedule.push(due, packet);
        }
    }

    /// Tells the peer that its request `seq` was carried out, once the node `at` is heard: an RNIC asks again for an
    /// acknowledgement that does not come.
    fn acknowledge(&mut self, at: End, to: End, seq: u64) {
        if self.nodes[at.node].muted {
            self.nodes[at.node].unheard.push((at.qp, to, seq));
        } else {
            self.send_alone(at.node, Packet::Ack { to, seq });
        }
    }

    /// Delivers the messages of a node again. A connection that lost a message stays silent.
    pub(super) fn unmute(&mut self, node: usize) {
        self.nodes[node].muted = false;
        for (qp, to, seq) in std::mem::take(&mut self.nodes[node].unheard) {
            if self.qp(End { node, qp }).is_some_and(|qp| !qp.cut) {
                self.send_alone(node, Packet::Ack { to, seq });
            }
        }
    }

    fn set_deadline(&mut self, of: End, after: Duration) {
        let deadline = self.clock.saturating_add(after);
        if let Some(qp) = self.qp(of) {
            qp.deadline = Some(deadline);
            self.schedule.push(deadline, Packet::Deadline { of });
        }
    }

    /// Draws the time at which a message sent now arrives.
    fn arrival(&mut self) -> Instant {
        let (min, max) = (self.config.latency_min_ns, self.config.latency_max_ns);
        let latency = self.rng.below(min..max.max(min).saturating_add(1));
        self.clock.saturating_add(Duration::from_nanos(latency))
    }

    fn take_spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the buffer of a message that was delivered, or will not be.
    fn reuse(&mut self, message: Message) {
        match message {
            Message::Send { body: Body::Copied { bytes, .. }, .. }
            | Message::Write { body: Body::Copied { bytes, .. }, .. }
            | Message::ReadResponse { bytes, .. } => reuse(&mut self.spare, bytes),
            _ => {}
        }
    }
}

/// The outcome of starting an entry.
enum Started {
    /// The entry ended without the peer.
    Ended(Status),
    /// The entry's message is on its way; `Work` stays behind until the peer is done, unless the message has a copy.
    Sent(Message, Option<Work>),
}

/// The way in which a message carries the payload of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carriage {
    /// The message carries a copy of the payload.
    Copy,
    /// The payload stays in the lease, and is read when the message arrives.
    InPlace,
}

/// Returns the body of the message, and the payload that stays behind.
fn carry(
    seq: u64,
    payload: Payload,
    carriage: Carriage,
    spare: &mut Vec<Vec<u8>>,
) -> (Body, Option<Payload>) {
    match payload {
        Payload::Copied(bytes) => (Body::Copied { seq, bytes }, None),
        Payload::View(source) if carriage == Carriage::Copy => {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.extend_from_slice(source.bytes());
            (Body::Copied { seq, bytes }, None)
        }
        view @ Payload::View(_) => (Body::Posted { seq }, Some(view)),
    }
}

fn reuse(spare: &mut Vec<Vec<u8>>, mut bytes: Vec<u8>) {
    if spare.len() < SPARE_MAX {
        bytes.clear();
        spare.push(bytes);
    }
}

const fn octets(length: u32) -> usize {
    length as usize
}

const SPARE_MAX: usize = 64;
