//! The software RNIC on TCP: MPA, DDP and RDMAP, with us as the RNIC.
//!
//! It runs on any machine and speaks to Linux siw and to iWARP NICs. Registrations, placement and access checks are
//! ours; a peer reaches no octet that was not opened to it.
//!
//! # Normal operation
//!
//! [`Port::post`](super::Port::post) seals work requests into FPDUs and hands them to the socket at once, many in one
//! system call. [`Provider::poll`] does the rest, every stage bounded: it reads the *hot* connections, takes the
//! reactor's news of the others, serves connections that waited for a Receive or for room to send, and closes those
//! that are over. [`Provider::receive_in_place`] reads the hot connections before a poll does (`iwarp/in_place.rs`).
//!
//! A connection becomes hot, read at every poll without asking the reactor, when it is busy and few others are. A
//! polled TCP socket is at its fastest that way; for many connections, and for sleeping, io_uring or epoll report which
//! sockets have octets.
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

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use self::setup::Setup;
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, MessageSink, PeerUser,
    Place, Provider, QueueFull, Receive, Waker, sealed,
};
use crate::sys::socket::{Socket, Vanished};

mod config;
mod connection;
mod contention;
mod handshake;
mod handshakes;
mod in_place;
mod inbox;
mod inflow;
mod intake;
mod lane;
mod life;
mod listening;
mod nic;
mod opening;
mod outflow;
mod poll;
mod port;
mod reactor;
mod setup;
mod state;
mod transmit_queue;
mod turn;

pub use config::{Backend, BackendReport, Config, Crc};
pub use listening::Incoming;
pub use nic::WireCounters;
pub use port::LanePort;
pub use state::Iwarp;

pub use super::base::ListenerId;

impl sealed::Sealed for Iwarp {}

impl Provider for Iwarp {
    type Listener = ListenerId;
    type Incoming = Incoming;
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

    #[inline]
    fn next_incoming(
        &mut self,
        now: Instant,
        has_room_beside: impl FnOnce() -> bool,
    ) -> Option<Incoming> {
        if !self.listeners.is_any_waiting() {
            return None;
        }
        self.nic.now = now;
        self.accept_next(has_room_beside)
    }

    fn look_again(&mut self) {
        self.listeners.resume();
    }

    fn adopt(
        &mut self,
        now: Instant,
        incoming: Incoming,
        place: Place,
    ) -> Result<(), (Incoming, Place)> {
        self.nic.now = now;
        self.welcome(incoming, place)
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
        let qp = self.begin(socket, setup)?;
        self.settle_all();
        Ok(qp)
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        self.nic.now = now;
        let Self { handshakes, slots, nic, .. } = self;
        let Some(handshake) = handshakes.get(qp) else { return };
        match answer {
            ConnectionAnswer::Accept(params) => {
                if let Some(agreed) = handshake.accept(nic, params) {
                    handshakes.open(slots, nic, qp, agreed);
                }
            }
            ConnectionAnswer::Reject(private_data) => handshake.reject(nic, private_data),
        }
    }

    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        match (self.slots.get(qp), self.handshakes.get(qp)) {
            (Some(connection), _) => connection.peer_user(),
            (None, Some(handshake)) => handshake.peer_user(),
            (None, None) => PeerUser::Unknown,
        }
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        self.nic.now = now;
        if let Some(connection) = self.slots.get(qp) {
            connection.disconnect(&mut self.nic);
        } else if let Some(handshake) = self.handshakes.get(qp) {
            handshake.disconnect(&mut self.nic);
        }
    }

    #[inline]
    fn port(&mut self, qp: QpNum) -> Option<LanePort<'_>> {
        let connection = self.slots.get(qp).filter(|connection| connection.is_open())?;
        Some(LanePort { connection, nic: &mut self.nic })
    }

    #[inline]
    fn receive_in_place(
        &mut self,
        _: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        self.take_in_place(length_max, budget, sink)
    }

    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull> {
        let room = self.caps.receive_queue_max.saturating_sub(self.nic.receives.len());
        self.nic.receives.extend(batch.drain(..room.min(batch.len())));
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<ListenerId>>) {
        self.nic.now = now;
        let receives = self.nic.counters.receives;
        if self.nic.reports.len() < EVENTS_HELD_MAX {
            self.advance();
        }
        self.nic.counters.receive_batches += u64::from(self.nic.counters.receives > receives);
        self.nic.reports.take(events, events.len().saturating_add(budget));
    }

    fn poll_deadline(&self) -> Option<Instant> {
        let checked = self.nic.watches.deadline();
        let waiting = self.listeners.is_any_waiting().then_some(self.nic.now);
        let deadlines = [self.nic.deadlines.first(), checked, self.accept_retry, waiting];
        deadlines.into_iter().flatten().min()
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

/// Events held for the application before some must be taken: until then no more work is done.
const EVENTS_HELD_MAX: usize = 4096;

#[cfg(test)]
mod tests;
