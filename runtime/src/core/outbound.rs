//! The Requester: a Call of ours from its arguments to its results.
//!
//! # Normal operation
//! The arguments are encoded into a send buffer at once, behind the room for the transport header.
//! When credit allows, the argument's and the result's leases are registered under fresh handles,
//! the header is written in front of the arguments, and registrations and message leave with one
//! doorbell. A Reply is trusted in nothing: the chunks it returns are checked against our own record
//! of what was offered.
//!
//! # Memory ownership
//! An exposed lease comes back only against proof that its handle is dead: the Reply's own Remote
//! Invalidation for one of them, a LocalInv for the other, or the end of the connection. The caller
//! is told the results only then.
//!
//! # Recovery
//! A Call that is given up (P10) releases its caller at once. Its leases stay exposed, owned by the
//! slot, until the Reply or a grace deadline; the slot is not used again on that connection.

mod send;
mod tell;

use haulage_mr_pool::{Exposed, Invalidated, Local};
use haulage_proto::chunk;
use haulage_proto::rpc::CallHeader;
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::ReplyInline;
use haulage_proto::verbs::{Flags, Handle};
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::connection::Connection;
use crate::core::inbound::{Message, Segments};
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::work::{Held, Name, Work};
use crate::limits::HEADER_ROOM;
use crate::provider::{ConnectError, Operation, Quiesced, WorkRequest};
use crate::service::{self, CallError, Request};
use crate::sys::complete;

pub(crate) use tell::tell;

/// A Call of ours that has not ended.
#[derive(Debug)]
pub(crate) struct OutboundCall {
    pub(crate) connection: Key<Connection>,
    pub(crate) caller: Caller,
    pub(crate) xid: u32,
    pub(crate) deadline: Instant,
    pub(crate) stage: Stage,
    argument: Item,
    /// Where the reduced argument stands in the unreduced Payload stream.
    position: u32,
    result: Item,
    /// What we offered for the argument.
    reads: Segments,
    /// What we offered for the result, in our own record.
    offered: Segments,
    /// Octets the Reply says were written.
    returned: u32,
    reply: Option<Message>,
    error: Option<CallError>,
    /// A remote caller's buffer, for the results.
    lent: Option<Local>,
}

/// What is needed of a Reply's transport header after its message has been judged.
#[derive(Debug)]
pub(crate) struct ReplyParts {
    xid: u32,
    /// The segments of the first Write chunk.
    writes: Option<Segments>,
    chunk_count: u32,
    payload_at: usize,
}

impl ReplyParts {
    /// Copies them out of a message of `length` octets.
    pub(crate) fn of(reply: &ReplyInline<'_>, length: usize) -> Self {
        let first = reply.writes.chunks().next();
        Self {
            xid: reply.prefix.xid,
            writes: first.map(|chunk| Segments::collect(chunk.segments())),
            chunk_count: reply.writes.chunk_count(),
            payload_at: length - reply.payload.len(),
        }
    }

    /// Checks the returned chunk against what was offered. Returns how much was written.
    fn returned(&self, offered: &Segments) -> Result<u32, &'static str> {
        match (&self.writes, offered.as_slice()) {
            (None, []) => Ok(0),
            (Some(writes), offered) if self.chunk_count == 1 && !offered.is_empty() => {
                chunk::returned(offered, writes.as_slice()).map_err(|fault| fault.rule())
            }
            _ => Err("it returns other Write chunks than were offered"),
        }
    }
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
    /// Waits for credit, with its arguments encoded.
    Queued { buffer: Local, payload_length: usize },
    /// Waits for its Reply.
    Sent,
    /// Answered, or given up; waits until its handles are dead.
    Fencing,
    /// Over; the caller has not been told.
    Finished,
    /// Given up and never answered: the slot rests until the connection ends.
    Resting,
}

/// A lease of the caller's, wherever it is.
#[derive(Debug)]
pub(crate) enum Item {
    None,
    Local(Local),
    Exposed(Exposed),
}

impl Item {
    fn take_local(&mut self) -> Option<Local> {
        match std::mem::replace(self, Self::None) {
            Self::Local(lease) => Some(lease),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the lease back if `proof` is about it; else the proof is returned.
    fn fence<'t>(&mut self, proof: Invalidated<'t>) -> Option<Invalidated<'t>> {
        match std::mem::replace(self, Self::None) {
            Self::Exposed(exposed) => match exposed.fence(proof) {
                Ok(lease) => {
                    *self = Self::Local(lease);
                    None
                }
                Err((exposed, proof)) => {
                    // A broken provider's: it stays exposed, and so out of everyone's reach.
                    debug_assert!(exposed.handle() != proof.handle(), "a view outlived its handle");
                    *self = Self::Exposed(exposed);
                    Some(proof)
                }
            },
            other => {
                *self = other;
                Some(proof)
            }
        }
    }

    fn quiesce(&mut self, proof: &Quiesced) {
        if let Self::Exposed(exposed) = self {
            let proof = complete::destroyed(exposed, proof);
            let stray = self.fence(proof);
            debug_assert!(stray.is_none(), "the proof was made for this very lease");
        }
    }

    fn exposed(&self) -> Option<Handle> {
        match self {
            Self::Exposed(exposed) => Some(exposed.handle()),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Local(lease) => lease.len(),
            _ => 0,
        }
    }
}

impl OutboundCall {
    /// Returns whether a Reply or a deadline still means something to it.
    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Queued { .. } | Stage::Sent)
    }

    fn is_fenced(&self) -> bool {
        self.argument.exposed().is_none() && self.result.exposed().is_none()
    }
}

impl State {
    /// Queues a Call. The request comes back, with its leases, if that is not possible.
    #[expect(clippy::result_large_err, reason = "a refused request is moved back once, not boxed")]
    pub(crate) fn call(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        mut request: Request,
        caller: Caller,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<usize, (CallError, Request)> {
        let Some(connection) = self.connections.get_mut(key).filter(|c| c.takes_calls()) else {
            let ended = self.ended.iter().rev().find(|(ended, _)| *ended == key);
            return Err((ended.map_or(CallError::Closed, |(_, why)| why.clone()), request));
        };
        // [V2-4.4.2-2] nothing is reduced that the binding does not allow.
        if !service::allows(&connection.binding, &request) {
            return Err((CallError::NotEligible, request));
        }
        let Some(mut buffer) = self.buffers.pop() else { return Err((CallError::Busy, request)) };
        let Some((slot, xid)) = self.xids.open() else {
            self.recycle(buffer);
            return Err((CallError::Busy, request));
        };
        let header = {
            let binding = &connection.binding;
            CallHeader::new(xid, binding.program, binding.version, request.procedure)
        };
        let argument = request.argument.as_ref().map(Local::len);
        match encode_payload(&mut buffer, &header, encode, argument) {
            Ok((position, payload_length)) => {
                let timeout = request.timeout.unwrap_or(self.limits.call_timeout);
                let deadline = now.saturating_add(timeout);
                if let Some(place) = self.outbound.get_mut(slot) {
                    *place = Some(OutboundCall {
                        connection: key,
                        caller,
                        xid,
                        deadline,
                        stage: Stage::Queued { buffer, payload_length },
                        argument: request.argument.take().map_or(Item::None, Item::Local),
                        position,
                        result: request.result.take().map_or(Item::None, Item::Local),
                        reads: Segments::default(),
                        offered: Segments::default(),
                        returned: 0,
                        reply: None,
                        error: None,
                        lent: None,
                    });
                }
                connection.calls.push_back(slot);
                self.wake_by(deadline);
                self.touch(key);
                Ok(slot)
            }
            Err(_) => {
                self.xids.close(slot);
                self.recycle(buffer);
                Err((CallError::TooLong, request))
            }
        }
    }

    /// Keeps a remote caller's buffer until its Call ends.
    pub(crate) fn lend(&mut self, slot: usize, buffer: Local) {
        if let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) {
            call.lent = Some(buffer);
        }
    }

    /// Takes in a Reply. `proof` is what its Send invalidated. False if the connection must go.
    pub(crate) fn on_reply(
        &mut self,
        key: Key<Connection>,
        reply: &ReplyParts,
        buffer: Local,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let found = self.xids.find(reply.xid).and_then(|slot| {
            let call = self.outbound.get_mut(slot)?.as_mut()?;
            (call.connection == key && call.is_open()).then_some((slot, call))
        });
        let Some((slot, call)) = found else {
            self.counters.replies_unmatched += 1;
            self.receives.give_back(buffer);
            return proof.is_none();
        };
        // A handle that is not this Call's is not the peer's to invalidate.
        let stray = proof
            .and_then(|proof| call.result.fence(proof))
            .and_then(|proof| call.argument.fence(proof));
        match reply.returned(&call.offered) {
            Ok(length) => call.returned = length,
            Err(rule) => call.error = Some(CallError::BadReply(rule)),
        }
        call.reply = Some(Message { buffer, payload_at: reply.payload_at });
        call.stage = Stage::Fencing;
        self.fence_rest(slot);
        stray.is_none()
    }

    /// The peer's transport could not act on a Call.
    pub(crate) fn on_refused(&mut self, key: Key<Connection>, xid: u32, error: ErrorBody) {
        let Some(slot) = self.xids.find(xid) else { return };
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        if call.connection == key && call.is_open() {
            call.error = Some(CallError::Refused(error));
            call.stage = Stage::Fencing;
            self.fence_rest(slot);
        }
    }

    /// A LocalInv on behalf of a Call has completed.
    pub(crate) fn on_fenced(&mut self, slot: usize, proof: Invalidated<'_>) {
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        let stray = call.result.fence(proof).and_then(|proof| call.argument.fence(proof));
        debug_assert!(stray.is_none(), "a LocalInv retires a handle of the Call it was posted for");
        if call.is_fenced() && matches!(call.stage, Stage::Fencing) {
            self.finish(slot);
        }
    }

    /// Posts a LocalInv for every handle of an answered Call that is still alive, or finishes it.
    fn fence_rest(&mut self, slot: usize) {
        let Some(call) = self.outbound.get_mut(slot).and_then(Option::as_mut) else { return };
        if call.is_fenced() {
            return self.finish(slot);
        }
        let (key, handles) = (call.connection, [call.argument.exposed(), call.result.exposed()]);
        let Some(connection) = self.connections.get_mut(key) else { return };
        for handle in handles.into_iter().flatten() {
            let work = Work { connection: key, held: Held::LocalInv { slot } };
            let Ok(name) = self.work.insert(work) else {
                debug_assert!(false, "two entries for every slot");
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
            if let Some(proof) = proof {
                call.argument.quiesce(proof);
                call.result.quiesce(proof);
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
            if let Stage::Queued { buffer, .. } = stage {
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
                Stage::Queued { buffer, .. } => {
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

/// Writes RPC header and arguments behind the header room. Returns the position of the reduced
/// argument, and the length of the inline Payload stream.
fn encode_payload(
    buffer: &mut Local,
    header: &CallHeader<'_>,
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    argument: Option<usize>,
) -> Result<(u32, usize), Truncated> {
    let room = buffer.bytes_mut().get_mut(HEADER_ROOM..).unwrap_or_default();
    let mut writer = Writer::new(room);
    header.encode(&mut writer)?;
    encode(&mut writer)?;
    if let Some(length) = argument {
        // [V2-4.5.3.1-1] the length stays in the Payload stream, the octets and their padding go.
        writer.u32(u32::try_from(length).map_err(|_| Truncated { at: 0 })?)?;
    }
    let length = writer.position();
    Ok((u32::try_from(length).map_err(|_| Truncated { at: 0 })?, length))
}
