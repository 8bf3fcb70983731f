//! Sending on an open connection while its messages are taken without Receives: at once, or not at all.

use haulage_mr_pool::Local;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{
    Access, ClaimedSegment, Handle, HeaderPatch, NamedTemplate, QpNum, Segment as Named, WrId,
};

use super::leaving::{MOVED_PER_CALL, PUBLISH_BEFORE, kind};
use super::nic::Nic;
use super::ring::{BadRing, Producer};
use super::segment::Segment;
use super::table::{CopyGrant, Extent, Registrations, Retired};
use crate::provider::{
    Done, Head, OpenResult, Outgoing, Port, QueueFull, Refused, Sent, WorkQueue, expose,
};
use crate::sys::shared::Shared;

/// Sends on a connection whose messages are being taken.
pub(super) struct RingPort<'a> {
    pub(super) nic: &'a mut Nic,
    pub(super) qp: QpNum,
    pub(super) producer: &'a mut Producer,
    pub(super) far: Far<'a>,
    /// Whether the peer serves Reads.
    pub(super) may_read: bool,
    /// Our registrations, if the peer may reach any.
    pub(super) registrations: Option<&'a mut Registrations>,
    /// Octets of the longest message that can be sent; `None` if an earlier request waits.
    pub(super) length_max: Option<usize>,
    /// Octets of the longest message that can join a series.
    pub(super) series_max: usize,
    /// The peer is shown each message as it is sent.
    pub(super) is_alone: bool,
    pub(super) moved: &'a mut Moved,
}

/// Counts of the messages sent while others were taken.
#[derive(Default)]
pub(super) struct Moved {
    /// Messages, and their octets.
    pub(super) sends: u32,
    pub(super) octets: usize,
    /// Times the peer was shown messages, and whether it wants a doorbell.
    pub(super) batches: u32,
    pub(super) rings: bool,
    /// Octets copied to the peer's memory or from it, and whether a message is left because of their number.
    pub(super) moved: usize,
    pub(super) leaves_rest: bool,
}

impl Port for RingPort<'_> {
    #[inline(always)]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, _: WrId) -> Sent {
        let length = head.octets();
        if message.has_writes() && !self.copy_writes(length, message) {
            return Sent::Full;
        }
        let is_pushed = match message.like(head) {
            Some((like, patch, body)) if length <= self.series_max => {
                self.push_like(like, patch, body)
            }
            _ => self.push_whole(head.invalidated(), message.message(head)),
        };
        if !is_pushed {
            return Sent::Full;
        }
        let Moved { sends, octets, .. } = &mut self.moved;
        (*sends, *octets) = (*sends + 1, *octets + length);
        Sent::Copied
    }

    #[inline]
    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        let length = octets.len();
        if length != source.length() as usize || length > MOVED_PER_CALL {
            return Err(Refused::TooLong);
        }
        if self.length_max.is_none() || !self.may_read {
            return Err(Refused::Full);
        }
        if self.moved.moved + length > MOVED_PER_CALL {
            self.moved.leaves_rest = true;
            return Err(Refused::NotNow);
        }
        self.before_copy(length);
        self.touch(source, Access::RemoteRead, |region, at| region.copy_to(at, octets))?;
        self.moved.moved += length;
        self.nic.counters.count_read(length);
        Ok(())
    }

    #[inline]
    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let segment = self.producer.segment();
        match &mut self.registrations {
            Some(registrations) => registrations.open(self.nic, segment, lease, access),
            None => Err((lease, Refused::NotOpen)),
        }
    }

    #[inline]
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        // An earlier request that waits may be to retire this very handle.
        self.length_max?;
        let (nic, segment) = (&mut *self.nic, self.producer.segment());
        let slot = nic.handles.slot(handle);
        match self.registrations.as_mut()?.retire(segment, slot, handle) {
            Retired::Now => {
                nic.registrations -= 1;
                nic.counters.invalidated_remote += 1;
                Some(Done::invalidating(self.qp, handle))
            }
            Retired::NotYet | Retired::Unknown => None,
        }
    }

    /// Takes nothing: the caller that takes the messages posts once they are taken.
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
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
    /// Puts a message that begins with a template into the ring; returns whether it had room.
    #[inline(always)]
    fn push_like(&mut self, like: NamedTemplate<'_>, patch: HeaderPatch, body: &[u8]) -> bool {
        if !self.is_alone {
            return self.producer.push_like(like, patch, body) == Ok(true);
        }
        let shown = self.producer.push_like_alone(like, patch, body);
        self.moved.alone(shown)
    }

    /// Puts a message into a record of its own; returns whether the ring had room.
    #[inline(never)]
    fn push_whole(&mut self, invalidate: Option<Handle>, octets: &[u8]) -> bool {
        let (kind, handle) = kind(invalidate);
        if self.length_max.is_none_or(|most| octets.len() > most) {
            return false;
        }
        let is_pushed = if self.is_alone {
            let shown = self.producer.push_alone(kind, handle, octets);
            self.moved.alone(shown)
        } else {
            self.producer.push(kind, handle, octets) == Ok(true)
        };
        if is_pushed && octets.len() >= SHOW_BEHIND {
            // The peer copies one long message while we copy the next.
            self.moved.show(self.producer);
        }
        is_pushed
    }

    /// Copies what goes ahead of a message of `octets` octets to its places, if that is not too much, and there is room for
    /// the message; returns whether it did.
    #[inline(never)]
    fn copy_writes(&mut self, octets: usize, message: &Outgoing) -> bool {
        let length = message.written();
        let fits = self.length_max.is_some_and(|most| octets <= most)
            && length <= MOVED_PER_CALL.saturating_sub(self.moved.moved)
            && self.producer.has_room(octets);
        if !fits {
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
            self.moved.moved += length;
            self.nic.counters.count_tagged(length);
            self.nic.counters.bytes_copied += length as u64;
        }
        is_copied
    }

    /// Shows the peer the messages sent so far, to work on while a copy of `length` octets is made, if that is long.
    #[inline]
    fn before_copy(&mut self, length: usize) {
        if length >= PUBLISH_BEFORE {
            self.moved.show(self.producer);
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
        match self.far.touch(self.nic, claim, access, 0, copy, claim.length() as usize) {
            Ok(true) => Ok(()),
            _ => Err(Refused::NotOpen),
        }
    }
}

/// Returns the address of a lease.
fn address(lease: &Local) -> u64 {
    lease.bytes().as_ptr().addr() as u64
}

impl Moved {
    /// Counts a message that the peer was shown at once; false if there was no room for it.
    #[inline(always)]
    fn alone(&mut self, shown: Result<Option<bool>, BadRing>) -> bool {
        let Ok(Some(rings)) = shown else { return false };
        self.batches += 1;
        self.rings |= rings;
        true
    }

    /// Shows the peer the messages sent so far.
    #[inline(never)]
    pub(super) fn show(&mut self, producer: &mut Producer) {
        self.batches += u32::from(producer.is_filled());
        self.rings |= producer.publish();
    }
}

/// The peer's memory, and the table of its registrations.
pub(super) struct Far<'a> {
    pub(super) segment: &'a Segment,
    /// The peer's region, if it exposes one.
    pub(super) region: Option<&'a Shared>,
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
