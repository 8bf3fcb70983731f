//! Telling callers how their Calls ended.

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, ReplyBody, ReplyHeader};
use haulage_proto::time::Instant;

use super::{Caller, OutboundCall};
use crate::core::state::{Cx, State};
use crate::inbox::Inbox;
use crate::service::{CallError, Finished, Service};

/// Tells at most `budget` callers how their Calls ended. Returns how many were told.
pub(crate) fn tell<S: Service>(
    state: &mut State,
    service: &mut S,
    inbox: &mut Inbox,
    now: Instant,
    budget: usize,
) -> usize {
    let mut told = 0;
    while told < budget
        && let Some(caller) = state.released.pop_front()
    {
        let finished = Finished { results: Err(CallError::TimedOut), argument: None, result: None };
        tell_one(state, service, inbox, now, caller, None, finished);
        told += 1;
    }
    while told < budget
        && let Some(slot) = state.finished.pop_front()
    {
        told += 1;
        let Some(call) = state.outbound.get_mut(slot).and_then(Option::take) else { continue };
        state.xids.close(slot);
        state.counters.calls_made += 1;
        let OutboundCall { mut argument, mut result, returned, .. } = call;
        let mut result = result.take_local();
        let results = match (&call.error, &call.reply) {
            (Some(error), _) => Err(error.clone()),
            (None, None) => Err(CallError::Closed),
            (None, Some(message)) => {
                if let Some(result) = &mut result {
                    result.set_len(returned as usize);
                }
                parse_reply(message.payload(), (returned > 0).then_some(returned))
            }
        };
        let finished = Finished { results, argument: argument.take_local(), result };
        tell_one(state, service, inbox, now, call.caller, call.lent, finished);
        if let Some(message) = call.reply {
            state.receives.give_back(message.buffer);
        }
    }
    told
}

fn tell_one<S: Service>(
    state: &mut State,
    service: &mut S,
    inbox: &mut Inbox,
    now: Instant,
    caller: Caller,
    lent: Option<Local>,
    finished: Finished<'_>,
) {
    match caller {
        Caller::Service(token) => service.replied(&mut Cx { now, state }, token, finished),
        Caller::Remote { client, token } => inbox.complete(client, token, lent, finished),
        // What came home with a Call that was given up simply goes back to the pool.
        Caller::Nobody => {}
    }
}

/// Reads the RPC header of a Reply; what is left are the results, of which `reduced` octets are in
/// the Write chunk.
fn parse_reply(payload: &[u8], reduced: Option<u32>) -> Result<PayloadReader<'_>, CallError> {
    let (header, results_at) =
        ReplyHeader::decode(payload).map_err(|_| CallError::BadReply("its RPC header"))?;
    match header.body {
        ReplyBody::Accepted(AcceptStat::Success) => {
            Ok(PayloadReader::reply(payload, results_at, reduced))
        }
        ReplyBody::Accepted(stat) => Err(CallError::Rejected(stat)),
        ReplyBody::Denied(_) => Err(CallError::Denied),
    }
}
