//! Connections over TCP: Calls arrive as records (RFC 5531 section 11), and are served as those over RDMA are.
//!
//! # Normal operation
//! The core accepts, reads and writes by itself, between its other work. A connection that was reported as readable is read
//! in this turn, and looked at again in the next ones until nothing waits. Each record is a Call, which is served where it
//! lies if nothing is lacking ([`calls`]); otherwise it waits as Calls over RDMA do. All Replies of a turn leave in one
//! system call a connection.
//!
//! # Limits
//! Each listening port has [`TcpLimits`] of its own. Results and what has not left are charged to the connection as the
//! memory of a Call over RDMA is; long records have memory beside the pool, of which networks have shares. A connection with many Calls in service, or much that has not
//! left, is not read until there is less. From its first octet on, each 64 KiB of a record has a bounded time, and so
//! has each 64 KiB that is sent. If there are too many connections, one gives way ([`crowd`](crate::crowd)).
//!
//! Peers that the service does not admit have a few places of their own, for a few Calls of the programs that are
//! [open to all](crate::service::Program::open_to_all).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::time::Instant;

use super::admission::Origin;
use super::common::Common;
use super::inner::Inner;
use super::memory::Charge;
use super::service::Service;
use super::table::Table;
use crate::crowd::{Choice, CrowdLimits, Phase, choose, network};
use crate::key::{ConnectionKey, Key, OfConnection};
use crate::provider::{Accepts, PeerUser, Waker};
use crate::service::{CallError, ConnectionId, Ended, Peer, Reply, Role};
use crate::shares::Shares;
use crate::sys::epoll::Epoll;
use crate::sys::socket::{Listener, Socket, Vanished, is_of_the_peer};

mod calls;
mod inflow;
mod outflow;
mod stream;

pub(crate) use calls::{answer, read};
pub(crate) use stream::Stream;

/// The limits of a port over TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpLimits {
    /// Maximum connections.
    pub connections_max: u32,
    /// Maximum length of a record, in octets.
    pub record_max: usize,
    /// Memory for the records of all ports that are longer than 16 KiB or come in fragments, in octets, of which networks have
    /// shares. Twice the longest record at least.
    pub records_octets: usize,
    /// How long a connection may be silent between two records; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long each 64 KiB of a record or of a Reply, and the rest, may take.
    pub progress_timeout: Duration,
}

impl TcpLimits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        connections_max: 256,
        // An item of 1 MiB with its headers.
        record_max: (1 << 20) + 4096,
        records_octets: 64 << 20,
        idle_timeout: Some(Duration::from_secs(360)),
        progress_timeout: Duration::from_secs(30),
    };
}

/// The connections of a core over TCP.
#[derive(Debug)]
pub(crate) struct Streams {
    table: Table<Stream, OfConnection>,
    /// The slot by which the first of them is named: those before it name connections over RDMA.
    first: u32,
    ports: Vec<Port>,
    epoll: Option<Epoll>,
    /// Connections that may have octets to be read.
    readable: VecDeque<ConnectionKey>,
    /// Connections with something to send.
    unsent: Vec<ConnectionKey>,
    /// Connections that are to end in this turn, and why.
    given_up: Vec<(ConnectionKey, &'static str)>,
    /// Buffers that no connection uses.
    spare: Vec<Box<[u8]>>,
    /// Charges of what has left, kept to reuse the memory.
    left: Vec<Charge>,
    /// Memory that long records hold.
    records: Shares,
    /// Calls in service, of all connections.
    serving: u32,
    serving_max: u32,
    pub(crate) counters: TcpCounters,
}

/// Counts of a core's connections over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were turned away for want of room.
    pub rejected: u64,
    /// Connections that gave way to others.
    pub replaced: u64,
    /// Connections closed because they were silent for too long, or slow.
    pub late: u64,
    /// Calls received.
    pub calls: u64,
    /// Octets received.
    pub received: u64,
    /// Octets sent.
    pub sent: u64,
    /// System calls.
    pub syscalls: u64,
    /// Accepts that failed.
    pub accepts: Accepts,
}

#[derive(Debug)]
struct Port {
    listener: Listener,
    limits: TcpLimits,
    /// When to accept again, after it failed.
    again: Option<Instant>,
}

/// Whether a peer may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The service admits it.
    Admitted,
    /// The service does not: it has a few Calls of programs that are open to all.
    Stranger,
}

impl Streams {
    /// Makes an empty table. The connections are named by slots from `first` on.
    pub(crate) fn new(first: u32) -> Self {
        Self {
            table: Table::new(0),
            first,
            ports: Vec::new(),
            epoll: None,
            readable: VecDeque::new(),
            unsent: Vec::new(),
            given_up: Vec::new(),
            spare: Vec::new(),
            left: Vec::new(),
            records: Shares::new(0),
            serving: 0,
            serving_max: 0,
            counters: TcpCounters::default(),
        }
    }

    /// Listens at an address. Returns the bound one, and how many Calls more may be in service.
    pub(crate) fn listen(
        &mut self,
        at: SocketAddr,
        limits: TcpLimits,
        waker: &Waker,
    ) -> io::Result<(SocketAddr, u32)> {
        let epoll = match &mut self.epoll {
            Some(epoll) => epoll,
            none => {
                let epoll = Epoll::new()?;
                waker.watch(epoll.fd())?;
                none.insert(epoll)
            }
        };
        let listener = Listener::bind(at)?;
        let bound = listener.local_addr()?;
        epoll.watch(listener.fd(), LISTENER | self.ports.len() as u64)?;
        self.ports.push(Port { listener, limits, again: None });
        self.table.enlarge(limits.connections_max.saturating_add(STRANGERS_MAX));
        let records = limits.records_octets.max(2 * limits.record_max);
        self.records.raise(records);
        let before = self.serving_max;
        let more = limits.connections_max.saturating_mul(CALLS_EACH_MAX);
        self.serving_max = before.saturating_add(more).min(CALLS_MAX);
        Ok((bound, self.serving_max - before))
    }

    /// Closes the listening ports.
    pub(crate) fn unlisten(&mut self) {
        self.ports.clear();
    }

    fn place(&self, key: ConnectionKey) -> Option<ConnectionKey> {
        let slot = key.slot_number().checked_sub(self.first)?;
        Some(Key::new(slot, key.generation()))
    }

    fn named(&self, place: ConnectionKey) -> ConnectionKey {
        Key::new(place.slot_number() + self.first, place.generation())
    }

    /// Finds a connection.
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Stream> {
        self.table.get(self.place(key)?)
    }

    /// Finds a connection to change.
    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Stream> {
        let place = self.place(key)?;
        self.table.get_mut(place)
    }

    /// Returns the number of connections.
    pub(crate) const fn len(&self) -> u32 {
        self.table.len()
    }

    /// Visits every connection with its name.
    pub(crate) fn each(&self) -> impl Iterator<Item = (ConnectionKey, &Stream)> {
        let from = |at: usize| self.table.find(at, |_| true);
        let places = std::iter::successors(from(0), move |place| from(place.slot() + 1));
        places.filter_map(|place| Some((self.named(place), self.table.get(place)?)))
    }

    /// Returns whether there are neither ports nor connections.
    #[inline]
    pub(crate) const fn are_none(&self) -> bool {
        self.epoll.is_none()
    }

    /// Returns the memory that the connections take, in octets.
    pub(crate) fn bytes(&self) -> usize {
        self.table.iter().map(Stream::bytes).sum()
    }

    /// Has a connection read in this turn.
    pub(crate) fn be_readable(&mut self, key: ConnectionKey) {
        if let Some(stream) = self.get_mut(key)
            && stream.mark_readable()
        {
            self.readable.push_back(key);
        }
    }

    fn be_unsent(&mut self, key: ConnectionKey) {
        if let Some(stream) = self.get_mut(key)
            && stream.mark_unsent()
        {
            self.unsent.push(key);
        }
    }

    /// Has a connection end in this turn, if it is one over TCP. Returns whether it is.
    pub(crate) fn give_up(&mut self, key: ConnectionKey, why: &'static str) -> bool {
        let is_here = self.get(key).is_some();
        if is_here {
            self.given_up.push((key, why));
        }
        is_here
    }

    /// Asks the system which sockets have changed. Returns the ports with peers that wait.
    fn look(&mut self) -> Vec<usize> {
        let Some(mut epoll) = self.epoll.take() else { return Vec::new() };
        self.counters.syscalls += 1;
        let mut ports = Vec::new();
        for ready in epoll.wait(Some(Duration::ZERO)) {
            if ready.token & LISTENER != 0 {
                ports.extend(usize::try_from(ready.token & !LISTENER));
                continue;
            }
            let place = self.table.unpack(ready.token);
            let Some(key) = place.map(|place| self.named(place)) else { continue };
            if ready.writable && self.get_mut(key).is_some_and(|stream| stream.take_fullness()) {
                self.be_unsent(key);
            }
            if ready.readable {
                self.be_readable(key);
            }
        }
        self.epoll = Some(epoll);
        ports
    }

    /// Returns whether a socket has changed, of which the turns do not know yet. To be asked before the core sleeps.
    pub(crate) fn has_news(&mut self) -> bool {
        if self.are_none() {
            return false;
        }
        let ports = self.look();
        let now = Instant::ZERO;
        for port in &ports {
            if let Some(port) = self.ports.get_mut(*port) {
                port.again = Some(now);
            }
        }
        !ports.is_empty() || !self.readable.is_empty() || !self.unsent.is_empty()
    }
}

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
        super::tell::tell_ready(inner, service, now);
    }
    for _ in 0..inner.common.streams.readable.len().min(budget) {
        let Some(key) = inner.common.streams.readable.pop_front() else { break };
        worked += read(inner, service, reply, now, key);
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
    over.into_iter().for_each(|key| streams.be_readable(key));
    let beside = |stream: &Stream| stream.port() == at && stream.standing() == standing;
    let mut each: Vec<_> = streams.each().filter(|(_, stream)| beside(stream)).collect();
    // Of those that began at the same time, the first goes first.
    each.sort_by_key(|(_, stream)| stream.number());
    let each = each.into_iter();
    let (keys, candidates): (Vec<_>, Vec<_>) =
        each.map(|(key, stream)| (key, stream.candidate(now))).unzip();
    let most = match standing {
        Standing::Admitted => limits.connections_max as usize,
        Standing::Stranger => limits.connections_max.min(STRANGERS_MAX) as usize,
    };
    let limits_of_all = CrowdLimits { connections_max: most, each_max: most.div_ceil(2) };
    match choose(&candidates, newcomer, limits_of_all) {
        Choice::Welcome => {}
        Choice::Replace(which) => {
            streams.counters.replaced += 1;
            if let Some(key) = keys.get(which) {
                end(inner, *key, "it gave way to another connection");
            }
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
    let stream = Stream::new(socket, (peer, at, number), standing, share, (now, limits));
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

/// Ends a connection, and forgets its Calls.
pub(super) fn end(inner: &mut Inner, key: ConnectionKey, why: &str) {
    let Inner { responder, common, .. } = inner;
    responder.drop_calls(common, key);
    let Common { streams, memory, connections, .. } = common;
    let Some(place) = streams.place(key) else { return };
    let held = streams.get(key).map_or(0, Stream::held);
    streams.give_back(key, held);
    let Some(mut stream) = streams.table.remove(place) else { return };
    streams.serving -= stream.serving();
    stream.release(&mut streams.left);
    for charge in streams.left.drain(..) {
        memory.discharge(Some(&mut stream.share), &charge);
    }
    memory.leave(&stream.share);
    let has_all = stream.has_left();
    let peer = described(key, stream.peer());
    let why = CallError::Disconnected(why.to_owned().into());
    connections.gone.push_back(Ended { peer, why, has_all });
}

/// Sends what the turn leaves to be sent. Returns how many connections had something.
pub(crate) fn flush(inner: &mut Inner, now: Instant) -> usize {
    let mut flushed = 0;
    while let Some((key, why)) = inner.common.streams.given_up.pop() {
        flushed += 1;
        end(inner, key, why);
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
            memory.discharge(Some(&mut stream.share), &charge);
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
pub(crate) fn drain(inner: &mut Inner, is_over: bool) {
    let idle = |stream: &Stream| is_over || stream.phase() == Phase::Idle;
    let each = inner.common.streams.each().filter(|(_, stream)| idle(stream));
    let keys: Vec<_> = each.map(|(key, _)| key).collect();
    keys.into_iter().for_each(|key| end(inner, key, "the server ends"));
}

/// Marks the tokens of listening ports.
const LISTENER: u64 = 1 << 63;
/// Maximum connections of addresses that may not connect.
const STRANGERS_MAX: u32 = 16;
/// Maximum Calls on a connection of an address that may not connect: a client makes a NULL Call, then MNT.
const STRANGER_CALLS_MAX: u32 = 4;
/// Calls of one connection in service, at most.
const CALLS_EACH_MAX: u32 = 128;
/// Calls of all connections in service, at most.
const CALLS_MAX: u32 = 4096;
/// Connections accepted in one turn, at most.
const ACCEPTS_MAX: usize = 64;
/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
