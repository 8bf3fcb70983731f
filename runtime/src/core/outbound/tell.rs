//! Telling callers how their Calls ended.

use haulage_mr_pool::Local;
use haulage_proto::chunk::{PayloadReader, Returned};
use haulage_proto::exchange::{Arrived, Body};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AcceptStat, ReplyBody, ReplyHeader};
use haulage_proto::time::Instant;

use super::{Caller, OutboundCall};
use crate::core::state::{Cx, State};
use crate::inbox::Inbox;
use crate::service::{CallError, Ended, Finished, Service};

impl State {
    /// Returns whether anybody is to be told how a Call ended.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.released.is_empty() || !self.finished.is_empty()
    }
}

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
        tell_one(state, service, inbox, now, (caller, None), finished);
        told += 1;
    }
    while told < budget
        && let Some(slot) = state.finished.pop_front()
    {
        told += 1;
        let Some(call) = state.outbound.get_mut(slot).and_then(Option::take) else { continue };
        state.xids.close(slot);
        state.counters.calls_made += 1;
        let OutboundCall { caller, version, opens, reply, error, .. } = call;
        let opened = state.opened.get_mut(slot).filter(|_| opens);
        let is_overstated = opened.as_ref().is_some_and(|opened| opened.is_overstated());
        let ([argument, mut result, chunk], arrived) = match opened {
            Some(opened) => (opened.take(), opened.arrived.take()),
            None => Default::default(),
        };
        let error = error.or_else(|| {
            let is_found_out = state.counts_placed && is_overstated;
            is_found_out.then_some(CallError::BadReply("it says that more was written than was"))
        });
        let buffers = state.receives.lend();
        let results = match (error, &reply, &arrived) {
            (Some(error), _, _) => Err(error),
            (None, Some(message), None) => parse_reply(message.payload(&buffers), &[], version),
            (None, Some(message), Some(Arrived { writes, body })) => {
                // [R5666-3.4-8] the rest of the chunk is no result: the server may have written there.
                if let (Some(result), Some(chunk)) = (&mut result, writes.first()) {
                    result.set_len(chunk.written as usize);
                }
                let payload = match (body, &chunk) {
                    (Body::Inline, _) => message.payload(&buffers),
                    (Body::ReplyChunk { length }, Some(chunk)) => {
                        chunk.bytes().get(..*length as usize).unwrap_or_default()
                    }
                    (Body::ReplyChunk { .. }, None) => &[],
                };
                parse_reply(payload, writes, version)
            }
            (None, None, _) => Err(CallError::Closed),
        };
        let finished = Finished { results, argument, result };
        tell_one(state, service, inbox, now, (caller, Some(slot)), finished);
        state.receives.restore(buffers);
        if let Some(message) = reply {
            state.receives.give_back(message.received);
        }
    }
    told
}

/// Tells the service which connections have ended, once it was told how the Calls on them ended. Returns how many.
pub(crate) fn tell_gone<S: Service>(state: &mut State, service: &mut S, now: Instant) -> usize {
    let mut told = 0;
    while !state.has_news()
        && let Some(Ended { peer, why }) = state.peers_gone.pop_front()
    {
        service.closed(&mut Cx::new(now, state), &peer, &why);
        told += 1;
    }
    told
}

/// Tells the service of a Reply without chunks whose Payload stream is at hand. It is counted elsewhere.
#[inline]
pub(crate) fn tell_inline<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    token: u64,
    (version, payload): (Version, &[u8]),
) {
    if ReplyHeader::is_plain(payload) {
        let reader = PayloadReader::reply_of_many(payload, ReplyHeader::SUCCESS_LEN, &[]);
        let results = Ok(reader.of_version(version));
        return service.replied(cx, token, Finished { results, argument: None, result: None });
    }
    let results = parse_reply(payload, &[], version);
    service.replied(cx, token, Finished { results, argument: None, result: None });
}

/// Does the same of a Reply that has these results.
#[inline]
pub(crate) fn tell_results<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    token: u64,
    results: &[u8],
) {
    let results = Ok(PayloadReader::reply_of_many(results, 0, &[]).of_version(Version::Two));
    service.replied(cx, token, Finished { results, argument: None, result: None });
}

/// A Call of our own service that ended, with the lease that it had opened.
pub(crate) struct Placed {
    pub(super) token: u64,
    pub(super) lease: Local,
    /// Octets that were written into it, if it is a result.
    pub(super) written: Option<u32>,
}

/// Tells the service of such a Call, but does not count it.
#[inline]
pub(crate) fn tell_placed<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    Placed { token, mut lease, written }: Placed,
    payload: &[u8],
) {
    let offered = u32::try_from(lease.len()).unwrap_or(u32::MAX);
    let writes = [Returned { offered, written: written.unwrap_or_default() }];
    let writes = &writes[..usize::from(written.is_some())];
    let results = if ReplyHeader::is_plain(payload) {
        let reader = PayloadReader::reply_of_many(payload, ReplyHeader::SUCCESS_LEN, writes);
        Ok(reader.of_version(Version::Two))
    } else {
        parse_reply(payload, writes, Version::Two)
    };
    let (argument, result) = match written {
        None => (Some(lease), None),
        Some(written) => {
            lease.set_len(written as usize);
            (None, Some(lease))
        }
    };
    service.replied(cx, token, Finished { results, argument, result });
}

fn tell_one<S: Service>(
    state: &mut State,
    service: &mut S,
    inbox: &mut Inbox,
    now: Instant,
    (caller, slot): (Caller, Option<usize>),
    finished: Finished<'_>,
) {
    match caller {
        Caller::Service(token) => service.replied(&mut Cx::new(now, state), token, finished),
        Caller::Remote { client, token } => {
            let opened = slot.and_then(|slot| state.opened.get_mut(slot));
            let lent = opened.and_then(|opened| opened.lent.take());
            inbox.complete(&state.pool, (client, token), lent, finished);
        }
        // What came home with a Call that was given up simply goes back to the pool.
        Caller::Nobody => {}
    }
}

/// Reads the RPC header of a Reply; what is left are the results, less what is in Write chunks.
#[inline]
fn parse_reply<'a>(
    payload: &'a [u8],
    writes: &'a [Returned],
    version: Version,
) -> Result<PayloadReader<'a>, CallError> {
    let (header, results_at) =
        ReplyHeader::decode(payload).map_err(|_| CallError::BadReply("its RPC header"))?;
    match header.body {
        ReplyBody::Accepted(AcceptStat::Success) => {
            Ok(PayloadReader::reply_of_many(payload, results_at, writes).of_version(version))
        }
        ReplyBody::Accepted(stat) => Err(CallError::Rejected(stat)),
        ReplyBody::Denied(_) => Err(CallError::Denied),
    }
}
