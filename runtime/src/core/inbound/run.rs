//! Running the service for the Calls that are ready.

use haulage_mr_pool::Local;
use haulage_proto::chunk::{Few, PayloadReader};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;

use super::answer::Answer;
use super::{InboundCall, Message, Stage};
use crate::core::connection::{Connection, Terms};
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::service::{
    Arguments, Binding, Call, CallToken, ConnectionId, Data, Outcome, Placement, Reply, Service,
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
        let reply = Reply::new(buffer, None, inbound.inline_max(&terms), inbound.write.as_ref());
        return verdict(reply, header, &terms, inbound);
    }
    let length_max = inbound.reply_max(&terms, &state.binding);
    let body = inbound.reply.as_ref().and_then(|_| state.pool.lease(length_max));
    let mut reply = Reply::new(buffer, body, length_max, inbound.write.as_ref());
    let outcome = match stage {
        Stage::Ready { argument } => {
            // The service reads the message while it may do anything else to the core.
            let message = inbound.message.take();
            let payload = message.as_ref().map_or(&[][..], Message::payload);
            let mut cx = Cx { now, state };
            let named = (key, connection, terms.version);
            let outcome = call(&mut cx, service, named, payload, argument, &mut reply);
            if let Some(inbound) = state.inbound.get_mut(key) {
                inbound.message = message;
            }
            outcome
        }
        Stage::Resumed => service.resume(&mut Cx { now, state }, CallToken(key), &mut reply),
        // The service resumed it, and answered it before its turn came.
        other => {
            inbound.stage = other;
            Outcome::Later
        }
    };
    let Some(inbound) = state.inbound.get(key) else { return Ended::Nothing(reply.buffer) };
    match (outcome, reply.refused) {
        (Outcome::Later, _) => Ended::Nothing(reply.buffer),
        (Outcome::Done, Some(error)) => Ended::Refused(reply.buffer, error),
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
    /// Returns how long the Payload stream of its Reply may get: what a message holds, or a Reply chunk
    /// as far as the binding needs it.
    fn reply_max(&self, terms: &Terms, binding: &Binding) -> usize {
        let inline = self.inline_max(terms);
        let Some(chunk) = &self.reply else { return inline };
        let header = self.message.as_ref().map(|message| CallHeader::decode(message.payload()));
        let procedure = header.and_then(Result::ok).map(|(header, _)| header.procedure);
        let needed =
            procedure.and_then(|number| binding.procedure(number)).map_or(0, |procedure| {
                let longest = procedure.results.iter().map(|result| result.length_max);
                let longest = longest.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
                procedure.reply_max(&Few::collect(longest).unwrap_or_default())
            });
        inline.max(usize::try_from(chunk.length().min(needed)).unwrap_or(usize::MAX))
    }
}

impl State {
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
        match ended {
            Ended::Nothing(buffer) => self.recycle(buffer),
            Ended::Reply(answer) => {
                self.counters.calls_served += 1;
                inbound.stage = Stage::Replying(answer);
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
}
