//! The last stage of a turn: what is ready leaves, one doorbell per queue pair.

use std::collections::VecDeque;
use std::ops::Range;

use haulage_mr_pool::{Local, PostedSource};
use haulage_proto::negotiate::{Class, Input};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Flags, Handle};

use crate::core::Core;
use crate::core::connection::{Connection, State as ConnectionState};
use crate::core::inbound::{Complete, Outgoing};
use crate::core::outbound::Progress;
use crate::core::receives::Receives;
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::work::{Held, Name, Work, Written};
use crate::provider::{Operation, Port as _, Provider, WorkRequest};
use crate::service::Service;

impl<P: Provider, S: Service> Core<P, S> {
    /// Posts everything that is ready. Returns how many connections had something.
    pub(crate) fn flush_posts(&mut self, now: Instant) -> usize {
        // Receives first: P1, a limit is told only once the Receives behind it are posted.
        self.post_receives();
        let mut flushed = 0;
        // What is touched meanwhile has its turn next time; the bound is what stands here now.
        for _ in 0..self.state.dirty.len() {
            let Some(key) = self.state.dirty.pop_front() else { break };
            self.flush_connection(now, key);
            flushed += 1;
        }
        flushed + self.close_connections(now)
    }

    fn post_receives(&mut self) {
        let receives = self.state.receives.batch();
        if !receives.is_empty() {
            let posted = self.provider.post_receives(receives);
            debug_assert!(posted.is_ok(), "the provider holds every buffer there is");
        }
    }

    /// Has the provider provide for the first messages of a connection, before its peer can send any.
    pub(crate) fn provide(&mut self, key: Key<Connection>) {
        self.post_receives();
        if let Some(connection) = self.state.connections.get_mut(key) {
            connection.provide(&mut self.provider);
        }
    }

    fn flush_connection(&mut self, now: Instant, key: Key<Connection>) {
        let Some(connection) = self.state.connections.get_mut(key) else { return };
        if connection.state == ConnectionState::Closed {
            connection.dirty = false;
            return;
        }
        connection.active = now;
        // It stays marked meanwhile: what is queued now leaves below.
        let leaving = wire_len(&connection.replies);
        connection.replenish(&mut self.state.receives, leaving, self.state.dirty.len());
        connection.provide(&mut self.provider);
        if connection.has_work() {
            self.send_waiting(now, key);
        }
        let Some(connection) = self.state.connections.get_mut(key) else { return };
        connection.dirty = false;
        if connection.rings || !connection.queue.is_empty() {
            connection.rings = false;
            connection.provide(&mut self.provider);
            if let Some(mut port) = self.provider.port(connection.qp) {
                // What a full send queue leaves here goes on with the next completion.
                let _ = port.post(&mut connection.queue);
            }
        }
    }

    /// Sends the Replies and the Calls of a connection that wait, and what its engine has to say.
    #[inline(never)]
    fn send_waiting(&mut self, now: Instant, key: Key<Connection>) {
        self.send_bare_replies(key);
        while let Some((reply, credit)) = self.state.next_reply(key) {
            match reply {
                Outgoing::Bare(mut reply) => {
                    reply.set_credit(credit);
                    self.state.send_complete(key, reply);
                }
                Outgoing::Kept(call) => self.send_reply(call, credit),
            }
        }
        self.send_bare_calls(key);
        while let Some(slot) = self.state.next_call(key) {
            if self.send_call(key, slot) == Progress::Waits {
                break;
            }
        }
        self.state.drive(now, key, Input::Idle);
        self.state.note_stall(now, key);
    }

    /// Sends the Replies without chunks at the front of the queue inline, as far as that goes.
    fn send_bare_replies(&mut self, key: Key<Connection>) {
        let Self { provider, state, .. } = self;
        let Some(connection) = state.connections.get_mut(key) else { return };
        let Some(mut port) = provider.port(connection.qp) else { return };
        while let Some(Outgoing::Bare(reply)) = connection.replies.front()
            && connection.queue.is_empty()
            && reply.message().len() <= state.inline_max
            && let Some(credit) = connection.engine.try_send(Class::Reply)
            && let Some(Outgoing::Bare(mut reply)) = connection.replies.pop_front()
        {
            reply.set_credit(credit);
            if port.send(reply.message(), None).is_err() {
                return state.send_complete(key, reply);
            }
            connection.rings = true;
            state.buffers.recycle(reply.buffer);
        }
    }

    /// Carries out what was decided during the turn: connections that are to go.
    fn close_connections(&mut self, now: Instant) -> usize {
        let mut closed = 0;
        while let Some(key) = self.state.closing.pop() {
            closed += 1;
            if let Some(connection) = self.state.connections.get(key)
                && connection.state == ConnectionState::Draining
            {
                self.provider.disconnect(now, connection.qp);
            }
        }
        closed
    }
}

impl State {
    /// Reserves Receives for a connection: what it has used is given again, and more if it is busy.
    pub(crate) fn replenish(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key) {
            let leaving = wire_len(&connection.replies);
            connection.replenish(&mut self.receives, leaving, self.dirty.len());
        }
    }

    /// Takes the next Reply of a connection that its credits allow.
    fn next_reply(&mut self, key: Key<Connection>) -> Option<(Outgoing, u32)> {
        let connection = self.connections.get_mut(key)?;
        if connection.replies.is_empty() {
            return None;
        }
        let credit = connection.engine.try_send(Class::Reply)?;
        connection.replies.pop_front().map(|reply| (reply, credit))
    }

    /// Takes the next Call of ours that the connection's credits allow, or that will never leave.
    fn next_call(&mut self, key: Key<Connection>) -> Option<usize> {
        let connection = self.connections.get_mut(key)?;
        if connection.calls.is_empty() || !connection.engine.decides(Class::Call) {
            return None;
        }
        connection.calls.pop_front()
    }

    /// Queues a message that is complete.
    pub(crate) fn send_complete(&mut self, key: Key<Connection>, message: Complete) {
        let Complete { buffer, start, end } = message;
        self.send(key, buffer, start as usize..end as usize, None, Default::default());
    }

    /// Queues a message: `range` of `buffer`, behind the Writes whose sources are `written`.
    pub(crate) fn send(
        &mut self,
        key: Key<Connection>,
        buffer: Local,
        range: Range<usize>,
        invalidate: Option<Handle>,
        written: Written,
    ) {
        self.send_posted(key, buffer.into_source(), range, invalidate, written);
    }

    /// Queues a message whose buffer the Writes before it have as a source, too.
    pub(crate) fn send_posted(
        &mut self,
        key: Key<Connection>,
        buffer: PostedSource<Local>,
        range: Range<usize>,
        invalidate: Option<Handle>,
        written: Written,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(source) = buffer.source(range) else {
            debug_assert!(false, "a message lies within its buffer");
            return;
        };
        let held = Held::Send { buffer, written };
        let Ok(name) = self.work.insert(Work { connection: key, held }) else {
            debug_assert!(false, "an entry for every send buffer");
            return;
        };
        let id = Name::Work(name.to_bits()).wr_id();
        let flags = Flags { signaled: true, ..Flags::default() };
        let operation = Operation::Send { source, invalidate };
        connection.queue.push_back(WorkRequest { id, flags, operation });
    }

    /// P3: Replies that wait for credit must not wait for ever.
    fn note_stall(&mut self, now: Instant, key: Key<Connection>) {
        let timeout = self.limits.stall_timeout;
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.replies.is_empty() {
            connection.stalled_since = None;
        } else if connection.stalled_since.is_none() {
            connection.stalled_since = Some(now);
            self.wake_by(now.saturating_add(timeout));
        }
    }
}

impl Connection {
    /// Does the same; so many Replies are about to leave, if credit allows, and so many connections were `touched`.
    #[inline]
    pub(crate) fn replenish(&mut self, receives: &mut Receives, leaving: u32, touched: usize) {
        // A connection that is to close is given no new credits.
        if !self.is_up() {
            return;
        }
        // Such Replies hold no Receive any more, and are not owed for long.
        let leaving = self.engine.replies_left().min(leaving);
        let owed = self.engine.owed().saturating_sub(leaving);
        let more = receives.grow(&mut self.part, (self.engine.reserved(), owed), touched);
        self.engine.reserve(more);
        self.reserved += more;
    }

    /// Returns whether anything waits to be sent, or was noted of something that did.
    #[inline]
    fn has_work(&self) -> bool {
        !self.replies.is_empty()
            || !self.calls.is_empty()
            || self.stalled_since.is_some()
            || !self.engine.is_at_rest()
    }

    /// Tells the provider what is reserved for the peer, before the peer is told.
    #[inline]
    pub(crate) fn provide<P: Provider>(&mut self, provider: &mut P) {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved > 0 {
            provider.reserve_receives(self.qp, reserved);
        }
    }
}

impl Complete {
    pub(crate) fn new(buffer: Local, range: Range<usize>) -> Self {
        let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).unwrap_or_default());
        Self { buffer, start, end }
    }

    /// Returns the message.
    fn message(&self) -> &[u8] {
        self.buffer.bytes().get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Fills in the credit word.
    fn set_credit(&mut self, credit: u32) {
        set_credit(
            self.buffer.bytes_mut().get_mut(self.start as usize..).unwrap_or_default(),
            credit,
        );
    }
}

/// Fills in the credit word of a message.
#[inline]
pub(crate) fn set_credit(message: &mut [u8], credit: u32) {
    if let Some(word) = message.get_mut(CREDIT_AT..CREDIT_AT + 4) {
        word.copy_from_slice(&credit.to_be_bytes());
    }
}

fn wire_len<T>(queue: &VecDeque<T>) -> u32 {
    u32::try_from(queue.len()).unwrap_or(u32::MAX)
}

/// Where the credit word is in a message, in every version.
const CREDIT_AT: usize = 8;
