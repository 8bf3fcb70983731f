//! Departures on an open connection: work requests and Read Responses, as FPDUs.
//!
//! # Normal operation
//!
//! Messages are sealed into a batch of many FPDUs, and a batch is one system call. A message is finished before the
//! next one starts; work requests and Read Responses take turns. When the send buffer is full, the rest of the batch
//! waits for the socket to become writable.
//!
//! Sealing with CRCs reads all the payload, which takes a third of the time of sending it. So that the peer has octets
//! to work on meanwhile, batches then start short and double.

use std::io::IoSlice;

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::verbs::{Handle, NamedTemplate, Status, WrId};

use super::connection::Connection;
use super::nic::Nic;
use super::transmit_queue::{
    COPIED_MAX, COPY_MAX, OCTETS_MAX, OutstandingRead, PIECES_MAX, Response, TransmitQueue, Work,
};
use crate::provider::base::ConnectionState;
use crate::provider::{DisconnectReason, Head, Outgoing, QueueFull, Sent, WorkQueue};

impl Connection {
    /// Sends as much as can be sent, and ends the connection if that was the last of it.
    pub(super) fn pump(&mut self, nic: &mut Nic) {
        if !self.life.state().is_live() {
            return;
        }
        if let Some(mut queue) = self.queue.take() {
            let alive = self.pump_queue(nic, &mut queue);
            let failed = queue.complete(self.life.qp(), &mut nic.reports);
            if queue.is_empty() {
                nic.return_queue(queue);
            } else {
                self.queue = Some(queue);
            }
            if failed || !alive {
                // A request of ours that cannot be carried out ends the connection, as on any RNIC.
                if failed {
                    self.life.set_reason(DisconnectReason::Local);
                }
                return self.end(nic);
            }
        }
        self.finish_if_drained(nic);
    }

    /// Takes a prefix of `batch`, and sends as much as can be sent.
    pub(super) fn post(&mut self, nic: &mut Nic, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        let mut queue = self.queue.take().unwrap_or_else(|| nic.lend_queue());
        let room = nic.config.send_queue_max.saturating_sub(queue.entries.len());
        let count = room.min(batch.len());
        for request in batch.drain(..count) {
            queue.push(request);
        }
        self.queue = Some(queue);
        self.pump(nic);
        if let Some(queue) = &mut self.queue {
            queue.copy_sources(count);
        }
        if self.blocked {
            self.life.unsettle(nic);
        }
        if batch.is_empty() { Ok(()) } else { Err(QueueFull) }
    }

    /// Copies a short message and what goes ahead of it, if everything posted has been sealed; otherwise takes what is
    /// not short, or all of it. It leaves with the next [`Self::pump`].
    #[inline]
    pub(super) fn send_message(
        &mut self,
        nic: &mut Nic,
        head: &Head<'_>,
        message: &mut Outgoing,
        id: WrId,
    ) -> Sent {
        let written = if message.has_writes() { message.written() } else { 0 };
        if written <= COPY_MAX
            && self.copies(nic, head)
            && (written == 0 || self.copy_writes(nic, message))
        {
            self.copy_message(nic, head, message);
            return Sent::Copied;
        }
        self.take_message(nic, head, message, id)
    }

    /// Returns whether a message is short enough to be copied, and would be sealed at once.
    #[inline]
    fn copies(&mut self, nic: &mut Nic, head: &Head<'_>) -> bool {
        let length_max = COPIED_MAX.min(self.transmitter.send_payload_max());
        let queue = self.queue.get_or_insert_with(|| nic.lend_queue());
        self.life.opening().may_send()
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
            && self.life.opening().may_send()
            && queue.is_between_messages()
            && !queue.batch.is_full(batch_max);
        let before_writes = queue.entries.len();
        if stages {
            message.lend_writes(|request| queue.push(request));
            let before = queue.batch.is_empty();
            while !queue.is_between_messages() && self.seal_entry(nic, &mut queue) {}
            nic.counters.send_batches += u64::from(before && !queue.batch.is_empty());
        }
        // A segment that is none has no Write, and the completion names one.
        let has_last = queue.entries.len() > before_writes;
        self.queue = Some(queue);
        let copies = stages && has_last && message.owns_buffer() && self.copies(nic, head);
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
    fn pump_queue(&mut self, nic: &mut Nic, queue: &mut TransmitQueue) -> bool {
        let mut octets = if self.transmitter.has_crc() { OCTETS_FIRST } else { OCTETS_MAX };
        for _ in 0..BATCHES_PER_PUMP {
            if self.blocked {
                return true;
            }
            if queue.batch.is_empty() && self.life.state() != ConnectionState::Terminating {
                let sends = nic.counters.sends;
                self.seal(nic, queue, octets);
                octets = octets.saturating_mul(2).min(OCTETS_MAX);
                nic.counters.send_batches += u64::from(nic.counters.sends > sends);
            }
            if queue.batch.is_empty() {
                return true;
            }
            match self.send_batch(nic, queue) {
                Ok(true) => queue.on_batch_sent(),
                Ok(false) => {
                    self.blocked = true;
                    self.life.watch(nic);
                    return true;
                }
                Err(_) => return false,
            }
        }
        self.life.unsettle(nic);
        true
    }

    /// Hands octets of the batch to the system; returns whether it took all.
    fn send_batch(&mut self, nic: &mut Nic, queue: &mut TransmitQueue) -> std::io::Result<bool> {
        loop {
            nic.counters.syscalls += 1;
            let sent = if queue.batch.pieces() <= PIECES_FEW {
                let mut slices = [IoSlice::new(&[]); PIECES_FEW];
                let count = queue.gather(&nic.stags, self.life.qp(), &mut slices);
                self.life.socket().send(slices.get(..count).unwrap_or_default())?
            } else {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let count = queue.gather(&nic.stags, self.life.qp(), &mut slices);
                self.life.socket().send(slices.get(..count).unwrap_or_default())?
            };
            let Some(sent) = sent else { return Ok(false) };
            nic.counters.bytes_system += sent as u64;
            self.sent += sent as u64;
            if queue.batch.on_sent(sent) {
                return Ok(true);
            }
        }
    }

    /// Fills the batch with as many FPDUs as it takes, of about `octets` in all.
    fn seal(&mut self, nic: &mut Nic, queue: &mut TransmitQueue, octets: usize) {
        while !queue.batch.is_full(octets) {
            let in_message = queue.sealed > 0;
            let in_response = queue.answered_octets > 0;
            let response = queue.responses.get(queue.answered).copied();
            let turn = in_response || (!in_message && queue.response_next);
            let sealed = match response {
                Some(response) if turn => self.seal_response(nic, queue, response),
                _ if self.seal_entry(nic, queue) => true,
                Some(response) if queue.sealed == 0 => self.seal_response(nic, queue, response),
                _ => false,
            };
            if !sealed {
                return;
            }
        }
    }

    /// Seals one FPDU of a Read Response.
    fn seal_response(
        &mut self,
        nic: &mut Nic,
        queue: &mut TransmitQueue,
        Response(r): Response,
    ) -> bool {
        let done = queue.answered_octets;
        if done == 0 && r.length as usize >= REMEASURE_MIN {
            self.measure_segments(nic);
        }
        let rest = (r.length as usize).saturating_sub(done);
        let fpdu = {
            let offset = r.source_offset.wrapping_add(done as u64);
            let octets = if rest == 0 {
                Ok(&[][..])
            } else {
                nic.stags.source(r.source, self.life.qp(), offset, rest)
            };
            // The range was checked when the peer asked for it; LocalInv and remote invalidation wait for queued Reads.
            let Ok(octets) = octets else { return false };
            let sink_offset = r.sink_offset.wrapping_add(done as u64);
            let fpdu = self.transmitter.read_response(r.sink, sink_offset, octets);
            queue.batch.push_registration(&fpdu, r.source, offset);
            fpdu
        };
        nic.wire.fpdus_sent += 1;
        nic.counters.count_tagged(fpdu.payload_len());
        if fpdu.payload_len() == rest {
            queue.answered += 1;
            queue.answered_octets = 0;
            queue.response_next = false;
        } else {
            queue.answered_octets = done + fpdu.payload_len();
        }
        true
    }

    /// Seals one FPDU of the current work request, or carries out a request that needs none; returns whether there was
    /// progress.
    fn seal_entry(&mut self, nic: &mut Nic, queue: &mut TransmitQueue) -> bool {
        let sequence = queue.current();
        let reads = queue.reads.len();
        let started = queue.started;
        let Some(entry) = queue.entries.get_mut(started) else { return false };
        if entry.flags.fence && reads > 0 {
            return false;
        }
        let is_local = matches!(entry.work, Work::LocalInv { .. });
        if !is_local && !self.life.opening().may_send() {
            return false;
        }
        let done = queue.sealed;
        if done == 0 && entry.work.length() >= REMEASURE_MIN {
            self.measure_segments(nic);
        }
        match &mut entry.work {
            Work::Send { source, invalidate } => {
                let rest = source.bytes().get(done..).unwrap_or_default();
                // A message is at most 2^32 - 1 octets: `push` refused longer ones.
                let at = u32::try_from(done).unwrap_or(u32::MAX);
                let fpdu = self.transmitter.send(*invalidate, at, rest);
                nic.wire.fpdus_sent += 1;
                let is_last = queue.batch.push_rest(&fpdu, rest, (sequence, done));
                nic.counters.sends += u64::from(is_last);
                queue.sealed = done + fpdu.payload_len();
                if is_last {
                    queue.start_next();
                }
            }
            Work::Write { source, target } => {
                let rest = source.bytes().get(done..).unwrap_or_default();
                let offset = target.offset().wrapping_add(done as u64);
                let fpdu = self.transmitter.write(target.handle(), offset, rest);
                nic.wire.fpdus_sent += 1;
                nic.counters.count_tagged(fpdu.payload_len());
                let is_last = queue.batch.push_rest(&fpdu, rest, (sequence, done));
                queue.sealed = done + fpdu.payload_len();
                if is_last {
                    queue.start_next();
                }
            }
            Work::Read { .. } => return self.seal_read(nic, queue),
            Work::LocalInv { handle } => {
                let handle: Handle = *handle;
                if queue.is_read(handle) {
                    // The handle is retired once the peer's Read has been answered.
                    return false;
                }
                let retired = nic.stags.invalidate(handle, self.life.qp()).is_ok();
                nic.counters.invalidated_local += u64::from(retired);
                if let Some(entry) = queue.entries.get_mut(started) {
                    entry.work = if retired {
                        Work::Invalidated(handle)
                    } else {
                        Work::Done(Status::LocalFault)
                    };
                }
                queue.start_next();
            }
            Work::Done(_) | Work::Invalidated(_) | Work::Awaiting => queue.start_next(),
        }
        true
    }

    /// Seals a Read Request, if one more may be outstanding.
    fn seal_read(&mut self, nic: &mut Nic, queue: &mut TransmitQueue) -> bool {
        let started = queue.started;
        let Some(entry) = queue.entries.get_mut(started) else { return false };
        if self.ord == 0 {
            // No Read was granted: this one would wait for ever.
            entry.work = Work::Done(Status::LocalFault);
            queue.start_next();
            return true;
        }
        if queue.reads.len() >= self.ord as usize {
            return false;
        }
        if nic.registrations_left() == 0 {
            if !std::mem::replace(&mut self.crowded, true) {
                nic.crowded.push_back(self.life.qp());
            }
            return false;
        }
        let Work::Read { sink, source } = std::mem::replace(&mut entry.work, Work::Awaiting) else {
            return false;
        };
        let length = source.length();
        let Some((handle, offset)) = nic.stags.read_sink(self.life.qp(), sink) else {
            entry.work = Work::Done(Status::LocalFault);
            queue.start_next();
            return true;
        };
        let request = ReadRequest {
            sink: handle,
            sink_offset: offset,
            length,
            source: source.handle(),
            source_offset: source.offset(),
        };
        queue.batch.push(&self.transmitter.read_request(&request));
        nic.wire.fpdus_sent += 1;
        if queue.reads.is_empty() {
            self.receiver.expect_read(handle, offset, length);
        }
        let requested_at = self.sent + queue.batch.unsent() as u64;
        queue.reads.push_back(OutstandingRead { handle, offset, length, requested_at });
        queue.start_next();
        self.life.watch(nic);
        true
    }

    /// Closes our half if we are closing and nothing is left to be sent.
    fn finish_if_drained(&mut self, nic: &mut Nic) {
        match self.life.state() {
            // An active end may send nothing before its first FPDU, so closing waits for nothing.
            ConnectionState::Draining
                if self.queue.is_none() || !self.life.opening().may_send() => {}
            ConnectionState::Terminating if !self.blocked => {
                if let Some(words) = self.last_words.take() {
                    nic.counters.syscalls += 1;
                    let words = [IoSlice::new(words.prefix()), IoSlice::new(words.trailer())];
                    // A peer whose receive buffer is full has stopped listening to us anyway.
                    let _ = self.life.socket().send(&words);
                }
            }
            _ => return,
        }
        if self.life.shut_down_write(nic) {
            self.report_end(nic);
        }
    }

    /// Fits FPDUs to the current size of TCP segments (RFC 5044 section 4.5: one FPDU a segment).
    pub(super) fn measure_segments(&mut self, nic: &mut Nic) {
        nic.counters.syscalls += 1;
        if let Ok(size) = self.life.socket().segment_size() {
            self.transmitter.set_segment_size(Mulpdu::from_mss(size));
        }
    }

    /// Queues a Write of no octets, which every peer takes and which delivers nothing.
    pub(super) fn push_empty_write(&mut self, nic: &mut Nic) {
        let fpdu = self.transmitter.write(Handle(0), 0, &[]);
        self.queue.get_or_insert_with(|| nic.lend_queue()).batch.push(&fpdu);
        nic.wire.fpdus_sent += 1;
    }
}

/// Batches sent in one call, before other connections have their turn.
const BATCHES_PER_PUMP: u32 = 8;

/// Octets of the first batch when there are CRCs: short, so that the peer gets octets soon, and long enough for the
/// next batch to be sealed before it has handled them.
const OCTETS_FIRST: usize = 128 << 10;

/// From this many octets on, a message has the segment size measured again: it grows with the window.
const REMEASURE_MIN: usize = 256 << 10;

/// Octets of the longest Write that is sealed before its doorbell.
const STAGED_MAX: usize = 64 << 10;

/// Pieces of a short batch, which needs only a short array of slices.
const PIECES_FEW: usize = 8;
