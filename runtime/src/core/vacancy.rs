//! Closes connections: to make room for others, because they are idle for too long or hold memory that others wait for,
//! or in a shutdown.

use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;

use super::admission::RULES;
use super::common::Common;
use super::inner::Inner;
use crate::core::service::Service;
use crate::crowd::{Candidate, Phase, Scope, Verdict};
use crate::key::{ConnectionKey, Transport};
use crate::origin::Origin;
use crate::service::{CallError, ConnectionId};

/// Makes room for a newcomer, if need be by closing an idle connection. Returns whether there is room.
pub(crate) fn make_room(
    inner: &mut Inner,
    service: &impl Service,
    now: Instant,
    newcomer: Origin,
) -> bool {
    let common = &inner.common;
    // No connection is closed for a newcomer that would find no place even then, because closing connections have it.
    if !common.connections.has_room() || !common.receives.has_minimum() {
        return false;
    }
    let occupancy = common.connections.occupancy();
    let (all_max, each_max) = (common.limits.connections_max, common.limits.connections_each_max);
    let Verdict::Replace(scope) = occupancy.judge(newcomer, all_max, each_max) else {
        return true;
    };
    let candidates = idle_connections(inner, now);
    let candidates = candidates.filter(|candidate| !promised(service, candidate.key));
    let victim = occupancy.victim((newcomer, scope), &RULES, candidates);
    let Some(victim) = victim else { return false };
    let common = &mut inner.common;
    common.counters.connections_replaced += 1;
    let (of, most) = match scope {
        Scope::Own => ("one address", each_max),
        Scope::Any => ("all addresses", all_max),
    };
    if let Some(connection) = common.connections.get_mut(victim) {
        common.trace.replaced(connection.peer(), of, most);
    }
    let why = CallError::Disconnected("it gave way to another connection".into());
    common.connections.close(victim, why);
    true
}

/// Closes the accepted connections that have been idle for too long.
pub(crate) fn close_idle(inner: &mut Inner, service: &impl Service, now: Instant) {
    let Some(limit) = inner.common.limits.idle_timeout else { return };
    let over: Vec<_> = idle_connections(inner, now)
        .filter(|candidate| candidate.lasted >= limit && !promised(service, candidate.key))
        .map(|candidate| candidate.key)
        .collect();
    let common = &mut inner.common;
    for key in over {
        common.counters.connections_idle += 1;
        if let Some(connection) = common.connections.get_mut(key) {
            connection.life.ends_ordinarily();
        }
        let why = CallError::Disconnected("it was idle for too long".into());
        common.connections.close(key, why);
    }
    let served = common.connections.iter().filter(|connection| connection.role() == Role::Server);
    let due = served.filter(|connection| connection.life.is_up()).map(|connection| {
        let due = connection.life.active().saturating_add(limit);
        // An overdue connection that is still up is busy or promised: it is looked at again after another limit.
        if due <= now { now.saturating_add(limit) } else { due }
    });
    if let Some(due) = due.min() {
        common.wake_by(due);
    }
}

/// Closes a connection whose peer is slow to move memory that it holds, if one of an origin that holds less has waited
/// for memory for long.
pub(crate) fn close_slow(common: &mut Common, now: Instant) {
    let Common { connections, streams, memory, .. } = common;
    if !memory.reclaims() {
        return;
    }
    let over_tcp = || streams.each().map(|(key, stream)| (key, &stream.share));
    let shares = || {
        let over_rdma = connections.iter().map(|connection| &connection.share);
        over_rdma.chain(over_tcp().map(|(_, share)| share))
    };
    let short = shares().filter(|share| share.has_waited_long(now));
    let Some(least) = short.map(|share| memory.held_beside(share)).min() else { return };
    let keys = std::iter::successors(connections.from(0), |key| connections.from(key.slot() + 1));
    let up = keys.filter_map(|key| {
        let connection = connections.get(key).filter(|connection| connection.life.is_up())?;
        Some((key, &connection.share))
    });
    let slow = up.chain(over_tcp()).filter_map(|(key, share)| {
        let late = now.saturating_since(share.late_since(now)?);
        let held = memory.held_beside(share);
        (held > least).then_some(((held, late), key))
    });
    let Some((_, slowest)) = slow.max_by_key(|(rank, _)| *rank) else { return };
    common.counters.connections_slow += 1;
    let why = "it was slow to move memory that others waited for";
    common.close(slowest, CallError::Disconnected(why.into()));
}

/// Closes the connections that have nothing in flight, and all of them once the time is `by`.
pub(crate) fn drain(inner: &mut Inner, now: Instant, by: Instant) {
    let busy = inner.busy_slots();
    let keys: Vec<_> = inner.keys().collect();
    let common = &mut inner.common;
    for key in keys {
        let Common { connections, streams, .. } = common;
        let has_more = match key.transport() {
            Transport::Rdma => connections.get(key).is_some_and(|one| one.engine.owed() > 0),
            Transport::Tcp => streams.get(key).is_some_and(|one| one.phase() != Phase::Idle),
        };
        let is_busy = has_more || busy.get(key.slot()).copied().unwrap_or(false);
        if by <= now || !is_busy {
            common.close(key, CallError::Closed);
        }
    }
    if common.connections.len() > 0 || common.streams.len() > 0 {
        common.wake_by(now.saturating_add(DRAIN_INTERVAL));
    }
}

fn promised(service: &impl Service, key: ConnectionKey) -> bool {
    service.has_promised(ConnectionId(key))
}

/// Returns the accepted connections with nothing under way.
fn idle_connections(
    inner: &Inner,
    now: Instant,
) -> impl Iterator<Item = Candidate<ConnectionKey, Origin>> {
    let busy = inner.busy_slots();
    inner.keys().filter_map(move |key| {
        let connection = inner.common.connections.get(key)?;
        let is_served = connection.role() == Role::Server && connection.life.is_up();
        let origin = connection.life.origin().filter(|_| is_served)?;
        // A connection that has something to post was active in this turn.
        let waits = connection.outbox.is_busy() || connection.engine.owed() > 0;
        if waits || busy.get(key.slot()).copied().unwrap_or(false) {
            return None;
        }
        let phase = if connection.life.has_called() { Phase::Idle } else { Phase::Silent };
        let lasted = now.saturating_since(connection.life.active());
        Some(Candidate { key, origin, phase, lasted })
    })
}

/// How often a shutdown looks whether connections have become idle.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);
