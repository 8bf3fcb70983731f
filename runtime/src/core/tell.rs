//! Telling callers how their Calls ended.

use haulage_proto::chunk::{PayloadReader, Returned};
use haulage_proto::exchange::{Arrived, Body};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AcceptStat, ReplyBody, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v1::padding::Padding;

use super::cx::Cx;
use super::inbox::Inbox;
use super::inner::Inner;
use super::requester::{Caller, EndedCall, Placed};
use crate::core::service::Service;
use crate::service::{CallError, Ended, Finished};

/// Tells at most `budget` callers how their Calls ended. Returns how many were told.
pub(crate) fn tell<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    inbox: &mut Inbox,
    now: Instant,
    budget: usize,
) -> usize {
    let mut told = 0;
    while told < budget
        && let Some(caller) = inner.requester.calls.next_released()
    {
        let finished = Finished::without_leases(Err(CallError::TimedOut));
        match caller {
            Caller::Service(token) => service.replied(&mut Cx::new(now, inner), token, finished),
            Caller::Remote { client, token } => {
                inbox.complete(&inner.common, (client, token), (None, None), finished);
            }
            Caller::Nobody => {}
        }
        told += 1;
    }
    while told < budget
        && let Some(over) = inner.requester.next_finished(&mut inner.common)
    {
        inner.common.counters.calls_made += 1;
        tell_ended(inner, service, inbox, now, over);
        told += 1;
    }
    told
}

/// Tells a caller how its Call ended.
fn tell_ended<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    inbox: &mut Inbox,
    now: Instant,
    over: EndedCall,
) {
    let EndedCall { slot, connection, caller, version, reply, error, .. } = over;
    let EndedCall { arguments, mut rooms, chunk, arrived, padding, .. } = over;
    let buffers = inner.common.receives.lend();
    let results = match (error, &reply, &arrived) {
        (Some(error), _, _) => Err(error),
        (None, Some(message), None) => parse_reply(message.payload(&buffers), &[], version),
        (None, Some(message), Some(Arrived { writes, body })) => {
            // [R5666-3.4-8] the rest of the chunk is no result: the server may have written there.
            //~ R5666-3.4-8: `zip(writes.iter())` -> `zip(writes.iter()).filter(|(_, chunk)| chunk.written > 0)`
            for (room, chunk) in rooms.as_mut_slice().iter_mut().zip(writes.iter()) {
                room.set_len(chunk.written as usize);
            }
            let payload = match (body, &chunk) {
                (Body::Inline, _) => message.payload(&buffers),
                (Body::ReplyChunk { length }, Some(chunk)) => {
                    chunk.bytes().get(..*length as usize).unwrap_or_default()
                }
                (Body::Read, Some(stream)) => stream.bytes(),
                (Body::ReplyChunk { .. } | Body::Read, None) => &[],
            };
            parse_reply(payload, writes, version)
        }
        // Only a Call of a procedure that never has a Reply ends so.
        (None, None, _) => Ok(PayloadReader::reply_of_many(&[], 0, &[]).of_version(version)),
    };
    let results = match (&padding, &reply) {
        (Some(padding), Some(message)) => {
            results.and_then(|reader| padded(reader, **padding, message.payload.start))
        }
        _ => results,
    };
    let finished = Finished { results, arguments, rooms };
    match caller {
        Caller::Service(token) => service.replied(&mut Cx::new(now, inner), token, finished),
        Caller::Remote { client, token } => {
            let lent = inner.requester.calls.give_back(slot);
            inbox.complete(&inner.common, (client, token), (lent, Some(connection)), finished);
        }
        // The leases of a Call that was given up go back to the pool.
        Caller::Nobody => {}
    }
    inner.common.receives.restore(buffers);
    if let Some(message) = reply {
        inner.common.receives.give_back(message.received);
    }
}

/// Has a reader of results pass over the padding of a Reply whose Payload stream begins at offset `base` of its message.
#[cold]
fn padded(
    reader: PayloadReader<'_>,
    padding: Padding,
    base: u32,
) -> Result<PayloadReader<'_>, CallError> {
    // P11: padding is for what is whole in its message.
    if reader.reduced().is_some() || reader.returned().any(|chunk| chunk.written > 0) {
        return Err(CallError::BadReply("it is padded and has results in Write chunks"));
    }
    Ok(reader.padded(padding, base))
}

/// Tells the service which connections have become ready. Returns how many.
#[inline]
pub(crate) fn tell_ready<S: Service>(inner: &mut Inner, service: &mut S, now: Instant) -> usize {
    let mut told = 0;
    while let Some(peer) = inner.common.connections.ready.pop_front() {
        service.opened(&mut Cx::new(now, inner), &peer);
        told += 1;
    }
    told
}

/// Tells the service which connections have ended, once it knows how the Calls on them ended. Returns how many.
pub(crate) fn tell_gone<S: Service>(inner: &mut Inner, service: &mut S, now: Instant) -> usize {
    let mut told = 0;
    while !inner.requester.calls.has_news()
        && let Some(Ended { peer, why, has_all }) = inner.common.connections.gone.pop_front()
    {
        if has_all {
            service.left(&mut Cx::new(now, inner), &peer);
        }
        service.closed(&mut Cx::new(now, inner), &peer, &why);
        told += 1;
    }
    told
}

/// Tells the service of a Reply without chunks, whose Payload stream is `payload`. It does not count the Reply.
#[inline]
pub(crate) fn tell_inline<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    token: u64,
    version: Version,
    payload: &[u8],
) {
    if ReplyHeader::is_plain(payload) {
        let reader = PayloadReader::reply_of_many(payload, ReplyHeader::SUCCESS_LEN, &[]);
        let results = Ok(reader.of_version(version));
        return service.replied(cx, token, Finished::without_leases(results));
    }
    let results = parse_reply(payload, &[], version);
    service.replied(cx, token, Finished::without_leases(results));
}

/// Tells the service of a Reply in version 2 that has these results and no chunk. It does not count the Reply.
#[inline]
pub(crate) fn tell_results<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    token: u64,
    results: &[u8],
) {
    let results = Ok(PayloadReader::reply_of_many(results, 0, &[]).of_version(Version::Two));
    service.replied(cx, token, Finished::without_leases(results));
}

/// Tells the service how a Call with one exposed lease ended. It does not count the Call.
#[inline]
pub(crate) fn tell_placed<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    placed: &mut Placed,
    payload: &[u8],
) {
    let writes = placed.returned.as_slice();
    let results = if ReplyHeader::is_plain(payload) {
        let reader = PayloadReader::reply_of_many(payload, ReplyHeader::SUCCESS_LEN, writes);
        Ok(reader.of_version(Version::Two))
    } else {
        parse_reply(payload, writes, Version::Two)
    };
    if let (Some(result), Some(returned)) = (&mut placed.result, placed.returned) {
        result.set_len(returned.written as usize);
    }
    let (arguments, rooms) = (placed.argument.take().into(), placed.result.take().into());
    service.replied(cx, placed.token, Finished { results, arguments, rooms });
}

/// Reads the RPC header of a Reply. Returns a reader of the results behind it, of which `writes` are in Write chunks.
#[inline]
fn parse_reply<'a>(
    payload: &'a [u8],
    writes: &'a [Returned],
    version: Version,
) -> Result<PayloadReader<'a>, CallError> {
    let (header, results_at) = ReplyHeader::decode(payload)
        .map_err(|_| CallError::BadReply("its RPC header is malformed"))?;
    match header.body {
        ReplyBody::Accepted(AcceptStat::Success) => {
            Ok(PayloadReader::reply_of_many(payload, results_at, writes).of_version(version))
        }
        ReplyBody::Accepted(stat) => Err(CallError::Rejected(stat)),
        ReplyBody::Denied(_) => Err(CallError::Denied),
    }
}
