//! The Responder's use of the directions in a request, and the Requester's check of the response
//! (sections 6.2, 7.4).

use alloc::vec::Vec;

use super::direction::{Directed, Direction, Directions, KeptDirections};
use super::item::{Item, Items, Location};
use super::plan::{Directive, Source};
use super::report::{OutOfRange, ReportInfo};
use super::table::{Outcome, outcome};
use crate::chunk::plan::filled;
use crate::chunk::{WriteChunk, returned};
use crate::v2::error::ErrorBody;
use crate::verbs::Segment;

/// A DDP-eligible item of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultItem {
    /// The position in the request's virtual stream of the operation that caused this item. It
    /// never decreases from one item to the next.
    pub cause: u32,
    /// The offset of the item in the Reply's virtual stream.
    pub disp: u32,
    /// The length of the item in octets, without padding.
    pub length: u32,
}

/// What a request says about its response.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The directions for the items.
    pub directions: KeptDirections,
    /// The number of transmissions that the response may have beyond the first.
    pub rsbuf: u32,
}

/// The Responder's preference where a direction leaves it the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// The Responder prefers placement by Send.
    Send,
    /// The Responder prefers RDMA Writes.
    Write,
}

/// The answers to the directions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// One item for each direction, in their order: `optxrs_dp`.
    pub items: Vec<Item<Source>>,
    /// The index of the result that each item is about, if there is one.
    pub results: Vec<Option<usize>>,
}

impl Answers {
    /// Follows the directions of a request. Each direction applies to the next result of its set,
    /// even if that result is too short; a result without a direction stays in the Payload stream.
    ///
    /// # Errors
    /// The error to answer with if the memory offered for a result is too short and no other
    /// placement is allowed.
    pub fn new(
        rsd: &Directions<'_>,
        results: &[ResultItem],
        prefer: Prefer,
    ) -> Result<Self, ErrorBody> {
        let mut answers = Self::default();
        let mut left = results.iter().enumerate().peekable();
        let mut chunk_index = 0_u32;
        for set in rsd.iter() {
            // E17: results caused before this range begins belong to no range.
            while left.next_if(|(_, result)| result.cause < set.begin).is_some() {}
            for direction in set.items.iter() {
                // Section 7.4: the directions of a range are for the results that the range causes.
                let result = left.next_if(|(_, result)| result.cause < set.end);
                if direction.place.segments().is_some() {
                    chunk_index = chunk_index.saturating_add(1);
                }
                let (item, index) = match result {
                    None => (Item { disp: 0, length: 0, place: Source::NoItem }, None),
                    Some((index, result)) => {
                        // [RTR-6.2-1] the Requester says where the item goes; our preference counts only where it
                        // leaves a choice.
                        //~ RTR-6.2-1: `&direction` -> `&Direction { place: Directed::Tbsn, ..direction }`
                        let place = choose(&direction, result.length, prefer, chunk_index)?;
                        let ResultItem { disp, length, .. } = *result;
                        (Item { disp, length, place }, Some(index))
                    }
                };
                answers.items.push(item);
                answers.results.push(index);
            }
        }
        Ok(answers)
    }

    /// Returns the number of octets of the virtual stream outside the Payload stream: the items and
    /// their padding.
    pub fn excised(&self) -> u64 {
        let away = |item: &&Item<Source>| matches!(item.place, Source::Exrw(_) | Source::Send);
        let lengths = self.items.iter().filter(away);
        lengths.map(|item| u64::from(item.length).next_multiple_of(4)).sum()
    }
}

/// Chooses the placement of one result, as Table 2 allows.
fn choose(
    direction: &Direction<WriteChunk<'_>>,
    length: u32,
    prefer: Prefer,
    chunk_index: u32,
) -> Result<Source, ErrorBody> {
    if length < direction.minlen {
        return Ok(Source::TooShort);
    }
    let (write_first, segments) = match direction.place {
        // [RTR-6.2-2] a direction to use Send, or one to use RDMA Write, leaves no choice.
        //~ RTR-6.2-2: `Send` -> `TooShort`
        Directed::Tbsn => return Ok(Source::Send),
        Directed::Exrw(chunk) => {
            let needed = ErrorBody::WriteResource { chunk_index, length_needed: length };
            return write(chunk, length).ok_or(needed);
        }
        // [RTR-7.4-3] the item goes to these segments if it goes by RDMA Write.
        //~ RTR-7.4-3: `prefer == Prefer::Write` -> `false`
        Directed::Choice(segments) => (prefer == Prefer::Write, segments),
        // [RTR-6.2-3] E17: items of at least `dsdov` octets go by RDMA Write. Where that way has no room, the table
        // allows the other.
        Directed::BySize { dsdov, segments } => {
            //~ RTR-6.2-3: `length >= dsdov || prefer` -> `prefer`
            (length >= dsdov || prefer == Prefer::Write, segments)
        }
    };
    // [RTR-7.4-1]
    //~ RTR-7.4-1: `write_first` -> `!write_first`
    let written = if write_first { write(segments, length) } else { None };
    Ok(written.unwrap_or(Source::Send))
}

/// Returns the segments of the offered memory that an item of `length` octets fills, if it fits.
fn write(chunk: WriteChunk<'_>, length: u32) -> Option<Source> {
    let offered: Vec<Segment> = chunk.segments().collect();
    let room: u64 = offered.iter().map(|segment| u64::from(segment.length)).sum();
    let length = usize::try_from(length).ok().filter(|_| u64::from(length) <= room)?;
    // [RTR-7.4-2] [V2-4.5.2.1-1] E17: all segments come back, as in a Write list, with the lengths that were written.
    //~ RTR-7.4-2: `.collect()` -> `.take(1).collect()`
    Some(Source::Exrw(filled(&offered, length).collect()))
}

/// Checks that the sets of a request are in order. E15: a set out of order is reported as a bad
/// offset.
///
/// # Errors
/// The report of the first set that is out of order.
pub fn check_directions(rsd: &Directions<'_>) -> Result<(), ReportInfo> {
    let mut min = 0_u64;
    for set in rsd.iter() {
        for (value, least) in [(set.begin, min), (set.end, u64::from(set.begin))] {
            if u64::from(value) < least {
                let min = u32::try_from(least).unwrap_or(u32::MAX);
                let field = OutOfRange { value, min, max: u32::MAX };
                return Err(ReportInfo::BadOffset(field));
            }
        }
        // [RTR-7.4-6] the next range begins behind this one, and not at its beginning even if this one is empty.
        //~ RTR-7.4-6: `u64::from(set.end)` -> `0_u64`
        min = u64::from(set.end).max(u64::from(set.begin).saturating_add(1));
    }
    Ok(())
}

/// Checks that a response answers each direction of a request in an allowed way.
///
/// # Errors
/// The rule that the response breaks.
pub fn check_response(rsd: &[Directive<'_>], dp: &Items<'_>) -> Result<(), &'static str> {
    let directions = rsd.iter().flat_map(|set| set.items);
    if directions.clone().count() != usize::try_from(dp.len()).unwrap_or(usize::MAX) {
        return Err("a result for each direction");
    }
    for (direction, item) in directions.zip(dp.iter()) {
        if outcome(direction.place.code(), item.place.code()) == Outcome::Invalid {
            return Err("a result that its direction does not allow");
        }
        let is_short = item.length < direction.minlen;
        match item.place {
            Location::TooShort if !is_short => return Err("a short item that is not short"),
            Location::Exrw(_) | Location::Tbsn { .. } if is_short => {
                return Err("an item placed although it is short");
            }
            Location::Exrw(chunk) => {
                let got: Vec<Segment> = chunk.segments().collect();
                let offered = direction.place.segments().copied().unwrap_or_default();
                let written = returned(offered, &got).map_err(|fault| fault.rule())?;
                if written != item.length {
                    return Err("segments that are not as long as their item");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
