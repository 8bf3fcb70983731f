//! Send grants: Calls leave at once, while messages of their connection are handled, or in their service's turn.
//!
//! # Normal operation
//! A caller that learns of a Reply usually makes its next Call at once: short, without chunks, on the same connection.
//! For a run of Replies the core settles once whether Calls may leave at once, how many, and with which credit word.
//! Each Call then takes two headers from a template, its arguments, and its entry in the table. A service that makes
//! Calls in its turn opens a send grant of the connection of the first Call, and another one whenever a Call is on
//! another connection than the one before. A Call that cannot leave under a send grant is queued.

use std::rc::Rc;

use haulage_proto::exchange::UnchunkedMax;
use haulage_proto::negotiate::{Class, CreditGrant, PlainHeaders, Version, unchunked_header_len};
use haulage_proto::rpc::CallHeader;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::{Truncated, Writer};

use super::aim::Aim;
use super::encoded::{Encoded, put_length};
use super::plan::goes_unchunked;
use crate::core::common::Common;
use crate::core::connection::{Connection, Terms};
use crate::core::templates::Bound;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::provider::Outgoing;
use crate::service::{Binding, Request, allows_to_reduce};

/// The permission for Calls to leave on a connection at once.
#[derive(Debug)]
pub(crate) struct SendGrant {
    pub(super) connection: ConnectionKey,
    /// Our role.
    pub(super) role: Role,
    pub(super) version: Version,
    /// Whether the Calls are of version 2 and carry AUTH_NONE: then they may begin with a template.
    pub(super) is_plain: bool,
    /// Whether other messages of the connection have to leave first.
    pub(super) is_over: bool,
    pub(super) binding: Rc<Bound>,
    unchunked_max: UnchunkedMax,
    /// Octets of the longest message of a Call whose argument comes along with it.
    pub(super) placing_max: usize,
    /// Octets of the longest Call whose argument comes along in several messages.
    grouping_max: usize,
    /// Whether Calls may direct how their results come, which none does under a grant.
    directs: bool,
    /// The credits of these Calls, and their credit word.
    pub(super) credits: CreditGrant,
}

impl SendGrant {
    /// Opens the send grant of a connection for at most `count` Calls. `None` if no Call can leave under it at once.
    #[inline(always)]
    pub(super) fn open(
        connection: &mut Connection,
        key: ConnectionKey,
        count: u32,
    ) -> Option<Self> {
        let leaves = connection.life.is_ready()
            && connection.outbox.calls() == 0
            && connection.outbox.requests() == 0;
        let binding = connection.session.calls().filter(|_| leaves).map(Rc::clone)?;
        let grant = connection.engine.lend(Class::Call, count);
        let Terms { version, unchunked_max, placing_max, grouping_max, directs, .. } =
            *connection.session.terms();
        Some(Self {
            connection: key,
            role: connection.role(),
            version,
            is_plain: connection.session.has_templates(),
            is_over: false,
            binding,
            unchunked_max,
            placing_max,
            grouping_max,
            directs,
            credits: grant,
        })
    }

    /// Returns whether a Call may go in several messages, as it has this length with its argument, or direct how its result
    /// comes, as it has no argument: none does under a grant.
    pub(super) const fn is_queued(&self, octets: usize) -> bool {
        if octets == 0 {
            self.directs
        } else {
            octets > self.placing_max && octets <= self.grouping_max
        }
    }

    /// Opens the send grant of a connection for as many Calls as its credits allow, and aims `port` at the connection.
    /// `None` if no Call can leave under it at once.
    pub(crate) fn open_by(
        common: &mut Common,
        key: ConnectionKey,
        port: &mut dyn Aim,
    ) -> Option<Self> {
        let connection = common.connections.get_mut(key)?;
        let grant = Self::open(connection, key, u32::MAX)?;
        port.aim(connection.qp());
        common.connections.touch(key);
        Some(grant)
    }

    /// Closes the send grant: gives back the credits of Calls that did not leave.
    #[inline]
    pub(crate) fn close(&self, common: &mut Common) {
        common.settle_grant(self.connection, &self.credits);
    }

    /// Returns whether a Call on `connection` may try to leave under this send grant.
    #[inline]
    pub(crate) fn takes(&self, connection: ConnectionKey) -> bool {
        self.connection == connection && !self.is_over && self.credits.has_more()
    }

    /// Returns whether this is the send grant of a connection, whether it takes more Calls or not.
    pub(crate) fn is_of(&self, connection: ConnectionKey) -> bool {
        self.connection == connection
    }

    /// Returns whether a Call exposes exactly one lease, and the binding allows that.
    #[inline]
    pub(crate) fn opens(&self, request: &Request) -> bool {
        let is_one = request.only().is_some();
        is_one && allows_to_reduce(&self.binding, request)
    }

    /// Writes the arguments of a plain Call to their place in `buffer`; of an argument with a lease of its own, only the
    /// length. `None` if they do not fit.
    #[inline]
    pub(super) fn encode(
        buffer: &mut [u8],
        argument: Option<usize>,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Option<Encoded> {
        let arguments_at = CallHeader::PLAIN_LEN;
        let mut writer = Writer::new(buffer.get_mut(HEADER_ROOM + arguments_at..)?);
        encode(&mut writer).ok()?;
        put_length(&mut writer, argument).ok()?;
        Some(Encoded { arguments_at, length: arguments_at + writer.position() })
    }

    /// Returns the program, version and procedure that the Calls of a procedure name.
    #[inline]
    pub(super) fn asked(&self, procedure: u32) -> [u32; 3] {
        let Binding { program, version, .. } = **self.binding;
        [program, version, procedure]
    }

    /// Takes the credit of the next Call. Returns its credit word.
    #[inline]
    pub(super) fn next_credit(&mut self) -> u32 {
        let word = self.credits.word();
        self.credits.spend();
        word
    }

    /// Writes the RPC header of a Call in front of its arguments, unless it is there already.
    #[inline(never)]
    pub(super) fn put_header(&self, making: &mut Outgoing, xid: u32, procedure: u32) {
        if !self.is_plain {
            return;
        }
        let headers = PlainHeaders::Call(self.asked(procedure));
        let room = making.room().get_mut(START..).unwrap_or_default();
        let written = headers.put(room, HeaderPatch { xid, credit: self.credits.word() });
        assert!(written.is_some(), "every send buffer has the room");
    }

    /// Returns whether an encoded Call leaves without chunks.
    #[inline]
    pub(super) fn takes_unchunked(&self, procedure: u32, encoded: &Encoded) -> bool {
        goes_unchunked(procedure, &self.binding, &self.unchunked_max, encoded)
    }
}

/// Where in a send buffer the message of a Call without chunks in version 2 starts.
const START: usize = HEADER_ROOM - unchunked_header_len(Version::Two, Kind::Call);
