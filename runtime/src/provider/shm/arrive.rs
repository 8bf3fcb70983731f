//! Arrivals on an open connection: messages into Receives, invalidations, the end.

use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{
    Completion, Handle, HeaderPatch, NamedTemplate, Opcode, Status, TemplateId, WrId,
};

use super::connection::Connection;
use super::ended::{BAD_RING, Ended};
use super::nic::Nic;
use super::port::{Outflow, Shows, Terms};
use super::ring::{Consumer, Kind, Look, Record};
use super::table::Retired;
use crate::provider::base::{ConnectionState, ListenerId};
use crate::provider::{
    DisconnectReason, Done, Event, MessageSink, RUN_MAX, Run as Offered, RunKind,
};

/// The reason that no more is taken from a ring.
enum Stop {
    /// The ring has no record.
    Empty,
    /// The ring has a record, but there is no Receive for it, or its handle cannot be retired yet.
    Waits,
    /// The peer broke a rule.
    Fault(Fault),
    /// The peer closed in order.
    Close,
}

/// Messages copied out of the ring. They leave it once the number that the sink takes is known.
struct Run<'a> {
    of: Of,
    /// Each message, or its octets behind the template.
    messages: [&'a [u8]; RUN_MAX],
    count: usize,
    octets: usize,
    /// The handle that each message invalidates, if they do.
    handles: [Handle; RUN_MAX],
    /// The patch of each message, if they have a template.
    patches: [HeaderPatch; RUN_MAX],
}

/// The property that the messages of a run share.
enum Of {
    Nothing,
    Template(TemplateId),
    /// Each invalidates a handle.
    Invalidating,
}

impl<'a> Run<'a> {
    /// Makes an empty run. A constructor costs less than a copy.
    #[inline(always)]
    const fn new() -> Self {
        Self {
            of: Of::Nothing,
            messages: [&[]; RUN_MAX],
            count: 0,
            octets: 0,
            handles: [Handle(0); RUN_MAX],
            patches: [HeaderPatch { xid: 0, credit: 0 }; RUN_MAX],
        }
    }

    /// Copies at most `budget` messages of at most `length_max` octets each to `room`: plain messages, or messages with
    /// one template, or messages that invalidate a handle each. Returns what follows them in the ring, if that was
    /// looked at.
    #[inline]
    fn copy(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        budget: usize,
    ) -> Option<Look> {
        consumer.look_again();
        let (mut count, all) = (0, room.len());
        let mut behind = None;
        let most = budget.min(RUN_MAX);
        while let Some(messages) = self.messages.get_mut(count..most)
            && let Some(message) = messages.first_mut()
        {
            let fitting = length_max.min(room.len());
            match consumer.look(room.get_mut(..fitting).unwrap_or_default()) {
                Look::Plain(length) => {
                    (*message, room) = std::mem::take(&mut room).split_at_mut(length);
                    count += 1;
                }
                Look::Series if count == 0 => {
                    return self.copy_series(consumer, room, length_max, most);
                }
                Look::Other if count == 0 => {
                    return self.copy_invalidating(consumer, room, length_max, most);
                }
                other => {
                    behind = Some(other);
                    break;
                }
            }
        }
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Copies, of at most `most` messages of a series, the octets behind the template.
    #[inline]
    fn copy_series(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        most: usize,
    ) -> Option<Look> {
        let (mut count, all) = (0, room.len());
        let behind = loop {
            let places = (&mut self.patches[count..most], &mut self.messages[count..most]);
            let given = if let Of::Template(id) = self.of { Some(id) } else { None };
            match consumer.look_at_series(given, &mut room, length_max, places) {
                Some((id, new)) if new > 0 => {
                    self.of = Of::Template(id);
                    count += new;
                }
                _ => break Some(Look::Other),
            }
            if count == most {
                break None;
            }
            match consumer.glance() {
                Look::Series => {}
                other => break Some(other),
            }
        };
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Copies at most `most` messages that invalidate a handle each.
    #[inline(never)]
    fn copy_invalidating(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        most: usize,
    ) -> Option<Look> {
        let (mut count, all) = (0, room.len());
        let mut behind = None;
        for (message, place) in self.messages[..most].iter_mut().zip(&mut self.handles) {
            let fitting = length_max.min(room.len());
            match consumer.look_invalidating(room.get_mut(..fitting).unwrap_or_default()) {
                Ok((length, handle)) => {
                    (*message, room) = std::mem::take(&mut room).split_at_mut(length);
                    *place = handle;
                    count += 1;
                }
                Err(other) => {
                    behind = Some(other);
                    break;
                }
            }
        }
        self.of = Of::Invalidating;
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Takes the first `count` messages from the ring. Returns their octets.
    #[inline]
    fn pass(&self, consumer: &mut Consumer, count: usize) -> usize {
        if count == self.count {
            consumer.pass();
            return self.octets;
        }
        consumer.pass_some(count);
        self.messages.iter().take(count).map(|message| message.len()).sum()
    }
}

/// A connection's share of one poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Messages.
    pub(super) budget: usize,
    /// No other connection may have messages.
    pub(super) is_only: bool,
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
            if self.over && self.consumer.as_mut().is_some_and(Consumer::is_exhausted) {
                break Some(Stop::Empty);
            }
            if self.filling.is_none() {
                self.take_plain(nic, events, limit);
            }
            if events.len() >= limit {
                break None;
            }
            if let Err(stop) = self.take_one(nic, events) {
                break Some(stop);
            }
        };
        let moved = events.len() > before;
        self.release_room();
        match stop {
            None => {}
            Some(Stop::Empty) if !self.over => {}
            Some(other) => self.on_stop(nic, &other),
        }
        moved
    }

    /// Takes messages without Receives, no more than its `share`, as long as they are plain and `sink` takes them. If
    /// no other connection can have messages, waits briefly for the next one of a peer that sends one by one. Returns
    /// how many were taken.
    #[inline]
    pub(super) fn take_in_place(
        &mut self,
        nic: &mut Nic,
        room: &mut [u8],
        length_max: usize,
        share: Share,
        sink: &mut impl MessageSink,
    ) -> usize {
        self.left_in_place = false;
        let Share { budget, is_only } = share;
        let looks = if is_only && self.came_alone { LOOKS } else { 1 };
        let is_ordinary =
            self.state == ConnectionState::Open && self.filling.is_none() && !self.over;
        let Self { consumer: Some(consumer), outflow: Some(outflow), .. } = self else { return 0 };
        if !is_ordinary {
            return 0;
        }
        let mut terms = Terms::TAKING;
        let (mut taken, mut copied, mut shown) = (0, 0, 0);
        // The run is made before a message is there, so that no message waits while it is made.
        let mut run = Run::new();
        if !consumer.await_record(looks) {
            self.left_in_place = true;
            return 0;
        }
        while taken < budget {
            let behind = run.copy(consumer, room, length_max, budget - taken);
            if run.count == 0 {
                if consumer.learn_next() == Ok(true) {
                    run = Run::new();
                    continue;
                }
                self.left_in_place = terms.leaves_rest || behind == Some(Look::Nothing);
                break;
            }
            self.came_alone = run.count == 1 && behind == Some(Look::Nothing);
            // No other message follows one that came alone: show the peer each answer at once.
            terms.shows = if self.came_alone { Shows::Each } else { Shows::Long };
            let mut port = outflow.port(nic, consumer.segment(), terms);
            let octets = &run.messages[..run.count];
            let count = match &run.of {
                Of::Nothing => {
                    let offered = Offered { octets, kind: RunKind::Whole };
                    sink.messages(self.qp, &offered, &mut port)
                }
                Of::Template(id) => match consumer.template(*id) {
                    Some(template) => {
                        let like = NamedTemplate { id: *id, template };
                        let kind = RunKind::Like(like, &run.patches[..run.count]);
                        sink.messages(self.qp, &Offered { octets, kind }, &mut port)
                    }
                    None => 0,
                },
                Of::Invalidating => {
                    let kind = RunKind::Invalidating(&run.handles[..run.count]);
                    sink.messages(self.qp, &Offered { octets, kind }, &mut port)
                }
            };
            terms = port.terms;
            copied += run.pass(consumer, count);
            taken += count;
            if taken - shown >= RUN_MAX {
                // The peer works on the answers while more messages are taken.
                shown = taken;
                outflow.show(nic);
            }
            let is_all = count == run.count;
            // A record behind a whole run may only not have fitted into `room`.
            if count == 0 || !is_all || behind == Some(Look::Nothing) {
                self.left_in_place = terms.leaves_rest || is_all && behind == Some(Look::Nothing);
                break;
            }
            self.left_in_place = taken == budget;
            run = Run::new();
        }
        // The peer works on the last answers while the turn ends.
        self.publish(nic);
        nic.counters.receives += taken as u64;
        nic.counters.bytes_copied += copied as u64;
        taken
    }

    /// Gives the room of taken records back to the peer; returns whether there is any.
    #[inline]
    pub(super) fn release_room(&mut self) -> bool {
        self.consumer.as_mut().is_some_and(Consumer::release)
    }

    /// Takes plain messages, nearly all there are, as long as there are Receives for them.
    #[inline]
    fn take_plain(&mut self, nic: &mut Nic, events: &mut Vec<Event<ListenerId>>, limit: usize) {
        let Some(consumer) = &mut self.consumer else { return };
        if !consumer.await_record(1) {
            return;
        }
        let (qp, opcode, status) = (self.qp, Opcode::Receive, Status::Success);
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

    #[cold]
    fn on_stop(&mut self, nic: &mut Nic, stop: &Stop) {
        match stop {
            Stop::Waits => {
                nic.link.starvations += u64::from(!self.starved);
                self.starved = true;
            }
            Stop::Fault(fault) => self.fault(nic, *fault),
            Stop::Close => {
                let is_taken =
                    |outflow: &Outflow| outflow.pending.is_empty() && outflow.producer.is_taken();
                let has_all = self.outflow.as_ref().is_some_and(is_taken);
                let reason =
                    if has_all { DisconnectReason::PeerHasAll } else { DisconnectReason::Peer };
                self.end(nic, Ended::Closed, reason, None);
            }
            Stop::Empty => {
                // The peer closed the socket after it wrote its last record and the word with the reason.
                let word = self.ended_by_peer();
                self.end(nic, Ended::Closed, word.reason(), None);
            }
        }
    }

    /// Returns the word in which the peer says how the connection ended.
    pub(super) fn ended_by_peer(&self) -> Ended {
        let word = self.consumer.as_ref().map_or(0, |consumer| {
            consumer.segment().ended().load(std::sync::atomic::Ordering::SeqCst)
        });
        Ended::decode(word)
    }

    /// Takes one record of any kind.
    #[inline]
    fn take_one(&mut self, nic: &mut Nic, events: &mut Vec<Event<ListenerId>>) -> Result<(), Stop> {
        match &self.consumer {
            Some(consumer) if consumer.has_record() => self.take_other(nic, events),
            _ => Err(Stop::Empty),
        }
    }

    #[inline(never)]
    fn take_other(
        &mut self,
        nic: &mut Nic,
        events: &mut Vec<Event<ListenerId>>,
    ) -> Result<(), Stop> {
        let Some(consumer) = &mut self.consumer else { return Err(Stop::Empty) };
        let record = match consumer.peek() {
            Ok(None) => return Err(Stop::Empty),
            Ok(Some(record)) => record,
            Err(_) => return Err(Stop::Fault(BAD_RING)),
        };
        if record.kind == Kind::Template {
            return consumer.learn(&record).map_err(|_| Stop::Fault(BAD_RING));
        }
        let taken = self.take_record(nic, &record)?;
        if let Some(consumer) = &mut self.consumer {
            consumer.advance(&record);
        }
        nic.counters.bytes_copied += record.length as u64;
        let Some((id, length, invalidated)) = taken else { return Ok(()) };
        self.starved = false;
        nic.counters.receives += 1;
        // A message is no longer than the Receive it was put into, whose length has 32 bits.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let (qp, opcode, status) = (self.qp, Opcode::Receive, Status::Success);
        let done = Completion { id, qp, opcode, status, length, invalidated };
        events.push(Event::Completion(Done::new(done)));
        Ok(())
    }

    /// Handles a record. Returns the Receive, length and invalidated handle of the message that ended with it, if one
    /// did.
    fn take_record(
        &mut self,
        nic: &mut Nic,
        record: &Record,
    ) -> Result<Option<(WrId, usize, Option<Handle>)>, Stop> {
        match record.kind {
            Kind::Close if self.filling.is_none() => return Err(Stop::Close),
            Kind::Close | Kind::Skip | Kind::Template => return Err(Stop::Fault(BAD_RING)),
            Kind::Send | Kind::SendInvalidate | Kind::Part | Kind::Squeezed | Kind::Series => {}
        }
        let begins = self.filling.is_none();
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
                // Whole or not, the message continues in this Receive, or gives it back.
                self.filling = Some(filling);
                return Err(other.err().unwrap_or(Stop::Fault(Fault::MessageTooLong)));
            }
        };
        let Some(consumer) = &mut self.consumer else { return Err(Stop::Empty) };
        if !filling.append(consumer, record) {
            self.filling = Some(filling);
            return Err(Stop::Fault(BAD_RING));
        }
        if record.kind == Kind::Part {
            self.filling = Some(filling);
            if begins {
                self.message_begins(nic);
            }
            return Ok(None);
        }
        let (id, length) = filling.finish();
        Ok(Some((id, length, retired)))
    }

    /// Retires the handle of a Send with Invalidate, unless the peer is copying under it.
    fn retire(&mut self, nic: &mut Nic, handle: Handle) -> Result<Option<Handle>, Stop> {
        let Some(outflow) = &mut self.outflow else { return Err(Stop::Empty) };
        match outflow.retire(nic, handle) {
            Retired::Now => {
                nic.counters.invalidated_remote += 1;
                Ok(Some(handle))
            }
            Retired::NotYet => Err(Stop::Waits),
            Retired::Unknown => Err(Stop::Fault(Fault::CannotInvalidate)),
        }
    }
}

/// Times that a ring is read in a turn while messages come one by one: as often as this takes no longer than the rest
/// of a turn without work.
const LOOKS: u32 = 16;
