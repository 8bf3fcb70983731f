//! The division of an RPC message into transmissions that place its bulk data in the peer's
//! targetable segments (sections 4.2, 7.2).
//!
//! The Payload stream is sent first, in as few transmissions as possible. Bulk data starts in the last of these, at the
//! first targetable segment of the peer's buffer after the Payload stream, and each item starts a segment of its own.
//! The octets between are zero padding.

mod outgoing;
mod single;
mod targets;

use alloc::vec::Vec;
use core::ops::Range;

pub use self::outgoing::{Content, Directive, Kind, Outgoing, Source, Unfit};
pub use self::single::SingleTransmission;
use self::targets::{TargetSlot, Targets};
use super::direction::{Direction, Directions};
use super::item::{Item, Items, Location};
use super::properties::Terms;
use super::structure::Structure;
use super::{XMTCONT, XMTREQ, XMTRESP};
use crate::v2::VERSION;
use crate::v2::header::Prefix;
use crate::verbs::Segment;
use crate::xdr::{Truncated, UNIT, Writer};

/// The plan of an RPC message's transmissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    transmissions: Vec<Transmission>,
    slots: Vec<TargetSlot>,
    /// `optxrq_rsbuf`, in a request.
    rsbuf: u32,
}

/// One transmission of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Transmission {
    /// The length of the header in octets, prefix included.
    header: usize,
    /// The range of the Payload stream that it carries.
    payload: Range<usize>,
    /// The length of the whole transmission in octets.
    length: usize,
}

/// A part of a transmission after its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A range of the Payload stream.
    Payload(Range<usize>),
    /// Padding: the number of zero octets.
    Zeros(usize),
    /// A range of the item with this index in the message.
    Item(usize, Range<usize>),
}

impl Plan {
    /// Plans the transmissions of a message.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn new(terms: &Terms, message: &Outgoing<'_>) -> Result<Self, Unfit> {
        let (htype, count_max) = match message.kind {
            Kind::Request { .. } => (XMTREQ, terms.request_send_max),
            Kind::Response { count_max } => (XMTRESP, count_max.min(terms.response_send_max)),
        };
        if !terms.allows(htype) {
            return Err(Unfit::NotAgreed);
        }
        let payload = message.payload_length;
        if payload < UNIT || !payload.is_multiple_of(UNIT) || u32::try_from(payload).is_err() {
            return Err(Unfit::NotAPayload);
        }
        let bulk = message.items.iter().any(Item::is_bulk);
        // Bulk data may begin in any targetable segment of a buffer: the fewest transmissions win.
        let firsts = if bulk { terms.theirs.targetable().count() } else { 1 };
        let plans = (0..firsts)
            .map(|first| Self::arrange(terms, message, count_max, bulk.then_some(first)));
        let plan = plans.reduce(|best, plan| match (&best, &plan) {
            (Ok(a), Ok(b)) if a.transmissions.len() <= b.transmissions.len() => best,
            (Ok(_), Err(_)) => best,
            _ => plan,
        });
        plan.unwrap_or(Err(Unfit::NoTarget))
    }

    /// Returns the number of transmissions. Send the first only with credits for all of them (E12,
    /// [RTR-4.3-1]).
    pub fn transmissions(&self) -> usize {
        //~ RTR-4.3-1: `len()` -> `len().min(1)`
        self.transmissions.len()
    }

    /// Returns the length of a whole transmission in octets.
    pub fn length(&self, transmission: usize) -> usize {
        self.transmissions.get(transmission).map_or(0, |sent| sent.length)
    }

    /// Appends the header of a transmission, prefix included.
    pub fn encode_header(
        &self,
        w: &mut Writer<'_>,
        transmission: usize,
        (xid, credit): (u32, u32),
        message: &Outgoing<'_>,
    ) -> Result<(), Truncated> {
        let at = Truncated { at: w.position() };
        let word = |count: usize| u32::try_from(count).map_err(|_| at);
        let sent = self.transmissions.get(transmission).ok_or(at)?;
        let count = word(self.transmissions.len())?;
        let pslen = word(sent.payload.len())?;
        let prefix = |htype| Prefix { xid, vers: VERSION, credit, htype };
        if transmission > 0 {
            //~ RTR-9.4-1: `prefix(XMTCONT)` -> `Prefix { xid: xid ^ 1, ..prefix(XMTCONT) }`
            prefix(XMTCONT).encode(w)?;
            // E10: optxc_itype is undescribed, and sent as zero.
            for word in [word(transmission)?, 0, pslen] {
                w.u32(word)?;
            }
            return Ok(());
        }
        let items = message.items.iter().enumerate().map(|(nth, item)| self.locate(nth, item));
        match message.kind {
            Kind::Request { rsd, .. } => {
                prefix(XMTREQ).encode(w)?;
                Items::encode(w, items)?;
                // [RTR-7.1-2]
                //~ RTR-7.1-2: `copied()` -> `copied().take(0)`
                Directions::encode(w, rsd.iter().copied().map(Directive::to_encode))?;
                w.u32(count)?;
                w.u32(self.rsbuf)?;
            }
            Kind::Response { .. } => {
                prefix(XMTRESP).encode(w)?;
                Items::encode(w, items)?;
                w.u32(count)?;
            }
        }
        w.u32(pslen)
    }

    /// Returns the parts of a transmission after its header. Copied or gathered in this order, they place the bulk data
    /// in the peer's targetable segments.
    pub fn pieces(&self, transmission: usize) -> impl Iterator<Item = Piece> + '_ {
        let sent = self.transmissions.get(transmission);
        let payload = sent.map(|sent| sent.payload.clone()).filter(|payload| !payload.is_empty());
        let mut at = sent.map_or(0, |sent| sent.header.saturating_add(sent.payload.len()));
        let slots = self.slots.iter().filter(move |slot| slot.transmission == transmission);
        let bulk = slots.flat_map(move |slot| {
            let zeros = slot.at.saturating_sub(at);
            at = slot.at.saturating_add(slot.range.len());
            let zeros = (zeros > 0).then_some(Piece::Zeros(zeros));
            zeros.into_iter().chain([Piece::Item(slot.item, slot.range.clone())])
        });
        payload.map(Piece::Payload).into_iter().chain(bulk)
    }

    /// Appends a whole transmission: the header, and copies of the parts after it.
    pub fn encode(
        &self,
        w: &mut Writer<'_>,
        transmission: usize,
        (xid, credit): (u32, u32),
        message: &Outgoing<'_>,
        content: Content<'_>,
    ) -> Result<(), Truncated> {
        self.encode_header(w, transmission, (xid, credit), message)?;
        for piece in self.pieces(transmission) {
            let missing = Truncated { at: w.position() };
            match piece {
                Piece::Payload(range) => w.put(content.payload.get(range).ok_or(missing)?)?,
                Piece::Item(item, range) => {
                    let item = content.items.get(item).and_then(|item| item.get(range));
                    w.put(item.ok_or(missing)?)?;
                }
                // Section 11: what was in the memory before must not leak.
                Piece::Zeros(count) => (0..count).try_for_each(|_| w.put([0]))?,
            }
        }
        Ok(())
    }

    /// Plans a message whose bulk data, if there is any, uses the targetable segments of each
    /// buffer from `first` on.
    fn arrange(
        terms: &Terms,
        message: &Outgoing<'_>,
        count_max: u32,
        first: Option<usize>,
    ) -> Result<Self, Unfit> {
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        let max = terms.message_max;
        let targets = Targets::new(&terms.theirs, first.unwrap_or_default(), max);
        let mut slots = Vec::new();
        if first.is_some() {
            // The header of a continuation has to fit in front of the first targetable segment.
            let front = targets.front().filter(|front| *front >= CONT_LEN);
            front.ok_or(Unfit::NoTarget)?;
            slots = targets.fill(message.items, count_max)?;
        }
        let mut header = first_wire_len(message, slots.len());
        // The last part of the Payload stream has to end before the first targetable segment.
        let limit = targets.front().filter(|_| first.is_some()).unwrap_or(max);
        let mut transmissions = Vec::new();
        let mut at = 0_usize;
        loop {
            let room = max.saturating_sub(header) & !3;
            if room < UNIT {
                return Err(Unfit::HeaderTooLong);
            }
            let left = message.payload_length.saturating_sub(at);
            let end = at.saturating_add(left.min(room));
            let length = header.saturating_add(left.min(room));
            transmissions.push(Transmission { header, payload: at..end, length });
            if transmissions.len() > count_max {
                return Err(Unfit::TooManyTransmissions);
            }
            if header.saturating_add(left) <= limit {
                break;
            }
            at = end;
            header = CONT_LEN;
        }
        let rsbuf = match message.kind {
            Kind::Request { rsbuf, .. } => rsbuf.min(terms.response_receive_max.saturating_sub(1)),
            Kind::Response { .. } => 0,
        };
        let mut plan = Self { transmissions, slots, rsbuf };
        plan.settle(&terms.theirs);
        if plan.transmissions.len() > count_max {
            return Err(Unfit::TooManyTransmissions);
        }
        Ok(plan)
    }

    /// Starts the bulk data in the last transmission, and adds the further transmissions it needs.
    fn settle(&mut self, structure: &Structure) {
        let start = self.transmissions.len().saturating_sub(1);
        let each = structure.targetable_count();
        let end = self.transmissions.last().map_or(0, |last| last.payload.end);
        for slot in &mut self.slots {
            slot.transmission = slot.transmission.saturating_add(start);
            // Numbers count the segments of all transmissions before this one, used or not.
            let before = u32::try_from(slot.transmission).unwrap_or(u32::MAX).saturating_mul(each);
            slot.number = slot.number.saturating_add(before);
            while self.transmissions.len() <= slot.transmission {
                let payload = end..end;
                let sent = Transmission { header: CONT_LEN, payload, length: CONT_LEN };
                self.transmissions.push(sent);
            }
            if let Some(sent) = self.transmissions.get_mut(slot.transmission) {
                sent.length = slot.at.saturating_add(slot.range.len());
            }
        }
    }

    /// Returns the location of an item, as the first header encodes it.
    fn locate<'s>(
        &'s self,
        nth: usize,
        item: &'s Item<Source>,
    ) -> Item<
        Location<
            impl ExactSizeIterator<Item = Segment> + use<'s>,
            impl ExactSizeIterator<Item = u32> + use<'s>,
        >,
    > {
        let place = match &item.place {
            Source::Exrw(segments) => Location::Exrw(segments.iter().copied()),
            Source::Send => Location::Tbsn { offset: 0, bsnum: self.slots_of(nth) },
            Source::TooShort => Location::TooShort,
            Source::NoItem => Location::NoItem,
        };
        Item { disp: item.disp, length: item.length, place }
    }

    fn slots_of(&self, item: usize) -> impl ExactSizeIterator<Item = u32> + use<'_> {
        let start = self.slots.partition_point(|slot| slot.item < item);
        let end = self.slots.partition_point(|slot| slot.item <= item);
        self.slots.get(start..end).unwrap_or_default().iter().map(|slot| slot.number)
    }
}

impl Item<Source> {
    /// Returns whether the item has octets that are sent.
    fn is_bulk(&self) -> bool {
        // [RTR-5.3-2] an item that is fetched by RDMA Read needs no targetable segment.
        //~ RTR-5.3-2: `== Source::Send` -> `!= Source::NoItem`
        self.place == Source::Send && self.length > 0
    }
}

impl<'a> Directive<'a> {
    fn to_encode(
        self,
    ) -> (
        u32,
        u32,
        impl ExactSizeIterator<Item = Direction<core::iter::Copied<core::slice::Iter<'a, Segment>>>>
        + use<'a>,
    ) {
        let segments = |segments: &'a [Segment]| segments.iter().copied();
        let items = self
            .items
            .iter()
            .map(move |item| Direction { minlen: item.minlen, place: item.place.map(segments) });
        (self.begin, self.end, items)
    }
}

/// Returns the length of the first transmission's header in octets, prefix included, if it names `numbers` targetable
/// segments.
fn first_wire_len(message: &Outgoing<'_>, numbers: usize) -> usize {
    type Any = Location<(), ()>;
    let items = message.items.iter().map(|item| match &item.place {
        Source::Exrw(segments) => Any::exrw_wire_len(segments.len()),
        Source::Send => Any::tbsn_wire_len(0),
        Source::TooShort | Source::NoItem => Any::VOID_WIRE_LEN,
    });
    let own = match message.kind {
        Kind::Request { rsd, .. } => {
            let sets = rsd.iter().map(|set| {
                let items = set.items.iter().map(|item| item.place.wire_len());
                items.fold(3 * UNIT, usize::saturating_add)
            });
            // The counts of both arrays, optxrq_count, optxrq_rsbuf and optxrq_pslen.
            sets.fold(5 * UNIT, usize::saturating_add)
        }
        // The count of the array, optxrs_count and optxrs_pslen.
        Kind::Response { .. } => 3 * UNIT,
    };
    let numbers = numbers.saturating_mul(UNIT);
    items.fold(own.saturating_add(numbers).saturating_add(Prefix::WIRE_LEN), usize::saturating_add)
}

/// Returns the length of the header of a request in octets, prefix included, that has `items` in `numbers` targetable
/// segments and gives no directions.
fn first_wire_len_of(items: usize, numbers: usize) -> usize {
    type Any = Location<(), ()>;
    let each = Any::tbsn_wire_len(0).saturating_mul(items);
    let own = (5 * UNIT).saturating_add(Prefix::WIRE_LEN);
    each.saturating_add(numbers.saturating_mul(UNIT)).saturating_add(own)
}

/// The length of the header of a continuation in octets, prefix included.
const CONT_LEN: usize = Prefix::WIRE_LEN + 3 * UNIT;

#[cfg(test)]
mod tests;
