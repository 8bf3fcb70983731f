//! A Call to be planned, and what can stand in the way.

use core::fmt;

use crate::chunk::{DataItem, Few, Version};
use crate::rpc::Procedure;

/// A Call to be planned, its Payload stream already encoded.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// What the binding says of it.
    pub procedure: &'a Procedure,
    /// Octets of the unreduced Payload stream: a whole number of units.
    pub length: u32,
    /// Where in it the arguments start, behind the RPC header.
    pub arguments_at: u32,
    /// The DDP-eligible arguments that can be exposed, in stream order.
    pub items: &'a [DataItem],
    /// For each DDP-eligible result, in order, the octets it may have if it is reduced: its maximum.
    /// Zero for a result that shall not be.
    pub results: &'a [u32],
    /// Octets of the longest Reply, its RPC header included and nothing reduced:
    /// [`Procedure::reply_max`] unless more is known.
    pub reply_max: u32,
    /// Octets of the longest Reply chunk to provide, if the Responder says that it needs more than
    /// `reply_max`.
    pub reply_limit: u32,
    /// Whether the credential lets anything be reduced: [`Credential::may_reduce`].
    ///
    /// [`Credential::may_reduce`]: crate::rpc::Credential::may_reduce
    pub may_reduce: bool,
}

/// An argument that leaves the Payload stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReducedArgument {
    /// Which of [`CallShape::items`] it is.
    pub index: usize,
    /// The position of its Read chunk.
    pub position: u32,
    /// Octets of its Read chunk.
    pub length: u32,
}

/// Why a Call cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The binding does not allow an argument or a result to be reduced.
    NotEligible,
    /// There are more DDP-eligible items than a plan can have.
    TooManyItems,
    /// The Call fits no format.
    CallTooLong,
    /// The longest Reply fits no format.
    ReplyTooLong,
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEligible => "the binding does not allow an item to be reduced",
            Self::TooManyItems => "too many items to be reduced",
            Self::CallTooLong => "the call is longer than can be conveyed",
            Self::ReplyTooLong => "the reply may be longer than can be conveyed",
        })
    }
}

impl core::error::Error for CallFault {}

/// What the Responder has let us know about itself, one refusal at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct Allowance {
    pub(in crate::exchange) read_chunks_max: u32,
    pub(in crate::exchange) write_chunks_max: u32,
    pub(in crate::exchange) chunk_segments_max: u32,
    /// Octets of each result.
    pub(in crate::exchange) results: Few<u32>,
    /// Octets a Reply chunk must have, if it was said that one is needed.
    pub(in crate::exchange) reply_min: Option<u32>,
    /// Plans refused so far.
    pub(in crate::exchange) refusals: u8,
}

/// Returns a chunk's length as a Requester provides it for a result of at most `length` octets.
pub(super) const fn provided(version: Version, length: u32) -> u32 {
    match version {
        // E23: as Linux does.
        Version::One => match length.checked_next_multiple_of(4) {
            Some(padded) => padded,
            None => length,
        },
        // [V2-4.5.2.4-1] no room for padding.
        Version::Two => length,
    }
}
