//! The Requester's plan of a Call and of the chunks for its Reply.

mod arguments;
mod results;
mod shape;

pub(super) use self::shape::Allowance;
pub use self::shape::{CallFault, CallShape, ReducedArgument};
use super::format::Format;
use super::terms::Terms;
use crate::chunk::{self, CHUNKS_MAX, DataItem, Few, Version};
use crate::verbs::{Handle, Segment};

/// The plan of a Call.
///
/// Each chunk of the plan is one range of registered memory of exactly the length given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// The format that conveys the Payload stream.
    pub format: Format,
    /// The number of octets of the Payload stream sent in messages; zero in Special format.
    pub inline: u32,
    /// The length of the Call chunk in Special format: it holds the Payload stream, at position
    /// zero.
    pub call: Option<u32>,
    /// The arguments to reduce, in stream order.
    pub reads: Few<ReducedArgument>,
    /// The length of each Write chunk to provide, in octets. A chunk of zero octets is sent without
    /// segments and requests an inline result.
    pub writes: Few<u32>,
    /// The length of the Reply chunk to provide, in octets.
    pub reply: Option<u32>,
    segment_size_max: u32,
    pub(super) allowance: Allowance,
}

impl CallPlan {
    /// Divides the registered range of one chunk of the plan into segments.
    pub fn split(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Iterator<Item = Segment> + use<> {
        chunk::split(handle, offset, u64::from(length), self.segment_size_max)
    }

    /// Returns the length of the chunk of a Call in Simple format whose only chunk is a Write chunk of one segment;
    /// `None` for any other Call.
    #[doc(hidden)]
    pub fn only_write(&self) -> Option<u32> {
        let [length] = *self.writes else { return None };
        let alone = self.format == Format::Simple && self.reads.is_empty() && self.reply.is_none();
        (alone && (1..=self.segment_size_max).contains(&length)).then_some(length)
    }

    /// Returns the reduced argument of a Call in Simple format whose only chunk is a Read chunk of
    /// one segment; `None` for any other Call.
    #[doc(hidden)]
    pub fn only_read(&self) -> Option<ReducedArgument> {
        let [argument] = *self.reads else { return None };
        let alone = self.format == Format::Simple && self.writes.is_empty() && self.reply.is_none();
        (alone && (1..=self.segment_size_max).contains(&argument.length)).then_some(argument)
    }

    /// Returns the number of segments of the chunk that has the most.
    pub(super) fn segments_max(&self) -> u32 {
        let reads = self.reads.iter().map(|argument| argument.length);
        let lengths = reads.chain(self.writes.iter().copied()).chain(self.call).chain(self.reply);
        let size_max = self.segment_size_max.max(1);
        lengths.map(|length| length.div_ceil(size_max)).max().unwrap_or_default()
    }

    /// Returns whether `other` would send a different Call.
    pub(super) fn differs(&self, other: &Self) -> bool {
        Self { allowance: other.allowance, ..*self } != *other
    }
}

/// Plans a Call and the chunks to provide for its Reply.
///
/// The Call is sent in Simple format if it fits once the items above the reduction threshold are reduced, or once all
/// are; else in Continued format, if the terms allow the number of messages; else in Special format. On version 1 a
/// Call has a Read chunk or is Special, and provides Write chunks or a Reply chunk, never both. Every
/// peer accepts that, as Linux also sends its Calls in this way (E23).
///
/// # Errors
/// See [`CallFault`].
pub fn plan_call(terms: &Terms, shape: &CallShape<'_>) -> Result<CallPlan, CallFault> {
    // [V2-4.5.3-1] a stream of whole units makes a body chunk of whole units.
    debug_assert!(shape.length.is_multiple_of(4), "a Payload stream is made of units");
    let results = Few::collect(shape.results.iter().copied()).ok_or(CallFault::TooManyItems)?;
    let allowance = Allowance {
        read_chunks_max: terms.read_chunks_max,
        write_chunks_max: terms.write_chunks_max,
        chunk_segments_max: terms.chunk_segments_max,
        results,
        reply_min: None,
        refusals: 0,
    };
    plan_within(terms, shape, &allowance)
}

/// The longest Call and Reply that a connection conveys without chunks, in one message each.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnchunkedMax {
    call: u32,
    reply: u32,
}

impl UnchunkedMax {
    /// Computes the lengths from the terms of a connection.
    pub const fn of(terms: &Terms) -> Self {
        let (call, reply) = match terms.version {
            Version::One => (V1_UNCHUNKED, V1_UNCHUNKED),
            Version::Two => (V2_UNCHUNKED_CALL, V2_UNCHUNKED_REPLY),
        };
        Self {
            call: terms.call_threshold.saturating_sub(call),
            reply: terms.reply_threshold.saturating_sub(reply),
        }
    }

    /// Returns the octets of the longest Call, its RPC header included.
    pub const fn call(&self) -> u32 {
        self.call
    }

    /// Returns the octets of the longest Reply, its RPC header included.
    pub const fn reply(&self) -> u32 {
        self.reply
    }

    /// Returns whether a Call of `length` octets without reducible items, and its Reply of at most `reply_max` octets,
    /// each fit one message without chunks. [`plan_call`] plans such a Call in the same way, at greater cost.
    #[inline]
    pub fn holds(&self, length: usize, reply_max: u64) -> bool {
        length as u64 <= u64::from(self.call) && reply_max <= u64::from(self.reply)
    }
}

/// The length of an `RDMA_MSG` header without chunks, in octets.
const V1_UNCHUNKED: u32 = 28;
/// The length of an `RDMA2_CALL_INLINE` header without chunks, in octets.
const V2_UNCHUNKED_CALL: u32 = 32;
/// The length of an `RDMA2_REPLY_INLINE` header without chunks, in octets.
const V2_UNCHUNKED_REPLY: u32 = 20;

/// Plans a Call within the limits learnt from the Responder's errors.
pub(super) fn plan_within(
    terms: &Terms,
    shape: &CallShape<'_>,
    allowance: &Allowance,
) -> Result<CallPlan, CallFault> {
    check(shape, allowance)?;
    let terms = Terms {
        read_chunks_max: allowance.read_chunks_max,
        write_chunks_max: allowance.write_chunks_max,
        chunk_segments_max: allowance.chunk_segments_max,
        ..*terms
    };
    let provision = results::provide(&terms, shape, allowance)?;
    let conveyance = arguments::convey(&terms, shape, &provision)?;
    Ok(CallPlan {
        format: conveyance.format,
        inline: conveyance.inline,
        call: conveyance.call,
        reads: conveyance.reads,
        writes: provision.writes,
        reply: provision.reply,
        segment_size_max: terms.segment_size_max,
        allowance: *allowance,
    })
}

/// Checks the items that the caller wants to reduce against the binding.
fn check(shape: &CallShape<'_>, allowance: &Allowance) -> Result<(), CallFault> {
    let procedure = shape.procedure;
    if shape.items.len() > CHUNKS_MAX {
        return Err(CallFault::TooManyItems);
    }
    // [V2-4.4.2-2]
    if !procedure.allows_arguments(shape.items) || !procedure.allows_results(&allowance.results) {
        return Err(CallFault::NotEligible);
    }
    // [V2-11.2.2-1] credentials and verifiers stand before the arguments, and are never reduced.
    let first = shape.items.first().map(DataItem::at);
    if first.is_some_and(|at| u32::try_from(at).is_ok_and(|at| at < shape.arguments_at)) {
        return Err(CallFault::NotEligible);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
