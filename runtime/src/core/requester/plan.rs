//! Plans the format of our Calls, by the terms of the connection and its binding.

use haulage_proto::exchange::{
    self, CallFault, CallPlan, CallShape, Ended, UnchunkedMax, plan_call, retry,
};
use haulage_proto::rpc::{Binding, Procedure};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;

use super::encoded::Encoded;
use super::exposed_leases::ExposedLeases;
use super::further::Further;
use super::lease::LeaseRole;
use crate::core::connection::Connection;
use crate::key::ConnectionKey;
use crate::service::CallError;

/// Returns whether a Call fits one message without chunks, and so does its longest Reply.
#[inline]
pub(super) fn goes_unchunked(
    procedure: u32,
    binding: &Binding,
    unchunked_max: &UnchunkedMax,
    encoded: &Encoded,
) -> bool {
    let procedure = binding.procedure(procedure).unwrap_or(&UNBOUND);
    !procedure.call_only && unchunked_max.holds(encoded.length, procedure.reply_max(&[]))
}

/// Returns whether a procedure never has a Reply.
pub(super) fn is_call_only(procedure: u32, binding: &Binding) -> bool {
    binding.procedure(procedure).is_some_and(|procedure| procedure.call_only)
}

/// The properties of a Call that its plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlanKey {
    /// The connection, which has the terms and the binding.
    connection: ConnectionKey,
    procedure: u32,
    /// Octets of the Payload stream, without the argument.
    length: usize,
    /// Where in the Payload stream the arguments start.
    arguments_at: usize,
    /// Octets of the argument.
    argument: usize,
    /// Octets of the room for the result.
    result: usize,
}

/// A stored plan, for the next Call with the same plan key: most Calls have the key of the one before.
#[derive(Debug)]
pub(crate) struct Planned {
    plan_key: PlanKey,
    plan: CallPlan,
    /// The only chunk, as [`PlanKey::only_chunk`] returns it.
    only_chunk: Option<Option<u32>>,
}

impl PlanKey {
    /// Describes a Call with these leases.
    pub(super) fn of(
        connection: ConnectionKey,
        procedure: u32,
        encoded: &Encoded,
        exposed_leases: &ExposedLeases,
    ) -> Self {
        let Encoded { arguments_at, length, .. } = *encoded;
        let [argument, result] =
            [LeaseRole::Argument, LeaseRole::Result].map(|role| exposed_leases.length(role));
        Self { connection, procedure, length, arguments_at, argument, result }
    }

    /// Describes a Call that was sent.
    pub(super) fn of_sent(
        connection: ConnectionKey,
        procedure: u32,
        exposed_leases: &ExposedLeases,
    ) -> Self {
        let Encoded { arguments_at, length } = exposed_leases.sent.encoded();
        let [argument, result] =
            [LeaseRole::Argument, LeaseRole::Result].map(|role| exposed_leases.octets(role));
        Self { connection, procedure, length, arguments_at, argument, result }
    }

    /// Describes a Call with one lease of this many octets.
    pub(super) fn of_one(
        connection: ConnectionKey,
        procedure: u32,
        encoded: &Encoded,
        role: LeaseRole,
        octets: usize,
    ) -> Self {
        let Encoded { arguments_at, length } = *encoded;
        let (argument, result) =
            if role == LeaseRole::Argument { (octets, 0) } else { (0, octets) };
        Self { connection, procedure, length, arguments_at, argument, result }
    }

    /// Returns `Some` if a Call of this plan key goes in one message with its lease as the only chunk, in one segment.
    /// The inner value is the position of a Read chunk, or `None` for a Write chunk.
    pub(super) fn only_chunk(
        &self,
        made: &mut Option<Planned>,
        connection: &Connection,
    ) -> Option<Option<u32>> {
        self.planned(made, connection, None).ok()?.only_chunk
    }

    /// Finds the only chunk in a plan of this plan key.
    fn only_chunk_of(&self, plan: &CallPlan) -> Option<Option<u32>> {
        let is_all = |length, octets| usize::try_from(length) == Ok(octets);
        match (plan.only_read(), plan.only_write()) {
            (Some(read), None) if is_all(read.length, self.argument) => Some(Some(read.position)),
            (None, Some(length)) if is_all(length, self.result) => Some(None),
            _ => None,
        }
    }

    /// Returns the plan of a Call of this plan key, and with what it has further: the stored plan `made`, if its plan key is
    /// the same.
    pub(super) fn plan<'a>(
        &self,
        made: &'a mut Option<Planned>,
        connection: &Connection,
        further: Option<&Further>,
    ) -> Result<&'a CallPlan, CallError> {
        self.planned(made, connection, further).map(|made| &made.plan)
    }

    fn planned<'a>(
        &self,
        made: &'a mut Option<Planned>,
        connection: &Connection,
        further: Option<&Further>,
    ) -> Result<&'a Planned, CallError> {
        if further.is_some() {
            // No other Call has its plan.
            *made = None;
        }
        if made.as_ref().is_none_or(|made| made.plan_key != *self) {
            let binding = connection.session.calls().ok_or(CallError::Closed)?;
            let plan = self.make_plan(&connection.session.terms().calls, binding, further);
            let plan = match plan {
                // As the last resort, for a peer that takes no other: in several messages.
                Err(CallFault::CallTooLong) => {
                    //~ V2-6.6.2-1: `messages_max(Kind::Call)` -> `messages_max(Kind::Call).min(1)`
                    let call_messages_max = connection.engine.messages_max(Kind::Call);
                    let terms = connection.session.terms().calls;
                    let terms = exchange::Terms { call_messages_max, ..terms };
                    self.make_plan(&terms, binding, further)
                }
                plan => plan,
            }?;
            let length = if further.is_none() { self.length } else { usize::MAX };
            let (plan_key, only_chunk) = (Self { length, ..*self }, self.only_chunk_of(&plan));
            *made = Some(Planned { plan_key, plan, only_chunk });
        }
        let Some(made) = made else { return Err(CallError::Busy) };
        Ok(made)
    }

    /// Plans the Call again, which the peer refused with `error` when it was sent by `plan`, or by the first plan.
    ///
    /// # Errors
    /// The error names no remedy, or none that the Call may take.
    pub(super) fn plan_again(
        &self,
        plan: Option<&CallPlan>,
        connection: &Connection,
        (further, error): (Option<&Further>, &ErrorBody),
    ) -> Result<CallPlan, Ended> {
        let binding = connection.session.calls().ok_or(Ended::Unspecific)?;
        let mut terms = connection.session.terms().calls;
        let plan = match plan {
            Some(plan) => *plan,
            None => self.make_plan(&terms, binding, further).map_err(Ended::NoPlan)?,
        };
        let again = |terms: &exchange::Terms| {
            let again = self.shape(binding, further, |shape| retry(terms, shape, &plan, error));
            again.map_err(Ended::NoPlan)?
        };
        match again(&terms) {
            Err(Ended::NoPlan(CallFault::CallTooLong)) => {
                terms.call_messages_max = connection.engine.messages_max(Kind::Call);
                again(&terms)
            }
            again => again,
        }
    }

    /// Plans the format of the Call, and the chunks that it offers for its Reply.
    fn make_plan(
        &self,
        terms: &exchange::Terms,
        binding: &Binding,
        further: Option<&Further>,
    ) -> Result<CallPlan, CallFault> {
        self.shape(binding, further, |shape| plan_call(terms, shape))?
    }

    /// Calls `f` with the properties of the Call.
    fn shape<R>(
        &self,
        binding: &Binding,
        further: Option<&Further>,
        f: impl FnOnce(&CallShape<'_>) -> R,
    ) -> Result<R, CallFault> {
        let Self { length, arguments_at, argument, result, .. } = *self;
        let procedure = binding.procedure(self.procedure).unwrap_or(&UNBOUND);
        let encoded = Encoded { arguments_at, length };
        let octets = [argument, result];
        let (items, results) = match further {
            Some(further) => further.described(&encoded, octets),
            None => Further::default().described(&encoded, octets),
        };
        let octets = items.iter().map(|item| item.length().next_multiple_of(4));
        let all = length + octets.sum::<usize>();
        let wire = |length| u32::try_from(length).unwrap_or(u32::MAX);
        let reply_max = wire(procedure.reply_max(results.as_slice()));
        let longest = procedure.longest_results();
        Ok(f(&CallShape {
            procedure,
            length: u32::try_from(all).map_err(|_| CallFault::CallTooLong)?,
            arguments_at: u32::try_from(arguments_at).map_err(|_| CallFault::CallTooLong)?,
            items: items.as_slice(),
            results: results.as_slice(),
            reply_max,
            reply_limit: wire(procedure.reply_max(&longest)),
            may_reduce: true,
        }))
    }
}

impl From<CallFault> for CallError {
    fn from(fault: CallFault) -> Self {
        match fault {
            CallFault::NotEligible | CallFault::TooManyItems => Self::NotEligible,
            CallFault::CallTooLong => Self::Segments,
            CallFault::ReplyTooLong => Self::ReplyTooLong,
        }
    }
}

/// Stands for a procedure that the binding does not have: the peer will not have it either.
pub(super) static UNBOUND: Procedure = Procedure::new("unbound");
