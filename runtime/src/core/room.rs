//! Connections that make room for others, and those that are idle for too long.

use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;

use super::admission::{self, Calls, Candidate, Origin, Verdict};
use crate::core::Core;
use crate::core::connection::Connection;
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::trace::Manner;
use crate::provider::Provider;
use crate::service::{CallError, ConnectionId, Service};

impl<P: Provider, S: Service> Core<P, S> {
    /// Returns whether there is room for a newcomer, after a connection has gone in its favour if need be.
    pub(crate) fn make_room(&mut self, now: Instant, newcomer: Origin) -> bool {
        let Self { state, service, .. } = self;
        let limits = &state.limits;
        // Nobody goes for a newcomer that finds no place all the same, while others are on their way out.
        if !state.connections.has_room() || !state.receives.has_minimum() {
            return false;
        }
        let (all_max, each_max) = (limits.connections_max, limits.connections_each_max);
        let Verdict::Replace(scope) = state.occupancy.judge(newcomer, all_max, each_max) else {
            return true;
        };
        let candidates = state.idle_connections();
        let candidates = candidates.filter(|candidate| !promised(service, candidate.key));
        let victim = admission::victim(now, (newcomer, scope), &state.occupancy, candidates);
        let Some(victim) = victim else { return false };
        state.counters.connections_replaced += 1;
        state.close(victim, CallError::Disconnected("it gave way to another connection".into()));
        true
    }

    /// Closes the connections to us that have been idle for too long.
    pub(crate) fn close_idle(&mut self, now: Instant) {
        let Self { state, service, .. } = self;
        let Some(limit) = state.limits.idle_timeout else { return };
        let is_over = |active: Instant| active.saturating_add(limit) <= now;
        let over: Vec<_> = state
            .idle_connections()
            .filter(|candidate| is_over(candidate.active) && !promised(service, candidate.key))
            .map(|candidate| candidate.key)
            .collect();
        for key in over {
            state.counters.connections_idle += 1;
            if let Some(connection) = state.connections.get_mut(key) {
                connection.manner = Manner::Ordinary;
            }
            state.close(key, CallError::Disconnected("it was idle for too long".into()));
        }
        let served = state.connections.iter().filter(|connection| connection.role == Role::Server);
        let due = served.filter(|connection| connection.origin.is_some()).map(|connection| {
            let due = connection.active.saturating_add(limit);
            // It may go when what is under way has ended.
            if due <= now { now.saturating_add(limit) } else { due }
        });
        if let Some(due) = due.min() {
            state.wake_by(due);
        }
    }
}

fn promised(service: &impl Service, key: Key<Connection>) -> bool {
    service.has_promised(ConnectionId(key))
}

impl State {
    /// Notes that a peer has made a Call.
    #[inline]
    pub(crate) fn note_call(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.called = true;
            connection.traffic.calls_received += 1;
        }
    }

    /// Starts the time in which a connection to us is idle.
    pub(crate) fn begin_idling(&mut self, now: Instant, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.active = now;
        }
        if let Some(limit) = self.limits.idle_timeout {
            self.wake_by(now.saturating_add(limit));
        }
    }

    /// Counts a connection no more, as it is on its way out.
    pub(crate) fn vacate(&mut self, key: Key<Connection>) {
        if let Some(origin) = self.connections.get_mut(key).and_then(|found| found.origin.take()) {
            self.occupancy.leave(origin);
        }
    }

    /// Returns the connections to us with nothing under way.
    fn idle_connections(&self) -> impl Iterator<Item = Candidate<Key<Connection>>> {
        let busy = self.busy_slots();
        let mut next = self.connections.find(0, |_| true);
        let keys = std::iter::from_fn(move || {
            let key = next?;
            next = self.connections.find(key.slot() + 1, |_| true);
            Some(key)
        });
        keys.filter_map(move |key| {
            let connection = self.connections.get(key)?;
            let origin = connection.origin.filter(|_| connection.role == Role::Server)?;
            let waits = connection.engine.owed() > 0
                || !connection.replies.is_empty()
                || !connection.calls.is_empty();
            if waits || busy.get(key.slot()).copied().unwrap_or(false) {
                return None;
            }
            let calls = if connection.called { Calls::Some } else { Calls::Never };
            Some(Candidate { key, origin, calls, active: connection.active })
        })
    }

    /// Returns, by slot, which connections have Calls or work requests that have not ended.
    pub(super) fn busy_slots(&self) -> Vec<bool> {
        let mut busy = vec![false; self.connections.slots()];
        let inbound = self.inbound.iter().map(|call| call.connection);
        let work = self.work.iter().map(|work| work.connection);
        let outbound = self.outbound.iter().flatten().map(|call| call.connection);
        for key in inbound.chain(work).chain(outbound) {
            if let Some(busy) = busy.get_mut(key.slot()) {
                *busy = true;
            }
        }
        busy
    }
}
