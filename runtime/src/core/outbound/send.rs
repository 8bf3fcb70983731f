//! Sending a Call of ours: it is planned, what it exposes registered, and its header written, when it
//! leaves.

use std::ops::Range;

use haulage_mr_pool::{Local, Pool};
use haulage_proto::chunk::DataItem;
use haulage_proto::exchange::{BareMax, CallFault, CallPlan, CallShape, Format, plan_call};
use haulage_proto::negotiate::{
    CallChunks, Class, Refusal, Version, bare_header_len, put_bare_header,
};
use haulage_proto::rpc::{Binding, Procedure};
use haulage_proto::v2::connection::{Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Access, Handle, Label, Segment};
use haulage_proto::xdr::{Writer, pad};

use super::opened::{Item, Opened, What};
use super::{Encoded, Stage};
use crate::core::Core;
use crate::core::connection::{Connection, Terms};
use crate::core::inbound::Segments;
use crate::core::state::State;
use crate::core::table::Key;
use crate::identity::Identity;
use crate::limits::HEADER_ROOM;
use crate::provider::{Port, Provider, Refused};
use crate::service::{CallError, Service};

impl<P: Provider, S: Service> Core<P, S> {
    /// Sends the Calls without chunks at the front of the queue inline, as far as that goes.
    pub(crate) fn send_bare_calls(&mut self, key: Key<Connection>) {
        let Self { provider, state, .. } = self;
        let Some(connection) = state.connections.get(key).filter(|one| !one.calls.is_empty())
        else {
            return;
        };
        if let Some(mut port) = provider.port(connection.qp) {
            state.send_bare_calls(key, &mut port);
        }
    }

    /// Registers the memory that a Call exposes, and queues the Call. One without credit returns to the front of its
    /// connection's queue.
    pub(crate) fn send_call(&mut self, key: Key<Connection>, slot: usize) -> Progress {
        let Self { provider, state, .. } = self;
        let call = state.outbound.get_mut(slot).and_then(Option::as_mut);
        let (Some(call), Some(connection)) = (call, state.connections.get_mut(key)) else {
            return Progress::Made;
        };
        let (mut buffer, mut encoded) = match std::mem::replace(&mut call.stage, Stage::Sent) {
            Stage::Queued(buffer, encoded) => (buffer, encoded),
            other => {
                call.stage = other;
                return Progress::Made;
            }
        };
        call.version = connection.terms.version;
        let Connection { binding, terms: Terms { bare_max, .. }, .. } = connection;
        if !call.opens && goes_bare(call.procedure, binding, bare_max, &encoded) {
            let credit = match connection.engine.try_post(&Sending::CALL) {
                Ok(credit) => credit,
                Err(Unsent::Wait) => {
                    call.stage = Stage::Queued(buffer, encoded);
                    connection.calls.push_front(slot);
                    return Progress::Waits;
                }
                Err(unsent) => {
                    call.error = Some(unsent.into());
                    call.stage = Stage::Fencing;
                    state.recycle(buffer);
                    state.fence_rest(slot);
                    return Progress::Made;
                }
            };
            let range = encoded.complete(&mut buffer, connection.terms.version, call.xid, credit);
            state.send(key, buffer, range, None, Default::default());
            return Progress::Made;
        }
        let Some(opened) = state.opened.get_mut(slot) else { return Progress::Made };
        if !std::mem::replace(&mut call.opens, true) {
            opened.begin(None, None);
        }
        let version = connection.terms.version;
        let outline = Outline::of((key, call.procedure), &encoded, opened);
        let plan = outline.plan(&mut state.planned, connection).map_err(Unopened::Failed);
        let chunks = plan.and_then(|plan| {
            opened.place(plan, &state.pool, &mut buffer, &mut encoded)?;
            opened.expose(plan, provider, connection)
        });
        let sent = chunks.and_then(|chunks| {
            let credit = connection.engine.try_post(&chunks.sending()).map_err(CallError::from)?;
            Ok((chunks, credit))
        });
        let (chunks, credit) = match sent {
            Ok(sent) => sent,
            // It waits for the end of the connection, which is about to be reported, as if it had been sent.
            Err(Unopened::Gone) => {
                state.recycle(buffer);
                return Progress::Made;
            }
            Err(Unopened::Failed(error)) => {
                call.error = Some(error);
                call.stage = Stage::Fencing;
                state.recycle(buffer);
                state.fence_rest(slot);
                return Progress::Made;
            }
        };
        let Encoded { length, .. } = encoded;
        let xid = call.xid;
        let inv_handle = if state.solicits { opened.solicited() } else { Handle(0) };
        let range = chunks.with(opened, inv_handle, |chunks| {
            let start = HEADER_ROOM - chunks.wire_len(version);
            let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
            let written = chunks.encode(version, &mut Writer::new(room), xid, credit);
            debug_assert!(written.is_ok(), "the header room holds the longest header");
            let payload = if chunks.body.is_some() { 0 } else { length };
            start..HEADER_ROOM + payload
        });
        let message = buffer.bytes().get(range.clone()).unwrap_or_default();
        let port = provider.port(connection.qp).filter(|_| message.len() <= state.inline_max);
        if port.is_some_and(|port| connection.send_inline(port, message, None)) {
            state.buffers.recycle(buffer);
        } else {
            state.send(key, buffer, range, None, Default::default());
        }
        Progress::Made
    }
}

/// Whether a step got anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It did: the queue is shorter.
    Made,
    /// It did not: the front of the queue waits as before.
    Waits,
}

impl State {
    /// Sends the Calls without chunks at the front of the queue at once, as far as that goes: if several do, with a
    /// template.
    pub(super) fn send_bare_calls(
        &mut self,
        key: Key<Connection>,
        port: &mut (impl Port + ?Sized),
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let by_template = connection.calls.len() > 1 && connection.has_templates();
        while let Some(&slot) = connection.calls.front()
            && let Some(Some(call)) = self.outbound.get_mut(slot)
            && let Stage::Queued(buffer, encoded) = &mut call.stage
            && !call.opens
        {
            let named = (call.xid, call.procedure);
            let departure =
                connection.send_bare(port, named, (buffer, encoded), by_template, self.inline_max);
            if departure == Departure::Waits {
                return;
            }
            connection.calls.pop_front();
            call.version = connection.terms.version;
            let Stage::Queued(buffer, _) = std::mem::replace(&mut call.stage, Stage::Sent) else {
                return debug_assert!(false, "it was looked at");
            };
            if let Departure::Post(start, end) = departure {
                return self.send(key, buffer, start..end, None, Default::default());
            }
            self.buffers.recycle(buffer);
        }
    }
}

/// The segments of what a Call exposes for being read. What is to be written to is in the Call's own
/// record.
#[derive(Debug, Default)]
struct Exposures {
    argument: Option<(u32, Segments)>,
    body: Option<Segments>,
}

impl Exposures {
    /// Returns how a Call with these chunks goes.
    const fn sending(&self) -> Sending {
        let format = if self.body.is_some() { Format::Special } else { Format::Simple };
        Sending { kind: Kind::Call, format, has_chunks: true, is_call_only: false }
    }

    /// Lists the chunks of a Call.
    fn with<R>(
        &self,
        opened: &Opened,
        inv_handle: Handle,
        f: impl FnOnce(&CallChunks<'_>) -> R,
    ) -> R {
        let [write, reply] = opened.offered.each_ref().map(|offered| offered.as_ref());
        let reads = self.argument.as_ref().map(|(position, read)| [(*position, read.as_slice())]);
        let writes = write.map(|write| [write.as_slice()]);
        f(&CallChunks {
            inv_handle,
            body: self.body.as_ref().map(Segments::as_slice),
            reads: reads.as_ref().map_or(&[][..], |reads| reads.as_slice()),
            writes: writes.as_ref().map_or(&[][..], |writes| writes.as_slice()),
            reply: reply.map(Segments::as_slice),
        })
    }
}

/// What became of a Call that is ready to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It waits for credit, or for what goes before it, or has chunks.
    Waits,
    /// It is on its way.
    Gone,
    /// It leaves as a work request: it has its credit, and is there in its buffer.
    Post(usize, usize),
}

impl Connection {
    /// Sends a Call that opened nothing, if it has no chunks and nothing is in the way.
    #[inline]
    fn send_bare(
        &mut self,
        port: &mut (impl Port + ?Sized),
        (xid, procedure): (u32, u32),
        (buffer, encoded): (&mut Local, &Encoded),
        by_template: bool,
        inline_max: usize,
    ) -> Departure {
        let version = self.terms.version;
        let fits = encoded.length + bare_header_len(version, Kind::Call) <= inline_max;
        let Terms { bare_max, .. } = &self.terms;
        let fits = fits && goes_bare(procedure, &self.binding, bare_max, encoded);
        if !fits || !self.queue.is_empty() {
            return Departure::Waits;
        }
        let Some(credit) = self.engine.try_send(Class::Call) else { return Departure::Waits };
        let like = if by_template { self.binding.template(procedure) } else { None };
        let range = match like {
            Some(_) => encoded.message(version),
            None => encoded.complete(buffer, version, xid, credit),
        };
        let message = buffer.bytes_mut().get_mut(range).unwrap_or_default();
        let sent = match like {
            Some(like) => port.send_like(like, Label { xid, credit }, message),
            None => port.send(message, None),
        };
        if sent.is_ok() {
            self.rings = true;
            return Departure::Gone;
        }
        let range = encoded.complete(buffer, version, xid, credit);
        Departure::Post(range.start, range.end)
    }

    /// Returns whether Calls without chunks begin with a template.
    fn has_templates(&self) -> bool {
        self.terms.version == Version::Two && self.identity == Identity::Nobody
    }
}

impl Encoded {
    /// Returns where in the buffer the message of a Call without chunks is.
    #[inline]
    const fn message(&self, version: Version) -> Range<usize> {
        HEADER_ROOM - bare_header_len(version, Kind::Call)..HEADER_ROOM + self.length
    }

    /// Writes the transport header of a Call without chunks. Returns where in the buffer the message is.
    #[inline]
    fn complete(
        &self,
        buffer: &mut Local,
        version: Version,
        xid: u32,
        credit: u32,
    ) -> Range<usize> {
        let range = self.message(version);
        let room = buffer.bytes_mut().get_mut(range.start..HEADER_ROOM).unwrap_or_default();
        let written = put_bare_header(version, Kind::Call, room, xid, credit);
        debug_assert!(written.is_some(), "every send buffer has the room");
        range
    }
}

/// Returns whether a Call goes in one message without chunks, and its longest Reply comes so.
#[inline]
pub(super) fn goes_bare(
    procedure: u32,
    binding: &Binding,
    bare_max: &BareMax,
    encoded: &Encoded,
) -> bool {
    let procedure = binding.procedure(procedure).unwrap_or(&UNBOUND);
    !procedure.call_only && bare_max.holds(encoded.length, procedure.reply_max(&[]))
}

/// All that the plan of a Call depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// It has the terms and the binding.
    connection: Key<Connection>,
    procedure: u32,
    /// Octets of the Payload stream, without the argument, and where the arguments start.
    length: usize,
    arguments_at: usize,
    /// Octets of the argument, and of the room for the result.
    argument: usize,
    result: usize,
}

/// A plan that was made, for the next Call of the same outline: that is most of them.
#[derive(Debug)]
pub(crate) struct Planned {
    outline: Outline,
    plan: CallPlan,
}

impl Outline {
    fn of(
        (connection, procedure): (Key<Connection>, u32),
        encoded: &Encoded,
        opened: &Opened,
    ) -> Self {
        let Encoded { arguments_at, length, .. } = *encoded;
        let [argument, result] = [What::Argument, What::Result].map(|what| opened.length(what));
        Self { connection, procedure, length, arguments_at, argument, result }
    }

    /// Describes a Call with one lease of so many octets.
    pub(super) fn of_one(
        (connection, procedure): (Key<Connection>, u32),
        encoded: &Encoded,
        what: What,
        octets: usize,
    ) -> Self {
        let Encoded { arguments_at, length } = *encoded;
        let (argument, result) = if what == What::Argument { (octets, 0) } else { (0, octets) };
        Self { connection, procedure, length, arguments_at, argument, result }
    }

    /// Returns whether such a Call goes in one message, with its lease as the only chunk, in one segment: the
    /// position of that if it is a Read chunk.
    pub(super) fn only_chunk(
        &self,
        made: &mut Option<Planned>,
        connection: &Connection,
    ) -> Option<Option<u32>> {
        let plan = self.plan(made, connection).ok()?;
        let is_all = |length, octets| usize::try_from(length) == Ok(octets);
        match (plan.only_read(), plan.only_write()) {
            (Some(read), None) if is_all(read.length, self.argument) => Some(Some(read.position)),
            (None, Some(length)) if is_all(length, self.result) => Some(None),
            _ => None,
        }
    }

    /// Returns the plan of such a Call: the one `made` last, if its outline was the same.
    fn plan<'a>(
        &self,
        made: &'a mut Option<Planned>,
        connection: &Connection,
    ) -> Result<&'a CallPlan, CallError> {
        if made.as_ref().is_none_or(|made| made.outline != *self) {
            let plan = self.make_plan(&connection.terms, &connection.binding)?;
            *made = Some(Planned { outline: *self, plan });
        }
        made.as_ref().map(|made| &made.plan).ok_or(CallError::Busy)
    }

    /// Plans how the Call goes and what is provided for its Reply.
    fn make_plan(&self, terms: &Terms, binding: &Binding) -> Result<CallPlan, CallError> {
        let Self { length, arguments_at, argument, result, .. } = *self;
        let procedure = binding.procedure(self.procedure).unwrap_or(&UNBOUND);
        let item = DataItem::opaque(length.saturating_sub(4), argument);
        let all = length + argument + pad(argument);
        let results = [u32::try_from(result).unwrap_or(u32::MAX)];
        let results = &results[..usize::from(result > 0)];
        let reply_max = u32::try_from(procedure.reply_max(results)).unwrap_or(u32::MAX);
        let shape = CallShape {
            procedure,
            length: u32::try_from(all).map_err(|_| CallError::TooLong)?,
            arguments_at: u32::try_from(arguments_at).map_err(|_| CallError::TooLong)?,
            items: &[item][..usize::from(argument > 0)],
            results,
            reply_max,
            reply_limit: reply_max,
            may_reduce: true,
        };
        Ok(plan_call(&terms.calls, &shape)?)
    }
}

impl Opened {
    /// Puts everything where the plan has it: an argument that is not reduced into the Payload stream, a
    /// Payload stream that is fetched into memory of its own. Takes memory for the Reply.
    fn place(
        &mut self,
        plan: &CallPlan,
        pool: &Pool,
        buffer: &mut Local,
        encoded: &mut Encoded,
    ) -> Result<(), CallError> {
        if plan.reads.is_empty()
            && let Item::Local(argument) = self.item(What::Argument)
        {
            let at = HEADER_ROOM + encoded.length;
            let gap = argument.len() + pad(argument.len());
            let room = buffer.bytes_mut().get_mut(at..at + gap);
            let (data, padding) = room.ok_or(CallError::TooLong)?.split_at_mut(argument.len());
            data.copy_from_slice(argument.bytes());
            padding.fill(0);
            encoded.length += gap;
        }
        if plan.call.is_some() {
            let stream = HEADER_ROOM..HEADER_ROOM + encoded.length;
            let mut body = pool.lease(encoded.length).ok_or(CallError::NoMemory)?;
            body.bytes_mut().copy_from_slice(&buffer.bytes()[stream]);
            *self.item(What::Body) = Item::Local(body);
        }
        if let Some(length) = plan.reply {
            let length = usize::try_from(length).map_err(|_| CallError::NoMemory)?;
            let chunk = pool.lease(length).ok_or(CallError::NoMemory)?;
            *self.item(What::Reply) = Item::Local(chunk);
        }
        // On version 1 the chunk has room for padding.
        if let (Some(length), Item::Local(result)) = (plan.writes.first(), self.item(What::Result))
        {
            result.set_len(result.capacity().min(usize::try_from(*length).unwrap_or(usize::MAX)));
        }
        Ok(())
    }

    /// Opens to the peer what the plan names.
    fn expose<P: Provider>(
        &mut self,
        plan: &CallPlan,
        provider: &mut P,
        connection: &mut Connection,
    ) -> Result<Exposures, Unopened> {
        let mut open = |item: &mut Item, access| expose(provider, connection, plan, item, access);
        let mut exposures = Exposures::default();
        if let Some(argument) = plan.reads.first() {
            let segments = open(self.item(What::Argument), Access::RemoteRead)?;
            exposures.argument = Some((argument.position, segments));
        }
        if plan.call.is_some() {
            exposures.body = Some(open(self.item(What::Body), Access::RemoteRead)?);
        }
        if !plan.writes.is_empty() {
            let segments = open(self.item(What::Result), Access::RemoteWrite)?;
            self.offered[0] = Some(segments);
        }
        if plan.reply.is_some() {
            let segments = open(self.item(What::Reply), Access::RemoteWrite)?;
            self.offered[1] = Some(segments);
        }
        Ok(exposures)
    }
}

/// Why the leases of a Call are not open to the peer.
enum Unopened {
    /// The connection is gone, which is about to be reported.
    Gone,
    /// The Call cannot be made.
    Failed(CallError),
}

impl From<CallError> for Unopened {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Opens a lease to the peer of `connection` and returns the segments that name it.
fn expose<P: Provider>(
    provider: &mut P,
    connection: &mut Connection,
    plan: &CallPlan,
    item: &mut Item,
    access: Access,
) -> Result<Segments, Unopened> {
    let Some(lease) = item.take_local() else { return Ok(Segments::default()) };
    let opened = match provider.port(connection.qp) {
        Some(mut port) => port.open(lease, access),
        None => Err((lease, Refused::Gone)),
    };
    let (exposed, Segment { handle, length, offset }) = opened.map_err(|(lease, why)| {
        *item = Item::Local(lease);
        if why == Refused::Gone { Unopened::Gone } else { CallError::Busy.into() }
    })?;
    *item = Item::Exposed(exposed);
    connection.rings = true;
    // P7: split at what the peer takes.
    Ok(Segments::collect(plan.split(handle, offset, length)))
}

impl From<Unsent> for CallError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            // [V2-7.1.3-3] what the peer said of the first such Call.
            Unsent::NotSupported => Self::Refused(Refusal::Two(ErrorBody::InvalHtype)),
            Unsent::NotAnnounced => Self::NoReverse,
            _ => Self::Busy,
        }
    }
}

impl From<CallFault> for CallError {
    fn from(fault: CallFault) -> Self {
        match fault {
            CallFault::NotEligible | CallFault::TooManyItems => Self::NotEligible,
            CallFault::CallTooLong => Self::TooLong,
            CallFault::ReplyTooLong => Self::ReplyTooLong,
        }
    }
}

/// What is known of a procedure that the binding does not have: the peer will not have it either.
static UNBOUND: Procedure = Procedure::new("unbound");
