//! The Responder: a Call from its Receive to its Reply.
//!
//! # Normal operation
//! A Call whose Payload stream is in a Call chunk is fetched first. Then it is checked against the
//! binding before anything is taken for it. Its reduced argument, if there is one, is read straight into
//! a lease that then belongs to the service. The service runs once the argument is complete ([`run()`]);
//! its Reply waits for credit in the connection's queue and leaves with the Writes of its result, and of
//! itself if it goes into the Reply chunk, in one doorbell ([`answer`]).
//!
//! # Memory ownership
//! The Receive buffer belongs to the Call until the service has answered it, because the arguments
//! live in it; so a slow service stops the credits of those who call it. From then on the Call holds
//! a send buffer instead: no Call holds neither, which bounds how many there can be.

mod answer;
mod run;

use haulage_mr_pool::Local;
use haulage_proto::chunk::{Few, Reduced};
use haulage_proto::negotiate::{self, Version};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyBody, ReplyHeader, Violation};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Segment};

use crate::core::connection::Connection;
use crate::core::memory::{Charge, Grant, Purpose, Supply, Wanted};
use crate::core::receives::{Buffers, Filled};
use crate::core::state::State;
use crate::core::table::{Key, Owned};
use crate::core::work::{Held, Name, Work};
use crate::limits::{BODY_MAX, SEGMENTS_MAX};
use crate::provider::{Operation, WorkRequest};
use crate::service::{Placement, Refusal, ResultSource};

use answer::{Answer, inline_max};

pub(crate) use run::{Acted, Argument, Asked, act, run};

/// The Call a service is acting on that is in no table, unless it comes to be answered later.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its name, should that happen.
    pub(crate) key: Key<InboundCall>,
    /// Whether the service asked to be called again before it had said that it would answer later.
    is_resumed: bool,
}

/// A Reply that waits for credit.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// It has no chunks, and its Call is forgotten.
    Bare(Complete),
    /// The Call it answers is in the table.
    Kept(Key<InboundCall>),
}

/// A message that is complete but for its credit word: `start..end` of its buffer.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) buffer: Local,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// A Call being served.
#[derive(Debug)]
pub(crate) struct InboundCall {
    pub(crate) connection: Key<Connection>,
    pub(crate) xid: u32,
    /// What our Reply may invalidate.
    invalidate: Option<Handle>,
    /// Where the peer wants the reduced result, if it offered a Write chunk.
    write: Option<Segments>,
    /// Where the whole Reply may go, if the peer offered a Reply chunk.
    reply: Option<Segments>,
    /// What it arrived in, until it is answered.
    message: Option<Message>,
    /// The Payload stream, if it was fetched.
    body: Option<Local>,
    /// Where its Reply is made that may go into the Reply chunk.
    reply_body: Option<Local>,
    /// Memory that its Reply may take.
    room: Room,
    /// What its connection is charged for its memory.
    charge: Charge,
    /// What its results may be. Set when the service first runs.
    results: Allowed,
    stage: Stage,
}

impl Owned for InboundCall {
    fn owner(&self) -> usize {
        self.connection.slot()
    }
}

#[derive(Debug)]
enum Stage {
    /// It waits for memory.
    Waiting(Want),
    /// The Call itself is being read; its reduced argument comes after it.
    Fetching { read: Option<(u32, Segments)> },
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
    Replying(Answer),
}

/// What a Call waits for memory for.
#[derive(Debug)]
enum Want {
    /// For itself, which is in the Call chunk `body`. Its reduced argument comes after it.
    Call { body: Segments, read: Option<(u32, Segments)> },
    /// For its reduced argument.
    Argument { position: u32, segments: Segments },
    /// For its Reply; then the service can run.
    Reply { argument: Option<(u32, u64, Placement)> },
}

/// What the results of a Call may be.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// Octets that the binding declares, items aside.
    octets_max: u32,
    /// Whether an item may go into the Write chunk of the Call.
    reduces: bool,
}

/// Memory that the Reply to a Call may take, in octets.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// For a Payload stream that goes into the Reply chunk.
    body: usize,
    /// For a result that the service leases.
    result: usize,
}

/// What a Call offers, and what it is about.
#[derive(Clone, Copy, Debug)]
struct Asking<'a> {
    xid: u32,
    payload: &'a [u8],
    /// The reduced argument.
    read: Option<&'a (u32, Segments)>,
    /// The Write chunk.
    write: Option<&'a Segments>,
    /// The Reply chunk.
    reply: Option<&'a Segments>,
}

/// A received message whose Payload stream is still needed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) received: Filled,
    /// Where the Payload stream starts.
    pub(crate) payload_at: u32,
}

impl Message {
    /// Returns the Payload stream.
    #[inline]
    pub(crate) fn payload<'a>(&self, buffers: &'a Buffers) -> &'a [u8] {
        buffers.bytes(&self.received).get(self.payload_at as usize..).unwrap_or_default()
    }
}

/// The segments of one chunk. Most chunks have one; more than [`SEGMENTS_FEW`] take a block of the heap.
#[derive(Clone, Debug)]
pub(crate) enum Segments {
    Few([Segment; SEGMENTS_FEW], u8),
    Many(Box<[Segment]>),
}

/// Segments that are kept in place.
const SEGMENTS_FEW: usize = 2;

impl Default for Segments {
    fn default() -> Self {
        Self::Few([Segment::default(); SEGMENTS_FEW], 0)
    }
}

impl Segments {
    /// Collects at most [`SEGMENTS_MAX`] segments; the engine has refused longer chunks.
    pub(crate) fn collect(mut segments: impl Iterator<Item = Segment>) -> Self {
        let mut few = [Segment::default(); SEGMENTS_FEW];
        let mut count = 0;
        for place in &mut few {
            let Some(segment) = segments.next() else { return Self::Few(few, count) };
            *place = segment;
            count += 1;
        }
        match segments.next() {
            None => Self::Few(few, count),
            Some(next) => {
                let all = few.into_iter().chain([next]).chain(segments);
                Self::Many(all.take(SEGMENTS_MAX).collect())
            }
        }
    }

    /// Returns them in order.
    pub(crate) fn as_slice(&self) -> &[Segment] {
        match self {
            Self::Few(few, count) => few.get(..usize::from(*count)).unwrap_or_default(),
            Self::Many(segments) => segments,
        }
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns how much they hold together.
    pub(crate) fn length(&self) -> u64 {
        self.as_slice().iter().map(|segment| u64::from(segment.length)).sum()
    }
}

/// What is to become of a Call.
#[derive(Debug)]
enum Judged {
    /// The transport refuses it.
    Refused(ErrorBody),
    /// The RPC layer answers without the service.
    Verdict(ReplyHeader),
    /// The service can run, as soon as there is this room.
    Ready(Option<(u32, u64, Placement)>, Room),
    /// Its argument is to be read.
    Read(Room),
}

impl Want {
    /// Returns the memory wanted; `room` is that of the Reply.
    fn wanted(&self, room: Room) -> Wanted {
        let octets = |segments: &Segments| usize::try_from(segments.length()).unwrap_or(usize::MAX);
        let (lease, purpose) = match self {
            Self::Call { body, .. } => (octets(body), Purpose::Reads),
            Self::Argument { segments, .. } => (octets(segments), Purpose::Reads),
            Self::Reply { .. } => (room.body, Purpose::Reply),
        };
        let later = if purpose == Purpose::Reply { room.result } else { 0 };
        Wanted { lease, later, purpose }
    }
}

impl State {
    /// Takes in a Call the engine found acceptable.
    pub(crate) fn on_call(
        &mut self,
        key: Key<Connection>,
        call: &negotiate::Call<'_>,
        message: Message,
    ) {
        let body = Segments::collect(call.body());
        let read = call
            .items()
            .next()
            .map(|chunk| (chunk.position(), Segments::collect(chunk.segments())));
        let write = call.writes.chunks().next().map(|chunk| Segments::collect(chunk.segments()));
        let reply = call.reply.map(|chunk| Segments::collect(chunk.segments()));
        self.counters.call_chunks += u64::from(body.len() > 0);
        self.counters.read_chunks += u64::from(read.is_some());
        self.counters.write_chunks += u64::from(write.is_some());
        self.counters.reply_chunks += u64::from(reply.is_some());
        if body.len() > 0 {
            return match self.may_fetch(key, &body) {
                Err(error) => self.refuse(key, call.xid, error, message.received),
                Ok(()) => {
                    if let Some(name) = self.insert(key, call, (write, reply), message) {
                        self.want(name, Want::Call { body, read });
                    }
                }
            };
        }
        let (xid, payload) = (call.xid, call.payload);
        let (read_ref, write_ref, reply_ref) = (read.as_ref(), write.as_ref(), reply.as_ref());
        let asking = Asking { xid, payload, read: read_ref, write: write_ref, reply: reply_ref };
        match self.judge_call(key, &asking) {
            Judged::Refused(error) => self.refuse(key, call.xid, error, message.received),
            judged => {
                if let Some(name) = self.insert(key, call, (write, reply), message) {
                    self.proceed(name, judged, read);
                }
            }
        }
    }

    /// Checks that a Call in the Call chunk `body` can be fetched at all.
    fn may_fetch(&self, key: Key<Connection>, body: &Segments) -> Result<(), ErrorBody> {
        // P12: nothing is asked of a peer that serves no Reads.
        if !self.connections.get(key).is_some_and(Connection::may_read) {
            return Err(ErrorBody::ReadChunks { max: 0 });
        }
        match usize::try_from(body.length()) {
            Ok(0) => Err(ErrorBody::BadXdr),
            Ok(length) if length <= BODY_MAX => Ok(()),
            _ => Err(ErrorBody::System),
        }
    }

    /// Decides about a Call whose Payload stream is here.
    fn judge_call(&self, key: Key<Connection>, asking: &Asking<'_>) -> Judged {
        let Asking { xid, payload, read, write, .. } = *asking;
        let (program, version, number) = match CallHeader::decode(payload) {
            Ok((header, _)) if header.xid != xid => return Judged::Refused(ErrorBody::BadXdr),
            Ok((header, _)) => {
                if let Err(denied) = header.credential.check(&self.flavors) {
                    return Judged::Verdict(ReplyHeader { xid, body: ReplyBody::Denied(denied) });
                }
                (header.program, header.version, header.procedure)
            }
            Err(fault) => match fault.reply(xid) {
                Some(verdict) => return Judged::Verdict(verdict),
                None => return Judged::Refused(ErrorBody::BadXdr),
            },
        };
        let binding = &self.binding;
        let bound = binding.procedure(number);
        let stat = match bound {
            _ if program != binding.program => AcceptStat::ProgUnavail,
            _ if version != binding.version => {
                AcceptStat::ProgMismatch { low: binding.version, high: binding.version }
            }
            None => AcceptStat::ProcUnavail,
            Some(_) => AcceptStat::Success,
        };
        let Some(procedure) = bound.filter(|_| stat == AcceptStat::Success) else {
            return Judged::Verdict(ReplyHeader::accepted(xid, stat));
        };
        // [V2-4.4.2-2] nothing is reduced that the binding does not allow.
        let reduced = read.map(|(position, segments)| Reduced {
            position: *position,
            length: u32::try_from(segments.length()).unwrap_or(u32::MAX),
        });
        let connection = self.connections.get(key);
        let write_chunks = match connection.map(|connection| connection.terms.version) {
            // [R5666-3.4-7] a Write chunk that no result can take is returned unused.
            Some(Version::One) => 0,
            _ => write.is_some().into(),
        };
        let mut verdict = procedure.check_call(reduced.into_iter(), write_chunks);
        let length_max = procedure.arguments.first().map_or(0, |argument| argument.length_max);
        // P12: nor is anything asked of a peer that serves no Reads.
        let may_read = connection.is_some_and(Connection::may_read);
        if read.is_some() && !may_read {
            verdict = Err(Violation::Arguments { max: 0 });
        }
        match verdict {
            // What is too long stays where it is, and the service hears of it.
            Ok(()) | Err(Violation::TooLong { .. }) => {}
            Err(violation) => return Judged::Refused(violation.report()),
        }
        let room = self.room(key, number, asking);
        let Some((position, segments)) = read else { return Judged::Ready(None, room) };
        let (position, length, length_max) = (*position, segments.length(), length_max as u64);
        let placed = match length {
            0 => {
                self.pool.lease(0).map_or(Placement::Refused(Refusal::NoMemory), Placement::Placed)
            }
            _ if length > length_max => Placement::Refused(Refusal::TooLarge),
            _ => return Judged::Read(room),
        };
        Judged::Ready(Some((position, length, placed)), room)
    }

    /// Returns the memory that the Reply to a Call of a procedure may take.
    fn room(&self, key: Key<Connection>, number: u32, asking: &Asking<'_>) -> Room {
        let Some(procedure) = self.binding.procedure(number) else { return Room::default() };
        let octets = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let body = match (asking.reply, self.terms(key)) {
            (Some(chunk), Some(terms)) => {
                let longest = procedure.results.iter().map(|result| result.length_max);
                let longest = longest.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
                let needed = procedure.reply_max(&Few::collect(longest).unwrap_or_default());
                octets(chunk.length().min(needed)).max(inline_max(asking.write, terms))
            }
            _ => 0,
        };
        let source = usize::try_from(number).ok().and_then(|number| self.sources.get(number));
        let result = match (source, asking.write.or(asking.reply), procedure.results.first()) {
            (Some(ResultSource::Leased), Some(chunk), Some(result)) => {
                octets(chunk.length()).min(result.length_max)
            }
            _ => 0,
        };
        Room { body, result }
    }

    /// Does what was decided about a Call; `read` is its reduced argument.
    fn proceed(&mut self, call: Key<InboundCall>, judged: Judged, read: Option<(u32, Segments)>) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        match (judged, read) {
            (Judged::Verdict(header), _) => {
                inbound.stage = Stage::Verdict(header);
                self.ready.push_back(call);
            }
            (Judged::Ready(argument, room), _) => {
                inbound.room = room;
                self.make_ready(call, argument);
            }
            (Judged::Read(room), Some((position, segments))) => {
                inbound.room = room;
                self.want(call, Want::Argument { position, segments });
            }
            (Judged::Read(_), None) => debug_assert!(false, "nothing is read for nothing"),
            (Judged::Refused(error), _) => self.refuse_kept(call, error),
        }
    }

    /// Refuses a Call that is in the table.
    fn refuse_kept(&mut self, call: Key<InboundCall>, error: ErrorBody) {
        let Some(inbound) = self.inbound.remove(call) else { return };
        self.discharge(inbound.connection, inbound.charge);
        if let Some(message) = inbound.message {
            self.refuse(inbound.connection, inbound.xid, error, message.received);
        }
    }

    /// Lets the service run for a Call whose arguments are complete, as soon as there is room for its Reply.
    fn make_ready(&mut self, call: Key<InboundCall>, argument: Option<(u32, u64, Placement)>) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        match inbound.room {
            Room { body: 0, result: 0 } => {
                inbound.stage = Stage::Ready { argument };
                self.ready.push_back(call);
            }
            _ => self.want(call, Want::Reply { argument }),
        }
    }

    /// Has a Call wait for memory, or go on at once if there is that already.
    fn want(&mut self, call: Key<InboundCall>, want: Want) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        inbound.stage = Stage::Waiting(want);
        let (connection, own) = (inbound.connection, inbound.charge.octets());
        self.await_memory(connection, call, own);
    }

    /// Lets a Call that waits for memory go on if there is what it wants, or never will be.
    pub(super) fn supply_call(&mut self, call: Key<InboundCall>) -> Supply {
        let Some(inbound) = self.inbound.get_mut(call) else { return Supply::Done };
        let (key, room) = (inbound.connection, inbound.room);
        let Stage::Waiting(want) = &inbound.stage else { return Supply::Done };
        let (wanted, own) = (want.wanted(room), inbound.charge.octets());
        match self.grant(key, &wanted, own) {
            Grant::Waits(until) => return Supply::Waits(until),
            Grant::Taken(lease, charge) => self.supplied(call, lease, charge),
            Grant::Never => self.refuse_memory(call),
        }
        Supply::Done
    }

    /// Adds to the charge of a Call that is in the table.
    pub(super) fn charge(&mut self, call: Key<InboundCall>, charge: Charge) {
        if let Some(inbound) = self.inbound.get_mut(call) {
            inbound.charge.join(charge);
        }
    }

    /// Lets a Call go on with the memory that it waited for.
    fn supplied(&mut self, call: Key<InboundCall>, lease: Local, charge: Charge) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        inbound.charge.join(charge);
        match std::mem::replace(&mut inbound.stage, Stage::Later) {
            Stage::Waiting(Want::Call { body, read }) => {
                self.read(call, Stage::Fetching { read }, &body, lease);
            }
            Stage::Waiting(Want::Argument { position, segments }) => {
                self.read(call, Stage::Reading { position }, &segments, lease);
            }
            Stage::Waiting(Want::Reply { argument }) => {
                inbound.reply_body = Some(lease).filter(|_| inbound.room.body > 0);
                inbound.stage = Stage::Ready { argument };
                self.ready.push_back(call);
            }
            other => inbound.stage = other,
        }
    }

    /// Lets a Call go on without the memory that it waited for: the service hears of it, or its Requester.
    pub(super) fn refuse_memory(&mut self, call: Key<InboundCall>) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        match std::mem::replace(&mut inbound.stage, Stage::Later) {
            Stage::Waiting(Want::Call { .. }) => self.refuse_kept(call, ErrorBody::System),
            Stage::Waiting(Want::Argument { position, segments }) => {
                let refused = Placement::Refused(Refusal::NoMemory);
                self.make_ready(call, Some((position, segments.length(), refused)));
            }
            Stage::Waiting(Want::Reply { argument }) => {
                inbound.stage = Stage::Ready { argument };
                self.ready.push_back(call);
            }
            other => inbound.stage = other,
        }
    }

    /// Posts the Reads that fetch a chunk of a Call. The last one is signaled.
    fn read(&mut self, call: Key<InboundCall>, stage: Stage, segments: &Segments, lease: Local) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        inbound.stage = stage;
        let key = inbound.connection;
        let mut sink = lease.into_sink();
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.share.begin_reading();
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
        let held = Held::Read { sink, call };
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

    /// A chunk of a Call is complete: the Call itself, or its argument.
    pub(crate) fn on_fetched(&mut self, call: Key<InboundCall>, lease: Local) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        match std::mem::replace(&mut inbound.stage, Stage::Later) {
            Stage::Reading { position } => {
                let argument = Some((position, lease.len() as u64, Placement::Placed(lease)));
                self.make_ready(call, argument);
            }
            Stage::Fetching { read } => {
                let key = inbound.connection;
                let Some(inbound) = self.inbound.get(call) else { return };
                let asking = Asking {
                    xid: inbound.xid,
                    payload: lease.bytes(),
                    read: read.as_ref(),
                    write: inbound.write.as_ref(),
                    reply: inbound.reply.as_ref(),
                };
                let judged = self.judge_call(key, &asking);
                if let Some(inbound) = self.inbound.get_mut(call) {
                    inbound.body = Some(lease);
                }
                self.proceed(call, judged, read);
            }
            other => inbound.stage = other,
        }
    }

    /// Lets a Call that was answered with `Later` be finished.
    pub(crate) fn resume(&mut self, call: Key<InboundCall>) {
        if let Some(running) = self.running.as_mut().filter(|running| running.key == call) {
            running.is_resumed = true;
        } else if let Some(inbound) = self.inbound.get_mut(call)
            && matches!(inbound.stage, Stage::Later)
        {
            inbound.stage = Stage::Resumed;
            self.ready.push_back(call);
        }
    }

    /// Forgets every Call of a connection that is gone.
    pub(crate) fn drop_calls(&mut self, key: Key<Connection>) {
        while let Some(inbound) = self.inbound.remove_newest_of(key.slot()) {
            debug_assert!(inbound.connection == key, "no Call outlives its connection");
            if let Some(message) = inbound.message {
                self.receives.give_back(message.received);
            }
            if let Stage::Replying(answer) = inbound.stage {
                self.recycle(answer.buffer);
            }
            self.discharge(key, inbound.charge);
        }
    }

    /// Answers a Call with a transport error.
    pub(super) fn refuse(
        &mut self,
        key: Key<Connection>,
        xid: u32,
        error: ErrorBody,
        received: Filled,
    ) {
        self.counters.calls_refused += 1;
        self.receives.give_back(received);
        self.answer_with_error(key, xid, error);
    }

    /// Sends a transport error in place of a Reply, or queues it for credit.
    fn answer_with_error(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody) {
        if let Some(connection) = self.connections.get_mut(key) {
            self.trace.call_refused(connection.subject(&key), (xid, &error));
            connection.engine.refuse(xid, error);
        }
        let event = self.carry_out(key);
        debug_assert!(event.is_none(), "a refusal is about no message just received");
        self.touch(key);
    }

    fn insert(
        &mut self,
        connection: Key<Connection>,
        call: &negotiate::Call<'_>,
        (write, reply): (Option<Segments>, Option<Segments>),
        message: Message,
    ) -> Option<Key<InboundCall>> {
        let inserted = self.inbound.insert(InboundCall {
            connection,
            xid: call.xid,
            invalidate: call.invalidate,
            write,
            reply,
            message: Some(message),
            body: None,
            reply_body: None,
            room: Room::default(),
            charge: Charge::default(),
            results: Allowed::default(),
            stage: Stage::Later,
        });
        debug_assert!(inserted.is_ok(), "an entry for everything that a Call can hold");
        inserted.ok()
    }
}
