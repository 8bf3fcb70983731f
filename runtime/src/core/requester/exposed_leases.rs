//! The leases that a Call of ours exposes to the peer. Most Calls expose none, so this record lies apart from them.

use haulage_mr_pool::{Exposed, Invalidated, Local, Pool};
use haulage_proto::chunk::Returned;
use haulage_proto::exchange::{
    Arrived, Body, CallPlan, Format, Offered, ReplyFault, ReplyLists, check_reply,
};
use haulage_proto::negotiate::Version;
use haulage_proto::verbs::{Handle, Segment};

use super::again::SentCall;
use super::further::{Further, FurtherLease};
use super::lease::{CallLease, LeaseRole, ReadStream};
use super::way::Way;
use crate::items::Items;
use crate::limits::ITEMS_MAX;
use crate::outgoing::segments::Segments;
use crate::provider::Quiesced;
use crate::service::ArgumentItem;

/// The leases of one Call, and the segments that name them on the wire.
#[derive(Debug, Default)]
pub(crate) struct ExposedLeases {
    /// The leases, in the order of [`LeaseRole`]: of several arguments or results the first.
    items: [CallLease; ITEMS_MAX as usize],
    /// The others.
    pub(super) further: Further,
    /// Our own record of the chunks that we offered: for the first reduced result, and for the Reply.
    pub(super) offered: [Option<Segments>; 2],
    /// The lengths that the Reply gives for its chunks.
    pub(super) arrived: Option<Arrived>,
    /// Octets that the peer placed in each lease that came back, as far as the provider counts them.
    placed: [u32; ITEMS_MAX as usize],
    /// A remote caller's buffer, for the results.
    pub(crate) lent: Option<Local>,
    /// Whether the Call goes by the round-trip extensions: its arguments go along with the message, copied and not exposed,
    /// and it may direct how its results come.
    pub(super) is_along: bool,
    /// How the results of such a Call are to come; none if it gives no directions.
    pub(super) ways: Items<Way>,
    /// What it takes to send the Call again.
    pub(super) sent: SentCall,
    /// The Payload stream of a Reply that the server exposes.
    pub(super) read: ReadStream,
}

/// What comes back of the leases of a Call: all of a direction, or none of them.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) arguments: Items<Local>,
    pub(super) rooms: Items<Local>,
    /// The lease of the Reply chunk, or of a Reply that was read.
    pub(super) chunk: Option<Local>,
}

impl ExposedLeases {
    /// Holds the leases of a Call that is to be sent.
    pub(super) fn begin(&mut self, arguments: Items<ArgumentItem>, rooms: Items<Local>) {
        let first = self.further.begin(arguments, rooms);
        let [argument, result] = first.map(|lease| lease.map_or(CallLease::None, CallLease::Local));
        self.items = [argument, CallLease::None, result, CallLease::None];
        (self.offered, self.arrived) = ([None, None], None);
        self.is_along = false;
        self.placed = Default::default();
    }

    /// Prepares the leases of a Call that goes again, once none is exposed any more: the rooms for its results have as many
    /// octets as the plan says. `None` if there is no memory for that.
    pub(super) fn begin_again(&mut self, plan: &CallPlan, pool: &Pool) -> Option<()> {
        for (room, wanted) in self.rooms().zip(plan.writes.iter()) {
            let wanted = *wanted as usize;
            match room.0 {
                CallLease::Local(room) if room.capacity() < wanted => *room = pool.lease(wanted)?,
                CallLease::Local(room) if room.len() < wanted => room.set_len(wanted),
                _ => {}
            }
        }
        self.further.leases.iter_mut().for_each(FurtherLease::begin_again);
        let [argument, _, result, _] = std::mem::take(&mut self.items);
        self.items = [argument, CallLease::None, result, CallLease::None];
        (self.offered, self.arrived) = ([None, None], None);
        self.is_along = false;
        self.placed = Default::default();
        Some(())
    }

    /// Holds an argument that is exposed already, or the room for a result, as one segment.
    #[inline]
    pub(super) fn begin_open(&mut self, role: LeaseRole, lease: Exposed, segment: Segment) {
        for item in &mut self.items {
            // Of the Call before, as a rule nothing is left.
            if !matches!(item, CallLease::None) {
                *item = CallLease::None;
            }
        }
        *self.item(role) = CallLease::Exposed(lease);
        self.offered = [(role == LeaseRole::Result).then(|| Segments::one(segment)), None];
        (self.arrived, self.is_along) = (None, false);
        self.further.forget();
    }

    /// Returns the rooms for results, each with the place for our record of its Write chunk.
    pub(super) fn rooms(
        &mut self,
    ) -> impl Iterator<Item = (&mut CallLease, &mut Option<Segments>)> {
        let [_, _, first, _] = &mut self.items;
        let [offered, _] = &mut self.offered;
        let further = self.further.of_mut(LeaseRole::Result);
        let further = further.map(|one| (&mut one.lease, &mut one.offered));
        std::iter::once((first, offered)).chain(further)
    }

    /// Returns the arguments.
    pub(super) fn arguments(&mut self) -> impl Iterator<Item = &mut CallLease> {
        let [first, ..] = &mut self.items;
        let further = self.further.of_mut(LeaseRole::Argument).map(|one| &mut one.lease);
        std::iter::once(first).chain(further)
    }

    /// Returns our own record of the Write chunks that we offered.
    pub(in crate::core) fn writes(&self) -> Items<&[Segment]> {
        self.offered_to_write().map(Segments::as_slice).collect()
    }

    /// Returns the segments of each Write chunk that we offered.
    pub(super) fn offered_to_write(&self) -> impl Iterator<Item = &Segments> {
        let further = self.further.of(LeaseRole::Result).map(|one| &one.offered);
        let all = std::iter::once(&self.offered[0]).chain(further);
        all.map_while(Option::as_ref)
    }

    /// Returns every lease.
    fn each(&self) -> impl Iterator<Item = &CallLease> {
        self.items.iter().chain(self.further.leases.iter().map(|one| &one.lease))
    }

    /// Returns the role of the only exposed lease. `written` is the length that a Reply gives for its only chunk;
    /// `None` if the Reply has no chunk.
    const fn only(written: Option<u32>) -> LeaseRole {
        if written.is_some() { LeaseRole::Result } else { LeaseRole::Argument }
    }

    /// Returns whether a Reply is in order and leaves nothing exposed once `handle` is retired. `written` is the length
    /// that the Reply gives for its only chunk; `None` if the Reply has no chunk.
    #[inline]
    pub(crate) fn is_over_with(&self, handle: Handle, written: Option<u32>) -> bool {
        let in_order = match (&self.offered, written) {
            // Handle and offset of a returned segment are not compared, in any Reply.
            ([Some(write), None], Some(written)) => {
                matches!(write.as_slice(), [Segment { length, .. }] if written <= *length)
            }
            ([None, None], None) => true,
            _ => false,
        };
        let only = Self::only(written) as usize;
        in_order
            && self.further.is_empty()
            && self.items.iter().enumerate().all(|(at, item)| match item {
                CallLease::Exposed(exposed) => at == only && exposed.handle() == handle,
                CallLease::None => at != only,
                CallLease::Local(_) => false,
            })
    }

    /// Returns whether the peer placed the octets that a Reply says were `written` into its only chunk.
    #[inline]
    pub(super) fn has_placed(&self, written: Option<u32>) -> bool {
        let placed = self.items[LeaseRole::Result as usize].placed();
        written.is_none_or(|written| placed.is_some_and(|placed| written <= placed))
    }

    /// Returns whether the Reply claims more octets than the peer placed in the leases that came back.
    pub(super) fn is_overstated(&self) -> bool {
        let [_, _, result, reply] = self.placed;
        let further = self.further.of(LeaseRole::Result).map(|one| one.placed);
        self.arrived.as_ref().is_some_and(|Arrived { writes, body }| {
            let mut placed = std::iter::once(result).chain(further).zip(writes.iter());
            placed.any(|(placed, chunk)| chunk.written > placed)
                || matches!(body, Body::ReplyChunk { length } if *length > reply)
        })
    }

    /// Takes back the only exposed lease.
    #[inline]
    pub(super) fn take_back(
        &mut self,
        proof: Invalidated<'_>,
        written: Option<u32>,
    ) -> Option<Local> {
        let item = self.item(Self::only(written));
        let stray = item.fence(proof);
        debug_assert!(stray.is_none(), "the handle was looked at");
        item.take_local()
    }

    /// Takes out the only argument of a Call that went along with its message, and exposes nothing.
    pub(super) fn take_along(&mut self) -> Option<Local> {
        let is_only = self.is_along && self.further.is_empty();
        let rooms = [LeaseRole::Result, LeaseRole::Reply];
        let has_rooms =
            rooms.iter().any(|role| !matches!(self.items[*role as usize], CallLease::None));
        if !is_only || has_rooms {
            return None;
        }
        self.item(LeaseRole::Argument).take_local()
    }

    pub(super) const fn item(&mut self, role: LeaseRole) -> &mut CallLease {
        &mut self.items[role as usize]
    }

    /// Returns the Payload stream of a Call that leaves in parts.
    pub(super) fn stream(&self) -> &[u8] {
        match &self.items[LeaseRole::Body as usize] {
            CallLease::Local(body) => body.bytes(),
            _ => &[],
        }
    }

    /// Returns the format of a Call that has left.
    pub(super) const fn format(&self) -> Format {
        match self.items[LeaseRole::Body as usize] {
            CallLease::None => Format::Simple,
            CallLease::Local(_) => Format::Continued { messages: 2 },
            CallLease::Exposed(_) => Format::Special,
        }
    }

    /// Returns the octets of a lease that has not been exposed; 0 if there is none.
    pub(super) fn length(&self, role: LeaseRole) -> usize {
        match &self.items[role as usize] {
            CallLease::Local(lease) => lease.len(),
            _ => 0,
        }
    }

    /// Returns the octets of a lease, whether it is exposed or not; 0 if there is none.
    pub(super) fn octets(&self, role: LeaseRole) -> usize {
        self.items[role as usize].octets()
    }

    /// Returns how many leases are exposed, and their octets.
    pub(super) fn exposed(&self) -> (usize, usize) {
        let lengths = self.each().filter_map(|item| match item {
            CallLease::Exposed(exposed) => Some(exposed.len()),
            _ => None,
        });
        lengths.fold((0, 0), |(count, octets), length| (count + 1, octets + length))
    }

    /// Returns the handles that are valid.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.each().filter_map(CallLease::exposed)
    }

    /// Checks the chunks of a Reply against our own record, and keeps the lengths that they give.
    pub(super) fn check(
        &mut self,
        version: Version,
        lists: &ReplyLists<'_>,
    ) -> Result<(), ReplyFault> {
        let [_, reply] = &self.offered;
        let is_directed = self.is_along && !self.ways.is_empty();
        // A Reply of the base protocol to a Call with directions has its results in the Payload stream.
        let writes = match lists.writes.chunk_count() {
            0 if is_directed => Items::None,
            _ => self.writes(),
        };
        let reply = reply.as_ref().map(Segments::as_slice);
        // A Reply gets here with a Read list only where the engine takes some.
        let offered = Offered { writes: writes.as_slice(), reply, reads: true };
        let arrived = check_reply(version, &offered, lists)?;
        let unused = if is_directed { self.ways.len() } else { 0 };
        let Arrived { writes, .. } = self.arrived.insert(arrived);
        while writes.len() < unused && writes.push(Returned::default()) {}
        Ok(())
    }

    /// Notes that a result of `length` octets is in its room, as if the peer had placed it there.
    pub(super) fn note_placed(&mut self, index: usize, length: usize) {
        let [_, _, first, _] = &mut self.placed;
        let further = self.further.of_mut(LeaseRole::Result).map(|one| &mut one.placed);
        if let Some(placed) = std::iter::once(first).chain(further).nth(index) {
            *placed = u32::try_from(length).unwrap_or(u32::MAX);
        }
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.each().all(|item| item.exposed().is_none())
    }

    /// Takes back the lease that `proof` is about; otherwise returns the proof.
    pub(super) fn fence<'t>(&mut self, proof: Invalidated<'t>) -> Option<Invalidated<'t>> {
        let further = self.further.leases.iter_mut().map(|one| (&mut one.lease, &mut one.placed));
        let mut items = self.items.iter_mut().zip(&mut self.placed).chain(further);
        items
            .try_fold(proof, |proof, (item, placed)| {
                let so_far = item.placed();
                match item.fence(proof) {
                    Some(proof) => Ok(proof),
                    None => {
                        *placed = so_far.unwrap_or_default();
                        Err(())
                    }
                }
            })
            .ok()
    }

    /// Takes back every lease: the connection has quiesced.
    pub(super) fn quiesce(&mut self, proof: &Quiesced) {
        let further = self.further.leases.iter_mut().map(|one| (&mut one.lease, &mut one.placed));
        for (item, placed) in self.items.iter_mut().zip(&mut self.placed).chain(further) {
            *placed = item.placed().unwrap_or(*placed);
            item.quiesce(proof);
        }
    }

    /// Returns the handle that we ask the peer to invalidate: the one of the lease that the caller waits for (section
    /// 6.5).
    pub(crate) fn solicited(&self) -> Handle {
        let order = [LeaseRole::Result, LeaseRole::Reply, LeaseRole::Argument, LeaseRole::Body];
        let exposed = order.iter().find_map(|role| self.items[*role as usize].exposed());
        exposed.or_else(|| self.handles().next()).unwrap_or(Handle(0))
    }

    /// Takes the leases out. The lease of the Call's Payload stream goes home.
    pub(super) fn take(&mut self) -> Taken {
        drop(self.item(LeaseRole::Body).take_local());
        let [argument, result, chunk] = [LeaseRole::Argument, LeaseRole::Result, LeaseRole::Reply]
            .map(|role| self.item(role).take_local());
        let chunk = self.read.take().or(chunk);
        let (arguments, rooms) = (argument.into(), result.into());
        let taken = Taken { arguments, rooms, chunk };
        if self.further.leases.is_empty() { taken } else { self.take_further(taken) }
    }

    #[cold]
    fn take_further(&mut self, Taken { arguments, rooms, chunk }: Taken) -> Taken {
        let mut all = |role, first: Items<Local>| {
            let further = self.further.of_mut(role).map(|one| one.lease.take_local());
            let all: Option<Items<Local>> = first.into_iter().map(Some).chain(further).collect();
            all.unwrap_or_default()
        };
        let arguments = all(LeaseRole::Argument, arguments);
        let rooms = all(LeaseRole::Result, rooms);
        self.further.forget();
        Taken { arguments, rooms, chunk }
    }
}
