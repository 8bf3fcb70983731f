//! Connections over TCP: Calls arrive as records (RFC 5531 section 11), and are served as those over RDMA are.
//!
//! # Normal operation
//! The core accepts, reads and writes by itself, between its other work ([`records`](super::records)). A connection that was reported as readable has
//! its turn with those of its address, serves a bounded number of Calls in it, and is looked at again until nothing waits. Each record is a Call, which is served where it
//! lies if nothing is lacking; otherwise it waits as Calls over RDMA do. All Replies of a turn leave in one
//! system call a connection.
//!
//! # Limits
//! Each listening port has [`TcpLimits`] of its own. Results and what has not left are charged to the connection as the
//! memory of a Call over RDMA is; long records have memory beside the pool, of which networks have shares. Origins share the Calls in service. A connection with
//! many of them, or much that has not left, is not read until there is less. From its first octet on, each 64 KiB of a record has a bounded time, and so
//! has each 64 KiB that is sent. If there are too many connections, one gives way ([`crowd`](crate::crowd)).
//!
//! Peers that the service does not admit have a few places of their own, for a few Calls of the programs that are
//! [open to all](crate::service::Program::open_to_all).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::time::Instant;

use self::inflow::Inflow;
use super::memory::{Charge, Share};
use super::table::Table;
use super::turns::Turns;
use crate::core_number::CoreNumber;
use crate::cores::deal::{Place, Slots};
use crate::cores::seat::Seat;
use crate::crowd::network;
use crate::key::{ConnectionKey, Key, OfConnection, Transport};
use crate::provider::Waker;
use crate::service::CallError;
use crate::shares::Shares;
use crate::sys::epoll::Epoll;
use crate::sys::socket::{Listener, Vanished, is_of_the_peer};

pub(in crate::core) mod inflow;
mod life;
mod limits;
pub(in crate::core) mod outflow;
mod stream;

use life::ReadingChange;
use limits::CALLS_EACH_MAX;
pub(super) use limits::STRANGERS_MAX;
pub(crate) use limits::Standing;
pub use limits::{TcpCounters, TcpLimits};
pub(crate) use stream::{Incoming, Stream};

/// The connections of a core over TCP.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(super) table: Table<Stream, OfConnection>,
    /// The slot by which the first of them is named: those before it name connections over RDMA.
    pub(super) first: u32,
    pub(super) ports: Vec<Port>,
    /// By which peers go to the cores of a group, or come from its first.
    pub(super) seat: Seat<Incoming>,
    pub(super) epoll: Option<Epoll>,
    /// Connections that may have octets to be read.
    pub(super) readable: Turns<ConnectionKey>,
    /// Connections whose long records wait for memory.
    pub(super) short: Vec<ConnectionKey>,
    /// Buffers that no connection uses.
    pub(super) spare: Vec<Box<[u8]>>,
    /// Charges of what has left, kept to reuse the memory.
    pub(super) left: Vec<Charge>,
    /// Memory that long records hold.
    pub(super) records: Shares,
    /// Calls in service, of all connections.
    serving: u32,
    /// Calls in service, of the connections of each origin.
    serving_of: Vec<u32>,
    serving_max: u32,
    pub(crate) counters: TcpCounters,
}

#[derive(Debug)]
pub(super) struct Port {
    /// Nothing if the first core of the group has it.
    pub(super) listener: Option<Listener>,
    pub(super) limits: TcpLimits,
    /// When to accept again, after it failed.
    pub(super) again: Option<Instant>,
}

impl Streams {
    /// Makes an empty table of a core. The connections are named by slots from `first` on.
    pub(crate) fn new(core: CoreNumber, first: u32) -> Self {
        Self {
            table: Table::new(0, Transport::Tcp.prefix(core)),
            first,
            ports: Vec::new(),
            seat: Seat::alone(),
            epoll: None,
            readable: Turns::default(),
            short: Vec::new(),
            spare: Vec::new(),
            left: Vec::new(),
            records: Shares::new(0),
            serving: 0,
            serving_of: Vec::new(),
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
        let port = LISTENER | self.ports.len() as u64;
        let epoll = self.watching(waker)?;
        let listener = Listener::bind(at)?;
        let bound = listener.local_addr()?;
        epoll.watch(listener.fd(), port)?;
        Ok((bound, self.open(Port { listener: Some(listener), limits, again: None }, waker)))
    }

    /// Takes part in serving a port of the group's first core. Returns how many Calls more may be in service.
    pub(crate) fn share(&mut self, limits: TcpLimits, waker: &Waker) -> io::Result<u32> {
        self.watching(waker)?;
        Ok(self.open(Port { listener: None, limits, again: None }, waker))
    }

    /// Takes a seat in a group.
    pub(crate) fn join(&mut self, seat: Seat<Incoming>, waker: &Waker) {
        self.seat = seat;
        self.open_seat(waker);
    }

    /// Has the core be dealt as many peers as its ports take.
    fn open_seat(&self, waker: &Waker) {
        let each = self.ports.iter().map(|port| port.limits.connections_max);
        let count = each.fold(0, u32::saturating_add);
        let connections_give_way = !self.ports.is_empty();
        let slots = Slots { count, connections_max: count, connections_give_way };
        self.seat.open(slots, waker.clone());
    }

    /// Returns what watches the sockets, and wakes the core for them.
    fn watching(&mut self, waker: &Waker) -> io::Result<&mut Epoll> {
        if self.epoll.is_none() {
            let epoll = Epoll::new()?;
            waker.watch(epoll.fd())?;
            self.epoll = Some(epoll);
        }
        self.epoll.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens a port. Returns how many Calls more may be in service.
    fn open(&mut self, port: Port, waker: &Waker) -> u32 {
        let limits = port.limits;
        self.ports.push(port);
        self.table.enlarge(limits.connections_max.saturating_add(STRANGERS_MAX));
        let records = limits.records_octets.max(2 * limits.record_max);
        self.records.raise(records);
        self.open_seat(waker);
        let before = self.serving_max;
        let more = limits.connections_max.saturating_mul(CALLS_EACH_MAX);
        self.serving_max = before.saturating_add(more).min(CALLS_MAX);
        self.serving_max - before
    }

    /// Returns the limits of a port.
    pub(super) fn limits(&self, port: usize) -> Option<TcpLimits> {
        self.ports.get(port).map(|port| port.limits)
    }

    /// Takes the next peer that waits at a port.
    pub(super) fn next_incoming(&mut self, now: Instant, at: usize) -> Option<Incoming> {
        let port = self.ports.get_mut(at)?;
        port.again = None;
        let listener = port.listener.as_mut()?;
        loop {
            self.counters.syscalls += 1;
            match listener.accept(Vanished::after(Some(port.limits.progress_timeout))) {
                Ok(accepted) => {
                    return accepted.map(|(socket, peer)| Incoming { socket, peer, port: at });
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    self.counters.accepts.count(&error);
                    // Most likely no descriptors are left: wait until others are closed.
                    port.again = Some(now.saturating_add(ACCEPT_AGAIN));
                    return None;
                }
            }
        }
    }

    /// Has the peers looked for again that wait at a port.
    pub(super) fn accept_again(&mut self, at: Instant, port: usize) {
        self.ports.get_mut(port).into_iter().for_each(|port| port.again = Some(at));
    }

    /// Enters a connection. Returns its name, and whether the system watches it.
    ///
    /// # Errors
    /// There is no place for it, and its share comes back.
    pub(super) fn enter(
        &mut self,
        (incoming, place): (Incoming, Place),
        (standing, limits): (Standing, TcpLimits),
        share: Share,
        now: Instant,
    ) -> Result<(ConnectionKey, bool), Share> {
        let fd = incoming.socket.fd();
        let number = self.counters.accepted;
        let mut stream = Stream::new(incoming, number, (standing, limits), share, now);
        stream.take_place(place);
        let place = self.table.insert(stream).map_err(|stream| stream.share)?;
        let watching = self.epoll.as_mut().map(|epoll| epoll.watch(fd, place.to_bits()));
        Ok((self.named(place), watching.is_none_or(|watching| watching.is_ok())))
    }

    /// Returns when to accept again at a port at which more may wait.
    pub(super) fn accepts_again(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| port.again).min()
    }

    /// Closes the listening ports.
    pub(crate) fn unlisten(&mut self) {
        self.ports.clear();
    }

    pub(super) fn place(&self, key: ConnectionKey) -> Option<ConnectionKey> {
        let slot = key.slot_number().checked_sub(self.first)?;
        Some(Key::new(slot, key.generation()))
    }

    pub(super) fn named(&self, place: ConnectionKey) -> ConnectionKey {
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

    /// Returns the name of the first connection at or after a slot.
    pub(crate) fn from(&self, slot: usize) -> Option<ConnectionKey> {
        let place = self.table.find(slot.saturating_sub(self.first as usize), |_| true);
        place.map(|place| self.named(place))
    }

    /// Visits every connection with its name.
    pub(crate) fn each(&self) -> impl Iterator<Item = (ConnectionKey, &Stream)> {
        let keys = std::iter::successors(self.from(0), |key| self.from(key.slot() + 1));
        keys.filter_map(|key| Some((key, self.get(key)?)))
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

    /// Marks a connection as readable of which the peer sends no more.
    pub(super) fn be_readable_to_the_end(&mut self, key: ConnectionKey) {
        if let Some(stream) = self.get_mut(key) {
            stream.note_ending();
        }
        self.be_readable(key);
    }

    /// Has a connection read in this turn.
    pub(crate) fn be_readable(&mut self, key: ConnectionKey) {
        if let Some(stream) = self.get_mut(key)
            && stream.read_on(ReadingChange::Arrived)
        {
            let origin = stream.share.origin();
            self.readable.push(origin, key.slot(), key);
        }
    }

    /// Has a connection read no more, because it is to end. Returns whether that is news; the first reason stands.
    pub(crate) fn close(&mut self, key: ConnectionKey, why: CallError) -> bool {
        self.get_mut(key).is_some_and(|stream| stream.close(why))
    }

    /// Asks the system which sockets have changed. Returns the ports with peers that wait. Adds to `touched` the connections
    /// that may send again.
    pub(super) fn look(&mut self, touched: &mut VecDeque<ConnectionKey>) -> Vec<usize> {
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
            let sends_again =
                |stream: &mut Stream| stream.take_fullness() && stream.begin_sending();
            if ready.writable && self.get_mut(key).is_some_and(sends_again) {
                touched.push_back(key);
            }
            if ready.is_ending {
                self.be_readable_to_the_end(key);
            } else if ready.readable {
                self.be_readable(key);
            }
        }
        self.epoll = Some(epoll);
        ports
    }

    /// Returns whether a socket has changed, of which the turns do not know yet. To be asked before the core sleeps.
    pub(crate) fn has_news(&mut self, touched: &mut VecDeque<ConnectionKey>) -> bool {
        if self.are_none() {
            return false;
        }
        let ports = self.look(touched);
        let now = Instant::ZERO;
        for port in &ports {
            if let Some(port) = self.ports.get_mut(*port) {
                port.again = Some(now);
            }
        }
        !ports.is_empty() || !self.readable.is_empty() || !touched.is_empty()
    }
}

impl Streams {
    /// Finds a connection to change, and the buffers that nobody uses.
    pub(super) fn with_spare(
        &mut self,
        key: ConnectionKey,
    ) -> Option<(&mut Stream, &mut Vec<Box<[u8]>>)> {
        let place = self.place(key)?;
        Some((self.table.get_mut(place)?, &mut self.spare))
    }

    /// Receives octets of a connection into `inflow`.
    pub(super) fn receive(
        &mut self,
        key: ConnectionKey,
        inflow: &mut Inflow,
        now: Instant,
    ) -> io::Result<Option<usize>> {
        let Some(place) = self.place(key) else { return Ok(None) };
        let Some(stream) = self.table.get_mut(place) else { return Ok(None) };
        stream.receive(inflow, &mut self.spare, &mut self.counters, now)
    }

    /// Takes memory for a long record, of what all connections share by network. Returns whether there is enough.
    pub(super) fn take_memory(&mut self, key: ConnectionKey, octets: usize) -> bool {
        let Some(network) = self.get(key).map(|stream| network(stream.peer().ip())) else {
            return false;
        };
        let may = self.records.has_room(network, octets);
        if may {
            self.records.take(network, octets);
        }
        may
    }

    /// Has a connection read again once others have less memory for long records, or fewer Calls in service.
    pub(super) fn wait_for_room(&mut self, key: ConnectionKey) {
        // A peer that sends on has its connection looked at each time.
        if !self.short.contains(&key) {
            self.short.push(key);
        }
    }

    /// Has the connections read again that wait for room.
    fn room_is_made(&mut self) {
        while let Some(short) = self.short.pop() {
            self.be_readable(short);
        }
    }

    /// Gives back memory of a long record.
    pub(super) fn give_back(&mut self, key: ConnectionKey, octets: usize) {
        if octets > 0 {
            self.room_is_made();
        }
        if let Some(network) = self.get(key).map(|stream| network(stream.peer().ip())) {
            self.records.give_back(network, octets);
        }
    }

    /// Returns whether another Call of a connection may be in service. An origin that has some gets one more if it then has
    /// no more than are then left to others, as it is with memory.
    pub(super) fn take_calls(&self, key: ConnectionKey) -> bool {
        let free = self.serving_max.saturating_sub(self.serving);
        // While all have few there is no need to know the origin.
        if self.serving + 1 < free {
            return true;
        }
        let origin = self.get(key).map(|stream| stream.share.origin());
        let own = origin.and_then(|origin| self.serving_of.get(origin)).map_or(0, |own| *own);
        free > 0 && (own == 0 || own + 1 < free)
    }

    /// Notes that a Call has arrived whole.
    pub(super) fn begin_call(&mut self, key: ConnectionKey) {
        self.counters.calls += 1;
        self.get_mut(key).into_iter().for_each(Stream::begin_call);
    }

    /// Notes that a Call is in service and not answered, with memory for `body` octets of a Reply.
    pub(super) fn keep_call(&mut self, key: ConnectionKey, body: usize) {
        if let Some(stream) = self.get_mut(key) {
            stream.keep_call(body);
            let origin = stream.share.origin();
            self.serving += 1;
            if self.serving_of.len() <= origin {
                self.serving_of.resize(origin + 1, 0);
            }
            self.serving_of.get_mut(origin).into_iter().for_each(|own| *own += 1);
        }
    }

    /// Notes that a Call that was in service is answered, with memory for `body` octets of a Reply.
    pub(super) fn end_call(&mut self, key: ConnectionKey, body: usize) {
        if let Some(stream) = self.get_mut(key) {
            stream.end_call(body);
            let origin = stream.share.origin();
            self.end_calls(origin, 1);
        }
    }

    /// Notes that Calls of an origin are no longer in service.
    fn end_calls(&mut self, origin: usize, count: u32) {
        self.serving -= count;
        self.serving_of.get_mut(origin).into_iter().for_each(|own| *own -= count);
        self.room_is_made();
    }

    /// Takes out a connection that ends.
    pub(super) fn remove(&mut self, key: ConnectionKey) -> Option<Stream> {
        let stream = self.table.remove(self.place(key)?)?;
        self.end_calls(stream.share.origin(), stream.serving());
        self.short.retain(|short| *short != key);
        Some(stream)
    }
}

/// Marks the tokens of listening ports.
const LISTENER: u64 = 1 << 63;
/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Calls of all connections in service, at most.
const CALLS_MAX: u32 = 4096;
