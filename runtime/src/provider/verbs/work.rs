//! Work requests: posting them, and handling their completions.
//!
//! # Normal operation
//!
//! A short message is copied while the send queue has room. No completion reports it, so a core that is told to wait
//! while only copies are outstanding would wait for ever. Therefore it is told to ([`Sent::Full`], or requests left in
//! the batch) only while the connection owes it the report of a request. Otherwise requests are taken, room or not, up
//! to one whose report is owed from then on.
//!
//! What was taken and has no room waits ([`Outbound`](super::outbound::Outbound)). A connection has no room only if it occupies at least its share of
//! entries. The last request of each doorbell asks for a completion, and each completion posts what is due: it does not
//! wait for ever, either.

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Completion, Handle, Opcode, QpNum, Segment, Status, WrId};

use super::connection::{Connection, Objects, Phase};
use super::copies::COPY_MAX;
use super::outbound::{Chained, Next};
use super::state::Verbs;
use crate::provider::{
    DisconnectReason, Done, Event, Head, OpenResult, Outgoing, QueueFull, Refused, Sent, WorkQueue,
    WorkRequest, expose,
};
use crate::sys::ibverbs::{Arrival, Ended, Polled, QueuePair, Region, WorkStatus, sequence_of};

impl Verbs {
    /// Copies a message, or takes it, to be posted with the next doorbell.
    pub(super) fn send_message(
        &mut self,
        qp: QpNum,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase().is_open()) else {
            return Sent::Gone;
        };
        let Objects::Pair(pair) = &connection.objects else { return Sent::Gone };
        let room = self.entries.room(pair.occupied()).min(pair.free()) as usize;
        let fits = connection.outbound.waiting() + message.requests_max() <= room;
        if !fits && connection.owes_report() {
            return Sent::Full;
        }
        let is_short = fits && !message.has_writes() && head.octets() <= COPY_MAX;
        if is_short && let Some(copy) = self.memory.copy(message.message(head)) {
            connection.outbound.chain(Chained::Copy(copy, head.invalidated()));
            self.counters.sends += 1;
            return Sent::Copied;
        }
        let outbound = &mut connection.outbound;
        message.lend(head, id, |request| outbound.chain(Chained::Request(request)));
        Sent::Taken
    }

    /// Rings the doorbell for what was chained, and posts a prefix of `batch`. Leaves the rest only if a completion
    /// will tell the core to go on.
    pub(super) fn post_work(&mut self, qp: QpNum, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase().is_open()) else {
            return Err(QueueFull);
        };
        connection.outbound.ring();
        self.ring(qp, batch);
        let connection = self.slots.get(qp).filter(|c| c.phase().is_open());
        if let Some(connection) = connection.filter(|c| !batch.is_empty() && !c.owes_report()) {
            connection.outbound.take_reported(batch);
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Posts what the doorbell was rung for, and a prefix of `batch`, as far as there is room.
    fn ring(&mut self, qp: QpNum, batch: &mut WorkQueue) {
        let Some(Connection { objects, regions, outbound, .. }) = self.slots.get(qp) else {
            return;
        };
        let Objects::Pair(pair) = objects else { return };
        let regions = if regions.is_empty() { self.memory.regions() } else { &*regions };
        let before = pair.occupied();
        let room = self.entries.room(before);
        let (mut is_wrong, mut is_refused) = (false, false);
        while (outbound.has_next() || !batch.is_empty()) && !is_wrong {
            let mut doorbell = pair.doorbell(&mut self.chain, regions, qp);
            let mut added = 0;
            while doorbell.occupied() - before < room && !is_wrong {
                let Some(next) = outbound.next(batch, &doorbell) else { break };
                let result = match next {
                    Next::Bind(binding) => {
                        let window = self.registrations.window(binding.handle, qp);
                        window.ok_or(()).and_then(|window| doorbell.bind(window, binding))
                    }
                    Next::Post(Chained::Copy(copy, invalidate)) => {
                        doorbell.add_copy(copy, invalidate)
                    }
                    Next::Post(Chained::Request(request)) => {
                        let operation = &request.operation;
                        let carried_out = self.registrations.carried_out(operation, qp);
                        doorbell.add(request, carried_out)
                    }
                };
                is_wrong = result.is_err();
                added += 1;
            }
            is_refused = doorbell.ring().is_err();
            if added == 0 || is_refused {
                break;
            }
        }
        self.entries.settle(before, pair.occupied());
        // Requests recorded as posted are flushed.
        if is_wrong {
            self.end(self.now, qp, DisconnectReason::Local);
        } else if is_refused {
            self.end(self.now, qp, DisconnectReason::Lost);
        }
    }

    /// Opens a lease to the peer, at once or by a work request ahead of the next post.
    pub(super) fn open(&mut self, qp: QpNum, lease: Local, access: Access) -> OpenResult {
        let Self { slots, memory, registrations, .. } = self;
        let Some(connection) = slots.get(qp).filter(|connection| connection.phase().is_open())
        else {
            return Err((lease, Refused::Gone));
        };
        let Ok(length) = u32::try_from(lease.len()) else { return Err((lease, Refused::TooLong)) };
        let scrap = memory.regions().first().map(Region::scrap);
        let reserved = registrations.reserve((qp, connection.domain()), &lease, access, scrap);
        let Some(handle) = reserved else { return Err((lease, Refused::Full)) };
        let offset = registrations.offset(&lease);
        let (exposed, opened) = expose(lease, handle, access);
        if let Some(binding) = registrations.open(handle, qp, opened) {
            connection.outbound.bind(binding);
        }
        Ok((exposed, Segment { handle, length, offset }))
    }

    /// Takes completions until there are none, or `budget` events are to be reported. Returns whether there were any.
    pub(super) fn reap(&mut self, now: Instant, budget: usize) -> bool {
        let mut any = false;
        while self.reports.len() < budget {
            let mut polled = std::mem::take(&mut self.polled);
            self.queue.poll(&mut polled);
            let is_dry = polled.is_empty();
            any |= !is_dry;
            for one in polled.drain(..) {
                self.on_completion(now, &one);
            }
            self.polled = polled;
            if is_dry {
                break;
            }
        }
        any
    }

    pub(super) fn on_completion(&mut self, now: Instant, polled: &Polled) {
        match Arrival::of(polled.name) {
            Some(arrival) => self.on_receive(now, arrival, polled),
            None => self.on_work(now, polled),
        }
    }

    fn on_receive(&mut self, now: Instant, arrival: Arrival, polled: &Polled) {
        let qp = self.user_of(arrival, polled.number);
        let phase = qp.and_then(|qp| self.slots.get(qp)).map(|connection| {
            connection.inbound.hear();
            connection.phase()
        });
        let (Some(qp), WorkStatus::Success) = (qp, polled.status) else {
            self.unused(arrival, polled);
            let rule = match polled.status {
                WorkStatus::Success | WorkStatus::Flushed => return,
                WorkStatus::Local => "a message longer than its Receive",
                _ => "a message that is not permitted",
            };
            if let Some(qp) = qp {
                self.end(now, qp, DisconnectReason::PeerMisbehaved(rule));
            }
            return;
        };
        match phase {
            // The peer sends only once it knows that we accepted.
            Some(Phase::Accepting) => self.on_established(now, qp, None),
            Some(Phase::Resolving | Phase::Connecting) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.inbound.keep(*polled);
                }
                return;
            }
            // The connection has been reported as ended. The message is not reported, so nothing depends on it; a
            // window that it closed is taken away with the connection, or is void if it is another's.
            Some(Phase::Flushing | Phase::Requested | Phase::Gone) | None => {
                polled.invalidated.into_iter().for_each(|handle| self.registrations.stolen(handle));
                self.unused(arrival, polled);
                return;
            }
            Some(Phase::Established | Phase::Closing) => {}
        }
        let invalidated = polled.invalidated;
        if invalidated.is_some_and(|handle| !self.registrations.closed_by_peer(handle, qp)) {
            // Soft-RoCE checks only the key, not its owner.
            invalidated.into_iter().for_each(|handle| self.registrations.stolen(handle));
            self.unused(arrival, polled);
            let rule = "an invalidation of a handle it was not granted";
            return self.end(now, qp, DisconnectReason::PeerMisbehaved(rule));
        }
        self.counters.invalidated_remote += u64::from(invalidated.is_some());
        self.counters.receives += 1;
        let taken = self.receives.taken(arrival, &mut self.slots);
        let Some(id) = taken else { return };
        let (opcode, status, length) = (Opcode::Receive, Status::Success, polled.length);
        self.report(Completion { id, qp, opcode, status, length, invalidated });
    }

    fn on_work(&mut self, now: Instant, polled: &Polled) {
        let (qp, sequence) = sequence_of(polled.name);
        // The completion queue may still hold completions of a connection that is gone.
        if self.slots.get(qp).is_none() {
            return;
        }
        if let Some(reason) = reason(polled.status) {
            self.end(now, qp, reason);
        }
        let Some(connection) = self.slots.get(qp) else { return };
        let is_over = connection.phase() == Phase::Flushing;
        let Objects::Pair(pair) = &mut connection.objects else { return };
        let mut ended = std::mem::take(&mut self.ended);
        let before = pair.occupied();
        pair.completed(sequence, polled.status, |one| ended.push(one));
        self.entries.settle(before, pair.occupied());
        for one in ended.drain(..) {
            let is_late = is_over && one.is_signaled;
            let status = if is_late { late_status(one.status) } else { status(one.status) };
            self.on_ended(qp, &one, status);
        }
        self.ended = ended;
        // Entries are free again.
        if self.slots.get(qp).is_some_and(|c| !is_over && c.outbound.has_due()) {
            self.ring(qp, &mut WorkQueue::new());
        }
    }

    /// Reports the end of a work request. Its views are dropped.
    pub(super) fn on_ended(&mut self, qp: QpNum, ended: &Ended, status: Status) {
        let Some((id, opcode)) = ended.named else { return };
        let mut invalidated: Option<Handle> = None;
        if status == Status::Success {
            match opcode {
                Opcode::Send => self.counters.sends += 1,
                Opcode::Write => self.counters.tagged_sent += ended.octets,
                Opcode::Read => {
                    self.counters.tagged_received += ended.octets;
                    self.counters.bytes_direct += ended.octets;
                }
                Opcode::LocalInv => {
                    invalidated = ended.handle;
                    let closed =
                        invalidated.is_some_and(|handle| self.registrations.closed(handle, qp));
                    self.counters.invalidated_local += u64::from(closed);
                }
                Opcode::Receive => {}
            }
            if !ended.is_signaled {
                return;
            }
        }
        self.report(Completion { id, qp, opcode, status, length: 0, invalidated });
    }

    /// Reports that a request was never posted, as its connection is over. Its view is dropped first.
    pub(super) fn on_unposted(&mut self, qp: QpNum, chained: Chained) {
        let Chained::Request(WorkRequest { id, operation, .. }) = chained else { return };
        let (opcode, status) = (operation.opcode(), Status::Flushed);
        drop(operation);
        self.report(Completion { id, qp, opcode, status, length: 0, invalidated: None });
    }

    /// Posts a mark: a request that completes after everything before it.
    pub(super) fn mark(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        let Objects::Pair(pair) = &mut connection.objects else { return };
        let before = pair.occupied();
        let mut doorbell = pair.doorbell(&mut self.chain, self.memory.regions(), qp);
        if doorbell.mark() {
            // If the device refuses, nothing comes back, and a deadline notices that.
            let _ = doorbell.ring();
        }
        self.entries.settle(before, pair.occupied());
    }

    /// Returns the queue pair that used a completed Receive, if it is still there.
    fn user_of(&self, arrival: Arrival, number: u32) -> Option<QpNum> {
        match arrival {
            Arrival::Shared(_) => self.numbers.get(number),
            Arrival::Own(qp, _) => self.slots.peek(qp).map(|_| qp),
        }
    }

    /// Puts back a Receive whose completion is not reported.
    pub(super) fn unused(&mut self, arrival: Arrival, polled: &Polled) {
        self.receives.unused(arrival, polled, &mut self.slots, self.memory.regions());
    }

    /// Destroys a queue pair. Each request that its send queue still held is handed to `each`.
    pub(super) fn destroy(
        &mut self,
        now: Instant,
        qp: QpNum,
        pair: QueuePair,
        each: impl FnMut(Ended),
    ) {
        self.numbers.remove(pair.number());
        self.entries.settle(pair.occupied(), 0);
        self.receives.left(qp, pair.destroy(each));
        if self.receives.shared().is_none() {
            // The device's reports of Receives are taken out of the completion queue first: it has only one place for
            // each Receive.
            self.reap(now, usize::MAX);
            self.receives.deal(&mut self.slots, self.memory.regions());
        }
    }

    fn report(&mut self, completion: Completion) {
        self.reports.push_back(Event::Completion(Done::new(completion)));
    }
}

/// Returns the reason that a completed work request ends its connection, if it does.
const fn reason(status: WorkStatus) -> Option<DisconnectReason> {
    // Terminate codes: RFC 5040 section 4.8 (layer 0), RFC 5041 section 8 (layer 1).
    match status {
        WorkStatus::Success => None,
        WorkStatus::Local => Some(DisconnectReason::Local),
        WorkStatus::RemoteAccess => {
            Some(DisconnectReason::Terminated { layer: 0, etype: 1, code: 2 })
        }
        WorkStatus::RemoteInvalid => {
            Some(DisconnectReason::Terminated { layer: 1, etype: 2, code: 5 })
        }
        WorkStatus::Flushed | WorkStatus::NoReceive | WorkStatus::Lost => {
            Some(DisconnectReason::Lost)
        }
    }
}

/// Returns the status of work that ended after its connection was over: a request that succeeded is not known to have
/// arrived.
const fn late_status(ended: WorkStatus) -> Status {
    match status(ended) {
        Status::Success => Status::Flushed,
        failed => failed,
    }
}

const fn status(status: WorkStatus) -> Status {
    match status {
        WorkStatus::Success => Status::Success,
        WorkStatus::Local => Status::LocalFault,
        WorkStatus::RemoteAccess => Status::RemoteAccess,
        _ => Status::Flushed,
    }
}
