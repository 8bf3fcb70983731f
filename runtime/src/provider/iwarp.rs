//! The software RNIC on TCP: MPA, DDP and RDMAP, with us as the RNIC.
//!
//! It runs on any machine and speaks to Linux siw and to iWARP NICs. Registrations, placement and
//! access checks are ours; a peer reaches no octet that was not opened to it.
//!
//! # Normal operation
//!
//! [`Port::post`](super::Port::post) seals work requests into FPDUs and hands them to the socket at once, many in one
//! system call. [`Provider::poll`] does the rest, every stage bounded: it reads the *hot* connections,
//! takes what the reactor reports about the others, serves who waited for a Receive or for room to
//! send, and closes what is to be closed. Who asks for messages without Receives reads the hot connections
//! before it does (`iwarp/inline.rs`).
//!
//! A connection becomes hot, read at every poll without being asked for, when it is busy and few
//! others are. That is how a polled TCP socket is at its fastest; for many connections, and for
//! sleeping, io_uring or epoll tell who has something.
//!
//! # Memory ownership
//!
//! A view lives in the send queue entry, the Receive or the registration it was posted with, and is
//! dropped before the completion is reported. The system reads and writes memory only inside our own
//! calls, so nothing touches it after they return.
//!
//! # Limits
//!
//! Everything is bounded by [`Config`]. An idle connection owns no buffer: it borrows a send queue
//! while it has work, and receives into buffers shared by all.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_mr_pool::Stags;
use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use self::arrive::Found;
use self::connection::{Connection, Intake, State};
use self::crowd::Crowd;
use self::inline::Inbox;
use self::listening::Listening;
use self::nic::Nic;
use self::reactor::{News, Over, Reactor};
use self::setup::Setup;
use super::slots::Slots;
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, Inlet, PeerUser,
    Provider, QueueFull, Receive, Waker, sealed,
};
use crate::sys::socket::{Socket, Vanished};

mod arrive;
mod config;
mod connection;
mod crowd;
mod depart;
mod inline;
mod lane;
mod listening;
mod nic;
mod nudge;
mod progress;
mod reactor;
mod setup;
mod turn;

pub use config::{Backend, BackendReport, Config, Crc};
pub use inline::LanePort;
pub use nic::WireCounters;

/// Names a listener of an [`Iwarp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(u16);

/// A software RNIC. It stays on the thread that made it.
#[derive(Debug)]
pub struct Iwarp {
    caps: Caps,
    nic: Nic,
    reactor: Reactor,
    backend: BackendReport,
    waker: Waker,
    /// The waker was signaled since the last sleep.
    woken: bool,
    slots: Slots<Connection>,
    listeners: Vec<Listening>,
    /// When to try again to accept, after the system refused.
    accept_retry: Option<Instant>,
    /// Connections that may still be in their handshake, oldest first.
    awaiting: VecDeque<QpNum>,
    /// Connections read at every poll.
    hot: Vec<QpNum>,
    /// What was read of one of them for who takes messages without Receives.
    inbox: Inbox,
    crowd: Crowd,
    /// One of them may have octets that nobody else will tell of.
    unread: bool,
    deadlines: BinaryHeap<Reverse<(Instant, QpNum)>>,
}

impl Iwarp {
    /// Makes an RNIC.
    ///
    /// Fails if the system has no randomness to make handles of, or refuses the descriptors; or, with
    /// [`Backend::Uring`], if io_uring is not to be had.
    ///
    /// # Panics
    ///
    /// If `registrations_max` is not 1 to 65,536, or `connections_max` is more than that, or
    /// `receive_buffers` is not a power of two.
    pub fn new(config: &Config) -> io::Result<Self> {
        let stags = match config.seed {
            Some(seed) => Stags::seeded(config.registrations_max, seed),
            None => Stags::new(config.registrations_max).map_err(io::Error::other)?,
        };
        let (mut reactor, backend) = Reactor::new(config)?;
        let waker = Waker::new()?;
        reactor.woken(waker.fd(), true)?;
        let nic = Nic::new(config.clone(), stags);
        Ok(Self {
            caps: nic.caps(),
            inbox: Inbox::new(nic.scratch.len()),
            slots: Slots::new(config.connections_max),
            nic,
            reactor,
            backend,
            waker,
            woken: false,
            listeners: Vec::new(),
            accept_retry: None,
            awaiting: VecDeque::new(),
            hot: Vec::new(),
            crowd: Crowd::default(),
            unread: false,
            deadlines: BinaryHeap::new(),
        })
    }

    /// Returns how it waits for sockets, and why not better.
    pub const fn backend(&self) -> &BackendReport {
        &self.backend
    }

    /// Returns what the protocols below RDMA saw.
    pub const fn wire_counters(&self) -> WireCounters {
        self.nic.wire
    }

    /// Returns the connections that hold a slot, those being set up and those closing included.
    pub const fn connections(&self) -> usize {
        self.slots.in_use()
    }

    fn read_hot(&mut self) {
        self.unread = false;
        let mut at = 0;
        while let Some(&qp) = self.hot.get(at) {
            let crowded = self.hot.len() > HOT_MAX || self.crowd.is_here();
            let Some(connection) = self.slots.get(qp).filter(|c| c.intake == Intake::Hot) else {
                self.hot.swap_remove(at);
                continue;
            };
            let looked = connection.looked.take();
            match looked.unwrap_or_else(|| connection.read(&mut self.nic)) {
                Found::Nothing => connection.streak = connection.streak.saturating_add(1),
                Found::All => {
                    connection.streak = 0;
                    self.crowd.found();
                }
                Found::Some => {
                    connection.streak = 0;
                    self.crowd.found();
                    self.unread = true;
                }
            }
            let others_tell = crowded && connection.streak > 0;
            if connection.intake == Intake::Hot && (connection.streak > IDLE_MAX || others_tell) {
                connection.cool(&mut self.nic, &mut self.reactor);
                self.hot.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn take_news(&mut self) {
        if !self.hot.is_empty()
            && !self.reactor.receives()
            && !self.nic.polls.is_multiple_of(EPOLL_EVERY)
        {
            // Asking epoll costs as much as reading a hot connection.
            return;
        }
        for _ in 0..LOOKS_PER_POLL {
            match self.reactor.look() {
                Ok(None) => return,
                Ok(Some(calls)) => self.nic.counters.syscalls += calls,
                // Nothing but a lack of kernel memory, which may pass.
                Err(_) => return,
            }
            for _ in 0..NEWS_PER_LOOK {
                let Some(news) = self.reactor.pop() else { break };
                self.on_news(news);
            }
            self.settle_all();
            if !self.reactor.receives() {
                return;
            }
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Received { qp, filled, more } => {
                self.feed_inbox_of(qp);
                if let Some(connection) = self.slots.get(qp) {
                    connection.on_octets(&mut self.nic, self.reactor.bytes(&filled));
                    connection.streak = connection.streak.saturating_add(1);
                    self.crowd.heard(qp);
                    if !more {
                        self.on_receive_over(qp, Over::Paused);
                    } else if self.hot.len() < HOT_MAX && !self.crowd.is_here() {
                        self.consider_heating(qp);
                    }
                }
                self.reactor.give_back(filled);
            }
            News::ReceiveOver { qp, why } => self.on_receive_over(qp, why),
            News::Readable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    if connection.intake == Intake::Armed {
                        connection.heat(&mut self.nic);
                        self.hot.push(qp);
                    }
                    self.unread = true;
                }
            }
            News::Writable(qp) => {
                if let Some(connection) = self.slots.get(qp) {
                    connection.writable_wanted = false;
                    connection.blocked = false;
                    if connection.state == State::Connecting {
                        connection.on_connected(&mut self.nic);
                    }
                    connection.unsettle(&mut self.nic);
                }
            }
            News::Acceptable(listener) => self.accept_all(listener),
            News::Woken => self.woken = true,
        }
    }

    /// A busy connection is read directly from now on, if there are few of them.
    fn consider_heating(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        let busy = connection.streak >= STREAK_MIN || connection.expects_much();
        if busy && connection.intake == Intake::Armed && connection.state == State::Open {
            connection.intake = Intake::Pausing;
            // Without room in the ring it goes on as it is.
            if self.reactor.pause(qp).is_err() {
                connection.intake = Intake::Armed;
            }
        }
    }

    fn on_receive_over(&mut self, qp: QpNum, why: Over) {
        let Some(connection) = self.slots.get(qp) else { return };
        let paused = connection.intake == Intake::Pausing;
        connection.intake = Intake::Off;
        match why {
            Over::End => connection.on_input_end(&mut self.nic, connection::StreamEnd::Orderly),
            Over::Failed => connection.on_input_end(&mut self.nic, connection::StreamEnd::Lost),
            Over::Paused if paused && connection.wants_input() && self.hot.len() < HOT_MAX => {
                connection.heat(&mut self.nic);
                self.hot.push(qp);
            }
            Over::Paused => {}
        }
        connection.unsettle(&mut self.nic);
    }

    fn admit(&mut self, socket: Socket, state: State, setup: Setup) -> Result<QpNum, ConnectError> {
        let fd = socket.fd();
        let qp = self
            .slots
            .insert(|qp| Connection::new(qp, socket, state, setup))
            .ok_or(ConnectError::NoQueuePair)?;
        if let Err(error) = self.reactor.adopt(fd, qp) {
            self.slots.remove(qp);
            return Err(ConnectError::System(error.kind()));
        }
        if let Some(connection) = self.slots.get(qp) {
            let timeout = self.nic.config.handshake_timeout;
            connection.set_deadline(&mut self.nic, timeout);
            connection.unsettle(&mut self.nic);
        }
        Ok(qp)
    }

    /// Goes on with connections that had had their turn before all their octets were handled.
    fn resume_throttled(&mut self) {
        for _ in 0..self.nic.throttled.len() {
            let Some(qp) = self.nic.throttled.pop_front() else { return };
            if let Some(connection) = self.slots.get(qp) {
                connection.go_on(&mut self.nic);
            }
        }
    }

    /// Ends connections whose peers make no progress.
    fn check_progress(&mut self) {
        while let Some(qp) = self.nic.watches.pop(self.nic.now) {
            if let Some(connection) = self.slots.get(qp) {
                connection.check_progress(&mut self.nic);
            }
        }
    }

    fn resume_starved(&mut self) {
        for _ in 0..self.nic.starved.len() {
            if self.nic.receives.is_empty() {
                return;
            }
            let Some(qp) = self.nic.starved.pop_front() else { return };
            if let Some(connection) = self.slots.get(qp) {
                connection.resume(&mut self.nic);
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
        if self.accept_retry.is_some_and(|retry| retry <= self.nic.now) {
            self.accept_retry = None;
            self.resume_listeners();
        }
    }

    /// Lets every connection that asked for it send, arm itself, or go.
    fn settle_all(&mut self) {
        for _ in 0..self.nic.unsettled.len() {
            let Some(qp) = self.nic.unsettled.pop_front() else { return };
            self.settle(qp);
        }
    }

    fn settle(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        connection.unsettled = false;
        connection.pump(&mut self.nic);
        match (connection.intake, connection.wants_input()) {
            (Intake::Off, true) if self.reactor.receives() => {
                connection.cool(&mut self.nic, &mut self.reactor);
            }
            (Intake::Off, true) => {
                // Epoll tells of what comes, not of what is there already.
                connection.heat(&mut self.nic);
                self.hot.push(qp);
            }
            (Intake::Hot, false) => {
                connection.intake = Intake::Off;
                self.hot.retain(|hot| *hot != qp);
            }
            (Intake::Armed, false) if self.reactor.receives() => {
                if self.reactor.pause(qp).is_ok() {
                    connection.intake = Intake::Pausing;
                } else {
                    connection.unsettle(&mut self.nic);
                }
            }
            (Intake::Armed, false) => connection.intake = Intake::Off,
            _ => {}
        }
        let waits = connection.blocked || connection.state == State::Connecting;
        let asks = waits && connection.state != State::Closed && !connection.writable_wanted;
        if asks && self.reactor.receives() {
            if self.reactor.writable(connection.socket.fd(), qp).is_ok() {
                connection.writable_wanted = true;
            } else {
                connection.unsettle(&mut self.nic);
            }
        }
        if connection.state == State::Closed {
            self.release(qp);
        }
    }

    /// Frees the slot of a closed connection, once the ring holds nothing of it.
    fn release(&mut self, qp: QpNum) {
        let Some(connection) = self.slots.get(qp) else { return };
        if connection.writable_wanted {
            // Wakes whatever waits on the socket; `Writable` comes back to us.
            connection.socket.shutdown();
        }
        if connection.intake == Intake::Off && !connection.writable_wanted {
            self.slots.remove(qp);
            self.resume_listeners();
        }
    }
}

impl Connection {
    /// Returns whether anybody should look for octets.
    fn wants_input(&self) -> bool {
        let closed = matches!(self.state, State::Connecting | State::Closed);
        // A hot connection is read only when it has no backlog.
        let waits = self.starved || self.throttled && self.intake != Intake::Hot;
        !closed && !waits && !self.input_over
    }

    fn heat(&mut self, nic: &mut Nic) {
        self.intake = Intake::Hot;
        self.streak = 0;
        self.looked = None;
        nic.wire.promotions += 1;
    }

    /// Leaves it to the reactor to tell of what comes.
    fn cool(&mut self, nic: &mut Nic, reactor: &mut Reactor) {
        self.streak = 0;
        self.intake = Intake::Armed;
        if reactor.receive(self.socket.fd(), self.qp).is_err() {
            self.intake = Intake::Off;
            self.unsettle(nic);
        }
    }

    fn on_deadline(&mut self, nic: &mut Nic) {
        self.deadline = None;
        match self.state {
            State::Connecting | State::Requesting => self.fail_setup(nic, ConnectError::TimedOut),
            State::Awaiting => self.on_setup_lost(nic, ConnectError::TimedOut),
            State::Open => self.nudge(nic),
            _ => self.end(nic),
        }
    }
}

impl sealed::Sealed for Iwarp {}

impl Provider for Iwarp {
    type Listener = ListenerId;
    type Port<'a> = LanePort<'a>;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.start_listening(at)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.stop_listening(listener);
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
        let setup = Setup::active(&self.nic.config, params)?;
        self.nic.counters.syscalls += 2;
        let vanished = Vanished::after(self.nic.watches.timeout());
        let socket = Socket::connect(to, vanished).map_err(|e| match e.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::Refused,
            kind => ConnectError::System(kind),
        })?;
        let qp = self.admit(socket, State::Connecting, setup)?;
        self.settle_all();
        Ok(qp)
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        self.nic.now = now;
        let Some(connection) = self.slots.get(qp) else { return };
        match answer {
            ConnectionAnswer::Accept(params) => connection.accept(&mut self.nic, params),
            ConnectionAnswer::Reject(private_data) => {
                connection.reject(&mut self.nic, private_data)
            }
        }
    }

    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        let connection = self.slots.get(qp);
        connection.map_or(PeerUser::Unknown, |connection| connection.socket.peer_user())
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
            _ => connection.close(&mut self.nic),
        }
    }

    #[inline]
    fn port(&mut self, qp: QpNum) -> Option<LanePort<'_>> {
        let connection = self.slots.get(qp).filter(|connection| connection.state == State::Open)?;
        Some(LanePort { connection, nic: &mut self.nic })
    }

    #[inline]
    fn receive_inline(
        &mut self,
        _: &mut [u8],
        length_max: usize,
        budget: usize,
        inlet: &mut impl Inlet,
    ) -> usize {
        self.take_inline(length_max, budget, inlet)
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let room = self.caps.receive_queue_max.saturating_sub(self.nic.receives.len());
        self.nic.receives.extend(batch.drain(..room.min(batch.len())));
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.nic.now = now;
        let receives = self.nic.counters.receives;
        if self.nic.events.len() < EVENTS_HELD_MAX {
            self.nic.polls = self.nic.polls.wrapping_add(1);
            self.resume_throttled();
            self.end_round();
            self.read_hot();
            self.take_news();
            self.resume_starved();
            self.check_progress();
            self.fire_deadlines();
            self.settle_all();
        }
        self.nic.counters.receive_batches += u64::from(self.nic.counters.receives > receives);
        let count = budget.min(self.nic.events.len());
        events.extend(self.nic.events.drain(..count));
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let first = self.deadlines.peek().map(|Reverse((deadline, _))| *deadline);
        let fresh = self.nic.deadlines.iter().map(|(deadline, _)| *deadline).min();
        let checked = self.nic.watches.deadline();
        [first, fresh, checked, self.accept_retry].into_iter().flatten().min()
    }

    fn sleep(&mut self, limit: Option<Duration>) {
        let fed = !self.nic.starved.is_empty() && !self.nic.receives.is_empty();
        let reported = !self.nic.events.is_empty() || !self.nic.unsettled.is_empty();
        let left = self.unread || !self.nic.throttled.is_empty() || !self.inbox.is_empty();
        let busy = reported || left || fed;
        if self.woken {
            self.woken = false;
            self.waker.clear();
            // It is asked again what wakes the core; the next sleep would not end otherwise.
            let _ = self.reactor.woken(self.waker.fd(), false);
        } else if !busy {
            for qp in self.hot.drain(..) {
                if let Some(connection) = self.slots.get(qp).filter(|c| c.intake == Intake::Hot) {
                    connection.cool(&mut self.nic, &mut self.reactor);
                }
            }
            self.nic.counters.syscalls += 1;
            // An interrupted or failed wait is a short one.
            let _ = self.reactor.wait(limit);
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    #[inline]
    fn counters(&self) -> Counters {
        self.nic.counters
    }
}

/// Connections read at every poll. An empty read costs 0.3 us; asking io_uring about all of them costs
/// nothing, but a system call more once something came.
const HOT_MAX: usize = 4;
/// Polls that found nothing after which a connection is no longer hot.
const IDLE_MAX: u32 = 4096;
/// Receives in a row after which a connection counts as busy.
const STREAK_MIN: u32 = 4;
/// Of how many polls one asks epoll, while there are hot connections.
const EPOLL_EVERY: u32 = 8;
/// Events held for the application after which it must take some before more is done.
const EVENTS_HELD_MAX: usize = 4096;
/// Times a poll enters the ring.
const LOOKS_PER_POLL: u32 = 2;
/// News taken per look.
const NEWS_PER_LOOK: u32 = 256;

#[cfg(test)]
mod tests;
