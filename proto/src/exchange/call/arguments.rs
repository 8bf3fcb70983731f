//! The conveyance of a Call's Payload stream: the arguments to reduce, and the format of the rest.

use core::cmp::Reverse;

use super::results::Provision;
use super::shape::{CallFault, CallShape, ReducedArgument};
use crate::chunk::{DataItem, Few, ReadList, Version};
use crate::exchange::format::{CallLists, Format, in_messages, messages};
use crate::exchange::terms::Terms;

/// The reduced arguments and the format of a Call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conveyance {
    pub(super) format: Format,
    pub(super) inline: u32,
    pub(super) call: Option<u32>,
    pub(super) reads: Few<ReducedArgument>,
}

/// Chooses the arguments to reduce and the format of a Call.
pub(super) fn convey(
    terms: &Terms,
    shape: &CallShape<'_>,
    provision: &Provision,
) -> Result<Conveyance, CallFault> {
    let planner = Planner { terms, shape, provision };
    let reduced = planner.reduce();
    //~ V2-6.6.2.1-1: `planner.inline(&reduced)` ->
    //~   `planner.inline(&reduced).filter(|it| *it == Format::Simple || reduced.segments == 0)`
    if let Some(format) = planner.inline(&reduced) {
        let inline = reduced.rest;
        return Ok(Conveyance { format, inline, call: None, reads: reduced.in_order() });
    }
    // [V2-4.7-1] a Call without a Reply has no chunks, not even a Call chunk.
    //~ V2-11.2.2.3-1: `call_only` -> `call_only || !shape.may_reduce`
    //~ V2-4.7-1: `call_only` -> `call_only && terms.version == Version::One`
    if shape.procedure.call_only {
        return Err(CallFault::CallTooLong);
    }
    let whole = Reductions::none(shape);
    let candidates: &[Reductions] = match terms.version {
        //~ R5666-4-1: `[whole]` -> `[]`
        Version::One => &[whole],
        //~ V2-6.6.3-2: `[reduced, whole]` -> `[]`
        Version::Two => &[reduced, whole],
    };
    // [V2-6.6.3-2] the rest of the stream goes into the Call chunk, [V2-11.2.2.3-1] even items that must not be
    // reduced.
    let special = candidates.iter().find(|reductions| planner.special(reductions));
    let reductions = special.ok_or(CallFault::CallTooLong)?;
    let (call, reads) = (Some(reductions.rest), reductions.in_order());
    Ok(Conveyance { format: Format::Special, inline: 0, call, reads })
}

/// The arguments that leave the stream.
#[derive(Clone, Copy, Debug)]
struct Reductions {
    reads: Few<ReducedArgument>,
    /// The number of segments in their chunks.
    segments: u32,
    /// The number of octets left in the stream.
    rest: u32,
}

impl Reductions {
    fn none(shape: &CallShape<'_>) -> Self {
        Self { reads: Few::default(), segments: 0, rest: shape.length }
    }

    fn in_order(mut self) -> Few<ReducedArgument> {
        self.reads.as_mut_slice().sort_unstable_by_key(|argument| argument.index);
        self.reads
    }
}

struct Planner<'a> {
    terms: &'a Terms,
    shape: &'a CallShape<'a>,
    provision: &'a Provision,
}

impl Planner<'_> {
    /// Chooses the arguments to reduce, longest first: all above the reduction threshold, and as
    /// many of the others as it takes to fit one message.
    fn reduce(&self) -> Reductions {
        let mut chosen = Reductions::none(self.shape);
        // [V2-4.7-1] [V2-11.2.2.3-2]
        if self.shape.procedure.call_only || !self.shape.may_reduce {
            return chosen;
        }
        for index in self.longest_first().iter().copied() {
            let Some(item) = self.shape.items.get(index) else { break };
            let worth_it = item.length() >= usize::try_from(self.terms.reduce_min).unwrap_or(0);
            // [V2-6.6.1.1-1] [V2-6.6.2.1-1] reduce some of the eligible items, or all.
            //~ V2-6.6.1.1-1: `!worth_it &&` -> `!worth_it ||`
            if !worth_it && self.inline(&chosen) == Some(Format::Simple) {
                break;
            }
            if let Some(more) = self.with(&chosen, index, item) {
                chosen = more;
            }
        }
        chosen
    }

    /// Returns the items, longest first.
    fn longest_first(&self) -> Few<usize> {
        let items = self.shape.items;
        let mut order = Few::collect(0..items.len()).unwrap_or_default();
        let length = |index: usize| items.get(index).map_or(0, DataItem::length);
        order.as_mut_slice().sort_unstable_by_key(|index| (Reverse(length(*index)), *index));
        order
    }

    /// Adds an item to `chosen`; returns `None` if no further chunk is allowed or the chunk would
    /// save nothing.
    fn with(&self, chosen: &Reductions, index: usize, item: &DataItem) -> Option<Reductions> {
        let length = u32::try_from(item.length()).ok()?;
        let position = u32::try_from(item.data().start).ok()?;
        //~ V2-4.5.1-1: `` -> `let position = position.saturating_sub(self.shape.arguments_at);`
        let count = self.terms.segments(length)?;
        let segments = chosen.segments.checked_add(count)?;
        let all = segments.checked_add(self.provision.segments(self.terms))?;
        let chunks = u32::try_from(chosen.reads.len()).ok()?.checked_add(1)?;
        if all > self.terms.segments_max || chunks > self.terms.read_chunks_max {
            return None;
        }
        let gone = length.checked_next_multiple_of(4)?;
        let entries = ReadList::wire_len(usize::try_from(count).ok()?).saturating_sub(4);
        if usize::try_from(gone).ok()? <= entries {
            return None;
        }
        let mut more = Reductions { segments, rest: chosen.rest.checked_sub(gone)?, ..*chosen };
        more.reads.push(ReducedArgument { index, position, length }).then_some(more)
    }

    /// Returns the format that sends the rest of the stream in messages, if one does.
    fn inline(&self, reductions: &Reductions) -> Option<Format> {
        let header = self.header(reductions, None);
        let payload = usize::try_from(reductions.rest).ok()?;
        let (version, threshold) = (self.terms.version, self.terms.call_threshold);
        in_messages(messages(version, threshold, header, payload), self.terms.call_messages_max)
    }

    /// Returns whether a Call chunk can hold the rest of the stream.
    fn special(&self, reductions: &Reductions) -> bool {
        let Some(call) = self.terms.segments(reductions.rest) else { return false };
        let others = self.provision.segments(self.terms).saturating_add(reductions.segments);
        let header = self.header(reductions, Some(call));
        let (version, threshold) = (self.terms.version, self.terms.call_threshold);
        others.saturating_add(call) <= self.terms.segments_max
            && messages(version, threshold, header, 0) == Some(1)
    }

    fn header(&self, reductions: &Reductions, call: Option<u32>) -> usize {
        let reply = self.provision.reply_segments(self.terms);
        let lists = CallLists { call, reads: reductions.segments, reply };
        lists.wire_len(self.terms.version, self.provision.write_segments(self.terms))
    }
}
