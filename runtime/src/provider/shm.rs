//! Shared memory: RPCs between threads and between processes of one machine, with us as the RNIC.
//!
//! Both ends map one segment of memory of each other, with a ring for messages and a table of
//! registrations, and the region that the other exposes. A Send is copied into the ring and out of it into
//! a Receive. RDMA Writes and Reads are one copy by whoever posts them, straight between the registered
//! memory of both applications.
//!
//! # Normal operation
//!
//! [`Provider::post`] carries requests out as they come (`shm/depart.rs`); [`Provider::poll`] looks at the
//! rings of all *hot* connections (`shm/arrive.rs`). Neither makes a system call. A ring is looked at by
//! reading one word of a line that nobody writes while nothing comes.
//!
//! Before it sleeps, or when very many others are hot, a connection asks its peer for a doorbell, an octet
//! on the socket that connected them, and is looked at again when that rings. The socket also tells of the
//! peer's end, whatever becomes of its process; it is listened to whenever there is nothing better to do.
//!
//! # Trust
//!
//! A peer is another process of the same user, or root's: the system tells who it is, and others are
//! refused. What it can do to us is bounded all the same. It maps our segment and, if we pass it, our
//! region; so nothing in them is believed: words are read once and checked, no Rust reference to what it
//! can write is made here, and its own memory is mapped only if it is sealed against shrinking and as long
//! as it says. What is in the region of an end that exposes memory is safe from honest peers only, who ask
//! the table first; an end that only serves passes none ([`Expose::Connecting`]).
//!
//! # Memory ownership
//!
//! A view lives in the entry, the Receive or the registration it was posted with, and is dropped before the
//! completion is reported. A registration ends when its key is gone and its in-use word says that the peer
//! is not copying; see `shm/table.rs`, and `shm/connection.rs` for what that means at a connection's end.
//!
//! # Limits
//!
//! Everything is bounded by [`Config`]. An idle connection costs a page of each segment and less than a
//! KiB here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use haulage_mr_pool::{Handles, Pool};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Handle, QpNum};

use self::connection::{Connection, State};
use self::nic::{Nic, Region};
use self::segment::Layout;
use self::setup::Setup;
use self::slots::Slots;
use super::{
    Caps, ConnectError, ConnectionParams, Counters, DisconnectReason, Event, Provider, QueueFull,
    Receive, Waker, WorkQueue, sealed,
};
use crate::sys::barrier;
use crate::sys::epoll::{Epoll, Ready};
use crate::sys::unix::{self, Listener, Stream};

mod arrive;
mod config;
mod connection;
mod depart;
mod ended;
mod hello;
mod nic;
mod receives;
mod ring;
mod segment;
mod setup;
mod slots;
mod table;

pub use config::{Config, Expose};
pub use nic::LinkCounters;

/// Names a listener of a [`Shm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(u16);

/// A software RNIC on shared memory. It stays on the thread that made it.
#[derive(Debug)]
pub struct Shm {
    caps: Caps,
    nic: Nic,
    epoll: Epoll,
    /// Room for what `epoll` tells.
    news: Vec<Ready>,
    waker: Waker,
    /// The waker was signaled since the last sleep.
    woken: bool,
    slots: Slots<Connection>,
    listeners: Vec<Listening>,
    /// Connections that may still be in their setup at the passive end, oldest first.
    awaiting: VecDeque<QpNum>,
    /// Connections whose listener had no room for them.
    connecting: Vec<QpNum>,
    /// Connections whose ring is looked at in every poll.
    hot: Vec<QpNum>,
    /// Which of them was looked at first last time.
    turn: usize,
    deadlines: BinaryHeap<Reverse<(Instant, QpNum)>>,
    /// When something last happened, when the sockets were last listened to, and when to think of that
    /// and of deadlines again.
    moved: Instant,
    looked: Instant,
    chores_at: Instant,
}

#[derive(Debug)]
struct Listening {
    /// `None` once we stopped listening.
    socket: Option<Listener>,
    ip: IpAddr,
    /// It has peers that we had no room for.
    paused: bool,
}

impl Shm {
    /// Makes an RNIC for the memory of `pool`. Memory can be exposed if the pool was made with
    /// [`PagePreference::Shared`](haulage_mr_pool::PagePreference::Shared); without, everything works
    /// that exposes none.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to make handles of, or refuses the descriptors.
    ///
    /// # Panics
    ///
    /// If `connections_max` is above 65,536, `registrations_max` not 1 to 65,536, or `ring_bytes` not a
    /// power of two from 4 KiB to 8 MiB.
    pub fn new(config: &Config, pool: &Pool) -> io::Result<Self> {
        let layout = Layout::new(config.ring_bytes, config.registrations_max);
        assert!(
            layout.is_some(),
            "no ring of {} octets and table of {} entries",
            config.ring_bytes,
            config.registrations_max
        );
        let entries = config.registrations_max as usize;
        let handles = match config.seed {
            Some(seed) => Handles::seeded(entries, seed),
            None => Handles::new(entries).map_err(io::Error::other)?,
        };
        let mut epoll = Epoll::new()?;
        let waker = Waker::new()?;
        epoll.watch(waker.fd(), WAKER)?;
        let nic = Nic::new(config.clone(), Region::of(pool)?, handles);
        Ok(Self {
            caps: nic.caps(),
            slots: Slots::new(config.connections_max),
            nic,
            epoll,
            news: Vec::new(),
            waker,
            woken: false,
            listeners: Vec::new(),
            awaiting: VecDeque::new(),
            connecting: Vec::new(),
            hot: Vec::new(),
            turn: 0,
            deadlines: BinaryHeap::new(),
            moved: Instant::ZERO,
            looked: Instant::ZERO,
            chores_at: Instant::ZERO,
        })
    }

    /// Returns what happened below RDMA.
    pub const fn link_counters(&self) -> LinkCounters {
        self.nic.link
    }

    /// Returns the connections that hold a slot, those being set up and those closing included.
    pub const fn connections(&self) -> usize {
        self.slots.in_use()
    }

    /// Goes through the hot connections; returns whether anything happened.
    #[inline]
    fn read_hot(&mut self, events: &mut Vec<Event<ListenerId>>, limit: usize) -> bool {
        let mut moved = false;
        let count = self.hot.len();
        // Each in turn is the first, or a busy one would use up the budget of the others.
        let mut at = if self.turn < count { self.turn } else { 0 };
        self.turn = at + 1;
        for _ in 0..count {
            let Some(&qp) = self.hot.get(at) else { break };
            at = if at + 1 < count { at + 1 } else { 0 };
            let Some(connection) = self.slots.get(qp) else { continue };
            if !connection.pending.is_empty() || connection.state == State::Draining {
                moved |= connection.pump(&mut self.nic);
            }
            if connection.state.is_live() && connection.arrive(&mut self.nic, events, limit) {
                connection.heard = self.nic.now;
                self.nic.counters.receive_batches += 1;
                moved = true;
            }
            if events.len() >= limit {
                break;
            }
        }
        moved
    }

    /// Does what need not be done in every poll.
    #[inline(never)]
    fn do_chores(&mut self) {
        self.chores_at = self.nic.now.saturating_add(LOOK_IDLE);
        if self.is_time_to_look() {
            self.look(Some(Duration::ZERO));
            if self.hot.len() > HOT_MAX {
                self.cool(|connection, now| {
                    let idle = connection.pending.is_empty() && !connection.over;
                    idle && now.saturating_since(connection.heard) >= COOL_AFTER
                });
            }
        }
        self.fire_deadlines();
        self.sweep();
    }

    /// Returns whether it is time to listen to the sockets, which costs a system call.
    fn is_time_to_look(&self) -> bool {
        let since = self.nic.now.saturating_since(self.looked);
        if self.nic.now.saturating_since(self.moved) >= IDLE_AFTER {
            return since >= LOOK_IDLE;
        }
        let all_hot = self.hot.len() == self.slots.in_use();
        let listens = !self.listeners.is_empty() || self.hot.len() > 1;
        match (all_hot, listens) {
            (false, _) => since >= LOOK_BUSY,
            (true, true) => since >= LOOK_RARELY,
            // The only peer there is talks to us.
            (true, false) => false,
        }
    }

    /// Listens to the sockets for at most `limit` and does what they tell.
    fn look(&mut self, limit: Option<Duration>) {
        self.nic.counters.syscalls += 1;
        self.looked = self.nic.now;
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.epoll.wait(limit));
        for ready in news.drain(..) {
            self.on_ready(ready);
        }
        self.news = news;
        for qp in std::mem::take(&mut self.connecting) {
            self.go_on_connecting(qp);
        }
    }

    fn on_ready(&mut self, Ready { token, readable, .. }: Ready) {
        if token == WAKER {
            self.woken |= readable;
        } else if token >= LISTENERS {
            let listener = u16::try_from(token - LISTENERS).unwrap_or(u16::MAX);
            self.accept_all(listener);
        } else if readable {
            let slot = u16::try_from(token & 0xffff).unwrap_or_default();
            let generation = u16::try_from(token >> 16 & 0xffff).unwrap_or_default();
            self.on_readable(QpNum::new(slot, generation));
        }
    }

    fn on_readable(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.state.is_live() {
            self.nic.counters.syscalls += 1;
            connection.over |= connection.socket.as_ref().is_some_and(|socket| !socket.discard());
        } else {
            connection.on_setup_octets(&mut self.nic);
        }
        self.heat(qp);
    }

    /// Looks at a connection's ring in every poll from now on.
    fn heat(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.state.is_live() && !connection.hot {
            connection.hot = true;
            connection.heard = self.nic.now;
            if let Some(consumer) = &connection.consumer {
                consumer.need_no_doorbell();
            }
            self.hot.push(qp);
        }
    }

    /// Asks every hot connection's peer for a doorbell that `may_cool` says; returns whether all are
    /// silent, so that a doorbell will ring for whatever comes.
    fn cool(&mut self, may_cool: impl Fn(&Connection, Instant) -> bool) -> bool {
        let now = self.nic.now;
        let (slots, nic) = (&mut self.slots, &mut self.nic);
        let mut asked = false;
        for &qp in &self.hot {
            let Some(connection) = slots.get(qp) else { continue };
            if may_cool(connection, now)
                && let Some(consumer) = &connection.consumer
            {
                consumer.ask_for_doorbell();
                asked = true;
            }
        }
        if asked {
            nic.counters.syscalls += 1;
            barrier::heavy();
        }
        let mut silent = true;
        self.hot.retain(|&qp| {
            let Some(connection) = slots.get(qp) else { return false };
            if !may_cool(connection, now) {
                silent = false;
                return true;
            }
            let Some(consumer) = &connection.consumer else { return true };
            let takes = !nic.receives.is_empty() || connection.filling.is_some();
            if consumer.has_record() && takes {
                consumer.need_no_doorbell();
                silent = false;
                return true;
            }
            nic.link.demotions += 1;
            connection.hot = false;
            false
        });
        silent
    }

    fn go_on_connecting(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.state != State::Connecting {
            return;
        }
        if let Err(reason) = connection.connect(&mut self.nic) {
            return connection.fail_setup(&mut self.nic, reason);
        }
        match &connection.socket {
            None => self.connecting.push(qp),
            Some(socket) => {
                if let Err(error) = self.epoll.watch(socket.fd(), token(qp)) {
                    connection.fail_setup(&mut self.nic, ConnectError::System(error.kind()));
                }
            }
        }
    }

    fn accept_all(&mut self, listener: u16) {
        for _ in 0..ACCEPTS_PER_LOOK {
            let Some(listening) = self.listeners.get_mut(usize::from(listener)) else { return };
            let Some(socket) = &listening.socket else { return };
            listening.paused = true;
            if self.slots.is_full() {
                return self.evict();
            }
            self.nic.counters.syscalls += 1;
            match socket.accept() {
                Ok(Some(stream)) => self.welcome(stream, ListenerId(listener)),
                Ok(None) => {
                    listening.paused = false;
                    return;
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                // Out of descriptors, most likely: whoever is silent longest gives up its own.
                Err(_) => return self.evict(),
            }
        }
    }

    /// Ends the oldest setup, so that silent peers cannot keep others out.
    fn evict(&mut self) {
        while let Some(qp) = self.awaiting.pop_front() {
            if let Some(connection) = self.slots.get(qp)
                && connection.state == State::Awaiting
            {
                return connection.fail_setup(&mut self.nic, ConnectError::TimedOut);
            }
        }
    }

    fn welcome(&mut self, stream: Stream, listener: ListenerId) {
        let known = stream.peer().is_ok_and(|peer| peer.may_share_with(unix::user()));
        if !known {
            self.nic.link.setups_failed += 1;
            return;
        }
        let ip = self.listeners.get(usize::from(listener.0)).map(|listening| listening.ip);
        let peer = SocketAddr::new(ip.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
        let setup = Setup::Passive { incoming: Default::default(), listener, peer };
        let fd = stream.fd();
        let admitted =
            self.slots.insert(|qp| Connection::new(qp, Some(stream), State::Awaiting, setup));
        let Some(qp) = admitted else { return };
        if self.epoll.watch(fd, token(qp)).is_err() {
            return self.slots.remove(qp);
        }
        self.awaiting.push_back(qp);
        while self.awaiting.len() > self.slots.in_use() {
            self.awaiting.pop_front();
        }
        if let Some(connection) = self.slots.get(qp) {
            let timeout = self.nic.config.handshake_timeout;
            connection.set_deadline(&mut self.nic, timeout);
            // It may have spoken already.
            connection.on_setup_octets(&mut self.nic);
        }
    }

    fn resume_listeners(&mut self) {
        for listener in 0..u16::try_from(self.listeners.len()).unwrap_or(u16::MAX) {
            if self.listeners.get(usize::from(listener)).is_some_and(|l| l.paused) {
                self.accept_all(listener);
            }
        }
    }

    fn fire_deadlines(&mut self) {
        self.deadlines.extend(self.nic.deadlines.drain(..).map(Reverse));
        while let Some(&Reverse((deadline, qp))) = self.deadlines.peek() {
            if deadline > self.nic.now {
                break;
            }
            self.deadlines.pop();
            if let Some(connection) = self.slots.get(qp)
                && connection.deadline == Some(deadline)
            {
                connection.on_deadline(&mut self.nic);
            }
        }
    }

    /// Lets go of what is over.
    fn sweep(&mut self) {
        if !self.nic.quarantined.is_empty() {
            let mut quarantined = std::mem::take(&mut self.nic.quarantined);
            quarantined.retain(|&qp| {
                self.slots.get(qp).is_some_and(|connection| !connection.try_release(&mut self.nic))
            });
            self.nic.quarantined.append(&mut quarantined);
        }
        if self.nic.closed.is_empty() {
            return;
        }
        for qp in std::mem::take(&mut self.nic.closed) {
            self.slots.remove(qp);
        }
        let slots = &mut self.slots;
        self.hot.retain(|&qp| slots.get(qp).is_some_and(|connection| connection.hot));
        self.resume_listeners();
    }
}

impl Connection {
    fn on_deadline(&mut self, nic: &mut Nic) {
        self.deadline = None;
        match self.state {
            State::Connecting | State::Requesting | State::Awaiting => {
                self.fail_setup(nic, ConnectError::TimedOut);
            }
            _ => self.end(nic, ended::Ended::Closed, DisconnectReason::Local, None),
        }
    }
}

impl sealed::Sealed for Shm {}

impl Provider for Shm {
    type Listener = ListenerId;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        let listener = u16::try_from(self.listeners.len())
            .map_err(|_| io::Error::from(io::ErrorKind::QuotaExceeded))?;
        if !at.ip().is_loopback() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let (socket, port) = match at.port() {
            0 => self.bind_free()?,
            port => (Listener::bind(&name(port))?, port),
        };
        self.epoll.watch(socket.fd(), LISTENERS + u64::from(listener))?;
        self.listeners.push(Listening { socket: Some(socket), ip: at.ip(), paused: false });
        Ok((ListenerId(listener), SocketAddr::new(at.ip(), port)))
    }

    fn unlisten(&mut self, listener: ListenerId) {
        if let Some(listening) = self.listeners.get_mut(usize::from(listener.0)) {
            listening.socket = None;
        }
    }

    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError> {
        self.nic.now = now;
        if self.slots.is_full() {
            return Err(ConnectError::NoQueuePair);
        }
        if !to.ip().is_loopback() {
            return Err(ConnectError::System(io::ErrorKind::AddrNotAvailable));
        }
        let setup = Setup::active(&self.nic, name(to.port()), params)?;
        let qp = self
            .slots
            .insert(|qp| Connection::new(qp, None, State::Connecting, setup))
            .ok_or(ConnectError::NoQueuePair)?;
        if let Some(connection) = self.slots.get(qp) {
            let timeout = self.nic.config.handshake_timeout;
            connection.set_deadline(&mut self.nic, timeout);
        }
        self.go_on_connecting(qp);
        Ok(qp)
    }

    fn accept(&mut self, now: Instant, qp: QpNum, params: &ConnectionParams<'_>) {
        self.nic.now = now;
        if let Some(connection) = self.slots.get(qp) {
            connection.accept(&mut self.nic, params);
            self.heat(qp);
        }
    }

    fn reject(&mut self, now: Instant, qp: QpNum, private_data: &[u8]) {
        self.nic.now = now;
        if let Some(connection) = self.slots.get(qp) {
            connection.reject(&mut self.nic, private_data);
        }
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        self.nic.now = now;
        let Some(connection) = self.slots.get(qp) else { return };
        match connection.state {
            State::Connecting | State::Requesting => {
                let aborted = ConnectError::System(io::ErrorKind::ConnectionAborted);
                connection.fail_setup(&mut self.nic, aborted);
            }
            State::Asked => connection.reject(&mut self.nic, &[]),
            _ => {
                connection.close(&mut self.nic);
                self.heat(qp);
            }
        }
    }

    fn reserve_handle(&mut self, qp: QpNum) -> Option<Handle> {
        let connection = self.slots.get(qp)?;
        let entries = self.nic.layout.entries();
        let free = self.nic.registrations < entries as usize;
        if !free || !connection.exposes || connection.state != State::Open {
            return None;
        }
        let handle = connection.registrations.reserve(&mut self.nic.handles, entries)?;
        self.nic.registrations += 1;
        Some(handle)
    }

    fn registration_offset(&mut self, _length: usize) -> u64 {
        self.nic.handles.offset()
    }

    #[inline]
    fn send_inline(&mut self, qp: QpNum, message: &[u8]) -> Result<(), QueueFull> {
        match self.slots.get(qp) {
            Some(connection) => connection.send_inline(&mut self.nic, message),
            None => Err(QueueFull),
        }
    }

    #[inline]
    fn post(&mut self, qp: QpNum, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let posted = match self.slots.get(qp) {
            Some(connection) => {
                let posted = connection.post(&mut self.nic, batch);
                if connection.hot || connection.pending.is_empty() {
                    return posted;
                }
                posted
            }
            None => return if batch.is_empty() { Ok(()) } else { Err(QueueFull) },
        };
        // What waits is gone on with in every poll.
        self.heat(qp);
        posted
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let room = self.caps.receive_queue_max.saturating_sub(self.nic.receives.len());
        self.nic.receives.append(batch, room.min(batch.len()));
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.nic.now = now;
        let (before, limit) = (events.len(), events.len().saturating_add(budget));
        self.nic.report(events, limit);
        let mut moved = events.len() > before;
        if events.len() < limit {
            moved |= self.read_hot(events, limit);
        }
        if moved {
            self.moved = now;
        }
        if now >= self.chores_at || self.nic.has_chores() {
            self.do_chores();
            self.nic.report(events, limit);
        }
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let first = self.deadlines.peek().map(|Reverse((deadline, _))| *deadline);
        let fresh = self.nic.deadlines.iter().map(|(deadline, _)| *deadline).min();
        let retry = (!self.connecting.is_empty()).then(|| self.nic.now.saturating_add(RETRY));
        [first, fresh, retry, self.nic.quarantine_deadline()].into_iter().flatten().min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        if std::mem::take(&mut self.woken) {
            return self.waker.clear();
        }
        if !self.nic.done.is_empty() || !self.nic.events.is_empty() || !self.nic.closed.is_empty() {
            return;
        }
        let idle = |connection: &Connection, _| connection.pending.is_empty() && !connection.over;
        if self.cool(idle) {
            self.look(limit);
        } else if self
            .hot
            .iter()
            .all(|&qp| self.slots.get(qp).is_none_or(|c| !c.may_go_on(&self.nic)))
        {
            // Nobody tells when there is room in a ring again: it is looked for.
            self.look(Some(limit.unwrap_or(RETRY).min(RETRY)));
        }
        if std::mem::take(&mut self.woken) {
            self.waker.clear();
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn counters(&self) -> Counters {
        self.nic.counters
    }
}

impl Connection {
    /// Returns whether the next poll is likely to do something for it.
    fn may_go_on(&self, nic: &Nic) -> bool {
        let record = self.consumer.as_ref().is_some_and(|consumer| consumer.has_record());
        let takes = !nic.receives.is_empty() || self.filling.is_some();
        if record { takes } else { self.over }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        for connection in self.slots.iter_mut() {
            connection.abandon(&mut self.nic);
        }
    }
}

impl Shm {
    /// Listens under a port that nobody else does.
    fn bind_free(&mut self) -> io::Result<(Listener, u16)> {
        let first = self.nic.handles.offset() >> 12;
        for next in 0..u64::from(PORTS) {
            let port = (first + next) % u64::from(PORTS);
            let port = PORT_FIRST + u16::try_from(port).unwrap_or_default();
            match Listener::bind(&name(port)) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                other => return Ok((other?, port)),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

/// Returns the name of the socket that stands for a port.
fn name(port: u16) -> Vec<u8> {
    format!("haulage-shm-{port}").into_bytes()
}

/// Returns the name of a connection with `epoll`.
fn token(qp: QpNum) -> u64 {
    u64::from(qp.generation()) << 16 | qp.slot() as u64
}

const WAKER: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 32;
/// Connections beyond which those that are silent ask for a doorbell: looking at a ring costs a few
/// nanoseconds.
const HOT_MAX: usize = 64;
/// How long a connection is silent before it does.
const COOL_AFTER: Duration = Duration::from_millis(1);
/// How long nothing happens before we count as idle.
const IDLE_AFTER: Duration = Duration::from_micros(20);
/// How often sockets are listened to while idle.
const LOOK_IDLE: Duration = Duration::from_micros(20);
/// How often while busy, when a doorbell may ring or a connection is being set up.
const LOOK_BUSY: Duration = Duration::from_micros(100);
/// How often while busy, when all they can tell is that somebody comes or goes.
const LOOK_RARELY: Duration = Duration::from_millis(10);
/// How often something that nobody tells of is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Connections accepted before the others have their turn.
const ACCEPTS_PER_LOOK: u32 = 64;
/// Ports to choose from: those no service is assigned.
const PORT_FIRST: u16 = 49152;
const PORTS: u16 = 16384;

#[cfg(test)]
mod tests;
