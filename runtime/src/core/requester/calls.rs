//! Our Calls that have not ended, and how they end.

use std::collections::VecDeque;
use std::time::Duration;

use haulage_mr_pool::{Invalidated, Local};
use haulage_proto::chunk::Returned;
use haulage_proto::exchange::{Arrived, Offered, ReplyLists, check_reply};
use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;
use haulage_proto::v1::padding::Padding;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::requester::Xids;
use haulage_proto::verbs::{Flags, Handle};

use super::again::Again;
use super::encoded::Encoded;
use super::exposed_leases::{ExposedLeases, Taken};
use crate::core::common::{Abilities, Common};
use crate::core::connection::Connection;
use crate::core::receives::Message;
use crate::core::work::Held;
use crate::items::Items;
use crate::key::{ClientKey, ConnectionKey};
use crate::limits::Limits;
use crate::provider::{ConnectError, Operation, Quiesced, WorkRequest};
use crate::service::CallError;

/// Our Calls that have not ended.
#[derive(Debug)]
pub(crate) struct MadeCalls {
    xids: Xids,
    /// The Calls, by slot.
    calls: Vec<Option<MadeCall>>,
    /// The leases of the Calls that expose any, by slot.
    exposed_leases: Box<[ExposedLeases]>,
    /// State that only some Calls need, by slot.
    kept: Box<[Kept]>,
    /// Calls that have ended and whose callers do not know it yet, by slot.
    finished: VecDeque<usize>,
    /// Callers of Calls that were given up, who do not know it yet.
    released: VecDeque<Caller>,
    /// How long a Call may take unless it says otherwise, in nanoseconds.
    timeout_nanos: u64,
}

/// A Call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCall {
    /// The time now.
    pub(crate) now: Instant,
    pub(crate) procedure: u32,
    /// How long the Call may take; `None` for the default.
    pub(crate) timeout: Option<Duration>,
    pub(crate) caller: Caller,
}

/// The names of a Call: its slot, and its XID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) slot: usize,
    pub(super) xid: u32,
}

/// A Call of ours that has not ended. It fits a cache line, and there is nothing to drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeCall {
    pub(crate) connection: ConnectionKey,
    pub(crate) caller: Caller,
    pub(crate) xid: u32,
    pub(crate) deadline: Instant,
    pub(crate) stage: Stage,
    pub(super) procedure: u32,
    /// Whether the Call exposes memory, or may yet do so: only then its entry of [`ExposedLeases`] means anything.
    pub(super) opens: bool,
    /// The version it was sent in.
    pub(super) version: Version,
}

// The table is walked by every Call: 32 in flight take 2 KiB of it.
const _: () = assert!(size_of::<MadeCall>() <= 64, "a Call fits a cache line");

/// The parts of a Call that waits: to be sent, or for its caller to be told. Most Calls leave at once and have none.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The buffer in which a [`Stage::Queued`] Call is encoded.
    queued: Option<(Local, Encoded)>,
    /// The plan by which a Call that was refused goes again.
    pub(super) again: Option<Box<Again>>,
    pub(super) reply: Option<Message>,
    /// The padding in the Payload stream of the Reply, if there may be any (version 1, RFC 5666).
    pub(super) padding: Option<Box<Padding>>,
    pub(super) error: Option<CallError>,
}

/// A Call in its slot.
pub(crate) struct Found<'a> {
    pub(super) call: &'a mut MadeCall,
    pub(super) exposed_leases: &'a mut ExposedLeases,
    pub(super) kept: &'a mut Kept,
}

/// The caller that waits for a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The core's own service, under its own token.
    Service(u64),
    /// A client on another thread, under its own token.
    Remote { client: ClientKey, token: u64 },
    /// Nobody any more: the Call was given up.
    Nobody,
}

/// How far a Call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waits for credit, with its arguments encoded in a buffer.
    Queued,
    /// Waits for its Reply.
    Sent,
    /// Has no Reply, and waits until its Send has completed.
    Leaving,
    /// Answered; waits for its Payload stream, which is being read (version 1, RFC 5666).
    Reading,
    /// Answered, or given up; waits until its handles are dead.
    Fencing,
    /// Ended; the caller does not know it yet.
    Finished,
    /// Given up and not answered: the slot rests until the Reply comes or the connection ends.
    Resting,
}

/// A Call of ours that has ended, with the outcome for its caller.
#[derive(Debug)]
pub(crate) struct EndedCall {
    pub(crate) slot: usize,
    pub(crate) connection: ConnectionKey,
    pub(crate) caller: Caller,
    pub(crate) version: Version,
    pub(crate) reply: Option<Message>,
    /// The padding in the Payload stream of the Reply, if there may be any.
    pub(crate) padding: Option<Box<Padding>>,
    pub(crate) error: Option<CallError>,
    pub(crate) arguments: Items<Local>,
    pub(crate) rooms: Items<Local>,
    /// The lease of the Reply chunk, or of a Reply that was read.
    pub(crate) chunk: Option<Local>,
    /// The lengths that the Reply gives for its chunks, if the Call had any.
    pub(crate) arrived: Option<Arrived>,
}

/// A Call of our own service that has ended, with the lease that it had exposed.
pub(crate) struct Placed {
    pub(crate) token: u64,
    pub(crate) argument: Option<Local>,
    pub(crate) result: Option<Local>,
    /// Octets that the result may have, and those that were written into it.
    pub(crate) returned: Option<Returned>,
}

/// A summary of a Call, for those who count Calls and leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) connection: ConnectionKey,
    pub(crate) is_given_up: bool,
    /// The leases that the peer may still touch, if the Call was given up.
    pub(crate) leases: usize,
    /// The octets of these leases.
    pub(crate) octets: usize,
}

impl MadeCall {
    /// Returns whether the Call was given up, and has leases that the peer may still touch.
    fn lingers(&self) -> bool {
        let is_open = matches!(self.stage, Stage::Sent | Stage::Fencing);
        self.opens && self.caller == Caller::Nobody && is_open
    }

    /// Returns the token of our own service, if a Reply without chunks on the connection `key` ends the Call.
    #[inline]
    fn over_with(&self, key: ConnectionKey) -> Option<u64> {
        let waits = self.connection == key && !self.opens && matches!(self.stage, Stage::Sent);
        match self.caller {
            Caller::Service(token) if waits => Some(token),
            _ => None,
        }
    }
}

impl Found<'_> {
    /// Returns whether the Call left on the connection `key` and was not answered, though it may have been given up.
    fn awaits_answer(&self, key: ConnectionKey) -> bool {
        let is_answered = self.kept.reply.is_some() || self.kept.error.is_some();
        let has_left = matches!(self.call.stage, Stage::Sent | Stage::Fencing | Stage::Resting);
        self.call.connection == key && has_left && !is_answered
    }

    /// Queues the Call, which is encoded in `buffer`.
    #[inline]
    pub(super) fn queue(&mut self, buffer: Local, encoded: Encoded) {
        self.call.stage = Stage::Queued;
        self.kept.queued = Some((buffer, encoded));
    }

    /// Begins to take back the leases of the Call, which was given up and whose grace is over, if memory is short: such
    /// Calls of the connection hold `held` octets. While it is plentiful they stay: the peer may be slow, and an answer
    /// that meets a handle that is gone ends the connection, with the other Calls on it. Returns whether handles are to
    /// be invalidated now.
    #[cold]
    fn takes_back(self, common: &mut Common, held: usize) -> bool {
        let Self { call, exposed_leases, .. } = self;
        let is_reading = call.stage == Stage::Reading;
        let exposes = call.opens && !exposed_leases.is_fenced();
        if exposes && !is_reading && held <= common.pool.free_bytes() / HELD_PART {
            return false;
        }
        let why = match call.stage {
            Stage::Sent if !exposes || common.abilities.promises.handles_end => {
                call.stage = Stage::Fencing;
                return true;
            }
            // [V2-7.4-1] with the handle still valid, a late answer would be written over that of a later Call.
            //~ V2-7.4-1: `"a call was not answered, and its handle stays valid"` -> `return false`
            Stage::Sent => "a call was not answered, and its handle stays valid",
            // Nothing but the end of the connection ends a Read.
            Stage::Reading => "a reply was not read in time",
            // [V2-7.4-1] memory that cannot be invalidated is protected by closing.
            //~ V2-7.4-1: `"an invalidation did not complete in time"` -> `return false`
            _ => "an invalidation did not complete in time",
        };
        common.connections.close(call.connection, CallError::Disconnected(why.into()));
        false
    }

    /// Takes the Call out of the queue, as if it had been sent. `None` if it is not queued.
    #[inline]
    pub(super) fn unqueue(&mut self) -> Option<(Local, Encoded)> {
        let queued = self.kept.queued.take()?;
        self.call.stage = Stage::Sent;
        Some(queued)
    }
}

impl MadeCalls {
    /// Makes the tables of an idle core. The XIDs of its Calls come from `seed`.
    pub(super) fn new(limits: &Limits, seed: u64) -> Self {
        let slots = limits.calls_out_max as usize;
        Self {
            xids: Xids::new(slots, seed),
            calls: std::iter::repeat_with(|| None).take(slots).collect(),
            exposed_leases: std::iter::repeat_with(ExposedLeases::default).take(slots).collect(),
            kept: std::iter::repeat_with(Kept::default).take(slots).collect(),
            finished: VecDeque::with_capacity(slots),
            released: VecDeque::with_capacity(slots),
            timeout_nanos: Instant::ZERO.saturating_add(limits.call_timeout).as_nanos(),
        }
    }

    /// Takes a free slot and its next XID.
    #[inline]
    pub(super) fn open(&mut self) -> Option<Named> {
        let (slot, xid) = self.xids.open()?;
        Some(Named { slot, xid })
    }

    /// Finds a Call.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: usize) -> Option<Found<'_>> {
        let call = self.calls.get_mut(slot)?.as_mut()?;
        Some(Found {
            call,
            exposed_leases: self.exposed_leases.get_mut(slot)?,
            kept: self.kept.get_mut(slot)?,
        })
    }

    /// Enters an encoded Call that exposes nothing, as if it had been sent.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        common: &mut Common,
        Named { slot, xid }: Named,
        connection: ConnectionKey,
        version: Version,
        new: &NewCall,
    ) -> &mut MadeCall {
        let deadline = match new.timeout {
            Some(timeout) => new.now.saturating_add(timeout),
            None => new.now.saturating_add_nanos(self.timeout_nanos),
        };
        common.wake_by(deadline);
        self.calls[slot].insert(MadeCall {
            connection,
            caller: new.caller,
            xid,
            deadline,
            stage: Stage::Sent,
            procedure: new.procedure,
            opens: false,
            version,
        })
    }

    /// Keeps a remote caller's buffer until its Call ends.
    pub(crate) fn lend(&mut self, slot: usize, buffer: Local) {
        if let Some(exposed_leases) = self.exposed_leases.get_mut(slot) {
            exposed_leases.lent = Some(buffer);
        }
    }

    /// Returns a summary of each Call.
    pub(crate) fn each(&self) -> impl Iterator<Item = Told> {
        self.calls.iter().zip(&self.exposed_leases).filter_map(|(call, exposed_leases)| {
            let call = call.as_ref()?;
            let (leases, octets) =
                if call.lingers() { exposed_leases.exposed() } else { Default::default() };
            let is_given_up = call.caller == Caller::Nobody;
            Some(Told { connection: call.connection, is_given_up, leases, octets })
        })
    }

    /// Returns the only Call: its slot, its XID, and its leases.
    #[cfg(test)]
    pub(in crate::core) fn only(&self) -> (usize, u32, &ExposedLeases) {
        let calls = (0..).zip(&self.calls);
        let mut calls = calls.filter_map(|(slot, call)| Some((slot, call.as_ref()?.xid)));
        let (slot, xid) = calls.next().unwrap();
        assert!(calls.next().is_none());
        (slot, xid, &self.exposed_leases[slot])
    }

    /// Ends a Call that cannot leave.
    pub(super) fn fail(&mut self, common: &mut Common, slot: usize, error: CallError) {
        if let Some(Found { call, kept, .. }) = self.get_mut(slot) {
            kept.error = Some(error);
            call.stage = Stage::Fencing;
        }
        self.fence_rest(common, slot);
    }

    /// Tells the engine, which knows no XIDs, that the message just received answers a Call of ours, if it has the XID of
    /// one that left on this connection and was not answered before. Returns whether it has.
    pub(crate) fn end_at(
        &mut self,
        connection: &mut Connection,
        key: ConnectionKey,
        xid: u32,
    ) -> bool {
        let is_awaited = self.awaits(key, xid);
        if is_awaited {
            connection.engine.ended();
        }
        is_awaited
    }

    /// Returns whether a Call with this XID left on the connection `key` and was not answered.
    pub(crate) fn awaits(&mut self, key: ConnectionKey, xid: u32) -> bool {
        let slot = self.xids.find(xid);
        slot.and_then(|slot| self.get_mut(slot)).is_some_and(|found| found.awaits_answer(key))
    }

    /// Finds the slot of a Call by its XID.
    pub(super) fn find(&self, xid: u32) -> Option<usize> {
        self.xids.find(xid)
    }

    /// Finds the Call that an answer is for, if it has been neither answered nor given up. The slot of a Call that was
    /// given up and whose grace is over need not rest after its answer.
    pub(super) fn find_answered(&mut self, key: ConnectionKey, xid: u32) -> Option<usize> {
        let slot = self.xids.find(xid)?;
        let found = self.get_mut(slot)?;
        if !found.awaits_answer(key) {
            return None;
        }
        let Found { call, kept, .. } = found;
        if call.stage == Stage::Sent {
            return Some(slot);
        }
        // `finish` lets a Call rest that has neither a Reply nor an error.
        kept.error = Some(CallError::TimedOut);
        if call.stage == Stage::Resting {
            self.finish(slot);
        }
        None
    }

    /// Takes in a Reply, and checks its chunks against our own record of the Call. `proof` names the handle that its
    /// Send invalidated. Returns false if the connection must be closed.
    pub(crate) fn on_reply(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        xid: u32,
        lists: &ReplyLists<'_>,
        message: Message,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let check = |found: &mut Found<'_>| {
            let (version, offered) = (found.call.version, Offered::default());
            let checked = if found.call.opens {
                found.exposed_leases.check(version, lists)
            } else {
                // A valid Reply to a Call without chunks is inline.
                check_reply(version, &offered, lists).map(drop)
            };
            checked.map_err(|fault| CallError::BadReply(fault.rule()))
        };
        self.on_answer(common, (key, xid), message, proof, check)
    }

    /// Takes in a Reply of any form, which `check` checks. `proof` names the handle that its Send invalidated. Returns false
    /// if the connection must be closed.
    #[inline]
    pub(crate) fn on_answer(
        &mut self,
        common: &mut Common,
        (key, xid): (ConnectionKey, u32),
        message: Message,
        proof: Option<Invalidated<'_>>,
        check: impl FnOnce(&mut Found<'_>) -> Result<(), CallError>,
    ) -> bool {
        let slot = self.find_answered(key, xid);
        let Some((slot, mut found)) = slot.and_then(|slot| Some((slot, self.get_mut(slot)?)))
        else {
            // The message answers no Call, or one that was given up.
            common.counters.replies_unmatched += 1;
            common.receives.give_back(message.received);
            return proof.is_none();
        };
        let checked = check(&mut found);
        let Found { call, exposed_leases, kept, .. } = found;
        // The peer may not invalidate a handle of another Call.
        let stray =
            if call.opens { proof.and_then(|proof| exposed_leases.fence(proof)) } else { proof };
        if let Err(error) = checked {
            kept.error = Some(error);
        }
        kept.reply = Some(message);
        call.stage = Stage::Fencing;
        self.fence_rest(common, slot);
        stray.is_none()
    }

    /// Finds the Call of our own service with this XID, if a Reply on the connection `key` ends it once `handle` is
    /// retired. `written` is the length that the Reply gives for its only chunk; `None` if it has no chunk.
    #[inline]
    pub(crate) fn over_with_fence(
        &self,
        common: &Common,
        key: ConnectionKey,
        xid: u32,
        handle: Handle,
        written: Option<u32>,
    ) -> Option<usize> {
        let slot = self.xids.find(xid)?;
        let call = self.calls.get(slot).and_then(Option::as_ref);
        let waits = call.is_some_and(|call| {
            let is_ours = matches!(call.caller, Caller::Service(_));
            call.connection == key && call.opens && is_ours && matches!(call.stage, Stage::Sent)
        });
        let exposed_leases = self.exposed_leases.get(slot).filter(|_| waits)?;
        let is_placed =
            !common.abilities.promises.counts_placed || exposed_leases.has_placed(written);
        (exposed_leases.is_over_with(handle, written) && is_placed).then_some(slot)
    }

    /// Forgets the Call with this XID, if a Reply without chunks on this connection ends it. Returns the token of our
    /// own service, which waits for the Call.
    #[inline]
    pub(crate) fn end(&mut self, key: ConnectionKey, xid: u32) -> Option<u64> {
        let slot = self.xids.find(xid)?;
        let token = self.calls.get(slot)?.as_ref()?.over_with(key)?;
        self.forget(slot);
        Some(token)
    }

    /// Forgets the Call with this XID, if a Reply without chunks on this connection ends it, and its only argument went along
    /// with its message. Returns the outcome for its caller.
    pub(crate) fn end_along(&mut self, key: ConnectionKey, xid: u32) -> Option<Placed> {
        let slot = self.xids.find(xid)?;
        let call = self.calls.get(slot)?.as_ref()?;
        let waits = call.connection == key && call.opens && matches!(call.stage, Stage::Sent);
        let Caller::Service(token) = call.caller else { return None };
        let exposed_leases = self.exposed_leases.get_mut(slot).filter(|_| waits)?;
        let argument = exposed_leases.take_along()?;
        self.forget(slot);
        Some(Placed { token, argument: Some(argument), result: None, returned: None })
    }

    /// Forgets a Call whose only lease `proof` fences. Returns the outcome for its caller.
    #[inline]
    pub(crate) fn end_exposed(
        &mut self,
        slot: usize,
        proof: Option<Invalidated<'_>>,
        written: Option<u32>,
    ) -> Option<Placed> {
        let caller = self.calls.get(slot)?.as_ref()?.caller;
        let Caller::Service(token) = caller else { return None };
        let lease = self.exposed_leases.get_mut(slot)?.take_back(proof?, written);
        lease.as_ref()?;
        self.forget(slot);
        Some(match written {
            None => Placed { token, argument: lease, result: None, returned: None },
            Some(written) => {
                let offered = lease.as_ref().map_or(0, Local::len);
                let offered = u32::try_from(offered).unwrap_or(u32::MAX);
                let returned = Some(Returned { offered, written });
                Placed { token, argument: None, result: lease, returned }
            }
        })
    }

    /// Frees a slot without a Call, or with a Call whose caller knows its outcome, or is about to learn it.
    #[inline]
    pub(super) fn forget(&mut self, slot: usize) {
        if let Some(place) = self.calls.get_mut(slot) {
            *place = None;
        }
        self.xids.close(slot);
    }

    /// Fails the Call with this XID, if it has been neither answered nor given up. Returns whether there was one.
    pub(crate) fn fail_call(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        xid: u32,
        error: CallError,
    ) -> bool {
        let Some(slot) = self.find_answered(key, xid) else { return false };
        self.fail(common, slot, error);
        true
    }

    /// Takes in the completion of a LocalInv on behalf of a Call.
    pub(crate) fn on_fenced(&mut self, slot: usize, proof: Invalidated<'_>) {
        let Some(call) = self.calls.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(exposed_leases) = self.exposed_leases.get_mut(slot).filter(|_| call.opens) else {
            return;
        };
        let stray = exposed_leases.fence(proof);
        debug_assert!(stray.is_none(), "a LocalInv retires a handle of the Call it was posted for");
        if exposed_leases.is_fenced() && matches!(call.stage, Stage::Fencing) {
            self.finish(slot);
        }
    }

    /// Posts a LocalInv for every handle of an answered Call that is still valid, or finishes the Call.
    pub(super) fn fence_rest(&mut self, common: &mut Common, slot: usize) {
        let Some(call) = self.calls.get_mut(slot).and_then(Option::as_mut) else { return };
        let exposed_leases = self
            .exposed_leases
            .get(slot)
            .filter(|exposed_leases| call.opens && !exposed_leases.is_fenced());
        let Some(exposed_leases) = exposed_leases else { return self.finish(slot) };
        let (key, handles) = (call.connection, exposed_leases.handles());
        let Some(connection) = common.connections.get_mut(key) else { return };
        for handle in handles {
            let id = common.posted.enter(key, Held::LocalInv { slot });
            let flags = Flags { signaled: true, ..Flags::default() };
            let operation = Operation::LocalInv { handle };
            connection.outbox.push(WorkRequest { id, flags, operation });
        }
        common.connections.touch(key);
        // The Reply may have come as the time of the Call ran out.
        call.deadline = common.trace.now().saturating_add(common.limits.grace_timeout);
        common.wake_by(call.deadline);
    }

    /// Returns whether a caller does not know yet how its Call ended.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.released.is_empty() || !self.finished.is_empty()
    }

    /// Takes the next caller whose Call was given up.
    pub(crate) fn next_released(&mut self) -> Option<Caller> {
        self.released.pop_front()
    }

    /// Takes the slot of the next Call that has ended, or is to go again.
    pub(super) fn next_finished(&mut self) -> Option<usize> {
        self.finished.pop_front()
    }

    /// Returns how many Calls have ended, or are to go again.
    pub(super) fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Puts back a Call that is to go again and cannot yet, behind those that have ended.
    #[cold]
    pub(super) fn finish_later(&mut self, slot: usize) {
        self.finished.push_back(slot);
    }

    /// Gives a Call another XID, and returns it.
    pub(super) fn renew(&mut self, slot: usize) -> u32 {
        self.xids.renew(slot)
    }

    /// Takes out a Call that has ended.
    pub(super) fn end_finished(&mut self, slot: usize, abilities: &Abilities) -> Option<EndedCall> {
        let MadeCall { connection, caller, version, opens, .. } =
            self.calls.get_mut(slot).and_then(Option::take)?;
        let Kept { reply, padding, mut error, .. } = std::mem::take(self.kept.get_mut(slot)?);
        self.xids.close(slot);
        let (mut leases, mut arrived) = (Taken::default(), None);
        if let Some(exposed_leases) = self.exposed_leases.get_mut(slot).filter(|_| opens) {
            if error.is_none() && abilities.promises.counts_placed && exposed_leases.is_overstated()
            {
                error = Some(CallError::BadReply("it claims more octets than were written"));
            }
            (leases, arrived) = (exposed_leases.take(), exposed_leases.arrived.take());
        }
        let Taken { arguments, rooms, chunk } = leases;
        Some(EndedCall {
            slot,
            connection,
            caller,
            version,
            reply,
            padding,
            error,
            arguments,
            rooms,
            chunk,
            arrived,
        })
    }

    /// Returns the buffer that a remote caller lent for this Call.
    pub(crate) fn give_back(&mut self, slot: usize) -> Option<Local> {
        self.exposed_leases.get_mut(slot)?.lent.take()
    }

    /// Ends a Call: its caller is told later in the turn. A Call that was given up and not answered keeps its slot.
    pub(super) fn finish(&mut self, slot: usize) {
        let Some(Found { call, exposed_leases, kept, .. }) = self.get_mut(slot) else {
            panic!("a Call that ends is in the table");
        };
        if call.caller == Caller::Nobody && kept.reply.is_none() && kept.error.is_none() {
            // The slot of an unanswered Call rests, so that a late Reply does not meet another Call (P10). Its leases go
            // home.
            call.stage = Stage::Resting;
            if call.opens {
                drop(exposed_leases.take());
            }
            return;
        }
        call.stage = Stage::Finished;
        self.finished.push_back(slot);
    }

    /// Ends a Call without a Reply, which has left.
    pub(crate) fn end_sent(&mut self, slot: usize) {
        let Some(Found { call, .. }) = self.get_mut(slot) else { return };
        if call.caller == Caller::Nobody {
            return self.forget(slot);
        }
        call.stage = Stage::Finished;
        self.finished.push_back(slot);
    }

    /// Ends every Call of a connection that has ended. `proof` takes back the leases that the Calls expose.
    pub(crate) fn fail_calls(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        error: &CallError,
        proof: Option<&Quiesced>,
    ) {
        for slot in 0..self.calls.len() {
            let Some(Found { call, exposed_leases, kept, .. }) = self.get_mut(slot) else {
                continue;
            };
            if call.connection != key {
                continue;
            }
            if let Some(proof) = proof.filter(|_| call.opens) {
                exposed_leases.quiesce(proof);
            }
            let stage = std::mem::replace(&mut call.stage, Stage::Finished);
            if stage == Stage::Finished {
                continue;
            }
            // An answered Call that only waited for its LocalInv keeps its answer.
            let lacks_reply = kept.reply.is_none() || stage == Stage::Reading;
            if lacks_reply && kept.error.is_none() {
                kept.error = Some(error.clone());
            }
            if let Some((buffer, _)) = kept.queued.take() {
                common.buffers.recycle(buffer);
            }
            self.finished.push_back(slot);
        }
    }

    /// Ends Calls whose deadline has passed, and takes back the leases of Calls that were given up a while ago.
    pub(crate) fn expire_calls(&mut self, common: &mut Common, now: Instant) {
        for slot in 0..self.calls.len() {
            let Some(Found { call, exposed_leases, kept, .. }) = self.get_mut(slot) else {
                continue;
            };
            if matches!(call.stage, Stage::Finished | Stage::Resting) {
                continue;
            }
            let (key, deadline) = (call.connection, call.deadline);
            if deadline > now {
                common.wake_by(deadline);
                continue;
            }
            let later = now.saturating_add(common.limits.grace_timeout);
            call.deadline = later;
            match call.stage {
                Stage::Queued => {
                    let connection = common.connections.get(key);
                    let connecting = connection.is_some_and(|found| found.life.is_connecting());
                    kept.error = Some(if connecting {
                        CallError::Connect(ConnectError::TimedOut)
                    } else {
                        CallError::TimedOut
                    });
                    call.stage = Stage::Finished;
                    if let Some((buffer, _)) = kept.queued.take() {
                        common.buffers.recycle(buffer);
                    }
                    self.finished.push_back(slot);
                    if let Some(connection) = common.connections.get_mut(key) {
                        connection.outbox.forget_call(slot);
                        // It may have waited for the credit of several messages, and others behind it.
                        connection.engine.give_up(Kind::Call);
                    }
                    continue;
                }
                // P10: the caller is released at once, the leases stay where they are. A Reply that has come is lost if
                // its Call waits that long for the end of a copy.
                Stage::Sent | Stage::Leaving | Stage::Reading | Stage::Fencing
                    if call.caller != Caller::Nobody =>
                {
                    let caller = std::mem::replace(&mut call.caller, Caller::Nobody);
                    exposed_leases.lent = None;
                    self.released.push_back(caller);
                }
                // It exposes nothing, and ends with its Send or its connection.
                Stage::Leaving => {}
                Stage::Sent
                | Stage::Reading
                | Stage::Fencing
                | Stage::Finished
                | Stage::Resting => {
                    let held = self.each().filter(|told| told.connection == key);
                    let held = held.map(|told| told.octets).sum();
                    if self.get_mut(slot).is_some_and(|found| found.takes_back(common, held)) {
                        self.fence_rest(common, slot);
                    }
                }
            }
            common.wake_by(later);
        }
    }
}

/// Memory is plentiful while Calls of a connection that were given up hold at most this part of what is free.
const HELD_PART: usize = 8;
