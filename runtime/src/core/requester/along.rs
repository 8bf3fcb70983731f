//! Calls whose arguments go along with their messages (round-trip extensions, Send-based placement).
//!
//! # Normal operation
//! A short argument is copied behind the headers and the Payload stream, to where the parts of the peer's Receives begin
//! that may have data items. The peer reads nothing then, and nothing is exposed: the Call takes one round trip, and its
//! leases are the caller's as soon as the Reply has come.
//!
//! # Recovery
//! A Call that the peer refuses for its form goes again by chunks, and so do all others on the connection
//! (rtrext-03 section 5.4).

use haulage_mr_pool::Local;
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::{Engine, Refusal};
use haulage_proto::rtrext::plan::SingleTransmission;
use haulage_proto::rtrext::report::{MessageType, Report};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::Writer;

use super::Requester;
use super::calls::{Found, Named};
use super::encoded::Encoded;
use super::exposed_leases::ExposedLeases;
use super::lease::{CallLease, LeaseRole};
use super::plan::PlanKey;
use super::send_grant::SendGrant;
use crate::core::buffers::SendBuffers;
use crate::core::common::Common;
use crate::core::connection::Connection;
use crate::core::outbox::Left;
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::provider::{Head, Outgoing, Port};
use crate::service::Request;

/// A message with the arguments of its Call, for which there is memory.
pub(super) struct Along {
    plan: SingleTransmission,
    /// The place of each item among the arguments of the Call.
    indices: Items<usize>,
    room: Local,
}

impl Along {
    /// Plans the message of a Call that has these chunks otherwise. `None` if its arguments do not go along with it: there is a
    /// chunk for something else, the peer does not take them, or all buffers for such messages are in use.
    pub(super) fn of(
        plan: &CallPlan,
        encoded: &Encoded,
        connection: &Connection,
        buffers: &mut SendBuffers,
    ) -> Option<Self> {
        let most = connection.session.terms().placing_max;
        let octets = plan.reads.iter().map(|read| read.length as usize).sum::<usize>();
        let is_for_arguments = plan.format == Format::Simple
            && !plan.reads.is_empty()
            && plan.writes.is_empty()
            && plan.reply.is_none();
        if !is_for_arguments || octets + encoded.length > most {
            return None;
        }
        let Engine::Two(two) = connection.engine.engine() else { return None };
        let terms = two.extension()?.terms()?;
        let items = plan.reads.iter().map(|read| (read.position, read.length));
        let indices = plan.reads.iter().map(|read| read.index).collect();
        let plan = SingleTransmission::new(terms, encoded.length, items).ok()?;
        let room = buffers.pop_for(HEADER_ROOM + plan.length())?;
        Some(Self { plan, indices, room })
    }

    /// Writes the message: its headers, the Payload stream, which is in `buffer`, and the arguments.
    pub(super) fn seal(
        mut self,
        leases: &mut ExposedLeases,
        buffer: &[u8],
        encoded: &Encoded,
        HeaderPatch { xid, credit }: HeaderPatch,
    ) -> (Head<'static>, Outgoing) {
        leases.is_along = true;
        let octets = leases.arguments().map(|argument| match argument {
            CallLease::Local(argument) => argument.bytes(),
            CallLease::None | CallLease::Exposed(_) => &[],
        });
        let octets: Items<&[u8]> = octets.collect();
        let items = self.indices.iter().filter_map(|index| octets.as_slice().get(*index).copied());
        let payload = HEADER_ROOM..HEADER_ROOM + encoded.length;
        let payload = buffer.get(payload).unwrap_or_default();
        let range = HEADER_ROOM..HEADER_ROOM + self.plan.length();
        let room = self.room.bytes_mut().get_mut(range.clone()).unwrap_or_default();
        let written = self.plan.encode(&mut Writer::new(room), (xid, credit), payload, items);
        assert!(written.is_ok(), "the room is as long as the plan says");
        (Head::written(range, None), Outgoing::within(self.room))
    }

    /// Gives the memory back.
    pub(super) fn give_up(self, buffers: &mut SendBuffers) {
        buffers.recycle(self.room);
    }

    /// Returns the octets of the arguments.
    pub(super) fn octets(&self) -> u64 {
        self.plan.items().map(u64::from).sum()
    }

    /// Returns the number of arguments.
    pub(super) const fn count(&self) -> usize {
        self.indices.len()
    }
}

impl Requester {
    /// Sends an encoded Call with one argument under a send grant, if the argument goes along with the message. Returns whether
    /// the Call left or is queued; if not, nothing has changed.
    #[inline(never)]
    pub(super) fn along_at_once(
        &mut self,
        common: &mut Common,
        grant: &mut SendGrant,
        port: &mut dyn Port,
        (named, encoded): (Named, &Encoded),
        request: &mut Request,
    ) -> bool {
        let (Some(connection), Some(length)) =
            (common.connections.get(grant.connection), request.last_length())
        else {
            return false;
        };
        let (key, role) = (grant.connection, LeaseRole::Argument);
        let plan_key = PlanKey::of_one(key, request.procedure, encoded, role, length);
        let Ok(plan) = plan_key.plan(&mut self.planned, connection, None) else { return false };
        let Some(along) = Along::of(plan, encoded, connection, &mut common.buffers) else {
            return false;
        };
        grant.put_header(&mut self.making, named.xid, request.procedure);
        let Some(Found { exposed_leases, .. }) = self.calls.get_mut(named.slot) else {
            panic!("a Call that is made has its slot");
        };
        exposed_leases.begin(request.arguments.take(), request.rooms.take());
        exposed_leases.sent.keep(self.making.room(), encoded);
        common.counters.arguments_sent_along += 1;
        common.counters.bytes_along += along.octets();
        let patch = HeaderPatch { xid: named.xid, credit: grant.next_credit() };
        let (head, mut message) = along.seal(exposed_leases, self.making.room(), encoded, patch);
        let left = common.send_alone(key, &head, &mut message, port);
        message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
        grant.is_over = left == Left::Waits;
        true
    }

    /// Takes in that the peer refused the messages of Calls whose arguments came along: these go again by chunks.
    #[cold]
    pub(crate) fn on_reported(&mut self, common: &mut Common, key: ConnectionKey, report: &Report) {
        for (direction, xid) in report.messages() {
            if direction == MessageType::Call {
                self.on_not_supported(common, key, xid);
                self.on_refused(common, key, xid, Refusal::Two(ErrorBody::InvalHtype));
            }
        }
    }
}
