//! Runs the service for Calls, and takes in the outcome.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::chunk::{Few, PayloadReader, Reduced};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AcceptStat, CallHeader, Credential, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v1::padding::Padding;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::error::ErrorBody;

use super::common::Common;
use super::connection::Directions;
use super::cx::Cx;
use super::inner::Inner;
use super::memory::Charge;
use super::program::{Header, KnownHeader, Programs, Served, Unserved};
use super::responder::{Body, Deferred, Running, ServedCall, Stage};
use crate::core::service::Service;
use crate::items::Items;
use crate::key::{CallKey, ConnectionKey, Transport};
use crate::limits::INLINE_SIZE;
use crate::service::{Arguments, Call, CallToken, ConnectionId, Outcome, ReducedArgument, Reply};

/// A Call whose message and argument are at hand.
#[derive(Debug)]
pub(crate) struct Whole<'a, 'm> {
    /// The programs that its connection serves.
    pub(crate) programs: &'a Programs,
    pub(crate) connection: ConnectionKey,
    pub(crate) version: Version,
    pub(crate) xid: u32,
    /// The name of the Call, or the name that it will get if it is answered later.
    pub(crate) name: CallKey,
    pub(crate) header: Header,
    pub(crate) credential: Credential<'m>,
    /// The Payload stream, or only its part from the arguments on.
    pub(crate) payload: &'m [u8],
    /// A reference, because a move just after the lease was made waits until its parts are in the cache.
    pub(crate) placed: Option<&'a mut ReducedArgument>,
    /// The reduced arguments behind that one.
    pub(crate) others: &'a mut [ReducedArgument],
}

/// The outcome of a Call.
#[derive(Debug)]
pub(crate) enum Acted {
    /// The results are complete; the Payload stream has this many octets.
    Results(usize),
    /// The results are complete, and have no room in the message that they were made for.
    Long,
    /// The RPC layer answers, without results.
    Verdict(ReplyHeader),
    /// The transport refuses it.
    Refused(ErrorBody),
    /// The procedure never has a Reply.
    NoReply,
    /// The service answers later: `Some` when it says so first, `None` when it says so again.
    Later(Option<Deferred>),
}

/// Runs the service for a Call whose RPC header is decoded. The results go into `reply`. The caller has to clear
/// `running` afterwards. A Call with padding in front of its long opaques gives that and the offset of its Payload
/// stream in the message; it has no reduced arguments.
#[inline(always)]
pub(crate) fn serve<S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    call: Whole<'_, '_>,
    padded: Option<(Padding, u32)>,
    reply: &mut Reply,
) -> Acted {
    let Whole { programs, connection, version, xid, name, header, .. } = call;
    let Whole { credential, payload, placed, others, .. } = call;
    let Header { procedure, arguments_at, .. } = header;
    let chunk = placed.as_ref().map(|argument| (argument.position, argument.length));
    let all;
    let reader = match &placed {
        Some(first) if !others.is_empty() => {
            all = reduced(first, others);
            PayloadReader::call_of_many(payload, arguments_at, &all)
        }
        _ => PayloadReader::call(payload, arguments_at, chunk),
    };
    let reader = match padded {
        None => reader,
        Some((padding, base)) => reader.padded(padding, base),
    };
    let (program, program_version) = programs.of(header).name();
    let reader = reader.of_version(version);
    let placed = placed.map(|argument| &mut argument.placed);
    let call = Call {
        xid,
        program,
        version: program_version,
        procedure,
        credential,
        connection: ConnectionId(connection),
        token: CallToken(name),
        arguments: Arguments { reader, placed, others: others.iter_mut() },
    };
    cx.inner.responder.running = Some(Running { key: name, connection, is_resumed: false });
    match service.call(cx, call, reply) {
        Outcome::Later => {
            let running = cx.inner.responder.running.take();
            let is_resumed = running.is_some_and(|running| running.is_resumed);
            let reduces = reply.offered.is_some();
            Acted::Later(Some(Deferred { is_resumed, reduces, header }))
        }
        ref outcome => {
            let told = Told { version, xid, procedure };
            outcome_of(cx.inner, programs.of(header), told, outcome, reply)
        }
    }
}

/// Returns the places of the reduced arguments of a Call that has several.
#[cold]
fn reduced(first: &ReducedArgument, others: &[ReducedArgument]) -> Few<Reduced> {
    let each = std::iter::once(first).chain(others).map(|argument| Reduced {
        position: argument.position,
        length: u32::try_from(argument.length).unwrap_or(u32::MAX),
    });
    Few::collect(each).unwrap_or_default()
}

/// Reads the RPC header of a Call of a run, of which `known` is an earlier one, and runs the service for it. A Call that is
/// not for the service gets a verdict instead.
#[inline(never)]
pub(crate) fn serve_other<'m, S: Service>(
    cx: &mut Cx<'_>,
    service: &mut S,
    call: Whole<'_, 'm>,
    known: &mut Option<KnownHeader<'m>>,
    reply: &mut Reply,
) -> Acted {
    match call.programs.read_header_of_run(call.xid, call.payload, known) {
        Ok((credential, header)) => {
            // [V2-11.2.2.3-2] results under integrity or privacy stay in the Payload stream.
            if !credential.may_reduce() {
                reply.forbid_reduction();
            }
            serve(cx, service, Whole { header, credential, ..call }, None, reply)
        }
        Err(unserved) => match unserved.in_version(call.version) {
            Unserved::Verdict(header) => Acted::Verdict(header),
            Unserved::Refused(error) => Acted::Refused(error),
            Unserved::Untold(_) => Acted::NoReply,
        },
    }
}

/// A Call of which the service has told the outcome. It fits two registers.
#[derive(Clone, Copy, Debug)]
struct Told {
    version: Version,
    xid: u32,
    procedure: u32,
}

/// Returns the outcome of a Call that the service does not answer later.
#[inline(always)]
fn outcome_of(
    inner: &mut Inner,
    served: &Served,
    told: Told,
    outcome: &Outcome,
    reply: &Reply,
) -> Acted {
    if !matches!(outcome, Outcome::Done) || !served.keeps_to(told.procedure, reply) {
        without_results(inner, served, told, outcome)
    } else if reply.fits() {
        Acted::Results(reply.at)
    } else {
        Acted::Long
    }
}

/// Returns the outcome of a Call that gets no results: the service says so, or it counts as having broken the
/// declarations of its own binding.
#[cold]
fn without_results(
    inner: &mut Inner,
    served: &Served,
    Told { version, xid, procedure }: Told,
    outcome: &Outcome,
) -> Acted {
    let is_call_only = served.is_call_only(procedure);
    let stat = match *outcome {
        Outcome::Failed(stat) => stat,
        Outcome::NoReply if is_call_only => AcceptStat::Success,
        Outcome::Done | Outcome::Later | Outcome::NoReply => {
            inner.common.counters.results_misdeclared += 1;
            AcceptStat::SystemErr
        }
    };
    if is_call_only && version == Version::Two {
        return Acted::NoReply;
    }
    // In version 1 every Call has a Reply.
    Acted::Verdict(ReplyHeader::accepted(xid, stat))
}

/// Lets at most `budget` Calls go on whose turn it is, none behind a costly one: messages of others are read first.
/// Returns how many went on.
pub(crate) fn run<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    now: Instant,
    budget: usize,
) -> usize {
    let mut ran = 0;
    while ran < budget && !inner.responder.turns.is_empty() {
        // Calls without a send buffer, because all are in use or their connection has its part, wait until Replies have
        // left.
        let Some(buffer) = inner.common.buffers.pop() else { break };
        let Some(name) = inner.responder.next_ready(&inner.common) else {
            inner.common.buffers.recycle(buffer);
            break;
        };
        ran += 1;
        if go_on(inner, service, now, name, buffer) == Cost::High {
            break;
        }
    }
    ran
}

/// How long a Call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// As long as most Calls take.
    Low,
    /// So long that the messages of other peers are read before the next Call is served.
    High,
}

/// Lets the Call `name` go on, whose turn it is. Its Reply is made in `buffer`. Returns what it may have cost.
fn go_on<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    now: Instant,
    name: CallKey,
    buffer: Local,
) -> Cost {
    let Inner { responder, common, .. } = inner;
    let call = responder.calls.get_mut(name);
    let session = call.as_ref().and_then(|call| session(common, &responder.accepted, call));
    let (Some(call), Some((programs, version, fits_inline))) = (call, session) else {
        common.buffers.recycle(buffer);
        return Cost::Low;
    };
    let (xid, header) = (call.xid, call.header);
    let stage = std::mem::replace(&mut call.stage, Stage::Later);
    common.memory.keep_promise(&mut call.charge);
    // Without memory for the Reply chunk, the Reply is limited to the length of a message.
    let body = call.reply_body.take();
    let length_max = body.as_ref().map_or(fits_inline, Local::len);
    let mut reply = Reply::new(buffer, body, length_max, call.offered());
    let acted = match stage {
        Stage::Verdict(header) => Acted::Verdict(header),
        Stage::Ready { arguments } => {
            let ready = ReadyCall { name, programs: &programs, version, arguments };
            serve_ready(inner, service, now, ready, &mut reply)
        }
        Stage::Resumed => {
            match service.resume(&mut Cx::new(now, inner), CallToken(name), &mut reply) {
                Outcome::Later => Acted::Later(None),
                ref outcome => {
                    let told = Told { version, xid, procedure: header.procedure };
                    outcome_of(inner, programs.of(header), told, outcome, &reply)
                }
            }
        }
        // The service resumed the Call, and answered it before its turn came.
        other => {
            call.stage = other;
            Acted::Later(None)
        }
    };
    settle(inner, name, acted, reply);
    if programs.of(header).is_costly(header.procedure) { Cost::High } else { Cost::Low }
}

/// A Call in the table that has all that it needs.
struct ReadyCall<'a> {
    name: CallKey,
    programs: &'a Programs,
    version: Version,
    arguments: Items<ReducedArgument>,
}

/// Has the service act on a Call in the table. Keeps what it leaves of the message, and of memory.
fn serve_ready<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    now: Instant,
    ReadyCall { name, programs, version, mut arguments }: ReadyCall<'_>,
    reply: &mut Reply,
) -> Acted {
    let Some(call) = inner.responder.calls.get_mut(name) else { return Acted::Later(None) };
    let (connection, xid, header) = (call.connection, call.xid, call.header);
    let padded = call.padded();
    // The service reads the message while it may change anything else in the core.
    let (message, body) = (call.message.take(), call.body.take());
    let buffers = inner.common.receives.lend();
    let payload = match (&message, &body) {
        (_, Some(body)) => body.bytes(),
        (Some(message), None) => message.payload(&buffers),
        (None, None) => &[],
    };
    let credential = CallHeader::credential_of(payload);
    let (placed, others) = match arguments.as_mut_slice() {
        [] => (None, &mut [][..]),
        [first, others @ ..] => (Some(first), others),
    };
    let whole = Whole {
        programs,
        connection,
        version,
        xid,
        name,
        header,
        credential,
        payload,
        placed,
        others,
    };
    let acted = serve(&mut Cx::new(now, inner), service, whole, padded, reply);
    inner.responder.running = None;
    inner.common.receives.restore(buffers);
    // A service that answers later has read the record.
    let body = match body {
        Some(Body::Record { held, .. }) => {
            inner.common.streams.give_back(connection, held);
            None
        }
        body => body,
    };
    let leased = inner.responder.with_leased(Charge::default());
    match inner.responder.calls.get_mut(name) {
        Some(call) => {
            (call.message, call.body) = (message, body);
            call.charge.join(leased);
        }
        None => inner.common.discharge(connection, leased),
    }
    acted
}

/// Returns the programs that serve a Call, the version that it came by, and the octets of the longest Payload stream of a
/// Reply that takes no memory of its own.
fn session(
    common: &Common,
    accepted: &Directions,
    call: &ServedCall,
) -> Option<(Rc<Programs>, Version, usize)> {
    if let Some(connection) = common.connections.get(call.connection) {
        let terms = connection.session.terms();
        let programs = Rc::clone(connection.session.serves()?);
        let inline = terms.reply_max(call.writes.as_slice());
        let inline = inline.saturating_sub(call.more_header());
        return Some((programs, terms.version, inline));
    }
    common.streams.get(call.connection)?;
    // Over TCP, as in version 1, every Call has a Reply.
    Some((Rc::clone(accepted.serves.as_ref()?), Version::One, INLINE_SIZE))
}

/// Applies the outcome of a Call in the table. Its results are in `reply`.
pub(crate) fn settle(inner: &mut Inner, name: CallKey, acted: Acted, mut reply: Reply) {
    let Inner { responder, common, .. } = inner;
    let Some(call) = responder.calls.get_mut(name) else { return recycle(common, reply) };
    let key = call.connection;
    let header = match acted {
        Acted::Later(deferred) => {
            call.reply_body = reply.body.take();
            recycle(common, reply);
            if let Some(Deferred { is_resumed, reduces, header }) = deferred {
                (call.header, call.reduces) = (header, reduces);
                if is_resumed {
                    responder.resume(common, name);
                }
            }
            return common.connections.touch(key);
        }
        Acted::Refused(error) => {
            recycle(common, reply);
            return responder.refuse_kept(common, name, error);
        }
        Acted::NoReply => {
            reply.forget_results();
            recycle(common, reply);
            return responder.leave_unanswered(common, name);
        }
        Acted::Results(_) | Acted::Long => ReplyHeader::accepted(call.xid, AcceptStat::Success),
        Acted::Verdict(header) => {
            reply.forget_results();
            header
        }
    };
    match key.transport() {
        Transport::Rdma => answer(inner, name, &header, reply),
        Transport::Tcp => answer_in_record(inner, name, &header, reply),
    }
}

/// Answers a Call in the table: its Reply waits for credit.
fn answer(
    Inner { responder, common, .. }: &mut Inner,
    name: CallKey,
    header: &ReplyHeader,
    reply: Reply,
) {
    let Some(call) = responder.calls.get_mut(name) else { return recycle(common, reply) };
    let Some(connection) = common.connections.get_touched(call.connection) else {
        return recycle(common, reply);
    };
    //~ V2-6.6.2-1: `common.limits.reply_messages_max(&connection.engine)` -> `1`
    let messages_max = common.limits.reply_messages_max(&connection.engine);
    match call.answer(header, reply, connection, messages_max) {
        Ok(()) => {
            connection.outbox.push_reply(name);
            common.memory.begin_sending(&mut connection.share);
            common.counters.count_served(connection.role(), 1);
            if let Some(received) = call.release() {
                common.receives.give_back(received);
            }
        }
        Err((reply, error)) => {
            recycle(common, reply);
            responder.refuse_kept(common, name, error);
        }
    }
}

/// Answers a Call over TCP that is in the table: its Reply leaves with the turn.
fn answer_in_record(
    Inner { responder, common, .. }: &mut Inner,
    name: CallKey,
    header: &ReplyHeader,
    mut reply: Reply,
) {
    if let Some(call) = responder.calls.remove(name) {
        common.streams.end_call(call.connection, call.body_room());
        common.counters.count_served(Role::Server, 1);
        common.send_record(call.connection, header, &mut reply, call.charge);
    }
    recycle(common, reply);
}

/// Puts back the buffer of a Reply that does not leave.
fn recycle(common: &mut Common, mut reply: Reply) {
    let buffer = reply.message.take_buffer();
    buffer.into_iter().for_each(|buffer| common.buffers.recycle(buffer));
}
