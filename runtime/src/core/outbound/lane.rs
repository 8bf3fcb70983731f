//! The short way of a Call: at once, while messages of its connection are acted upon, or in its service's turn.
//!
//! # Normal operation
//! Who is told that a Call of theirs ended most often makes the next one, on the same connection, of a few
//! octets and without chunks. For a run of Replies it is settled once whether such Calls may leave, how many,
//! and with which credit word; each then is two headers from a template, its arguments, and a record of
//! itself. A service that makes Calls in its turn has a lane opened to the connection of the first, and to that of
//! each which is not on the connection of the one before. Whatever is in the way of that, the Call is queued as any
//! other.

use std::rc::Rc;

use haulage_mr_pool::Local;
use haulage_proto::exchange::BareMax;
use haulage_proto::negotiate::{
    Class, Grant, PlainHeaders, Version, bare_header_len, put_call_headers_with,
};
use haulage_proto::rpc::CallHeader;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::OneChunk;
use haulage_proto::verbs::{Access, Handle, Label};
use haulage_proto::xdr::{Truncated, Writer};

use super::exit::{Aim, Way};
use super::opened::What;
use super::send::{Outline, goes_bare};
use super::{Encoded, put_length};
use crate::core::connection::Connection;
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::templates::Bound;
use crate::identity::Identity;
use crate::limits::HEADER_ROOM;
use crate::provider::Port;
use crate::service::{Binding, Request, allows_to_reduce};

/// Where Calls leave at once, and how many may.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) connection: Key<Connection>,
    binding: Rc<Bound>,
    bare_max: BareMax,
    /// Octets of the longest Payload stream that leaves so.
    length_max: usize,
    /// How many may go, and with which credit word.
    grant: Grant,
}

impl Lane {
    /// Where in a send buffer these messages start.
    pub(super) const START: usize = HEADER_ROOM - TRANSPORT_LEN;

    /// Returns whether a Call is to try it here.
    #[inline]
    pub(crate) fn takes(&self, connection: Key<Connection>) -> bool {
        self.connection == connection && self.grant.has_more()
    }

    /// Returns whether this is the lane of a connection, whether it takes more Calls or not.
    pub(crate) fn is_of(&self, connection: Key<Connection>) -> bool {
        self.connection == connection
    }

    /// Returns whether a Call opens one lease, which it may.
    #[inline]
    pub(crate) fn opens(&self, request: &Request) -> bool {
        let is_one = request.argument.is_some() != request.result.is_some();
        is_one && allows_to_reduce(&self.binding, request)
    }

    /// Writes the arguments of a Call to where they belong in `message`, of one with a lease of its own the
    /// length; `None` if they do not fit.
    #[inline]
    pub(super) fn encode(
        message: &mut [u8],
        argument: Option<usize>,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Option<Encoded> {
        let arguments_at = CallHeader::PLAIN_LEN;
        let mut writer = Writer::new(message.get_mut(TRANSPORT_LEN + arguments_at..)?);
        encode(&mut writer).ok()?;
        put_length(&mut writer, argument).ok()?;
        Some(Encoded { arguments_at, length: arguments_at + writer.position() })
    }

    /// Writes what a Call begins with that does not leave at once.
    #[inline(never)]
    pub(super) fn put(&self, message: &mut [u8], (xid, procedure): (u32, u32)) {
        let Binding { program, version, .. } = **self.binding;
        let headers = PlainHeaders::Call([program, version, procedure]);
        let written = headers.put(message, Label { xid, credit: self.grant.word() });
        debug_assert!(written.is_some(), "every send buffer has the room");
    }

    /// Sends a Call that was encoded. Returns whether it left; else its headers are before its arguments.
    #[inline]
    pub(super) fn send(
        &mut self,
        outlet: &mut dyn Port,
        message: &mut [u8],
        named: (u32, u32),
        encoded: &Encoded,
    ) -> bool {
        let goes = encoded.length <= self.length_max
            && goes_bare(named.1, &self.binding, &self.bare_max, encoded)
            && message
                .get_mut(..TRANSPORT_LEN + encoded.length)
                .is_some_and(|message| self.leave(outlet, message, named));
        if goes {
            self.grant.spend();
        } else {
            self.put(message, named);
        }
        goes
    }

    /// Sends a Call that goes in one message, with a template if its procedure has one. Returns whether it left.
    #[inline]
    fn leave(
        &self,
        outlet: &mut dyn Port,
        message: &mut [u8],
        (xid, procedure): (u32, u32),
    ) -> bool {
        match self.binding.template(procedure) {
            Some(like) => {
                let label = Label { xid, credit: self.grant.word() };
                outlet.send_like(like, label, message).is_ok()
            }
            None => {
                self.put(message, (xid, procedure));
                outlet.send(message, None).is_ok()
            }
        }
    }
}

impl State {
    /// Opens the one lease of a Call that is encoded, and sends it on a lane, if no more than that is to be
    /// done. Returns whether it left, or is about to; else nothing has happened.
    #[inline(never)]
    pub(super) fn open_at_once(
        &mut self,
        (lane, outlet): Way<'_>,
        (slot, xid): (usize, u32),
        request: &mut Request,
        encoded: &Encoded,
    ) -> bool {
        const START: usize = HEADER_ROOM - OneChunk::CALL_LEN;
        let Self { connections, buffers, opened, planned, solicits, inline_max, .. } = self;
        let (what, access, lease) = match &mut request.argument {
            Some(_) => (What::Argument, Access::RemoteRead, &mut request.argument),
            None => (What::Result, Access::RemoteWrite, &mut request.result),
        };
        let (Some(connection), Some(buffer), Some(opened), Some(length)) = (
            connections.get(lane.connection),
            buffers.top(),
            opened.get_mut(slot),
            lease.as_ref().map(Local::len),
        ) else {
            return false;
        };
        let range = START..HEADER_ROOM + encoded.length;
        let named = (lane.connection, request.procedure);
        let outline = Outline::of_one(named, encoded, what, length);
        let position = match outline.only_chunk(planned, connection) {
            Some(position) if range.len() <= *inline_max => position,
            _ => return false,
        };
        let open = match lease.take() {
            Some(lease) => outlet.open(lease, access),
            None => return false,
        };
        let (exposed, segment) = match open {
            Ok(open) => open,
            Err((closed, _)) => {
                *lease = Some(closed);
                return false;
            }
        };
        opened.begin_open(what, exposed, segment);
        let inv_handle = if *solicits { segment.handle } else { Handle(0) };
        let Binding { program, version, .. } = **lane.binding;
        let asked = [program, version, request.procedure];
        let message = buffer.bytes_mut().get_mut(range.clone()).unwrap_or_default();
        let (named, chunk) = ((xid, lane.grant.word()), (position, &segment));
        let written = put_call_headers_with(message, named, inv_handle, chunk, asked);
        debug_assert!(written.is_some(), "every send buffer has the room");
        lane.grant.spend();
        if outlet.send(message, None).is_err()
            && let Some(buffer) = self.buffers.pop()
        {
            self.send(lane.connection, buffer, range, None, Default::default());
        }
        true
    }

    /// Gives a connection room for others than the `count` messages that came, and opens its lane to as many Calls,
    /// which leave by `outlet`. `None` if anything is in the way of all of them.
    #[inline(always)]
    pub(crate) fn open_lane(
        &mut self,
        key: Key<Connection>,
        count: usize,
        outlet: &mut dyn Port,
    ) -> Option<Lane> {
        let mut connection = self.connections.get_mut(key)?;
        connection.give_credits(&mut self.receives, self.dirty.len(), (count, 0));
        if !connection.calls.is_empty() {
            self.send_waiting_calls(key, outlet);
            connection = self.connections.get_mut(key)?;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        connection.open_lane(key, count, self.inline_max)
    }

    /// Opens a connection's lane to as many Calls as may leave, which do by `outlet`. `None` if anything is in the way.
    pub(crate) fn open_lane_by(
        &mut self,
        key: Key<Connection>,
        outlet: &mut dyn Aim,
    ) -> Option<Lane> {
        let connection = self.connections.get_mut(key)?;
        let lane = connection.open_lane(key, u32::MAX, self.inline_max)?;
        outlet.aim(connection.qp);
        self.touch(key);
        Some(lane)
    }

    /// Sends Calls that wait, which go before those of a lane.
    #[cold]
    fn send_waiting_calls(&mut self, key: Key<Connection>, outlet: &mut dyn Port) {
        self.send_bare_calls(key, outlet);
    }

    /// Notes how many Calls left on a lane.
    #[inline]
    pub(crate) fn close_lane(&mut self, lane: &Lane) {
        self.settle_grant(lane.connection, &lane.grant);
    }

    /// Gives back the credits of messages that did not leave.
    #[inline]
    pub(crate) fn settle_grant(&mut self, key: Key<Connection>, grant: &Grant) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.settle(grant);
            connection.rings |= grant.posted() > 0;
        }
    }
}

impl Connection {
    /// Opens the lane of the connection to at most `count` Calls. `None` if anything is in the way of all of them.
    #[inline(always)]
    fn open_lane(&mut self, key: Key<Self>, count: u32, inline_max: usize) -> Option<Lane> {
        let is_plain = self.terms.version == Version::Two
            && self.calls.is_empty()
            && self.queue.is_empty()
            && self.takes_calls()
            && self.identity == Identity::Nobody;
        if !is_plain {
            return None;
        }
        let grant = self.engine.lend(Class::Call, count);
        Some(Lane {
            connection: key,
            binding: Rc::clone(&self.binding),
            bare_max: self.terms.bare_max,
            length_max: inline_max.saturating_sub(TRANSPORT_LEN),
            grant,
        })
    }
}

/// Octets of the transport header of a Call on this way, which is of version 2 alone.
const TRANSPORT_LEN: usize = bare_header_len(Version::Two, Kind::Call);
