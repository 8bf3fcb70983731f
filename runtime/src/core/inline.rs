//! The short way of a turn: messages without chunks, or with one for a result, taken without Receives and acted
//! upon as they come.
//!
//! # Normal operation
//! Messages come in runs of one connection. What holds for all of a run is settled once: that nothing is out
//! of the ordinary, what credits the peer is given, and how many Replies, or Calls, may leave at once and with
//! which credit word. Then each Call is given to the service, and its Reply leaves; each Reply is told, and
//! the Call that its caller makes next leaves by the [`Lane`](crate::core::outbound::Lane) of the connection.
//! A Reply that invalidates the handle of its Call's result comes by itself, and has it retired.
//! Whatever is in the way of that, the messages stay with the provider, and the stages of the next turn take
//! them.
//!
//! What a message comes to leaves by the [`Outlet`] that came with the run. Some providers show it to the
//! peer at the end of the turn; so this comes as late in it as it can.

use std::rc::Rc;

use haulage_proto::negotiate::{Class, Version, bare_header_len};
use haulage_proto::rpc::{AcceptStat, Binding, CallHeader, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::{Bare, OneChunk};
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::verbs::{ClaimedSegment, Handle, QpNum, Segment};

use crate::core::Core;
use crate::core::connection::Connection;
use crate::core::inbound::{Acted, Complete, act};
use crate::core::outbound::{tell_inline, tell_placed};
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::limits::INLINE_SIZE;
use crate::provider::{Inlet, Outlet, Provider};
use crate::service::{Data, Reply, Service};
use crate::sys::complete;

impl<P: Provider, S: Service> Core<P, S> {
    /// Acts on at most `budget` messages. Returns how many there were.
    pub(crate) fn take_inline(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, service, state, incoming, reply, .. } = self;
        let mut short = Short { state, service, now, reply };
        provider.receive_inline(incoming, INLINE_SIZE, budget, &mut short)
    }
}

/// The short way while it is taken.
struct Short<'a, S> {
    state: &'a mut State,
    service: &'a mut S,
    now: Instant,
    /// What Replies are made in, one after the other; without it no Call is taken.
    reply: &'a mut Option<Reply>,
}

/// What is known of a connection while messages come from it.
#[derive(Clone, Copy)]
struct Origin {
    key: Key<Connection>,
    /// Octets of the longest Payload stream of a Reply without chunks.
    bare_reply_max: usize,
}

impl<S: Service> Inlet for Short<'_, S> {
    #[inline]
    fn take(&mut self, qp: QpNum, run: &[&[u8]], outlet: &mut impl Outlet) -> usize {
        let Some(from) = self.state.origin(qp) else { return 0 };
        let mut taken = 0;
        while let Some(rest) = run.get(taken..).filter(|rest| !rest.is_empty()) {
            let done = match self.take_bare(from, rest, outlet) {
                0 => self.take_chunks(from, rest, outlet),
                done => done,
            };
            if done == 0 {
                break;
            }
            taken += done;
        }
        taken
    }

    fn take_invalidating(
        &mut self,
        qp: QpNum,
        message: &[u8],
        handle: Handle,
        outlet: &mut impl Outlet,
    ) -> bool {
        let origin = self.state.origin(qp);
        let reply = OneChunk::of(message).filter(|one| one.bare.kind == Kind::Reply);
        let (Some(from), Some(reply)) = (origin, reply) else { return false };
        let Self { state, service, now, .. } = self;
        let slot = state.xids.find(reply.bare.xid);
        let Some(slot) = slot.filter(|slot| state.is_over_with(*slot, from.key, handle, &reply))
        else {
            return false;
        };
        if state.take(*now, from.key, Kind::Reply, [reply.bare]) == 0 {
            return false;
        }
        let Some(done) = outlet.retire(handle) else {
            state.put_back(from.key, Kind::Reply, 1);
            return false;
        };
        let ended = state.end_opened(slot, complete::invalidated(&done), &reply);
        state.give_credits(from.key, 0);
        let lane = state.open_lane(from.key, 1, outlet);
        let mut cx = Cx::within(*now, state, lane);
        let payload = message.get(OneChunk::REPLY_LEN..).unwrap_or_default();
        if let Some(ended) = ended {
            tell_placed(&mut cx, *service, ended, payload);
        }
        let Cx { lane, state, .. } = cx;
        if let Some(lane) = lane {
            state.close_lane(&lane);
        }
        state.counters.calls_made += 1;
        state.receives.pass(1);
        true
    }
}

/// What Calls that are taken the short way look like.
trait Shape {
    /// Octets of the transport header of such a Call, and of its Reply's.
    const CALL_LEN: usize;
    const REPLY_LEN: usize;

    /// Returns such a Call's chunk.
    fn chunk(call: &[u8]) -> Option<OneChunk>;
}

impl Shape for Bare {
    const CALL_LEN: usize = bare_header_len(Version::Two, Kind::Call);
    const REPLY_LEN: usize = bare_header_len(Version::Two, Kind::Reply);

    #[inline]
    fn chunk(_: &[u8]) -> Option<OneChunk> {
        None
    }
}

impl Shape for OneChunk {
    const CALL_LEN: usize = Self::CALL_LEN;
    const REPLY_LEN: usize = Self::REPLY_LEN;

    #[inline]
    fn chunk(call: &[u8]) -> Option<OneChunk> {
        Self::of(call)
    }
}

impl<S: Service> Short<'_, S> {
    /// Takes messages without chunks from the front of a run, all of them Calls or all of them Replies. Returns
    /// how many.
    #[inline]
    fn take_bare(&mut self, from: Origin, run: &[&[u8]], outlet: &mut impl Outlet) -> usize {
        let first = run.first().and_then(|message| Bare::of(message));
        let Some(kind) = first.map(|bare| bare.kind) else { return 0 };
        // Older Calls are acted upon first.
        if kind == Kind::Call && !self.state.ready.is_empty() {
            return 0;
        }
        let bares = run.iter().map_while(|message| Bare::of(message));
        let counted = self.state.take(self.now, from.key, kind, bares);
        let run = run.get(..counted).unwrap_or_default();
        let done = match kind {
            Kind::Call => self.take_calls::<Bare>(from, run, outlet),
            Kind::Reply => self.take_replies(from, run, outlet),
        };
        if done < counted {
            self.state.put_back(from.key, kind, counted - done);
        }
        done
    }

    /// Does the same with Calls that offer a place for their result, by one chunk of one segment.
    #[inline(never)]
    fn take_chunks(&mut self, from: Origin, run: &[&[u8]], outlet: &mut impl Outlet) -> usize {
        let state = &mut *self.state;
        if !state.ready.is_empty() {
            return 0;
        }
        let (binding, length_max) = (Rc::clone(&state.binding), state.chunk_max(from.key));
        let calls = run.iter().map_while(|message| {
            let call = OneChunk::of(message).filter(|call| call.segment.length <= length_max)?;
            returns_an_item(&binding, message).then_some(call.bare)
        });
        let counted = state.take(self.now, from.key, Kind::Call, calls);
        let run = run.get(..counted).unwrap_or_default();
        let done = self.take_calls::<OneChunk>(from, run, outlet);
        self.state.counters.write_chunks += done as u64;
        if done < counted {
            self.state.put_back(from.key, Kind::Call, counted - done);
        }
        done
    }

    /// Has the service act on Calls, and answers them, as long as there is something to answer from. Returns
    /// how many.
    #[inline(never)]
    fn take_calls<C: Shape>(
        &mut self,
        from: Origin,
        calls: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { state, service, now, reply } = self;
        if reply.is_none() {
            **reply = state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        }
        let (lent, credit) = state.lend_replies(from.key, calls.len());
        let leaves_max = state.inline_max.saturating_sub(C::REPLY_LEN);
        let length_max = from.bare_reply_max.saturating_sub(C::REPLY_LEN - Bare::REPLY_LEN);
        // How many may still leave at once, and how many may not any more.
        let (mut left, mut stays) = (lent, 0);
        let (mut done, mut others) = (0, 0);
        let mut token = state.inbound.next_key();
        let mut cx = Cx::new(*now, state);
        for call in calls {
            let (Some(making), Some((xid, payload))) = (reply.as_mut(), apart::<C>(call)) else {
                break;
            };
            let chunk = C::chunk(call);
            let chunk = chunk.as_ref();
            making.begin(length_max, chunk.map(|one| u64::from(one.segment.length)));
            done += 1;
            let named = (from.key, xid, token);
            // The short way is of version 2 alone.
            match act(&mut cx, *service, named, Version::Two, payload, making) {
                Acted::Results(length) => {
                    if left > 0
                        && length <= leaves_max
                        && making.leave((xid, credit), chunk, length, outlet).is_some()
                    {
                        left -= 1;
                        continue;
                    }
                    let header = ReplyHeader::accepted(xid, AcceptStat::Success);
                    cx.state.answer_later(from.key, &header, length, chunk, reply);
                }
                other => {
                    making.data = Data::Empty;
                    let booked = cx.state.receives.book();
                    let named = (from.key, xid);
                    if let Some((header, length)) = cx.state.settle(named, booked, chunk, other) {
                        cx.state.answer_later(from.key, &header, length, chunk, reply);
                    }
                    token = cx.state.inbound.next_key();
                    others += 1;
                }
            }
            // Others leave behind it.
            stays += std::mem::take(&mut left);
        }
        state.running = None;
        let answered = done - others;
        state.counters.calls_served += u64::from(answered);
        state.receives.pass(answered);
        state.settle_lent(from.key, Class::Reply, lent, lent - left - stays);
        done as usize
    }

    /// Tells how Calls of ours ended, as long as nothing is left of them then. Returns how many.
    #[inline(never)]
    fn take_replies(&mut self, from: Origin, replies: &[&[u8]], outlet: &mut impl Outlet) -> usize {
        let Self { state, service, now, .. } = self;
        state.give_credits(from.key, 0);
        // Who is told may call again, which leaves at once.
        let lane = state.open_lane(from.key, replies.len(), outlet);
        let mut cx = Cx::within(*now, state, lane);
        let mut done = 0;
        for reply in replies {
            let Some((header, payload)) = reply.split_at_checked(Bare::REPLY_LEN) else { break };
            let Some(token) = cx.state.end_call(from.key, xid(header)) else { break };
            tell_inline(&mut cx, *service, token, payload);
            done += 1;
        }
        let Cx { lane, state, .. } = cx;
        if let Some(lane) = lane {
            state.close_lane(&lane);
        }
        state.counters.calls_made += u64::from(done);
        state.receives.pass(done);
        done as usize
    }
}

/// Takes the transport header off a Call. Returns its XID, and the Payload stream.
#[inline]
fn apart<C: Shape>(call: &[u8]) -> Option<(u32, &[u8])> {
    let (header, payload) = call.split_at_checked(C::CALL_LEN)?;
    Some((xid(header), payload))
}

/// Returns the XID that a transport header begins with.
#[inline]
fn xid(header: &[u8]) -> u32 {
    header.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

/// Returns whether what a Call with one chunk asks for can be placed there.
#[inline]
fn returns_an_item(binding: &Binding, call: &[u8]) -> bool {
    let payload = call.get(OneChunk::CALL_LEN..).unwrap_or_default();
    let asked = match CallHeader::plain(payload) {
        Some(asked) => Some(asked),
        None => CallHeader::decode(payload)
            .ok()
            .map(|(header, _)| [header.program, header.version, header.procedure]),
    };
    asked.is_some_and(|[program, version, procedure]| {
        let procedure = binding.procedure(procedure);
        (program, version) == (binding.program, binding.version)
            && procedure.is_some_and(|procedure| !procedure.results.is_empty())
    })
}

impl State {
    /// Finds the connection of a queue pair.
    #[inline]
    fn origin(&self, qp: QpNum) -> Option<Origin> {
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        let connection = self.connections.get(key).filter(|found| found.qp == qp)?;
        Some(Origin { key, bare_reply_max: connection.terms.bare_reply_max })
    }

    /// Returns how long the only chunk of a Call may be; zero if there may be none.
    fn chunk_max(&self, key: Key<Connection>) -> u32 {
        self.connections.get(key).map_or(0, |connection| connection.engine.chunk_max())
    }

    /// Has a connection's engine take messages, and marks the connection. Returns how many.
    #[inline]
    fn take(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        kind: Kind,
        run: impl IntoIterator<Item = Bare>,
    ) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let taken = connection.engine.take(now, kind, run);
        if taken > 0 && !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push_back(key);
        }
        taken as usize
    }

    /// Has a connection's engine take back that so many messages have been received.
    #[cold]
    fn put_back(&mut self, key: Key<Connection>, kind: Kind, count: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.put_back(kind, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Gives a connection room for other messages, of which it is told with the next one of ours; so many
    /// Replies are about to leave.
    #[inline]
    fn give_credits(&mut self, key: Key<Connection>, leaving: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            let leaving = u32::try_from(leaving).unwrap_or(u32::MAX);
            connection.replenish(&mut self.receives, leaving);
        }
    }

    /// Forgets a Call of ours that is over with this Reply. Returns the caller's token.
    #[inline]
    fn end_call(&mut self, key: Key<Connection>, xid: u32) -> Option<u64> {
        let slot = self.xids.find(xid)?;
        let token = self.outbound.get(slot)?.as_ref()?.is_over_with(key)?;
        self.forget(slot);
        Some(token)
    }

    /// Gives a connection room for as many other Calls, and asks how many Replies may leave at once, and with
    /// which credit word: none if others wait.
    #[inline]
    fn lend_replies(&mut self, key: Key<Connection>, count: usize) -> (u32, u32) {
        self.give_credits(key, count);
        match self.connections.get_mut(key) {
            Some(connection) if connection.replies.is_empty() && connection.queue.is_empty() => {
                connection.engine.lend(Class::Reply, u32::try_from(count).unwrap_or(u32::MAX))
            }
            _ => (0, 0),
        }
    }

    /// Queues a Reply that did not leave at once. The next one has another buffer, if there is one.
    #[cold]
    fn answer_later(
        &mut self,
        key: Key<Connection>,
        header: &ReplyHeader,
        length: usize,
        chunk: Option<&OneChunk>,
        reply: &mut Option<Reply>,
    ) {
        let Some(sealed) = reply.as_mut() else { return };
        let range = sealed.seal(Version::Two, header, length);
        let data = std::mem::replace(&mut sealed.data, Data::Empty);
        let buffer = match self.buffers.pop() {
            Some(fresh) => std::mem::replace(&mut sealed.buffer, fresh),
            None => match reply.take() {
                Some(Reply { buffer, .. }) => buffer,
                None => return,
            },
        };
        match chunk {
            None => self.queue_bare(key, Complete::new(buffer, range)),
            Some(call) => self.queue_with_chunk(key, call, (buffer, range.end), data),
        }
    }
}

impl Reply {
    /// Sends a Reply with results of so many octets, behind the Writes of what goes into a chunk. `None` if
    /// it has not left: nothing has changed here then.
    #[inline(always)]
    fn leave(
        &mut self,
        (xid, credit): (u32, u32),
        chunk: Option<&OneChunk>,
        length: usize,
        outlet: &mut impl Outlet,
    ) -> Option<()> {
        let Some(call) = chunk else {
            let message = self.seal_results(xid, length, credit)?;
            return outlet.send(message, None).ok();
        };
        let OneChunk { inv_handle, segment, .. } = *call;
        let claim = ClaimedSegment::try_from(segment).ok()?;
        let mut written = 0;
        for part in self.data.parts().filter(|part| !part.is_empty()) {
            let target = claim.window(u64::from(written), u32::try_from(part.len()).ok()?).ok()?;
            outlet.write(part, &target).ok()?;
            written += target.length();
        }
        let returned = Segment { length: written, ..segment };
        let message = self.seal_results_with(xid, length, credit, &returned)?;
        outlet.send(message, invalidates(Kind::Reply, true, inv_handle)).ok()?;
        self.data = Data::Empty;
        Some(())
    }
}

/// Octets of room for messages that are taken at once.
pub(super) const INCOMING: usize = 2 * INLINE_SIZE;
