//! Messages of the core: copied and sealed at once, or taken until they can be.

use haulage_proto::verbs::{NamedTemplate, WrId};

use super::{OCTETS_FIRST, Outflow};
use crate::provider::iwarp::life::Life;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::transmit_queue::{COPIED_MAX, COPY_MAX, OCTETS_MAX};
use crate::provider::{Head, Outgoing, Sent};

impl Outflow {
    /// Copies a short message and what goes ahead of it, if everything posted has been sealed; otherwise takes what is
    /// not short, or all of it. It leaves with the next [`Self::pump`].
    #[inline]
    pub(in crate::provider::iwarp) fn send(
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
        // The last Write's entry carries the completion. Without a Write, as for an absent segment, nothing could carry
        // it.
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
}

/// Octets of the longest Write that is sealed before its doorbell.
const STAGED_MAX: usize = 64 << 10;
