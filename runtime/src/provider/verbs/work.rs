//! Work requests: posting them, and handling their completions.

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Completion, Handle, Opcode, QpNum, Segment, Status, WrId};

use super::connection::{Objects, Phase};
use super::state::Verbs;
use crate::provider::{
    DisconnectReason, Done, Event, Head, OpenResult, Outgoing, QueueFull, Refused, Sent, WorkQueue,
    expose,
};
use crate::sys::ibverbs::{Arrival, Ended, Polled, QueuePair, Region, WorkStatus, sequence_of};

impl Verbs {
    /// Takes a message, to be posted with the next doorbell.
    pub(super) fn send_message(
        &mut self,
        qp: QpNum,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase.is_open()) else {
            return Sent::Gone;
        };
        let Objects::Pair(pair) = &connection.objects else { return Sent::Gone };
        let own = pair.occupied();
        let room = self.share.room(self.occupied, own).min(pair.free()) as usize;
        let waiting = connection.bindings.len() + connection.chained.len();
        if waiting + message.requests_max() > room && (own > 0 || waiting > 0) {
            return Sent::Full;
        }
        message.lend(head, id, |request| connection.chained.push_back(request));
        Sent::Taken
    }

    /// Posts what was chained, and a prefix of `batch`. What does not fit is left in `batch`.
    pub(super) fn post_work(&mut self, qp: QpNum, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase.is_open()) else {
            return Err(QueueFull);
        };
        let Objects::Pair(pair) = &mut connection.objects else { return Err(QueueFull) };
        while let Some(request) = connection.chained.pop_back() {
            batch.push_front(request);
        }
        let own = &connection.regions;
        let regions = if own.is_empty() { &self.regions } else { own };
        let before = pair.occupied();
        let room = self.share.room(self.occupied, before);
        let (mut is_wrong, mut is_refused) = (false, false);
        let bindings = &mut connection.bindings;
        while (!bindings.is_empty() || !batch.is_empty()) && !is_wrong {
            let mut doorbell = pair.doorbell(&mut self.chain, regions, qp);
            let mut added = 0;
            while doorbell.occupied() - before < room && !is_wrong {
                let result =
                    if let Some(binding) = bindings.pop_front_if(|_| doorbell.fits_binding()) {
                        let window = self.registrations.window(binding.handle, qp);
                        window.ok_or(()).and_then(|window| doorbell.bind(window, binding))
                    } else if bindings.is_empty()
                        && let Some(request) = batch.pop_front_if(|request| doorbell.fits(request))
                    {
                        let carried_out = self.registrations.carried_out(&request.operation, qp);
                        doorbell.add(request, carried_out)
                    } else {
                        break;
                    };
                is_wrong = result.is_err();
                added += 1;
            }
            is_refused = doorbell.ring().is_err();
            if added == 0 || is_refused {
                break;
            }
        }
        self.occupied += (pair.occupied() - before) as usize;
        // Requests recorded as posted are flushed.
        if is_wrong {
            self.end(self.now, qp, DisconnectReason::Local);
        } else if is_refused {
            self.end(self.now, qp, DisconnectReason::Lost);
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Opens a lease to the peer, at once or by a work request ahead of the next post.
    pub(super) fn open(&mut self, qp: QpNum, lease: Local, access: Access) -> OpenResult {
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
        connection.bindings.extend(registrations.open(handle, qp, memory));
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
            connection.is_unheard = false;
            connection.phase
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
                    connection.early.push(*polled);
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
        let is_over = connection.phase == Phase::Flushing;
        let Objects::Pair(pair) = &mut connection.objects else { return };
        let mut ended = std::mem::take(&mut self.ended);
        let before = pair.occupied();
        pair.completed(sequence, polled.status, |one| ended.push(one));
        self.occupied -= (before - pair.occupied()) as usize;
        for one in ended.drain(..) {
            let is_late = is_over && one.is_signaled;
            let status = if is_late { late_status(one.status) } else { status(one.status) };
            self.on_ended(qp, &one, status);
        }
        self.ended = ended;
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

    /// Posts a mark: a request that completes after everything before it.
    pub(super) fn mark(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        let Objects::Pair(pair) = &mut connection.objects else { return };
        let before = pair.occupied();
        let mut doorbell = pair.doorbell(&mut self.chain, &self.regions, qp);
        if doorbell.mark() {
            // If the device refuses, nothing comes back, and a deadline notices that.
            let _ = doorbell.ring();
        }
        self.occupied += (pair.occupied() - before) as usize;
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
        self.receives.unused(arrival, polled, &mut self.slots, &self.regions);
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
        self.occupied -= pair.occupied() as usize;
        self.receives.left(qp, pair.destroy(each));
        if self.receives.shared().is_none() {
            // The device's reports of Receives are taken out of the completion queue first: it has only one place for
            // each Receive.
            self.reap(now, usize::MAX);
            self.receives.deal(&mut self.slots, &self.regions);
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
