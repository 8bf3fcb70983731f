//! What a Call of ours has open to the peer. Most Calls open nothing, so it lies apart from them.

use haulage_mr_pool::{Exposed, Invalidated, Local};
use haulage_proto::exchange::{Arrived, Body, Offered, ReplyFault, ReplyLists, check_reply};
use haulage_proto::negotiate::Version;
use haulage_proto::verbs::{Handle, Segment};

use crate::core::segments::Segments;
use crate::limits::ITEMS_MAX;
use crate::provider::Quiesced;
use crate::sys::complete;

/// The leases of one Call, and what is said of them on the wire.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// In the order of [`What`].
    items: [Item; ITEMS_MAX as usize],
    /// What we offered for the reduced result and for the Reply, in our own record.
    pub(super) offered: [Option<Segments>; 2],
    /// What its Reply says was written.
    pub(super) arrived: Option<Arrived>,
    /// Octets that the peer placed in each lease that came back, as far as the provider counts them.
    placed: [u32; ITEMS_MAX as usize],
    /// A remote caller's buffer, for the results.
    pub(crate) lent: Option<Local>,
}

/// What a Call may open to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The reduced argument.
    Argument,
    /// The Call itself.
    Body,
    /// Where the reduced result goes.
    Result,
    /// Where the Reply goes.
    Reply,
}

/// A lease that is or was open to the peer, or will be.
#[derive(Debug, Default)]
pub(super) enum Item {
    #[default]
    None,
    Local(Local),
    Exposed(Exposed),
}

impl Item {
    pub(super) fn take_local(&mut self) -> Option<Local> {
        match std::mem::replace(self, Self::None) {
            Self::Local(lease) => Some(lease),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the lease back if `proof` is about it; else the proof is returned.
    fn fence<'t>(&mut self, proof: Invalidated<'t>) -> Option<Invalidated<'t>> {
        match std::mem::replace(self, Self::None) {
            Self::Exposed(exposed) => match exposed.fence(proof) {
                Ok(lease) => {
                    *self = Self::Local(lease);
                    None
                }
                Err((exposed, proof)) => {
                    // A broken provider's: it stays exposed, and so out of everyone's reach.
                    debug_assert!(exposed.handle() != proof.handle(), "a view outlived its handle");
                    *self = Self::Exposed(exposed);
                    Some(proof)
                }
            },
            other => {
                *self = other;
                Some(proof)
            }
        }
    }

    fn quiesce(&mut self, proof: &Quiesced) {
        if let Self::Exposed(exposed) = self {
            let proof = complete::destroyed(exposed, proof);
            let stray = self.fence(proof);
            debug_assert!(stray.is_none(), "the proof was made for this very lease");
        }
    }

    /// Returns the octets that the peer placed so far, as far as the provider counts them.
    fn placed(&self) -> Option<u32> {
        match self {
            Self::Exposed(exposed) => Some(exposed.placed()),
            _ => None,
        }
    }

    pub(super) fn exposed(&self) -> Option<Handle> {
        match self {
            Self::Exposed(exposed) => Some(exposed.handle()),
            _ => None,
        }
    }
}

impl Opened {
    /// Holds the leases of a Call that is to be sent.
    pub(super) fn begin(&mut self, argument: Option<Local>, result: Option<Local>) {
        let [argument, result] =
            [argument, result].map(|lease| lease.map_or(Item::None, Item::Local));
        self.items = [argument, Item::None, result, Item::None];
        (self.offered, self.arrived) = ([None, None], None);
        self.placed = Default::default();
    }

    /// Holds an argument that is open already, or the room for a result, as one segment.
    #[inline]
    pub(super) fn begin_open(&mut self, what: What, lease: Exposed, segment: Segment) {
        self.items = [const { Item::None }; ITEMS_MAX as usize];
        *self.item(what) = Item::Exposed(lease);
        let offered = || Segments::collect(std::iter::once(segment));
        self.offered = [(what == What::Result).then(offered), None];
        self.arrived = None;
    }

    /// Returns what alone is open once a Reply has said how much was `written` into its only chunk, or has
    /// none.
    const fn only(written: Option<u32>) -> What {
        if written.is_some() { What::Result } else { What::Argument }
    }

    /// Returns whether such a Reply is in order, and nothing is open once `handle` is retired.
    #[inline]
    pub(crate) fn is_over_with(&self, handle: Handle, written: Option<u32>) -> bool {
        let in_order = match (&self.offered, written) {
            // As of any other Reply: handle and offset are not looked at.
            ([Some(write), None], Some(written)) => {
                matches!(write.as_slice(), [Segment { length, .. }] if written <= *length)
            }
            ([None, None], None) => true,
            _ => false,
        };
        let only = Self::only(written) as usize;
        in_order
            && self.items.iter().enumerate().all(|(at, item)| match item {
                Item::Exposed(exposed) => at == only && exposed.handle() == handle,
                Item::None => at != only,
                Item::Local(_) => false,
            })
    }

    /// Returns whether the peer placed as many octets as such a Reply says were `written`.
    #[inline]
    pub(super) fn has_placed(&self, written: Option<u32>) -> bool {
        let placed = self.items[What::Result as usize].placed();
        written.is_none_or(|written| placed.is_some_and(|placed| written <= placed))
    }

    /// Returns whether the Reply says that more was written than the peer placed in leases that came back.
    pub(super) fn is_overstated(&self) -> bool {
        let [_, _, result, reply] = self.placed;
        self.arrived.as_ref().is_some_and(|Arrived { writes, body }| {
            let written = writes.first().map_or(0, |chunk| chunk.written);
            written > result || matches!(body, Body::ReplyChunk { length } if *length > reply)
        })
    }

    /// Takes back the lease that was open.
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

    pub(super) const fn item(&mut self, what: What) -> &mut Item {
        &mut self.items[what as usize]
    }

    /// Returns whether the Call itself is in memory that the peer reads.
    pub(super) const fn has_body(&self) -> bool {
        !matches!(self.items[What::Body as usize], Item::None)
    }

    /// Returns the octets of a lease that has not been exposed.
    pub(super) fn length(&self, what: What) -> usize {
        match &self.items[what as usize] {
            Item::Local(lease) => lease.len(),
            _ => 0,
        }
    }

    /// Returns the handles that are alive.
    pub(super) fn handles(&self) -> [Option<Handle>; ITEMS_MAX as usize] {
        self.items.each_ref().map(Item::exposed)
    }

    /// Holds the chunks of a Reply against our own record, and keeps what they say was written.
    pub(super) fn check(
        &mut self,
        version: Version,
        lists: &ReplyLists<'_>,
    ) -> Result<(), ReplyFault> {
        let [write, reply] = self.offered.each_ref().map(|chunk| chunk.as_ref());
        let writes = write.map(|write| [write.as_slice()]);
        let writes = writes.as_ref().map_or(&[][..], |writes| writes.as_slice());
        let offered = Offered { writes, reply: reply.map(Segments::as_slice) };
        self.arrived = Some(check_reply(version, &offered, lists)?);
        Ok(())
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.items.iter().all(|item| item.exposed().is_none())
    }

    /// Takes back whichever lease `proof` is about; else the proof is returned.
    pub(super) fn fence<'t>(&mut self, proof: Invalidated<'t>) -> Option<Invalidated<'t>> {
        let mut items = self.items.iter_mut().zip(&mut self.placed);
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
        for (item, placed) in self.items.iter_mut().zip(&mut self.placed) {
            *placed = item.placed().unwrap_or(*placed);
            item.quiesce(proof);
        }
    }

    /// Returns which handle we would like to see invalidated. Section 6.5: that of what the caller waits
    /// for.
    pub(crate) fn solicited(&self) -> Handle {
        let order = [What::Result, What::Reply, What::Argument, What::Body];
        let exposed = order.iter().find_map(|what| self.items[*what as usize].exposed());
        exposed.unwrap_or(Handle(0))
    }

    /// Takes the leases out: argument, result and Reply. The lease of the Call itself goes home.
    pub(super) fn take(&mut self) -> [Option<Local>; 3] {
        drop(self.item(What::Body).take_local());
        [What::Argument, What::Result, What::Reply].map(|what| self.item(what).take_local())
    }
}
