//! A new plan for a Call that the Responder refused.
//!
//! # Normal operation
//! Each refusal states one limit or demand of the Responder, which the refused plan broke. Every further plan of the
//! Call respects it, so that no plan is made twice and refusals come to an end. In addition there are at most
//! [`REFUSALS_MAX`]. Only one refusal promises that nothing was carried out (E22).
//!
//! # Limits
//! A Requester meets the demands of a Responder only as far as the binding and the caller allow
//! ([`CallShape::reply_limit`](super::CallShape::reply_limit)): an error is as untrusted as any
//! other message of a peer.

use core::fmt;

use super::call::{CallFault, CallPlan, CallShape, plan_within};
use super::terms::Terms;
use crate::v2::error::ErrorBody;

/// The most times that one Call is planned again.
pub const REFUSALS_MAX: u8 = 4;

/// Why a Call is not sent again. The RPC ends with the error that the Responder sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The error is not about the offered chunks, or does not say what the Responder needs.
    Unspecific,
    /// The Call may have been executed and is not idempotent.
    NotIdempotent,
    /// The error contradicts the Call that was sent.
    Nonsense,
    /// The Responder needs more than the binding or the caller allows.
    TooMuch,
    /// The Call has no other plan.
    NoPlan(CallFault),
    /// The Call was planned [`REFUSALS_MAX`] times again.
    TooOften,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecific => f.write_str("the error names no remedy"),
            Self::NotIdempotent => f.write_str("the call cannot be repeated"),
            Self::Nonsense => f.write_str("the error does not fit the call"),
            Self::TooMuch => f.write_str("the peer wants more room than allowed"),
            Self::NoPlan(fault) => fault.fmt(f),
            Self::TooOften => f.write_str("the peer refuses one plan after another"),
        }
    }
}

impl core::error::Error for Ended {}

/// Plans a Call again after its Responder answered with `error`. `terms` and `shape` are those that
/// `plan` was made from.
///
/// # Errors
/// If the RPC has to end; see [`Ended`].
pub fn retry(
    terms: &Terms,
    shape: &CallShape<'_>,
    plan: &CallPlan,
    error: &ErrorBody,
) -> Result<CallPlan, Ended> {
    let mut next = plan.allowance;
    next.refusals = next.refusals.saturating_add(1);
    if next.refusals > REFUSALS_MAX {
        return Err(Ended::TooOften);
    }
    match *error {
        // [V2-7.3.1-4] a Call with too many Read chunks was not carried out, so any procedure can be called again.
        ErrorBody::ReadChunks { max } => {
            below(max, u32::try_from(plan.reads.len()).unwrap_or(u32::MAX))?;
            next.read_chunks_max = max;
        }
        // [V2-7.3.2-2]
        ErrorBody::WriteChunks { max } => {
            repeatable(shape)?;
            below(max, u32::try_from(plan.writes.len()).unwrap_or(u32::MAX))?;
            next.write_chunks_max = max;
        }
        // [V2-7.3.3-2]
        ErrorBody::Segments { max } => {
            repeatable(shape)?;
            if max == 0 {
                return Err(Ended::Unspecific);
            }
            below(max, plan.segments_max())?;
            next.chunk_segments_max = max;
        }
        // [V2-7.3.4-4] zero says that the Responder does not know.
        ErrorBody::WriteResource { chunk_index: 0, .. }
        | ErrorBody::WriteResource { length_needed: 0, .. }
        | ErrorBody::ReplyResource { length_needed: 0 } => return Err(Ended::Unspecific),
        ErrorBody::WriteResource { chunk_index, length_needed } => {
            repeatable(shape)?;
            let index = usize::try_from(chunk_index).unwrap_or(usize::MAX).saturating_sub(1);
            let provided = *plan.writes.get(index).ok_or(Ended::Nonsense)?;
            below(provided, length_needed)?;
            let result = next.results.as_mut_slice().get_mut(index).ok_or(Ended::Nonsense)?;
            *result = length_needed.max(*result);
            if !shape.procedure.allows_results(&next.results) {
                return Err(Ended::TooMuch);
            }
        }
        // [V2-7.3.5-3]
        ErrorBody::ReplyResource { length_needed } => {
            repeatable(shape)?;
            below(plan.reply.unwrap_or_default(), length_needed)?;
            if length_needed > shape.reply_limit {
                return Err(Ended::TooMuch);
            }
            next.reply_min = Some(length_needed);
        }
        _ => return Err(Ended::Unspecific),
    }
    let again = plan_within(terms, shape, &next).map_err(Ended::NoPlan)?;
    if again.differs(plan) { Ok(again) } else { Err(Ended::Nonsense) }
}

/// Checks that the peer's error states a real difference: `less` is below `more`.
fn below(less: u32, more: u32) -> Result<(), Ended> {
    if less < more { Ok(()) } else { Err(Ended::Nonsense) }
}

/// Checks that a Call may be executed again (section 6.6.4).
fn repeatable(shape: &CallShape<'_>) -> Result<(), Ended> {
    if shape.procedure.idempotent { Ok(()) } else { Err(Ended::NotIdempotent) }
}

#[cfg(test)]
mod tests;
