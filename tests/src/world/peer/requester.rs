//! The Requester of one end: makes Calls, checks every octet of their Replies, and brings memory home.

mod chunks;
mod outgoing;

use std::collections::VecDeque;

use haulage_proto::chunk::Version;
use haulage_proto::exchange::{self, CallPlan, Offered};
use haulage_proto::negotiate::Received;
use haulage_proto::rpc::binding::Binding;
use haulage_proto::v2::connection::{Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::requester::Xids;
use haulage_proto::verbs::{Handle, Operation};

use super::super::choices::Choices;
use super::super::exercise::{self, Exercise, Expected};
use super::super::fabric::QueuePair;
use super::super::mix::{Event, Tally};
use super::super::settings::Settings;
use super::Tag;
use super::heard::{heard_reply, payload};
use super::line::Line;
use chunks::Chunks;
use outgoing::{End, Outgoing, shape};

/// The Calls of one end.
#[derive(Debug)]
pub struct Requester {
    binding: Binding,
    xids: Xids,
    calls: Vec<Option<Outgoing>>,
    /// Slots of the Calls that wait for credit, in order.
    waiting: VecDeque<usize>,
    /// Counts of the events of its Calls.
    pub tally: Tally,
}

impl Requester {
    /// Makes a Requester without Calls.
    pub fn new(settings: &Settings) -> Self {
        Self {
            binding: exercise::binding(),
            xids: Xids::new(settings.calls_max, settings.xid_seed),
            calls: (0..settings.calls_max).map(|_| None).collect(),
            waiting: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Returns whether there is a slot for another Call.
    pub fn has_slot(&self) -> bool {
        (self.xids.in_use() as usize) < self.calls.len()
    }

    /// Returns whether a Call waits to be sent.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of Calls that have not ended.
    pub const fn in_use(&self) -> u32 {
        self.xids.in_use()
    }

    /// Makes a Call, which then waits to be sent. Returns whether the peer can take it.
    pub fn call(&mut self, line: &Line, choices: &mut Choices, exercise: Exercise) -> bool {
        let (slot, xid) = self.xids.open().expect("there is a slot");
        let expected = Expected::draw(choices, &exercise);
        let (stream, items) = exercise.call(xid);
        let shape = shape(&self.binding, &exercise, &stream, &items, &expected);
        let plan = exchange::plan_call(&line.terms(expected.reply_messages), &shape);
        let Some(plan) = plan.ok().filter(|plan| allows(line, plan)) else {
            self.xids.close(slot);
            return false;
        };
        let chunks = Chunks::default();
        let call = Outgoing { xid, exercise, stream, items, expected, plan, chunks, end: None };
        self.calls[slot] = Some(call);
        self.waiting.push_back(slot);
        true
    }

    /// Sends the Call that waits longest, if it may be sent. `answering` tells whether this end is answering a Call
    /// with the same XID.
    pub fn send(
        &mut self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        answering: impl FnOnce(u32) -> bool,
    ) {
        let slot = *self.waiting.front().expect("a Call waits");
        let call = self.calls[slot].as_mut().expect("it has a slot");
        let is_call_only = call.exercise.procedure == exercise::TELL;
        let sending = Sending {
            kind: Kind::Call,
            format: call.plan.format,
            has_chunks: has_chunks(&call.plan),
            is_call_only,
        };
        match line.try_post(&sending) {
            Ok(credit) => {
                self.waiting.pop_front();
                call.post(line, queue, choices, credit);
                call.note_sent(&mut self.tally);
                self.tally.note_if(answering(call.xid), Event::SameXid);
                if is_call_only {
                    self.end(slot);
                    self.tally.note(Event::Well);
                }
            }
            Err(Unsent::Wait) => {}
            Err(Unsent::TooLong { .. }) => {
                // The peer's credits have shrunk since the Call was planned.
                let shape = call.shape(&self.binding);
                let plan =
                    exchange::plan_call(&line.terms(call.expected.reply_messages), &shape).ok();
                match plan.filter(|plan| allows(line, plan)) {
                    Some(plan) => call.plan = plan,
                    None => {
                        self.waiting.pop_front();
                        self.end(slot);
                        self.tally.note(Event::Refused);
                    }
                }
            }
            Err(unsent) => panic!("a Call that was planned is not sent: {unsent:?}"),
        }
    }

    /// Takes a Reply: `stream` is the inline part of its Payload stream.
    pub fn on_reply(
        &mut self,
        line: &Line,
        queue: &mut QueuePair<Tag>,
        received: &Received<'_>,
        stream: Vec<u8>,
        invalidated: Option<Handle>,
    ) {
        let (xid, lists) = heard_reply(received);
        let slot = self.xids.find(xid).expect("a Reply answers a Call");
        let call = self.calls[slot].as_mut().expect("it has a slot");
        if let Some(handle) = invalidated {
            let allowed = line.version() == Version::Two || line.settings.lets_invalidate();
            assert!(allowed, "P8: the peer was not to invalidate anything");
            call.chunks.on_invalidated(handle);
            self.tally.note(Event::Invalidated);
        }
        let arrived = {
            let offered: Vec<_> = call.chunks.writes.iter().map(|chunk| &*chunk.segments).collect();
            let reply = call.chunks.reply.as_ref().map(|chunk| &*chunk.segments);
            let offered = Offered { writes: &offered, reply, reads: false };
            exchange::check_reply(line.version(), &offered, &lists)
        };
        let arrived = arrived.expect("chunks as they should be");
        let is_continued = stream.len() > payload(received).len();
        call.note_arrived(&mut self.tally, &arrived, is_continued);
        call.end = Some(End::Replied { stream, arrived: Box::new(arrived) });
        self.close_memory(line, queue, slot);
    }

    /// Takes the refusal of a Call.
    pub fn on_refused(
        &mut self,
        line: &Line,
        queue: &mut QueuePair<Tag>,
        xid: u32,
        error: ErrorBody,
    ) {
        let slot = self.xids.find(xid).expect("an error answers a Call");
        self.calls[slot].as_mut().expect("it has a slot").end = Some(End::Refused(error));
        self.close_memory(line, queue, slot);
    }

    /// Takes the completion of an invalidation.
    pub fn on_closed(&mut self, line: &Line, queue: &mut QueuePair<Tag>, slot: usize) {
        let call = self.calls[slot].as_mut().expect("its memory was open");
        call.chunks.open.pop();
        if call.chunks.open.is_empty() {
            self.finish(line, queue, slot);
        }
    }

    /// Checks that no Call is left.
    pub fn check_home(&self) {
        assert!(self.calls.iter().all(Option::is_none), "a Call has not ended");
        assert_eq!(self.xids.in_use(), 0, "an XID is still in use");
    }

    /// Invalidates the handles that the peer has left open, and then ends the Call.
    fn close_memory(&mut self, line: &Line, queue: &mut QueuePair<Tag>, slot: usize) {
        let call = self.calls[slot].as_ref().expect("it has a slot");
        for handle in &call.chunks.open {
            queue.post(Tag::Closed(slot), Operation::LocalInv { handle: *handle });
        }
        if call.chunks.open.is_empty() {
            self.finish(line, queue, slot);
        }
    }

    /// Ends a Call whose memory is local again, or sends it again.
    fn finish(&mut self, line: &Line, queue: &mut QueuePair<Tag>, slot: usize) {
        let call = self.calls[slot].as_mut().expect("it has a slot");
        let end = call.end.take().expect("something came of it");
        if let End::Replied { stream, arrived } = &end {
            call.check(line.version(), queue, stream, arrived);
        }
        std::mem::take(&mut call.chunks).release(queue);
        let End::Refused(error) = end else {
            self.tally.note(Event::Well);
            return self.end(slot);
        };
        let terms = line.terms(call.expected.reply_messages);
        let plan = exchange::retry(&terms, &call.shape(&self.binding), &call.plan, &error);
        match plan.as_ref().ok().filter(|plan| allows(line, plan)) {
            Some(plan) => {
                call.plan = *plan;
                self.waiting.push_back(slot);
                self.tally.note(Event::Again);
            }
            None => {
                let excused = call.expected.is_short || line.may_refuse;
                assert!(excused, "refused with {error:?}, and then {plan:?}: {call:?}");
                self.tally.note(Event::Refused);
                self.end(slot);
            }
        }
    }

    fn end(&mut self, slot: usize) {
        self.calls[slot] = None;
        self.xids.close(slot);
    }
}

/// Returns whether the peer serves a Call with this plan.
fn allows(line: &Line, plan: &CallPlan) -> bool {
    let level = line.level();
    if has_chunks(plan) { level.allows_chunks() } else { level.allows(plan.format) }
}

fn has_chunks(plan: &CallPlan) -> bool {
    let body = plan.call.is_some() || plan.reply.is_some();
    body || !plan.reads.is_empty() || !plan.writes.is_empty()
}
