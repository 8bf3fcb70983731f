//! The description of a Call to plan, and the reasons why it cannot be planned.

use core::fmt;

use crate::chunk::{DataItem, Few, Version};
use crate::rpc::Procedure;

/// The Call to plan, whose Payload stream is already encoded.
#[derive(Clone, Copy, Debug)]
pub struct CallShape<'a> {
    /// The binding of its procedure.
    pub procedure: &'a Procedure,
    /// The length of the unreduced Payload stream in octets: a multiple of the XDR unit.
    pub length: u32,
    /// The offset of the arguments in the Payload stream, after the RPC header.
    pub arguments_at: u32,
    /// The DDP-eligible arguments whose memory can be exposed, in stream order.
    pub items: &'a [DataItem],
    /// The maximum length of each DDP-eligible result, in order; zero for a result that must not be reduced.
    pub results: &'a [u32],
    /// The length of the longest Reply in octets, its RPC header included and nothing reduced:
    /// [`Procedure::reply_max`] or a tighter bound.
    pub reply_max: u32,
    /// The length of the longest Reply chunk to provide if the Responder asks for more than
    /// `reply_max` octets.
    pub reply_limit: u32,
    /// Whether the credential permits reduction: [`Credential::may_reduce`].
    ///
    /// [`Credential::may_reduce`]: crate::rpc::Credential::may_reduce
    pub may_reduce: bool,
}

/// An argument that leaves the Payload stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReducedArgument {
    /// The index of the argument in [`CallShape::items`].
    pub index: usize,
    /// The position of its Read chunk.
    pub position: u32,
    /// The length of its Read chunk in octets.
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

/// The limits and demands learnt from the Responder's errors, one refusal at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct Allowance {
    pub(in crate::exchange) read_chunks_max: u32,
    pub(in crate::exchange) write_chunks_max: u32,
    pub(in crate::exchange) chunk_segments_max: u32,
    /// The maximum length of each result in octets.
    pub(in crate::exchange) results: Few<u32>,
    /// The length a Reply chunk must have, if the Responder asked for one.
    pub(in crate::exchange) reply_min: Option<u32>,
    /// The number of plans refused so far.
    pub(in crate::exchange) refusals: u8,
}

/// Returns the length of the chunk that a Requester provides for a result of at most `length`
/// octets.
pub(super) const fn provided(version: Version, length: u32) -> u32 {
    match version {
        // E23: Linux leaves room for padding.
        //~ V2-4.5.2.4-1: `Version::One` -> `Version::One | Version::Two`
        Version::One => match length.checked_next_multiple_of(4) {
            Some(padded) => padded,
            None => length,
        },
        // [V2-4.5.2.4-1] version 2 chunks have no room for padding.
        Version::Two => length,
    }
}
