//! The placement of items in transmissions (section 7.3), with every bound checked.
//!
//! A received array of items is not trusted: it is checked against its group once, when the last
//! transmission has arrived, and only then can items be looked up. Reading E14 defines valid items,
//! and E15 the report of invalid ones.
//!
//! # Limits
//! Placement only moves forward: no octet of a transmission is in two items, so that all items
//! placed by Send together are no longer than the received transmissions.

use core::ops::Range;

use super::array::Iter;
use super::group::Part;
use super::item::{Items, Location, ReceivedItem};
use super::report::{MessageType, OutOfRange, ReportInfo};
use super::structure::Structure;
use super::table::{Context, Validity, validity};
use crate::xdr::{UNIT, pad};

/// Why items are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A fault that the draft has an error for.
    Report(ReportInfo),
    /// A fault that the draft has no error for: the rule in words.
    Rule(&'static str),
}

/// The placement of all bulk data of one complete RPC message.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    items: Items<'a>,
    parts: &'a [Part],
    structure: &'a Structure,
}

/// One contiguous part of an item that was placed by Send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the transmission that holds it, from 0.
    pub transmission: usize,
    /// The segment of that Receive that holds it.
    pub segment: usize,
    /// The range of the part in the segment.
    pub range: Range<usize>,
    /// The range of the part in the transmission.
    pub message: Range<usize>,
}

/// One contiguous part of the virtual stream, which is the RPC message with all items in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// Octets of the Payload stream: a transmission, and a range of its message.
    Payload(usize, Range<usize>),
    /// An item: its index in the array, and its length.
    Item(usize, u32),
    /// Zeros that complete the item's last XDR unit, which were not sent.
    Pad(usize),
}

impl<'a> Placement<'a> {
    /// Checks the items of a message that is complete.
    ///
    /// # Errors
    /// The fault of the first invalid item; see [`Fault`].
    pub fn new(
        items: Items<'a>,
        dir: MessageType,
        parts: &'a [Part],
        structure: &'a Structure,
    ) -> Result<Self, Fault> {
        let placement = Self::checked(items, parts, structure);
        let context = match dir {
            MessageType::Call => Context::Request,
            MessageType::Reply => Context::Response,
        };
        let payload = parts.iter().map(|part| part.payload().len()).sum::<usize>();
        let mut stream = Stream { end: UNIT as u64, limit: payload as u64 };
        let mut cursor = Cursor::default();
        for item in items.iter() {
            // [RTR-7.3-3]
            //~ RTR-7.3-3: `SemInvalid` -> `XdrInvalid`
            if validity(item.place.code(), context) == Validity::SemInvalid {
                return Err(Fault::Rule("a result in a request"));
            }
            stream.pass(&item)?;
            match item.place {
                // [RTR-7.3-2] the segments hold exactly the item.
                Location::Exrw(chunk) => {
                    let sum: u64 = chunk.segments().map(|segment| u64::from(segment.length)).sum();
                    //~ RTR-7.3-2: `sum != u64::from(item.length)` -> `sum > u64::MAX - 1`
                    if sum != u64::from(item.length) {
                        return Err(Fault::Rule("segments that are not as long as their item"));
                    }
                }
                Location::Tbsn { offset, bsnum } => {
                    placement.check(&mut cursor, offset, bsnum.iter(), item.length)?;
                }
                Location::TooShort | Location::NoItem => {}
            }
        }
        Ok(placement)
    }

    /// Makes the placement of items that have been checked.
    pub(super) const fn checked(
        items: Items<'a>,
        parts: &'a [Part],
        structure: &'a Structure,
    ) -> Self {
        Self { items, parts, structure }
    }

    /// Returns the items in order.
    pub const fn items(&self) -> Iter<'a, ReceivedItem<'a>> {
        self.items.iter()
    }

    /// Returns the parts of an item that was placed by Send; none for any other item.
    pub fn pieces(&self, item: &ReceivedItem<'a>) -> impl Iterator<Item = Piece> + use<'a> {
        let (first, numbers) = match item.place {
            Location::Tbsn { offset, bsnum } => (offset, Some(bsnum.iter())),
            _ => (0, None),
        };
        let placement = *self;
        let mut left = item.length;
        numbers.into_iter().flatten().enumerate().map_while(move |(nth, number)| {
            let start = if nth == 0 { first } else { 0 };
            let (transmission, segment, held) = placement.target(number)?;
            let room = length(&held).checked_sub(start)?;
            let taken = left.min(room);
            left = left.checked_sub(taken).filter(|_| taken > 0)?;
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(taken).ok()?)?;
            let message = held.start.checked_add(start)?..held.start.checked_add(end)?;
            Some(Piece { transmission, segment, range: start..end, message })
        })
    }

    /// Returns the Payload stream in order: numbers of transmissions, and ranges of these.
    pub fn payload(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<'a> {
        self.parts.iter().enumerate().map(|(transmission, part)| (transmission, part.payload()))
    }

    /// Returns the virtual stream in order.
    pub fn stream(&self) -> impl Iterator<Item = Span> + use<'a> {
        let mut payload = Payload { parts: self.parts, transmission: 0, at: 0 };
        // Octets of the virtual stream that have been passed, and of the Payload stream to pass yet.
        let (mut passed, mut inline) = (0_u64, 0_u64);
        let mut items = self.items.iter().enumerate().filter(|(_, item)| item.place.is_excised());
        let mut pending: Option<(usize, u32)> = None;
        let mut padding = 0;
        let mut more = true;
        core::iter::from_fn(move || {
            loop {
                if inline > 0 {
                    let span = payload.take(inline)?;
                    inline = inline.saturating_sub(span.1.len() as u64);
                    return Some(Span::Payload(span.0, span.1));
                }
                if let Some((index, length)) = pending.take() {
                    padding = pad(usize::try_from(length).unwrap_or_default());
                    passed = passed.saturating_add(padded(length));
                    return Some(Span::Item(index, length));
                }
                if padding > 0 {
                    return Some(Span::Pad(core::mem::take(&mut padding)));
                }
                if !more {
                    return None;
                }
                match items.next() {
                    Some((index, item)) => {
                        // [RTR-7.3-1] the Payload stream up to the place where the item was excised.
                        inline = u64::from(item.disp).saturating_sub(passed);
                        passed = u64::from(item.disp);
                        pending = Some((index, item.length));
                    }
                    None => {
                        more = false;
                        inline = u64::MAX;
                    }
                }
            }
        })
    }

    /// Finds a targetable segment by its number in the group (E14: of targetable ones only). Returns the transmission,
    /// the segment of its Receive, and the range of the transmission that the segment holds.
    fn target(&self, number: u32) -> Option<(usize, usize, Range<usize>)> {
        let each = self.structure.targetable_count();
        let transmission = usize::try_from(number.checked_div(each)?).ok()?;
        let nth = usize::try_from(number.checked_rem(each)?).ok()?;
        let (segment, held) = self.structure.targetable().nth(nth)?;
        self.parts.get(transmission)?;
        Some((transmission, segment, held))
    }

    /// Returns the octets of a numbered segment that can hold bulk data: those that arrived, that are not part of the
    /// header or the Payload stream, and that are not before `cursor`.
    fn free(&self, number: u32, cursor: &Cursor) -> Option<Range<u32>> {
        let (transmission, _, held) = self.target(number)?;
        let part = self.parts.get(transmission)?;
        let within = |at: usize| at.clamp(held.start, held.end).saturating_sub(held.start);
        let used = if number == cursor.number { cursor.offset } else { 0 };
        let start = u32::try_from(within(part.end)).ok()?.max(used);
        let end = u32::try_from(within(part.length)).ok()?;
        (start < end && number >= cursor.number).then_some(start..end)
    }

    /// Checks the claimed location of an item of `left` octets, and moves `cursor` past it.
    fn check(
        &self,
        cursor: &mut Cursor,
        offset: u32,
        numbers: Iter<'_, u32>,
        mut left: u32,
    ) -> Result<(), Fault> {
        let mut first = true;
        for number in numbers {
            if left == 0 {
                break;
            }
            let place = self.target(number).zip(self.free(number, cursor));
            let Some(((_, _, held), free)) = place else {
                return Err(self.bad_number(cursor, number));
            };
            let start = if first { offset } else { 0 };
            let whole = length(&held);
            // The item goes on to the end of the segment, or ends in it.
            let taken = left.min(whole.saturating_sub(start));
            let end = start.saturating_add(taken);
            let fits = start >= free.start && taken > 0 && end <= free.end;
            // E15: only the first segment of an item has an offset to report; the fault in a later one is its number.
            if !first && !fits {
                return Err(self.bad_number(cursor, number));
            }
            // E14: the draft's example of a bad value is in range and not aligned to 32 bits.
            if !fits || !start.is_multiple_of(4) {
                let max = if free.end == whole {
                    whole.saturating_sub(1)
                } else {
                    free.end.saturating_sub(left)
                };
                let min = free.start.checked_next_multiple_of(4).unwrap_or(u32::MAX);
                let field = OutOfRange { value: start, min, max: max & !3 };
                return Err(Fault::Report(ReportInfo::BadOffset(field)));
            }
            *cursor = Cursor { number, offset: end };
            if end == whole {
                *cursor = Cursor { number: number.saturating_add(1), offset: 0 };
            }
            left = left.saturating_sub(taken);
            first = false;
        }
        // E15: where the numbers end before the item does, the missing number is reported.
        if left > 0 { Err(self.bad_number(cursor, u32::MAX)) } else { Ok(()) }
    }

    /// Returns the fault for the number `value`, with the range of valid numbers, which may be
    /// empty.
    fn bad_number(&self, cursor: &Cursor, value: u32) -> Fault {
        let parts = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let all = cursor.number..self.structure.targetable_count().saturating_mul(parts);
        let mut usable = all.filter(|number| self.free(*number, cursor).is_some());
        let min = usable.next();
        let max = usable.next_back().or(min);
        let (min, max) = min.zip(max).unwrap_or((1, 0));
        Fault::Report(ReportInfo::BadNumber(OutOfRange { value, min, max }))
    }
}

/// The progress of placement: a numbered segment, and the number of its octets in use.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    number: u32,
    offset: u32,
}

/// The progress of the virtual stream: the end of the last item, and the end of the stream if no items followed.
#[derive(Debug)]
struct Stream {
    end: u64,
    limit: u64,
}

impl Stream {
    /// Checks that an item is after the previous one and within the stream.
    fn pass(&mut self, item: &ReceivedItem<'_>) -> Result<(), Fault> {
        if matches!(item.place, Location::NoItem) {
            return Ok(());
        }
        let disp = u64::from(item.disp);
        // An excised item can stand at the end of the rest of the stream; any other item is part of that rest.
        let inline = if item.place.is_excised() { 0 } else { padded(item.length) };
        let max = self.limit.saturating_sub(inline);
        // E15: a displacement is an offset too.
        if disp < self.end || disp > max || !disp.is_multiple_of(UNIT as u64) {
            let word = |at: u64| u32::try_from(at).unwrap_or(u32::MAX) & !3;
            let field = OutOfRange { value: item.disp, min: word(self.end), max: word(max) };
            return Err(Fault::Report(ReportInfo::BadOffset(field)));
        }
        self.end = disp.saturating_add(padded(item.length));
        if item.place.is_excised() {
            self.limit = self.limit.saturating_add(padded(item.length));
        }
        if self.limit > u64::from(u32::MAX) {
            return Err(Fault::Rule("a virtual stream beyond 2^32 octets"));
        }
        Ok(())
    }
}

/// The Payload stream of a group, as it is taken.
#[derive(Debug)]
struct Payload<'a> {
    parts: &'a [Part],
    transmission: usize,
    /// Octets taken of the current transmission's.
    at: usize,
}

impl Payload<'_> {
    /// Takes at most `most` octets; returns their transmission and their range in it.
    fn take(&mut self, most: u64) -> Option<(usize, Range<usize>)> {
        loop {
            let part = self.parts.get(self.transmission)?;
            let left = part.payload().len().saturating_sub(self.at);
            if left == 0 {
                self.transmission = self.transmission.saturating_add(1);
                self.at = 0;
                continue;
            }
            let taken = left.min(usize::try_from(most).unwrap_or(usize::MAX));
            let start = part.start.saturating_add(self.at);
            self.at = self.at.saturating_add(taken);
            return Some((self.transmission, start..start.saturating_add(taken)));
        }
    }
}

fn length(range: &Range<usize>) -> u32 {
    u32::try_from(range.len()).unwrap_or(u32::MAX)
}

/// Returns the number of octets that an item occupies in the virtual stream.
fn padded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(UNIT as u64)
}

#[cfg(test)]
mod tests;
