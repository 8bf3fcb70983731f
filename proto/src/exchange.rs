//! One RPC exchange: plans the formats and chunks of its messages, and checks the Reply.
//!
//! These are pure functions for both protocol versions. They work on lengths, positions and
//! segments; the octets and their registrations belong to the caller.
//!
//! # Normal operation
//! 1. The Requester describes its Call ([`CallShape`]) and plans it: [`plan_call`] chooses the payload format, the
//!    arguments to reduce, and the chunks to provide for the Reply. The caller registers memory for each chunk of the
//!    plan and divides it into segments by [`CallPlan::split`].
//! 2. The Responder restores the Call ([`crate::chunk::restore`](mod@crate::chunk::restore)) or reads it without its
//!    reduced items ([`PayloadReader`](crate::chunk::PayloadReader)), and plans its Reply within the chunks that were
//!    offered: [`plan_reply`].
//! 3. The Requester checks the Reply against its own record of the offer: [`check_reply`].
//!
//! # Recovery
//! A Responder that cannot use the offered chunks answers with an error that says what it needs.
//! [`retry`](retry::retry) turns the error into another plan, or ends the exchange; it never makes the same plan twice.
//!
//! # Limits
//! A plan has at most [`CHUNKS_MAX`](crate::chunk::CHUNKS_MAX) chunks of each kind. Planning
//! allocates nothing.

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
pub use call::{CallFault, CallPlan, CallShape, ReducedArgument, UnchunkedMax, plan_call};
pub use format::Format;
pub use reply::{Arrived, Body, Offered, ReplyFault, ReplyLists, check_reply};
pub use retry::{Ended, retry};
pub use terms::Terms;

#[cfg(test)]
mod tests;
