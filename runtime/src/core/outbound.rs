//! The Requester: a Call of ours from its arguments to its results.
//!
//! # Normal operation
//! The arguments are encoded into a send buffer at once, behind the room for the transport header.
//! When credit allows, the Call is planned by the terms of its connection: what goes by chunks is
//! registered under fresh handles, the header is written in front of the arguments, and registrations
//! and message leave with one doorbell. A Reply is trusted in nothing: the chunks it returns are checked
//! against our own record of what was offered.
//!
//! # Memory ownership
//! An exposed lease comes back only against proof that its handle is dead: the Reply's own Remote
//! Invalidation for one of them, a LocalInv for the others, or the end of the connection. The caller
//! is told the results only then.
//!
//! # Recovery
//! A Call that is given up (P10) releases its caller at once. Its leases stay exposed, owned by the
//! slot, until the Reply or a grace deadline; the slot is not used again on that connection.

mod exit;
mod lane;
mod opened;
mod send;
mod tell;

use std::time::Duration;

use haulage_mr_pool::{Invalidated, Local};
use haulage_proto::exchange::{Format, Offered, ReplyLists, check_reply};
use haulage_proto::negotiate::{Refusal, Version};
use haulage_proto::rpc::CallHeader;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Flags, Handle};
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::connection::Connection;
use crate::core::inbound::Message;
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::work::{Held, Name, Work};
use crate::identity::Identity;
use crate::limits::HEADER_ROOM;
use crate::provider::{ConnectError, Operation, Quiesced, WorkRequest};
use crate::service::{self, Binding, CallError, Request};

pub(crate) use exit::{Direct, Exit, Way};
pub(crate) use lane::Lane;
pub(crate) use opened::Opened;
pub(crate) use send::{Planned, Progress};
pub(crate) use tell::{Placed, tell, tell_gone, tell_inline, tell_placed, tell_results};

/// A Call of ours that has not ended.
#[derive(Debug)]
pub(crate) struct OutboundCall {
    pub(crate) connection: Key<Connection>,
    pub(crate) caller: Caller,
    pub(crate) xid: u32,
    pub(crate) deadline: Instant,
    pub(crate) stage: Stage,
    procedure: u32,
    /// Whether it has, or may come to have, anything [`Opened`].
    opens: bool,
    /// The version it was sent in.
    version: Version,
    reply: Option<Message>,
    error: Option<CallError>,
}

/// Who waits for a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The core's own service, under its own token.
    Service(u64),
    /// A client on another thread, under its own token.
    Remote { client: usize, token: u64 },
    /// Nobody any more.
    Nobody,
}

/// How far a Call has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Waits for credit, with its arguments encoded in this buffer.
    Queued(Local, Encoded),
    /// Waits for its Reply.
    Sent,
    /// Answered, or given up; waits until its handles are dead.
    Fencing,
    /// Over; the caller has not been told.
    Finished,
    /// Given up and never answered: the slot rests until the connection ends.
    Resting,
}

/// A Call that is encoded: its slot and XID, its message without headers, and what that consists of.
type Begun<'a> = ((usize, u32), &'a mut [u8], Encoded);

/// Writes the length of an argument that has a lease of its own.
#[inline]
fn put_length(writer: &mut Writer<'_>, argument: Option<usize>) -> Result<(), Truncated> {
    match argument {
        // [V2-4.5.3.1-1] it stays in the Payload stream, wherever the octets go.
        Some(length) => writer.u32(u32::try_from(length).map_err(|_| Truncated { at: 0 })?),
        None => Ok(()),
    }
}

/// A Call's Payload stream, without the argument that has a lease of its own. It is in a send buffer,
/// behind the header room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    /// Where the arguments start.
    arguments_at: usize,
    /// Its octets.
    length: usize,
}

impl OutboundCall {
    /// Returns whether a Reply or a deadline still means something to it.
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Queued(..) | Stage::Sent)
    }

    /// Returns the token of our own service, if nothing is left of the Call once a Reply without chunks
    /// has come on this connection.
    #[inline]
    pub(crate) fn is_over_with(&self, key: Key<Connection>) -> Option<u64> {
        let waits = self.connection == key && !self.opens && matches!(self.stage, Stage::Sent);
        match self.caller {
            Caller::Service(token) if waits => Some(token),
            _ => None,
        }
    }
}

impl State {
    /// Queues a Call. Takes the leases of the request, unless that is not possible.
    pub(crate) fn call(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        request: &mut Request,
        caller: Caller,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<usize, CallError> {
        let Some(connection) = self.connections.get(key).filter(|c| c.takes_calls()) else {
            return Err(self.why_ended(key));
        };
        // [V2-4.4.2-2] nothing is reduced that the binding does not allow.
        let opens = request.opens();
        if opens && !service::allows_to_reduce(&connection.binding, request) {
            return Err(CallError::NotEligible);
        }
        let Some(buffer) = self.buffers.top() else { return Err(CallError::Busy) };
        let Some((slot, xid)) = self.xids.open() else { return Err(CallError::Busy) };
        let (procedure, argument) = (request.procedure, request.argument.as_ref().map(Local::len));
        let Ok(encoded) = connection.encode(buffer, (xid, procedure), encode, argument) else {
            self.xids.close(slot);
            return Err(CallError::TooLong);
        };
        let asked = (procedure, request.timeout, opens);
        self.enter((slot, xid), now, (key, connection.terms.version), asked, caller);
        self.set_out(key, slot, Some(request), encoded);
        Ok(slot)
    }

    /// Sends a Call without leases on the lane of its connection at once, unless it is too long for that.
    #[inline]
    pub(crate) fn call_at_once(
        &mut self,
        now: Instant,
        (lane, outlet): Way<'_>,
        (procedure, timeout): (u32, Option<Duration>),
        caller: Caller,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), CallError> {
        let (named, message, encoded) = self.begin(None, encode)?;
        let is_sent = lane.send(outlet, message, (named.1, procedure), &encoded);
        let asked = (procedure, timeout, false);
        self.enter(named, now, (lane.connection, Version::Two), asked, caller);
        if !is_sent {
            self.set_out(lane.connection, named.0, None, encoded);
        }
        Ok(())
    }

    /// Does the same for one with one lease, of an argument or for a result.
    pub(crate) fn call_opening_at_once(
        &mut self,
        now: Instant,
        (lane, outlet): Way<'_>,
        request: &mut Request,
        caller: Caller,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), CallError> {
        let argument = request.argument.as_ref().map(Local::len);
        let (named, message, encoded) = self.begin(argument, encode)?;
        lane.put(message, (named.1, request.procedure));
        let asked = (request.procedure, request.timeout, true);
        self.enter(named, now, (lane.connection, Version::Two), asked, caller);
        if !self.open_at_once((lane, outlet), named, request, &encoded) {
            self.set_out(lane.connection, named.0, Some(request), encoded);
        }
        Ok(())
    }

    /// Names a Call that is to leave on a lane, by slot and XID, and encodes its arguments in the next send buffer.
    #[inline(always)]
    fn begin(
        &mut self,
        argument: Option<usize>,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<Begun<'_>, CallError> {
        let Some(buffer) = self.buffers.top() else { return Err(CallError::Busy) };
        let Some((slot, xid)) = self.xids.open() else { return Err(CallError::Busy) };
        let message = buffer.bytes_mut().get_mut(Lane::START..).unwrap_or_default();
        match Lane::encode(message, argument, encode) {
            Some(encoded) => Ok(((slot, xid), message, encoded)),
            None => {
                self.xids.close(slot);
                Err(CallError::TooLong)
            }
        }
    }

    /// Enters a Call that is encoded, in the state that one has which was sent.
    #[inline(always)]
    fn enter(
        &mut self,
        (slot, xid): (usize, u32),
        now: Instant,
        (connection, version): (Key<Connection>, Version),
        (procedure, timeout, opens): (u32, Option<Duration>, bool),
        caller: Caller,
    ) {
        let deadline = match timeout {
            Some(timeout) => now.saturating_add(timeout),
            None => now.saturating_add_nanos(self.call_timeout_nanos),
        };
        self.wake_by(deadline);
        let Some(place) = self.outbound.get_mut(slot) else { return };
        *place = Some(OutboundCall {
            connection,
            caller,
            xid,
            deadline,
            stage: Stage::Sent,
            procedure,
            opens,
            version,
            reply: None,
            error: None,
        });
    }

    /// Says why a connection takes no Calls.
    #[cold]
    fn why_ended(&self, key: Key<Connection>) -> CallError {
        if self.connections.get(key).is_some_and(Connection::is_up) {
            return CallError::NoReverse;
        }
        let ended = self.ended.iter().rev().find(|(ended, _)| *ended == key);
        ended.map_or(CallError::Closed, |(_, why)| why.clone())
    }

    /// Queues a Call that is encoded in the next send buffer, and takes the leases of its request.
    #[inline(never)]
    fn set_out(
        &mut self,
        key: Key<Connection>,
        slot: usize,
        request: Option<&mut Request>,
        encoded: Encoded,
    ) {
        let (Some(buffer), Some(Some(call)), Some(opened)) =
            (self.buffers.pop(), self.outbound.get_mut(slot), self.opened.get_mut(slot))
        else {
            return debug_assert!(false, "the Call has a slot, and is in the buffer");
        };
        if let Some(request) = request.filter(|_| call.opens) {
            opened.begin(request.argument.take(), request.result.take());
        }
        call.stage = Stage::Queued(buffer, encoded);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.calls.push_back(slot);
        }
        self.touch(key);
    }

    /// Keeps a remote caller's buffer until its Call ends.
    pub(crate) fn lend(&mut self, slot: usize, buffer: Local) {
        if let Some(opened) = self.opened.get_mut(slot) {
            opened.lent = Some(buffer);
        }
    }

    /// Finds a Call of a connection that still waits for its Reply.
    fn find_open(&self, key: Key<Connection>, xid: u32) -> Option<(usize, &OutboundCall)> {
        let slot = self.xids.find(xid)?;
        let call = self.outbound.get(slot)?.as_ref()?;
        (call.connection == key && call.is_open()).then_some((slot, call))
    }

    /// Takes in a Reply, whose chunks are held against our own record of its Call. `proof` is what its
    /// Send invalidated. False if the connection must go.
    pub(crate) fn on_reply(
        &mut self,
        (key, xid): (Key<Connection>, u32),
        lists: &ReplyLists<'_>,
        message: Message,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let found = self.xids.find(xid).and_then(|slot| {
            let call = self.outbound.get_mut(slot)?.as_mut()?;
            (call.connection == key && call.is_open()).then_some((slot, call))
        });
        let Some((slot, call)) = found else {
            // It answers no Call.
            self.counters.replies_unmatched += 1;
            self.receives.give_back(message.received);
            return proof.is_none();
        };
        let opened = self.opened.get_mut(slot).filter(|_| call.opens);
        // A handle that is not this Call's is not the peer's to invalidate.
        let (checked, stray) = match opened {
            Some(opened) => (
                opened.check(call.version, lists),
                match proof {
                    Some(proof) => opened.fence(proof),
                    None => None,
                },
            ),
            // If it is in order it is inline.
            None => (check_reply(call.version, &Offered::default(), lists).map(drop), proof),
        };
        if let Err(fault) = checked {
            call.error = Some(CallError::BadReply(fault.rule()));
        }
        call.reply = Some(message);
        call.stage = Stage::Fencing;
        self.fence_rest(slot);
        stray.is_none()
    }

    /// Returns whether nothing is left of a Call of our own service once a Reply has come on this connection
    /// that says how much was `written` into its only chunk, or has none, and `handle` is retired.
    #[inline]
    pub(crate) fn is_over_with(
        &self,
        slot: usize,
        key: Key<Connection>,
        handle: Handle,
        written: Option<u32>,
    ) -> bool {
        let call = self.outbound.get(slot).and_then(Option::as_ref);
        let waits = call.is_some_and(|call| {
            let is_ours = matches!(call.caller, Caller::Service(_));
            call.connection == key && call.opens && is_ours && matches!(call.stage, Stage::Sent)
        });
        let Some(opened) = self.opened.get(slot).filter(|_| waits) else { return false };
        opened.is_over_with(handle, written) && (!self.counts_placed || opened.has_placed(written))
    }

    /// Forgets such a Call. Returns what its caller is told.
    #[inline]
    pub(crate) fn end_opened(
        &mut self,
        slot: usize,
        proof: Option<Invalidated<'_>>,
        written: Option<u32>,
    ) -> Option<Placed> {
        let caller = self.outbound.get(slot)?.as_ref()?.caller;
        let lease = self.opened.get_mut(slot)?.take_back(proof?, written)?;
        let Caller::Service(token) = caller else { return None };
        self.forget(slot);
        Some(Placed { token, lease, written })
    }

    /// Forgets a Call whose caller knows, or is about to know, how it ended.
    #[inline]
    pub(crate) fn forget(&mut self, slot: usize) {
        if let Some(place) = self.outbound.get_mut(slot) {
            *place = None;
        }
        self.xids.close(slot);
    }

    /// The peer does not support the header type of a Call: none like it leaves on this connection again.
    pub(crate) fn on_not_supported(&mut self, key: Key<Connection>, xid: u32) {
        let Some((slot, call)) = self.find_open(key, xid) else { return };
        let is_fetched =
            call.opens && self.opened.get(slot).is_some_and(|opened| opened.has_body());
        let format = if is_fetched { Format::Special } else { Format::Simple };
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.not_supported(format);
        }
    }

    /// The peer's transport could not act on a Call.
    pub(crate) fn on_refused(&mut self, key: Key<Connection>, xid: u32, error: Refusal) {
        self.fail_call(key, xid, CallError::Refused(error));
    }

    /// Ends the Call of this XID, if there is one that waits for its Reply. Returns whether there was.
    pub(crate) fn fail_call(&mut self, key: Key<Connection>, xid: u32, error: CallError) -> bool {
        let Some((slot, _)) = self.find_open(key, xid) else { return false };
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return false };
        call.error = Some(error);
        call.stage = Stage::Fencing;
        self.fence_rest(slot);
        true
    }

    /// A LocalInv on behalf of a Call has completed.
    pub(crate) fn on_fenced(&mut self, slot: usize, proof: Invalidated<'_>) {
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some(opened) = self.opened.get_mut(slot).filter(|_| call.opens) else { return };
        let stray = opened.fence(proof);
        debug_assert!(stray.is_none(), "a LocalInv retires a handle of the Call it was posted for");
        if opened.is_fenced() && matches!(call.stage, Stage::Fencing) {
            self.finish(slot);
        }
    }

    /// Posts a LocalInv for every handle of an answered Call that is still alive, or finishes it.
    fn fence_rest(&mut self, slot: usize) {
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        let opened = self.opened.get(slot).filter(|opened| call.opens && !opened.is_fenced());
        let Some(opened) = opened else { return self.finish(slot) };
        let (key, handles) = (call.connection, opened.handles());
        let Some(connection) = self.connections.get_mut(key) else { return };
        for handle in handles.into_iter().flatten() {
            let work = Work { connection: key, held: Held::LocalInv { slot } };
            let Ok(name) = self.work.insert(work) else {
                debug_assert!(false, "an entry for every lease of every slot");
                return;
            };
            let id = Name::Work(name.to_bits()).wr_id();
            let flags = Flags { signaled: true, ..Flags::default() };
            let operation = Operation::LocalInv { handle };
            connection.queue.push_back(WorkRequest { id, flags, operation });
        }
        self.touch(key);
    }

    /// A Call is over: its caller is told in the next stage.
    fn finish(&mut self, slot: usize) {
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        if call.caller == Caller::Nobody && call.reply.is_none() {
            // Given up and never answered: a late Reply must not meet another Call (P10).
            call.stage = Stage::Resting;
            return;
        }
        call.stage = Stage::Finished;
        self.finished.push_back(slot);
    }

    /// Ends every Call of a connection that has quiesced.
    pub(crate) fn fail_calls(
        &mut self,
        key: Key<Connection>,
        error: &CallError,
        proof: Option<&Quiesced>,
    ) {
        for slot in 0..self.outbound.len() {
            let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { continue };
            if call.connection != key {
                continue;
            }
            if let (Some(proof), Some(opened)) = (proof, self.opened.get_mut(slot))
                && call.opens
            {
                opened.quiesce(proof);
            }
            let stage = std::mem::replace(&mut call.stage, Stage::Finished);
            if let Stage::Finished = stage {
                continue;
            }
            // An answered Call that only waited for its LocalInv keeps its answer.
            if call.reply.is_none() && call.error.is_none() {
                call.error = Some(error.clone());
            }
            self.finished.push_back(slot);
            if let Stage::Queued(buffer, _) = stage {
                self.recycle(buffer);
            }
        }
    }

    /// Tells callers whose deadline has passed; takes back what nobody waits for any more.
    pub(crate) fn expire_calls(&mut self, now: Instant) {
        for slot in 0..self.outbound.len() {
            let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { continue };
            if matches!(call.stage, Stage::Finished | Stage::Resting) {
                continue;
            }
            let (key, deadline) = (call.connection, call.deadline);
            if deadline > now {
                self.wake_by(deadline);
                continue;
            }
            let later = now.saturating_add(self.limits.grace_timeout);
            call.deadline = later;
            match std::mem::replace(&mut call.stage, Stage::Fencing) {
                Stage::Queued(buffer, _) => {
                    let connection = self.connections.get(key);
                    let connecting = connection.is_some_and(Connection::is_connecting);
                    call.error = Some(if connecting {
                        CallError::Connect(ConnectError::TimedOut)
                    } else {
                        CallError::TimedOut
                    });
                    call.stage = Stage::Finished;
                    self.finished.push_back(slot);
                    self.recycle(buffer);
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.calls.retain(|&queued| queued != slot);
                    }
                    continue;
                }
                // [V2-7.4-1] an answer that came now would be written where the next one is expected.
                Stage::Sent if call.caller == Caller::Nobody && call.opens && !self.handles_end => {
                    let why = "a call was not answered, and its handle stays good";
                    self.close(key, CallError::Disconnected(why.into()));
                }
                // The grace is over: nobody waits, the peer keeps silent, the memory comes home.
                Stage::Sent if call.caller == Caller::Nobody => self.fence_rest(slot),
                // P10: the caller is released at once, the leases stay where they are.
                Stage::Sent => {
                    call.stage = Stage::Sent;
                    self.released.push_back(std::mem::replace(&mut call.caller, Caller::Nobody));
                }
                // [V2-7.4-1] memory that cannot be invalidated is protected by closing.
                Stage::Fencing | Stage::Finished | Stage::Resting => {
                    self.close(key, CallError::Disconnected("an invalidation is stuck".into()));
                }
            }
            self.wake_by(later);
        }
    }
}

impl Connection {
    /// Writes RPC header and arguments of a Call behind the header room.
    #[inline]
    fn encode(
        &self,
        buffer: &mut Local,
        (xid, procedure): (u32, u32),
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
        argument: Option<usize>,
    ) -> Result<Encoded, Truncated> {
        let room = buffer.bytes_mut().get_mut(HEADER_ROOM..).unwrap_or_default();
        let mut writer = Writer::new(room);
        let Binding { program, version, .. } = **self.binding;
        let header = CallHeader::new(xid, program, version, procedure);
        match &self.identity {
            Identity::Nobody => header.encode(&mut writer)?,
            somebody => somebody.encode(header, &mut writer)?,
        }
        let arguments_at = writer.position();
        encode(&mut writer)?;
        put_length(&mut writer, argument)?;
        Ok(Encoded { arguments_at, length: writer.position() })
    }
}
