//! Messages that are taken into Receives.

use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Completion, Handle, Opcode, QpNum, Status, WrId};

use super::Inflow;
use crate::provider::base::ListenerId;
use crate::provider::shm::ended::BAD_RING;
use crate::provider::shm::life::Life;
use crate::provider::shm::nic::Nic;
use crate::provider::shm::outflow::Outflow;
use crate::provider::shm::ring::{Kind, Record};
use crate::provider::shm::table::Retired;
use crate::provider::{Done, Event};

/// The reason that no more is taken from a ring.
pub(in crate::provider::shm) enum Stop {
    /// The ring has no record.
    Empty,
    /// The ring has a record, but there is no Receive for it, or its handle cannot be retired yet.
    Waits,
    /// The peer broke a rule.
    Fault(Fault),
    /// The peer closed in order.
    Close,
}

impl Inflow {
    /// Takes messages until `events` are `limit`, which `None` means, or until it must stop.
    #[inline]
    pub(in crate::provider::shm) fn take(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        outflow: &mut Outflow,
        events: &mut Vec<Event<ListenerId>>,
        limit: usize,
    ) -> Option<Stop> {
        loop {
            if life.is_over() && self.consumer.is_exhausted() {
                return Some(Stop::Empty);
            }
            if !self.has_begun() {
                self.take_plain(nic, life.qp(), events, limit);
            }
            if events.len() >= limit {
                return None;
            }
            if !self.has_record() {
                return Some(Stop::Empty);
            }
            if let Err(stop) = self.take_other(nic, life, outflow, events) {
                return Some(stop);
            }
        }
    }

    /// Takes plain messages, nearly all there are, as long as there are Receives for them.
    #[inline]
    fn take_plain(
        &mut self,
        nic: &mut Nic,
        qp: QpNum,
        events: &mut Vec<Event<ListenerId>>,
        limit: usize,
    ) {
        let consumer = &mut self.consumer;
        if !consumer.await_record(1) {
            return;
        }
        let (opcode, status) = (Opcode::Receive, Status::Success);
        let (before, mut octets) = (events.len(), 0);
        while events.len() < limit
            && let Some((id, length)) = nic.receives.fill_first(consumer)
        {
            octets += length;
            // A message is no longer than the ring.
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let done = Completion { id, qp, opcode, status, length, invalidated: None };
            events.push(Event::Completion(Done::new(done)));
        }
        nic.counters.receives += (events.len() - before) as u64;
        nic.counters.bytes_copied += octets as u64;
    }

    /// Takes one record of any kind.
    #[inline(never)]
    fn take_other(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        outflow: &mut Outflow,
        events: &mut Vec<Event<ListenerId>>,
    ) -> Result<(), Stop> {
        let record = match self.consumer.peek() {
            Ok(None) => return Err(Stop::Empty),
            Ok(Some(record)) => record,
            Err(_) => return Err(Stop::Fault(BAD_RING)),
        };
        if record.kind == Kind::Template {
            return self.consumer.learn(&record).map_err(|_| Stop::Fault(BAD_RING));
        }
        let begins = !self.has_begun();
        let taken = self.take_record(nic, outflow, &record)?;
        if begins && self.has_begun() {
            life.message_begins(nic);
        }
        self.consumer.advance(&record);
        nic.counters.bytes_copied += record.length as u64;
        let Some((id, length, invalidated)) = taken else { return Ok(()) };
        self.is_starved = false;
        nic.counters.receives += 1;
        // A message is no longer than the Receive it was put into, whose length has 32 bits.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let (qp, opcode, status) = (life.qp(), Opcode::Receive, Status::Success);
        let done = Completion { id, qp, opcode, status, length, invalidated };
        events.push(Event::Completion(Done::new(done)));
        Ok(())
    }

    /// Handles a record. Returns the Receive, length and invalidated handle of the message that ended with it, if one
    /// did.
    fn take_record(
        &mut self,
        nic: &mut Nic,
        outflow: &mut Outflow,
        record: &Record,
    ) -> Result<Option<(WrId, usize, Option<Handle>)>, Stop> {
        match record.kind {
            Kind::Close if self.filling.is_none() => return Err(Stop::Close),
            Kind::Close | Kind::Skip | Kind::Template => return Err(Stop::Fault(BAD_RING)),
            Kind::Send | Kind::SendInvalidate | Kind::Part | Kind::Squeezed | Kind::Series => {}
        }
        let Some(mut filling) = self.filling.take().or_else(|| nic.receives.take()) else {
            return Err(Stop::Waits);
        };
        let fits = filling.has_room(record.length);
        let retired = match record.kind {
            Kind::SendInvalidate if fits => retire(nic, outflow, record.handle),
            _ => Ok(None),
        };
        let retired = match retired {
            Ok(retired) if fits => retired,
            other => {
                // Whole or not, the message continues in this Receive, or gives it back.
                self.filling = Some(filling);
                return Err(other.err().unwrap_or(Stop::Fault(Fault::MessageTooLong)));
            }
        };
        if !filling.append(&self.consumer, record) {
            self.filling = Some(filling);
            return Err(Stop::Fault(BAD_RING));
        }
        if record.kind == Kind::Part {
            self.filling = Some(filling);
            return Ok(None);
        }
        let (id, length) = filling.finish();
        Ok(Some((id, length, retired)))
    }
}

/// Retires the handle of a Send with Invalidate, unless the peer is copying under it.
fn retire(nic: &mut Nic, outflow: &mut Outflow, handle: Handle) -> Result<Option<Handle>, Stop> {
    match outflow.retire(nic, handle) {
        Retired::Now => {
            nic.counters.invalidated_remote += 1;
            Ok(Some(handle))
        }
        Retired::NotYet => Err(Stop::Waits),
        Retired::Unknown => Err(Stop::Fault(Fault::CannotInvalidate)),
    }
}
