//! The Responder of one end: brings Calls together, carries them out, writes and sends Replies.

use std::collections::{BTreeSet, VecDeque};

use haulage_proto::chunk::{self, DataItem, Reduced, Step, Version};
use haulage_proto::exchange::{self, Format, Offer, ReplyPlan, ReplyShape, Terms};
use haulage_proto::rpc::binding::Binding;
use haulage_proto::v2::connection::{Role, Sending, Unsent};
use haulage_proto::v2::continuation::{Kind, Split};
use haulage_proto::v2::header::{
    Message, Returned, encode_reply_external, encode_reply_inline, encode_reply_middle,
    reply_inline_wire_len,
};
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::v2::reverse::Level;
use haulage_proto::verbs::{Handle, Operation, Segment};

use super::super::choices::Choices;
use super::super::exercise::{self, Exercise};
use super::super::fabric::QueuePair;
use super::super::memory::{BlockId, Part};
use super::{Line, Tag, encoded, messages, owned};

/// The Calls of the peer.
#[derive(Debug)]
pub struct Responder {
    binding: Binding,
    calls: Vec<Option<Incoming>>,
    /// Calls that are whole and wait to be carried out.
    ready: Vec<usize>,
    /// Calls whose Replies wait for credit, in order.
    waiting: VecDeque<usize>,
    /// XIDs of Replies that are on their way.
    replying: Vec<u32>,
    /// Salts of the Calls carried out that may not be twice.
    done_once: BTreeSet<u64>,
    /// The Call that came last.
    last: usize,
}

#[derive(Debug)]
struct Incoming {
    xid: u32,
    inv_handle: Handle,
    writes: Vec<Vec<Segment>>,
    reply_chunk: Option<Vec<Segment>>,
    offer: Offer,
    /// What its sender reduced.
    reduced: Vec<Reduced>,
    /// The Payload stream as it comes together, and the Reads that are missing.
    block: BlockId,
    fetching: usize,
    keeps_receive: bool,
    /// The Reply, once it is made.
    reply: Option<Reply>,
}

#[derive(Debug)]
struct Reply {
    stream: Vec<u8>,
    items: Vec<Option<DataItem>>,
    plan: ReplyPlan,
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            binding: exercise::binding(),
            calls: Vec::new(),
            ready: Vec::new(),
            waiting: VecDeque::new(),
            replying: Vec::new(),
            done_once: BTreeSet::new(),
            last: 0,
        }
    }
}

impl Responder {
    /// Takes a Call: `stream` is what came of the Payload stream in messages.
    pub fn on_call(&mut self, queue: &mut QueuePair<Tag>, message: &Message<'_>, stream: &[u8]) {
        let (call, inv_handle, reads, writes, reply) = match message {
            Message::CallInline(call) => {
                (Vec::new(), call.inv_handle, call.reads, call.writes, call.reply)
            }
            Message::CallExternal(call) => {
                let segments = call.call.entries().map(|(_, segment)| segment).collect();
                (segments, call.inv_handle, call.reads, call.writes, call.reply)
            }
            other => panic!("not a Call: {other:?}"),
        };
        let restoration =
            chunk::restore(Version::Two, stream.len(), call, reads.entries(), STREAM_MAX);
        let restoration = restoration.expect("a Call that can be restored");
        let mut bytes = vec![0xa5; restoration.length()];
        for step in restoration.steps() {
            match step {
                Step::Copy { from, to } => {
                    bytes[to.clone()].copy_from_slice(&stream[*from..from + to.len()]);
                }
                Step::Zero { to } => bytes[to.clone()].fill(0),
                Step::Read { .. } => {}
            }
        }
        let block = queue.memory.lease(bytes);
        let at = self.calls.iter().position(Option::is_none).unwrap_or(self.calls.len());
        let mut fetching = 0;
        for step in restoration.steps() {
            if let Step::Read { source, to } = step {
                let sink = Part { block, range: to.clone() };
                queue.post(Tag::Fetched(at), Operation::Read { sink, source: *source });
                fetching += 1;
            }
        }
        let reduced = reads.chunks().map(|chunk| Reduced {
            position: chunk.position(),
            length: chunk.segments().map(|segment| segment.length).sum(),
        });
        let incoming = Incoming {
            xid: message.prefix().xid,
            inv_handle,
            writes: writes.chunks().map(|chunk| owned(chunk.segments())).collect(),
            reply_chunk: reply.map(|chunk| owned(chunk.segments())),
            offer: Offer::of(&writes, reply).expect("few Write chunks"),
            reduced: reduced.collect(),
            block,
            fetching,
            keeps_receive: false,
            reply: None,
        };
        if at == self.calls.len() {
            self.calls.push(None);
        }
        self.calls[at] = Some(incoming);
        self.last = at;
        if fetching == 0 {
            self.ready.push(at);
        }
    }

    /// Notes whether the Receive of the Call that came last is kept until it is answered.
    pub fn keep_receive(&mut self, keeps: bool) -> bool {
        let call = self.calls[self.last].as_mut().expect("it has just come");
        call.keeps_receive = keeps;
        keeps
    }

    /// Takes the completion of a Read.
    pub fn on_fetched(&mut self, at: usize) {
        let call = self.calls[at].as_mut().expect("it is being restored");
        call.fetching -= 1;
        if call.fetching == 0 {
            self.ready.push(at);
        }
    }

    /// Returns whether a Call can be carried out.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether a Reply waits to be sent.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether a Reply with this XID may still be on its way.
    pub fn is_replying(&self, xid: u32) -> bool {
        self.replying.contains(&xid)
    }

    /// Takes the completion of the last message of a Reply.
    pub fn on_reply_sent(&mut self, xid: u32) {
        let at = self.replying.iter().position(|replying| *replying == xid);
        self.replying.swap_remove(at.expect("it was sent"));
    }

    /// Carries out one of the Calls that are whole. Returns whether a Receive is free again.
    pub fn serve(
        &mut self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
    ) -> bool {
        let at = self.ready.swap_remove(choices.below(self.ready.len()));
        let call = self.calls[at].as_mut().expect("it is ready");
        let stream = queue.memory.release(call.block);
        let (xid, exercise) = Exercise::of_call(&stream);
        assert_eq!(xid, call.xid, "the Payload stream is of another Call");
        let procedure = self.binding.procedure(exercise.procedure).expect("it is bound");
        let write_chunks = u32::try_from(call.writes.len()).expect("few");
        let checked = procedure.check_call(call.reduced.iter().copied(), write_chunks);
        checked.expect("only what is DDP-eligible is reduced");
        if exercise.procedure == exercise::TELL {
            line.engine.no_reply();
            return self.end(at);
        }
        let (stream, items) = exercise.reply(xid);
        let shape = shape(&stream, &items);
        match exchange::plan_reply(&line.reply_terms(), &call.offer, &shape) {
            Ok(plan) => {
                // A Call whose Reply does not fit has not been carried out.
                if exercise.procedure == exercise::ONCE {
                    assert!(self.done_once.insert(exercise.salt), "carried out twice");
                }
                call.reply = Some(Reply { stream, items, plan });
                self.waiting.push_back(at);
                false
            }
            Err(shortage) => {
                line.engine.refuse(xid, shortage.report());
                self.end(at)
            }
        }
    }

    /// Sends the Reply that waits longest, if it may be sent. Returns whether a Receive is free again.
    pub fn send(
        &mut self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
    ) -> bool {
        let at = *self.waiting.front().expect("a Reply waits");
        let call = self.calls[at].as_mut().expect("it waits");
        let reply = call.reply.as_mut().expect("it was made");
        let sending = Sending {
            kind: Kind::Reply,
            format: reply.plan.format,
            has_chunks: !call.writes.is_empty() || reply.plan.format == Format::Special,
            is_call_only: false,
        };
        match line.engine.try_post(&sending) {
            Ok(credit) => {
                self.waiting.pop_front();
                line.blocked = [false; 2];
                self.replying.push(call.xid);
                call.post(line, queue, choices, credit);
                self.end(at)
            }
            Err(Unsent::Wait) => {
                line.blocked[Kind::Reply as usize] = true;
                false
            }
            Err(Unsent::TooLong { .. }) => {
                // The peer's window has shrunk since it was planned.
                let shape = shape(&reply.stream, &reply.items);
                match exchange::plan_reply(&line.reply_terms(), &call.offer, &shape) {
                    Ok(plan) => {
                        reply.plan = plan;
                        false
                    }
                    Err(shortage) => {
                        line.engine.refuse(call.xid, shortage.report());
                        self.waiting.pop_front();
                        self.end(at)
                    }
                }
            }
            Err(unsent) => panic!("a Reply that was planned is not sent: {unsent:?}"),
        }
    }

    /// Checks that no Call is left.
    pub fn check_home(&self) {
        assert!(self.calls.iter().all(Option::is_none), "a Call was not answered");
        assert!(self.replying.is_empty(), "a Reply is still on its way");
    }

    /// Forgets a Call. Returns whether its Receive is free again.
    fn end(&mut self, at: usize) -> bool {
        self.calls[at].take().is_some_and(|call| call.keeps_receive)
    }
}

impl Incoming {
    /// Writes what goes into chunks, and posts the messages.
    fn post(
        &self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        credit: u32,
    ) {
        let Reply { stream, items, plan } = self.reply.as_ref().expect("it was made");
        let reduced: Vec<_> =
            (0..items.len()).filter(|n| plan.reduces(*n)).filter_map(|n| items[n]).collect();
        let reduction = chunk::reduce(stream, &reduced).expect("as it was encoded");
        let kept: Vec<&[u8]> = reduction.kept().map(|kept| &stream[kept]).collect();
        let body = kept.concat();
        assert_eq!(body.len(), plan.rest as usize, "as long as planned");
        for (n, segments) in self.writes.iter().enumerate() {
            if let Some(item) = items.get(n).copied().flatten().filter(|_| plan.reduces(n)) {
                write(queue, segments, stream[item.data()].to_vec());
            }
        }
        let returned =
            |segments, length: u32| Returned { offered: segments, length: length as usize };
        let writes: Vec<_> = self
            .writes
            .iter()
            .zip(plan.writes.iter())
            .map(|(segments, used)| returned(&**segments, used.length))
            .collect();
        // Whoever may invalidate need not.
        let solicited = if choices.one_in(8) { Handle(0) } else { self.inv_handle };
        let (xid, most) = (self.xid, line.engine.thresholds().send as usize);
        let last = |block| Tag::Reply(block, xid);
        if plan.format == Format::Special {
            let segments = self.reply_chunk.as_ref().expect("it was offered");
            let reply = returned(&**segments, plan.rest);
            write(queue, segments, body);
            let bytes = encoded(most, |w| encode_reply_external(w, xid, credit, &writes, &reply));
            return line.send(queue, bytes, invalidates(Kind::Reply, true, solicited), last);
        }
        let header = reply_inline_wire_len(self.writes.iter().map(Vec::len));
        let split = Split::new(body.len(), most, header).expect("it was planned");
        assert_eq!(split.messages(), messages(plan.format), "as many messages as planned");
        for piece in split.pieces() {
            let bytes = encoded(most, |w| {
                if piece.is_last {
                    encode_reply_inline(w, xid, credit, &writes)?;
                } else {
                    encode_reply_middle(w, xid, credit, piece.remaining)?;
                }
                w.put(&body[piece.range.clone()])
            });
            let invalidate = invalidates(Kind::Reply, piece.is_last, solicited);
            if piece.is_last {
                line.send(queue, bytes, invalidate, last);
            } else {
                line.send(queue, bytes, invalidate, Tag::Message);
            }
        }
    }
}

impl Line {
    /// Returns what a Reply has to keep to.
    fn reply_terms(&self) -> Terms {
        let terms = self.engine.thresholds();
        let theirs = self.theirs.unwrap_or_default();
        let level = match self.settings.role {
            Role::Server => Level::General,
            Role::Client => Level::of(self.settings.properties.reverse),
        };
        let messages_max = match level {
            Level::General | Level::Continued => self.engine.messages_max(Kind::Reply),
            _ => 1,
        };
        let two = Terms::version_two(terms.receive, terms.send, &theirs);
        Terms { reply_messages_max: messages_max, ..two }
    }
}

/// Posts the Writes that fill a chunk.
fn write(queue: &mut QueuePair<Tag>, segments: &[Segment], bytes: Vec<u8>) {
    let targets: Vec<_> = chunk::fill(segments, bytes.len()).collect();
    let Some(count) = targets.len().checked_sub(1) else { return };
    let block = queue.memory.lease(bytes);
    for (n, (target, range)) in targets.into_iter().enumerate() {
        let tag = Tag::Written((n == count).then_some(block));
        queue.post(tag, Operation::Write { source: Part { block, range }, target });
    }
}

fn shape<'a>(stream: &[u8], items: &'a [Option<DataItem>]) -> ReplyShape<'a> {
    let length = u32::try_from(stream.len()).expect("it is not that long");
    ReplyShape { length, items, may_reduce: true }
}

/// Octets of the longest Call.
const STREAM_MAX: usize = 1 << 23;
