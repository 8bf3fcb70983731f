//! The Requester: a Call of ours from its arguments to its results.
//!
//! # Normal operation
//! The arguments are encoded into a send buffer at once, behind the room for the transport header. When credit allows,
//! the Call is planned by the terms of its connection: its chunks are registered under fresh handles, the header is
//! written in front of the arguments, and registrations and message leave with one doorbell. Nothing in a Reply is
//! trusted: the chunks that it returns are checked against our own record of the chunks offered.
//!
//! # Memory ownership
//! An exposed lease comes back only against proof that its handle is dead: the Reply's own Remote Invalidation for one
//! of the leases, a LocalInv for the others, or the end of the connection. The caller gets the results only then.
//!
//! # Recovery
//! A Call that is given up (P10) releases its caller at once. Its leases stay exposed, owned by the slot, until the
//! Reply or the end of the connection; they are taken back sooner, after a grace, if memory is short. The slot is not
//! used again until the Reply or the end of the connection.

use std::rc::Rc;

use haulage_proto::exchange::Format;
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::CallHeader;
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::{Truncated, Writer};

use self::calls::{Found, MadeCalls, Named};
use self::encoded::Encoded;
use self::further::check_places;
use self::plan::Planned;
use super::buffers::SendBuffers;
use super::common::Common;
use super::outbox::Left;
use crate::key::ConnectionKey;
use crate::limits::{HEADER_ROOM, Limits};
use crate::provider::{Head, Outgoing, Port};
use crate::service::{self, Binding, CallError, Request};

mod again;
mod aim;
mod along;
mod call_only;
mod calls;
mod directed;
mod encoded;
mod exit;
mod exposed_leases;
mod exposures;
mod further;
mod lease;
mod plan;
mod read;
mod retries;
mod send;
mod send_grant;
mod way;

pub(crate) use aim::Direct;
pub(crate) use calls::{Caller, EndedCall, NewCall, Placed};
pub(crate) use exit::Exit;
pub(crate) use send_grant::SendGrant;

/// The Calls that this core makes.
#[derive(Debug)]
pub(crate) struct Requester {
    /// The Calls that have not ended.
    pub(crate) calls: MadeCalls,
    /// The plan of the last Call that exposed memory.
    planned: Option<Planned>,
    /// The Call that is made next. It keeps the send buffer of the last one that was copied.
    making: Outgoing,
}

impl Requester {
    /// Makes the tables of an idle core. The XIDs of its Calls come from `seed`.
    pub(crate) fn new(limits: &Limits, seed: u64) -> Self {
        Self { calls: MadeCalls::new(limits, seed), planned: None, making: Outgoing::default() }
    }

    /// Queues a Call and takes the leases of `request`. Returns the slot of the Call. If the Call cannot be queued, the
    /// leases stay in `request`.
    pub(crate) fn call(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        new: NewCall,
        request: &mut Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<usize, CallError> {
        let Common { connections, buffers, .. } = common;
        let connection = connections.get(key).filter(|found| found.takes_calls());
        let called = connection.and_then(|found| Some((found, found.session.calls()?)));
        let Some((connection, binding)) = called else {
            return Err(connections.why_ended(key));
        };
        // [V2-4.4.2-2] only items that the binding allows are reduced.
        let opens = request.opens();
        if opens && !service::allows_to_reduce(binding, request) {
            return Err(CallError::NotEligible);
        }
        if !self.has_buffer(buffers) {
            return Err(CallError::Busy);
        }
        let Some(named) = self.calls.open() else { return Err(CallError::Busy) };
        let Binding { program, version, .. } = ***binding;
        let header = CallHeader::new(named.xid, program, version, new.procedure);
        let argument = request.last_length();
        let room = self.making.room();
        let encoded = Encoded::write(room, header, connection.session.identity(), encode, argument);
        let Ok(encoded) = encoded else {
            self.calls.forget(named.slot);
            return Err(CallError::TooLong);
        };
        if !request.arguments.is_empty() && request.only().is_none() {
            let stream = room.get(HEADER_ROOM..HEADER_ROOM + encoded.length).unwrap_or_default();
            let placed = check_places(request.arguments.as_slice(), &encoded, stream);
            if let Err(error) = placed {
                self.calls.forget(named.slot);
                return Err(error);
            }
        }
        let version = connection.session.terms().version;
        common.counters.count_made(connection.role());
        self.calls.enter(common, named, key, version, &new).opens = opens;
        self.set_out(common, named.slot, Some(request), encoded);
        Ok(named.slot)
    }

    /// Sends a Call without leases at once under the send grant of its connection, or queues it if it is too long for
    /// that.
    #[inline]
    pub(crate) fn call_at_once(
        &mut self,
        common: &mut Common,
        grant: &mut SendGrant,
        port: &mut dyn Port,
        new: NewCall,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), CallError> {
        let (named, encoded) = if grant.is_plain {
            self.begin(common, |_, room| SendGrant::encode(room, None, encode))?
        } else {
            self.begin_in_full(common, grant, new.procedure, None, encode)?
        };
        common.counters.count_made(grant.role);
        self.calls.enter(common, named, grant.connection, grant.version, &new);
        if grant.is_plain
            && grant.takes_unchunked(new.procedure, &encoded)
            && let Some(template) = grant.binding.template(new.procedure)
        {
            // Making the head only here writes it to memory once: as the argument of `send_alone`.
            let patch = HeaderPatch { xid: named.xid, credit: grant.credits.word() };
            let head = Head::like(encoded.message(Version::Two), template, patch);
            grant.credits.spend();
            let left = common.send_alone(grant.connection, &head, &mut self.making, port);
            grant.is_over = left == Left::Waits;
        } else {
            grant.put_header(&mut self.making, named.xid, new.procedure);
            self.leave(common, grant, port, (named, new.procedure), encoded);
        }
        Ok(())
    }

    /// Sends a Call that has its RPC header, or queues it if it needs chunks.
    #[inline(never)]
    fn leave(
        &mut self,
        common: &mut Common,
        grant: &mut SendGrant,
        port: &mut dyn Port,
        (Named { slot, xid }, procedure): (Named, u32),
        encoded: Encoded,
    ) {
        let (key, making) = (grant.connection, &mut self.making);
        if !grant.takes_unchunked(procedure, &encoded) {
            return self.set_out(common, slot, None, encoded);
        }
        let patch = HeaderPatch { xid, credit: grant.next_credit() };
        let head = encoded.complete(making, grant.version, patch);
        let left = common.send_alone(key, &head, making, port);
        grant.is_over = left == Left::Waits;
    }

    /// Sends a Call with one lease, of an argument or for a result, at once under the send grant of its connection, or
    /// queues it if it needs more than the exposure of that lease.
    #[inline(always)]
    pub(crate) fn call_opening_at_once(
        &mut self,
        common: &mut Common,
        grant: &mut SendGrant,
        port: &mut dyn Port,
        new: NewCall,
        request: &mut Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), CallError> {
        let argument = request.last_length();
        let (named, encoded) = if grant.is_plain {
            self.begin(common, |_, room| SendGrant::encode(room, argument, encode))?
        } else {
            self.begin_in_full(common, grant, new.procedure, argument, encode)?
        };
        common.counters.count_made(grant.role);
        self.calls.enter(common, named, grant.connection, grant.version, &new).opens = true;
        let octets = argument.map_or(0, |octets| octets + encoded.length);
        let goes_along = octets > 0 && octets <= grant.placing_max;
        let has_left = grant.is_plain
            && !grant.is_queued(octets)
            && (goes_along && self.along_at_once(common, grant, port, (named, &encoded), request)
                || self.open_at_once(common, grant, port, named, request, &encoded));
        if !has_left {
            grant.put_header(&mut self.making, named.xid, new.procedure);
            self.set_out(common, named.slot, Some(request), encoded);
        }
        Ok(())
    }

    /// Notes that the peer does not support the header type of a Call: no Call of that format leaves on this connection
    /// again.
    pub(crate) fn on_not_supported(&mut self, common: &mut Common, key: ConnectionKey, xid: u32) {
        let slot = self.calls.find_answered(key, xid);
        let Some(found) = slot.and_then(|slot| self.calls.get_mut(slot)) else { return };
        let Found { call, exposed_leases, .. } = found;
        let Some(connection) = common.connections.get_mut(key) else { return };
        if call.opens && exposed_leases.is_along {
            return connection.session.stop_placing();
        }
        let format = if call.opens { exposed_leases.format() } else { Format::Simple };
        connection.engine.not_supported(format);
    }

    /// Names a Call that is to leave under a send grant, and has `encode` write it into its buffer.
    #[inline(always)]
    fn begin(
        &mut self,
        common: &mut Common,
        encode: impl FnOnce(Named, &mut [u8]) -> Option<Encoded>,
    ) -> Result<(Named, Encoded), CallError> {
        if !self.has_buffer(&mut common.buffers) {
            return Err(CallError::Busy);
        }
        let Some(named) = self.calls.open() else { return Err(CallError::Busy) };
        let Some(encoded) = encode(named, self.making.room()) else {
            self.calls.forget(named.slot);
            return Err(CallError::TooLong);
        };
        Ok((named, encoded))
    }

    /// Names a Call that begins with no template, and encodes it with its RPC header.
    #[inline(never)]
    fn begin_in_full(
        &mut self,
        common: &mut Common,
        grant: &SendGrant,
        procedure: u32,
        argument: Option<usize>,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(Named, Encoded), CallError> {
        let [program, version, procedure] = grant.asked(procedure);
        let connection = common.connections.get(grant.connection);
        let identity =
            connection.map(|found| Rc::clone(found.session.identity())).unwrap_or_default();
        self.begin(common, |named, room| {
            let header = CallHeader::new(named.xid, program, version, procedure);
            Encoded::write(room, header, &identity, encode, argument).ok()
        })
    }

    /// Returns whether there is a buffer for the next Call.
    #[inline]
    fn has_buffer(&mut self, buffers: &mut SendBuffers) -> bool {
        if !self.making.owns_buffer() {
            let Some(buffer) = buffers.pop() else { return false };
            self.making.fill(buffer);
        }
        true
    }

    /// Queues the Call that was made, and takes the leases of its request.
    #[inline(never)]
    fn set_out(
        &mut self,
        common: &mut Common,
        slot: usize,
        request: Option<&mut Request>,
        encoded: Encoded,
    ) {
        let (Some(buffer), Some(mut found)) = (self.making.take_buffer(), self.calls.get_mut(slot))
        else {
            panic!("the Call has a slot, and is in the buffer");
        };
        if let Some(request) = request.filter(|_| found.call.opens) {
            found.exposed_leases.begin(request.arguments.take(), request.rooms.take());
        }
        found.queue(buffer, encoded);
        let key = found.call.connection;
        if let Some(connection) = common.connections.get_mut(key) {
            connection.outbox.push_call(slot);
        }
        common.connections.touch(key);
    }

    /// Returns whether it has a buffer for the next Call.
    #[cfg(test)]
    pub(in crate::core) const fn has_made_room(&self) -> bool {
        self.making.owns_buffer()
    }

    /// Forgets the stored plan, because terms have changed.
    pub(crate) fn forget_plans(&mut self) {
        self.planned = None;
    }
}
