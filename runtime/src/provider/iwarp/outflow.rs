//! Departures on an open connection: work requests and Read Responses, as FPDUs.
//!
//! # Normal operation
//!
//! Messages are sealed into a batch of many FPDUs (`outflow/seal.rs`), and a batch is one system call. A message is
//! finished before the next one starts; work requests and Read Responses take turns. When the send buffer is full, the
//! rest of the batch waits for the socket to become writable.
//!
//! Sealing with CRCs reads all the payload, which takes a third of the time of sending it. So that the peer has octets
//! to work on meanwhile, batches then start short and double.

use std::io::IoSlice;

use haulage_mr_pool::StagFault;
use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Agreement, Rtr};
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::terminate::{Code, Fault, Quote};
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::{Handle, NamedTemplate, Status, WrId};

use super::life::Life;
use super::nic::Nic;
use super::reactor::Reactor;
use super::transmit_queue::{
    COPIED_MAX, COPY_MAX, OCTETS_MAX, OutstandingRead, PIECES_MAX, Response, TransmitQueue,
};
use crate::provider::base::ConnectionState;
use crate::provider::{DisconnectReason, Head, Outgoing, Sent, WorkQueue};
use crate::sys::socket::Socket;

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
/// A socket that is being connected is `Full`. With epoll no socket is `Awaited`, as each report comes without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Output may be handed to the system.
    Free,
    /// Output waits until the socket can be written to.
    Full,
    /// So does a request of the ring, which holds the socket until then.
    Awaited,
}

/// The connection is over: it is gone, or a work request of ours cannot be carried out.
#[derive(Debug)]
pub(super) struct Over;

impl Outflow {
    /// Makes the outflow of a connection whose socket is connected, if `state` says so.
    pub(super) fn new(state: ConnectionState) -> Self {
        let is_connecting = state == ConnectionState::Connecting;
        Self {
            transmitter: Transmitter::new(None, Mulpdu::default()),
            queue: None,
            room: if is_connecting { Room::Full } else { Room::Free },
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

    /// Copies a short message and what goes ahead of it, if everything posted has been sealed; otherwise takes what is
    /// not short, or all of it. It leaves with the next [`Self::pump`].
    #[inline]
    pub(super) fn send(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        let written = if message.has_writes() { message.written() } else { 0 };
        if written <= COPY_MAX
            && self.copies(nic, life, head)
            && (written == 0 || self.copy_writes(nic, message))
        {
            self.copy_message(nic, head, message);
            return Sent::Copied;
        }
        self.take_message(nic, life, head, message, id)
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

    /// Takes a Read of the peer's, to be answered. `rtr` is the ready-to-receive indication that it may be.
    pub(super) fn on_read_request(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        request: ReadRequest,
        rtr: Option<Rtr>,
    ) -> Result<(), Fault> {
        // A Read that opens the stream needs no grant (RFC 6581 section 4.3).
        let granted = if rtr == Some(Rtr::Read) { self.ird.max(1) } else { self.ird };
        // RFC 5040 section 5.2.2: a Read of no octets names no memory.
        if request.length > 0 {
            let (offset, length) = (request.source_offset, request.length as usize);
            nic.stags.source(request.source, life.qp(), offset, length).map_err(read_fault)?;
        }
        // The response may not wrap in the peer's sink either.
        request.sink_offset.checked_add(u64::from(request.length)).ok_or(Fault::ReadWrap)?;
        let queue = self.queue.get_or_insert_with(|| nic.lend_queue());
        if queue.unanswered() >= granted as usize {
            return Err(Fault::NoBuffer);
        }
        queue.responses.push_back(Response(request));
        life.unsettle(nic);
        Ok(())
    }

    /// Notes that the oldest Read of ours was answered. Returns the next, if there is one.
    pub(super) fn on_read_done(&mut self) -> Option<OutstandingRead> {
        let queue = self.queue.as_mut()?;
        self.answered += queue.on_read_done();
        queue.reads.front().copied()
    }

    /// Notes that the peer refused the oldest Read of ours.
    pub(super) const fn on_read_refused(&mut self) {
        self.read_status = Status::RemoteAccess;
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
            nic.counters.syscalls += 1;
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

    /// Returns whether a Read of ours waits for its response.
    pub(super) fn has_reads(&self) -> bool {
        self.oldest_read().is_some()
    }

    fn oldest_read(&self) -> Option<OutstandingRead> {
        self.queue.as_ref().and_then(|queue| queue.reads.front()).copied()
    }

    /// Fits FPDUs to the current size of TCP segments (RFC 5044 section 4.5: one FPDU a segment).
    fn measure_segments(&mut self, nic: &mut Nic, socket: &Socket) {
        nic.counters.syscalls += 1;
        if let Ok(size) = socket.segment_size() {
            self.transmitter.set_segment_size(Mulpdu::from_mss(size));
        }
    }

    /// Returns whether a message is short enough to be copied, and would be sealed at once.
    #[inline]
    fn copies(&mut self, nic: &mut Nic, life: &Life, head: &Head<'_>) -> bool {
        let length_max = COPIED_MAX.min(self.transmitter.send_payload_max());
        let queue = self.queue.get_or_insert_with(|| nic.lend_queue());
        life.opening().may_send()
            && head.octets() <= length_max
            && queue.is_between_messages()
            && !queue.batch.is_full(OCTETS_MAX)
    }

    /// Copies and seals a message.
    #[inline]
    fn copy_message(&mut self, nic: &mut Nic, head: &Head<'_>, message: &mut Outgoing) {
        let (invalidate, length) = (head.invalidated(), head.octets());
        let Some(queue) = &mut self.queue else { return };
        let transmitter = &mut self.transmitter;
        nic.counters.send_batches += u64::from(queue.batch.is_empty());
        match message.like(head) {
            Some((NamedTemplate { template, .. }, patch, body)) => {
                queue.batch.push_whole(transmitter, invalidate, length, |own| {
                    let start = own.len();
                    own.extend_from_slice(template.octets());
                    let headers = own.get_mut(start..).unwrap_or_default();
                    let written = template.put_patch(headers, patch);
                    debug_assert!(written.is_some(), "the headers are there");
                    own.extend_from_slice(body);
                });
            }
            None => {
                let octets = message.message(head);
                queue.batch.push_whole(transmitter, invalidate, length, |own| {
                    own.extend_from_slice(octets);
                });
            }
        }
        nic.wire.fpdus_sent += 1;
        nic.counters.sends += 1;
    }

    /// Copies and seals what goes ahead of a message; false if it is in too many parts. What was sealed then is written
    /// again.
    fn copy_writes(&mut self, nic: &mut Nic, message: &Outgoing) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        nic.counters.send_batches += u64::from(queue.batch.is_empty());
        message.copy_writes(|parts, target| {
            let mut offset = target.offset();
            for part in parts {
                let mut rest = *part;
                while !rest.is_empty() {
                    let fpdu = self.transmitter.write(target.handle(), offset, rest);
                    let (sealed, more) = rest.split_at(fpdu.payload_len());
                    queue.batch.push_copied(&fpdu, sealed);
                    nic.wire.fpdus_sent += 1;
                    nic.counters.count_tagged(sealed.len());
                    (rest, offset) = (more, offset.wrapping_add(sealed.len() as u64));
                }
            }
            true
        })
    }

    /// Takes a message. Its Writes are sealed at once if they are of middling length and everything posted has been
    /// sealed; the message behind them is then copied if it is short.
    fn take_message(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        let batch_max = if self.transmitter.has_crc() { OCTETS_FIRST } else { OCTETS_MAX };
        let mut queue = self.queue.take().unwrap_or_else(|| nic.lend_queue());
        let taken = queue.entries.len() + message.requests_max();
        if taken > nic.config.send_queue_max && !queue.entries.is_empty() {
            self.queue = Some(queue);
            return Sent::Full;
        }
        let stages = message.has_writes()
            && message.written() <= STAGED_MAX
            && life.opening().may_send()
            && queue.is_between_messages()
            && !queue.batch.is_full(batch_max);
        let before_writes = queue.entries.len();
        if stages {
            message.lend_writes(|request| queue.push(request));
            let before = queue.batch.is_empty();
            while !queue.is_between_messages() && self.seal_entry(nic, life, &mut queue) {}
            nic.counters.send_batches += u64::from(before && !queue.batch.is_empty());
        }
        // A segment that is none has no Write, and the completion names one.
        let has_last = queue.entries.len() > before_writes;
        self.queue = Some(queue);
        let copies = stages && has_last && message.owns_buffer() && self.copies(nic, life, head);
        let Some(queue) = &mut self.queue else { return Sent::Gone };
        if let Some(last) = queue.entries.back_mut().filter(|_| copies) {
            (last.id, last.flags.signaled) = (id, true);
            self.copy_message(nic, head, message);
        } else if stages {
            message.lend_message(head, id, |request| queue.push(request));
        } else {
            message.lend(head, id, |request| queue.push(request));
        }
        Sent::Taken
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

const fn read_fault(fault: StagFault) -> Fault {
    match fault {
        StagFault::InvalidStag => Fault::ReadStag,
        StagFault::NotYours => Fault::ReadNotAssociated,
        StagFault::AccessViolation => Fault::ReadAccess,
        StagFault::BaseOrBounds => Fault::ReadBounds,
        StagFault::OffsetWraps => Fault::ReadWrap,
    }
}

/// Batches sent in one call, before other connections have their turn.
const BATCHES_PER_PUMP: u32 = 8;

/// Octets of the first batch when there are CRCs: short, so that the peer gets octets soon, and long enough for the
/// next batch to be sealed before it has handled them.
const OCTETS_FIRST: usize = 128 << 10;

/// Octets of the longest Write that is sealed before its doorbell.
const STAGED_MAX: usize = 64 << 10;

/// Pieces of a short batch, which needs only a short array of slices.
const PIECES_FEW: usize = 8;
