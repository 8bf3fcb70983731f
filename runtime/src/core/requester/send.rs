//! Sends a Call of ours: plans it, exposes its memory, and writes its header, all at the moment it leaves.
//!
//! # Normal operation
//! A Call goes by one of three roads ([`Road`]). On each it is first made ready: it gets its credits, and its memory is
//! exposed. What keeps it from leaving ([`Unready`]) is dealt with in one place. Then it departs: its header is written,
//! and all its parts leave.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::{
    CallChunks, Class, Refusal, Version, put_call_headers_with, unchunked_header_len,
};
use haulage_proto::v2::connection::{Role, Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::verbs::{Access, Handle, HeaderPatch};
use haulage_proto::xdr::Writer;

use super::Requester;
use super::along::Along;
use super::calls::{Found, MadeCall, Named, Stage};
use super::encoded::Encoded;
use super::exposures::{Exposures, Unready};
use super::lease::LeaseRole;
use super::plan::{PlanKey, goes_unchunked, is_call_only};
use super::send_grant::SendGrant;
use crate::core::buffers::SendBuffers;
use crate::core::common::Common;
use crate::core::connection::{Connection, Terms};
use crate::core::memory::Charge;
use crate::core::outbox::{InParts, Left};
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::limits::{CallsGo, HEADER_ROOM};
use crate::provider::{Head, Outgoing, Port};
use crate::service::{CallError, Request};

impl Requester {
    /// Sends the Calls of a connection that wait, as far as its credits go.
    #[inline(never)]
    pub(crate) fn send_calls(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        port: &mut (impl Port + ?Sized),
    ) {
        while let Some(connection) = common.connections.get_mut(key)
            && connection.outbox.calls() > 0
            && connection.engine.decides(Class::Call)
            && let Some(slot) = connection.outbox.next_call()
        {
            if self.send_call(common, key, slot, port) == Progress::Waits {
                break;
            }
        }
    }

    /// Sends a Call, or queues it for the next doorbell: chooses its road, has it made ready, and lets it leave. One that
    /// cannot leave yet returns to the front of its connection's queue.
    fn send_call(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        slot: usize,
        port: &mut (impl Port + ?Sized),
    ) -> Progress {
        let (Some(mut found), Some(connection)) =
            (self.calls.get_mut(slot), common.connections.get_mut(key))
        else {
            return Progress::Made;
        };
        let Some((buffer, encoded)) = found.unqueue() else {
            panic!("a Call waits with its message");
        };
        let mut leaving = Leaving { key, slot, buffer, encoded };
        found.call.version = connection.session.terms().version;
        let ready = match Road::of(found.call, connection, &leaving.encoded) {
            Road::Unchunked => match connection.engine.try_post(&Sending::CALL) {
                Ok(credit) => Ok((Ready::Unchunked, credit)),
                Err(unsent) => Err(unsent.into()),
            },
            Road::CallOnly => self.ready_call_only(common, &leaving),
            Road::Chunked => self.ready_chunked(common, &mut leaving, port),
        };
        match ready {
            Ok((ready, credit)) => self.depart(common, leaving, ready, credit, port),
            Err(Unready::Waits) => {
                self.put_back(common, leaving);
                return Progress::Waits;
            }
            Err(Unready::Gone) => common.buffers.recycle(leaving.buffer),
            Err(Unready::Failed(error)) => {
                // The Calls behind it need not wait for its credits.
                if let Some(connection) = common.connections.get_mut(key) {
                    connection.engine.give_up(Kind::Call);
                }
                common.buffers.recycle(leaving.buffer);
                self.calls.fail(common, slot, error);
            }
        }
        Progress::Made
    }

    /// Queues a Call again, in front of the others of its connection.
    fn put_back(&mut self, common: &mut Common, Leaving { key, slot, buffer, encoded }: Leaving) {
        let (Some(mut found), Some(connection)) =
            (self.calls.get_mut(slot), common.connections.get_mut(key))
        else {
            panic!("{IN_TABLE}");
        };
        found.queue(buffer, encoded);
        connection.outbox.put_back_call(slot);
    }

    /// Makes a Call ready that has chunks, or leaves in parts: plans it, exposes its memory, and takes its credits.
    fn ready_chunked(
        &mut self,
        common: &mut Common,
        Leaving { key, slot, buffer, encoded }: &mut Leaving,
        port: &mut (impl Port + ?Sized),
    ) -> Result<(Ready, u32), Unready> {
        let (Some(found), Some(connection)) =
            (self.calls.get_mut(*slot), common.connections.get_mut(*key))
        else {
            panic!("{IN_TABLE}");
        };
        let Found { call, exposed_leases, kept, .. } = found;
        if !std::mem::replace(&mut call.opens, true) {
            exposed_leases.begin(Items::None, Items::None);
        }
        let plan_key = PlanKey::of(*key, call.procedure, encoded, exposed_leases);
        let again = kept.again.as_ref().and_then(|again| again.plan(call.xid));
        let plan = match again {
            Some(plan) => Ok(plan),
            None => {
                exposed_leases.sent.keep(buffer.bytes(), encoded);
                plan_key.plan(&mut self.planned, connection, exposed_leases.further.any())
            }
        };
        let sending = plan.as_ref().map_or(Sending::CALL, |plan| sending(plan));
        if connection.role() == Role::Server
            && !announces(connection, plan.is_ok().then_some(&sending))
        {
            return Err(CallError::NotAnnounced.into());
        }
        let plan = plan?;
        // Nothing is exposed before there are credits and buffers for all messages.
        if let Format::Continued { .. } = sending.format {
            may_leave(&common.buffers, connection, &sending)?;
        }
        let placed = exposed_leases.place(plan, &common.pool, buffer, encoded);
        if again.is_none()
            && placed.is_ok()
            && let of = (call.procedure, &*encoded)
            && let Some(along) = Along::of(plan, of, connection, &mut common.buffers)
        {
            let ready = match connection.engine.may_post(&along.sending()) {
                Ok(()) => exposed_leases.expose_rooms(plan, along.ways().as_slice(), port),
                Err(unsent) => Err(unsent.into()),
            };
            connection.outbox.ring();
            let ready = ready
                .and_then(|()| connection.engine.try_post(&along.sending()).map_err(Unready::from));
            return match ready {
                Ok(credit) => Ok((Ready::Along(along), credit)),
                Err(unready) => {
                    along.give_up(&mut common.buffers);
                    Err(unready)
                }
            };
        }
        let exposed =
            placed.map_err(Unready::Failed).and_then(|()| exposed_leases.expose(plan, port));
        // Registrations leave with the doorbell, whatever becomes of the Call.
        connection.outbox.ring();
        let exposed = exposed?;
        let credit = connection.engine.try_post(&sending).map_err(CallError::from)?;
        Ok((Ready::Chunked(exposed), credit))
    }

    /// Writes the header of a Call that is ready, and lets it leave.
    fn depart(
        &mut self,
        common: &mut Common,
        Leaving { key, slot, buffer, encoded }: Leaving,
        ready: Ready,
        credit: u32,
        port: &mut (impl Port + ?Sized),
    ) {
        let (Some(Found { call, exposed_leases, .. }), Some(connection)) =
            (self.calls.get_mut(slot), common.connections.get_mut(key))
        else {
            panic!("{IN_TABLE}");
        };
        let (version, patch) = (call.version, HeaderPatch { xid: call.xid, credit });
        let binding;
        let is_call_only = matches!(ready, Ready::CallOnly(_));
        let (head, mut message) = match ready {
            Ready::Unchunked => {
                // A message that leaves together with others begins with a template.
                let has_template =
                    connection.outbox.is_one_of_many() && connection.session.has_templates();
                binding = connection.session.calls().filter(|_| has_template).map(Rc::clone);
                let template =
                    binding.as_ref().and_then(|binding| binding.template(call.procedure));
                let mut message = Outgoing::within(buffer);
                let head = match template {
                    Some(template) => Head::like(encoded.message(version), template, patch),
                    None => encoded.complete(&mut message, version, patch),
                };
                (head, message)
            }
            Ready::CallOnly(format) => {
                call.stage = Stage::Leaving;
                let mut last = (buffer, encoded.length);
                if let Format::Continued { .. } = format {
                    let header_len = unchunked_header_len(version, Kind::Call);
                    let stream = last.0.bytes().get(HEADER_ROOM..).unwrap_or_default();
                    let stream = stream.get(..encoded.length).unwrap_or_default();
                    let rest = send_parts(common, key, (patch, header_len), stream, port);
                    common.buffers.recycle(std::mem::replace(&mut last, rest).0);
                }
                let (buffer, length) = last;
                let mut message = Outgoing::within(buffer);
                let last = Encoded { length, ..encoded };
                (last.complete(&mut message, version, patch), message)
            }
            Ready::Chunked(exposures) => {
                let inv_handle = if common.abilities.promises.remote_invalidation {
                    exposed_leases.solicited()
                } else {
                    Handle(0)
                };
                exposures.with(exposed_leases, inv_handle, |chunks| {
                    let mut last = (buffer, encoded.length);
                    if let Format::Continued { .. } = exposures.format {
                        let stream = exposed_leases.stream();
                        let header_len = chunks.wire_len(version);
                        let rest = send_parts(common, key, (patch, header_len), stream, port);
                        common.buffers.recycle(std::mem::replace(&mut last, rest).0);
                    }
                    seal(chunks, version, patch, last)
                })
            }
            Ready::Along(along) => {
                along.count(&mut common.counters);
                let sealed = along.seal(exposed_leases, buffer.bytes(), &encoded, patch);
                common.buffers.recycle(buffer);
                let mut sealed = sealed.into_iter();
                let Some(mut last) = sealed.next() else { panic!("a Call has a message") };
                for next in sealed {
                    //~ RTR-4.2-1: `std::mem::replace(&mut last, next)` -> `next`
                    let (head, mut message) = std::mem::replace(&mut last, next);
                    leave(common, key, &head, &mut message, port);
                }
                last
            }
        };
        let id = common.posted.next_id();
        leave(common, key, &head, &mut message, port);
        if is_call_only && !common.posted.end_call_with(id, slot) {
            self.calls.end_sent(slot);
        }
    }

    /// Exposes the one lease of an encoded Call and sends the Call under a send grant, if the Call needs no more
    /// than that.
    /// Returns whether the Call left or is queued; if not, nothing has changed.
    #[inline(never)]
    pub(super) fn open_at_once(
        &mut self,
        common: &mut Common,
        grant: &mut SendGrant,
        port: &mut dyn Port,
        named: Named,
        request: &mut Request,
        encoded: &Encoded,
    ) -> bool {
        const START: usize = HEADER_ROOM - SingleChunk::CALL_LEN;
        let (role, access) = match request.arguments {
            Items::None => (LeaseRole::Result, Access::RemoteWrite),
            Items::One(_) | Items::Several(_) => (LeaseRole::Argument, Access::RemoteRead),
        };
        let (Some(connection), Some(Found { exposed_leases, .. }), Some(length)) = (
            common.connections.get(grant.connection),
            self.calls.get_mut(named.slot),
            request.only().map(Local::len),
        ) else {
            return false;
        };
        let range = START..HEADER_ROOM + encoded.length;
        let plan_key = PlanKey::of_one(grant.connection, request.procedure, encoded, role, length);
        let Some(position) = plan_key.only_chunk(&mut self.planned, connection) else {
            return false;
        };
        let Some(lease) = request.take_only() else { return false };
        let (exposed, segment) = match port.open(lease, access) {
            Ok(open) => open,
            Err((closed, _)) => {
                match role {
                    LeaseRole::Argument => request.arguments = closed.into(),
                    _ => request.rooms = closed.into(),
                }
                return false;
            }
        };
        exposed_leases.begin_open(role, exposed, segment);
        let inv_handle =
            if common.abilities.promises.remote_invalidation { segment.handle } else { Handle(0) };
        let room = self.making.room().get_mut(range.clone()).unwrap_or_default();
        let patch = HeaderPatch { xid: named.xid, credit: grant.next_credit() };
        let asked = grant.asked(request.procedure);
        let written = put_call_headers_with(room, patch, inv_handle, position, &segment, asked);
        assert!(written.is_some(), "every send buffer has the room");
        exposed_leases.sent.keep(self.making.room(), encoded);
        let head = Head::written(range, None);
        let left = common.send_alone(grant.connection, &head, &mut self.making, port);
        grant.is_over = left == Left::Waits;
        true
    }

    /// Grants the peer credits for the `count` messages that arrived, sends the Calls that wait, and opens the send
    /// grant of the connection for `count` Calls, which leave by `port`. `None` if no Call can leave under it at once.
    #[inline(always)]
    pub(crate) fn open_grant(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        count: usize,
        port: &mut dyn Port,
    ) -> Option<SendGrant> {
        let touched = common.connections.touched();
        let mut connection = common.connections.get_mut(key)?;
        connection.give_credits(&mut common.receives, touched, count, 0);
        if connection.outbox.calls() > 0 {
            if connection.session.calls_go() == CallsGo::BothWays {
                // With few credits the peer's Calls need all that there are now.
                connection.replenish(&mut common.receives, 0, touched);
            }
            self.send_calls(common, key, port);
            connection = common.connections.get_mut(key)?;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        SendGrant::open(connection, key, count)
    }
}

/// How a Call goes to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Road {
    /// In one message without chunks, as its Reply does.
    Unchunked,
    /// Without chunks, and no Reply comes.
    CallOnly,
    /// By a plan: with chunks, or in parts.
    Chunked,
}

impl Road {
    /// Chooses the road of a Call. What is exposed for an earlier try of it stays exposed.
    #[inline]
    fn of(call: &MadeCall, connection: &Connection, encoded: &Encoded) -> Self {
        let unchunked_max = &connection.session.terms().unchunked_max;
        match connection.session.calls() {
            Some(binding)
                if !call.opens
                    && goes_unchunked(call.procedure, binding, unchunked_max, encoded) =>
            {
                Self::Unchunked
            }
            Some(binding) if is_call_only(call.procedure, binding) => Self::CallOnly,
            _ => Self::Chunked,
        }
    }
}

/// A Call that is about to leave: its connection, its slot, and its message without a transport header.
pub(super) struct Leaving {
    pub(super) key: ConnectionKey,
    pub(super) slot: usize,
    buffer: Local,
    pub(super) encoded: Encoded,
}

/// A Call that nothing keeps from leaving: it has its credits, and its memory is exposed.
pub(super) enum Ready {
    Unchunked,
    CallOnly(Format),
    Chunked(Exposures),
    Along(Along),
}

/// Checks that there are credits and buffers for all messages of a Call.
pub(super) fn may_leave(
    buffers: &SendBuffers,
    connection: &mut Connection,
    sending: &Sending,
) -> Result<(), Unready> {
    match connection.engine.may_post(sending) {
        Ok(()) if buffers.suffice(sending.format) => Ok(()),
        Ok(()) => Err(CallError::Busy.into()),
        Err(unsent) => Err(unsent.into()),
    }
}

/// Sends a message for which nothing is charged. Its buffer is free again unless the provider holds it.
fn leave(
    common: &mut Common,
    key: ConnectionKey,
    head: &Head<'_>,
    message: &mut Outgoing,
    port: &mut (impl Port + ?Sized),
) {
    common.leave(key, head, message, Charge::default(), port);
    message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
}

/// Sends all parts of a Call but the last, each with its part of `stream`. Returns a buffer with the last part, and the
/// length of the part.
fn send_parts(
    common: &mut Common,
    key: ConnectionKey,
    (patch, header_len): (HeaderPatch, usize),
    stream: &[u8],
    port: &mut (impl Port + ?Sized),
) -> (Local, usize) {
    let copy = |at: usize, to: &mut [u8]| to.copy_from_slice(&stream[at..at + to.len()]);
    //~ V2-6.3.6-1: `patch,` -> `patch: HeaderPatch { xid: patch.xid ^ 1, ..patch },`
    let parts = InParts { kind: Kind::Call, patch, header_len, length: stream.len() };
    common.send_parts(key, parts, copy, port)
}

/// Makes `length` octets of the Payload stream a Call with these chunks: writes its transport header.
fn seal(
    chunks: &CallChunks<'_>,
    version: Version,
    HeaderPatch { xid, credit }: HeaderPatch,
    (mut buffer, length): (Local, usize),
) -> (Head<'static>, Outgoing) {
    let start = HEADER_ROOM - chunks.wire_len(version);
    let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
    let written = chunks.encode(version, &mut Writer::new(room), xid, credit);
    assert!(written.is_ok(), "the header room holds the longest header");
    //~ R5666-4.1-7: `chunks.body.is_some()` ->
    //~   `chunks.body.is_some()
    //~   || version == haulage_proto::negotiate::Version::One && !chunks.writes.is_empty()`
    let payload = if chunks.body.is_some() { 0 } else { length };
    (Head::written(start..HEADER_ROOM + payload, None), Outgoing::within(buffer))
}

/// Why a Call that waits is there, and so is its connection.
pub(super) const IN_TABLE: &str = "a Call that is sent is in the table, and has its connection";

/// Describes a Call that is sent by a plan.
fn sending(plan: &CallPlan) -> Sending {
    let has_chunks = plan.call.is_some()
        || !plan.reads.is_empty()
        || !plan.writes.is_empty()
        || plan.reply.is_some();
    Sending { format: plan.format, has_chunks, ..Sending::CALL }
}

/// Returns whether a client takes such a Call of its server, before memory is exposed for it. `None` is a Call without a
/// plan, which may be for want of chunks.
#[cold]
fn announces(connection: &mut Connection, sending: Option<&Sending>) -> bool {
    match sending {
        Some(sending) => connection.engine.may_post(sending) != Err(Unsent::NotAnnounced),
        None => Terms::takes_chunks(connection.engine.engine(), Role::Server),
    }
}

/// Whether the front of a queue of Calls was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The Call at the front left the queue.
    Made,
    /// The Call at the front waits for credit as before.
    Waits,
}

impl From<Unsent> for Unready {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Wait => Self::Waits,
            unsent => Self::Failed(unsent.into()),
        }
    }
}

impl From<Unsent> for CallError {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            // [V2-7.1.3-3] repeat the error with which the peer refused the first Call of this format.
            Unsent::NotSupported => Self::Refused(Refusal::Two(ErrorBody::InvalHtype)),
            Unsent::NotAnnounced => Self::NotAnnounced,
            Unsent::TooLong { .. } => Self::Segments,
            _ => Self::Busy,
        }
    }
}
