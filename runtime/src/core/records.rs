//! What a core does with its connections over TCP in a turn: accepts, reads, serves, sends, and ends what is late.

use haulage_proto::time::Instant;

use super::common::Common;
use super::inner::Inner;
use super::service::Service;
use super::streams::{Stream, Streams};
use super::tell;
use crate::key::ConnectionKey;
use crate::service::Reply;

mod accept;
mod calls;
mod ending;

use accept::{accept, adopt_dealt};
use calls::{Read, read};
pub(super) use ending::end;

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
    let mut worked = adopt_dealt(inner, service, now);
    let Common { streams, connections, .. } = &mut inner.common;
    for port in streams.look(connections.queue()) {
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

/// Sends what a connection has to send.
pub(super) fn flush(inner: &mut Inner, now: Instant, key: ConnectionKey) {
    let Common { streams, memory, .. } = &mut inner.common;
    let Some(place) = streams.place(key) else { return };
    let Streams { table, left, counters, .. } = streams;
    // A connection that is to end sends no more.
    let Some(stream) = table.get_mut(place).filter(|stream| !stream.is_closing()) else { return };
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

/// Ends a connection if it is late.
pub(super) fn expire(inner: &mut Inner, now: Instant, key: ConnectionKey) {
    match inner.common.streams.get(key).and_then(Stream::due) {
        Some(due) if due <= now => {
            inner.common.streams.counters.late += 1;
            end(inner, key, "it was silent for too long, or too slow");
        }
        Some(due) => inner.common.wake_by(due),
        None => {}
    }
}

/// Work of the connections that are read in one turn, in Calls and receives, after which no other round begins.
const WORK_MAX: usize = 64;
