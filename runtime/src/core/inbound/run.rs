//! Running the service for the Calls that are ready.

use std::ops::Range;

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::negotiate::{
    Version, bare_header_len, put_bare_header, put_results_headers, put_results_headers_with,
};
use haulage_proto::rpc::{AcceptStat, CallHeader, Credential, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::OneChunk;
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::Writer;

use super::answer::{Answer, inline_max};
use super::{
    Allowed, Asking, Complete, InboundCall, Judged, Message, Outgoing, Room, Running, Segments,
    Stage,
};
use crate::core::connection::{Connection, Terms};
use crate::core::memory::Charge;
use crate::core::receives::Filled;
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::limits::HEADER_ROOM;
use crate::service::{
    Arguments, Call, CallToken, ConnectionId, Data, Outcome, Placement, Reply, Service,
};

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

/// A Call without chunks: its connection, its XID, and its name should it be answered later.
type Named = (Key<Connection>, u32, Option<Key<InboundCall>>);

/// What became of a Call without chunks.
#[derive(Debug)]
pub(crate) enum Acted {
    /// Its results are complete: so many octets of the Payload stream.
    Results(usize),
    /// The RPC layer answers, without results.
    Verdict(ReplyHeader),
    /// The transport refuses it.
    Refused(ErrorBody),
    /// It is to be answered later.
    Later(Deferred),
}

impl Acted {
    /// Returns the name of a Call that is to be answered later.
    #[inline]
    pub(crate) const fn deferred(&self) -> Option<Key<InboundCall>> {
        match self {
            Self::Later(deferred) => Some(deferred.name),
            _ => None,
        }
    }
}

/// A Call that its service answers later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    /// Its place in the table of Calls.
    name: Key<InboundCall>,
    /// Whether the service has resumed it already.
    is_resumed: bool,
    /// What its results may be.
    results: Allowed,
}

/// What a Call asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// What is in this Payload stream.
    Payload(&'a [u8]),
    /// This procedure of the service with these arguments, and nobody in particular does.
    Procedure(u32, &'a [u8]),
}

/// Where a reduced argument stands in the Payload stream, how long it is, and where it was put.
pub(crate) type Argument = Option<(u32, u64, Placement)>;

/// Has the service act on a Call that is all there, with a Reply that is ready for it. What is then `running` is to
/// be forgotten.
#[inline(always)]
pub(crate) fn act<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    (connection, xid, token): Named,
    (version, asked, argument): (Version, Asked<'_>, Argument),
    reply: &mut Reply,
) -> Acted {
    let (procedure, octets, at) = match asked {
        Asked::Procedure(procedure, arguments) => (Some(procedure), arguments, 0),
        Asked::Payload(payload) => {
            (cx.state.plain_calls.procedure(payload), payload, CallHeader::PLAIN_LEN)
        }
    };
    if let (Some(procedure), Some(token)) = (procedure, token) {
        let asked = (procedure, Credential::None, at);
        serve(cx, service, (connection, xid, token), asked, (version, octets, argument), reply)
    } else {
        act_on_other(cx, service, (connection, xid), (version, octets, argument), reply)
    }
}

/// Does the same for a Call that says who makes it, or is not for the service.
#[inline(never)]
fn act_on_other<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    (connection, xid): (Key<Connection>, u32),
    (version, payload, argument): (Version, &[u8], Argument),
    reply: &mut Reply,
) -> Acted {
    if let (Ok((header, at)), Some(token)) =
        (CallHeader::decode(payload), cx.state.inbound.next_key())
        && cx.state.binding.has(header.program, header.version, header.procedure)
        && header.credential.check(&cx.state.flavors).is_ok()
    {
        // [V2-11.2.2.3-2] results under integrity or privacy stay in the Payload stream.
        if !header.credential.may_reduce() {
            reply.unreduced();
        }
        let asked = (header.procedure, header.credential, at);
        let call = (version, payload, argument);
        return serve(cx, service, (connection, xid, token), asked, call, reply);
    }
    let asking = Asking { xid, payload, read: None, write: None, reply: None };
    match cx.state.judge_call(connection, &asking) {
        Judged::Verdict(header) => Acted::Verdict(header),
        Judged::Refused(error) => Acted::Refused(error),
        // An entry for everything that a Call can hold: there is always room.
        Judged::Ready(..) | Judged::Read(_) => Acted::Refused(ErrorBody::System),
    }
}

/// Has the service act on a Call of which is known what it asks for, who makes it, and where its arguments
/// begin.
#[inline(always)]
fn serve<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    (connection, xid, token): (Key<Connection>, u32, Key<InboundCall>),
    (procedure, credential, arguments_at): (u32, Credential<'_>, usize),
    (version, payload, argument): (Version, &[u8], Argument),
    reply: &mut Reply,
) -> Acted {
    let chunk = argument.as_ref().map(|(position, length, _)| (*position, *length));
    let placed = argument.map_or(Placement::None, |(.., placed)| placed);
    let reader = PayloadReader::call(payload, arguments_at, chunk).of_version(version);
    let call = Call {
        xid,
        procedure,
        credential,
        connection: ConnectionId(connection),
        token: CallToken(token),
        arguments: Arguments { reader, placed },
    };
    cx.state.running = Some(Running { key: token, is_resumed: false });
    match (service.call(cx, call, reply), reply.refusal()) {
        (Outcome::Done, None) if cx.state.allows(procedure, reply) => Acted::Results(reply.at),
        (Outcome::Done, None) => Acted::Verdict(cx.state.misdeclared(xid)),
        (Outcome::Done, Some(error)) => Acted::Refused(error),
        (Outcome::Failed(stat), _) => Acted::Verdict(ReplyHeader::accepted(xid, stat)),
        (Outcome::Later, _) => {
            let running = cx.state.running.take();
            let is_resumed = running.is_some_and(|running| running.is_resumed);
            let octets_max = cx.state.results_max(procedure);
            let results = Allowed { octets_max, reduces: reply.offered.is_some() };
            Acted::Later(Deferred { name: token, is_resumed, results })
        }
    }
}

/// What became of a Call when its turn came.
#[derive(Debug)]
enum Ended {
    /// It is gone, or not to be answered now.
    Nothing(Local),
    /// A Reply is ready.
    Reply(Answer),
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
    let (connection, xid) = (inbound.connection, inbound.xid);
    let Some(terms) = state.connections.get(connection).map(|connection| connection.terms) else {
        return Ended::Nothing(buffer);
    };
    let stage = std::mem::replace(&mut inbound.stage, Stage::Later);
    if let Stage::Verdict(header) = &stage {
        let length_max = inline_max(inbound.write.as_ref(), &terms);
        let reply = Reply::new(buffer, None, length_max, inbound.write.as_ref());
        return verdict(reply, header, &terms, inbound);
    }
    state.memory.keep_promise(&mut inbound.charge);
    // What fits the message goes into the message where there is no memory for the Reply chunk.
    let body = inbound.reply_body.take();
    let write = inbound.write.as_ref();
    let length_max = body.as_ref().map_or_else(|| inline_max(write, &terms), Local::len);
    let mut reply = Reply::new(buffer, body, length_max, inbound.write.as_ref());
    let outcome = match stage {
        Stage::Ready { argument } => {
            // The service reads the message while it may do anything else to the core.
            let (message, body) = (inbound.message.take(), inbound.body.take());
            let buffers = state.receives.lend();
            let payload = match (&message, &body) {
                (_, Some(body)) => body.bytes(),
                (Some(message), None) => message.payload(&buffers),
                (None, None) => &[],
            };
            let mut cx = Cx::new(now, state);
            let named = (key, connection, terms.version);
            let outcome = call(&mut cx, service, named, payload, argument, &mut reply);
            state.receives.restore(buffers);
            if let Some(inbound) = state.inbound.get_mut(key) {
                (inbound.message, inbound.body) = (message, body);
            }
            outcome
        }
        Stage::Resumed => {
            if !inbound.results.reduces {
                reply.unreduced();
            }
            service.resume(&mut Cx::new(now, state), CallToken(key), &mut reply)
        }
        // The service resumed it, and answered it before its turn came.
        other => {
            inbound.stage = other;
            Outcome::Later
        }
    };
    let Some(inbound) = state.inbound.get_mut(key) else { return Ended::Nothing(reply.buffer) };
    match (outcome, reply.refusal()) {
        (Outcome::Later, _) => {
            inbound.reply_body = reply.body;
            Ended::Nothing(reply.buffer)
        }
        (Outcome::Done, Some(error)) => Ended::Refused(reply.buffer, error),
        (Outcome::Done, None) if !reply.keeps_to(inbound.results.octets_max) => {
            reply.data = Data::Empty;
            let ended = verdict(reply, &system_error(xid), &terms, inbound);
            state.counters.results_misdeclared += 1;
            ended
        }
        (Outcome::Done, None) => {
            let length = reply.at;
            let header = ReplyHeader::accepted(xid, AcceptStat::Success);
            reply.at = 0;
            if reply.results(|w| header.encode(w)).is_err() {
                return Ended::Refused(reply.buffer, ErrorBody::System);
            }
            reply.at = length;
            answer(reply, &terms, inbound)
        }
        (Outcome::Failed(stat), _) => {
            reply.data = Data::Empty;
            verdict(reply, &ReplyHeader::accepted(xid, stat), &terms, inbound)
        }
    }
}

/// Lets the service act on one Call.
fn call<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    (key, connection, version): (Key<InboundCall>, Key<Connection>, Version),
    payload: &[u8],
    argument: Option<(u32, u64, Placement)>,
    reply: &mut Reply,
) -> Outcome {
    let Ok((header, arguments_at)) = CallHeader::decode(payload) else {
        return Outcome::Failed(AcceptStat::GarbageArgs);
    };
    let bound = cx.state.binding.procedure(header.procedure);
    // [V2-11.2.2.3-2] results under integrity or privacy stay in the Payload stream. [R5666-3.6-2] On
    // version 1 a Write chunk may be offered for a procedure that has no eligible result.
    let is_eligible = bound.is_some_and(|bound| !bound.results.is_empty());
    if !header.credential.may_reduce() || !is_eligible {
        reply.unreduced();
    }
    let octets_max = cx.state.results_max(header.procedure);
    if let Some(inbound) = cx.state.inbound.get_mut(key) {
        inbound.results = Allowed { octets_max, reduces: reply.offered.is_some() };
    }
    let chunk = argument.as_ref().map(|(position, length, _)| (*position, *length));
    let placed = argument.map_or(Placement::None, |(_, _, placed)| placed);
    let reader = PayloadReader::call(payload, arguments_at, chunk).of_version(version);
    let call = Call {
        xid: header.xid,
        procedure: header.procedure,
        credential: header.credential,
        connection: ConnectionId(connection),
        token: CallToken(key),
        arguments: Arguments { reader, placed },
    };
    service.call(cx, call, reply)
}

/// Returns the RPC header of a Reply that says that the service failed.
const fn system_error(xid: u32) -> ReplyHeader {
    ReplyHeader::accepted(xid, AcceptStat::SystemErr)
}

/// Replies without results.
fn verdict(mut reply: Reply, header: &ReplyHeader, terms: &Terms, call: &InboundCall) -> Ended {
    reply.at = 0;
    match reply.results(|w| header.encode(w)) {
        Ok(()) => answer(reply, terms, call),
        Err(_) => Ended::Refused(reply.buffer, ErrorBody::ReplyResource { length_needed: 0 }),
    }
}

/// Settles how a complete Reply goes.
fn answer(reply: Reply, terms: &Terms, call: &InboundCall) -> Ended {
    match Answer::new(reply, terms, call) {
        Ok(answer) => Ended::Reply(answer),
        Err((buffer, error)) => Ended::Refused(buffer, error),
    }
}

impl InboundCall {
    /// Makes the entry of a Call without chunks, or with this one.
    fn of(
        connection: Key<Connection>,
        xid: u32,
        chunk: Option<&OneChunk>,
        message: Option<Message>,
        stage: Stage,
    ) -> Self {
        let invalidate = chunk.map(|one| one.inv_handle).filter(|handle| *handle != Handle(0));
        let write = chunk.filter(|one| one.position.is_none());
        let write = write.map(|one| Segments::collect(std::iter::once(one.segment)));
        Self {
            connection,
            xid,
            invalidate,
            write,
            reply: None,
            message,
            body: None,
            reply_body: None,
            room: Room::default(),
            charge: Charge::default(),
            results: Allowed::default(),
            stage,
        }
    }
}

impl Reply {
    /// Writes the headers of one without chunks, whose Payload stream then has `length` octets or is the
    /// RPC header alone. Returns where in the buffer the message is. Its credit word is known when it
    /// leaves.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        version: Version,
        header: &ReplyHeader,
        length: usize,
    ) -> Range<usize> {
        let start = HEADER_ROOM - bare_header_len(version, Kind::Reply);
        let message = self.buffer.bytes_mut().get_mut(start..).unwrap_or_default();
        let written = put_bare_header(version, Kind::Reply, message, header.xid, 0);
        debug_assert!(written.is_some(), "every send buffer has the room");
        let stream = message.get_mut(HEADER_ROOM - start..).unwrap_or_default();
        let mut writer = Writer::new(stream);
        let encoded = header.encode(&mut writer);
        debug_assert!(encoded.is_ok(), "the shortest message holds an RPC header");
        start..HEADER_ROOM + length.max(writer.position())
    }

    /// Does the same for one in version 2 that has results, and returns a chunk of one segment. Returns the
    /// message.
    #[inline]
    pub(crate) fn seal_results_with(
        &mut self,
        xid: u32,
        length: usize,
        credit: u32,
        returned: &Segment,
    ) -> Option<&[u8]> {
        const START: usize = HEADER_ROOM - OneChunk::REPLY_LEN;
        let message = self.buffer.bytes_mut().get_mut(START..HEADER_ROOM + length)?;
        put_results_headers_with(message, xid, credit, returned)?;
        Some(message)
    }

    /// Does the same for one that has results and no chunk. Returns the message.
    #[inline]
    pub(crate) fn seal_results(&mut self, xid: u32, length: usize, credit: u32) -> Option<&[u8]> {
        const START: usize = HEADER_ROOM - bare_header_len(Version::Two, Kind::Reply);
        let message = self.buffer.bytes_mut().get_mut(START..HEADER_ROOM + length)?;
        put_results_headers(message, xid, credit)?;
        Some(message)
    }
}

impl State {
    /// Returns whether results are those that the binding declares of a procedure.
    #[inline]
    fn allows(&self, procedure: u32, reply: &Reply) -> bool {
        reply.at <= self.results_end_min || reply.keeps_to(self.results_max(procedure))
    }

    /// Returns how many octets the results of a procedure may have, items aside.
    fn results_max(&self, procedure: u32) -> u32 {
        self.binding.procedure(procedure).map_or(0, |bound| bound.results_max)
    }

    /// Counts results that break the binding of their own service. Returns what the Requester hears instead.
    #[cold]
    const fn misdeclared(&mut self, xid: u32) -> ReplyHeader {
        self.counters.results_misdeclared += 1;
        system_error(xid)
    }

    /// Returns what a connection agreed on, while it is there.
    pub(super) fn terms(&self, key: Key<Connection>) -> Option<&Terms> {
        self.connections.get(key).map(|connection| &connection.terms)
    }

    /// Does what is to be done about a Call without chunks, or with this one, but for its Reply: what that
    /// says, and the octets of its Payload stream if there are results.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        (key, xid): (Key<Connection>, u32),
        received: Filled,
        chunk: Option<&OneChunk>,
        acted: Acted,
    ) -> Option<(ReplyHeader, usize)> {
        let replied = match acted {
            Acted::Results(length) => {
                Some((ReplyHeader::accepted(xid, AcceptStat::Success), length))
            }
            Acted::Verdict(header) => Some((header, 0)),
            Acted::Later(deferred) => {
                self.keep(deferred, (key, xid), received, chunk);
                return None;
            }
            Acted::Refused(error) => {
                self.counters.calls_refused += 1;
                self.answer_with_error(key, xid, error);
                None
            }
        };
        self.counters.calls_served += u64::from(replied.is_some());
        self.receives.give_back(received);
        replied
    }

    /// Takes a Call that is to be answered later into the table.
    fn keep(
        &mut self,
        Deferred { name: key, is_resumed, results }: Deferred,
        (connection, xid): (Key<Connection>, u32),
        received: Filled,
        chunk: Option<&OneChunk>,
    ) {
        let message = Some(Message { received, payload_at: 0 });
        let stage = if is_resumed { Stage::Resumed } else { Stage::Later };
        let mut call = InboundCall::of(connection, xid, chunk, message, stage);
        call.results = results;
        let kept = self.inbound.insert(call);
        debug_assert!(kept.is_ok_and(|name| name == key), "nothing else entered meanwhile");
        if is_resumed {
            self.ready.push_back(key);
        }
    }

    /// Queues a Reply that returns the chunk of its Call, with what is to be written there. Its Payload stream
    /// reaches to `end` of its buffer.
    pub(crate) fn queue_with_chunk(
        &mut self,
        key: Key<Connection>,
        call: &OneChunk,
        (buffer, end): (Local, usize),
        data: Data,
    ) {
        let answer = Answer::complete(buffer, end.saturating_sub(HEADER_ROOM), data);
        let stage = Stage::Replying(answer);
        let kept = InboundCall::of(key, call.bare.xid, Some(call), None, stage);
        match (self.inbound.insert(kept), self.connections.get_mut(key)) {
            (Ok(name), Some(connection)) => connection.replies.push_back(Outgoing::Kept(name)),
            _ => return debug_assert!(false, "an entry for every Call that holds a send buffer"),
        }
        self.touch(key);
    }

    /// Queues a Reply without chunks.
    pub(crate) fn queue_bare(&mut self, key: Key<Connection>, reply: Complete) {
        match self.connections.get_mut(key) {
            Some(connection) => connection.replies.push_back(Outgoing::Bare(reply)),
            None => return self.recycle(reply.buffer),
        }
        self.touch(key);
    }

    /// Queues what a Call came to.
    fn end_run(&mut self, key: Key<InboundCall>, ended: Ended) {
        let Some(inbound) = self.inbound.get_mut(key) else {
            let (Ended::Nothing(buffer)
            | Ended::Reply(Answer { buffer, .. })
            | Ended::Refused(buffer, _)) = ended;
            return self.recycle(buffer);
        };
        let (connection, xid) = (inbound.connection, inbound.xid);
        let answered = !matches!(ended, Ended::Nothing(_));
        let message = if answered { inbound.message.take() } else { None };
        if answered {
            inbound.body = None;
        }
        match ended {
            Ended::Nothing(buffer) => self.recycle(buffer),
            Ended::Reply(answer) => {
                self.counters.calls_served += 1;
                inbound.stage = Stage::Replying(answer);
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.replies.push_back(Outgoing::Kept(key));
                }
            }
            Ended::Refused(buffer, error) => {
                self.counters.calls_refused += 1;
                self.recycle(buffer);
                let charge = self.inbound.remove(key).map(|call| call.charge).unwrap_or_default();
                self.discharge(connection, charge);
                self.answer_with_error(connection, xid, error);
            }
        }
        if let Some(message) = message {
            self.receives.give_back(message.received);
        }
        self.touch(connection);
    }
}
