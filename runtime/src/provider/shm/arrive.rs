//! What arrives on an open connection: messages into Receives, invalidations, the end.

use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Completion, Handle, Opcode, Status, WrId};

use super::ListenerId;
use super::connection::Connection;
use super::ended::{BAD_RING, Ended};
use super::nic::Nic;
use super::ring::{Kind, Record};
use super::table::Retired;
use crate::provider::{DisconnectReason, Done, Event};

/// Why no more is taken from a ring.
enum Stop {
    /// There is no record.
    Empty,
    /// There is, but no Receive for it, or its handle cannot be retired yet.
    Waits,
    /// The peer broke a rule.
    Fault(Fault),
    /// The peer closed in order.
    Close,
}

impl Connection {
    /// Takes messages from the ring until `events` are `limit`; returns whether there were any.
    #[inline]
    pub(super) fn arrive(
        &mut self,
        nic: &mut Nic,
        events: &mut Vec<Event<ListenerId>>,
        limit: usize,
    ) -> bool {
        let before = events.len();
        let stop = loop {
            if events.len() >= limit {
                break None;
            }
            match self.take_one(nic, events) {
                Ok(()) => {}
                Err(stop) => break Some(stop),
            }
        };
        if let Some(consumer) = &mut self.consumer {
            consumer.release();
        }
        match stop {
            None => {}
            Some(Stop::Empty) if !self.over => {}
            Some(other) => self.on_stop(nic, &other),
        }
        events.len() > before
    }

    #[cold]
    fn on_stop(&mut self, nic: &mut Nic, stop: &Stop) {
        match stop {
            Stop::Waits => {
                nic.link.starvations += u64::from(!self.starved);
                self.starved = true;
            }
            Stop::Fault(fault) => self.fault(nic, *fault),
            Stop::Close => self.end(nic, Ended::Closed, DisconnectReason::Peer, None),
            Stop::Empty => {
                // The socket closed after the last record and after the word that says why.
                let word = self.ended_by_peer();
                self.end(nic, Ended::Closed, word.reason(), None);
            }
        }
    }

    /// Returns how the peer says the connection ended.
    pub(super) fn ended_by_peer(&self) -> Ended {
        let word = self.consumer.as_ref().map_or(0, |consumer| {
            consumer.segment().ended().load(std::sync::atomic::Ordering::SeqCst)
        });
        Ended::decode(word)
    }

    /// Takes one record.
    #[inline]
    fn take_one(&mut self, nic: &mut Nic, events: &mut Vec<Event<ListenerId>>) -> Result<(), Stop> {
        let Some(consumer) = &mut self.consumer else { return Err(Stop::Empty) };
        let record = match consumer.peek() {
            Ok(None) => return Err(Stop::Empty),
            Ok(Some(record)) => record,
            Err(_) => return Err(Stop::Fault(BAD_RING)),
        };
        consumer.prefetch_behind(&record);
        let plain = record.kind == Kind::Send && self.filling.is_none();
        let (id, length, invalidated) =
            match plain.then(|| nic.receives.fill_first(consumer, &record)) {
                Some(Some(id)) => (id, record.length, None),
                _ => match self.take_other(nic, &record)? {
                    Some(taken) => taken,
                    None => return Ok(()),
                },
            };
        if let Some(consumer) = &mut self.consumer {
            consumer.advance(&record);
        }
        self.starved = false;
        nic.counters.receives += 1;
        nic.counters.bytes_copied += record.length as u64;
        // A message is no longer than the Receive it was put into.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let (qp, opcode, status) = (self.qp, Opcode::Receive, Status::Success);
        let done = Completion { id, qp, opcode, status, length, invalidated };
        events.push(Event::Completion(Done::new(done)));
        Ok(())
    }

    /// Takes a record that is not a plain message for a plain Receive: `None` if no message ended.
    #[inline(never)]
    fn take_other(
        &mut self,
        nic: &mut Nic,
        record: &Record,
    ) -> Result<Option<(WrId, usize, Option<Handle>)>, Stop> {
        match record.kind {
            Kind::Close if self.filling.is_none() => return Err(Stop::Close),
            Kind::Close | Kind::Skip => return Err(Stop::Fault(BAD_RING)),
            Kind::Send | Kind::SendInvalidate | Kind::Part => {}
        }
        let Some(mut filling) = self.filling.take().or_else(|| nic.receives.take()) else {
            return Err(Stop::Waits);
        };
        let fits = filling.has_room(record.length);
        let retired = match record.kind {
            Kind::SendInvalidate if fits => self.retire(nic, record.handle),
            _ => Ok(None),
        };
        let retired = match retired {
            Ok(retired) if fits => retired,
            other => {
                // Whole or not, it goes on with this Receive, or gives it back.
                self.filling = Some(filling);
                return Err(other.err().unwrap_or(Stop::Fault(Fault::MessageTooLong)));
            }
        };
        let Some(consumer) = &mut self.consumer else { return Err(Stop::Empty) };
        filling.append(consumer, record);
        if record.kind == Kind::Part {
            consumer.advance(record);
            nic.counters.bytes_copied += record.length as u64;
            self.filling = Some(filling);
            return Ok(None);
        }
        let (id, length) = filling.finish();
        Ok(Some((id, length, retired)))
    }

    /// Retires the handle of a Send with Invalidate, unless the peer is copying under it.
    fn retire(&mut self, nic: &mut Nic, handle: Handle) -> Result<Option<Handle>, Stop> {
        let Some(producer) = &self.producer else { return Err(Stop::Empty) };
        match self.registrations.retire(producer.segment(), nic.handles.slot(handle), handle) {
            Retired::Now => {
                nic.registrations -= 1;
                nic.counters.invalidated_remote += 1;
                Ok(Some(handle))
            }
            Retired::NotYet => Err(Stop::Waits),
            Retired::Unknown => Err(Stop::Fault(Fault::CannotInvalidate)),
        }
    }
}
