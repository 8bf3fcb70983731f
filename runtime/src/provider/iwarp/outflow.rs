//! Departures on an open connection: work requests and Read Responses, as FPDUs.
//!
//! # Normal operation
//!
//! Messages (`outflow/message.rs`) and work requests are sealed into a batch of many FPDUs (`outflow/seal.rs`), and a
//! batch is one system call. A message is finished before the next one starts; work requests and Read Responses take
//! turns. When the send buffer is full, the rest of the batch waits for the socket to become writable.
//!
//! Sealing with CRCs reads all the payload, which takes a third of the time of sending it. So that the peer has octets
//! to work on meanwhile, batches then start short and double.

use std::io::IoSlice;

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::Agreement;
use haulage_proto::iwarp::terminate::{Code, Quote};
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::{Handle, Status};

use super::life::Life;
use super::nic::Nic;
use super::reactor::Reactor;
use super::transmit_queue::{OCTETS_MAX, OutstandingRead, PIECES_MAX, TransmitQueue};
use crate::provider::base::ConnectionState;
use crate::provider::{DisconnectReason, WorkQueue};
use crate::sys::socket::Socket;

mod message;
mod reads;
mod seal;

/// Everything that leaves a connection, and how far it has come.
#[derive(Debug)]
pub(super) struct Outflow {
    transmitter: Transmitter,
    /// The send queue, while there is work.
    queue: Option<Box<TransmitQueue>>,
    room: Room,
    /// The connection is on the provider's list of those whose next Read waits for a registration. It may be while
    /// there is room, and while there is none.
    crowded: bool,
    /// RDMA Reads that we may have outstanding, and that the peer may.
    ord: u32,
    ird: u32,
    /// Octets that the system took from us since the connection was open.
    sent: u64,
    /// Octets of the Reads of ours that were answered, and one for each Read.
    answered: u64,
    /// The last FPDU, if the connection ends with one.
    last_words: Option<Box<Fpdu>>,
    /// The status of the oldest Read's completion, if the Read is lost.
    read_status: Status,
}

/// The room for output in the socket's send buffer.
///
/// | from | to | when |
/// |---|---|---|
/// | `Free` | `Full` | the system took less than it was given |
/// | `Full` | `Awaited` | the ring was asked to report when the socket can be written to |
/// | `Full`, `Awaited` | `Free` | the socket can be written to |
///
/// With epoll no socket is `Awaited`, as each report comes without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Output may be handed to the system.
    Free,
    /// Output waits until the socket can be written to.
    Full,
    /// A request of the ring waits until the socket can be written to, and holds the socket until then.
    Awaited,
}

/// The connection is over: it is gone, or a work request of ours cannot be carried out.
#[derive(Debug)]
pub(super) struct Over;

impl Outflow {
    /// Makes the outflow of a connection that is about to open.
    pub(super) fn new() -> Self {
        Self {
            transmitter: Transmitter::new(None, Mulpdu::default()),
            queue: None,
            room: Room::Free,
            crowded: false,
            ord: 0,
            ird: 0,
            sent: 0,
            answered: 0,
            last_words: None,
            read_status: Status::Flushed,
        }
    }

    /// Begins the stream that both ends agreed on.
    pub(super) fn open(
        &mut self,
        nic: &mut Nic,
        socket: &Socket,
        agreement: &Agreement,
        crc: Option<Crc32c>,
    ) {
        self.transmitter = Transmitter::new(crc, Mulpdu::default());
        self.measure_segments(nic, socket);
        (self.ord, self.ird) = (agreement.ord, agreement.ird);
    }

    /// Sends as much as can be sent. Returns the Read of ours that the peer is to answer next, if none waited before.
    pub(super) fn pump(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
    ) -> Result<Option<OutstandingRead>, Over> {
        let Some(mut queue) = self.queue.take() else { return Ok(None) };
        let waited = !queue.reads.is_empty();
        let alive = self.pump_queue(nic, life, &mut queue);
        let next = queue.reads.front().filter(|_| !waited).copied();
        let failed = queue.complete(life.qp(), &mut nic.reports);
        if queue.is_empty() {
            nic.return_queue(queue);
        } else {
            self.queue = Some(queue);
        }
        if failed {
            // A request of ours that cannot be carried out ends the connection, as on any RNIC.
            life.set_reason(DisconnectReason::Local);
        }
        if alive && !failed { Ok(next) } else { Err(Over) }
    }

    /// Takes a prefix of `batch`, and returns the number of its requests.
    pub(super) fn take(&mut self, nic: &mut Nic, batch: &mut WorkQueue) -> usize {
        let mut queue = self.queue.take().unwrap_or_else(|| nic.lend_queue());
        let room = nic.config.send_queue_max.saturating_sub(queue.entries.len());
        let count = room.min(batch.len());
        for request in batch.drain(..count) {
            queue.push(request);
        }
        self.queue = Some(queue);
        count
    }

    /// Copies what the last `count` requests that were taken still lease and are to have copied.
    pub(super) fn copy_sources(&mut self, count: usize) {
        if let Some(queue) = &mut self.queue {
            queue.copy_sources(count);
        }
    }

    /// Queues a Write of no octets, which every peer takes and which delivers nothing.
    pub(super) fn push_empty_write(&mut self, nic: &mut Nic) {
        let fpdu = self.transmitter.write(Handle(0), 0, &[]);
        self.queue.get_or_insert_with(|| nic.lend_queue()).batch.push(&fpdu);
        nic.wire.fpdus_sent += 1;
    }

    /// Queues a keepalive, unless there is output that serves as well, or a message that may not be interrupted.
    pub(super) fn push_keepalive(&mut self, nic: &mut Nic) {
        let is_in_message = self.queue.as_ref().is_some_and(|queue| queue.sealed > 0);
        if self.room == Room::Free && !is_in_message {
            self.push_empty_write(nic);
            nic.wire.keepalives += 1;
        }
    }

    /// Has the connection end with a Terminate.
    pub(super) fn end_with(&mut self, code: Code, quote: Option<&Quote<'_>>) {
        self.last_words = Some(Box::new(self.transmitter.terminate(code, quote)));
    }

    /// Returns whether nothing is left to be sent on a connection that is closing. Its last words leave now, if it has
    /// any.
    pub(super) fn is_drained(&mut self, nic: &mut Nic, life: &Life) -> bool {
        match life.state() {
            // An active end may send nothing before its first FPDU, so closing waits for nothing.
            ConnectionState::Draining => self.queue.is_none() || !life.opening().may_send(),
            ConnectionState::Terminating if self.room == Room::Free => {
                if let Some(words) = self.last_words.take() {
                    nic.counters.syscalls += 1;
                    let words = [IoSlice::new(words.prefix()), IoSlice::new(words.trailer())];
                    // A peer whose receive buffer is full has stopped listening to us anyway.
                    let _ = life.socket().send(&words);
                }
                true
            }
            _ => false,
        }
    }

    /// Drops every view, reports every work request as flushed, and leaves the provider's lists.
    pub(super) fn flush(&mut self, nic: &mut Nic, life: &Life) {
        if let Some(mut queue) = self.queue.take() {
            queue.flush(life.qp(), &mut nic.reports, self.read_status);
            nic.return_queue(queue);
        }
        self.last_words = None;
        if std::mem::take(&mut self.crowded) {
            nic.crowded.retain(|qp| *qp != life.qp());
        }
    }

    /// Notes that the socket can be written to.
    pub(super) const fn on_writable(&mut self) {
        self.room = Room::Free;
    }

    /// Notes that the connection has left the list of those whose next Read waits for a registration.
    pub(super) const fn on_registrations(&mut self) {
        self.crowded = false;
    }

    /// Asks the ring to report when the socket can be written to, if output waits for that.
    pub(super) fn await_room(&mut self, nic: &mut Nic, life: &mut Life, reactor: &mut Reactor) {
        let waits = self.room == Room::Full && life.state() != ConnectionState::Closed;
        if waits && reactor.receives() {
            if reactor.writable(life.socket().fd(), life.qp()).is_ok() {
                self.room = Room::Awaited;
            } else {
                life.unsettle(nic);
            }
        }
    }

    /// Tells the clocks of `life` how far the peer has come with our output and with the Read that it answers, of which
    /// `remaining` octets are to come.
    pub(super) fn note_progress(&self, nic: &mut Nic, life: &mut Life, remaining: usize) {
        let read = self.oldest_read();
        if self.is_blocked() || read.is_some() {
            nic.counters.syscalls += 2;
            // Our clock judges the peer. If this fails, the system's does as well.
            let _ = life.socket().outlast_full_windows();
            if let Ok(unacknowledged) = life.socket().unacknowledged() {
                // Octets of ours that the peer's system has acknowledged.
                life.progress_mut().output.reach(self.sent.saturating_sub(unacknowledged));
            }
        }
        if let Some(read) = read {
            let arrived = u64::from(read.length).saturating_sub(remaining as u64);
            // A request still on its way behind other output counts as progress, or slow paths would look like silent
            // peers.
            let request = life.progress_mut().output.position().min(read.requested_at);
            life.progress_mut().read.reach(self.answered + arrived + request);
        }
    }

    /// Returns whether a Read of the peer's still needs this registration.
    #[inline]
    pub(super) fn is_read(&self, handle: Handle) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.is_read(handle))
    }

    /// Returns whether output waits until the socket can be written to.
    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.room != Room::Free
    }

    /// Returns whether a request of the ring holds the socket until it can be written to.
    pub(super) fn is_room_awaited(&self) -> bool {
        self.room == Room::Awaited
    }

    /// Returns whether everything was handed to the system.
    pub(super) fn has_left(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Fits FPDUs to the current size of TCP segments (RFC 5044 section 4.5: one FPDU a segment).
    fn measure_segments(&mut self, nic: &mut Nic, socket: &Socket) {
        nic.counters.syscalls += 1;
        if let Ok(size) = socket.segment_size() {
            self.transmitter.set_segment_size(Mulpdu::from_mss(size));
        }
    }

    /// Sends batches until nothing is left, or the socket is full. Returns whether the connection is still there.
    fn pump_queue(&mut self, nic: &mut Nic, life: &mut Life, queue: &mut TransmitQueue) -> bool {
        let mut octets = if self.transmitter.has_crc() { OCTETS_FIRST } else { OCTETS_MAX };
        for _ in 0..BATCHES_PER_PUMP {
            if self.room != Room::Free {
                return true;
            }
            if queue.batch.is_empty() && life.state() != ConnectionState::Terminating {
                let sends = nic.counters.sends;
                self.seal(nic, life, queue, octets);
                octets = octets.saturating_mul(2).min(OCTETS_MAX);
                nic.counters.send_batches += u64::from(nic.counters.sends > sends);
            }
            if queue.batch.is_empty() {
                return true;
            }
            match self.send_batch(nic, life, queue) {
                Ok(true) => queue.on_batch_sent(),
                Ok(false) => {
                    self.room = Room::Full;
                    life.watch(nic);
                    return true;
                }
                Err(_) => return false,
            }
        }
        life.unsettle(nic);
        true
    }

    /// Hands octets of the batch to the system; returns whether it took all.
    fn send_batch(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        queue: &mut TransmitQueue,
    ) -> std::io::Result<bool> {
        loop {
            nic.counters.syscalls += 1;
            let sent = if queue.batch.pieces() <= PIECES_FEW {
                let mut slices = [IoSlice::new(&[]); PIECES_FEW];
                let count = queue.gather(&nic.stags, life.qp(), &mut slices);
                life.socket().send(slices.get(..count).unwrap_or_default())?
            } else {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let count = queue.gather(&nic.stags, life.qp(), &mut slices);
                life.socket().send(slices.get(..count).unwrap_or_default())?
            };
            let Some(sent) = sent else { return Ok(false) };
            nic.counters.bytes_system += sent as u64;
            self.sent += sent as u64;
            if queue.batch.on_sent(sent) {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
impl Outflow {
    /// Sends FPDUs as small as on Ethernet.
    pub(super) fn shrink_segments(&mut self) {
        self.transmitter.set_segment_size(Mulpdu::default());
    }

    pub(super) fn queue(&self) -> Option<&TransmitQueue> {
        self.queue.as_deref()
    }

    /// Returns the octets that the system took.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

/// Batches sent in one call, before other connections have their turn.
const BATCHES_PER_PUMP: u32 = 8;

/// Octets of the first batch when there are CRCs: short, so that the peer gets octets soon, and long enough for the
/// next batch to be sealed before it has handled them.
const OCTETS_FIRST: usize = 128 << 10;

/// Pieces of a short batch, which needs only a short array of slices.
const PIECES_FEW: usize = 8;
