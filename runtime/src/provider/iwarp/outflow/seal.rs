//! Sealing: work requests and Read Responses become FPDUs of the batch.

use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::verbs::{Handle, Status};

use super::Outflow;
use crate::provider::iwarp::life::Life;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::transmit_queue::{OutstandingRead, Response, TransmitQueue, Work};

impl Outflow {
    /// Fills the batch with as many FPDUs as it takes, of about `octets` in all.
    pub(super) fn seal(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        queue: &mut TransmitQueue,
        octets: usize,
    ) {
        while !queue.batch.is_full(octets) {
            let in_message = queue.sealed > 0;
            let in_response = queue.answered_octets > 0;
            let response = queue.responses.get(queue.answered).copied();
            let turn = in_response || (!in_message && queue.response_next);
            let sealed = match response {
                Some(response) if turn => self.seal_response(nic, life, queue, response),
                _ if self.seal_entry(nic, life, queue) => true,
                Some(response) if queue.sealed == 0 => {
                    self.seal_response(nic, life, queue, response)
                }
                _ => false,
            };
            if !sealed {
                return;
            }
        }
    }

    /// Seals one FPDU of the current work request, or carries out a request that needs none; returns whether there was
    /// progress.
    pub(super) fn seal_entry(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        queue: &mut TransmitQueue,
    ) -> bool {
        let sequence = queue.current();
        let reads = queue.reads.len();
        let started = queue.started;
        let Some(entry) = queue.entries.get_mut(started) else { return false };
        if entry.flags.fence && reads > 0 {
            return false;
        }
        let is_local = matches!(entry.work, Work::LocalInv { .. });
        if !is_local && !life.opening().may_send() {
            return false;
        }
        let done = queue.sealed;
        if done == 0 && entry.work.length() >= REMEASURE_MIN {
            self.measure_segments(nic, life.socket());
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
            Work::Read { .. } => return self.seal_read(nic, life, queue),
            Work::LocalInv { handle } => {
                let handle: Handle = *handle;
                if queue.is_read(handle) {
                    // The handle is retired once the peer's Read has been answered.
                    return false;
                }
                let retired = nic.stags.invalidate(handle, life.qp()).is_ok();
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

    /// Seals one FPDU of a Read Response.
    fn seal_response(
        &mut self,
        nic: &mut Nic,
        life: &Life,
        queue: &mut TransmitQueue,
        Response(r): Response,
    ) -> bool {
        let done = queue.answered_octets;
        if done == 0 && r.length as usize >= REMEASURE_MIN {
            self.measure_segments(nic, life.socket());
        }
        let rest = (r.length as usize).saturating_sub(done);
        let fpdu = {
            let offset = r.source_offset.wrapping_add(done as u64);
            let octets = if rest == 0 {
                Ok(&[][..])
            } else {
                nic.stags.source(r.source, life.qp(), offset, rest)
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

    /// Seals a Read Request, if one more may be outstanding.
    fn seal_read(&mut self, nic: &mut Nic, life: &mut Life, queue: &mut TransmitQueue) -> bool {
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
                nic.crowded.push_back(life.qp());
            }
            return false;
        }
        let Work::Read { sink, source } = std::mem::replace(&mut entry.work, Work::Awaiting) else {
            return false;
        };
        let length = source.length();
        let Some((handle, offset)) = nic.stags.read_sink(life.qp(), sink) else {
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
        let requested_at = self.sent + queue.batch.unsent() as u64;
        queue.reads.push_back(OutstandingRead { handle, offset, length, requested_at });
        queue.start_next();
        life.watch(nic);
        true
    }
}

/// From this many octets on, a message has the segment size measured again: it grows with the window.
const REMEASURE_MIN: usize = 256 << 10;
