//! Calls by the round-trip extensions: their arguments go along with their messages (Send-based placement), and they direct
//! how their results come.
//!
//! # Normal operation
//! A short argument is copied behind the headers and the Payload stream, to where the parts of the peer's Receives begin
//! that may have data items. The peer reads nothing then, and nothing is exposed: the Call takes one round trip, and its
//! leases are the caller's as soon as the Reply has come. A longer one goes in several messages (a group of transmissions),
//! if there are credits and buffers for all of them now.
//!
//! # Recovery
//! A Call that the peer refuses for its form goes again by chunks, and so do all others on the connection
//! (rtrext-03 section 5.4).

use haulage_mr_pool::Local;
use haulage_proto::exchange::{CallPlan, Format};
use haulage_proto::negotiate::{Engine, Refusal};
use haulage_proto::rtrext::item::Item;
use haulage_proto::rtrext::plan::{
    Content, Directive, Kind as MessageKind, Outgoing as Message, Plan, SingleTransmission, Source,
};
use haulage_proto::rtrext::properties::Terms;
use haulage_proto::rtrext::report::{MessageType, Report};
use haulage_proto::v2::connection::Sending;
use haulage_proto::v2::continuation::Kind as MessageOf;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Handle, HeaderPatch, Segment};
use haulage_proto::xdr::Writer;

use super::Requester;
use super::calls::{Found, Named};
use super::directed::ways;
use super::encoded::Encoded;
use super::exposed_leases::ExposedLeases;
use super::lease::{CallLease, LeaseRole};
use super::plan::PlanKey;
use super::send_grant::SendGrant;
use super::way::{Way, Ways};
use crate::core::buffers::SendBuffers;
use crate::core::common::Common;
use crate::core::connection::Connection;
use crate::core::counters::CoreCounters;
use crate::core::outbox::Left;
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Outgoing, Port};
use crate::service::Request;

/// The messages of a Call with its arguments, for which there are buffers.
pub(super) struct Along {
    plan: Planned,
    /// The place of each item among the arguments of the Call.
    indices: Items<usize>,
    /// A buffer for each message.
    rooms: Items<Local>,
}

/// How the arguments of a Call go along.
enum Planned {
    /// In one message that gives no directions.
    Single(SingleTransmission),
    /// In several messages, or in one that gives directions.
    Group(Box<PlannedGroup>),
}

/// A Call in several messages, or with directions.
struct PlannedGroup {
    plan: Plan,
    items: Vec<Item<Source>>,
    ways: Ways,
    /// Octets of the Payload stream.
    payload: usize,
}

impl Along {
    /// Plans the messages of a Call of this procedure that has these chunks otherwise. `None` if it goes by chunks: there is a
    /// chunk for something else, the peer does not take its arguments or its directions, there are no credits for several
    /// messages, or all buffers for such messages are in use.
    pub(super) fn of(
        plan: &CallPlan,
        (procedure, encoded): (u32, &Encoded),
        connection: &mut Connection,
        buffers: &mut SendBuffers,
    ) -> Option<Self> {
        if !plan.writes.is_empty() && plan.format == Format::Simple {
            let ways = ways(plan, procedure, connection)?;
            return Self::in_several(plan, (encoded, ways), connection, buffers);
        }
        let octets = octets(plan)? + encoded.length;
        let terms = connection.session.terms();
        if octets <= terms.placing_max
            && let Some(along) = Self::in_one(plan, encoded, connection, buffers)
        {
            return Some(along);
        }
        let may_be_several = octets <= terms.grouping_max;
        let encoded = (encoded, Ways::default());
        may_be_several.then(|| Self::in_several(plan, encoded, connection, buffers)).flatten()
    }

    /// Plans the only message of a Call. `None` if its arguments do not go along with it.
    fn in_one(
        plan: &CallPlan,
        encoded: &Encoded,
        connection: &Connection,
        buffers: &mut SendBuffers,
    ) -> Option<Self> {
        octets(plan)?;
        let items = plan.reads.iter().map(|read| (read.position, read.length));
        let single = SingleTransmission::new(terms(connection)?, encoded.length, items).ok()?;
        let room = buffers.pop_for(HEADER_ROOM + single.length())?;
        let plan_of = Planned::Single(single);
        Some(Self { plan: plan_of, indices: indices(plan), rooms: Items::One(room) })
    }

    /// Plans the messages of a Call that does not fit one, or that gives directions. There are credits for all of them now.
    #[cold]
    fn in_several(
        plan: &CallPlan,
        (encoded, ways): (&Encoded, Ways),
        connection: &mut Connection,
        buffers: &mut SendBuffers,
    ) -> Option<Self> {
        let items = plan.reads.iter().map(|read| Item {
            //~ RTR-7.3-1: `read.position` -> `read.position + 4`
            disp: read.position,
            length: read.length,
            place: Source::Send,
        });
        let (items, payload) = (items.collect::<Vec<_>>(), encoded.length);
        // Segments are as long, whatever they name.
        let unnamed = |length: &u32| Segments::collect(plan.split(Handle(0), 0, *length));
        let unnamed: Items<Segments> = plan.writes.iter().map(unnamed).collect();
        let unnamed: Items<_> = unnamed.iter().map(Segments::as_slice).collect();
        let with = |message: &Message<'_>| Plan::new(terms(connection)?, message).ok();
        let divided = request((&items, payload), (&ways, unnamed.as_slice()), with)?;
        let group = PlannedGroup { plan: divided, items, ways, payload };
        if connection.engine.may_post(&sending(&group.plan)).is_err() {
            // A Call does not wait for credits where it can go by chunks (rtrext-03 section 4.3).
            connection.engine.give_up(MessageOf::Call);
            return None;
        }
        let mut rooms = Items::None;
        for message in 0..group.plan.transmissions() {
            match buffers.pop_for(HEADER_ROOM + group.plan.length(message)) {
                Some(room) => rooms.push(room),
                None => {
                    rooms.into_iter().for_each(|room| buffers.recycle(room));
                    return None;
                }
            }
        }
        let plan_of = Planned::Group(Box::new(group));
        Some(Self { plan: plan_of, indices: indices(plan), rooms })
    }

    /// Describes the messages that need credits.
    pub(super) fn sending(&self) -> Sending {
        match &self.plan {
            Planned::Single(_) => Sending::CALL,
            Planned::Group(group) => sending(&group.plan),
        }
    }

    /// Returns how the results are to come; none if the Call gives no directions.
    pub(super) const fn ways(&self) -> &Items<Way> {
        match &self.plan {
            Planned::Single(_) => &Items::None,
            Planned::Group(group) => &group.ways.each,
        }
    }

    /// Writes the messages, in order: their headers, the Payload stream, which is in `buffer`, and the arguments.
    pub(super) fn seal(
        self,
        leases: &mut ExposedLeases,
        buffer: &[u8],
        encoded: &Encoded,
        HeaderPatch { xid, credit }: HeaderPatch,
    ) -> Items<(Head<'static>, Outgoing)> {
        leases.is_along = true;
        leases.ways = self.ways().clone();
        let writes: Items<Segments> = leases.offered_to_write().cloned().collect();
        let writes: Items<_> = writes.iter().map(Segments::as_slice).collect();
        let octets = leases.arguments().map(|argument| match argument {
            CallLease::Local(argument) => argument.bytes(),
            CallLease::None | CallLease::Exposed(_) => &[],
        });
        let octets: Items<&[u8]> = octets.collect();
        let items = self.indices.iter().filter_map(|index| octets.as_slice().get(*index).copied());
        let payload = HEADER_ROOM..HEADER_ROOM + encoded.length;
        let payload = buffer.get(payload).unwrap_or_default();
        let messages = self.rooms.into_iter().enumerate().map(|(nth, mut room)| {
            let length = match &self.plan {
                Planned::Single(single) => single.length(),
                Planned::Group(group) => group.plan.length(nth),
            };
            let range = HEADER_ROOM..HEADER_ROOM + length;
            let w = &mut Writer::new(room.bytes_mut().get_mut(range.clone()).unwrap_or_default());
            let written = match &self.plan {
                Planned::Single(single) => single.encode(w, (xid, credit), payload, items.clone()),
                Planned::Group(group) => {
                    let items: Items<&[u8]> = items.clone().collect();
                    let content = Content { payload, items: items.as_slice() };
                    let of = (&group.items[..], group.payload);
                    request(of, (&group.ways, writes.as_slice()), |message| {
                        group.plan.encode(w, nth, (xid, credit), message, content)
                    })
                }
            };
            assert!(written.is_ok(), "the room is as long as the plan says");
            (Head::written(range, None), Outgoing::within(room))
        });
        messages.collect()
    }

    /// Gives the memory back.
    pub(super) fn give_up(self, buffers: &mut SendBuffers) {
        self.rooms.into_iter().for_each(|room| buffers.recycle(room));
    }

    /// Counts the arguments that go along.
    pub(super) fn count(&self, counters: &mut CoreCounters) {
        counters.arguments_sent_along += self.indices.len() as u64;
        match &self.plan {
            Planned::Single(single) => {
                counters.bytes_along += single.items().map(u64::from).sum::<u64>();
            }
            Planned::Group(group) => {
                counters.bytes_along +=
                    group.items.iter().map(|item| u64::from(item.length)).sum::<u64>();
                if self.rooms.len() > 1 {
                    counters.parts_sent += self.rooms.len() as u64;
                }
            }
        }
    }
}

/// Returns the octets of the arguments of a Call that has chunks for these, and for nothing else.
fn octets(plan: &CallPlan) -> Option<usize> {
    let is_for_arguments = plan.format == Format::Simple
        && !plan.reads.is_empty()
        && plan.writes.is_empty()
        && plan.reply.is_none();
    is_for_arguments.then(|| plan.reads.iter().map(|read| read.length as usize).sum())
}

/// Returns the terms of the round-trip extensions.
fn terms(connection: &Connection) -> Option<&Terms> {
    let Engine::Two(two) = connection.engine.engine() else { return None };
    two.extension()?.terms()
}

/// Calls `f` with the description of a Call with these items, whose Payload stream has `payload_length` octets. It directs how
/// its results come, whose rooms are exposed as `writes`; without ways, they take those of the base protocol.
fn request<R>(
    (items, payload_length): (&[Item<Source>], usize),
    (ways, writes): (&Ways, &[&[Segment]]),
    f: impl FnOnce(&Message<'_>) -> R,
) -> R {
    let directions = ways.each.iter().zip(writes).map(|(way, write)| way.direction(write));
    let directions: Items<_> = directions.collect();
    // All results are caused by the whole Call.
    let set = [Directive { begin: 0, end: u32::MAX, items: directions.as_slice() }];
    // [RTR-7.1-2]
    //~ RTR-7.1-2: `{ &set }` -> `{ &[] }`
    let rsd = if directions.is_empty() { &[][..] } else { &set };
    f(&Message { kind: MessageKind::Request { rsd, rsbuf: ways.further }, payload_length, items })
}

/// Describes the messages of a group, which need as many credits.
fn sending(plan: &Plan) -> Sending {
    if plan.transmissions() == 1 {
        return Sending::CALL;
    }
    let messages = u32::try_from(plan.transmissions()).unwrap_or(u32::MAX);
    //~ RTR-4.3-1: `{ messages }` -> `{ messages: messages.min(1) }`
    Sending { format: Format::Continued { messages }, ..Sending::CALL }
}

/// Returns the places of the reduced arguments among those of the Call.
fn indices(plan: &CallPlan) -> Items<usize> {
    plan.reads.iter().map(|read| read.index).collect()
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
        let Some(along) = Along::in_one(plan, encoded, connection, &mut common.buffers) else {
            return false;
        };
        grant.put_header(&mut self.making, named.xid, request.procedure);
        let Some(Found { exposed_leases, .. }) = self.calls.get_mut(named.slot) else {
            panic!("a Call that is made has its slot");
        };
        exposed_leases.begin(request.arguments.take(), request.rooms.take());
        exposed_leases.sent.keep(self.making.room(), encoded);
        along.count(&mut common.counters);
        let patch = HeaderPatch { xid: named.xid, credit: grant.next_credit() };
        let sealed = along.seal(exposed_leases, self.making.room(), encoded, patch).into_first();
        let Some((head, mut message)) = sealed else { panic!("a Call has a message") };
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
