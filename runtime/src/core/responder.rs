//! The Responder: the Calls of peers that wait for something, until their Replies leave.
//!
//! # Normal operation
//! A Call that lacks nothing is handled as it arrives and never gets here ([`runs`](super::runs)). A Call whose Payload
//! stream is in a Call chunk is fetched first ([`fetch`]). Then it is checked against the binding before anything is
//! taken for it. Its reduced arguments are read straight into leases that then belong to the service: there is memory for
//! all of them before the first Read. The service runs once the arguments are complete ([`serve`](super::serve)); its
//! Reply waits for credit in the connection's queue and leaves with the Writes of its results, and of itself if it goes
//! into the Reply chunk, in one doorbell ([`answer`]).
//!
//! # Memory ownership
//! The Receive buffer belongs to the Call until the service has answered it, because the arguments live in it; so a
//! slow service stops the credits of its callers. From then on the Call holds a send buffer instead. Every Call holds
//! one of the two, which bounds the number of Calls.

use haulage_mr_pool::{Local, Pool};
use haulage_proto::exchange::Format;
use haulage_proto::negotiate::{Engine, Version};
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rtrext::Extension;
use haulage_proto::v1::padding::Padding;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::verbs::Handle;
use haulage_proto::xdr::UNIT;

use self::answer::Answer;
use self::directing::Directing;
use super::common::Common;
use super::connection::{Connection, Directions};
use super::memory::{Charge, MemoryGrant, Purpose, Wanted};
use super::program::{Header, Offers, Programs, ReadChunk, Room, Served, Unserved};
use super::receives::{Filled, Message};
use super::table::{Owned, OwnedTable};
use super::turns::Turns;
use crate::core_number::CoreNumber;
use crate::items::Items;
use crate::key::{CallKey, ConnectionKey, OfCall};
use crate::limits::{Limits, SEGMENTS_MAX};
use crate::outgoing::segments::Segments;
use crate::service::{ReducedArgument, Refusal, Reply};

pub(crate) mod answer;
mod arrived;
mod chunks;
mod directed;
mod directing;
mod fetch;
mod read;
mod response;
mod send;

pub(crate) use answer::Delivery;
pub(crate) use arrived::ArrivedCall;
pub(crate) use send::send;

/// The Calls of peers that have not been answered, and the program that they call.
#[derive(Debug)]
pub(crate) struct Responder {
    /// What connections serve and call that peers make.
    pub(crate) accepted: Directions,
    pub(crate) calls: OwnedTable<ServedCall, OfCall>,
    /// The Calls that can go on.
    pub(crate) turns: Turns<CallKey>,
    /// The Call that the service is handling.
    pub(crate) running: Option<Running>,
    /// The charge for results that the service has leased for this Call, as it was called.
    leased: Charge,
}

/// The Call that a service is handling.
#[derive(Debug)]
pub(crate) struct Running {
    /// The name of the Call, or the name that it will get if it is answered later.
    pub(crate) key: CallKey,
    pub(crate) connection: ConnectionKey,
    /// Whether the service resumed the Call before it returned `Outcome::Later`.
    pub(crate) is_resumed: bool,
}

/// A Call being served that waits for something.
#[derive(Debug)]
pub(crate) struct ServedCall {
    pub(crate) connection: ConnectionKey,
    pub(crate) xid: u32,
    /// The parts of its RPC header, once that was read.
    pub(crate) header: Header,
    /// The handle that our Reply may invalidate.
    pub(super) invalidate: Option<Handle>,
    /// The room for each reduced result at the peer.
    pub(super) writes: Items<Segments>,
    /// The room for the whole Reply at the peer, if it offered a Reply chunk.
    pub(super) reply: Option<Segments>,
    /// The message that the Call arrived in, until the Call is answered.
    pub(super) message: Option<Message>,
    /// The padding in the Payload stream of the message, if there may be any (version 1, RFC 5666).
    pub(super) padding: Option<Box<Padding>>,
    /// The Payload stream, if it was fetched from a Call chunk or came in a record over TCP.
    pub(super) body: Option<Body>,
    /// The lease in which the Reply is made, if that may go into the Reply chunk.
    pub(super) reply_body: Option<Local>,
    /// Memory that its Reply may take.
    room: Room,
    /// The memory charged to the connection for this Call.
    pub(super) charge: Charge,
    /// How the results are to come, if the Call says that: then `writes` has the memory of each direction.
    pub(super) directing: Option<Box<Directing>>,
    /// Octets of its Payload stream, if the Call gives directions.
    pub(super) length: usize,
    /// Whether results may go into the Write chunks. Settled when the service first runs.
    pub(super) reduces: bool,
    pub(super) stage: Stage,
}

/// A Payload stream that is in no Receive.
#[derive(Debug)]
pub(crate) enum Body {
    /// It was fetched from a Call chunk.
    Fetched(Local),
    /// It came in a record over TCP. `held` octets of it are memory of long records; a short one is charged to nobody.
    Record { octets: Box<[u8]>, held: usize },
}

impl Body {
    /// Returns the octets.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Fetched(lease) => lease.bytes(),
            Self::Record { octets, .. } => octets,
        }
    }
}

impl Owned for ServedCall {
    fn owner(&self) -> usize {
        self.connection.slot()
    }
}

/// The event that a Call being served waits for.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The Call waits for memory.
    Waiting(Want),
    /// The Call waits for its Payload stream, which is being read; its reduced arguments come after it.
    Fetching { reads: Items<ReadChunk> },
    /// The Call waits for its arguments, of which some are being read; their leases belong to the work request.
    Reading { arguments: Items<ReducedArgument> },
    /// The Call waits for its turn: the service can run.
    Ready { arguments: Items<ReducedArgument> },
    /// The Call waits for its turn: the RPC layer answers without the service.
    Verdict(ReplyHeader),
    /// The Call waits for the service, which will answer later.
    Later,
    /// The Call waits for its turn: the service resumed it.
    Resumed,
    /// The Call waits for credit for its Reply.
    Replying(Answer),
}

/// The purpose for which a Call waits for memory.
#[derive(Debug)]
pub(crate) enum Want {
    /// Memory to fetch the Payload stream from the Call chunk `body`. The reduced arguments come after it.
    Call { body: Segments, reads: Items<ReadChunk> },
    /// Memory to fetch those of the arguments that are in `reads`.
    Arguments { arguments: Items<ReducedArgument>, reads: Items<ReadChunk> },
    /// Memory for the Reply; then the service can run.
    Reply { arguments: Items<ReducedArgument> },
}

impl Want {
    /// Returns the memory wanted. `room` is the memory that the Reply may take; the Call holds `own` octets already.
    fn wanted(&self, room: Room, own: usize) -> Wanted {
        let (lease, purpose) = match self {
            Self::Call { body, .. } => (body.octets(), Purpose::Reads),
            Self::Arguments { reads, .. } => {
                let octets = reads.iter().map(|read| read.source.octets());
                (octets.fold(0, usize::saturating_add), Purpose::Reads)
            }
            Self::Reply { .. } => (room.body, Purpose::Reply),
        };
        let later = if purpose == Purpose::Reply { room.result } else { 0 };
        Wanted { lease, later, own, purpose }
    }
}

/// A Call that its service answers later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    /// Whether the service has resumed it already.
    pub(crate) is_resumed: bool,
    /// Whether a result may go into the Write chunk.
    pub(crate) reduces: bool,
    pub(crate) header: Header,
}

impl Responder {
    /// Makes the tables of an idle core.
    pub(crate) fn new(core: CoreNumber, accepted: Directions, limits: &Limits) -> Self {
        let mut calls = 0;
        calls += limits.receives_max; // not answered: each holds a Receive
        calls += limits.send_buffers_max; // answered, their Replies waiting for credit
        calls += 1; // answered in the buffer for Replies that leave at once
        let (turns, leased) = (Turns::default(), Charge::default());
        Self { accepted, calls: OwnedTable::new(calls, core.get()), turns, running: None, leased }
    }

    /// Leases memory for a result of a Call that is being served, which is charged to its connection.
    ///
    /// # Errors
    /// The memory is not free: other Calls hold it, or it will not come.
    pub(crate) fn lease_result(
        &mut self,
        common: &mut Common,
        name: CallKey,
        octets: usize,
    ) -> Result<Local, Refusal> {
        let running = self.running.as_ref().filter(|running| running.key == name);
        let (key, charge) = match (running, self.calls.get_mut(name)) {
            (Some(running), _) => (running.connection, &mut self.leased),
            (None, Some(call)) => (call.connection, &mut call.charge),
            (None, None) => return Err(Refusal::NoMemory),
        };
        let own = charge.octets();
        // Calls that wait for memory go first.
        if own == 0 && common.memory.is_awaited() {
            return Err(Refusal::Busy);
        }
        let wanted = Wanted { lease: octets, later: 0, own, purpose: Purpose::Reply };
        match common.grant(key, &wanted, Pool::lease_as) {
            MemoryGrant::Taken(lease, more) => {
                charge.join(more);
                Ok(lease)
            }
            MemoryGrant::Waits(_) => Err(Refusal::Busy),
            MemoryGrant::Never => Err(Refusal::NoMemory),
        }
    }

    /// Adds to the charge of a Call what its service has leased for results as it was called.
    #[inline(always)]
    pub(crate) fn with_leased(&mut self, charge: Charge) -> Charge {
        if self.leased.octets() == 0 { charge } else { self.joined(charge) }
    }

    #[cold]
    fn joined(&mut self, mut charge: Charge) -> Charge {
        charge.join(std::mem::take(&mut self.leased));
        charge
    }

    /// Takes in a Call that the engine accepted, for which memory is charged already if it came in several messages.
    pub(crate) fn on_call(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        call: ArrivedCall<'_>,
        message: Message,
        charge: Charge,
    ) {
        let ArrivedCall { xid, invalidate, body, reads, writes, reply, directing, .. } = call;
        let along = reads.iter().filter(|read| read.source.is_along()).count();
        let counters = &mut common.counters;
        counters.call_chunks += u64::from(body.len() > 0);
        counters.read_chunks += (reads.len() - along) as u64;
        counters.arguments_along += along as u64;
        counters.write_chunks += writes.iter().filter(|write| write.len() > 0).count() as u64;
        counters.reply_chunks += u64::from(reply.is_some());
        let served = ServedCall::with(key, xid, None);
        let served = ServedCall { invalidate, writes, reply, directing, ..served };
        let mut served = served.charged(charge);
        if let Some(error) = call.refused.or_else(|| served.excess(reads.as_slice())) {
            served.message = Some(message);
            return self.refuse_call(common, served, error);
        }
        if body.len() > 0 {
            served.message = Some(message);
            return match self.may_fetch(common, key, &body) {
                Err(error) => self.refuse_call(common, served, error),
                Ok(()) => {
                    let name = self.insert(served);
                    self.want(common, name, Want::Call { body, reads });
                }
            };
        }
        let payload = match &message.gathered {
            None => call.payload,
            Some(octets) => octets.bytes().get(..message.payload.end as usize).unwrap_or_default(),
        };
        served.padding = call.padding.map(Box::new);
        served.length = payload.len();
        let judged = served.judge(common, payload, reads.as_slice());
        served.message = Some(message);
        //~ V2-7.3.1-3: `` -> `let judged = match judged {
        //~     Err(Unserved::Refused(error @ ErrorBody::ReadChunks { .. })) => {
        //~       common.refuse(key, call.xid, error); Ok(Items::None)
        //~     }
        //~     other => other,
        //~   };`
        match judged {
            Err(Unserved::Refused(error)) => self.refuse_call(common, served, error),
            judged => {
                let name = self.insert(served);
                self.proceed(common, name, judged, reads);
            }
        }
    }

    /// Carries out the verdict on a Call. `reads` are the chunks of its arguments.
    fn proceed(
        &mut self,
        common: &mut Common,
        name: CallKey,
        judged: Result<Items<ReducedArgument>, Unserved>,
        reads: Items<ReadChunk>,
    ) {
        let arguments = match judged {
            Err(Unserved::Verdict(header)) => {
                return self.be_ready(common, name, Stage::Verdict(header));
            }
            Err(Unserved::Refused(error)) => return self.refuse_kept(common, name, error),
            Err(Unserved::Untold(_)) => return self.leave_unanswered(common, name),
            Ok(arguments) => arguments,
        };
        let reads: Items<_> = reads
            .into_iter()
            .zip(&arguments)
            .filter(|(_, argument)| argument.is_awaited())
            .map(|(read, _)| read)
            .collect();
        match reads {
            Items::None => self.make_ready(common, name, arguments),
            reads => self.want(common, name, Want::Arguments { arguments, reads }),
        }
    }

    /// Lets the service run for a Call whose arguments are complete, as soon as there is room for its Reply.
    fn make_ready(
        &mut self,
        common: &mut Common,
        name: CallKey,
        arguments: Items<ReducedArgument>,
    ) {
        let Some(call) = self.calls.get_mut(name) else { panic!("{GONE}") };
        match call.room {
            Room { body: 0, result: 0 } => self.be_ready(common, name, Stage::Ready { arguments }),
            _ => self.want(common, name, Want::Reply { arguments }),
        }
    }

    /// Queues a Call for its turn, in this stage.
    fn be_ready(&mut self, common: &Common, name: CallKey, stage: Stage) {
        if let Some(call) = self.calls.get_mut(name)
            && let Some(origin) = common.origin(call.connection)
        {
            call.stage = stage;
            self.turns.push(origin, call.connection.slot(), name);
        }
    }

    /// Takes the Call whose turn is next, of a connection that may have another send buffer, besides one that the caller
    /// has taken.
    pub(crate) fn next_ready(&mut self, common: &Common) -> Option<CallKey> {
        let Self { turns, calls, .. } = self;
        let may_go_on = |name: &CallKey| {
            calls.get(*name).is_none_or(|call: &ServedCall| common.may_reply(call.connection, 1))
        };
        turns.pop(may_go_on)
    }

    /// Queues a Call that was answered with `Later`, so that the service finishes it.
    pub(crate) fn resume(&mut self, common: &Common, name: CallKey) {
        if let Some(running) = self.running.as_mut().filter(|running| running.key == name) {
            running.is_resumed = true;
        } else if self.calls.get(name).is_some_and(|call| matches!(call.stage, Stage::Later)) {
            self.be_ready(common, name, Stage::Resumed);
        }
    }

    /// Returns whether a Call that was answered with `Later` still awaits its Reply.
    pub(crate) fn awaits(&self, name: CallKey) -> bool {
        let runs = self.running.as_ref().is_some_and(|running| running.key == name);
        runs || self.calls.get(name).is_some()
    }

    /// Forgets the Calls of a connection that is over. A Call whose Read the provider has not given back keeps its
    /// charge until then. Returns whether there were Calls that were not answered, or whose Reply had not left.
    pub(crate) fn drop_unread(&mut self, common: &mut Common, key: ConnectionKey) -> bool {
        let any = self.calls.has_any_of(key.slot());
        let is_unread = |call: &ServedCall| !call.is_being_read();
        while let Some(call) = self.calls.remove_newest_of(key.slot(), is_unread) {
            forget(common, call);
        }
        drop(self.turns.take_all_of(key.slot()));
        any
    }

    /// Forgets a Call whose Read failed: its connection ends.
    pub(crate) fn drop_read(&mut self, common: &mut Common, name: CallKey) {
        if let Some(call) = self.calls.remove(name) {
            forget(common, call);
        }
    }

    /// Forgets every Call of a connection that is gone.
    pub(crate) fn drop_calls(&mut self, common: &mut Common, key: ConnectionKey) {
        while let Some(call) = self.calls.remove_newest_of(key.slot(), |_| true) {
            assert!(call.connection == key, "no Call outlives its connection");
            forget(common, call);
        }
        drop(self.turns.take_all_of(key.slot()));
    }

    /// Refuses a Call that is in the table.
    pub(crate) fn refuse_kept(&mut self, common: &mut Common, name: CallKey, error: ErrorBody) {
        if let Some(call) = self.calls.remove(name) {
            self.refuse_call(common, call, error);
        }
    }

    /// Refuses a Call whose Reply, of several messages, has found neither credit nor buffers for them.
    #[cold]
    pub(crate) fn refuse_answered(&self, common: &mut Common, mut call: ServedCall) {
        let Stage::Replying(answer) = std::mem::replace(&mut call.stage, Stage::Later) else {
            panic!("a Reply waits with its message")
        };
        let error = answer.shortage(call.offered().as_slice());
        common.buffers.recycle(answer.buffer);
        common.counters.take_back_served(role_on(common, call.connection));
        self.refuse_call(common, call, error);
    }

    /// Ends a Call that is in the table and has no Reply, by its procedure.
    #[cold]
    pub(crate) fn leave_unanswered(&mut self, common: &mut Common, name: CallKey) {
        let Some(call) = self.calls.remove(name) else { return };
        let key = call.connection;
        forget(common, call);
        common.counters.count_served(role_on(common, key), 1);
        common.owe_no_replies(key, 1);
    }

    fn refuse_call(&self, common: &mut Common, call: ServedCall, error: ErrorBody) {
        let (key, xid) = (call.connection, call.xid);
        forget(common, call);
        common.refuse(key, xid, error);
    }

    /// Takes in a Call that came in the record `body`. It waits for its turn, and for memory for its Reply.
    pub(crate) fn on_record(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        programs: &Programs,
        body: Body,
    ) {
        // What is too short to have one is no Call.
        let xid = body.bytes().first_chunk().copied().map_or(0, u32::from_be_bytes);
        let mut served = ServedCall::with(key, xid, None);
        let judged = served.judge_record(programs, body.bytes());
        match (&judged, body) {
            (Ok(_), body) => served.body = Some(body),
            // Nobody reads it again.
            (Err(_), Body::Record { held, .. }) => common.streams.give_back(key, held),
            (Err(_), Body::Fetched(_)) => {}
        }
        common.streams.keep_call(key, served.room.body);
        let name = self.insert(served);
        self.proceed(common, name, judged, Items::None);
    }

    /// Enters a Call.
    ///
    /// # Panics
    /// If the table is full: it has an entry for every Receive and for every buffer of a Reply.
    pub(crate) fn insert(&mut self, call: ServedCall) -> CallKey {
        let inserted = self.calls.insert(call);
        let Ok(name) = inserted else { panic!("an entry for everything that a Call can hold") };
        name
    }
}

/// An invariant: a Call that goes on is in the table, and so is its connection.
pub(crate) const GONE: &str = "a Call that goes on has gone";

/// Returns our role on a connection. A Call of one that has gone counts as a client's: most are.
fn role_on(common: &Common, key: ConnectionKey) -> Role {
    common.connections.get(key).map_or(Role::Server, Connection::role)
}

/// Takes back what a Call holds that nobody will answer.
fn forget(common: &mut Common, call: ServedCall) {
    if let Some(message) = call.message {
        common.receives.give_back(message.received);
    }
    if let Stage::Replying(answer) = call.stage {
        common.buffers.recycle(answer.buffer);
    }
    if let Some(Body::Record { held, .. }) = call.body {
        common.streams.give_back(call.connection, held);
    }
    common.discharge(call.connection, call.charge);
}

impl ServedCall {
    /// Makes the record of a Call whose message is not needed any more, with its only chunk, if it has one.
    pub(crate) fn with(connection: ConnectionKey, xid: u32, chunk: Option<&SingleChunk>) -> Self {
        let write = chunk.filter(|one| one.position.is_none());
        Self {
            connection,
            xid,
            header: Header::default(),
            invalidate: chunk.map(|one| one.inv_handle).filter(|handle| *handle != Handle(0)),
            writes: write.map(|one| Segments::one(one.segment)).into(),
            reply: None,
            message: None,
            padding: None,
            body: None,
            reply_body: None,
            room: Room::default(),
            charge: Charge::default(),
            directing: None,
            length: 0,
            reduces: false,
            stage: Stage::Later,
        }
    }

    /// Adds the charge for memory that the Call has already.
    pub(crate) fn charged(mut self, charge: Charge) -> Self {
        self.charge.join(charge);
        self
    }

    /// Has the Call hold a Receive until it is answered.
    pub(crate) fn hold(&mut self, received: Filled) {
        self.message = Some(Message::new(received, 0..0, None));
    }

    /// Completes the Reply, which then waits for credit: `header`, and the results in `reply`. It may take as many as
    /// `messages_max` messages.
    ///
    /// # Errors
    /// The Reply fits neither its messages nor the chunks that the Call offers. It comes back.
    #[expect(clippy::result_large_err, reason = "it is moved back once, not boxed")]
    pub(crate) fn answer(
        &mut self,
        header: &ReplyHeader,
        mut reply: Reply,
        connection: &Connection,
        messages_max: u32,
    ) -> Result<(), (Reply, ErrorBody)> {
        if self.directing.is_some()
            && let Engine::Two(two) = connection.engine.engine()
            && let Some(extension) = two.extension()
        {
            return self.answer_directed(header, reply, extension);
        }
        let terms = connection.session.terms();
        let end = std::mem::take(&mut reply.at);
        reply.results(|w| header.encode(w));
        reply.at = reply.at.max(end);
        let delivery = answer::delivery(&reply, terms, messages_max, &self.offers());
        let Some(delivery) = delivery else {
            let error = reply.shortage();
            return Err((reply, error));
        };
        self.stage = Stage::Replying(Answer::new(reply, delivery));
        Ok(())
    }

    /// Returns how a Reply that waits for credit is delivered.
    pub(crate) const fn delivery(&self) -> Delivery {
        match &self.stage {
            Stage::Replying(answer) => answer.delivery,
            _ => Delivery::Sent(Format::Simple),
        }
    }

    /// Returns how many send buffers its Reply takes that waits for credit, beside the one that it is made in.
    pub(crate) const fn parts(&self) -> u32 {
        match &self.stage {
            Stage::Replying(Answer {
                delivery: Delivery::Sent(Format::Continued { messages }),
                response: None,
                ..
            }) => *messages,
            _ => 0,
        }
    }

    /// Returns whether RDMA Reads of ours are under way for the Call.
    const fn is_being_read(&self) -> bool {
        matches!(self.stage, Stage::Fetching { .. } | Stage::Reading { .. })
    }

    /// Returns whether the Call directs how its results come.
    pub(crate) const fn is_directing(&self) -> bool {
        self.directing.is_some()
    }

    /// Returns the octets that the header of its Reply may have beyond one that returns its Write chunks.
    pub(crate) const fn more_header(&self) -> usize {
        if self.is_directing() { 2 * UNIT * (1 + self.writes.len()) } else { 0 }
    }

    /// Returns the octets of memory that its Reply may take if that is made in memory of its own.
    pub(crate) const fn body_room(&self) -> usize {
        self.room.body
    }

    /// Returns the padding in the Payload stream of the message, and the offset at which that begins.
    pub(crate) fn padded(&self) -> Option<(Padding, u32)> {
        let base = self.message.as_ref()?.payload.start;
        self.padding.as_deref().map(|padding| (*padding, base))
    }

    /// Gives up the message of the Call. Returns the Receive that the Call held, or counted as holding.
    pub(crate) fn release(&mut self) -> Option<Filled> {
        self.body = None;
        self.message.take().map(|message| message.received)
    }

    /// Judges a Call whose Payload stream has arrived, and notes the parts of its header.
    fn judge(
        &mut self,
        common: &Common,
        payload: &[u8],
        reads: &[ReadChunk],
    ) -> Result<Items<ReducedArgument>, Unserved> {
        let connection = common.connections.get(self.connection);
        let served = connection.and_then(|found| Some((found, found.session.serves()?)));
        let Some((connection, programs)) = served else {
            return Err(Unserved::Refused(ErrorBody::System));
        };
        let version = connection.session.terms().version;
        let (asked, header) = programs
            .read_header(self.xid, payload)
            .map_err(|unserved| unserved.in_version(version))?;
        self.header = header;
        let served = programs.of(header);
        // [V2-11.2.2.3-2] results under integrity or privacy stay in the Payload stream. [R5666-3.6-2] On
        // version 1 a Write chunk may be offered for a procedure that has no eligible result.
        self.reduces = !self.writes.is_empty()
            && asked.credential.may_reduce()
            && served.reduces(header.procedure);
        //~ R5666-3.6-1: `` -> `self.reduces &= connection.session.terms().version == Version::Two;`
        let offers = Offers { reads, ..self.offers() };
        let arguments = served.check_chunks(header.procedure, &offers, connection, &common.pool);
        let arguments = arguments.map_err(Unserved::Refused)?;
        self.room = served.room(header.procedure, &offers, connection, &common.limits);
        if self.directing.is_some() {
            self.direct(served, connection, &common.limits).map_err(Unserved::Refused)?;
        }
        Ok(arguments)
    }

    /// Settles how long the results of a Call with directions may be, and the memory that its Reply takes.
    ///
    /// # Errors
    /// There may never be credits for as many messages as the Call reserved, and it leaves no other way.
    #[cold]
    fn direct(
        &mut self,
        served: &Served,
        connection: &Connection,
        limits: &Limits,
    ) -> Result<(), ErrorBody> {
        let Engine::Two(two) = connection.engine.engine() else { return Ok(()) };
        let terms = two.extension().and_then(Extension::terms);
        let (Some(directing), Some(terms)) = (&mut self.directing, terms) else { return Ok(()) };
        directing.settle(terms, two.messages_max(Kind::Reply))?;
        let sends = self.reduces && directing.may_send();
        let body = if sends { directing.messages_max() * limits.response_buffer() } else { 0 };
        let result = served.result_room(self.header.procedure, self.offered());
        self.room = Room { body, result };
        Ok(())
    }

    /// Judges a Call that came in a record, and notes the parts of its header.
    fn judge_record(
        &mut self,
        programs: &Programs,
        payload: &[u8],
    ) -> Result<Items<ReducedArgument>, Unserved> {
        let read = programs.read_header(self.xid, payload);
        let (_, header) = read.map_err(|unserved| unserved.in_version(Version::One))?;
        let arguments = payload.get(header.arguments_at..);
        self.header = header;
        self.room = programs.of(header).room_over_tcp(header.procedure, arguments);
        Ok(Items::None)
    }

    /// Returns the error for a Call whose chunks have more segments together than a direction may have.
    fn excess(&self, reads: &[ReadChunk]) -> Option<ErrorBody> {
        let reads = reads.iter().map(|read| read.source.segments().len());
        let too_many = |chunks: usize, segments: usize| {
            // As many in each chunk would be taken.
            (segments > SEGMENTS_MAX).then(|| SEGMENTS_MAX / chunks)
        };
        let of_reads = too_many(reads.len(), reads.sum());
        let of_writes = too_many(self.writes.len(), self.writes.iter().map(Segments::len).sum());
        //~ V2-7.3.3-1: `of_reads.or(of_writes)?` -> `of_reads?`
        let max = of_reads.or(of_writes)?;
        //~ V2-7.3.3-1: `try_from(max)` -> `try_from(max + 1)`
        Some(ErrorBody::Segments { max: u32::try_from(max).unwrap_or(u32::MAX) })
    }

    /// Returns the chunks that the Call offers for its Reply.
    pub(crate) fn offers(&self) -> Offers<'_> {
        Offers { reads: &[], writes: self.writes.as_slice(), reply: self.reply.as_ref() }
    }

    /// Returns the octets of each Write chunk offered for a result that may be reduced.
    pub(crate) fn offered(&self) -> Items<u64> {
        let writes = if self.reduces { self.writes.as_slice() } else { &[] };
        if let Some(directing) = &self.directing {
            return directing.offered(writes);
        }
        writes.iter().map(Segments::length).collect()
    }
}
