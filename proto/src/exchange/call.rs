//! The Requester's plan of a Call, and of what its Reply may need.

mod arguments;
mod results;
mod shape;

pub(super) use self::shape::Allowance;
pub use self::shape::{CallFault, CallShape, ReducedArgument};
use super::format::Format;
use super::terms::Terms;
use crate::chunk::{self, CHUNKS_MAX, DataItem, Few, Version};
use crate::verbs::{Handle, Segment};

/// How to send a Call.
///
/// Each chunk it names is one range of registered memory, exactly so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// How its Payload stream goes.
    pub format: Format,
    /// Octets of the Payload stream that go in messages; none in Special format.
    pub inline: u32,
    /// In Special format, octets of the Call chunk: the Payload stream, at position zero.
    pub call: Option<u32>,
    /// The arguments to reduce, in stream order.
    pub reads: Few<ReducedArgument>,
    /// Octets of each Write chunk to provide. Of those with none only the count, zero, goes on the
    /// wire: that result comes inline.
    pub writes: Few<u32>,
    /// Octets of the Reply chunk to provide.
    pub reply: Option<u32>,
    segment_size_max: u32,
    pub(super) allowance: Allowance,
}

impl CallPlan {
    /// Divides the registered range of one of its chunks into segments.
    pub fn split(
        &self,
        handle: Handle,
        offset: u64,
        length: u32,
    ) -> impl Iterator<Item = Segment> + use<> {
        chunk::split(handle, offset, u64::from(length), self.segment_size_max)
    }

    /// Returns the octets of the only chunk of a Call in one message, if that is a Write chunk of one segment.
    #[doc(hidden)]
    pub fn only_write(&self) -> Option<u32> {
        let [length] = *self.writes else { return None };
        let alone = self.format == Format::Simple && self.reads.is_empty() && self.reply.is_none();
        (alone && (1..=self.segment_size_max).contains(&length)).then_some(length)
    }

    /// Returns the only chunk of a Call in one message, if that is a Read chunk of one segment.
    #[doc(hidden)]
    pub fn only_read(&self) -> Option<ReducedArgument> {
        let [argument] = *self.reads else { return None };
        let alone = self.format == Format::Simple && self.writes.is_empty() && self.reply.is_none();
        (alone && (1..=self.segment_size_max).contains(&argument.length)).then_some(argument)
    }

    /// Returns the segments of the chunk that has most of them.
    pub(super) fn segments_max(&self) -> u32 {
        let reads = self.reads.iter().map(|argument| argument.length);
        let lengths = reads.chain(self.writes.iter().copied()).chain(self.call).chain(self.reply);
        let size_max = self.segment_size_max.max(1);
        lengths.map(|length| length.div_ceil(size_max)).max().unwrap_or_default()
    }

    /// Returns whether `other` would put anything else on the wire.
    pub(super) fn differs(&self, other: &Self) -> bool {
        Self { allowance: other.allowance, ..*self } != *other
    }
}

/// Chooses how to send a Call and what to provide for its Reply.
///
/// The Call is sent in Simple format if it fits once the items worth it are reduced, or once all are;
/// else continued, if the terms allow so many messages; else in Special format. On version 1 a Call
/// has a Read chunk or is Special, and provides Write chunks or a Reply chunk, never both: so does
/// Linux, and so every peer is used to it (E23).
///
/// # Errors
/// See [`CallFault`].
pub fn plan_call(terms: &Terms, shape: &CallShape<'_>) -> Result<CallPlan, CallFault> {
    // [V2-4.5.3-1] so that a body chunk is aligned.
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

/// The longest messages without chunks.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareMax {
    call: u32,
    reply: u32,
}

impl BareMax {
    /// Returns what a connection's terms allow.
    pub const fn of(terms: &Terms) -> Self {
        let (call, reply) = match terms.version {
            Version::One => (V1_BARE, V1_BARE),
            Version::Two => (V2_BARE_CALL, V2_BARE_REPLY),
        };
        Self {
            call: terms.call_threshold.saturating_sub(call),
            reply: terms.reply_threshold.saturating_sub(reply),
        }
    }

    /// Returns whether a Call of `length` octets that has no items to reduce goes without chunks in one
    /// message, and its Reply of at most `reply_max` octets comes so: what [`plan_call`] finds out, too, and
    /// later.
    #[inline]
    pub fn holds(&self, length: usize, reply_max: u64) -> bool {
        length as u64 <= u64::from(self.call) && reply_max <= u64::from(self.reply)
    }
}

/// Octets of an `RDMA_MSG` header without chunks.
const V1_BARE: u32 = 28;
/// Octets of an `RDMA2_CALL_INLINE` header without chunks.
const V2_BARE_CALL: u32 = 32;
/// Octets of an `RDMA2_REPLY_INLINE` header without chunks.
const V2_BARE_REPLY: u32 = 20;

/// Plans a Call within what the Responder has let us know.
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

/// Checks what the caller wants reduced against the binding.
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
