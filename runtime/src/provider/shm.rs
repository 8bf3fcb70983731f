//! Shared memory: RPCs between threads and between processes of one machine, with us as the RNIC.
//!
//! Both ends map one segment of memory of each other, with a ring for messages and a table of
//! registrations, and the region that the other exposes. A Send is copied into the ring and out of it, into
//! a Receive or to who takes it without one. RDMA Writes and Reads are one copy by whoever posts them,
//! straight between the registered memory of both applications.
//!
//! # Normal operation
//!
//! [`Port::post`] carries requests out as they come (`shm/depart.rs`); [`Provider::poll`] looks at the
//! rings of all *hot* connections (`shm/arrive.rs`), and so does [`Provider::receive_inline`] before it.
//! None of them makes a system call. A ring is looked at by reading one word of a line that nobody writes
//! while nothing comes.
//!
//! Before it sleeps, or when very many others are hot, a connection asks its peer for a doorbell, an octet
//! on the socket that connected them, and is looked at again when that rings. The socket also tells of the
//! peer's end, whatever becomes of its process; it is listened to whenever there is nothing better to do.
//!
//! Copies are counted where they are made: a Send's at both ends, a Write's or a Read's by who posted it.
//!
//! # Trust
//!
//! Only processes of one user connect: each end asks the system for the user of the other, admits its own
//! user and root, and is admitted by root only if it is root too. What a peer can do to us is bounded all the
//! same. It maps our segment and, if we pass it, our region; so nothing in them is believed: words are read
//! once and checked, and no Rust reference to what it can write is made here. Its own memory is mapped only if
//! it is sealed against shrinking and as long as it says. A page of either segment or of the peer's region
//! that is gone when we touch it, because the peer punched a hole, is replaced, and ends that connection alone.
//!
//! What is in the region of an end that exposes memory is safe from honest peers only, who ask the table
//! first: see [`Expose`]. An end that only serves passes none ([`Expose::Connecting`]).
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
use std::net::SocketAddr;
use std::time::Duration;

use haulage_mr_pool::{Handles, Local, Pool};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Handle, Label, NamedTemplate, QpNum};

use self::connection::{Connection, State};
use self::listening::{Listening, name};
use self::nic::{Nic, Region};
use self::segment::Layout;
use self::setup::Setup;
use self::watch::{LISTENERS, RETRY, Round, WAKER};
use super::slots::Slots;
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, Inlet, OpenResult,
    PeerUser, Port, Provider, QueueFull, Receive, Refused, Waker, WorkQueue, WorkRequest, sealed,
};
use crate::sys::bus_error;
use crate::sys::epoll::{Epoll, Ready};
use crate::sys::unix::{Listener, Stream};

mod arrive;
mod config;
mod connection;
mod depart;
mod ended;
mod hello;
mod listening;
mod nic;
mod outlet;
mod progress;
mod receives;
mod regions;
mod ring;
mod segment;
mod setup;
mod table;
mod watch;

pub use config::{Config, Expose};
pub use nic::LinkCounters;
pub use segment::ENTRIES_MAX as REGISTRATIONS_MAX;

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
    /// Connections that are not, although a message of theirs waits for a Receive.
    starved: Vec<QpNum>,
    /// Which of the hot ones is looked at first next time.
    turn: usize,
    round: Round,
    deadlines: BinaryHeap<Reverse<(Instant, QpNum)>>,
    /// When something last happened, when the sockets were last listened to, and when to think of that
    /// and of deadlines again.
    moved: Instant,
    looked: Instant,
    chores_at: Instant,
    /// Faults in shared memory that were mended when connections were last looked through for theirs.
    faults_seen: u64,
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
            starved: Vec::new(),
            turn: 0,
            round: Round::default(),
            deadlines: BinaryHeap::new(),
            moved: Instant::ZERO,
            looked: Instant::ZERO,
            chores_at: Instant::ZERO,
            faults_seen: bus_error::faults(),
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
}

impl sealed::Sealed for Shm {}

impl Provider for Shm {
    type Listener = ListenerId;
    type Port<'a> = ShmPort<'a>;

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
        let layout = self.nic.next_layout(self.slots.in_use() + 1);
        let setup = Setup::active(&self.nic, name(to.port()), layout, params)?;
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

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        self.nic.now = now;
        let layout = self.nic.next_layout(self.slots.in_use());
        let Some(connection) = self.slots.get(qp) else { return };
        match answer {
            ConnectionAnswer::Accept(params) => {
                connection.accept(&mut self.nic, layout, params);
                self.heat(qp);
            }
            ConnectionAnswer::Reject(private_data) => {
                connection.reject(&mut self.nic, private_data)
            }
        }
    }

    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        let socket = self.slots.get(qp).and_then(|connection| connection.socket.as_ref());
        match socket.map(Stream::peer) {
            Some(Ok(peer)) => PeerUser::Local(peer.user),
            Some(Err(_)) | None => PeerUser::Unknown,
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

    #[inline]
    fn port(&mut self, qp: QpNum) -> Option<ShmPort<'_>> {
        Some(ShmPort { shm: self, qp })
    }

    #[inline]
    fn receive_inline(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        inlet: &mut impl Inlet,
    ) -> usize {
        self.take_inline(room, length_max, budget, inlet)
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let room = self.caps.receive_queue_max.saturating_sub(self.nic.receives.len());
        self.nic.receives.append(batch, room.min(batch.len()));
        if !self.starved.is_empty() {
            self.feed_starved();
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.nic.now = now;
        if bus_error::faults() != self.faults_seen {
            self.end_broken();
        }
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
        let checked = self.nic.watches.deadline();
        let released = self.nic.quarantine_deadline();
        [first, fresh, checked, retry, released].into_iter().flatten().min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        self.rest(limit);
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[inline]
    fn counters(&self) -> Counters {
        self.nic.counters
    }
}

/// Sends on a connection while its messages are not being taken.
#[derive(Debug)]
pub struct ShmPort<'a> {
    shm: &'a mut Shm,
    qp: QpNum,
}

impl Port for ShmPort<'_> {
    #[inline]
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), Refused> {
        let Shm { slots, nic, .. } = &mut *self.shm;
        let connection = slots.get(self.qp).ok_or(Refused::Gone)?;
        connection.send_inline(nic, message, invalidate)
    }

    #[inline]
    fn send_like(
        &mut self,
        like: NamedTemplate<'_>,
        label: Label,
        message: &mut [u8],
    ) -> Result<(), Refused> {
        let Shm { slots, nic, .. } = &mut *self.shm;
        let connection = slots.get(self.qp).ok_or(Refused::Gone)?;
        connection.send_like(nic, like, label, message)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        let Shm { slots, nic, .. } = &mut *self.shm;
        match slots.get(self.qp) {
            Some(connection) => connection.open_lease(nic, lease, access),
            None => Err((lease, Refused::Gone)),
        }
    }

    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        let Shm { slots, nic, .. } = &mut *self.shm;
        match slots.get(self.qp) {
            Some(connection) => connection.stage(nic, request),
            None => Err(request),
        }
    }

    #[inline]
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let Some(connection) = self.shm.slots.get(self.qp) else {
            return if batch.is_empty() { Ok(()) } else { Err(QueueFull) };
        };
        let posted = connection.post(&mut self.shm.nic, batch);
        if !connection.hot && !connection.pending.is_empty() {
            // What waits is gone on with in every poll.
            self.shm.heat(self.qp);
        }
        posted
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        for connection in self.slots.iter_mut() {
            connection.abandon(&mut self.nic);
        }
    }
}

#[cfg(test)]
mod tests;
