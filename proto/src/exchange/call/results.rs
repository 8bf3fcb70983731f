//! The Write chunks and the Reply chunk that a Call provides for its Reply.

use super::shape::{Allowance, CallFault, CallShape, provided};
use crate::chunk::{Few, Version};
use crate::exchange::format::{in_messages, messages, reply_wire_len};
use crate::exchange::terms::Terms;

/// The chunks provided for a Reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Provision {
    /// The length of each Write chunk, in the order of the results.
    pub(super) writes: Few<u32>,
    /// The length of the Reply chunk.
    pub(super) reply: Option<u32>,
}

impl Provision {
    /// Returns the number of segments of each Write chunk.
    pub(super) fn write_segments(&self, terms: &Terms) -> impl Iterator<Item = u32> {
        self.writes.iter().map(|length| terms.segments(*length).unwrap_or_default())
    }

    /// Returns the number of segments of the Reply chunk.
    pub(super) fn reply_segments(&self, terms: &Terms) -> Option<u32> {
        self.reply.map(|length| terms.segments(length).unwrap_or_default())
    }

    /// Returns the number of segments of all chunks.
    pub(super) fn segments(&self, terms: &Terms) -> u32 {
        let reply = self.reply_segments(terms).unwrap_or_default();
        self.write_segments(terms).fold(reply, u32::saturating_add)
    }
}

/// Chooses chunks that have room for the longest Reply.
pub(super) fn provide(
    terms: &Terms,
    shape: &CallShape<'_>,
    allowance: &Allowance,
) -> Result<Provision, CallFault> {
    // [V2-4.7-1] a Call without a Reply offers no chunks for results.
    if shape.procedure.call_only {
        return Ok(Provision::default());
    }
    // If a refusal has told us longer results than the caller expected, the longest Reply is longer by the difference.
    let before = shape.results.iter().map(|length| padded(*length)).sum::<u64>();
    let after = allowance.results.iter().map(|length| padded(*length)).sum::<u64>();
    let longer = after.saturating_sub(before);
    let reply_max = u64::from(shape.reply_max).saturating_add(longer);

    let worth_it = write_chunks(terms, shape, allowance, terms.reduce_min);
    let all = write_chunks(terms, shape, allowance, 1);
    //~ R5666-3.4-5: `is_none()` -> `is_none() && terms.version == Version::Two`
    if allowance.reply_min.is_none() {
        for messages_max in [1, terms.reply_messages_max] {
            for writes in [worth_it, all] {
                let provision = Provision { writes, reply: None };
                if fits(terms, &provision, rest(allowance, &writes, reply_max), messages_max) {
                    return Ok(provision);
                }
            }
        }
    }
    let reply_min = allowance.reply_min.unwrap_or_default();
    let none = Few::default();
    let candidates: &[Few<u32>] = match terms.version {
        //~ R5666-5.2-1: `[none]` -> `[none][..0]`
        Version::One => &[none],
        Version::Two => &[worth_it, all],
    };
    candidates
        .iter()
        .find_map(|&writes| {
            let reply = rest(allowance, &writes, reply_max).max(u64::from(reply_min));
            // [V2-4.5.3-1] a body chunk holds whole units.
            //~ V2-4.5.3-1: `.next_multiple_of(4)` -> ``
            let reply = u32::try_from(reply.next_multiple_of(4)).ok()?;
            terms.segments(reply)?;
            let provision = Provision { writes, reply: Some(reply) };
            let header = reply_wire_len(
                terms.version,
                provision.write_segments(terms),
                provision.reply_segments(terms),
            );
            let carried = messages(terms.version, terms.reply_threshold, header, 0) == Some(1);
            (carried && provision.segments(terms) <= terms.segments_max).then_some(provision)
        })
        .ok_or(CallFault::ReplyTooLong)
}

/// Returns whether the longest Reply fits `messages_max` messages.
fn fits(terms: &Terms, provision: &Provision, payload: u64, messages_max: u32) -> bool {
    let header = reply_wire_len(terms.version, provision.write_segments(terms), None);
    let payload = usize::try_from(payload).unwrap_or(usize::MAX);
    let messages = messages(terms.version, terms.reply_threshold, header, payload);
    in_messages(messages, messages_max).is_some()
}

/// Returns the number of octets of the longest Reply that no Write chunk takes.
fn rest(allowance: &Allowance, writes: &[u32], reply_max: u64) -> u64 {
    let taken = allowance.results.iter().zip(writes).filter(|(_, chunk)| **chunk > 0);
    let taken = taken.map(|(length, _)| padded(*length)).sum::<u64>();
    reply_max.saturating_sub(taken)
}

/// Returns the Write chunks for results of at least `floor` octets.
fn write_chunks(
    terms: &Terms,
    shape: &CallShape<'_>,
    allowance: &Allowance,
    floor: u32,
) -> Few<u32> {
    let mut chunks = Few::default();
    // [V2-11.2.2.3-2] no result is reduced where the credential protects its data.
    //~ R5666-3.4-3: `may_reduce` -> `may_reduce || terms.version == Version::One`
    if !shape.may_reduce {
        return chunks;
    }
    let (mut entries, mut segments) = (0_u32, 0_u32);
    let mut last = chunks;
    for length in allowance.results.iter().copied() {
        entries = entries.saturating_add(1);
        if entries > terms.write_chunks_max {
            break;
        }
        // [V2-4.5.2-1] [R5666-3.4-5] a chunk is as long as the longest result.
        //~ V2-4.5.2-1: `provided(terms.version, length)` -> `provided(terms.version, length) & !3`
        let chunk = provided(terms.version, length);
        let count = terms.segments(chunk).filter(|_| length > 0 && length >= floor);
        let sum = count.and_then(|count| segments.checked_add(count));
        match sum.filter(|sum| *sum <= terms.segments_max) {
            Some(sum) => {
                segments = sum;
                chunks.push(chunk);
                last = chunks;
            }
            // E23: version 1 servers do not know chunks without segments.
            None if terms.version == Version::One => break,
            // A chunk without segments keeps the place of a result that comes inline.
            None => {
                chunks.push(0);
            }
        }
    }
    last
}

fn padded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(4)
}
