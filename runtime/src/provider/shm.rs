//! Shared memory: RPCs between threads and between processes of one machine, with us as the RNIC.
//!
//! Each end maps a segment of memory of the other, with a ring for messages and a table of registrations, and the
//! region that the other exposes. A Send is copied into the ring, and out of it into a Receive, or to the sink that
//! takes it without one. RDMA Writes and Reads are one copy by the end that posts them, straight between the registered
//! memory of both applications.
//!
//! # Normal operation
//!
//! [`Port::post`] carries requests out as they come (`shm/connection/depart.rs`); [`Provider::poll`] reads the rings of
//! all *hot* connections (`shm/inflow/records.rs`), and so does [`Provider::receive_in_place`] before it
//! (`shm/inflow/in_place.rs`). None of them makes a system call. To check a ring is to read one word of a line that is
//! not written while nothing comes.
//!
//! Before it sleeps, or when very many others are hot, a connection asks its peer for a doorbell, an octet on the
//! socket that connected them, and its ring is read again when that rings. The socket also announces the peer's end,
//! however its process ends; the provider listens to it whenever there is nothing better to do.
//!
//! Copies are counted where they are made: those of a Send at both ends, those of a Write or a Read at the end that
//! posted it.
//!
//! # Trust
//!
//! Only processes of one user connect: each end asks the system for the user of the other, admits its own user and
//! root, and is admitted by root only if it is root too. The harm that a peer can do is bounded all the same. It maps
//! our segment and, if we pass it, our region; so nothing in them is believed: words are read once and checked, and
//! there is no Rust reference to memory that the peer can write. Its own memory is mapped only if it is sealed against
//! shrinking and as long as it says, and only once the application has accepted it. A page of either segment or of the peer's region that is gone when we touch it,
//! because the peer punched a hole, is replaced, and ends that connection alone.
//!
//! Memory in the region of an end that exposes it is safe from honest peers only, which check the table first: see
//! [`Expose`]. An end that only serves passes none ([`Expose::Connecting`]).
//!
//! # Memory ownership
//!
//! A view lives in the entry, the Receive or the registration it was posted with, and is dropped before the
//! completion is reported. A registration ends when its key is gone and its in-use word says that the peer
//! is not copying; see `shm/table.rs`, and `shm/connection.rs` for the end of a connection while its peer copies.
//!
//! # Limits
//!
//! Everything is bounded by [`Config`]. An idle connection costs a page of each segment and less than a
//! KiB here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, ClaimedSegment, QpNum, WrId};

use self::connection::Connection;
use self::handshake::Handshake;
use self::names::name;
use self::outflow::RingPort;
use self::setup::Setup;
use self::watch::RETRY;
use super::{
    Caps, ConnectError, ConnectionAnswer, ConnectionParams, Counters, Event, Head, MessageSink,
    OpenResult, Outgoing, PeerUser, Place, Port, Provider, QueueFull, Receive, Refused, Sent,
    Waker, WorkQueue, sealed,
};
use crate::sys::bus_error;
use crate::sys::unix::Stream;

mod config;
mod connection;
mod ended;
mod entry;
mod handshake;
mod heat;
mod hello;
mod inflow;
mod leaving;
mod life;
mod listening;
mod names;
mod nic;
mod outflow;
mod receives;
mod regions;
mod ring;
mod round;
mod segment;
mod setup;
mod state;
mod table;
mod watch;

pub use config::{Config, Expose};
pub use listening::Incoming;
pub use nic::LinkCounters;
pub use segment::ENTRIES_MAX as REGISTRATIONS_MAX;
pub use state::Shm;

pub use super::base::ListenerId;

impl sealed::Sealed for Shm {}

impl Provider for Shm {
    type Listener = ListenerId;
    type Incoming = Incoming;
    type Port<'a> = ShmPort<'a>;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn listen(&mut self, at: SocketAddr) -> io::Result<(ListenerId, SocketAddr)> {
        self.start_listening(at)
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.close(listener);
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
        if !to.ip().is_loopback() {
            return Err(ConnectError::System(io::ErrorKind::AddrNotAvailable));
        }
        let layout = self.nic.next_layout(self.slots.in_use() + 1);
        let setup = Setup::active(&self.nic, name(to.port()), layout, params)?;
        let qp = self.begin(None, setup).ok_or(ConnectError::NoQueuePair)?;
        self.go_on_connecting(qp);
        Ok(qp)
    }

    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>) {
        self.nic.now = now;
        let layout = self.nic.next_layout(self.slots.in_use());
        let Some(handshake) = self.handshakes.get_mut(&qp) else { return };
        match answer {
            ConnectionAnswer::Accept(params) => {
                if let Some(agreed) = handshake.accept(&mut self.nic, layout, params) {
                    self.join(agreed);
                }
            }
            ConnectionAnswer::Reject(private_data) => handshake.reject(&mut self.nic, private_data),
        }
    }

    fn peer_user(&mut self, qp: QpNum) -> PeerUser {
        let handshake = self.handshakes.get(&qp).and_then(Handshake::socket);
        let connection = || self.slots.peek(qp).and_then(Connection::socket);
        match handshake.or_else(connection).map(Stream::peer) {
            Some(Ok(peer)) => PeerUser::Local(peer.user),
            Some(Err(_)) | None => PeerUser::Unknown,
        }
    }

    fn disconnect(&mut self, now: Instant, qp: QpNum) {
        self.nic.now = now;
        if let Some(handshake) = self.handshakes.get_mut(&qp) {
            handshake.disconnect(&mut self.nic);
        } else if let Some(connection) = self.slots.get(qp) {
            connection.close(&mut self.nic);
            self.heat(qp);
        }
    }

    #[inline]
    fn port(&mut self, qp: QpNum) -> Option<ShmPort<'_>> {
        Some(ShmPort { shm: self, qp })
    }

    #[inline]
    fn receive_in_place(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        self.take_in_place(room, length_max, budget, sink)
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
        let retry = (!self.connecting.is_empty()).then(|| self.nic.now.saturating_add(RETRY));
        let checked = self.nic.watches.deadline();
        let released = self.nic.quarantine_deadline();
        let accepted = self.accept_deadline();
        let first = self.nic.deadlines.first();
        [first, checked, retry, released, accepted].into_iter().flatten().min()
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

impl ShmPort<'_> {
    #[inline(always)]
    fn port(&mut self) -> Option<RingPort<'_>> {
        let Shm { slots, nic, .. } = &mut *self.shm;
        slots.get(self.qp)?.port(nic)
    }
}

impl Port for ShmPort<'_> {
    #[inline]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        match self.port() {
            Some(mut port) => port.send(head, message, id),
            None => Sent::Gone,
        }
    }

    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        self.port().ok_or(Refused::Gone)?.read(source, octets)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        match self.port() {
            Some(mut port) => port.open(lease, access),
            None => Err((lease, Refused::Gone)),
        }
    }

    #[inline]
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let Some(connection) = self.shm.slots.get(self.qp) else {
            return if batch.is_empty() { Ok(()) } else { Err(QueueFull) };
        };
        let posted = connection.post(&mut self.shm.nic, batch);
        if !connection.is_hot() && connection.has_pending() {
            // Every poll continues the requests that wait.
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
