//! One connection over TCP.

use std::io;
use std::net::SocketAddr;

use haulage_proto::time::Instant;

use super::inflow::Inflow;
use super::life::{Life, ReadingChange, SendingChange};
use super::limits::{CALLS_EACH_MAX, STRANGER_CALLS_MAX, Standing, TcpCounters, TcpLimits};
use super::outflow::{Outflow, Record};
use crate::core::memory::{Charge, Share};
use crate::core::progress::Progress;
use crate::cores::deal::Place;
use crate::crowd::{Candidate, Phase, network};
use crate::key::ConnectionKey;
use crate::provider::Arrival;
use crate::service::CallError;
use crate::sys::socket::Socket;

/// A connection over TCP.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    peer: SocketAddr,
    port: usize,
    /// The place that the peer was dealt.
    place: Place,
    /// How many connections were accepted before.
    number: u64,
    standing: Standing,
    limits: TcpLimits,
    /// The memory that its Calls hold and wait for.
    pub(in crate::core) share: Share,
    inflow: Inflow,
    outflow: Outflow,
    /// Calls that are not answered.
    serving: u32,
    /// Octets of the Replies to them that will be copied, at most.
    promised: usize,
    /// Calls that it may still make.
    calls_left: Option<u32>,
    phase: Phase,
    since: Instant,
    /// By when the peer must have sent more of a record that has begun.
    arriving: Progress,
    /// By when the peer must have taken more of what is sent.
    leaving: Progress,
    life: Life,
    /// Why it is to end, once it is.
    failure: Option<CallError>,
    /// Whether much has been sent, so that the system's clock is off.
    has_sent_much: bool,
}

/// A peer that reached a port: nothing was read of it, and nothing waits for its octets. Any core that serves the same
/// ports may adopt it. Dropping it closes its connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(in crate::core) socket: Socket,
    pub(in crate::core) peer: SocketAddr,
    /// The number of its port.
    pub(in crate::core) port: usize,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Stream {
    /// Makes the entry of a connection that was just accepted, behind `number` others.
    pub(in crate::core) fn new(
        incoming: Incoming,
        number: u64,
        (standing, limits): (Standing, TcpLimits),
        share: Share,
        now: Instant,
    ) -> Self {
        let Incoming { socket, peer, port } = incoming;
        let calls_left = match standing {
            Standing::Admitted => None,
            Standing::Stranger => Some(STRANGER_CALLS_MAX),
        };
        Self {
            socket,
            peer,
            port,
            place: Place::default(),
            number,
            standing,
            limits,
            share,
            inflow: Inflow::default(),
            outflow: Outflow::default(),
            serving: 0,
            promised: 0,
            calls_left,
            // An idle connection gives way first; a new one gets time to send its request.
            phase: Phase::Transferring,
            since: now,
            arriving: Progress::default(),
            leaving: Progress::default(),
            life: Life::new(),
            failure: None,
            has_sent_much: false,
        }
    }

    /// Keeps the place that the peer was dealt, which is a connection's from now on.
    pub(in crate::core) fn take_place(&mut self, mut place: Place) {
        place.become_connection();
        self.place = place;
    }

    /// Returns the address of the peer.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the number of its port.
    pub(in crate::core) const fn port(&self) -> usize {
        self.port
    }

    /// Returns how many connections were accepted before this one.
    pub(in crate::core) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether the service admits the peer.
    pub(in crate::core) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the phase.
    pub(in crate::core) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the Calls that are not answered.
    pub(in crate::core) const fn serving(&self) -> u32 {
        self.serving
    }

    /// Returns the longest record, in octets.
    pub(in crate::core) const fn record_max(&self) -> usize {
        self.limits.record_max
    }

    /// Returns the facts by which a connection is chosen to be closed.
    pub(in crate::core) fn candidate(
        &self,
        key: ConnectionKey,
        now: Instant,
    ) -> Candidate<ConnectionKey, u64> {
        let (origin, lasted) = (network(self.peer.ip()), now.saturating_since(self.since));
        Candidate { key, origin, phase: self.phase, lasted }
    }

    /// Changes when the connection is read. Returns whether its turn is to come now, and was not before.
    pub(super) fn read_on(&mut self, change: ReadingChange) -> bool {
        self.life.read_on(change)
    }

    /// Notes that the turn of the connection to be read has come.
    pub(in crate::core) fn begin_reading(&mut self) {
        self.life.read_on(ReadingChange::Begun);
    }

    /// Notes that there is something to send. Returns whether there was nothing before.
    pub(in crate::core) fn begin_sending(&mut self) -> bool {
        self.life.send_on(SendingChange::Made)
    }

    /// Notes that the socket takes octets again. Returns whether it did not before.
    pub(super) fn take_fullness(&mut self) -> bool {
        let was_full = self.life.is_full();
        self.life.send_on(SendingChange::Writable);
        was_full
    }

    /// Returns whether the peer has closed its direction, which may not have been read yet.
    pub(in crate::core) fn is_closed(&self) -> bool {
        self.socket.is_over()
    }

    /// Notes that the system has told that the peer sends no more, or is gone.
    pub(super) const fn note_ending(&mut self) {
        self.life.note_ending();
    }

    /// Returns whether the system tells when more has arrived than was received into `inflow`. It tells so of octets that
    /// arrive after a receive that found fewer than it had room for, and told already of an end that came before.
    pub(in crate::core) fn will_be_told(&self, inflow: &Inflow) -> bool {
        inflow.is_drained() && self.life.is_told()
    }

    /// Returns whether the peer has closed the connection in order, having every Reply.
    pub(in crate::core) fn has_left(&self) -> bool {
        // A client that breaks off amid a record gives the connection up, and may repeat its Calls.
        self.is_done() && !self.inflow.is_amid() && self.socket.has_left()
    }

    /// Returns whether nothing more will happen: the peer has closed its direction, and has every Reply.
    pub(in crate::core) fn is_done(&self) -> bool {
        self.life.is_over() && self.serving == 0 && self.outflow.waiting() == 0
    }

    /// Returns whether another Call may be taken. A few Calls that wait for memory are enough: what they wait for may be the
    /// Replies that peers of this address do not take, and more Calls would hold places of the address for nothing.
    pub(in crate::core) fn may_be_read(&self) -> bool {
        !self.life.is_closing()
            && self.share.waiting() < SHORT_MAX
            && self.serving < CALLS_EACH_MAX
            && self.outflow.waiting() < WAITING_MAX
            && self.outflow.copied() + self.promised < COPIED_MAX
    }

    /// Has the connection read no more, because it is to end. Returns whether that is news; the first reason stands.
    pub(super) fn close(&mut self, why: CallError) -> bool {
        self.life.read_on(ReadingChange::Closed);
        let is_news = self.failure.is_none();
        self.failure.get_or_insert(why);
        is_news
    }

    /// Returns whether the connection is to end.
    pub(in crate::core) fn is_closing(&self) -> bool {
        self.life.is_closing()
    }

    /// Returns why the connection ends, which is for `why` unless another reason was noted before.
    pub(in crate::core) fn into_end(self, why: CallError) -> CallError {
        self.failure.unwrap_or(why)
    }

    /// Notes that the connection is not read until it has less under way.
    pub(in crate::core) fn hold(&mut self) {
        self.life.read_on(ReadingChange::Full);
    }

    /// Returns whether the connection was not read, and may be.
    pub(in crate::core) fn is_let_go(&self) -> bool {
        self.life.is_held() && self.may_be_read()
    }

    /// Takes out what has arrived, to be read while the rest of the core changes.
    pub(in crate::core) fn take_inflow(&mut self) -> Inflow {
        std::mem::take(&mut self.inflow)
    }

    /// Puts back what has arrived and was not taken.
    pub(in crate::core) fn restore(&mut self, inflow: Inflow, now: Instant) {
        self.inflow = inflow;
        self.settle(now);
    }

    /// Receives octets into `inflow`. Returns their number, or `None` if none wait.
    pub(in crate::core) fn receive(
        &mut self,
        inflow: &mut Inflow,
        spare: &mut Vec<Box<[u8]>>,
        counters: &mut TcpCounters,
        now: Instant,
    ) -> io::Result<Option<usize>> {
        counters.syscalls += 1;
        let received = inflow.receive(&self.socket, spare);
        match received.as_ref().map_or(Some(0), |octets| *octets) {
            Some(0) => self.life.note_end(),
            Some(octets) => {
                counters.received += octets as u64;
                self.arriving.count(octets, now.saturating_add(self.limits.progress_timeout));
            }
            None => {}
        }
        received
    }

    /// Returns whether the peer may make another Call.
    pub(in crate::core) const fn may_call(&self) -> bool {
        !matches!(self.calls_left, Some(0))
    }

    /// Notes that a Call has arrived whole, which the peer may make.
    pub(in crate::core) fn begin_call(&mut self) {
        self.arriving = Progress::default();
        self.calls_left = self.calls_left.map(|left| left.saturating_sub(1));
    }

    /// Notes that a Call is answered later, with memory for `body` octets of its Reply.
    pub(in crate::core) const fn keep_call(&mut self, body: usize) {
        self.serving += 1;
        self.promised += body;
    }

    /// Notes that a Call that was kept is answered.
    pub(in crate::core) const fn end_call(&mut self, body: usize) {
        self.serving -= 1;
        self.promised -= body;
    }

    /// Queues a Reply. Returns its charge if nothing of it is left in the pool.
    pub(in crate::core) fn reply(&mut self, record: Record<'_>, charge: Charge) -> Option<Charge> {
        self.outflow.push(record, charge)
    }

    /// Sends what waits.
    pub(in crate::core) fn send(
        &mut self,
        now: Instant,
        left: &mut Vec<Charge>,
        counters: &mut TcpCounters,
    ) -> io::Result<()> {
        self.life.send_on(SendingChange::Begun);
        let renewed = now.saturating_add(self.limits.progress_timeout);
        if self.outflow.waiting() >= MUCH && !std::mem::replace(&mut self.has_sent_much, true) {
            counters.syscalls += 1;
            self.socket.outlast_full_windows()?;
        }
        while self.outflow.waiting() > 0 && !self.life.is_full() {
            counters.syscalls += 1;
            match self.outflow.send(&self.socket, left)? {
                Some(octets) => {
                    counters.sent += octets as u64;
                    self.leaving.count(octets, renewed);
                }
                None => {
                    self.life.send_on(SendingChange::Filled);
                }
            }
        }
        if self.outflow.waiting() == 0 {
            self.leaving = Progress::default();
        } else {
            self.leaving.begin(renewed);
        }
        self.settle(now);
        Ok(())
    }

    /// Enters the phase that the connection is in.
    pub(in crate::core) fn settle(&mut self, now: Instant) {
        let is_amid = self.inflow.is_amid();
        if !is_amid || !self.may_be_read() {
            // The time of a peer does not go on while it is not read.
            self.arriving = Progress::default();
        } else {
            let due = now.saturating_add(self.limits.progress_timeout);
            self.arriving.begin(due);
        }
        let phase = match (self.serving, is_amid || self.outflow.waiting() > 0) {
            (0, false) => Phase::Idle,
            (0, true) => Phase::Transferring,
            _ => Phase::Serving,
        };
        if phase != self.phase || phase == Phase::Idle {
            (self.phase, self.since) = (phase, now);
        }
    }

    /// Returns the time by which something has to happen, if there is one.
    pub(in crate::core) fn due(&self) -> Option<Instant> {
        let progress = [self.arriving.due(), self.leaving.due()].into_iter().flatten().min();
        let is_silent = self.serving == 0 && progress.is_none();
        let idle = self.limits.idle_timeout.filter(|_| is_silent);
        progress.or_else(|| idle.map(|time| self.since.saturating_add(time)))
    }

    /// Returns the time after which the system ends the connection because octets wait in it, in milliseconds.
    #[cfg(test)]
    pub(in crate::core) fn user_timeout(&self) -> u32 {
        self.socket.user_timeout()
    }

    /// Returns the octets of memory of a long record.
    pub(in crate::core) fn held(&self) -> usize {
        self.inflow.held()
    }

    /// Takes back the charges of what has not left, of a connection that ends.
    pub(in crate::core) fn release(&mut self, left: &mut Vec<Charge>) {
        self.outflow.end(left);
    }

    /// Returns the octets of memory that the connection takes: its entry, and its queues.
    pub(in crate::core) fn bytes(&self) -> usize {
        size_of::<Self>() + self.inflow.bytes() + self.outflow.bytes() + self.share.bytes()
    }
}

/// Octets sent at once that a peer may take longer for than the system's clock allows, though it is not late by ours.
const MUCH: usize = 64 << 10;
/// Calls that wait for memory before a connection is read no more.
const SHORT_MAX: usize = 8;
/// Octets that wait to be sent before a connection is read no more.
const WAITING_MAX: usize = 4 << 20;
/// Octets of these that were copied or will be, for which no pool has the memory.
const COPIED_MAX: usize = 256 << 10;
