//! Posted requests: how they are carried out.
//!
//! A Send that fits into the ring is copied there. A Write or a Read is copied straight between the registered memory of
//! both ends, one copy.

use std::ops::Range;

use haulage_mr_pool::Sink;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle};

use super::Outflow;
use crate::provider::shm::ended::Ended;
use crate::provider::shm::entry::{Entry, Work};
use crate::provider::shm::leaving::{PUBLISH_BEFORE, kind};
use crate::provider::shm::life::Life;
use crate::provider::shm::nic::Nic;
use crate::provider::shm::ring::Kind;
use crate::provider::shm::segment::Segment;
use crate::provider::shm::table::Retired;
use crate::sys::shared::Shared;

/// The peer of a connection, as requests meet it.
pub(in crate::provider::shm) struct Peer<'a> {
    /// The peer's segment.
    pub(in crate::provider::shm) segment: &'a Segment,
    pub(in crate::provider::shm) life: &'a Life,
}

/// The outcome of an attempt to carry out a request.
pub(in crate::provider::shm) enum Ran {
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

impl Outflow {
    /// Continues a request, and moves no more than `budget` octets by a Write or a Read, which it takes from `budget`.
    pub(in crate::provider::shm) fn carry_out(
        &mut self,
        nic: &mut Nic,
        peer: &Peer<'_>,
        entry: &mut Entry,
        budget: &mut usize,
    ) -> Ran {
        let Entry { work, moved, .. } = entry;
        let all = match work {
            Work::Send { payload, invalidate } => {
                return self.send(nic, payload.bytes(), *invalidate, moved);
            }
            Work::LocalInv { handle } => return self.invalidate(nic, *handle),
            Work::Write { payload, .. } => payload.bytes().len(),
            Work::Read { sink, .. } => sink.len(),
        };
        let length = (all - *moved).min(*budget);
        let part = *moved..*moved + length;
        let ran = match work {
            // No Read was granted: this one would wait for ever.
            Work::Read { .. } if self.ord == 0 => Ran::Wrong,
            Work::Write { target: claim, .. } | Work::Read { source: claim, .. }
                if all != claim.length() as usize =>
            {
                Ran::Wrong
            }
            _ if length == 0 && *moved < all => Ran::Waits,
            Work::Write { payload, target } => self.write(nic, peer, payload.bytes(), target, part),
            Work::Read { sink, source } => self.read(nic, peer, sink, source, part),
            Work::Send { .. } | Work::LocalInv { .. } => Ran::Wrong,
        };
        if matches!(ran, Ran::Done) {
            *moved += length;
            *budget -= length;
            if *moved < all {
                return Ran::Waits;
            }
        }
        ran
    }

    fn invalidate(&mut self, nic: &mut Nic, handle: Handle) -> Ran {
        match self.retire(nic, handle) {
            Retired::Now => {
                nic.counters.invalidated_local += 1;
                Ran::Invalidated(handle)
            }
            Retired::NotYet => Ran::Waits,
            Retired::Unknown => Ran::Wrong,
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
        let Self { producer, .. } = self;
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

    /// Copies a part of our octets to memory that the peer opened for writing.
    fn write(
        &mut self,
        nic: &mut Nic,
        peer: &Peer<'_>,
        bytes: &[u8],
        target: &ClaimedSegment,
        part: Range<usize>,
    ) -> Ran {
        let length = part.len();
        if length >= PUBLISH_BEFORE {
            self.publish(nic, peer.life);
        }
        let octets = bytes.get(part.clone()).unwrap_or_default();
        let ran = self.touch(nic, peer, (target, Access::RemoteWrite), part, |region, at| {
            region.copy_in(at, octets);
            true
        });
        if matches!(ran, Ran::Done) {
            nic.counters.count_tagged(length);
            nic.counters.bytes_copied += length as u64;
        }
        ran
    }

    /// Copies a part of the octets that the peer opened for reading to our sink.
    fn read(
        &self,
        nic: &mut Nic,
        peer: &Peer<'_>,
        sink: &mut Sink,
        source: &ClaimedSegment,
        part: Range<usize>,
    ) -> Ran {
        let (skip, length) = (part.start, part.len());
        let ran = self.touch(nic, peer, (source, Access::RemoteRead), part, |region, at| {
            region.copy_out(at, sink, skip, length)
        });
        if matches!(ran, Ran::Done) {
            nic.counters.count_read(length);
        }
        ran
    }

    /// Accesses a part of the peer's memory with [`Far::touch`](super::port::Far::touch).
    fn touch(
        &self,
        nic: &Nic,
        peer: &Peer<'_>,
        (claim, access): (&ClaimedSegment, Access),
        part: Range<usize>,
        copy: impl FnOnce(&Shared, usize) -> bool,
    ) -> Ran {
        if peer.life.is_over() {
            return Ran::Waits;
        }
        let far = self.far(peer.segment);
        match far.touch(nic, claim, access, part.start, copy, part.len()) {
            Ok(true) => Ran::Done,
            Ok(false) => Ran::Wrong,
            // A peer that has gone took its registrations with it, and neither end broke a rule.
            Err(_) if Ended::of(peer.segment) != Ended::No => Ran::Over,
            Err(fault) => Ran::Refused(fault),
        }
    }
}
