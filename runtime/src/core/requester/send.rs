//! Sends a Call of ours: plans it, exposes its memory, and writes its header, all at the moment it leaves.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::{Class, Refusal, put_call_headers_with};
use haulage_proto::v2::connection::{Role, Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::verbs::{Access, Handle, HeaderPatch};
use haulage_proto::xdr::Writer;

use super::Requester;
use super::calls::{Found, Named};
use super::encoded::Encoded;
use super::exposures::Unopened;
use super::lease::LeaseRole;
use super::plan::{PlanKey, goes_unchunked, is_call_only};
use super::send_grant::SendGrant;
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

    /// Registers the memory that a Call exposes, and sends the Call or queues it for the next doorbell. One without
    /// credit returns to the front of its connection's queue.
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
        let Some((mut buffer, mut encoded)) = found.unqueue() else {
            panic!("a Call waits with its message");
        };
        let call = &mut *found.call;
        let (version, xid) = (connection.session.terms().version, call.xid);
        call.version = version;
        let unchunked_max = &connection.session.terms().unchunked_max;
        if !call.opens
            && let Some(binding) = connection.session.calls()
            && goes_unchunked(call.procedure, binding, unchunked_max, &encoded)
        {
            let credit = match connection.engine.try_post(&Sending::CALL) {
                Ok(credit) => credit,
                Err(Unsent::Wait) => {
                    found.queue(buffer, encoded);
                    connection.outbox.put_back_call(slot);
                    return Progress::Waits;
                }
                Err(unsent) => {
                    common.buffers.recycle(buffer);
                    self.calls.fail(common, slot, unsent.into());
                    return Progress::Made;
                }
            };
            let patch = HeaderPatch { xid, credit };
            let binding = Rc::clone(binding);
            // A message that leaves together with others begins with a template.
            let has_template =
                connection.outbox.is_one_of_many() && connection.session.has_templates();
            let template = if has_template { binding.template(call.procedure) } else { None };
            let mut message = Outgoing::within(buffer);
            let head = match template {
                Some(template) => Head::like(encoded.message(version), template, patch),
                None => encoded.complete(&mut message, version, patch),
            };
            common.leave(key, &head, &mut message, Charge::default(), port);
            message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
            return Progress::Made;
        }
        let binding = connection.session.calls();
        if binding.is_some_and(|binding| is_call_only(call.procedure, binding)) {
            return self.send_call_only(common, key, slot, (buffer, encoded), port);
        }
        let exposed_leases = &mut *found.exposed_leases;
        if !std::mem::replace(&mut call.opens, true) {
            exposed_leases.begin(Items::None, Items::None);
        }
        let plan_key = PlanKey::of(key, call.procedure, &encoded, exposed_leases);
        let again = found.kept.again.as_ref().and_then(|again| again.plan(xid));
        let plan = match again {
            Some(plan) => Ok(plan),
            None => {
                exposed_leases.sent.keep(buffer.bytes(), &encoded);
                plan_key
                    .plan(&mut self.planned, connection, exposed_leases.further.any())
                    .map_err(Unopened::Failed)
            }
        };
        let sending = plan.as_ref().map_or(Sending::CALL, |plan| sending(plan));
        if connection.role() == Role::Server
            && !announces(connection, plan.is_ok().then_some(&sending))
        {
            common.buffers.recycle(buffer);
            self.calls.fail(common, slot, CallError::NotAnnounced);
            return Progress::Made;
        }
        if let Format::Continued { .. } = sending.format {
            // Nothing is exposed before there are credits and buffers for all messages.
            let has_buffers = common.buffers.suffice(sending.format);
            match connection.engine.may_post(&sending) {
                Ok(()) if has_buffers => {}
                Err(Unsent::Wait) => {
                    found.queue(buffer, encoded);
                    connection.outbox.put_back_call(slot);
                    return Progress::Waits;
                }
                posted => {
                    connection.engine.give_up(Kind::Call);
                    common.buffers.recycle(buffer);
                    let error = posted.err().map_or(CallError::Busy, CallError::from);
                    self.calls.fail(common, slot, error);
                    return Progress::Made;
                }
            }
        }
        let chunks = plan.and_then(|plan| {
            exposed_leases.place(plan, &common.pool, &mut buffer, &mut encoded)?;
            exposed_leases.expose(plan, port)
        });
        // Registrations leave with the doorbell, whatever becomes of the Call.
        connection.outbox.ring();
        let sent = chunks.and_then(|chunks| {
            let credit = connection.engine.try_post(&sending).map_err(CallError::from)?;
            Ok((chunks, credit))
        });
        let (chunks, credit) = match sent {
            Ok(sent) => sent,
            // The Call waits, as if it had been sent, for the end of the connection, which is about to be reported.
            Err(Unopened::Gone) => {
                common.buffers.recycle(buffer);
                return Progress::Made;
            }
            Err(Unopened::Failed(error)) => {
                common.buffers.recycle(buffer);
                self.calls.fail(common, slot, error);
                return Progress::Made;
            }
        };
        let inv_handle = if common.abilities.promises.remote_invalidation {
            exposed_leases.solicited()
        } else {
            Handle(0)
        };
        let mut length = encoded.length;
        if let Format::Continued { .. } = chunks.format {
            let header_len =
                chunks.with(exposed_leases, inv_handle, |chunks| chunks.wire_len(version));
            let stream = exposed_leases.stream();
            let copy = |at: usize, to: &mut [u8]| to.copy_from_slice(&stream[at..at + to.len()]);
            //~ V2-6.3.6-1: `xid,` -> `xid: xid ^ 1,`
            let patch = HeaderPatch { xid, credit };
            let parts = InParts { kind: Kind::Call, patch, header_len, length: stream.len() };
            let (last, rest) = common.send_parts(key, parts, copy, port);
            common.buffers.recycle(std::mem::replace(&mut buffer, last));
            length = rest;
        }
        let range = chunks.with(exposed_leases, inv_handle, |chunks| {
            let start = HEADER_ROOM - chunks.wire_len(version);
            let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
            let written = chunks.encode(version, &mut Writer::new(room), xid, credit);
            assert!(written.is_ok(), "the header room holds the longest header");
            //~ R5666-4.1-7: `chunks.body.is_some()` ->
            //~   `chunks.body.is_some()
            //~   || version == haulage_proto::negotiate::Version::One && !chunks.writes.is_empty()`
            let payload = if chunks.body.is_some() { 0 } else { length };
            start..HEADER_ROOM + payload
        });
        let mut message = Outgoing::within(buffer);
        let head = Head::written(range, None);
        common.leave(key, &head, &mut message, Charge::default(), port);
        message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
        Progress::Made
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
