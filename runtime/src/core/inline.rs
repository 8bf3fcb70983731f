//! The short way of a turn: messages without chunks, taken without Receives and acted upon as they come.
//!
//! # Normal operation
//! Messages come in runs of one connection. What holds for all of a run is settled once: that nothing is out
//! of the ordinary, what credits the peer is given, and how many Replies, or Calls, may leave at once and with
//! which credit word. Then each Call is given to the service, and its Reply leaves; each Reply is told, and
//! the Call that its caller makes next leaves by the [`Lane`](crate::core::outbound::Lane) of the connection.
//! Whatever is in the way of that, the messages stay with the provider, and the stages of the next turn take
//! them.
//!
//! What a message comes to leaves by the [`Outlet`] that came with the run. Some providers show it to the
//! peer at the end of the turn; so this comes as late in it as it can.

use haulage_proto::negotiate::{Class, Version, bare_header_len};
use haulage_proto::rpc::{AcceptStat, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Bare;
use haulage_proto::verbs::QpNum;

use crate::core::Core;
use crate::core::connection::Connection;
use crate::core::inbound::{Acted, Complete, act};
use crate::core::outbound::tell_inline;
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::limits::INLINE_SIZE;
use crate::provider::{Inlet, Outlet, Provider, RUN_MAX};
use crate::service::{Reply, Service};

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
        taken
    }
}

impl<S: Service> Short<'_, S> {
    /// Has the service act on Calls, and answers them, as long as there is something to answer from. Returns
    /// how many.
    #[inline(never)]
    fn take_calls(
        &mut self,
        from: Origin,
        bares: &[Bare],
        run: &[&[u8]],
        outlet: &mut impl Outlet,
    ) -> usize {
        let Self { state, service, now, reply } = self;
        if reply.is_none() {
            **reply = state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        }
        let (lent, credit) = state.lend_replies(from.key, bares.len());
        let leaves_max = state.inline_max.saturating_sub(REPLY_HEADER_LEN);
        // How many may still leave at once, and how many may not any more.
        let (mut left, mut stays) = (lent, 0);
        let (mut done, mut others) = (0, 0);
        let mut token = state.inbound.next_key();
        let mut cx = Cx::new(*now, state);
        for (bare, message) in bares.iter().zip(run) {
            let payload = message.get(bare.payload_at as usize..);
            let (Some(making), Some(payload)) = (reply.as_mut(), payload) else { break };
            making.begin(from.bare_reply_max);
            done += 1;
            let named = (from.key, bare.xid, token);
            // The short way is of version 2 alone.
            match act(&mut cx, *service, named, Version::Two, payload, making) {
                Acted::Results(length) => {
                    if left > 0
                        && length <= leaves_max
                        && let Some(message) = making.seal_results(bare.xid, length, credit)
                        && outlet.send(message).is_ok()
                    {
                        left -= 1;
                        continue;
                    }
                    let header = ReplyHeader::accepted(bare.xid, AcceptStat::Success);
                    cx.state.answer_later(from.key, &header, length, reply);
                }
                other => {
                    let booked = cx.state.receives.book();
                    if let Some((header, length)) =
                        cx.state.settle((from.key, bare.xid), booked, other)
                    {
                        cx.state.answer_later(from.key, &header, length, reply);
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

    /// Has a connection's engine take messages, and marks the connection. Returns how many.
    #[inline]
    fn take(&mut self, now: Instant, key: Key<Connection>, run: &[Bare]) -> usize {
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
        reply: &mut Option<Reply>,
    ) {
        let Some(sealed) = reply.as_mut() else { return };
        let range = sealed.seal(Version::Two, header, length);
        let buffer = match self.buffers.pop() {
            Some(fresh) => std::mem::replace(&mut sealed.buffer, fresh),
            None => match reply.take() {
                Some(Reply { buffer, .. }) => buffer,
                None => return,
            },
        };
        self.queue_bare(key, Complete::new(buffer, range));
    }
}

/// Octets of the transport header of a Reply on this way.
const REPLY_HEADER_LEN: usize = bare_header_len(Version::Two, Kind::Reply);

/// Octets of room for messages that are taken at once.
pub(super) const INCOMING: usize = 2 * INLINE_SIZE;
