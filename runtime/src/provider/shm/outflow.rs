//! What a connection sends with.
//!
//! # Normal operation
//!
//! Messages leave through the port (`outflow/port.rs`), and posted requests in their order (`outflow/work.rs`). One that
//! cannot be carried out yet waits, and everything behind it waits, too.
//!
//! # Memory ownership
//!
//! A view lies in the request that waits, or in the registration it was exposed with.

use std::collections::VecDeque;

use haulage_proto::verbs::{Handle, Opcode, QpNum, Status};

use super::ended::Ended;
use super::entry::Entry;
use super::handshake::Joint;
use super::leaving::kind;
use super::life::Life;
use super::nic::Nic;
use super::regions::Mapped;
use super::ring::{BadRing, Kind, Producer};
use super::segment::Segment;
use super::setup::Exposure;
use super::table::{Registrations, Retired};
use crate::provider::{Operation, WorkQueue, WorkRequest};
use crate::sys::barrier::Barrier;
use crate::sys::shared::Shared;

mod port;
mod work;

pub(super) use port::{RingPort, Shows, Terms};
pub(super) use work::{Peer, Ran};

/// What a connection sends with, beside the peer's segment.
#[derive(Debug)]
pub(super) struct Outflow {
    qp: QpNum,
    /// Our ring, and the table of our registrations.
    producer: Producer,
    /// The peer's memory, where it exposes any.
    region: Option<Mapped>,
    exposure: Exposure,
    registrations: Registrations,
    /// Requests that could not be carried out yet, oldest first.
    pending: VecDeque<Entry>,
    ord: u32,
    /// The peer was shown messages and wants a doorbell.
    rings: bool,
}

impl Outflow {
    /// Begins to send with the memory of both ends. Returns the peer's segment, too.
    pub(super) fn join(nic: &Nic, qp: QpNum, joint: Joint) -> (Self, Segment) {
        let Joint { segment, theirs, barriers, exposure, ord, .. } = joint;
        let barrier = if nic.barriers && barriers { Barrier::Light } else { Barrier::Full };
        let this = Self {
            qp,
            producer: Producer::new(segment, barrier),
            region: theirs.region,
            exposure,
            registrations: Registrations::default(),
            pending: VecDeque::new(),
            ord,
            rings: false,
        };
        (this, theirs.segment)
    }

    /// Carries out the Sends that the batch begins with, as long as the ring has room and no request waits.
    #[inline]
    pub(super) fn send_first(&mut self, nic: &mut Nic, batch: &mut WorkQueue) {
        let Self { producer, pending, .. } = self;
        if !pending.is_empty() {
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

    /// Has a request wait behind the others.
    pub(super) fn push(&mut self, entry: Entry) {
        self.pending.push_back(entry);
    }

    /// Takes the request that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.pending.pop_front()
    }

    /// Has a request wait ahead of the others.
    pub(super) fn put_back(&mut self, entry: Entry) {
        self.pending.push_front(entry);
    }

    /// Tells the peer that nothing follows; returns whether the ring had room for that.
    pub(super) fn push_close(&mut self) -> Result<bool, BadRing> {
        self.producer.push(Kind::Close, Handle(0), &[])
    }

    /// Retires a handle of ours, unless the peer is copying under it.
    #[inline]
    pub(super) fn retire(&mut self, nic: &mut Nic, handle: Handle) -> Retired {
        let (segment, slot) = (self.producer.segment(), nic.handles.slot(handle));
        let retired = self.registrations.retire(segment, slot, handle);
        nic.registrations -= usize::from(retired == Retired::Now);
        retired
    }

    /// Shows the peer the messages sent so far. It may want a doorbell.
    #[inline(never)]
    pub(super) fn show(&mut self, nic: &mut Nic) {
        nic.counters.send_batches += u64::from(self.producer.is_filled());
        self.rings |= self.producer.publish();
    }

    /// Shows the peer the messages sent so far, and rings if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self, nic: &mut Nic, life: &Life) {
        self.show(nic);
        if std::mem::take(&mut self.rings) {
            life.ring(nic);
        }
    }

    /// Reports the requests that wait as flushed, and gives up the peer's memory.
    pub(super) fn flush(&mut self, nic: &mut Nic) {
        for Entry { id, work, .. } in std::mem::take(&mut self.pending) {
            let opcode = work.opcode();
            drop(work);
            nic.reports.ended(self.qp, id, opcode, Status::Flushed);
        }
        // The peer's memory is no longer needed; in quarantine its process tells when it is gone.
        self.region = None;
    }

    /// Tells the peer how the connection ended, and takes our registrations from it. Returns whether it was not copying.
    pub(super) fn withdraw(&mut self, nic: &mut Nic, word: Ended) -> bool {
        // The reason is written first: a peer that is refused after this knows it.
        word.tell(self.producer.segment());
        self.retire_all(nic)
    }

    /// Takes our registrations from the peer. Returns whether it was not copying.
    pub(super) fn retire_all(&mut self, nic: &mut Nic) -> bool {
        let (freed, all) = self.registrations.retire_all(self.producer.segment());
        nic.registrations -= freed;
        all
    }

    /// Drops every view: the peer is gone.
    pub(super) fn abandon(&mut self, nic: &mut Nic) {
        nic.registrations -= self.registrations.abandon();
    }

    /// Keeps the remaining views for ever: the peer may be copying, and there will be no later check.
    pub(super) fn leak(&mut self) {
        self.registrations.leak();
    }

    /// Returns whether requests wait.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether another request may wait.
    #[inline]
    pub(super) fn has_room(&self, nic: &Nic) -> bool {
        self.pending.len() < nic.config.send_queue_max
    }

    /// Returns how far a request has come: the octets of it that were moved, and the position up to which the ring has
    /// room. A Send that waits for more room learns of the room that the peer made; an invalidation waits for a copy
    /// alone and looks at no room.
    pub(super) const fn position(&self, entry: &Entry) -> (usize, u64) {
        (entry.moved, self.producer.room_until())
    }

    /// Returns whether the peer has taken everything.
    pub(super) fn is_taken(&self) -> bool {
        self.pending.is_empty() && self.producer.is_taken()
    }

    /// Returns whether memory that is shared with the peer lost pages.
    pub(super) fn is_broken(&self) -> bool {
        let region = self.region.as_ref().map(Mapped::memory);
        self.producer.segment().memory().is_broken() || region.is_some_and(Shared::is_broken)
    }
}

#[cfg(test)]
impl Outflow {
    pub(super) const fn segment(&self) -> &Segment {
        self.producer.segment()
    }

    pub(super) const fn region_mut(&mut self) -> &mut Option<Mapped> {
        &mut self.region
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }
}
