//! Departures on an open connection: work requests, carried out in the order they were posted.
//!
//! # Normal operation
//!
//! A Send that fits into the ring is copied there as it is posted, and the messages of one `post` become visible to the
//! peer at once. A Write is copied straight to its place, one copy, as it is posted; a Read is, as the next `poll`
//! begins. A request that cannot be carried out (the ring is full; a handle's memory is being copied; enough octets
//! were moved for one call) waits in order, and everything behind it waits, too.
//!
//! Messages sent while others are taken without Receives leave through `shm/port.rs`.

use haulage_mr_pool::Local;
use haulage_proto::iwarp::terminate::{Code, Fault};
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, Opcode, Status, WrId};

use super::connection::{Connection, Entry, Work};
use super::ended::{BAD_RING, Ended};
use super::leaving::{COPIED_MAX, MOVED_PER_CALL, PUBLISH_BEFORE, kind};
use super::nic::Nic;
use super::port::Far;
use super::regions::Mapped;
use super::ring::{JOINING_MAX, Kind, Producer};
use super::table::Retired;
use crate::provider::base::{ConnectionState, Payload};
use crate::provider::{
    DisconnectReason, Head, OpenResult, Operation, Outgoing, QueueFull, Refused, Sent, WorkQueue,
    WorkRequest,
};
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

impl Producer {
    /// Returns the octets of the longest message that can be copied into the ring at once.
    pub(super) fn copied_max(&self) -> usize {
        COPIED_MAX.min(self.part_max())
    }
}

impl Connection {
    /// Takes the requests that there is room for, and carries them out as far as possible now.
    #[inline]
    pub(super) fn post(&mut self, nic: &mut Nic, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        if !self.pending.is_empty() {
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
            let room = self.pending.len() < nic.config.send_queue_max && !nic.is_choked();
            if !room || self.state != ConnectionState::Open {
                break;
            }
            let Some(request) = batch.pop_front() else { break };
            self.post_other(nic, request, &mut budget);
        }
        self.publish(nic);
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Opens a lease to the peer at once.
    pub(super) fn open_lease(&mut self, nic: &mut Nic, lease: Local, access: Access) -> OpenResult {
        let Self { producer, registrations, exposes, state, .. } = self;
        match producer {
            Some(producer) if *exposes && *state == ConnectionState::Open => {
                registrations.open(nic, producer.segment(), lease, access)
            }
            Some(_) if *state == ConnectionState::Open => Err((lease, Refused::NotOpen)),
            _ => Err((lease, Refused::Gone)),
        }
    }

    /// Reads a short chunk of the peer's memory at once, if no earlier request waits.
    pub(super) fn read_now(
        &mut self,
        nic: &mut Nic,
        source: &ClaimedSegment,
        octets: &mut [u8],
    ) -> Result<(), Refused> {
        let length = octets.len();
        if length != source.length() as usize || length >= PUBLISH_BEFORE {
            return Err(Refused::TooLong);
        }
        if self.state != ConnectionState::Open {
            return Err(Refused::Gone);
        }
        if self.ord == 0 || !self.pending.is_empty() {
            return Err(Refused::Full);
        }
        let copy = |region: &Shared, at| {
            region.copy_to(at, octets);
            true
        };
        match self.touch(nic, source, Access::RemoteRead, 0, copy, length) {
            Ran::Done => {
                nic.counters.count_read(length);
                Ok(())
            }
            _ => Err(Refused::NotOpen),
        }
    }

    /// Copies a message into the ring, and what goes ahead of it to its places, if all of that is short and no earlier
    /// request waits; otherwise takes the message. The peer sees it with the next [`Self::post`].
    #[inline]
    pub(super) fn send_message(
        &mut self,
        nic: &mut Nic,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        if self.state != ConnectionState::Open {
            return Sent::Gone;
        }
        if self.pending.is_empty() && self.copy_message(nic, head, message) {
            return Sent::Copied;
        }
        let taken = self.pending.len() + message.requests_max();
        if taken > nic.config.send_queue_max && !self.pending.is_empty() {
            return Sent::Full;
        }
        message.lend(head, id, |request| self.pending.push_back(Entry::from(request)));
        Sent::Taken
    }

    /// Copies a short message; false if it has to be taken.
    #[inline]
    fn copy_message(&mut self, nic: &mut Nic, head: &Head<'_>, message: &mut Outgoing) -> bool {
        if message.has_writes() && !self.copy_writes(nic, head, message) {
            return false;
        }
        let Some(producer) = &mut self.producer else { return false };
        let length = head.octets();
        let pushed = match message.like(head) {
            Some((like, patch, body)) if length <= JOINING_MAX => {
                producer.push_like(like, patch, body)
            }
            _ if length > producer.copied_max() => return false,
            _ => {
                let (kind, handle) = kind(head.invalidated());
                producer.push(kind, handle, message.message(head))
            }
        };
        if pushed != Ok(true) {
            return false;
        }
        nic.counters.sends += 1;
        nic.counters.bytes_copied += length as u64;
        true
    }

    /// Copies short Writes that go ahead of a message for which there is room; returns whether it did.
    fn copy_writes(&mut self, nic: &mut Nic, head: &Head<'_>, message: &Outgoing) -> bool {
        let length = message.written();
        let has_room = |producer: &mut Producer| {
            head.octets() <= producer.copied_max() && producer.has_room(head.octets())
        };
        if length >= PUBLISH_BEFORE || !self.producer.as_mut().is_some_and(has_room) {
            return false;
        }
        let is_copied = message.copy_writes(|parts, target| {
            let copy = |region: &Shared, mut at| {
                for part in parts {
                    region.copy_in(at, part);
                    at += part.len();
                }
                true
            };
            let length = target.length() as usize;
            matches!(self.touch(nic, target, Access::RemoteWrite, 0, copy, length), Ran::Done)
        });
        if is_copied {
            nic.counters.count_tagged(length);
            nic.counters.bytes_copied += length as u64;
        }
        is_copied
    }

    /// Carries out the Sends that the batch begins with, as long as the ring has room.
    #[inline]
    fn send_now(&mut self, nic: &mut Nic, batch: &mut WorkQueue) {
        let Some(producer) = self.producer.as_mut().filter(|_| self.pending.is_empty()) else {
            return;
        };
        if self.state != ConnectionState::Open || nic.is_choked() {
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
        let waits = !self.pending.is_empty() || matches!(entry.work, Work::Read { .. });
        if waits || !self.run(nic, &mut entry, budget) {
            if self.state == ConnectionState::Open {
                entry.copy_source();
            }
            self.pending.push_back(entry);
        }
    }

    /// Carries out waiting requests, as far as possible now; returns whether there was any progress.
    pub(super) fn pump(&mut self, nic: &mut Nic) -> bool {
        let (mut any, mut budget) = (false, MOVED_PER_CALL);
        while self.state.is_live()
            && !nic.is_choked()
            && let Some(mut entry) = self.pending.pop_front()
        {
            let before = (entry.moved, self.room_until());
            if !self.run(nic, &mut entry, &mut budget) {
                any |= (entry.moved, self.room_until()) != before;
                self.pending.push_front(entry);
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

    /// Returns the position up to which records may reach. A Send that waits for more room learns of the room that the
    /// peer made; an invalidation waits for a copy alone and looks at no room.
    fn room_until(&self) -> u64 {
        self.producer.as_ref().map_or(0, Producer::room_until)
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
                if self.ord == 0 {
                    // No Read was granted: this one would wait for ever.
                    return Ran::Wrong;
                }
                self.read(nic, sink, source, moved, budget)
            }
            Work::LocalInv { handle } => {
                let Some(producer) = &self.producer else { return Ran::Wrong };
                let slot = nic.handles.slot(*handle);
                match self.registrations.retire(producer.segment(), slot, *handle) {
                    Retired::Now => {
                        nic.registrations -= 1;
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
        let Some(producer) = &mut self.producer else { return Ran::Wrong };
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
        let Some(consumer) = &self.consumer else { return Ran::Wrong };
        let far =
            Far { segment: consumer.segment(), region: self.region.as_ref().map(Mapped::memory) };
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
        let Some(producer) = &mut self.producer else { return };
        if !producer.is_filled() {
            return;
        }
        nic.counters.send_batches += 1;
        if producer.publish() {
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
        if self.state != ConnectionState::Draining || !self.pending.is_empty() {
            return;
        }
        // The peer learns what was taken from it before it learns that nothing follows.
        self.release_room();
        let Some(producer) = &mut self.producer else { return };
        match producer.push(Kind::Close, Handle(0), &[]) {
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

impl From<WorkRequest> for Entry {
    fn from(request: WorkRequest) -> Self {
        let WorkRequest { id, flags, operation } = request;
        let work = match operation {
            Operation::Send { source, invalidate } => {
                Work::Send { payload: Payload::View(source), invalidate }
            }
            Operation::Write { source, target } => {
                Work::Write { payload: Payload::View(source), target }
            }
            Operation::Read { sink, source } => Work::Read { sink, source },
            Operation::LocalInv { handle } => Work::LocalInv { handle },
        };
        Self { id, flags, work, moved: 0 }
    }
}

impl Entry {
    /// Copies the source if it may be reused at once.
    fn copy_source(&mut self) {
        if self.flags.copied
            && let Work::Send { payload, .. } | Work::Write { payload, .. } = &mut self.work
            && let Payload::View(source) = payload
        {
            *payload = Payload::Copied(source.bytes().into());
        }
    }
}
