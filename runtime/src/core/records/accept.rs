//! Takes peers from the ports of a core, and makes connections of them.

use haulage_proto::time::Instant;

use super::ending::{described, end};
use crate::core::common::Common;
use crate::core::inner::Inner;
use crate::core::service::Service;
use crate::core::streams::{Incoming, STRANGERS_MAX, Standing, Stream, TcpLimits};
use crate::cores::deal::Place;
use crate::crowd::{Choice, CrowdLimits, choose, network};
use crate::origin::Origin;

/// Adopts peers that the group's first core has dealt to this one, as many as one turn may. Returns how many there were.
pub(super) fn adopt_dealt<S: Service>(inner: &mut Inner, service: &mut S, now: Instant) -> usize {
    let mut adopted = 0;
    while adopted < ACCEPTS_MAX
        && let Some((incoming, place)) = inner.common.streams.seat.next_dealt()
    {
        adopt(inner, service, now, (incoming, place));
        adopted += 1;
    }
    adopted
}

/// Deals the peers that wait at a port, as many as one turn may, and adopts those for this core. Returns how many there were.
pub(super) fn accept<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    now: Instant,
    port: usize,
) -> usize {
    let mut accepted = 0;
    while accepted < ACCEPTS_MAX {
        let Some(incoming) = inner.common.streams.next_incoming(now, port) else { break };
        accepted += 1;
        if let Some(dealt) = inner.common.streams.seat.deal(incoming) {
            adopt(inner, service, now, dealt);
        }
    }
    if accepted == ACCEPTS_MAX {
        inner.common.streams.accept_again(now, port);
    }
    if let Some(again) = inner.common.streams.accepts_again() {
        inner.common.wake_by(again);
    }
    accepted
}

/// Makes a connection of a peer, or refuses it. It was taken from a port of this number, here or by another core.
fn adopt<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    now: Instant,
    (incoming, place): (Incoming, Place),
) {
    let peer = incoming.peer;
    let is_admitted = service.admits(peer);
    let standing = if is_admitted { Standing::Admitted } else { Standing::Stranger };
    let Some(limits) = inner.common.streams.limits(incoming.port) else { return };
    if !make_room(inner, now, (&incoming, standing), limits) {
        inner.common.streams.counters.rejected += 1;
        return inner.common.trace.rejected(peer, "there is no room");
    }
    let Common { streams, memory, connections, .. } = &mut inner.common;
    let share = memory.enter(Origin::of(peer, None));
    match streams.enter((incoming, place), (standing, limits), share, now) {
        Err(share) => {
            streams.counters.rejected += 1;
            memory.leave(&share);
        }
        Ok((key, is_watched)) => {
            if !is_watched {
                return end(inner, key, "the system does not watch it");
            }
            streams.counters.accepted += 1;
            connections.ready.push_back(described(key, peer));
            let due = streams.get(key).and_then(Stream::due);
            due.into_iter().for_each(|due| inner.common.wake_by(due));
        }
    }
}

/// Makes room for a newcomer, if need be by ending another connection of its port. Returns whether there is room.
fn make_room(
    inner: &mut Inner,
    now: Instant,
    (incoming, standing): (&Incoming, Standing),
    limits: TcpLimits,
) -> bool {
    let streams = &mut inner.common.streams;
    let newcomer = network(incoming.peer.ip());
    // A client may connect again before the end of its last connection was seen: it is seen first.
    let of_it = streams.each().filter(|(_, stream)| network(stream.peer().ip()) == newcomer);
    let over: Vec<_> = of_it.filter(|(_, one)| one.is_closed()).map(|(key, _)| key).collect();
    over.into_iter().for_each(|key| streams.be_readable_to_the_end(key));
    let beside = |stream: &Stream| stream.port() == incoming.port && stream.standing() == standing;
    let mut each: Vec<_> = streams.each().filter(|(_, stream)| beside(stream)).collect();
    // Of those that began at the same time, the first goes first.
    each.sort_by_key(|(_, stream)| stream.number());
    let candidates: Vec<_> =
        each.into_iter().map(|(key, stream)| stream.candidate(key, now)).collect();
    let most = match standing {
        Standing::Admitted => limits.connections_max as usize,
        Standing::Stranger => limits.connections_max.min(STRANGERS_MAX) as usize,
    };
    let limits_of_all = CrowdLimits { connections_max: most, each_max: most.div_ceil(2) };
    match choose(&candidates, newcomer, limits_of_all) {
        Choice::Welcome => true,
        Choice::Replace(which) => {
            streams.counters.replaced += 1;
            end(inner, which, "it gave way to another connection");
            true
        }
        Choice::Refuse => false,
    }
}

/// Peers adopted at one port in one turn, at most.
const ACCEPTS_MAX: usize = 64;
