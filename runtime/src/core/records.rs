//! What a core does with its connections over TCP in a turn: accepts, reads, serves, sends, and ends what is late.

use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::time::Instant;

use super::admission::Origin;
use super::common::Common;
use super::inner::Inner;
use super::service::Service;
use super::streams::{Newcomer, STRANGERS_MAX, Standing, Stream, Streams};
use super::tell;
use crate::crowd::{Choice, CrowdLimits, Phase, choose, network};
use crate::key::ConnectionKey;
use crate::provider::PeerUser;
use crate::service::{CallError, ConnectionId, Ended, Peer, Reply, Role};
use crate::sys::socket::{Socket, Vanished, is_of_the_peer};

mod calls;

use calls::{Read, read};

/// Accepts, and reads what has arrived. Returns how much was done.
#[inline]
pub(crate) fn take<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    reply: &mut Option<Reply>,
    (now, budget): (Instant, usize),
) -> usize {
    if inner.common.streams.are_none() {
        0
    } else {
        take_some(inner, service, reply, (now, budget))
    }
}

#[inline(never)]
fn take_some<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    reply: &mut Option<Reply>,
    (now, budget): (Instant, usize),
) -> usize {
    let mut worked = 0;
    let streams = &mut inner.common.streams;
    for port in streams.look() {
        worked += accept(inner, service, now, port);
    }
    for at in 0..inner.common.streams.ports.len() {
        let port = inner.common.streams.ports.get(at);
        if port.is_some_and(|port| port.again.is_some_and(|again| again <= now)) {
            worked += accept(inner, service, now, at);
        }
    }
    if worked > 0 {
        tell::tell_ready(inner, service, now);
    }
    worked + read_by_turns(inner, service, reply, (now, budget))
}

/// Reads at most `budget` connections, by rounds in which each origin has one turn, until that was much work. Who is read
/// next has waited for one turn of each origin at most, and for as much work of one.
fn read_by_turns<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    reply: &mut Option<Reply>,
    (now, budget): (Instant, usize),
) -> usize {
    let mut worked = 0;
    let mut left = inner.common.streams.readable.connections().min(budget);
    while left > 0 && worked < WORK_MAX {
        let round = inner.common.streams.readable.origins().clamp(1, left);
        left -= round;
        for _ in 0..round {
            let Some(key) = inner.common.streams.readable.pop(|_| true) else { return worked };
            let Read { worked: some, ended } = read(inner, service, reply, now, key);
            worked += some;
            if let Some(why) = ended {
                end(inner, key, why);
            }
        }
    }
    worked
}

/// Accepts the peers that wait at a port.
fn accept<S: Service>(inner: &mut Inner, service: &mut S, now: Instant, at: usize) -> usize {
    let mut accepted = 0;
    loop {
        let streams = &mut inner.common.streams;
        let Some(port) = streams.ports.get_mut(at) else { break };
        port.again = None;
        if accepted == ACCEPTS_MAX {
            port.again = Some(now);
            break;
        }
        streams.counters.syscalls += 1;
        let vanished = Vanished::after(Some(port.limits.progress_timeout));
        match port.listener.accept(vanished) {
            Ok(Some((socket, peer))) => {
                accepted += 1;
                let is_admitted = service.admits(peer);
                let standing = if is_admitted { Standing::Admitted } else { Standing::Stranger };
                enter(inner, now, at, (socket, peer), standing);
            }
            Ok(None) => break,
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                streams.counters.accepts.count(&error);
                // Most likely no descriptors are left: wait until others are closed.
                let again = now.saturating_add(ACCEPT_AGAIN);
                port.again = Some(again);
                inner.common.wake_by(again);
                break;
            }
        }
    }
    accepted
}

/// Gives a new connection a place, if need be that of another.
fn enter(
    inner: &mut Inner,
    now: Instant,
    at: usize,
    (socket, peer): (Socket, SocketAddr),
    standing: Standing,
) {
    let streams = &mut inner.common.streams;
    let Some(limits) = streams.ports.get(at).map(|port| port.limits) else { return };
    let newcomer = network(peer.ip());
    // A client may connect again before the end of its last connection was seen: it is seen first.
    let of_it = streams.each().filter(|(_, stream)| network(stream.peer().ip()) == newcomer);
    let over: Vec<_> = of_it.filter(|(_, one)| one.is_closed()).map(|(key, _)| key).collect();
    over.into_iter().for_each(|key| streams.be_readable_to_the_end(key));
    let beside = |stream: &Stream| stream.port() == at && stream.standing() == standing;
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
        Choice::Welcome => {}
        Choice::Replace(which) => {
            streams.counters.replaced += 1;
            end(inner, which, "it gave way to another connection");
        }
        Choice::Refuse => {
            streams.counters.rejected += 1;
            return inner.common.trace.rejected(peer, "there is no room");
        }
    }
    let Common { streams, memory, .. } = &mut inner.common;
    let share = memory.enter(Origin::of(peer, None));
    let fd = socket.fd();
    let number = streams.counters.accepted;
    let newcomer = Newcomer { socket, peer, port: at, number, standing, limits };
    let stream = Stream::new(newcomer, share, now);
    let due = stream.due();
    match streams.table.insert(stream) {
        Err(stream) => {
            streams.counters.rejected += 1;
            memory.leave(&stream.share);
        }
        Ok(place) => {
            let watched = match &mut streams.epoll {
                Some(epoll) => epoll.watch(fd, place.to_bits()),
                None => Ok(()),
            };
            let key = streams.named(place);
            if watched.is_err() {
                return end(inner, key, "the system does not watch it");
            }
            streams.counters.accepted += 1;
            let peer = described(key, peer);
            inner.common.connections.ready.push_back(peer);
            due.into_iter().for_each(|due| inner.common.wake_by(due));
        }
    }
}

fn described(key: ConnectionKey, address: SocketAddr) -> Peer {
    let (connection, user) = (ConnectionId(key), PeerUser::Unknown);
    Peer { connection, address, user, version: None, role: Role::Server }
}

/// Ends a connection that is lost, and forgets its Calls.
fn end(inner: &mut Inner, key: ConnectionKey, why: &str) {
    end_with(inner, key, CallError::Disconnected(why.to_owned()));
}

fn end_with(inner: &mut Inner, key: ConnectionKey, why: CallError) {
    let Inner { responder, common, .. } = inner;
    responder.drop_calls(common, key);
    let Common { streams, memory, connections, .. } = common;
    let held = streams.get(key).map_or(0, Stream::held);
    streams.give_back(key, held);
    let Some(mut stream) = streams.remove(key) else { return };
    stream.release(&mut streams.left);
    for charge in streams.left.drain(..) {
        memory.discharge(Some(&mut stream.share), charge);
    }
    memory.leave(&stream.share);
    let has_all = stream.has_left();
    let peer = described(key, stream.peer());
    connections.gone.push_back(Ended { peer, why, has_all });
}

/// Sends what the turn leaves to be sent. Returns how many connections had something.
pub(crate) fn flush(inner: &mut Inner, now: Instant) -> usize {
    let mut flushed = 0;
    while let Some((key, why)) = inner.common.streams.closing.pop() {
        flushed += 1;
        end_with(inner, key, why);
    }
    while let Some(key) = inner.common.streams.unsent.pop() {
        flushed += 1;
        let Common { streams, memory, .. } = &mut inner.common;
        let Some(place) = streams.place(key) else { continue };
        let Streams { table, left, counters, .. } = streams;
        let Some(stream) = table.get_mut(place) else { continue };
        let sent = stream.send(now, left, counters);
        for charge in left.drain(..) {
            stream.share.end_transfer();
            memory.discharge(Some(&mut stream.share), charge);
        }
        match sent {
            Err(_) => end(inner, key, "it was lost"),
            Ok(()) if stream.is_done() => end(inner, key, "the peer closed it"),
            Ok(()) => {
                let due = stream.due();
                if stream.is_let_go() {
                    streams.be_readable(key);
                }
                due.into_iter().for_each(|due| inner.common.wake_by(due));
            }
        }
    }
    flushed
}

/// Ends the connections that are late.
pub(crate) fn expire(inner: &mut Inner, now: Instant) {
    let mut next: Option<Instant> = None;
    let mut late = Vec::new();
    for (key, stream) in inner.common.streams.each() {
        match stream.due() {
            Some(due) if due <= now => late.push(key),
            Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
            None => {}
        }
    }
    for key in late {
        inner.common.streams.counters.late += 1;
        end(inner, key, "it was silent for too long, or too slow");
    }
    let again = inner.common.streams.ports.iter().filter_map(|port| port.again).min();
    next.into_iter().chain(again).for_each(|due| inner.common.wake_by(due));
}

/// Ends the connections with nothing under way, and all of them once the time is over.
pub(crate) fn drain(inner: &mut Inner, now: Instant, by: Instant) {
    let is_over = by <= now;
    let idle = |stream: &Stream| is_over || stream.phase() == Phase::Idle;
    let each = inner.common.streams.each().filter(|(_, stream)| idle(stream));
    let keys: Vec<_> = each.map(|(key, _)| key).collect();
    keys.into_iter().for_each(|key| end(inner, key, "the server ends"));
}

/// Connections accepted in one turn, at most.
const ACCEPTS_MAX: usize = 64;
/// Work of the connections that are read in one turn, in Calls and receives, after which no other round begins.
const WORK_MAX: usize = 64;
/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
