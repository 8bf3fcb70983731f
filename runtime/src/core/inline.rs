//! The short way of a turn: messages without chunks, taken without Receives and acted upon as they come.
//!
//! # Normal operation
//! A Call is given to the service at once, from a buffer that the next one is copied to when it has been
//! answered; its Reply leaves at once too, if credit allows. A Reply is told at once. Whatever is in the way
//! of that, the message stays with the provider, and the stages of the next turn take it.
//!
//! What a Call comes to, its Reply or another Call, leaves by the [`Outlet`] that came with it. Some providers
//! show it to the peer at the end of the turn; so this comes as late in it as it can.

use haulage_mr_pool::Local;
use haulage_proto::negotiate::{Class, Version};
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
use crate::core::transmit::set_credit;
use crate::provider::{Inlet, Outlet, Provider};
use crate::service::{Reply, Service};

impl<P: Provider, S: Service> Core<P, S> {
    /// Acts on at most `budget` messages. Returns how many there were.
    pub(crate) fn take_inline(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, service, state, incoming, .. } = self;
        let reply = state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        let mut short = Short { state, service, now, reply, from: None };
        let taken = provider.receive_inline(incoming, budget, &mut short);
        if let Some(Reply { buffer, .. }) = short.reply {
            state.recycle(buffer);
        }
        taken
    }
}

/// The short way while it is taken.
struct Short<'a, S> {
    state: &'a mut State,
    service: &'a mut S,
    now: Instant,
    /// What Replies are made in, one after the other; without it no Call is taken.
    reply: Option<Reply>,
    /// Where the last message came from.
    from: Option<Origin>,
}

/// What is known of a connection while messages come from it.
#[derive(Clone, Copy)]
struct Origin {
    qp: QpNum,
    key: Key<Connection>,
    /// Octets of the longest Payload stream of a Reply without chunks.
    bare_reply_max: usize,
}

/// How a Reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is on its way.
    Gone,
    /// Behind others, or when there is credit.
    Queue,
    /// As a work request: it has its credit word.
    Post,
}

impl<S: Service> Inlet for Short<'_, S> {
    #[inline]
    fn take(&mut self, qp: QpNum, message: &[u8], outlet: &mut impl Outlet) -> bool {
        let Some(bare) = Bare::of(message) else { return false };
        let from = match self.from {
            Some(from) if from.qp == qp => from,
            _ => match self.state.origin(qp) {
                Some(from) => *self.from.insert(from),
                None => return false,
            },
        };
        let payload = message.get(bare.payload_at as usize..).unwrap_or_default();
        match bare.kind {
            Kind::Call => self.take_call(from, &bare, payload, outlet),
            Kind::Reply => self.take_reply(from, &bare, payload, outlet),
        }
    }
}

impl<S: Service> Short<'_, S> {
    /// Has the service act on a Call, and answers it, if there is something to answer from.
    #[inline]
    fn take_call(
        &mut self,
        from: Origin,
        bare: &Bare,
        payload: &[u8],
        outlet: &mut impl Outlet,
    ) -> bool {
        let Self { state, service, now, reply, .. } = self;
        // Older Calls are acted upon before it.
        let Some(making) = reply.as_mut().filter(|_| state.ready.is_empty()) else { return false };
        if !state.take(*now, from.key, bare) {
            return false;
        }
        let named = (from.key, bare.xid);
        making.begin(from.bare_reply_max);
        // The short way is of version 2 alone.
        match act(state, *service, *now, named, Version::Two, payload, making) {
            Acted::Reply(start, end) => {
                state.counters.calls_served += 1;
                state.receives.pass();
                let message = making.buffer.bytes_mut().get_mut(start..end).unwrap_or_default();
                let way = state.answer_inline(from.key, message, outlet);
                if way != Way::Gone
                    && let Some(buffer) = state.take_buffer(reply)
                {
                    state.answer_later(from.key, way, Complete::new(buffer, start..end));
                }
            }
            other => {
                let booked = state.receives.book();
                let answered = state.settle(named, booked, other);
                debug_assert!(answered.is_none(), "there is no Reply");
            }
        }
        true
    }

    /// Tells how a Call of ours ended, if nothing is left of it then.
    #[inline]
    fn take_reply(
        &mut self,
        from: Origin,
        bare: &Bare,
        payload: &[u8],
        outlet: &mut impl Outlet,
    ) -> bool {
        let Self { state, service, now, .. } = self;
        let Some(slot) = state.xids.find(bare.xid) else { return false };
        let Some(Some(call)) = state.outbound.get(slot) else { return false };
        let Some(token) = call.is_over_with(from.key) else { return false };
        if !state.take(*now, from.key, bare) {
            return false;
        }
        state.forget(slot);
        state.receives.pass();
        if let Some(connection) = state.connections.get_mut(from.key)
            && state.receives.is_due(connection.engine.reserved())
        {
            connection.replenish(&mut state.receives, 0);
        }
        // It may call again, which leaves at once.
        let cx = Cx::within(*now, state, from.key, outlet);
        tell_inline(cx, *service, token, payload);
        true
    }
}

impl State {
    /// Finds the connection of a queue pair.
    fn origin(&self, qp: QpNum) -> Option<Origin> {
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        let connection = self.connections.get(key).filter(|found| found.qp == qp)?;
        Some(Origin { qp, key, bare_reply_max: connection.terms.bare_reply_max })
    }

    /// Has a connection's engine take a message, and marks the connection.
    #[inline]
    fn take(&mut self, now: Instant, key: Key<Connection>, bare: &Bare) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let taken = connection.engine.take(now, bare);
        if taken && !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push_back(key);
        }
        taken
    }

    /// Sends a Reply without chunks at once, unless something is in the way.
    #[inline]
    fn answer_inline(
        &mut self,
        key: Key<Connection>,
        message: &mut [u8],
        outlet: &mut impl Outlet,
    ) -> Way {
        let Some(connection) = self.connections.get_mut(key) else { return Way::Queue };
        let is_next = connection.replies.is_empty() && connection.queue.is_empty();
        if !is_next || message.len() > self.inline_max {
            return Way::Queue;
        }
        // Room for other Calls is given with the Reply to this one.
        if self.receives.is_due(connection.engine.reserved()) {
            connection.replenish(&mut self.receives, 1);
        }
        let Some(credit) = connection.engine.try_send(Class::Reply) else { return Way::Queue };
        set_credit(message, credit);
        if outlet.send(message).is_err() {
            return Way::Post;
        }
        connection.rings = true;
        Way::Gone
    }

    /// Takes the buffer of a Reply that does not leave at once. The next one has another, if there is one.
    #[cold]
    fn take_buffer(&mut self, reply: &mut Option<Reply>) -> Option<Local> {
        match (self.buffers.pop(), reply.as_mut()) {
            (Some(fresh), Some(reply)) => Some(std::mem::replace(&mut reply.buffer, fresh)),
            _ => reply.take().map(|reply| reply.buffer),
        }
    }

    /// Queues a Reply that did not leave at once.
    #[cold]
    fn answer_later(&mut self, key: Key<Connection>, way: Way, reply: Complete) {
        match way {
            Way::Post => self.send_complete(key, reply),
            Way::Queue | Way::Gone => self.queue_bare(key, reply),
        }
    }
}
