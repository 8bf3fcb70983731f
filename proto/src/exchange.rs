//! One RPC exchange: which format its messages have, which chunks they carry, and what comes back.
//!
//! Pure functions for both protocol versions. They speak of lengths, positions and segments; the
//! octets and their registrations belong to the caller.
//!
//! # Normal operation
//! 1. The Requester describes its Call ([`CallShape`]) and plans it: [`plan_call`] chooses the payload
//!    format, the arguments to reduce, and what to provide for the Reply. Each chunk of the plan is
//!    registered and divided into segments by [`CallPlan::split`].
//! 2. The Responder restores the Call ([`crate::chunk::restore`](mod@crate::chunk::restore)) or reads
//!    around what was reduced ([`PayloadReader`](crate::chunk::PayloadReader)), and plans its Reply
//!    against what was offered: [`plan_reply`].
//! 3. The Requester holds the Reply against its own record of the offer: [`check_reply`].
//!
//! # Recovery
//! A Responder that cannot use what was offered says what it needs. [`retry`](retry::retry) turns that
//! into another plan, or into the end of the exchange; it never makes the same plan twice.
//!
//! # Limits
//! A plan has at most [`CHUNKS_MAX`](crate::chunk::CHUNKS_MAX) chunks of each sort, and allocates
//! nothing.

pub mod answer;
pub mod call;
pub mod format;
pub mod reply;
pub mod retry;
pub mod terms;

pub use answer::{
    Offer, OfferedChunk, ReplyPlan, ReplyShape, Shortage, WriteUse, padded, plan_reply,
    reply_format,
};
pub use call::{BareMax, CallFault, CallPlan, CallShape, ReducedArgument, plan_call};
pub use format::Format;
pub use reply::{Arrived, Body, Offered, ReplyFault, ReplyLists, check_reply};
pub use retry::{Ended, retry};
pub use terms::Terms;

#[cfg(test)]
mod tests;
