//! Calls that are acted upon as they come, and answered at once if that goes.

use haulage_mr_pool::Local;
use haulage_proto::negotiate::{
    Class, Grant, Heading, Label, Version, bare_header_len, put_results_headers_one,
};
use haulage_proto::rpc::{AcceptStat, CallHeader, Credential, ReplyHeader};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::OneChunk;
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::verbs::{ClaimedSegment, Segment};

use super::sender::{Runs, Sender};
use super::taken::{Asked, Taken};
use crate::core::buffers::SendBuffers;
use crate::core::common::Common;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::memory::{Charge, Grant as MemoryGrant, Purpose, Wanted};
use crate::core::outgoing::{Complete, Outgoing};
use crate::core::program::Argument;
use crate::core::responder::answer::{Answer, stage_writes};
use crate::core::responder::{self, Header};
use crate::core::serve::{Acted, Unread, Whole, serve, serve_other};
use crate::core::table::ConnectionKey;
use crate::core::work::{PostedData, Written};
use crate::limits::HEADER_ROOM;
use crate::provider::Port;
use crate::service::{Data, Placement, Reply, Service};

impl<S: Service> Runs<'_, S> {
    /// Takes Calls with one chunk of one segment, for an argument or for a result, from the front of a run.
    /// Returns how many.
    #[inline(never)]
    pub(super) fn take_chunks(
        &mut self,
        from: Sender,
        run: &[&[u8]],
        port: &mut impl Port,
    ) -> usize {
        let Inner { responder, common, .. } = &mut *self.inner;
        if responder.has_ready() {
            return 0;
        }
        let program = &responder.program;
        let [read_max, write_max] = chunk_max(common, from.key);
        let calls = run.iter().map_while(|message| {
            let call = OneChunk::of(message)?;
            let length_max = if call.position.is_some() { read_max } else { write_max };
            let fits = (1..=length_max).contains(&call.segment.length);
            (fits && program.allows(&call, message)).then_some(call.bare)
        });
        let counted = common.take(self.now, from.key, Kind::Call, calls);
        let run = run.iter().take(counted).map(|call| Taken::with_chunk(call));
        let done = self.take_calls(from, run, port);
        self.inner.common.settle_run(from.key, Kind::Call, counted, done);
        done
    }

    /// Has the service act on Calls, and answers them, as long as there is something to answer from. Returns
    /// how many.
    #[inline(never)]
    pub(super) fn take_calls<'a>(
        &mut self,
        from: Sender,
        calls: impl ExactSizeIterator<Item = Taken<'a>>,
        port: &mut impl Port,
    ) -> usize {
        let Self { inner, service, now, reply } = self;
        if reply.is_none() {
            let buffer = inner.common.buffers.pop();
            **reply = buffer.map(|buffer| Reply::new(buffer, None, 0, None));
        }
        let mut grant = lend_replies(&mut inner.common, from.key, calls.len());
        let (version, bare_len) = (from.version, bare_header_len(from.version, Kind::Reply));
        let leaves_max = inner.common.abilities.inline_max;
        // Until the first does not leave at once: others leave behind it.
        let mut leave = true;
        let (mut done, mut others, mut refused) = (0, 0, None);
        let mut next_name = inner.responder.calls.next_key();
        let mut cx = Cx::new(*now, inner);
        for call in calls {
            let (Some(making), Some(name)) = (reply.as_mut(), next_name) else { break };
            let (chunk_len, Taken { xid, chunk, asked }) = (call.reply_chunk_len(), call);
            let chunk = chunk.as_ref();
            let fetched = read_argument(&mut cx.inner.common, from.key, chunk, port);
            let Some((argument, mut charge)) = fetched else { break };
            let length_max = from.bare_reply_max.saturating_sub(chunk_len);
            let offered = chunk.filter(|one| one.position.is_none());
            making.begin(length_max, offered.map(|one| u64::from(one.segment.length)));
            done += 1;
            let connection = from.key;
            let (plain, payload) = match asked {
                Asked::Procedure(procedure, arguments) => {
                    (Some(Header { procedure, arguments_at: 0 }), arguments)
                }
                Asked::Payload(payload) => {
                    let plain = cx.inner.responder.program.plain_calls.procedure(payload);
                    let arguments_at = CallHeader::PLAIN_LEN;
                    (plain.map(|procedure| Header { procedure, arguments_at }), payload)
                }
            };
            let acted = if let Some(header) = plain {
                let credential = Credential::None;
                let whole =
                    Whole { connection, version, xid, name, header, credential, payload, argument };
                serve(&mut cx, *service, whole, making)
            } else {
                let unread = Unread { connection, version, xid, name, payload, argument };
                serve_other(&mut cx, *service, unread, making)
            };
            let deferred = acted.deferred();
            if deferred.is_none() {
                cx.inner.common.discharge(from.key, std::mem::take(&mut charge));
            }
            match acted {
                Acted::Results(length) => {
                    let fits = bare_len + chunk_len + length <= leaves_max;
                    let label = Label { xid, credit: grant.word() };
                    if leave
                        && grant.has_more()
                        && fits
                        && (making.leave(version, label, chunk, length, port).is_some()
                            || leave_behind(
                                &mut cx.inner.common,
                                from.key,
                                label,
                                chunk,
                                length,
                                reply,
                                port,
                            )
                            .is_some())
                    {
                        grant.spend();
                        continue;
                    }
                    let header = ReplyHeader::accepted(xid, AcceptStat::Success);
                    answer_later(cx.inner, from, &header, length, chunk, reply);
                    // A Reply that returns a chunk has taken the place that the name is of.
                    next_name = cx.inner.responder.calls.next_key();
                }
                Acted::Verdict(header) => {
                    making.data = Data::Empty;
                    others += 1;
                    cx.inner.common.counters.calls_served += 1;
                    cx.inner.common.receives.pass(1);
                    answer_later(cx.inner, from, &header, 0, chunk, reply);
                    next_name = cx.inner.responder.calls.next_key();
                }
                Acted::Later(deferred) => {
                    making.data = Data::Empty;
                    others += 1;
                    let Inner { responder, common, .. } = &mut *cx.inner;
                    let booked = common.receives.book();
                    responder.keep(from.key, xid, deferred, booked, chunk);
                    responder.charge(deferred.name, charge);
                    next_name = responder.calls.next_key();
                }
                Acted::Refused(error) => {
                    // It is told once what was lent is settled, and the others come again.
                    making.data = Data::Empty;
                    refused = Some((xid, error));
                    others += 1;
                    break;
                }
            }
            leave = false;
        }
        let Inner { responder, common, .. } = &mut **inner;
        responder.running = None;
        // No run has more messages than that.
        let few = |count| u32::try_from(count).unwrap_or(u32::MAX);
        common.counters.calls_served += (done - others) as u64;
        common.receives.pass(few(done - others));
        common.settle_grant(from.key, &grant);
        if let Some((xid, error)) = refused {
            common.receives.pass(1);
            common.refuse(from.key, xid, error);
        }
        done
    }
}

/// Returns how long the only chunk of a Call may be, if it is to be read, and if it is to be written.
fn chunk_max(common: &Common, key: ConnectionKey) -> [u32; 2] {
    let Some(connection) = common.connections.get(key) else { return [0; 2] };
    let [read_max, write_max] = connection.engine.chunk_max();
    // P12: nothing is asked of a peer that serves no Reads.
    let read_max = read_max.min(common.abilities.read_max);
    [if connection.may_read() { read_max } else { 0 }, write_max]
}

/// Counts the chunk of a Call, and reads an argument that it has there. Returns the position of the argument
/// in the Payload stream, its length, and its lease, and what the connection is charged for that; `None` if the
/// argument cannot be read at once.
#[inline(always)]
fn read_argument(
    common: &mut Common,
    key: ConnectionKey,
    chunk: Option<&OneChunk>,
    port: &mut impl Port,
) -> Option<(Option<Argument>, Charge)> {
    let Some(OneChunk { position, segment, .. }) = chunk else {
        return Some((None, Charge::default()));
    };
    let Some(position) = *position else {
        common.counters.write_chunks += 1;
        return Some((None, Charge::default()));
    };
    let claim = ClaimedSegment::try_from(*segment).ok()?;
    // Calls that wait for memory go first.
    if common.memory.is_awaited() {
        return None;
    }
    let lease = segment.length as usize;
    let wanted = Wanted { lease, later: 0, purpose: Purpose::Reply };
    let MemoryGrant::Taken(mut lease, charge) = common.grant(key, &wanted, 0) else {
        return None;
    };
    if port.read(&claim, lease.bytes_mut()).is_err() {
        common.discharge(key, charge);
        return None;
    }
    common.counters.read_chunks += 1;
    let (length, placed) = (u64::from(segment.length), Placement::Placed(lease));
    Some((Some(Argument { position, length, placed }), charge))
}

/// Grants the peer credits for as many other Calls, and takes credits for `count` Replies that leave at once: for
/// none if others wait.
#[inline]
fn lend_replies(common: &mut Common, key: ConnectionKey, count: usize) -> Grant {
    let touched = common.connections.touched();
    let Some(connection) = common.connections.get_mut(key) else { return Grant::NONE };
    connection.give_credits(&mut common.receives, touched, count, count);
    if !connection.replies.is_empty() || !connection.queue.is_empty() {
        return Grant::NONE;
    }
    connection.engine.lend(Class::Reply, u32::try_from(count).unwrap_or(u32::MAX))
}

/// Sends a Reply behind Writes that have a view of what goes into a chunk, or posts them all. `None` if that
/// cannot be: nothing has changed then.
#[inline(never)]
fn leave_behind(
    common: &mut Common,
    key: ConnectionKey,
    Label { xid, credit }: Label,
    chunk: Option<&OneChunk>,
    length: usize,
    reply: &mut Option<Reply>,
    port: &mut impl Port,
) -> Option<()> {
    let call = chunk.filter(|one| one.position.is_none())?;
    let making = reply.as_mut()?;
    let written = u32::try_from(making.data.len()).ok().filter(|written| *written > 0)?;
    if !common.posted.has_room_for_writes() {
        return None;
    }
    let returned = Segment { length: written, ..call.segment };
    let message = making.seal_results_with(xid, length, credit, &returned)?.len();
    let data = PostedData::of(std::mem::replace(&mut making.data, Data::Empty));
    let segments = [call.segment];
    let mut charge = Charge::default();
    let rest = stage_writes(common, key, data, &mut charge, &segments, port);
    let invalidate = invalidates(Kind::Reply, true, call.inv_handle);
    let end = HEADER_ROOM + length;
    let range = end - message..end;
    let octets = making.buffer.bytes().get(range.clone()).unwrap_or_default();
    if matches!(rest, PostedData::None)
        && common.connections.get(key).is_some_and(|connection| connection.queue.is_empty())
        && port.send(octets, invalidate).is_ok()
    {
        return Some(());
    }
    let buffer = take_buffer(&mut common.buffers, reply)?;
    common.send(key, buffer, range, invalidate, Written::one(rest, charge));
    Some(())
}

/// Takes the buffer of a Reply. The next one has another, if there is one.
fn take_buffer(buffers: &mut SendBuffers, reply: &mut Option<Reply>) -> Option<Local> {
    match (buffers.pop(), reply.as_mut()) {
        (Some(fresh), Some(reply)) => Some(std::mem::replace(&mut reply.buffer, fresh)),
        (_, _) => reply.take().map(|reply| reply.buffer),
    }
}

/// Queues a Reply that did not leave at once. The next one has another buffer, if there is one.
#[cold]
fn answer_later(
    inner: &mut Inner,
    Sender { key, version, .. }: Sender,
    header: &ReplyHeader,
    length: usize,
    chunk: Option<&OneChunk>,
    reply: &mut Option<Reply>,
) {
    let Inner { responder, common, .. } = inner;
    let Some(sealed) = reply.as_mut() else { return };
    let range = sealed.seal(version, header, length);
    let data = std::mem::replace(&mut sealed.data, Data::Empty);
    let Some(buffer) = take_buffer(&mut common.buffers, reply) else { return };
    let queued = match chunk {
        None => Outgoing::Bare(Complete::new(buffer, range)),
        Some(chunk) => {
            let length = range.end.saturating_sub(HEADER_ROOM);
            let answer = Answer::complete(buffer, length, data);
            Outgoing::Kept(responder.keep_answered(key, chunk, answer))
        }
    };
    responder::queue(common, key, queued);
}

impl Reply {
    /// Sends a Reply with results of so many octets, behind the Writes of what goes into a chunk. `None` if
    /// it has not left: nothing has changed here then.
    #[inline(always)]
    fn leave(
        &mut self,
        version: Version,
        label: Label,
        chunk: Option<&OneChunk>,
        length: usize,
        port: &mut impl Port,
    ) -> Option<()> {
        let Label { xid, credit } = label;
        let Some(call) = chunk else {
            let start = HEADER_ROOM - bare_header_len(version, Kind::Reply);
            let message = self.buffer.bytes_mut().get_mut(start..HEADER_ROOM + length)?;
            return match version {
                Version::Two => port.send_headed(&Heading::Results, label, message).ok(),
                Version::One => {
                    put_results_headers_one(message, xid, credit)?;
                    port.send(message, None).ok()
                }
            };
        };
        let OneChunk { inv_handle, position, segment, .. } = *call;
        let invalidate = invalidates(Kind::Reply, true, inv_handle);
        if position.is_some() {
            let message = self.seal_results(xid, length, credit)?;
            return port.send(message, invalidate).ok();
        }
        let claim = ClaimedSegment::try_from(segment).ok()?;
        let written = u32::try_from(self.data.len()).ok()?;
        if written > 0 {
            let target = claim.window(0, written).ok()?;
            self.data.with_parts(|parts| port.write(parts, &target)).ok()?;
        }
        let returned = Segment { length: written, ..segment };
        let message = self.seal_results_with(xid, length, credit, &returned)?;
        port.send(message, invalidate).ok()?;
        self.data = Data::Empty;
        Some(())
    }
}
