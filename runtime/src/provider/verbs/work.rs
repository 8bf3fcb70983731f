//! Work requests: posting them, and what becomes of them.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{Completion, Handle, Opcode, QpNum, Status};

use super::Verbs;
use super::connection::{Objects, Phase};
use crate::provider::{DisconnectReason, Done, Event, QueueFull, Quiesced, WorkQueue};
use crate::sys::ibverbs::{Arrival, Ended, Polled, WorkStatus, sequence_of};

impl Verbs {
    /// Posts a prefix of `batch`.
    pub(super) fn post_work(&mut self, qp: QpNum, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let Some(connection) = self.slots.get(qp).filter(|c| c.phase.is_open()) else {
            return Err(QueueFull);
        };
        let Objects::Pair(pair) = &mut connection.objects else { return Err(QueueFull) };
        while let Some(request) = connection.opening.pop_back() {
            batch.push_front(request);
        }
        let own = &connection.regions;
        let regions = if own.is_empty() { &self.regions } else { own };
        let before = pair.occupied();
        let room = self.share.room(self.occupied, before);
        let (mut is_wrong, mut is_refused) = (false, false);
        while !batch.is_empty() && !is_wrong {
            let mut doorbell = pair.doorbell(&mut self.chain, regions, qp);
            let mut added = 0;
            while let Some(request) = batch.front()
                && doorbell.fits(request)
                && doorbell.occupied() - before < room
                && !is_wrong
            {
                let subject = self.registrations.subject(&request.operation, qp);
                let Some(request) = batch.pop_front() else { break };
                is_wrong = doorbell.add(request, subject).is_err();
                added += 1;
            }
            is_refused = doorbell.ring().is_err();
            if added == 0 || is_refused {
                break;
            }
        }
        self.occupied += (pair.occupied() - before) as usize;
        // What is remembered as posted is flushed.
        if is_wrong {
            self.end(self.now, qp, DisconnectReason::Local);
        } else if is_refused {
            self.end(self.now, qp, DisconnectReason::Lost);
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Takes completions until there are none, or `budget` events are to be reported. Returns whether
    /// there were any.
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
                _ => "a message that asks for what it may not have",
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
            // It has been reported gone. Nobody is told of the message, so nobody may count on it; a
            // window it closed is taken away with the connection, if it is not another's.
            Some(Phase::Flushing | Phase::Requested | Phase::Gone) | None => {
                polled.invalidated.into_iter().for_each(|handle| self.registrations.stolen(handle));
                self.unused(arrival, polled);
                return;
            }
            Some(Phase::Established | Phase::Closing) => {}
        }
        let invalidated = polled.invalidated;
        if invalidated.is_some_and(|handle| !self.registrations.closed_by_peer(handle, qp)) {
            // Soft-RoCE asks only for the key, not whose it is.
            invalidated.into_iter().for_each(|handle| self.registrations.stolen(handle));
            self.unused(arrival, polled);
            let rule = "an invalidation of a handle it was not granted";
            return self.end(now, qp, DisconnectReason::PeerMisbehaved(rule));
        }
        self.counters.invalidated_remote += u64::from(invalidated.is_some());
        self.counters.receives += 1;
        let Some(id) = self.taken(arrival) else { return };
        let (opcode, status, length) = (Opcode::Receive, Status::Success, polled.length);
        self.report(Completion { id, qp, opcode, status, length, invalidated });
    }

    fn on_work(&mut self, now: Instant, polled: &Polled) {
        let (qp, sequence) = sequence_of(polled.name);
        // Of one that is gone there may still be completions in the queue.
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
            self.on_ended(qp, &one, status(one.status, is_late));
        }
        self.ended = ended;
    }

    /// A work request is over. Its views are dropped.
    fn on_ended(&mut self, qp: QpNum, ended: &Ended, status: Status) {
        if ended.is_mark {
            return;
        }
        let mut invalidated: Option<Handle> = None;
        if status == Status::Success {
            match ended.opcode {
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
                Opcode::FastReg | Opcode::Receive => {}
            }
            if !ended.is_signaled {
                return;
            }
        }
        let (id, opcode) = (ended.id, ended.opcode);
        self.report(Completion { id, qp, opcode, status, length: 0, invalidated });
    }

    /// Ends a connection: tells the core, fails the queue pair, and waits for what it gives back.
    pub(super) fn end(&mut self, now: Instant, qp: QpNum, reason: DisconnectReason) {
        let Some(connection) = self.slots.get(qp) else { return };
        let reason = match connection.phase {
            Phase::Flushing | Phase::Requested | Phase::Gone => return,
            Phase::Resolving | Phase::Connecting => {
                return self.failed(qp, super::ConnectError::Refused);
            }
            // We are going; what hurries it does not matter.
            Phase::Closing => DisconnectReason::Local,
            Phase::Accepting | Phase::Established => reason,
        };
        connection.phase = Phase::Flushing;
        connection.deadline = now.saturating_add(FLUSH_TIMEOUT);
        if let Some(id) = connection.id() {
            // It fails if the peer was faster; the queue pair has failed or will when it goes.
            let _ = id.disconnect();
        }
        self.mark(qp);
        self.attend_to(qp);
        self.reports.push_back(Event::Disconnected { qp, reason });
    }

    /// Posts a mark: what comes back after everything before it.
    pub(super) fn mark(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        let Objects::Pair(pair) = &mut connection.objects else { return };
        let before = pair.occupied();
        let mut doorbell = pair.doorbell(&mut self.chain, &self.regions, qp);
        if doorbell.mark() {
            // A device that refuses says by a deadline that nothing comes back.
            let _ = doorbell.ring();
        }
        self.occupied += (pair.occupied() - before) as usize;
    }

    /// Takes away what is left of a connection whose queue pair has failed.
    pub(super) fn dismantle(&mut self, now: Instant, qp: QpNum) {
        self.reap(now, usize::MAX);
        // Windows first: soft-RoCE keeps a queue pair alive while a window is bound to it. The queue pair
        // has failed, so the peer reaches nothing by the others either.
        let Some(connection) = self.slots.get(qp) else { return };
        connection.opening.clear();
        self.registrations.release(qp);
        connection.phase = Phase::Gone;
        let objects = std::mem::replace(&mut connection.objects, Objects::Nothing);
        if let Objects::Pair(pair) = objects {
            let mut left = Vec::new();
            self.destroy(now, qp, pair, |ended| left.push(ended));
            left.iter().for_each(|ended| self.on_ended(qp, ended, Status::Flushed));
        }
        self.reports.push_back(Event::Quiesced(Quiesced::new(qp)));
    }

    fn report(&mut self, completion: Completion) {
        self.reports.push_back(Event::Completion(Done::new(completion)));
    }
}

/// How completion queue entries are shared out: a queue pair always has its share, and more while
/// others leave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Entries in all.
    pub(super) all: usize,
    /// Entries of each queue pair.
    pub(super) each: u32,
    /// Queue pairs there can be.
    pub(super) queue_pairs: usize,
}

impl Share {
    /// Returns how many more entries a queue pair with `own` may take, `all` being taken.
    fn room(self, all: usize, own: u32) -> u32 {
        let others = self.queue_pairs.saturating_sub(1) * self.each as usize;
        let free = self.all.saturating_sub(others).saturating_sub(all);
        self.each.saturating_sub(own).max(u32::try_from(free).unwrap_or(u32::MAX))
    }
}

/// Tells why a connection is over whose work request ended so, if it is.
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

const fn status(status: WorkStatus, is_late: bool) -> Status {
    match status {
        WorkStatus::Success if !is_late => Status::Success,
        WorkStatus::Local => Status::LocalFault,
        WorkStatus::RemoteAccess => Status::RemoteAccess,
        _ => Status::Flushed,
    }
}

/// How long a queue pair that has failed may take to give back what it holds. Then it is destroyed all
/// the same: what it holds then is counted as lost.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_for_those_who_do_not_use_them() {
        let share = Share { all: 100, each: 10, queue_pairs: 5 };
        assert_eq!(share.room(0, 0), 60, "all but the others' shares");
        assert_eq!(share.room(60, 0), 10, "one that has nothing has its share");
        assert_eq!(share.room(60, 60), 0);
        assert_eq!(share.room(50, 30), 10);
        assert_eq!(share.room(50, 4), 10, "the larger of both");
    }
}
