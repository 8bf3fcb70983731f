//! Departures on an open connection: work requests, carried out in the order they were posted.
//!
//! # Normal operation
//!
//! A Send that fits into the ring is copied there as it is posted, and the messages of one `post` become visible to the
//! peer at once. A Write is copied straight to its place, one copy, as it is posted; a Read is, as the next `poll`
//! begins. A request that cannot be carried out (the ring is full; a handle's memory is being copied; enough octets
//! were moved for one call) waits in order, and everything behind it waits, too.
//!
//! What is not posted leaves through the port (`shm/port.rs`).

use haulage_proto::iwarp::terminate::{Code, Fault};
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, Opcode, Status};

use super::connection::Connection;
use super::ended::{BAD_RING, Ended};
use super::entry::{Entry, Work};
use super::leaving::{MOVED_PER_CALL, PUBLISH_BEFORE, kind};
use super::nic::Nic;
use super::port::{Outflow, RingPort, Terms};
use super::ring::Kind;
use super::table::Retired;
use crate::provider::base::ConnectionState;
use crate::provider::{DisconnectReason, Operation, QueueFull, WorkQueue, WorkRequest};
use crate::sys::shared::Shared;

/// The outcome of an attempt to carry out a request.
enum Ran {
    /// The request is complete.
    Done,
    /// The request retired this handle.
    Invalidated(Handle),
    /// The request cannot go on now.
    Waits,
    /// The request is invalid.
    Wrong,
    /// The peer's memory is not open to the request.
    Refused(Fault),
    /// The peer wrote something impossible into the ring.
    BadRing,
    /// The peer has ended the connection.
    Over,
}

impl Connection {
    /// Returns the port of the connection while no messages are taken, if it is open.
    #[inline(always)]
    pub(super) fn port<'a>(&'a mut self, nic: &'a mut Nic) -> Option<RingPort<'a>> {
        let Self { outflow: Some(outflow), consumer: Some(consumer), .. } = self else {
            return None;
        };
        let is_open = self.state == ConnectionState::Open;
        is_open.then(|| outflow.port(nic, consumer.segment(), Terms::ORDINARY))
    }

    /// Returns whether requests wait.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.outflow.as_ref().is_some_and(|outflow| !outflow.pending.is_empty())
    }

    /// Takes the requests that there is room for, and carries them out as far as possible now.
    #[inline]
    pub(super) fn post(&mut self, nic: &mut Nic, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        if self.has_pending() {
            self.pump(nic);
        }
        if batch.is_empty() {
            // Messages may have been copied into the ring and not yet shown to the peer.
            self.publish(nic);
            return Ok(());
        }
        let mut budget = MOVED_PER_CALL;
        loop {
            self.send_now(nic, batch);
            let Some(outflow) = &self.outflow else { break };
            let room = outflow.pending.len() < nic.config.send_queue_max && !nic.is_choked();
            if !room || self.state != ConnectionState::Open {
                break;
            }
            let Some(request) = batch.pop_front() else { break };
            self.post_other(nic, request, &mut budget);
        }
        self.publish(nic);
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Carries out the Sends that the batch begins with, as long as the ring has room.
    #[inline]
    fn send_now(&mut self, nic: &mut Nic, batch: &mut WorkQueue) {
        let Some(Outflow { producer, pending, .. }) = &mut self.outflow else { return };
        if !pending.is_empty() || self.state != ConnectionState::Open || nic.is_choked() {
            return;
        }
        let mut taken = 0;
        for WorkRequest { id, flags, operation } in batch.iter() {
            let Operation::Send { source, invalidate } = operation else { break };
            let bytes = source.bytes();
            let (kind, handle) = kind(*invalidate);
            if bytes.len() > producer.part_max() || producer.push(kind, handle, bytes) != Ok(true) {
                break;
            }
            taken += 1;
            nic.counters.bytes_copied += bytes.len() as u64;
            if flags.signaled {
                nic.complete(self.qp, *id, Opcode::Send);
            }
        }
        nic.counters.sends += taken as u64;
        match taken {
            0 => {}
            // The views are dropped before a completion is reported.
            1 => drop(batch.pop_front()),
            _ => drop(batch.drain(..taken)),
        }
    }

    /// Carries out any request, or has it wait.
    #[inline(never)]
    fn post_other(&mut self, nic: &mut Nic, request: WorkRequest, budget: &mut usize) {
        let mut entry = Entry::from(request);
        // A Read waits for `poll`, or a batch of them would keep the caller for long.
        let waits = self.has_pending() || matches!(entry.work, Work::Read { .. });
        if waits || !self.run(nic, &mut entry, budget) {
            if self.state == ConnectionState::Open {
                entry.copy_source();
            }
            if let Some(outflow) = &mut self.outflow {
                outflow.pending.push_back(entry);
            }
        }
    }

    /// Carries out waiting requests, as far as possible now; returns whether there was any progress.
    pub(super) fn pump(&mut self, nic: &mut Nic) -> bool {
        let (mut any, mut budget) = (false, MOVED_PER_CALL);
        while self.state.is_live()
            && !nic.is_choked()
            && let Some(outflow) = &mut self.outflow
            && let Some(mut entry) = outflow.pending.pop_front()
        {
            // A Send that waits for more room learns of the room that the peer made; an invalidation waits for a copy
            // alone and looks at no room.
            let before = (entry.moved, outflow.producer.room_until());
            if !self.run(nic, &mut entry, &mut budget) {
                if let Some(Outflow { producer, pending, .. }) = &mut self.outflow {
                    any |= (entry.moved, producer.room_until()) != before;
                    pending.push_front(entry);
                }
                break;
            }
            any = true;
        }
        if any {
            // No request leaves the queue of those that wait, and none goes on, anywhere but here.
            self.progress.output.count();
        }
        self.finish_if_drained(nic);
        self.publish(nic);
        any
    }

    /// Continues a request; false if it has to wait. A request that fails ends the connection.
    fn run(&mut self, nic: &mut Nic, entry: &mut Entry, budget: &mut usize) -> bool {
        let (id, opcode) = (entry.id, entry.work.opcode());
        let failed = |status| (id, opcode, status);
        let (word, reason, failed) = match self.carry_out(nic, entry, budget) {
            Ran::Waits => return false,
            Ran::Done => {
                if entry.flags.signaled {
                    nic.complete(self.qp, entry.id, opcode);
                }
                return true;
            }
            Ran::Invalidated(handle) => {
                if entry.flags.signaled {
                    nic.complete_invalidation(self.qp, entry.id, handle);
                }
                return true;
            }
            // A request of ours that cannot be carried out ends the connection, as on any RNIC.
            Ran::Wrong => (Ended::Closed, DisconnectReason::Local, failed(Status::LocalFault)),
            Ran::Refused(fault) => {
                let Code { layer, etype, code } = fault.code();
                let told = DisconnectReason::Terminated { layer, etype, code };
                (Ended::WeBroke(fault.code()), told, failed(Status::RemoteAccess))
            }
            Ran::BadRing => {
                nic.link.faults += 1;
                let reason = DisconnectReason::PeerMisbehaved(BAD_RING.rule());
                (Ended::YouBroke(BAD_RING.code()), reason, failed(Status::Flushed))
            }
            Ran::Over => {
                // We saw this before the socket closed; records in the ring still come first.
                self.over = true;
                return false;
            }
        };
        // The views of the request are dropped before its end is reported.
        entry.work = Work::LocalInv { handle: Handle(0) };
        self.end(nic, word, reason, Some(failed));
        true
    }

    fn carry_out(&mut self, nic: &mut Nic, entry: &mut Entry, budget: &mut usize) -> Ran {
        let Entry { work, moved, .. } = entry;
        match work {
            Work::Send { payload, invalidate } => {
                self.send(nic, payload.bytes(), *invalidate, moved)
            }
            Work::Write { payload, target } => {
                self.write(nic, payload.bytes(), target, moved, budget)
            }
            Work::Read { sink, source } => {
                if self.outflow.as_ref().is_none_or(|outflow| outflow.ord == 0) {
                    // No Read was granted: this one would wait for ever.
                    return Ran::Wrong;
                }
                self.read(nic, sink, source, moved, budget)
            }
            Work::LocalInv { handle } => {
                let Some(outflow) = &mut self.outflow else { return Ran::Wrong };
                match outflow.retire(nic, *handle) {
                    Retired::Now => {
                        nic.counters.invalidated_local += 1;
                        Ran::Invalidated(*handle)
                    }
                    Retired::NotYet => Ran::Waits,
                    Retired::Unknown => Ran::Wrong,
                }
            }
        }
    }

    /// Sends a message in as many parts as it takes.
    fn send(
        &mut self,
        nic: &mut Nic,
        bytes: &[u8],
        invalidate: Option<Handle>,
        moved: &mut usize,
    ) -> Ran {
        let Some(Outflow { producer, .. }) = &mut self.outflow else { return Ran::Wrong };
        if u32::try_from(bytes.len()).is_err() {
            return Ran::Wrong;
        }
        loop {
            let rest = bytes.get(*moved..).unwrap_or_default();
            let (part, last) = match rest.split_at_checked(producer.part_max()) {
                Some((part, behind)) if !behind.is_empty() => (part, false),
                _ => (rest, true),
            };
            let (kind, handle) = if last { kind(invalidate) } else { (Kind::Part, Handle(0)) };
            match producer.push(kind, handle, part) {
                Ok(true) => {}
                Ok(false) => return Ran::Waits,
                Err(_) => return Ran::BadRing,
            }
            *moved += part.len();
            nic.counters.bytes_copied += part.len() as u64;
            if last {
                nic.counters.sends += 1;
                return Ran::Done;
            }
        }
    }

    /// Copies our octets to memory that the peer opened for writing.
    fn write(
        &mut self,
        nic: &mut Nic,
        bytes: &[u8],
        target: &ClaimedSegment,
        moved: &mut usize,
        budget: &mut usize,
    ) -> Ran {
        if bytes.len() != target.length() as usize {
            return Ran::Wrong;
        }
        let length = (bytes.len() - *moved).min(*budget);
        if length == 0 && *moved < bytes.len() {
            return Ran::Waits;
        }
        if length >= PUBLISH_BEFORE {
            self.publish(nic);
        }
        let ran = self.touch(
            nic,
            target,
            Access::RemoteWrite,
            *moved,
            |region, at| {
                region.copy_in(at, bytes.get(*moved..*moved + length).unwrap_or_default());
                true
            },
            length,
        );
        if matches!(ran, Ran::Done) {
            *moved += length;
            *budget -= length;
            nic.counters.count_tagged(length);
            nic.counters.bytes_copied += length as u64;
            if *moved < bytes.len() {
                return Ran::Waits;
            }
        }
        ran
    }

    /// Copies octets that the peer opened for reading to our sink.
    fn read(
        &mut self,
        nic: &mut Nic,
        sink: &mut haulage_mr_pool::Sink,
        source: &ClaimedSegment,
        moved: &mut usize,
        budget: &mut usize,
    ) -> Ran {
        if sink.len() != source.length() as usize {
            return Ran::Wrong;
        }
        let length = (sink.len() - *moved).min(*budget);
        if length == 0 && *moved < sink.len() {
            return Ran::Waits;
        }
        let skip = *moved;
        let ran = self.touch(
            nic,
            source,
            Access::RemoteRead,
            skip,
            |region, at| region.copy_out(at, sink, skip, length),
            length,
        );
        if matches!(ran, Ran::Done) {
            *moved += length;
            *budget -= length;
            nic.counters.count_read(length);
            if *moved < sink.len() {
                return Ran::Waits;
            }
        }
        ran
    }

    /// Accesses the peer's memory with [`Far::touch`].
    fn touch(
        &self,
        nic: &Nic,
        claim: &ClaimedSegment,
        access: Access,
        skip: usize,
        copy: impl FnOnce(&Shared, usize) -> bool,
        length: usize,
    ) -> Ran {
        if self.over {
            return Ran::Waits;
        }
        let (Some(outflow), Some(consumer)) = (&self.outflow, &self.consumer) else {
            return Ran::Wrong;
        };
        let far = outflow.far(consumer.segment());
        match far.touch(nic, claim, access, skip, copy, length) {
            Ok(true) => Ran::Done,
            Ok(false) => Ran::Wrong,
            // A peer that has gone took its registrations with it, and neither end broke a rule.
            Err(_) if self.ended_by_peer() != Ended::No => Ran::Over,
            Err(fault) => Ran::Refused(fault),
        }
    }

    /// Shows the peer the records put into the ring, and rings if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self, nic: &mut Nic) {
        let Some(outflow) = &mut self.outflow else { return };
        outflow.show(nic);
        if std::mem::take(&mut outflow.rings) {
            self.ring(nic);
        }
    }

    /// Rings the doorbell of a peer that sleeps.
    #[cold]
    pub(super) fn ring(&self, nic: &mut Nic) {
        if let Some(socket) = &self.socket {
            nic.counters.syscalls += 1;
            nic.link.doorbells += 1;
            // If there is no room, doorbells are on their way that the peer has not heard.
            let _ = socket.send(&[0], &[]);
        }
    }

    /// Tells the peer that nothing follows, if we are closing and nothing is left to be sent.
    fn finish_if_drained(&mut self, nic: &mut Nic) {
        if self.state != ConnectionState::Draining || self.has_pending() {
            return;
        }
        // The peer learns what was taken from it before it learns that nothing follows.
        self.release_room();
        let Some(outflow) = &mut self.outflow else { return };
        match outflow.producer.push(Kind::Close, Handle(0), &[]) {
            Ok(false) => return,
            Ok(true) => self.publish(nic),
            Err(_) => {}
        }
        self.end(nic, Ended::Closed, DisconnectReason::Local, None);
    }
}

impl Nic {
    /// Returns the slot that a handle names in a table of `entries`.
    pub(super) fn peer_slot(&self, handle: Handle, entries: u32) -> usize {
        if entries == self.layout.entries() {
            return self.handles.slot(handle);
        }
        handle.0 as usize >> 8 & (entries.next_power_of_two() as usize - 1)
    }
}
