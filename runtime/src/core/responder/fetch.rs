//! Fetches chunks of Calls from their Requesters' memory, and waits for the local memory that this takes.

use haulage_mr_pool::{Leases, Pool};
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::ClaimedSegment;

use super::{Body, GONE, Responder, ServedCall, Stage, Want};
use crate::core::common::{Common, share as find_share};
use crate::core::memory::{Charge, MemoryGrant, Supply, Until};
use crate::core::program::ArgumentSource;
use crate::core::vacancy::close_slow;
use crate::core::work::Reader;
use crate::items::Items;
use crate::key::{CallKey, ConnectionKey};
use crate::limits::BODY_MAX;
use crate::outgoing::segments::Segments;
use crate::service::{Placement, ReducedArgument, Refusal};

impl Responder {
    /// Checks that a Call in the Call chunk `body` can be fetched at all.
    pub(super) fn may_fetch(
        &self,
        common: &Common,
        key: ConnectionKey,
        body: &Segments,
    ) -> Result<(), ErrorBody> {
        // P12: no Read is posted to a peer that serves none.
        if !common.connections.get(key).is_some_and(|found| found.share.may_read()) {
            return Err(ErrorBody::ReadChunks { max: 0 });
        }
        match usize::try_from(body.length()) {
            Ok(0) => Err(ErrorBody::BadXdr),
            Ok(length) if length <= BODY_MAX => Ok(()),
            //~ V2-7.4.1-1: `System` -> `ReadChunks { max: 0 }`
            _ => Err(ErrorBody::System),
        }
    }

    /// Has a Call wait for memory, or lets it go on at once if there is enough. A Call that holds no memory goes on at
    /// once only if no other Call waits for any.
    pub(super) fn want(&mut self, common: &mut Common, name: CallKey, want: Want) {
        let Some(call) = self.calls.get_mut(name) else { panic!("{GONE}") };
        // While a message is being taken in, nothing is copied out of it.
        let is_along = want.has_any_along();
        call.stage = Stage::Waiting(want);
        let (key, own) = (call.connection, call.charge.octets());
        let is_awaited = common.memory.is_awaited();
        let Common { connections, streams, .. } = &mut *common;
        let Some(share) = find_share(connections, streams, key) else { panic!("{GONE}") };
        let is_first = !is_awaited && share.is_free();
        if !is_along && (own > 0 || is_first) && self.supply_call(common, name) == Supply::Done {
            return;
        }
        let Common { connections, streams, memory, .. } = common;
        if let Some(share) = find_share(connections, streams, key) {
            memory.wait(key, share, name, own);
        }
    }

    /// Lets Calls go on for which there is memory now, connection by connection, and refuses those that have waited
    /// too long. Returns how many Calls went on.
    #[inline]
    pub(crate) fn supply(&mut self, common: &mut Common, now: Instant) -> usize {
        if common.memory.begin_turn(now) { self.supply_connections(common, now) } else { 0 }
    }

    #[inline(never)]
    fn supply_connections(&mut self, common: &mut Common, now: Instant) -> usize {
        common.pool.collect();
        common.discharge_lost();
        let mut supplied = 0;
        for _ in 0..common.memory.begin_supply() {
            let Some(key) = common.memory.next_waiting() else { break };
            supplied += self.supply_connection(common, now, key);
        }
        common.memory.end_supply();
        if common.memory.is_awaited() {
            close_slow(common, now);
        }
        supplied
    }

    fn supply_connection(
        &mut self,
        common: &mut Common,
        now: Instant,
        key: ConnectionKey,
    ) -> usize {
        if let Some(share) = find_share(&mut common.connections, &mut common.streams, key) {
            share.leave_queue();
        }
        let mut supplied = 0;
        while let Some(share) = find_share(&mut common.connections, &mut common.streams, key)
            && let Some(waiter) = share.next()
        {
            let overdue = waiter.since.saturating_add(common.limits.memory_timeout) <= now;
            match self.supply_call(common, waiter.call) {
                Supply::Done => supplied += 1,
                Supply::Waits(Until::Memory) if overdue => {
                    self.refuse_memory(common, waiter.call, Refusal::Busy);
                }
                Supply::Waits(until) => {
                    let Common { connections, streams, memory, .. } = &mut *common;
                    let Some(share) = find_share(connections, streams, key) else { break };
                    share.put_back(waiter);
                    // A connection that waits for Reads needs no queue: it is looked at again when a Read ends.
                    if until == Until::Memory {
                        memory.queue(key, share);
                    }
                    break;
                }
            }
        }
        supplied
    }

    /// Lets a Call that waits for memory go on if the memory is there, and refuses it if the memory will never come.
    fn supply_call(&mut self, common: &mut Common, name: CallKey) -> Supply {
        let Some(call) = self.calls.get_mut(name) else { return Supply::Done };
        let Stage::Waiting(want) = &call.stage else { return Supply::Done };
        let wanted = want.wanted(call.room, call.charge.octets());
        // Only an argument may lie in several leases: a Payload stream is decoded and encoded in one slice.
        let any = matches!(want, Want::Arguments { .. })
            && common.connections.get(call.connection).is_some_and(|found| {
                let programs = found.session.serves();
                programs.is_some_and(|it| it.of(call.header).takes_several(call.header.procedure))
            });
        let each = |pool: &Pool, octets, density| {
            if any {
                pool.leases(octets, density)
            } else {
                pool.lease_as(octets, density).map(Leases::One)
            }
        };
        let lease = |pool: &Pool, octets, density| match want {
            // There is memory for every argument before the first is read.
            Want::Arguments { reads: Items::Several(reads), .. } => {
                let octets = reads.iter().map(|read| read.source.octets());
                Leases::all(octets.map(|octets| each(pool, octets, density)))
            }
            // There is memory for every message that the results may come along with.
            Want::Reply { .. } if call.room.body > 0 && call.is_directing() => {
                let messages =
                    call.directing.as_ref().map_or(1, |directing| directing.messages_max());
                Leases::all((0..messages).map(|_| each(pool, octets / messages, density)))
            }
            _ => each(pool, octets, density),
        };
        match common.grant(call.connection, &wanted, lease) {
            MemoryGrant::Waits(until) => return Supply::Waits(until),
            MemoryGrant::Taken(leases, charge) => self.supplied(common, name, leases, charge),
            MemoryGrant::Never => self.refuse_memory(common, name, Refusal::NoMemory),
        }
        Supply::Done
    }

    /// Lets a Call go on with the memory that it waited for.
    fn supplied(&mut self, common: &mut Common, name: CallKey, leases: Leases, charge: Charge) {
        let Some(call) = self.calls.get_mut(name) else { panic!("{GONE}") };
        call.charge.join(charge);
        match std::mem::replace(&mut call.stage, Stage::Later) {
            Stage::Waiting(Want::Call { body, reads }) => {
                let body = ArgumentSource::Peer(body);
                self.read(common, name, Stage::Fetching { reads }, &[&body], leases);
            }
            Stage::Waiting(Want::Arguments { arguments, reads }) => {
                let sources: Items<_> = reads.iter().map(|read| &read.source).collect();
                let sources = sources.as_slice();
                let mut leases = leases;
                if sources.iter().any(|source| source.is_along()) {
                    common.counters.bytes_along += copy_along(common, call, sources, &mut leases);
                }
                if sources.iter().all(|source| source.is_along()) {
                    return self.settle(common, name, arguments, Ok(leases));
                }
                self.read(common, name, Stage::Reading { arguments }, sources, leases);
            }
            Stage::Waiting(Want::Reply { arguments }) => {
                match &mut call.directing {
                    Some(directing) if call.room.body > 0 => directing.rooms = leases.into_vec(),
                    Some(_) => {}
                    None => call.reply_body = leases.into_one().ok().filter(|_| call.room.body > 0),
                }
                self.be_ready(common, name, Stage::Ready { arguments });
            }
            other => call.stage = other,
        }
    }

    /// Lets a Call go on without the memory that it waited for: the service learns of that, or the Call is refused.
    fn refuse_memory(&mut self, common: &mut Common, name: CallKey, why: Refusal) {
        let Some(call) = self.calls.get_mut(name) else { panic!("{GONE}") };
        match std::mem::replace(&mut call.stage, Stage::Later) {
            Stage::Waiting(Want::Call { .. }) => self.refuse_kept(common, name, ErrorBody::System),
            Stage::Waiting(Want::Arguments { arguments, .. }) => {
                self.settle(common, name, arguments, Err(why));
            }
            Stage::Waiting(Want::Reply { .. })
                if call.directing.as_ref().is_some_and(|directing| directing.has_to_send()) =>
            {
                // Of all errors, this one has the Call go again by chunks, as nothing of it was carried out.
                self.refuse_kept(common, name, ErrorBody::InvalHtype);
            }
            Stage::Waiting(Want::Reply { arguments }) => {
                self.be_ready(common, name, Stage::Ready { arguments });
            }
            other => call.stage = other,
        }
    }

    /// Posts the Reads that fetch chunks of a Call. Sources that came along are in their places already.
    fn read(
        &mut self,
        common: &mut Common,
        name: CallKey,
        stage: Stage,
        sources: &[&ArgumentSource],
        leases: Leases,
    ) {
        let Some(call) = self.calls.get_mut(name) else { panic!("{GONE}") };
        call.stage = stage;
        let key = call.connection;
        let Some(sinks) = leases.into_sinks() else {
            return self.settle_arguments(common, name, Err(Refusal::NoMemory));
        };
        let mut end = 0;
        let sources = sources.iter().flat_map(|source| {
            let start = end;
            end += source.octets();
            let segments = source.segments().iter();
            let claims = segments.filter_map(|&segment| ClaimedSegment::try_from(segment).ok());
            let claims = claims.filter(|claim| claim.length() > 0);
            claims.scan(start, |at, claim| {
                let start = std::mem::replace(at, *at + claim.length() as usize);
                Some((claim, start..*at))
            })
        });
        common.read(key, sources, sinks, Reader::Served(name));
    }

    /// Takes in what was fetched of a Call: its Payload stream, or its arguments.
    pub(crate) fn on_fetched(&mut self, common: &mut Common, name: CallKey, leases: Leases) {
        let Some(call) = self.calls.get_mut(name) else { return };
        match std::mem::replace(&mut call.stage, Stage::Later) {
            Stage::Fetching { reads } => {
                let Ok(lease) = leases.into_one() else {
                    panic!("a Payload stream was leased in one block");
                };
                let judged = call.judge(common, lease.bytes(), reads.as_slice());
                call.body = Some(Body::Fetched(lease));
                self.proceed(common, name, judged, reads);
            }
            stage => {
                call.stage = stage;
                self.settle_arguments(common, name, Ok(leases));
            }
        }
    }

    /// Lets a Call go on whose arguments were to be read: they were, or none was.
    fn settle_arguments(
        &mut self,
        common: &mut Common,
        name: CallKey,
        read: Result<Leases, Refusal>,
    ) {
        let Some(call) = self.calls.get_mut(name) else { return };
        match std::mem::replace(&mut call.stage, Stage::Later) {
            Stage::Reading { arguments } => self.settle(common, name, arguments, read),
            other => call.stage = other,
        }
    }

    /// Puts what was read into those of the arguments that wait for it, or else the reason why nothing was, and lets the
    /// Call go on.
    fn settle(
        &mut self,
        common: &mut Common,
        name: CallKey,
        mut arguments: Items<ReducedArgument>,
        mut read: Result<Leases, Refusal>,
    ) {
        for argument in arguments.as_mut_slice().iter_mut().filter(|one| one.is_awaited()) {
            argument.placed = match &mut read {
                Ok(leases) => {
                    let length = usize::try_from(argument.length).unwrap_or(usize::MAX);
                    Placement::Placed(leases.split_to(length))
                }
                Err(why) => Placement::Refused(*why),
            };
        }
        self.make_ready(common, name, arguments);
    }
}

impl Want {
    /// Returns whether memory is wanted for arguments that came with the message of the Call.
    fn has_any_along(&self) -> bool {
        match self {
            Self::Arguments { reads, .. } => reads.iter().any(|read| read.source.is_along()),
            Self::Call { .. } | Self::Reply { .. } => false,
        }
    }
}

/// Copies the arguments of a Call that came with its message to their places in `leases`. Returns how many octets.
fn copy_along(
    common: &Common,
    call: &ServedCall,
    sources: &[&ArgumentSource],
    leases: &mut Leases,
) -> u64 {
    let Some(message) = &call.message else {
        panic!("a Call holds its message until it is served")
    };
    let octets = common.receives.octets(message);
    let (mut at, mut copied) = (0, 0);
    for source in sources {
        let end = at + source.octets();
        if let ArgumentSource::Message(parts) = source {
            for part in parts.iter() {
                leases.write_at(at, octets.get(part.clone()).unwrap_or_default());
                at += part.len();
                copied += part.len() as u64;
            }
        }
        at = end;
    }
    copied
}
