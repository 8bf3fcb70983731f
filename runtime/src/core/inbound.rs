//! The Responder: a Call from its Receive to its Reply.
//!
//! # Normal operation
//! A Call is checked against the binding before anything is taken for it. Its reduced argument, if
//! there is one, is read straight into a lease that then belongs to the service. The service runs
//! once the argument is complete; its Reply waits for credit in the connection's queue and leaves
//! with the Writes of its result in one doorbell.
//!
//! # Memory ownership
//! The Receive buffer belongs to the Call until the service has answered it, because the arguments
//! live in it; so a slow service stops the credits of those who call it. From then on the Call holds
//! a send buffer instead: no Call holds neither, which bounds how many there can be.

use haulage_mr_pool::Local;
use haulage_proto::chunk::{self, PayloadReader, Reduced};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader, Violation};
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{CallInline, Returned, encode_reply_inline, reply_inline_wire_len};
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Segment};
use haulage_proto::xdr::Writer;

use crate::core::connection::Connection;
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::core::work::{Held, Name, PostedData, Work};
use crate::limits::{HEADER_ROOM, SEGMENTS_MAX};
use crate::provider::{Operation, WorkRequest};
use crate::service::{
    Arguments, Call, CallToken, ConnectionId, Data, Outcome, Placement, Refusal, Reply, Service,
};

/// A Call being served.
#[derive(Debug)]
pub(crate) struct InboundCall {
    pub(crate) connection: Key<Connection>,
    pub(crate) xid: u32,
    /// What the peer would like to see invalidated by our Reply.
    pub(crate) inv_handle: Handle,
    /// Where the peer wants the reduced result, if it offered a Write chunk.
    pub(crate) offered: Option<Segments>,
    /// What it arrived in, until it is answered.
    message: Option<Message>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The argument is being read; what it will be read into belongs to the work request.
    Reading { position: u32 },
    /// The service can run.
    Ready { argument: Option<(u32, u64, Placement)> },
    /// The RPC layer answers without the service.
    Verdict(ReplyHeader),
    /// The service will answer later.
    Later,
    /// The service was told to finish.
    Resumed,
    /// The Reply waits for credit.
    Replying { buffer: Local, payload_length: usize, data: Data },
}

/// What is needed of a Call's transport header after its message has been judged.
#[derive(Debug)]
pub(crate) struct CallParts {
    xid: u32,
    inv_handle: Handle,
    /// Position and segments of the reduced argument.
    read: Option<(u32, Segments)>,
    offered: Option<Segments>,
    payload_at: usize,
}

impl CallParts {
    /// Copies them out of a message of `length` octets.
    pub(crate) fn of(call: &CallInline<'_>, length: usize) -> Self {
        let read = call.reads.chunks().next();
        let offered = call.writes.chunks().next();
        Self {
            xid: call.prefix.xid,
            inv_handle: call.inv_handle,
            read: read.map(|chunk| (chunk.position(), Segments::collect(chunk.segments()))),
            offered: offered.map(|chunk| Segments::collect(chunk.segments())),
            payload_at: length - call.payload.len(),
        }
    }
}

/// A received message whose Payload stream is still needed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) buffer: Local,
    /// Where the Payload stream starts.
    pub(crate) payload_at: usize,
}

impl Message {
    /// Returns the inline Payload stream.
    pub(crate) fn payload(&self) -> &[u8] {
        self.buffer.bytes().get(self.payload_at..).unwrap_or_default()
    }
}

/// The segments of one chunk, in place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Segments {
    items: [Segment; SEGMENTS_MAX],
    count: usize,
}

impl Segments {
    /// Collects at most [`SEGMENTS_MAX`] segments; the engine has refused longer chunks.
    pub(crate) fn collect(segments: impl Iterator<Item = Segment>) -> Self {
        let mut collected = Self::default();
        for (place, segment) in collected.items.iter_mut().zip(segments) {
            *place = segment;
            collected.count += 1;
        }
        collected
    }

    /// Returns them in order.
    pub(crate) fn as_slice(&self) -> &[Segment] {
        self.items.get(..self.count).unwrap_or_default()
    }

    /// Returns how many there are.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns how much they hold together.
    pub(crate) fn length(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.length)).sum()
    }
}

impl State {
    /// Takes in a Call the engine found acceptable.
    pub(crate) fn on_call(&mut self, key: Key<Connection>, call: &CallParts, buffer: Local) {
        let xid = call.xid;
        let message = Message { buffer, payload_at: call.payload_at };
        let (program, version, procedure) = match CallHeader::decode(message.payload()) {
            Ok((header, _)) => (header.program, header.version, header.procedure),
            Err(fault) => {
                if let Some(verdict) = fault.reply(xid) {
                    return self.admit(key, call, Stage::Verdict(verdict), message);
                }
                return self.refuse(key, xid, ErrorBody::BadXdr, message);
            }
        };
        let binding = &self.binding;
        let verdict = if program != binding.program {
            Some(AcceptStat::ProgUnavail)
        } else if version != binding.version {
            Some(AcceptStat::ProgMismatch { low: binding.version, high: binding.version })
        } else if binding.procedure(procedure).is_none() {
            Some(AcceptStat::ProcUnavail)
        } else {
            None
        };
        if let Some(stat) = verdict {
            let reply = ReplyHeader::accepted(xid, stat);
            return self.admit(key, call, Stage::Verdict(reply), message);
        }
        let Some(procedure) = binding.procedure(procedure) else { return };
        // [V2-4.4.2-2] nothing is reduced that the binding does not allow.
        let read = call.read.as_ref().map(|(position, segments)| Reduced {
            position: *position,
            length: u32::try_from(segments.length()).unwrap_or(u32::MAX),
        });
        let mut verdict = procedure.check_call(read.into_iter(), call.offered.is_some().into());
        let length_max = procedure.arguments.first().map_or(0, |argument| argument.length_max);
        // P12: nor is anything asked of a peer that serves no Reads.
        let may_read = self.connections.get(key).is_some_and(|connection| connection.may_read);
        if call.read.is_some() && !may_read {
            verdict = Err(Violation::Arguments { max: 0 });
        }
        match verdict {
            // What is too long stays where it is, and the service hears of it.
            Ok(()) | Err(Violation::TooLong { .. }) => {}
            Err(violation) => return self.refuse(key, xid, violation.report(), message),
        }
        let Some((position, segments)) = &call.read else {
            return self.admit(key, call, Stage::Ready { argument: None }, message);
        };
        let (position, length, length_max) = (*position, segments.length(), length_max as u64);
        let sink = match usize::try_from(length) {
            Ok(wanted) if length <= length_max => self.pool.lease(wanted).ok_or(Refusal::NoMemory),
            _ => Err(Refusal::TooLarge),
        };
        let placed = match sink {
            Ok(lease) if length > 0 => {
                return self.read_argument(key, call, message, (position, segments), lease);
            }
            Ok(lease) => Placement::Placed(lease),
            Err(why) => Placement::Refused(why),
        };
        let argument = Some((position, length, placed));
        self.admit(key, call, Stage::Ready { argument }, message);
    }

    /// Posts the Reads that fetch a reduced argument. The last one is signaled.
    fn read_argument(
        &mut self,
        key: Key<Connection>,
        call: &CallParts,
        message: Message,
        (position, segments): (u32, &Segments),
        lease: Local,
    ) {
        let stage = Stage::Reading { position };
        let Some(waiting) = self.insert(key, call, stage, message) else { return };
        let sink = lease.into_sink();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mut at = 0;
        let mut last: Option<WorkRequest> = None;
        let claims = segments.as_slice().iter().filter_map(|&s| ClaimedSegment::try_from(s).ok());
        for claim in claims.filter(|claim| claim.length() > 0) {
            let end = at + claim.length() as usize;
            let Some(view) = sink.sink(at..end) else { break };
            at = end;
            let operation = Operation::Read { sink: view, source: claim };
            let id = Name::Unsignaled.wr_id();
            let request = WorkRequest { id, flags: Flags::default(), operation };
            connection.queue.extend(last.replace(request));
        }
        let held = Held::Read { sink, call: waiting };
        let Ok(name) = self.work.insert(Work { connection: key, held }) else {
            debug_assert!(false, "the work table holds a Read for every Receive");
            return;
        };
        if let Some(mut request) = last {
            request.id = Name::Work(name.to_bits()).wr_id();
            request.flags.signaled = true;
            connection.queue.push_back(request);
        }
        self.touch(key);
    }

    /// The argument of a Call is complete.
    pub(crate) fn on_argument(&mut self, call: Key<InboundCall>, lease: Local) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        let length = lease.len() as u64;
        match std::mem::replace(&mut inbound.stage, Stage::Later) {
            Stage::Reading { position } => {
                let argument = Some((position, length, Placement::Placed(lease)));
                inbound.stage = Stage::Ready { argument };
                self.ready.push_back(call);
            }
            other => inbound.stage = other,
        }
    }

    /// Lets a Call that was answered with `Later` be finished.
    pub(crate) fn resume(&mut self, call: Key<InboundCall>) {
        if let Some(inbound) = self.inbound.get_mut(call)
            && matches!(inbound.stage, Stage::Later)
        {
            inbound.stage = Stage::Resumed;
            self.ready.push_back(call);
        }
    }

    /// Forgets every Call of a connection that is gone.
    pub(crate) fn drop_calls(&mut self, key: Key<Connection>) {
        while let Some(call) = self.inbound.find(0, |call| call.connection == key) {
            let Some(inbound) = self.inbound.remove(call) else { return };
            if let Some(message) = inbound.message {
                self.receives.give_back(message.buffer);
            }
            if let Stage::Replying { buffer, .. } = inbound.stage {
                self.recycle(buffer);
            }
        }
    }

    /// Answers a Call with a transport error.
    fn refuse(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody, message: Message) {
        self.counters.calls_refused += 1;
        self.receives.give_back(message.buffer);
        self.answer_with_error(key, xid, error);
    }

    /// Sends a transport error in place of a Reply, or queues it for credit.
    pub(crate) fn answer_with_error(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.refuse(xid, error);
        }
        let event = self.carry_out(key);
        debug_assert!(event.is_none(), "a refusal is about no message just received");
        self.touch(key);
    }

    /// Takes a Call whose arguments are complete.
    fn admit(&mut self, key: Key<Connection>, call: &CallParts, stage: Stage, message: Message) {
        if let Some(call) = self.insert(key, call, stage, message) {
            self.ready.push_back(call);
        }
    }

    fn insert(
        &mut self,
        connection: Key<Connection>,
        call: &CallParts,
        stage: Stage,
        message: Message,
    ) -> Option<Key<InboundCall>> {
        let inbound = InboundCall {
            connection,
            xid: call.xid,
            inv_handle: call.inv_handle,
            offered: call.offered,
            message: Some(message),
            stage,
        };
        let inserted = self.inbound.insert(inbound);
        debug_assert!(inserted.is_ok(), "an entry for everything that a Call can hold");
        inserted.ok()
    }
}

/// Runs the service for at most `budget` Calls. Returns for how many.
pub(crate) fn run<S: Service>(
    state: &mut State,
    service: &mut S,
    now: Instant,
    budget: usize,
) -> usize {
    let mut ran = 0;
    while ran < budget && !state.ready.is_empty() {
        // Out of send buffers: the Calls wait until Replies have left.
        let Some(buffer) = state.buffers.pop() else { break };
        let Some(key) = state.ready.pop_front() else { break };
        let ended = run_one(state, service, now, key, buffer);
        state.end_run(key, ended);
        ran += 1;
    }
    ran
}

/// What became of a Call when its turn came.
#[derive(Debug)]
enum Ended {
    /// It is gone, or not to be answered now.
    Nothing(Local),
    /// A Reply is ready.
    Reply { buffer: Local, payload_length: usize, data: Data },
    /// The transport refuses it.
    Refused(Local, ErrorBody),
}

fn run_one<S: Service>(
    state: &mut State,
    service: &mut S,
    now: Instant,
    key: Key<InboundCall>,
    buffer: Local,
) -> Ended {
    let Some(inbound) = state.inbound.get_mut(key) else { return Ended::Nothing(buffer) };
    let (connection, xid, offered) = (inbound.connection, inbound.xid, inbound.offered);
    let Some(terms) = state.connections.get(connection).map(|connection| connection.terms) else {
        return Ended::Nothing(buffer);
    };
    let header_length = reply_inline_wire_len(offered.as_ref().map(Segments::len));
    let mut reply = Reply {
        buffer,
        at: HEADER_ROOM + ReplyHeader::SUCCESS_LEN,
        end: HEADER_ROOM + terms.inline_threshold.saturating_sub(header_length),
        offered: offered.as_ref().map(Segments::length),
        data: Data::Empty,
        refused: None,
    };
    let outcome = match std::mem::replace(&mut inbound.stage, Stage::Later) {
        Stage::Ready { argument } => {
            // The service reads the message while it may do anything else to the core.
            let message = inbound.message.take();
            let payload = message.as_ref().map_or(&[][..], Message::payload);
            let mut cx = Cx { now, state };
            let outcome = call(&mut cx, service, (key, connection), payload, argument, &mut reply);
            if let Some(inbound) = state.inbound.get_mut(key) {
                inbound.message = message;
            }
            outcome
        }
        Stage::Resumed => service.resume(&mut Cx { now, state }, CallToken(key), &mut reply),
        Stage::Verdict(header) => return reply_with(reply, &header),
        // The service resumed it, and answered it before its turn came.
        other => {
            inbound.stage = other;
            Outcome::Later
        }
    };
    match (outcome, reply.refused) {
        (Outcome::Later, _) => Ended::Nothing(reply.buffer),
        (Outcome::Done, Some(error)) => Ended::Refused(reply.buffer, error),
        (Outcome::Done, None) => {
            let end = reply.at;
            let header = ReplyHeader::accepted(xid, AcceptStat::Success);
            match reply_with(reply, &header) {
                Ended::Reply { buffer, data, .. } => {
                    Ended::Reply { buffer, payload_length: end - HEADER_ROOM, data }
                }
                other => other,
            }
        }
        (Outcome::Failed(stat), _) => {
            reply.data = Data::Empty;
            reply_with(reply, &ReplyHeader::accepted(xid, stat))
        }
    }
}

/// Lets the service act on one Call.
fn call<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    (key, connection): (Key<InboundCall>, Key<Connection>),
    payload: &[u8],
    argument: Option<(u32, u64, Placement)>,
    reply: &mut Reply,
) -> Outcome {
    let Ok((header, arguments_at)) = CallHeader::decode(payload) else {
        return Outcome::Failed(AcceptStat::GarbageArgs);
    };
    let chunk = argument.as_ref().map(|(position, length, _)| (*position, *length));
    let placed = argument.map_or(Placement::None, |(_, _, placed)| placed);
    let reader = PayloadReader::call(payload, arguments_at, chunk);
    let call = Call {
        procedure: header.procedure,
        credential: header.credential,
        connection: ConnectionId(connection),
        token: CallToken(key),
        arguments: Arguments { reader, placed },
    };
    service.call(cx, call, reply)
}

/// Writes the RPC header in front of the results; without results it ends the Payload stream.
fn reply_with(mut reply: Reply, header: &ReplyHeader) -> Ended {
    let room = reply.buffer.bytes_mut().get_mut(HEADER_ROOM..reply.end).unwrap_or_default();
    let mut writer = Writer::new(room);
    match header.encode(&mut writer) {
        Ok(()) => {
            let payload_length = writer.position();
            Ended::Reply { buffer: reply.buffer, payload_length, data: reply.data }
        }
        Err(_) => Ended::Refused(reply.buffer, ErrorBody::ReplyResource { length_needed: 0 }),
    }
}

impl State {
    /// Queues what a Call came to.
    fn end_run(&mut self, key: Key<InboundCall>, ended: Ended) {
        let Some(inbound) = self.inbound.get_mut(key) else {
            let (Ended::Nothing(buffer) | Ended::Reply { buffer, .. } | Ended::Refused(buffer, _)) =
                ended;
            return self.recycle(buffer);
        };
        let (connection, xid) = (inbound.connection, inbound.xid);
        let answered = !matches!(ended, Ended::Nothing(_));
        let message = if answered { inbound.message.take() } else { None };
        match ended {
            Ended::Nothing(buffer) => self.recycle(buffer),
            Ended::Reply { buffer, payload_length, data } => {
                self.counters.calls_served += 1;
                inbound.stage = Stage::Replying { buffer, payload_length, data };
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.replies.push_back(key);
                }
            }
            Ended::Refused(buffer, error) => {
                self.counters.calls_refused += 1;
                self.recycle(buffer);
                self.inbound.remove(key);
                self.answer_with_error(connection, xid, error);
            }
        }
        if let Some(message) = message {
            self.receives.give_back(message.buffer);
        }
        self.touch(connection);
    }

    /// Queues the Reply of a Call behind the Writes of its result. The credit is already spent.
    pub(crate) fn send_reply(&mut self, call: Key<InboundCall>, credit: u32) {
        let Some(inbound) = self.inbound.remove(call) else { return };
        let Stage::Replying { mut buffer, payload_length, data } = inbound.stage else { return };
        let length = data.bytes().len();
        let segments = inbound.offered.as_ref().map(Segments::as_slice);
        let start = HEADER_ROOM - reply_inline_wire_len(segments.map(<[Segment]>::len));
        let end = HEADER_ROOM + payload_length;
        let writes = segments.map(|offered| [Returned { offered, length }]);
        let writes = writes.as_ref().map_or(&[][..], |writes| writes.as_slice());
        let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
        let encoded = encode_reply_inline(&mut Writer::new(room), inbound.xid, credit, writes);
        debug_assert!(encoded.is_ok(), "the header room holds the longest header");

        let Some(connection) = self.connections.get_mut(inbound.connection) else { return };
        let data = match data {
            Data::Local(lease) if length > 0 => PostedData::Local(lease.into_source()),
            Data::Shared(shared) if length > 0 => PostedData::Shared(shared.into_source()),
            _ => PostedData::None,
        };
        // [V2-4.5.2.1-1] contiguously, in segment order.
        for (claim, range) in chunk::fill(segments.unwrap_or_default(), length) {
            let Some(source) = data.source(range) else { continue };
            let operation = Operation::Write { source, target: claim };
            let id = Name::Unsignaled.wr_id();
            connection.queue.push_back(WorkRequest { id, flags: Flags::default(), operation });
        }
        let invalidate = invalidates(Kind::Reply, true, inbound.inv_handle);
        self.send(inbound.connection, buffer, start..end, invalidate, data);
    }
}
