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

use haulage_proto::negotiate::{Class, Version, bare_header_len};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
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
use crate::provider::{Inlet, Outlet, Provider, RUN_MAX};
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
            let (done, count) = self.take_bare(from, rest, outlet);
            taken += done;
            if done < count {
                break;
            }
            // What is behind them may have a chunk.
            if let Some(rest) = run.get(taken..).filter(|rest| !rest.is_empty()) {
                let (done, count) = self.take_chunks(from, rest, outlet);
                taken += done;
                if done < count || count == 0 {
                    break;
                }
            }
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
        if state.take(*now, from.key, &[reply]) == 0 {
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

/// A message that can be taken the short way.
trait Shape: AsRef<Bare> {
    /// Octets of the transport header of a Reply to such a Call.
    const REPLY_HEADER_LEN: usize;

    /// Returns the message with its chunk, if it is one that may have any.
    fn with_chunk(&self) -> Option<&OneChunk>;
}

impl Shape for Bare {
    const REPLY_HEADER_LEN: usize = bare_header_len(Version::Two, Kind::Reply);

    #[inline]
    fn with_chunk(&self) -> Option<&OneChunk> {
        None
    }
}

impl Shape for OneChunk {
    const REPLY_HEADER_LEN: usize = Self::REPLY_LEN;

    #[inline]
    fn with_chunk(&self) -> Option<&OneChunk> {
        Some(self)
    }
}

impl<S: Service> Short<'_, S> {
    /// Takes messages without chunks from the front of a run. Returns how many, and how many there are.
    #[inline]
    fn take_bare(
        &mut self,
        from: Origin,
        run: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> (usize, usize) {
        let mut bares = [Bare::NONE; RUN_MAX];
        let mut count = 0;
        for (place, message) in bares.iter_mut().zip(run) {
            let Some(bare) = Bare::of(message) else { break };
            *place = bare;
            count += 1;
        }
        let mut taken = 0;
        // Calls and Replies each by themselves, as far as they come one behind the other.
        while let Some((bares, run)) = bares.get(taken..count).zip(run.get(taken..))
            && let Some(kind) = bares.first().map(|bare| bare.kind)
        {
            // Older Calls are acted upon first.
            if kind == Kind::Call && !self.state.ready.is_empty() {
                break;
            }
            let counted = self.state.take(self.now, from.key, bares);
            let done = match kind {
                Kind::Call => self.take_calls(from, &bares[..counted], run, outlet),
                Kind::Reply => self.take_replies(from, &bares[..counted], run, outlet),
            };
            taken += done;
            if done < counted {
                self.state.put_back(from.key, kind, counted - done);
            }
            if done == 0 || done < counted {
                break;
            }
        }
        (taken, count)
    }

    /// Does the same with Calls that offer a place for their result, by one chunk of one segment.
    #[inline(never)]
    fn take_chunks(
        &mut self,
        from: Origin,
        run: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> (usize, usize) {
        let mut calls = [OneChunk::NONE; RUN_MAX];
        let mut count = 0;
        for (place, message) in calls.iter_mut().zip(run) {
            let found =
                OneChunk::of(message).filter(|one| self.state.may_offer(from, one, message));
            let Some(call) = found else { break };
            *place = call;
            count += 1;
        }
        if !self.state.ready.is_empty() {
            return (0, count);
        }
        let counted = self.state.take(self.now, from.key, &calls[..count]);
        let done = self.take_calls(from, &calls[..counted], run, outlet);
        self.state.counters.write_chunks += done as u64;
        if done < counted {
            self.state.put_back(from.key, Kind::Call, counted - done);
        }
        (done, count)
    }

    /// Has the service act on Calls, and answers them, as long as there is something to answer from. Returns
    /// how many.
    #[inline(never)]
    fn take_calls<C: Shape>(
        &mut self,
        from: Origin,
        calls: &[C],
        run: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { state, service, now, reply } = self;
        if reply.is_none() {
            **reply = state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        }
        let (lent, credit) = state.lend_replies(from.key, calls.len());
        let leaves_max = state.inline_max.saturating_sub(C::REPLY_HEADER_LEN);
        let longer = C::REPLY_HEADER_LEN - Bare::REPLY_HEADER_LEN;
        let length_max = from.bare_reply_max.saturating_sub(longer);
        // How many may still leave at once, and how many may not any more.
        let (mut left, mut stays) = (lent, 0);
        let (mut done, mut others) = (0, 0);
        let mut token = state.inbound.next_key();
        let mut cx = Cx::new(*now, state);
        for (call, message) in calls.iter().zip(run) {
            let bare = call.as_ref();
            let payload = message.get(bare.payload_at as usize..);
            let (Some(making), Some(payload)) = (reply.as_mut(), payload) else { break };
            let chunk = call.with_chunk();
            making.begin(length_max, chunk.map(|one| u64::from(one.segment.length)));
            done += 1;
            let named = (from.key, bare.xid, token);
            // The short way is of version 2 alone.
            match act(&mut cx, *service, named, Version::Two, payload, making) {
                Acted::Results(length) => {
                    if left > 0
                        && length <= leaves_max
                        && making.leave((bare.xid, credit), chunk, length, outlet).is_some()
                    {
                        left -= 1;
                        continue;
                    }
                    let header = ReplyHeader::accepted(bare.xid, AcceptStat::Success);
                    cx.state.answer_later(from.key, &header, length, chunk, reply);
                }
                other => {
                    making.data = Data::Empty;
                    let booked = cx.state.receives.book();
                    let named = (from.key, bare.xid);
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
    fn take_replies(
        &mut self,
        from: Origin,
        bares: &[Bare],
        run: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { state, service, now, .. } = self;
        state.give_credits(from.key, 0);
        // Who is told may call again, which leaves at once.
        let lane = state.open_lane(from.key, bares.len(), outlet);
        let mut cx = Cx::within(*now, state, lane);
        let mut done = 0;
        for (bare, message) in bares.iter().zip(run) {
            let Some(token) = cx.state.end_call(from.key, bare.xid) else { break };
            let payload = message.get(bare.payload_at as usize..).unwrap_or_default();
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

impl State {
    /// Finds the connection of a queue pair.
    #[inline]
    fn origin(&self, qp: QpNum) -> Option<Origin> {
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        let connection = self.connections.get(key).filter(|found| found.qp == qp)?;
        Some(Origin { key, bare_reply_max: connection.terms.bare_reply_max })
    }

    /// Returns whether a Call may come with its chunk: what its procedure returns can be placed there.
    #[inline]
    fn may_offer(&self, from: Origin, call: &OneChunk, message: &[u8]) -> bool {
        let payload = message.get(OneChunk::CALL_LEN..).unwrap_or_default();
        let places = CallHeader::decode(payload).ok().and_then(|(header, _)| {
            let procedure = self.binding.procedure(header.procedure)?;
            let is_ours = self.binding.has(header.program, header.version, header.procedure);
            Some(is_ours && !procedure.results.is_empty())
        });
        let connection = self.connections.get(from.key);
        call.bare.kind == Kind::Call
            && places == Some(true)
            && connection.is_some_and(|found| found.engine.serves_chunk(call.segment.length))
    }

    /// Has a connection's engine take messages, and marks the connection. Returns how many.
    #[inline]
    fn take<M: AsRef<Bare>>(&mut self, now: Instant, key: Key<Connection>, run: &[M]) -> usize {
        let Some(connection) = self.connections.get_mut(key) else { return 0 };
        let taken = connection.engine.take(now, run);
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
