//! The short way of a turn: messages without chunks, taken without Receives and acted upon as they come.
//!
//! # Normal operation
//! A Call is given to the service at once, from a buffer that the next one is copied to when it has been
//! answered; its Reply leaves at once too, if credit allows. A Reply is told at once. Whatever is in the way
//! of that, the message stays with the provider, and the stages of the next turn take it.
//!
//! What leaves is shown to the peers at the end of the turn; so this comes as late in it as it can.

use std::ops::Range;

use haulage_mr_pool::Local;
use haulage_proto::negotiate::Class;
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Bare;
use haulage_proto::verbs::QpNum;

use crate::core::Core;
use crate::core::connection::Connection;
use crate::core::inbound::{Complete, act};
use crate::core::outbound::tell_inline;
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::transmit::set_credit;
use crate::provider::Provider;
use crate::service::{Reply, Service};

/// A message that the connection's engine has taken; its Payload stream starts at `payload_at`.
#[derive(Debug)]
enum Taken {
    Call { connection: Key<Connection>, xid: u32, payload_at: u32 },
    Reply { slot: usize, token: u64, payload_at: u32 },
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

impl<P: Provider, S: Service> Core<P, S> {
    /// Acts on at most `budget` messages. Returns how many there were.
    pub(crate) fn take_inline(&mut self, now: Instant, budget: usize) -> usize {
        // What Replies are made in, one after the other.
        let mut reply = self.state.buffers.pop().map(|buffer| Reply::new(buffer, None, 0, None));
        let mut taken = 0;
        while taken < budget {
            let Self { provider, service, state, incoming, .. } = self;
            let may_reply = reply.is_some();
            let next = provider.receive_inline(incoming, |qp, message| {
                state.take_inline(now, may_reply, qp, message)
            });
            let Some((message, length)) = next else { break };
            taken += 1;
            let payload = |at: u32| incoming.get(at as usize..length).unwrap_or_default();
            let booked = state.receives.book();
            match (message, &mut reply) {
                (Taken::Call { connection, xid, payload_at }, Some(making)) => {
                    let named = (connection, xid);
                    let acted = act(state, service, now, named, payload(payload_at), making);
                    let Some(range) = state.settle(named, booked, acted) else { continue };
                    let way = self.answer_inline(connection, making, range.clone());
                    if way != Way::Gone
                        && let Some(buffer) = self.state.take_buffer(&mut reply)
                    {
                        self.state.answer_later(connection, way, Complete::new(buffer, range));
                    }
                }
                (Taken::Call { .. }, None) => debug_assert!(false, "it was not to be taken"),
                (Taken::Reply { token, payload_at, .. }, _) => {
                    state.receives.give_back(booked);
                    tell_inline(state, service, now, token, payload(payload_at));
                }
            }
        }
        if let Some(Reply { buffer, .. }) = reply {
            self.state.recycle(buffer);
        }
        taken
    }

    /// Sends a Reply without chunks at once, unless something is in the way.
    #[inline]
    fn answer_inline(
        &mut self,
        key: Key<Connection>,
        reply: &mut Reply,
        range: Range<usize>,
    ) -> Way {
        let Self { provider, state, .. } = self;
        let Some(connection) = state.connections.get_mut(key) else { return Way::Queue };
        let message = reply.buffer.bytes_mut().get_mut(range).unwrap_or_default();
        let is_next = connection.replies.is_empty() && connection.queue.is_empty();
        if !is_next || message.len() > state.inline_max {
            return Way::Queue;
        }
        // Room for another Call is given with the Reply to this one.
        connection.replenish(&mut state.receives, 1);
        connection.provide(provider);
        let Some(credit) = connection.engine.try_send(Class::Reply) else { return Way::Queue };
        set_credit(message, credit);
        if provider.send_inline(connection.qp, message, None).is_err() {
            return Way::Post;
        }
        connection.rings = true;
        Way::Gone
    }
}

impl State {
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

    /// Looks whether a message can be acted upon at once, and if so lets the engine take it. A Call only
    /// if there is something to answer from.
    #[inline]
    fn take_inline(
        &mut self,
        now: Instant,
        may_reply: bool,
        qp: QpNum,
        message: &[u8],
    ) -> Option<Taken> {
        let bare = Bare::of(message)?;
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        let connection = self.connections.get_mut(key).filter(|found| found.qp == qp)?;
        let taken = match bare.kind {
            // Older Calls are acted upon before it.
            Kind::Call if !may_reply || !self.ready.is_empty() => return None,
            Kind::Call => {
                Taken::Call { connection: key, xid: bare.xid, payload_at: bare.payload_at }
            }
            Kind::Reply => {
                let slot = self.xids.find(bare.xid)?;
                let token = self.outbound.get(slot)?.as_ref()?.is_over_with(key)?;
                Taken::Reply { slot, token, payload_at: bare.payload_at }
            }
        };
        if !connection.engine.take(now, &bare) {
            return None;
        }
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push_back(key);
        }
        if let Taken::Reply { slot, .. } = taken {
            self.forget(slot);
        }
        Some(taken)
    }
}
