//! A request in one transmission: the plan of most requests with items.

use super::{Unfit, first_wire_len_of};
use crate::rtrext::XMTREQ;
use crate::rtrext::direction::{Direction, Directions};
use crate::rtrext::item::{Item, Items, Location};
use crate::rtrext::properties::Terms;
use crate::v2::VERSION;
use crate::v2::header::Prefix;
use crate::verbs::Segment;
use crate::xdr::{Truncated, UNIT, Writer};

/// The plan of a request in one transmission, whose items are all sent in it, and which gives no directions. It takes no
/// memory of the heap.
///
/// Each item starts a targetable segment of the peer's buffer, and goes on in the segments that follow it in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleTransmission {
    places: [Place; ITEMS_MAX],
    count: usize,
    /// Octets of the Payload stream.
    payload: usize,
    /// Octets of the header, prefix included.
    header: usize,
}

/// The place of an item in the transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    disp: u32,
    length: u32,
    /// The number of its first segment.
    number: u32,
    /// The number of its segments.
    numbers: u32,
    /// The offset of its first octet in the transmission.
    at: usize,
}

impl SingleTransmission {
    /// Plans a request whose Payload stream has `payload` octets without its items, which are given by their displacements
    /// and lengths, in stream order.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn new(
        terms: &Terms,
        payload: usize,
        items: impl ExactSizeIterator<Item = (u32, u32)> + Clone,
    ) -> Result<Self, Unfit> {
        if !terms.allows(XMTREQ) {
            return Err(Unfit::NotAgreed);
        }
        if payload < UNIT || !payload.is_multiple_of(UNIT) {
            return Err(Unfit::NotAPayload);
        }
        if items.len() > ITEMS_MAX {
            return Err(Unfit::HeaderTooLong);
        }
        let firsts = 0..terms.theirs.targetable_count();
        let plans = firsts.map(|first| Self::from_segment(terms, payload, items.clone(), first));
        plans.into_iter().find(Option::is_some).flatten().ok_or(Unfit::NoTarget)
    }

    /// Plans a request whose first item starts in the targetable segment of this number.
    fn from_segment(
        terms: &Terms,
        payload: usize,
        items: impl ExactSizeIterator<Item = (u32, u32)>,
        first: u32,
    ) -> Option<Self> {
        let mut places = [Place::default(); ITEMS_MAX];
        let count = items.len();
        let mut number = first;
        let mut numbers = 0_u32;
        for ((disp, length), place) in items.zip(&mut places) {
            let (at, used) = segments(terms, number, length)?;
            *place = Place { disp, length, number, numbers: used, at };
            number = number.checked_add(used)?;
            numbers = numbers.checked_add(used)?;
        }
        let header = first_wire_len_of(count, usize::try_from(numbers).ok()?);
        let end = header.checked_add(payload)?;
        let front = places.first().filter(|_| count > 0).map_or(terms.message_max, |it| it.at);
        (end <= front).then_some(Self { places, count, payload, header })
    }

    /// Returns the length of the transmission in octets.
    pub fn length(&self) -> usize {
        let end = self.header.saturating_add(self.payload);
        self.places().last().map_or(end, |last| {
            last.at.saturating_add(usize::try_from(last.length).unwrap_or(usize::MAX))
        })
    }

    /// Returns the length of each item in octets.
    pub fn items(&self) -> impl Iterator<Item = u32> {
        self.places().iter().map(|place| place.length)
    }

    fn places(&self) -> &[Place] {
        self.places.get(..self.count).unwrap_or_default()
    }

    /// Appends the transmission. `items` has the octets of each item.
    ///
    /// # Errors
    /// If `w` has no room for it, or the octets are not as many as was said.
    pub fn encode<'a>(
        &self,
        w: &mut Writer<'_>,
        (xid, credit): (u32, u32),
        payload: &[u8],
        items: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Truncated> {
        type None = core::iter::Empty<Segment>;
        let start = w.position();
        let wrong = Truncated { at: start };
        Prefix { xid, vers: VERSION, credit, htype: XMTREQ }.encode(w)?;
        let located = self.places().iter().map(|place| {
            let bsnum = place.number..place.number.saturating_add(place.numbers);
            let place_of = Location::<None, _>::Tbsn { offset: 0, bsnum };
            Item { disp: place.disp, length: place.length, place: place_of }
        });
        Items::encode(w, located)?;
        let none = core::iter::empty::<(u32, u32, core::iter::Empty<Direction<None>>)>();
        Directions::encode(w, none)?;
        let pslen = u32::try_from(payload.len()).map_err(|_| wrong)?;
        for word in [1, 0, pslen] {
            w.u32(word)?;
        }
        w.put(payload)?;
        let mut items = items.into_iter();
        for place in self.places() {
            let item = items.next().ok_or(wrong)?;
            if u32::try_from(item.len()) != Ok(place.length) {
                return Err(wrong);
            }
            let at = w.position().saturating_sub(start);
            // Section 11: what was in the memory before must not leak.
            put_zeros(w, place.at.checked_sub(at).ok_or(wrong)?)?;
            w.put(item)?;
        }
        Ok(())
    }
}

/// Returns where an item of `length` octets starts that begins with the targetable segment of this number, and how many
/// segments it takes; `None` if they do not follow each other in a message, or a message is too short for them.
fn segments(terms: &Terms, number: u32, length: u32) -> Option<(usize, u32)> {
    let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let mut targets = terms.theirs.targetable().skip(usize::try_from(number).ok()?);
    let (_, mut held) = targets.next()?;
    let at = held.start;
    let end = at.checked_add(length).filter(|end| *end <= terms.message_max)?;
    let mut used = 1_u32;
    while held.end < end {
        let (_, next) = targets.next().filter(|(_, next)| next.start == held.end)?;
        held = next;
        used = used.checked_add(1)?;
    }
    Some((at, used))
}

/// Appends zeros.
fn put_zeros(w: &mut Writer<'_>, mut count: usize) -> Result<(), Truncated> {
    const ZEROS: [u8; 256] = [0; 256];
    while count > 0 {
        let some = ZEROS.get(..count).unwrap_or(&ZEROS);
        w.put(some)?;
        count = count.saturating_sub(some.len());
    }
    Ok(())
}

/// The most items of such a request.
const ITEMS_MAX: usize = 4;
