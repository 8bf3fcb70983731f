//! Calls that are acted upon as they come, and answered at once if that goes.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::chunk::Reduced;
use haulage_proto::negotiate::{Class, Grant, Version, bare_header_len, put_results_headers_one};
use haulage_proto::rpc::{AcceptStat, Binding, CallHeader, PlainCalls, ReplyHeader};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::OneChunk;
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::verbs::{ClaimedSegment, Label, Segment};

use super::{Origin, Short, apart};
use crate::core::connection::Connection;
use crate::core::inbound::{Acted, Argument, Asked, Complete, act};
use crate::core::memory::{Charge, Grant as MemoryGrant, Purpose, Wanted};
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::core::templates::RESULTS;
use crate::core::work::{PostedData, Written};
use crate::limits::HEADER_ROOM;
use crate::provider::Port;
use crate::service::{Data, Placement, Reply, ResultSource, Service};

/// A Call of a run.
pub(super) struct Taken<'a> {
    xid: u32,
    chunk: Option<OneChunk>,
    asked: Asked<'a>,
}

impl<'a> Taken<'a> {
    /// One without chunks, with a transport header of `header_len` octets, of which all is here.
    #[inline]
    pub(super) fn bare(call: &'a [u8], header_len: usize) -> Self {
        let (xid, payload) = apart(call, header_len);
        Self { xid, chunk: None, asked: Asked::Payload(payload) }
    }

    /// One with one chunk.
    #[inline]
    fn with_chunk(call: &'a [u8]) -> Self {
        let (xid, payload) = apart(call, OneChunk::CALL_LEN);
        Self { xid, chunk: OneChunk::read(call), asked: Asked::Payload(payload) }
    }

    /// One without chunks that nobody in particular makes, for this procedure with these arguments.
    #[inline]
    pub(super) const fn asking(xid: u32, procedure: u32, arguments: &'a [u8]) -> Self {
        Self { xid, chunk: None, asked: Asked::Procedure(procedure, arguments) }
    }

    /// Returns the octets that the transport header of its Reply has more than one without chunks.
    #[inline]
    const fn reply_chunk_len(&self) -> usize {
        match self.chunk {
            Some(OneChunk { position: None, .. }) => {
                OneChunk::REPLY_LEN - bare_header_len(Version::Two, Kind::Reply)
            }
            _ => 0,
        }
    }
}

impl<S: Service> Short<'_, S> {
    /// Takes Calls with one chunk of one segment, for an argument or for a result, from the front of a run.
    /// Returns how many.
    #[inline(never)]
    pub(super) fn take_chunks(
        &mut self,
        from: Origin,
        run: &[&[u8]],
        port: &mut impl Port,
    ) -> usize {
        let state = &mut *self.state;
        if !state.ready.is_empty() {
            return 0;
        }
        let (binding, results) = (Rc::clone(&state.binding), Rc::clone(&state.sources));
        let (plain_calls, sources) =
            (state.plain_calls, Sources { binding: &binding, results: &results });
        let [read_max, write_max] = state.chunk_max(from.key);
        let calls = run.iter().map_while(|message| {
            let call = OneChunk::of(message)?;
            let length_max = if call.position.is_some() { read_max } else { write_max };
            let fits = (1..=length_max).contains(&call.segment.length);
            (fits && allows(&sources, &plain_calls, &call, message)).then_some(call.bare)
        });
        let counted = state.take(self.now, from.key, Kind::Call, calls);
        let run = run.iter().take(counted).map(|call| Taken::with_chunk(call));
        let done = self.take_calls(from, run, port);
        self.state.settle_run(from.key, Kind::Call, counted, done);
        done
    }

    /// Has the service act on Calls, and answers them, as long as there is something to answer from. Returns
    /// how many.
    #[inline(never)]
    pub(super) fn take_calls<'a>(
        &mut self,
        from: Origin,
        calls: impl ExactSizeIterator<Item = Taken<'a>>,
        port: &mut impl Port,
    ) -> usize {
        let Self { state, service, now, reply } = self;
        if reply.is_none() {
            **reply = state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        }
        let mut grant = state.lend_replies(from.key, calls.len());
        let (version, bare_len) = (from.version, bare_header_len(from.version, Kind::Reply));
        let leaves_max = state.inline_max;
        // Until the first does not leave at once: others leave behind it.
        let mut leave = true;
        let (mut done, mut others, mut refused) = (0, 0, None);
        let mut token = state.inbound.next_key();
        let mut cx = Cx::new(*now, state);
        for call in calls {
            let Some(making) = reply.as_mut() else { break };
            let (chunk_len, Taken { xid, chunk, asked }) = (call.reply_chunk_len(), call);
            if matches!(asked, Asked::Procedure(..)) && token.is_none() {
                // Without a name it cannot be answered later, and what else it could be is in its headers.
                break;
            }
            let chunk = chunk.as_ref();
            let Some((argument, mut charge)) = cx.state.read_argument(from.key, chunk, port) else {
                break;
            };
            let length_max = from.bare_reply_max.saturating_sub(chunk_len);
            let offered = chunk.filter(|one| one.position.is_none());
            making.begin(length_max, offered.map(|one| u64::from(one.segment.length)));
            done += 1;
            let named = (from.key, xid, token);
            let acted = act(&mut cx, *service, named, (version, asked, argument), making);
            let deferred = acted.deferred();
            if deferred.is_none() {
                cx.state.discharge(from.key, std::mem::take(&mut charge));
            }
            match acted {
                Acted::Results(length) => {
                    let fits = bare_len + chunk_len + length <= leaves_max;
                    let leaves = leave && grant.has_more() && fits;
                    let label = Label { xid, credit: grant.word() };
                    if leaves
                        && (making.leave(version, label, chunk, length, port).is_some()
                            || cx
                                .state
                                .leave_behind((from.key, label), chunk, length, reply, port)
                                .is_some())
                    {
                        grant.spend();
                        continue;
                    }
                    let header = ReplyHeader::accepted(xid, AcceptStat::Success);
                    cx.state.answer_later(from, &header, length, chunk, reply);
                    // A Reply that returns a chunk has taken the place that the token names.
                    token = cx.state.inbound.next_key();
                }
                Acted::Refused(error) => {
                    // It is told once what was lent is settled, and the others come again.
                    making.data = Data::Empty;
                    refused = Some((xid, error));
                    others += 1;
                    break;
                }
                other => {
                    making.data = Data::Empty;
                    let booked = cx.state.receives.book();
                    let named = (from.key, xid);
                    if let Some((header, length)) = cx.state.settle(named, booked, chunk, other) {
                        cx.state.answer_later(from, &header, length, chunk, reply);
                    }
                    if let Some(call) = deferred {
                        cx.state.charge(call, charge);
                    }
                    token = cx.state.inbound.next_key();
                    others += 1;
                }
            }
            leave = false;
        }
        state.running = None;
        // No run has more messages than that.
        let few = |count| u32::try_from(count).unwrap_or(u32::MAX);
        state.counters.calls_served += (done - others) as u64;
        state.receives.pass(few(done - others));
        state.settle_grant(from.key, &grant);
        if let Some((xid, error)) = refused {
            let booked = state.receives.book();
            state.refuse(from.key, xid, error, booked);
        }
        done
    }
}

/// What decides whether a Call with one chunk is acted upon as it comes.
pub(in crate::core) struct Sources<'a> {
    pub(in crate::core) binding: &'a Binding,
    /// Where the results of each procedure come from.
    pub(in crate::core) results: &'a [ResultSource],
}

/// Returns whether a Call with one chunk may be acted upon as it comes: its procedure has an argument that can be
/// read from there, or a result that can be written there and that takes no memory of the pool.
#[inline]
pub(in crate::core) fn allows(
    sources: &Sources<'_>,
    plain_calls: &PlainCalls,
    chunk: &OneChunk,
    call: &[u8],
) -> bool {
    let Sources { binding, results } = *sources;
    let payload = call.get(OneChunk::CALL_LEN..).unwrap_or_default();
    let procedure = plain_calls.procedure(payload).or_else(|| {
        let (header, _) = CallHeader::decode(payload).ok()?;
        let is_ours = (header.program, header.version) == (binding.program, binding.version);
        is_ours.then_some(header.procedure)
    });
    let procedure = procedure.and_then(|number| {
        let source = results.get(usize::try_from(number).ok()?)?;
        Some((binding.procedure(number)?, *source))
    });
    procedure.is_some_and(|(procedure, source)| match chunk.position {
        None => !procedure.results.is_empty() && source == ResultSource::Resident,
        Some(position) => {
            let read = Reduced { position, length: chunk.segment.length };
            procedure.check_call(std::iter::once(read), 0).is_ok()
        }
    })
}

impl State {
    /// Returns how long the only chunk of a Call may be, if it is to be read, and if it is to be written.
    fn chunk_max(&self, key: Key<Connection>) -> [u32; 2] {
        let Some(connection) = self.connections.get(key) else { return [0; 2] };
        let [read_max, write_max] = connection.engine.chunk_max();
        // P12: nothing is asked of a peer that serves no Reads.
        let read_max = read_max.min(self.read_max);
        [if connection.may_read() { read_max } else { 0 }, write_max]
    }

    /// Counts the chunk of a Call, and reads an argument that it has there. Returns the position of the argument
    /// in the Payload stream, its length, and its lease, and what the connection is charged for that; `None` if the
    /// argument cannot be read at once.
    #[inline(always)]
    fn read_argument(
        &mut self,
        key: Key<Connection>,
        chunk: Option<&OneChunk>,
        port: &mut impl Port,
    ) -> Option<(Argument, Charge)> {
        let Some(OneChunk { position, segment, .. }) = chunk else {
            return Some((None, Charge::default()));
        };
        let Some(position) = *position else {
            self.counters.write_chunks += 1;
            return Some((None, Charge::default()));
        };
        let claim = ClaimedSegment::try_from(*segment).ok()?;
        // Calls that wait for memory go first.
        if self.is_memory_awaited() {
            return None;
        }
        let lease = segment.length as usize;
        let wanted = Wanted { lease, later: 0, purpose: Purpose::Reply };
        let MemoryGrant::Taken(mut lease, charge) = self.grant(key, &wanted, 0) else {
            return None;
        };
        if port.read(&claim, lease.bytes_mut()).is_err() {
            self.discharge(key, charge);
            return None;
        }
        self.counters.read_chunks += 1;
        Some((Some((position, u64::from(segment.length), Placement::Placed(lease))), charge))
    }

    /// Grants the peer credits for as many other Calls, and takes credits for `count` Replies that leave at once: for
    /// none if others wait.
    #[inline]
    fn lend_replies(&mut self, key: Key<Connection>, count: usize) -> Grant {
        let Some(connection) = self.connections.get_mut(key) else { return Grant::NONE };
        connection.give_credits(&mut self.receives, self.dirty.len(), (count, count));
        if !connection.replies.is_empty() || !connection.queue.is_empty() {
            return Grant::NONE;
        }
        connection.engine.lend(Class::Reply, u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Sends a Reply behind Writes that have a view of what goes into a chunk, or posts them all. `None` if that
    /// cannot be: nothing has changed then.
    #[inline(never)]
    fn leave_behind(
        &mut self,
        (key, Label { xid, credit }): (Key<Connection>, Label),
        chunk: Option<&OneChunk>,
        length: usize,
        reply: &mut Option<Reply>,
        port: &mut impl Port,
    ) -> Option<()> {
        let call = chunk.filter(|one| one.position.is_none())?;
        let making = reply.as_mut()?;
        let written = u32::try_from(making.data.len()).ok().filter(|written| *written > 0)?;
        if self.written >= self.limits.send_buffers_max {
            return None;
        }
        let returned = Segment { length: written, ..call.segment };
        let message = making.seal_results_with(xid, length, credit, &returned)?.len();
        let data = PostedData::of(std::mem::replace(&mut making.data, Data::Empty));
        let segments = [call.segment];
        let mut charge = Charge::default();
        let stage = |request| port.stage(request);
        let rest = self.stage_writes(key, data, &mut charge, &segments, stage);
        let invalidate = invalidates(Kind::Reply, true, call.inv_handle);
        let end = HEADER_ROOM + length;
        let range = end - message..end;
        let octets = making.buffer.bytes().get(range.clone()).unwrap_or_default();
        if matches!(rest, PostedData::None)
            && self.connections.get(key).is_some_and(|connection| connection.queue.is_empty())
            && port.send(octets, invalidate).is_ok()
        {
            return Some(());
        }
        let buffer = self.take_buffer(reply)?;
        self.send(key, buffer, range, invalidate, Written::one(rest, charge));
        Some(())
    }

    /// Takes the buffer of a Reply. The next one has another, if there is one.
    fn take_buffer(&mut self, reply: &mut Option<Reply>) -> Option<Local> {
        match (self.buffers.pop(), reply.as_mut()) {
            (Some(fresh), Some(reply)) => Some(std::mem::replace(&mut reply.buffer, fresh)),
            (_, _) => reply.take().map(|reply| reply.buffer),
        }
    }

    /// Queues a Reply that did not leave at once. The next one has another buffer, if there is one.
    #[cold]
    fn answer_later(
        &mut self,
        Origin { key, version, .. }: Origin,
        header: &ReplyHeader,
        length: usize,
        chunk: Option<&OneChunk>,
        reply: &mut Option<Reply>,
    ) {
        let Some(sealed) = reply.as_mut() else { return };
        let range = sealed.seal(version, header, length);
        let data = std::mem::replace(&mut sealed.data, Data::Empty);
        let Some(buffer) = self.take_buffer(reply) else { return };
        match chunk {
            None => self.queue_bare(key, Complete::new(buffer, range)),
            Some(call) => self.queue_with_chunk(key, call, (buffer, range.end), data),
        }
    }
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
                Version::Two => port.send_like(RESULTS, label, message).ok(),
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
