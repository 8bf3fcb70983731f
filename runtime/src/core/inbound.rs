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
use haulage_proto::chunk::Reduced;
use haulage_proto::negotiate;
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyBody, ReplyHeader, Violation};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Bare;
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Segment};

use crate::core::connection::Connection;
use crate::core::receives::{Buffers, Filled};
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::work::{Held, Name, Work};
use crate::limits::{BODY_MAX, SEGMENTS_MAX};
use crate::provider::{Operation, WorkRequest};
use crate::service::{Placement, Refusal};

use answer::Answer;

pub(crate) use run::{Acted, Asked, act, run};

/// A Call whose turn to be acted upon comes.
#[derive(Debug)]
pub(crate) enum Ready {
    /// It has no chunks and nobody has looked at it: all there is of it is its message.
    Bare(BareCall),
    /// It is in the table.
    Kept(Key<InboundCall>),
}

/// A Call without chunks.
#[derive(Debug)]
pub(crate) struct BareCall {
    connection: Key<Connection>,
    xid: u32,
    message: Message,
}

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
    /// Octets that its results may have by the binding, items aside. Set when the service first runs.
    results_max: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
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
    /// The service can run.
    Ready(Option<(u32, u64, Placement)>),
    /// Its argument is to be read into this lease.
    Read(Local),
}

impl State {
    /// Takes in a Call without chunks that the engine found acceptable.
    pub(crate) fn on_bare_call(
        &mut self,
        connection: Key<Connection>,
        bare: &Bare,
        received: Filled,
    ) {
        let message = Message { received, payload_at: bare.payload_at };
        self.ready.push_back(Ready::Bare(BareCall { connection, xid: bare.xid, message }));
    }

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
        let write_chunks = call.writes.chunks().next().is_some().into();
        self.counters.call_chunks += u64::from(body.len() > 0);
        self.counters.read_chunks += u64::from(read.is_some());
        self.counters.write_chunks += u64::from(write_chunks);
        self.counters.reply_chunks += u64::from(call.reply.is_some());
        if body.len() > 0 {
            return self.fetch_call(key, call, (body, read), message);
        }
        match self.judge_call(key, (call.xid, call.payload), read.as_ref(), write_chunks) {
            Judged::Refused(error) => self.refuse(key, call.xid, error, message),
            judged => {
                if let Some(call) = self.insert(key, call, message) {
                    self.proceed(call, judged, read);
                }
            }
        }
    }

    /// Fetches a Call that is not in its message.
    fn fetch_call(
        &mut self,
        key: Key<Connection>,
        call: &negotiate::Call<'_>,
        (body, read): (Segments, Option<(u32, Segments)>),
        message: Message,
    ) {
        let may_read = self.connections.get(key).is_some_and(|connection| connection.may_read);
        let lease = match usize::try_from(body.length()) {
            // P12: nothing is asked of a peer that serves no Reads.
            _ if !may_read => Err(ErrorBody::ReadChunks { max: 0 }),
            Ok(0) => Err(ErrorBody::BadXdr),
            Ok(length) if length <= BODY_MAX => self.pool.lease(length).ok_or(ErrorBody::System),
            _ => Err(ErrorBody::System),
        };
        match lease {
            Err(error) => self.refuse(key, call.xid, error, message),
            Ok(lease) => {
                if let Some(call) = self.insert(key, call, message) {
                    self.read(call, Stage::Fetching { read }, &body, lease);
                }
            }
        }
    }

    /// Decides about a Call whose Payload stream is here.
    fn judge_call(
        &self,
        key: Key<Connection>,
        (xid, payload): (u32, &[u8]),
        read: Option<&(u32, Segments)>,
        write_chunks: u32,
    ) -> Judged {
        let (program, version, procedure) = match CallHeader::decode(payload) {
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
        let bound = binding.procedure(procedure);
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
        let mut verdict = procedure.check_call(reduced.into_iter(), write_chunks);
        let length_max = procedure.arguments.first().map_or(0, |argument| argument.length_max);
        // P12: nor is anything asked of a peer that serves no Reads.
        let may_read = self.connections.get(key).is_some_and(|connection| connection.may_read);
        if read.is_some() && !may_read {
            verdict = Err(Violation::Arguments { max: 0 });
        }
        match verdict {
            // What is too long stays where it is, and the service hears of it.
            Ok(()) | Err(Violation::TooLong { .. }) => {}
            Err(violation) => return Judged::Refused(violation.report()),
        }
        let Some((position, segments)) = read else { return Judged::Ready(None) };
        let (position, length, length_max) = (*position, segments.length(), length_max as u64);
        let sink = match usize::try_from(length) {
            Ok(wanted) if length <= length_max => self.pool.lease(wanted).ok_or(Refusal::NoMemory),
            _ => Err(Refusal::TooLarge),
        };
        match sink {
            Ok(lease) if length > 0 => Judged::Read(lease),
            Ok(lease) => Judged::Ready(Some((position, length, Placement::Placed(lease)))),
            Err(why) => Judged::Ready(Some((position, length, Placement::Refused(why)))),
        }
    }

    /// Does what was decided about a Call; `read` is its reduced argument.
    fn proceed(&mut self, call: Key<InboundCall>, judged: Judged, read: Option<(u32, Segments)>) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        inbound.stage = match (judged, read) {
            (Judged::Verdict(header), _) => Stage::Verdict(header),
            (Judged::Ready(argument), _) => Stage::Ready { argument },
            (Judged::Read(lease), Some((position, segments))) => {
                return self.read(call, Stage::Reading { position }, &segments, lease);
            }
            (Judged::Read(_), None) => return debug_assert!(false, "nothing is read for nothing"),
            (Judged::Refused(error), _) => {
                let (connection, xid) = (inbound.connection, inbound.xid);
                let message = self.inbound.remove(call).and_then(|inbound| inbound.message);
                if let Some(message) = message {
                    self.refuse(connection, xid, error, message);
                }
                return;
            }
        };
        self.ready.push_back(Ready::Kept(call));
    }

    /// Posts the Reads that fetch a chunk of a Call. The last one is signaled.
    fn read(&mut self, call: Key<InboundCall>, stage: Stage, segments: &Segments, lease: Local) {
        let Some(inbound) = self.inbound.get_mut(call) else { return };
        inbound.stage = stage;
        let key = inbound.connection;
        let mut sink = lease.into_sink();
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
                self.proceed(call, Judged::Ready(argument), None);
            }
            Stage::Fetching { read } => {
                let (key, xid) = (inbound.connection, inbound.xid);
                let writes = inbound.write.is_some().into();
                let judged = self.judge_call(key, (xid, lease.bytes()), read.as_ref(), writes);
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
            self.ready.push_back(Ready::Kept(call));
        }
    }

    /// Forgets every Call of a connection that is gone.
    pub(crate) fn drop_calls(&mut self, key: Key<Connection>) {
        while let Some(call) = self.inbound.find(0, |call| call.connection == key) {
            let Some(inbound) = self.inbound.remove(call) else { return };
            if let Some(message) = inbound.message {
                self.receives.give_back(message.received);
            }
            if let Stage::Replying(answer) = inbound.stage {
                self.recycle(answer.buffer);
            }
        }
    }

    /// Answers a Call with a transport error.
    fn refuse(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody, message: Message) {
        self.counters.calls_refused += 1;
        self.receives.give_back(message.received);
        self.answer_with_error(key, xid, error);
    }

    /// Sends a transport error in place of a Reply, or queues it for credit.
    fn answer_with_error(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody) {
        if let Some(connection) = self.connections.get_mut(key) {
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
        message: Message,
    ) -> Option<Key<InboundCall>> {
        let inserted = self.inbound.insert(InboundCall {
            connection,
            xid: call.xid,
            invalidate: call.invalidate,
            write: call.writes.chunks().next().map(|chunk| Segments::collect(chunk.segments())),
            reply: call.reply.map(|chunk| Segments::collect(chunk.segments())),
            message: Some(message),
            body: None,
            results_max: 0,
            stage: Stage::Later,
        });
        debug_assert!(inserted.is_ok(), "an entry for everything that a Call can hold");
        inserted.ok()
    }
}
