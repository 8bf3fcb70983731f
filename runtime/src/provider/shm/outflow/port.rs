//! The port of a connection.
//!
//! # Normal operation
//!
//! One port sends while messages are taken without Receives, when the ring of the peer is borrowed, and at any other
//! time; [`Terms`] say how these differ. What it does, it does at once, and only while no earlier request waits.

use haulage_mr_pool::Local;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{
    Access, ClaimedSegment, Handle, HeaderPatch, NamedTemplate, QpNum, Segment as Named, WrId,
};

use super::Outflow;
use crate::provider::shm::entry::Entry;
use crate::provider::shm::leaving::{COPIED_MAX, MOVED_PER_CALL, PUBLISH_BEFORE, kind};
use crate::provider::shm::nic::Nic;
use crate::provider::shm::regions::Mapped;
use crate::provider::shm::ring::{BadRing, JOINING_MAX};
use crate::provider::shm::segment::Segment;
use crate::provider::shm::setup::Exposure;
use crate::provider::shm::table::{CopyGrant, Extent, Registrations, Retired};
use crate::provider::{
    Counters, Done, Head, OpenResult, Outgoing, Port, QueueFull, Refused, Sent, WorkQueue, expose,
};
use crate::sys::shared::Shared;

/// Sends on an open connection.
pub(in crate::provider::shm) struct RingPort<'a> {
    nic: &'a mut Nic,
    outflow: &'a mut Outflow,
    /// The peer's segment.
    segment: &'a Segment,
    /// Octets of the longest message that can join a series; 0 if an earlier request waits.
    joining_max: usize,
    pub(in crate::provider::shm) terms: Terms,
}

/// The terms on which a port sends.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider::shm) struct Terms {
    pub(in crate::provider::shm) shows: Shows,
    /// Octets that may still be copied to the peer's memory, or from it.
    pub(in crate::provider::shm) budget: usize,
    /// A message is left, as what it asks for exceeds the rest of the budget.
    pub(in crate::provider::shm) leaves_rest: bool,
}

/// Which messages the peer is shown as they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider::shm) enum Shows {
    /// None. No messages are being taken without Receives, so one of ours that finds no room is taken to be sent.
    Nothing,
    /// Long ones.
    Long,
    /// Each.
    Each,
}

impl Terms {
    /// The terms while no messages are taken.
    pub(in crate::provider::shm) const ORDINARY: Self =
        Self { shows: Shows::Nothing, budget: PUBLISH_BEFORE - 1, leaves_rest: false };
    /// The terms while messages are taken.
    pub(in crate::provider::shm) const TAKING: Self =
        Self { shows: Shows::Long, budget: MOVED_PER_CALL, leaves_rest: false };
}

impl Port for RingPort<'_> {
    #[inline(always)]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let length = head.octets();
        let is_pushed = if message.has_writes() && !self.copy_writes(length, message) {
            false
        } else {
            match message.like(head) {
                Some((like, patch, body)) if length <= self.joining_max => {
                    self.push_like(like, patch, body)
                }
                _ => self.push_whole(head.invalidated(), message.message(head)),
            }
        };
        if !is_pushed {
            return self.take(&head.anew(), message, id);
        }
        let Counters { sends, bytes_copied, .. } = &mut self.nic.counters;
        (*sends, *bytes_copied) = (*sends + 1, *bytes_copied + length as u64);
        Sent::Copied
    }

    #[inline]
    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        let length = octets.len();
        let is_taking = self.terms.shows != Shows::Nothing;
        let length_max = if is_taking { MOVED_PER_CALL } else { self.terms.budget };
        if length != source.length() as usize || length > length_max {
            return Err(Refused::TooLong);
        }
        if self.waits() || self.outflow.ord == 0 {
            return Err(Refused::Full);
        }
        if length > self.terms.budget {
            self.terms.leaves_rest = true;
            return Err(Refused::NotNow);
        }
        self.before_copy(length);
        self.touch(source, Access::RemoteRead, |region, at| region.copy_to(at, octets))?;
        self.terms.budget -= length;
        self.nic.counters.count_read(length);
        Ok(())
    }

    #[inline]
    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let Outflow { producer, registrations, exposure, .. } = &mut *self.outflow;
        if *exposure != Exposure::Whole {
            return Err((lease, Refused::NotOpen));
        }
        registrations.open(self.nic, producer.segment(), lease, access)
    }

    #[inline]
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        // An earlier request that waits may be to retire this very handle.
        if self.waits() || self.outflow.retire(self.nic, handle) != Retired::Now {
            return None;
        }
        self.nic.counters.invalidated_remote += 1;
        Some(Done::invalidating(self.outflow.qp, handle))
    }

    /// Takes nothing: the connection posts, once no messages are being taken.
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }
}

impl Outflow {
    /// Returns the port to the peer whose segment is `segment`.
    #[inline(always)]
    pub(in crate::provider::shm) fn port<'a>(
        &'a mut self,
        nic: &'a mut Nic,
        segment: &'a Segment,
        terms: Terms,
    ) -> RingPort<'a> {
        let joining_max = if self.pending.is_empty() { JOINING_MAX } else { 0 };
        RingPort { nic, outflow: self, segment, joining_max, terms }
    }

    /// Returns the peer's memory, and the table of its registrations in its segment.
    pub(super) fn far<'a>(&'a self, segment: &'a Segment) -> Far<'a> {
        Far { segment, region: self.region.as_ref().map(Mapped::memory) }
    }
}

impl Registrations {
    /// Opens a lease to the peer.
    #[inline]
    pub(super) fn open(
        &mut self,
        nic: &mut Nic,
        segment: &Segment,
        lease: Local,
        access: Access,
    ) -> OpenResult {
        let entries = segment.layout().entries();
        let length = lease.len() as u64;
        let (Some(start), Ok(length_wire)) = (
            nic.region.as_ref().and_then(|region| region.locate(address(&lease), length)),
            u32::try_from(length),
        ) else {
            return Err((lease, Refused::NotOpen));
        };
        let has_room = nic.registrations < entries as usize;
        let handle = if has_room { self.reserve(&mut nic.handles, entries) } else { None };
        let Some(handle) = handle else { return Err((lease, Refused::Full)) };
        nic.registrations += 1;
        let (exposed, memory) = expose(lease, handle, access);
        let extent = Extent { base: nic.handles.offset(), start, length };
        let slot = nic.handles.slot(handle);
        let is_open = self.expose(segment, slot, handle, extent, memory);
        debug_assert!(is_open, "it was reserved");
        Ok((exposed, Named { handle, length: length_wire, offset: extent.base }))
    }
}

impl RingPort<'_> {
    /// Returns the queue pair that the port sends on.
    #[inline]
    pub(in crate::provider::shm) const fn qp(&self) -> QpNum {
        self.outflow.qp
    }

    /// Returns whether an earlier request waits.
    #[inline]
    const fn waits(&self) -> bool {
        self.joining_max == 0
    }

    /// Returns whether a message of `octets` octets is short enough to be copied, and no earlier request waits.
    #[inline]
    fn may_copy(&self, octets: usize) -> bool {
        !self.waits() && octets <= COPIED_MAX.min(self.outflow.producer.part_max())
    }

    /// Puts a message that begins with a template into the ring; returns whether it had room.
    #[inline(always)]
    fn push_like(&mut self, like: NamedTemplate<'_>, patch: HeaderPatch, body: &[u8]) -> bool {
        if self.terms.shows != Shows::Each {
            return self.outflow.producer.push_like(like, patch, body) == Ok(true);
        }
        let shown = self.outflow.producer.push_like_alone(like, patch, body);
        self.count_alone(shown)
    }

    /// Puts a message into a record of its own; returns whether the ring had room.
    #[inline(never)]
    fn push_whole(&mut self, invalidate: Option<Handle>, octets: &[u8]) -> bool {
        let (kind, handle) = kind(invalidate);
        if !self.may_copy(octets.len()) {
            return false;
        }
        if self.terms.shows == Shows::Each {
            let shown = self.outflow.producer.push_alone(kind, handle, octets);
            return self.count_alone(shown);
        }
        let is_pushed = self.outflow.producer.push(kind, handle, octets) == Ok(true);
        if is_pushed && octets.len() >= SHOW_BEHIND && self.terms.shows == Shows::Long {
            // The peer copies one long message while we copy the next.
            self.outflow.show(self.nic);
        }
        is_pushed
    }

    /// Counts a message that the peer was shown at once; false if there was no room for it.
    #[inline(always)]
    fn count_alone(&mut self, shown: Result<Option<bool>, BadRing>) -> bool {
        let Ok(Some(rings)) = shown else { return false };
        self.nic.counters.send_batches += 1;
        self.outflow.rings |= rings;
        true
    }

    /// Takes a message to be sent that was not copied, if no messages are being taken and the queue has room. An empty
    /// one has room for any.
    #[inline(never)]
    fn take(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        let pending = &mut self.outflow.pending;
        let count = pending.len() + message.requests_max();
        let has_room = pending.is_empty() || count <= self.nic.config.send_queue_max;
        if self.terms.shows != Shows::Nothing || !has_room {
            return Sent::Full;
        }
        message.lend(head, id, |request| pending.push_back(Entry::from(request)));
        Sent::Taken
    }

    /// Copies what goes ahead of a message of `octets` octets to its places, if that is not too much, and there is room for
    /// the message; returns whether it did.
    #[inline(never)]
    fn copy_writes(&mut self, octets: usize, message: &Outgoing) -> bool {
        let length = message.written();
        let fits = self.may_copy(octets) && length <= self.terms.budget;
        if !fits || !self.outflow.producer.has_room(octets) {
            return false;
        }
        self.before_copy(length);
        let is_copied = message.copy_writes(|parts, target| {
            let copied = self.touch(target, Access::RemoteWrite, |region, mut at| {
                for part in parts {
                    region.copy_in(at, part);
                    at += part.len();
                }
            });
            copied.is_ok()
        });
        if is_copied {
            self.terms.budget -= length;
            self.nic.counters.count_tagged(length);
            self.nic.counters.bytes_copied += length as u64;
        }
        is_copied
    }

    /// Shows the peer the messages sent so far, to work on while a copy of `length` octets is made, if that is long.
    #[inline]
    fn before_copy(&mut self, length: usize) {
        if length >= PUBLISH_BEFORE {
            self.outflow.show(self.nic);
        }
    }

    /// Finds the memory that a claim names, in the peer's region, and has `copy` access all of it, given its offset
    /// there.
    fn touch(
        &self,
        claim: &ClaimedSegment,
        access: Access,
        copy: impl FnOnce(&Shared, usize),
    ) -> Result<(), Refused> {
        let copy = |region: &Shared, at| {
            copy(region, at);
            true
        };
        let far = self.outflow.far(self.segment);
        match far.touch(self.nic, claim, access, 0, copy, claim.length() as usize) {
            Ok(true) => Ok(()),
            _ => Err(Refused::NotOpen),
        }
    }
}

/// Returns the address of a lease.
fn address(lease: &Local) -> u64 {
    lease.bytes().as_ptr().addr() as u64
}

/// The peer's memory, and the table of its registrations.
pub(super) struct Far<'a> {
    segment: &'a Segment,
    /// The peer's region, if it exposes one.
    region: Option<&'a Shared>,
}

impl Far<'_> {
    /// Checks a claim against the peer's table and has `copy` access `length` octets of the peer's memory, `skip`
    /// octets into the claim. `copy` gets their offset in the region and returns whether it could access them; so does
    /// this function.
    pub(super) fn touch(
        &self,
        nic: &Nic,
        claim: &ClaimedSegment,
        access: Access,
        skip: usize,
        copy: impl FnOnce(&Shared, usize) -> bool,
        length: usize,
    ) -> Result<bool, Fault> {
        let slot = nic.peer_slot(claim.handle(), self.segment.layout().entries());
        let grant = CopyGrant::enter(self.segment, slot, claim.handle(), access)?;
        let at = grant.locate(claim, access)?;
        // The table is under the peer's control: octets outside the region we mapped are not touched, whatever it says.
        let at = usize::try_from(at).ok().and_then(|at| at.checked_add(skip));
        let room = self
            .region
            .zip(at)
            .filter(|(region, at)| at.checked_add(length).is_some_and(|end| end <= region.len()));
        let (region, at) = room.ok_or(match access {
            Access::RemoteRead => Fault::ReadBounds,
            Access::RemoteWrite => Fault::TaggedBounds,
        })?;
        let copied = copy(region, at);
        drop(grant);
        Ok(copied)
    }
}

/// From this many octets on, a message is shown to the peer at once, though more are to follow.
const SHOW_BEHIND: usize = 1 << 10;
