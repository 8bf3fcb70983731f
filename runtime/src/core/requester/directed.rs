//! The directions that a Call of ours gives for its results, and the response that follows them (round-trip extensions).
//!
//! # Normal operation
//! A result whose room is no longer than what a response can bring comes along with it: nothing is exposed, and the octets
//! are copied from the Receives to the room. The response may have as many messages as that takes, if the peer has Receives
//! of ours for them whatever else it sends. The room of any other result is exposed, as for a Write chunk. A Reply of the
//! base protocol is taken as well: it has its results in the Payload stream.
//!
//! # Recovery
//! A response that breaks a rule fails its Call (E13). The rooms come back as those of any Reply do.

use std::ops::Range;

use haulage_mr_pool::Pool;
use haulage_proto::chunk::{Few, Kind as DataKind, Returned};
use haulage_proto::exchange::{Arrived, Body, CallPlan};
use haulage_proto::negotiate::Engine;
use haulage_proto::rpc::{Procedure, ReplyHeader};
use haulage_proto::rtrext::direction::Direction;
use haulage_proto::rtrext::extension::Whole;
use haulage_proto::rtrext::item::Location;
use haulage_proto::rtrext::plan::Directive;
use haulage_proto::rtrext::properties::Terms;
use haulage_proto::rtrext::respond::check_response;
use haulage_proto::v2::header::Prefix;
use haulage_proto::verbs::Segment;
use haulage_proto::xdr::UNIT;

use super::calls::{Found, MadeCalls, Stage};
use super::exposed_leases::ExposedLeases;
use super::lease::CallLease;
use super::plan::UNBOUND;
use super::way::{Way, Ways};
use crate::core::connection::Connection;
use crate::core::gathered::{Gathered, parts, payload_of};
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::service::CallError;

/// Chooses the ways of the results of a Call of this procedure. `None` if it directs none.
pub(super) fn ways(plan: &CallPlan, procedure: u32, connection: &Connection) -> Option<Ways> {
    // A procedure may leave out one of several results, and then the next one takes its direction.
    if !connection.session.terms().directs || plan.writes.len() != 1 || plan.reply.is_some() {
        return None;
    }
    let Engine::Two(two) = connection.engine.engine() else { return None };
    let terms = two.extension()?.terms()?;
    let procedure = connection.session.calls()?.procedure(procedure).unwrap_or(&UNBOUND);
    let receive = two.thresholds().receive as usize;
    // The peer has the credits, unless it makes Calls with all of them.
    let messages_max = terms.response_receive_max.min(connection.engine.reserved() / 2).max(1);
    let messages = |length: u32| {
        (1..=messages_max)
            .find(|messages| length as usize <= room(procedure, terms, (receive, *messages)))
    };
    let mut further = 0;
    let way = |length: &u32| match (length, messages(*length)) {
        (0, _) => Way::Inline,
        (_, Some(messages)) => {
            further = messages - 1;
            Way::Send
        }
        (_, None) => Way::Write,
    };
    let each = plan.writes.iter().map(way).collect();
    Some(Ways { each, further })
}

/// Returns the octets of the longest result of a procedure that a response in so many `messages` has the room for, whatever
/// else it brings. Each may have `receive` octets.
fn room(procedure: &Procedure, terms: &Terms, (receive, messages): (usize, u32)) -> usize {
    let messages = messages as usize;
    let mut front = 0;
    front += Prefix::WIRE_LEN;
    front += 3 * UNIT; // the numbers of items and of transmissions, and the length of the Payload stream
    front += 5 * UNIT; // the item, without the numbers of its parts
    front += messages * terms.ours.segments().len() * UNIT; // as many parts as there are
    front += ReplyHeader::SUCCESS_LEN + procedure.results_max as usize;
    terms.ours.room_behind(front, receive, messages)
}

/// Checks that the length word of each result that is an opaque is in front of its place.
fn check_places(whole: &Whole<'_>, payload: &[u8], procedure: &Procedure) -> Result<(), CallError> {
    let mut gone = 0;
    for item in whole.dp.iter().filter(|item| item.place.is_excised()) {
        let word = (item.disp as usize).checked_sub(gone + UNIT);
        let word = word.and_then(|at| payload.get(at..)?.first_chunk());
        // [RTR-7.3-1]
        if procedure.results.iter().all(|result| result.kind == DataKind::Opaque)
            && word != Some(&item.length.to_be_bytes())
        {
            return Err(CallError::BadReply("a result is in another place than it says"));
        }
        gone += (item.length as usize).next_multiple_of(UNIT);
    }
    Ok(())
}

impl ExposedLeases {
    /// Returns the directions of a Call that was sent.
    fn directions(&self) -> Items<Direction<&[Segment]>> {
        let ways = if self.is_along { self.ways.as_slice() } else { &[] };
        ways.iter().zip(self.writes().iter()).map(|(way, write)| way.direction(write)).collect()
    }

    /// Checks a response against our own record of the directions, and puts the results that came along in their rooms.
    /// `octets` are those of the message, or those that were gathered. Returns the lengths of these results.
    fn take_items(
        &mut self,
        whole: &Whole<'_>,
        (octets, gathered): (&[u8], Option<&Gathered>),
        (procedure, pool): (&Procedure, &Pool),
    ) -> Result<Items<usize>, CallError> {
        let payload = match gathered {
            Some(gathered) => octets.get(..gathered.payload),
            None => {
                let Range { start, end } = payload_of(whole);
                octets.get(start as usize..end as usize)
            }
        };
        let payload = payload.unwrap_or_default();
        if !self.is_along && self.offered.iter().any(Option::is_some) {
            return Err(CallError::BadReply("its call has chunks, and gave no directions"));
        }
        let directions = self.directions();
        let set = [Directive { begin: 0, end: u32::MAX, items: directions.as_slice() }];
        check_response(&set, &whole.dp).map_err(CallError::BadReply)?;
        check_places(whole, payload, procedure)?;
        let longest = procedure.results.iter().map(|result| result.length_max).max();
        let (mut writes, mut along) = (Few::default(), Items::None);
        for (index, item) in whole.dp.iter().enumerate() {
            let written = match item.place {
                Location::Exrw(_) => item.length,
                Location::Tbsn { .. } if item.length as usize > longest.unwrap_or(0) => {
                    return Err(CallError::BadReply("a result is longer than the binding allows"));
                }
                Location::Tbsn { .. } => {
                    along.push((index, parts(whole, &item, gathered)));
                    item.length
                }
                Location::TooShort | Location::NoItem => 0,
            };
            writes.push(Returned { offered: written, written });
        }
        let put = along.into_iter().map(|(index, parts)| {
            self.put_result(index, parts.iter().filter_map(|part| octets.get(part.clone())), pool)
        });
        let lengths = put.collect::<Result<Vec<_>, _>>()?;
        self.arrived = Some(Arrived { writes, body: Body::Inline });
        Ok(lengths.into_iter().collect())
    }

    /// Puts a result in its room, which is replaced if it is too short. Returns its length.
    fn put_result<'a>(
        &mut self,
        index: usize,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
        pool: &Pool,
    ) -> Result<usize, CallError> {
        let length = parts.clone().map(<[u8]>::len).sum();
        let Some(CallLease::Local(room)) = self.rooms().nth(index).map(|(room, _)| room) else {
            return Err(CallError::BadReply("a result came along for which there is no room"));
        };
        if room.capacity() < length {
            *room = pool.lease(length).ok_or(CallError::NoMemory)?;
        }
        room.set_len(length);
        let mut rest = room.bytes_mut();
        for part in parts {
            let (to, behind) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = behind;
        }
        self.note_placed(index, length);
        Ok(length)
    }
}

impl MadeCalls {
    /// Takes the results out of a response to a Call of ours. Returns the lengths of those that came along. A response to no
    /// Call, or to one that was given up, is not looked at.
    ///
    /// # Errors
    /// The response breaks a rule, or there is no memory for a result.
    pub(crate) fn take_items(
        &mut self,
        (key, connection): (ConnectionKey, &Connection),
        whole: &Whole<'_>,
        arrived: (&[u8], Option<&Gathered>),
        pool: &Pool,
    ) -> Result<Items<usize>, CallError> {
        let slot = self.find(whole.xid).filter(|_| self.awaits(key, whole.xid));
        let found = slot.and_then(|slot| self.get_mut(slot));
        let waits = |found: &Found<'_>| found.call.stage == Stage::Sent;
        match found.filter(waits) {
            None => Ok(Items::None),
            Some(Found { call, exposed_leases, .. }) if call.opens => {
                let binding = connection.session.calls();
                let procedure = binding.and_then(|binding| binding.procedure(call.procedure));
                exposed_leases.take_items(whole, arrived, (procedure.unwrap_or(&UNBOUND), pool))
            }
            // It gave no directions.
            Some(_) => {
                let checked = check_response(&[], &whole.dp).map_err(CallError::BadReply);
                checked.map(|()| Items::None)
            }
        }
    }
}
