//! The Requester of one end: makes Calls, checks their Replies octet by octet, brings memory home.

use std::collections::VecDeque;

use haulage_proto::chunk::{self, DataItem, Version};
use haulage_proto::exchange::{
    self, Arrived, Body, CallPlan, CallShape, Format, Offered, ReplyLists, Terms,
};
use haulage_proto::rpc::binding::Binding;
use haulage_proto::v2::connection::{Role, Sending, Unsent};
use haulage_proto::v2::continuation::{Kind, Split};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{
    CallLists, Message, call_inline_wire_len, encode_call_external, encode_call_inline,
    encode_call_middle,
};
use haulage_proto::v2::requester::Xids;
use haulage_proto::v2::reverse::Level;
use haulage_proto::verbs::{Access, Handle, Operation, Segment};

use super::super::choices::Choices;
use super::super::exercise::{self, Exercise, Expected};
use super::super::fabric::{QueuePair, fast_reg};
use super::super::memory::{BlockId, Part};
use super::super::settings::Settings;
use super::{Line, Tag, encoded, messages, payload};

/// The Calls of one end.
#[derive(Debug)]
pub struct Requester {
    binding: Binding,
    xids: Xids,
    calls: Vec<Option<Outgoing>>,
    /// Slots of the Calls that wait for credit, in order.
    waiting: VecDeque<usize>,
    /// What became of the Calls that ended.
    pub ended: Ended,
}

/// How many Calls ended, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// With a Reply, or without one where none was due.
    pub well: usize,
    /// Planned again after a refusal.
    pub again: usize,
    /// With the peer's refusal.
    pub refused: usize,
    /// In each format: simple, continued, special.
    pub formats: [usize; 3],
    /// Replies in each format.
    pub reply_formats: [usize; 3],
}

#[derive(Debug)]
struct Outgoing {
    xid: u32,
    exercise: Exercise,
    /// The Payload stream, and what of it is DDP-eligible.
    stream: Vec<u8>,
    items: Vec<DataItem>,
    expected: Expected,
    plan: CallPlan,
    chunks: Chunks,
    end: Option<End>,
}

/// What came of a Call, while its memory is being closed.
#[derive(Debug)]
enum End {
    Replied { stream: Vec<u8>, arrived: Box<Arrived> },
    Refused(ErrorBody),
}

/// The memory that is open for a Call.
#[derive(Debug, Default)]
struct Chunks {
    call: Option<Chunk>,
    reads: Vec<(u32, Chunk)>,
    writes: Vec<Chunk>,
    reply: Option<Chunk>,
    /// Handles that are not closed.
    open: Vec<Handle>,
}

#[derive(Debug)]
struct Chunk {
    /// An empty chunk has no memory.
    block: Option<BlockId>,
    segments: Vec<Segment>,
}

impl Requester {
    /// Makes a Requester without Calls.
    pub fn new(settings: &Settings) -> Self {
        Self {
            binding: exercise::binding(),
            xids: Xids::new(settings.calls_max, settings.xid_seed),
            calls: (0..settings.calls_max).map(|_| None).collect(),
            waiting: VecDeque::new(),
            ended: Ended::default(),
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

    /// Returns how many Calls have not ended.
    pub const fn in_use(&self) -> u32 {
        self.xids.in_use()
    }

    /// Makes a Call, which then waits to be sent. Returns whether it can be conveyed at all.
    pub fn call(&mut self, line: &Line, choices: &mut Choices, exercise: Exercise) -> bool {
        let (slot, xid) = self.xids.open().expect("there is a slot");
        let expected = Expected::draw(choices, &exercise);
        let (stream, items) = exercise.call(xid);
        let shape = shape(&self.binding, &exercise, &stream, &items, &expected);
        let plan = exchange::plan_call(&line.terms(&expected), &shape);
        let Some(plan) = plan.ok().filter(|plan| line.allows(plan)) else {
            self.xids.close(slot);
            return false;
        };
        let chunks = Chunks::default();
        let call = Outgoing { xid, exercise, stream, items, expected, plan, chunks, end: None };
        self.calls[slot] = Some(call);
        self.waiting.push_back(slot);
        true
    }

    /// Sends the Call that waits longest, if it may be sent.
    pub fn send(&mut self, line: &mut Line, queue: &mut QueuePair<Tag>, choices: &mut Choices) {
        let slot = *self.waiting.front().expect("a Call waits");
        let call = self.calls[slot].as_mut().expect("it has a slot");
        let is_call_only = call.exercise.procedure == exercise::TELL;
        let sending = Sending {
            kind: Kind::Call,
            format: call.plan.format,
            has_chunks: has_chunks(&call.plan),
            is_call_only,
        };
        match line.engine.try_post(&sending) {
            Ok(credit) => {
                self.waiting.pop_front();
                line.blocked = [false; 2];
                self.ended.formats[place(call.plan.format)] += 1;
                call.post(line, queue, choices, credit);
                if is_call_only {
                    self.end(slot);
                    self.ended.well += 1;
                }
            }
            Err(Unsent::Wait) => line.blocked[Kind::Call as usize] = true,
            Err(Unsent::TooLong { .. }) => {
                // The peer's window has shrunk since it was planned.
                let shape = call.shape(&self.binding);
                let plan = exchange::plan_call(&line.terms(&call.expected), &shape).ok();
                match plan.filter(|plan| line.allows(plan)) {
                    Some(plan) => call.plan = plan,
                    None => {
                        self.waiting.pop_front();
                        self.end(slot);
                        self.ended.refused += 1;
                    }
                }
            }
            Err(unsent) => panic!("a Call that was planned is not sent: {unsent:?}"),
        }
    }

    /// Takes a Reply: `stream` is what came of the Payload stream in messages.
    pub fn on_reply(
        &mut self,
        line: &Line,
        queue: &mut QueuePair<Tag>,
        message: &Message<'_>,
        stream: Vec<u8>,
        invalidated: Option<Handle>,
    ) {
        let slot = self.xids.find(message.prefix().xid).expect("a Reply answers a Call");
        let call = self.calls[slot].as_mut().expect("it has a slot");
        if let Some(handle) = invalidated {
            call.chunks.on_invalidated(handle);
        }
        let (writes, reply, external) = match message {
            Message::ReplyInline(reply) => (reply.writes, None, false),
            Message::ReplyExternal(reply) => (reply.writes, Some(reply.reply), true),
            other => panic!("not a Reply: {other:?}"),
        };
        let arrived = {
            let offered: Vec<_> = call.chunks.writes.iter().map(|chunk| &*chunk.segments).collect();
            let reply_chunk = call.chunks.reply.as_ref().map(|chunk| &*chunk.segments);
            let offered = Offered { writes: &offered, reply: reply_chunk };
            let lists = ReplyLists { writes, reply, external, reads: false };
            exchange::check_reply(Version::Two, &offered, &lists).expect("chunks as they should be")
        };
        let format = match arrived.body {
            Body::ReplyChunk { .. } => 2,
            Body::Inline => usize::from(stream.len() > payload(message).len()),
        };
        self.ended.reply_formats[format] += 1;
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

    /// Closes what the peer has left open, and then ends the Call.
    fn close_memory(&mut self, line: &Line, queue: &mut QueuePair<Tag>, slot: usize) {
        let call = self.calls[slot].as_ref().expect("it has a slot");
        for handle in &call.chunks.open {
            queue.post(Tag::Closed(slot), Operation::LocalInv { handle: *handle });
        }
        if call.chunks.open.is_empty() {
            self.finish(line, queue, slot);
        }
    }

    /// Ends a Call whose memory is ours again, or sends it again.
    fn finish(&mut self, line: &Line, queue: &mut QueuePair<Tag>, slot: usize) {
        let call = self.calls[slot].as_mut().expect("it has a slot");
        let end = call.end.take().expect("something came of it");
        if let End::Replied { stream, arrived } = &end {
            call.check(queue, stream, arrived);
        }
        std::mem::take(&mut call.chunks).release(queue);
        let End::Refused(error) = end else {
            self.ended.well += 1;
            return self.end(slot);
        };
        let terms = line.terms(&call.expected);
        let plan = exchange::retry(&terms, &call.shape(&self.binding), &call.plan, &error);
        match plan.as_ref().ok().filter(|plan| line.allows(plan)) {
            Some(plan) => {
                call.plan = *plan;
                self.waiting.push_back(slot);
                self.ended.again += 1;
            }
            None => {
                let excused = call.expected.is_short || line.may_refuse;
                assert!(excused, "refused with {error:?}, and then {plan:?}: {call:?}");
                self.ended.refused += 1;
                self.end(slot);
            }
        }
    }

    fn end(&mut self, slot: usize) {
        self.calls[slot] = None;
        self.xids.close(slot);
    }
}

impl Outgoing {
    fn shape<'a>(&'a self, binding: &'a Binding) -> CallShape<'a> {
        shape(binding, &self.exercise, &self.stream, &self.items, &self.expected)
    }

    /// Opens the memory of the Call, and posts its messages.
    fn post(
        &mut self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        credit: u32,
    ) {
        let plan = self.plan;
        let reduced: Vec<_> = plan.reads.iter().map(|read| self.items[read.index]).collect();
        let reduction = chunk::reduce(&self.stream, &reduced).expect("as it was encoded");
        let kept: Vec<&[u8]> = reduction.kept().map(|kept| &self.stream[kept]).collect();
        let body = kept.concat();
        let chunks = &mut self.chunks;
        for (read, item) in plan.reads.iter().zip(&reduced) {
            let bytes = self.stream[item.data()].to_vec();
            let chunk = chunks.open(&plan, queue, choices, bytes, Access::RemoteRead);
            chunks.reads.push((read.position, chunk));
        }
        for length in plan.writes.iter() {
            let bytes = vec![0; *length as usize];
            let chunk = chunks.open(&plan, queue, choices, bytes, Access::RemoteWrite);
            chunks.writes.push(chunk);
        }
        if let Some(length) = plan.reply {
            let bytes = vec![0; length as usize];
            chunks.reply = Some(chunks.open(&plan, queue, choices, bytes, Access::RemoteWrite));
        }
        if let Some(length) = plan.call {
            assert_eq!((length as usize, plan.inline), (body.len(), 0));
            let chunk = chunks.open(&plan, queue, choices, body.clone(), Access::RemoteRead);
            chunks.call = Some(chunk);
        }
        self.post_messages(line, queue, choices, credit, &body);
    }

    fn post_messages(
        &self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        credit: u32,
        body: &[u8],
    ) {
        let (xid, chunks) = (self.xid, &self.chunks);
        let most = line.engine.thresholds().send as usize;
        let reads: Vec<(u32, &[Segment])> =
            chunks.reads.iter().map(|(position, chunk)| (*position, &*chunk.segments)).collect();
        let writes: Vec<_> = chunks.writes.iter().map(|chunk| &*chunk.segments).collect();
        let reply = chunks.reply.as_ref().map(|chunk| &*chunk.segments);
        let inv_handle = match chunks.open.len() {
            0 => Handle(0),
            _ if choices.one_in(4) => Handle(0),
            count => chunks.open[choices.below(count)],
        };
        let lists = CallLists { inv_handle, reads: &reads, writes: &writes, reply };
        if let Some(call) = &chunks.call {
            let call = &call.segments;
            let bytes = encoded(most, |w| encode_call_external(w, xid, credit, call, &lists));
            return line.send(queue, bytes, None, Tag::Message);
        }
        let header = call_inline_wire_len(
            reads.iter().map(|(_, segments)| segments.len()).sum(),
            writes.iter().map(|segments| segments.len()),
            reply.map(<[_]>::len),
        );
        let split = Split::new(body.len(), most, header).expect("it was planned");
        assert_eq!(split.messages(), messages(self.plan.format), "as many messages as planned");
        for piece in split.pieces() {
            let bytes = encoded(most, |w| {
                if piece.is_last {
                    encode_call_inline(w, xid, credit, &lists)?;
                } else {
                    encode_call_middle(w, xid, credit, piece.remaining)?;
                }
                w.put(&body[piece.range.clone()])
            });
            line.send(queue, bytes, None, Tag::Message);
        }
    }

    /// Checks every octet of the Reply.
    fn check(&self, queue: &QueuePair<Tag>, stream: &[u8], arrived: &Arrived) {
        let chunk = |chunk: &Chunk| chunk.block.map_or(&[][..], |block| queue.memory.bytes(block));
        let written: Vec<_> = self.chunks.writes.iter().map(chunk).collect();
        let body = match (arrived.body, &self.chunks.reply) {
            (Body::ReplyChunk { length }, Some(reply)) => &chunk(reply)[..length as usize],
            _ => stream,
        };
        self.exercise.check_reply(Version::Two, self.xid, body, &arrived.writes, &written);
    }
}

impl Chunks {
    /// Opens memory to the peer, under one handle or under one for each segment.
    fn open(
        &mut self,
        plan: &CallPlan,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        bytes: Vec<u8>,
        access: Access,
    ) -> Chunk {
        let length = u32::try_from(bytes.len()).expect("it was planned");
        if length == 0 && access == Access::RemoteWrite {
            return Chunk { block: None, segments: Vec::new() };
        }
        let block = queue.memory.lease(bytes);
        let base = choices.number() >> 1;
        let handle = queue.memory.reserve_handle();
        let mut segments: Vec<_> = plan.split(handle, base, length).collect();
        if length == 0 {
            // A Read chunk of nothing still has a segment, which names the item's position.
            segments.push(Segment { handle, length, offset: base });
        }
        let each = segments.len() > 1 && choices.one_in(3);
        if each {
            for segment in segments.iter_mut().skip(1) {
                segment.handle = queue.memory.reserve_handle();
            }
        }
        let mut at = 0;
        let count = if each { segments.len() } else { 1 };
        for segment in &segments[..count] {
            let end = if each { at + segment.length as usize } else { length as usize };
            let part = Part { block, range: at..end };
            queue.post(Tag::Opened, fast_reg(segment.handle, access, segment.offset, part));
            self.open.push(segment.handle);
            at = end;
        }
        Chunk { block: Some(block), segments }
    }

    /// Notes that the peer closed a handle.
    fn on_invalidated(&mut self, handle: Handle) {
        let at = self.open.iter().position(|open| *open == handle);
        self.open.swap_remove(at.expect("only a handle of the Call is invalidated"));
    }

    fn release(self, queue: &mut QueuePair<Tag>) {
        let chunks = self.reads.into_iter().map(|(_, chunk)| chunk).chain(self.writes);
        for chunk in chunks.chain(self.call).chain(self.reply) {
            if let Some(block) = chunk.block {
                queue.memory.release(block);
            }
        }
    }
}

impl Line {
    /// Returns what a Call has to keep to.
    fn terms(&self, expected: &Expected) -> Terms {
        let terms = self.engine.thresholds();
        let theirs = self.theirs.expect("the connection is open");
        let level = self.level();
        let may_chunk = if level == Level::General { u32::MAX } else { 0 };
        let messages_max = match level {
            Level::General | Level::Continued => self.engine.messages_max(Kind::Call),
            _ => 1,
        };
        let two = Terms::version_two(terms.send, terms.receive, &theirs);
        Terms {
            call_messages_max: messages_max,
            reply_messages_max: if messages_max > 1 { expected.reply_messages } else { 1 },
            reduce_min: self.settings.reduce_min,
            read_chunks_max: may_chunk,
            write_chunks_max: may_chunk,
            ..two
        }
    }

    /// Returns what the peer serves of our Calls.
    fn level(&self) -> Level {
        match (self.settings.role, self.theirs) {
            (Role::Client, Some(_)) => Level::General,
            (Role::Server, Some(theirs)) => Level::of(theirs.reverse),
            (_, None) => Level::None,
        }
    }

    /// Returns whether the peer takes a Call like this.
    fn allows(&self, plan: &CallPlan) -> bool {
        self.level().allows(plan.format, has_chunks(plan))
    }

    /// Returns whether Calls may be made.
    pub fn may_call(&self) -> bool {
        self.level() > Level::None
    }
}

fn shape<'a>(
    binding: &'a Binding,
    exercise: &Exercise,
    stream: &[u8],
    items: &'a [DataItem],
    expected: &'a Expected,
) -> CallShape<'a> {
    CallShape {
        procedure: binding.procedure(exercise.procedure).expect("it is bound"),
        length: u32::try_from(stream.len()).expect("it is not that long"),
        arguments_at: exercise::ARGUMENTS_AT,
        items,
        results: &expected.results,
        reply_max: expected.reply_max,
        reply_limit: 1 << 21,
        may_reduce: true,
    }
}

fn has_chunks(plan: &CallPlan) -> bool {
    let body = plan.call.is_some() || plan.reply.is_some();
    body || !plan.reads.is_empty() || !plan.writes.is_empty()
}

const fn place(format: Format) -> usize {
    match format {
        Format::Simple => 0,
        Format::Continued { .. } => 1,
        Format::Special => 2,
    }
}
