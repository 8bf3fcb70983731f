//! The Responder of one end: restores Calls, carries them out, writes and sends Replies.

mod incoming;

use std::collections::{BTreeSet, VecDeque};

use haulage_proto::chunk::{self, DataItem, Reduced, Step};
use haulage_proto::exchange::{self, Format, Offer, ReplyShape};
use haulage_proto::negotiate::Received;
use haulage_proto::rpc::binding::Binding;
use haulage_proto::v2::connection::{Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::Operation;

use super::super::choices::Choices;
use super::super::exercise::{self, Exercise};
use super::super::fabric::QueuePair;
use super::super::memory::Part;
use super::Tag;
use super::heard::{HeardCall, owned};
use super::line::Line;
use incoming::{Incoming, Reply};

/// The Calls of the peer.
#[derive(Debug)]
pub struct Responder {
    binding: Binding,
    calls: Vec<Option<Incoming>>,
    /// Calls that are restored and wait to be carried out.
    ready: Vec<usize>,
    /// Calls whose Replies wait for credit, in order.
    waiting: VecDeque<usize>,
    /// XIDs of Replies that are on their way.
    replying: Vec<u32>,
    /// Salts of the Calls carried out that may not be carried out twice.
    done_once: BTreeSet<u64>,
    /// Slot of the Call that came last.
    last: usize,
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
    /// Takes a Call: `stream` is the inline part of its Payload stream.
    pub fn on_call(
        &mut self,
        line: &Line,
        queue: &mut QueuePair<Tag>,
        received: &Received<'_>,
        stream: &[u8],
    ) {
        let HeardCall { xid, inv_handle, call, reads, writes, reply } = line.heard_call(received);
        let items = reads.chunk_by(|a, b| a.0 == b.0).filter(|chunk| chunk[0].0 != 0);
        let reduced = items.map(|chunk| Reduced {
            position: chunk[0].0,
            length: chunk.iter().map(|(_, segment)| segment.length).sum(),
        });
        let reduced = reduced.collect();
        let restoration = chunk::restore(line.version(), stream.len(), call, reads, STREAM_MAX);
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
        let incoming = Incoming {
            xid,
            inv_handle,
            writes: writes.chunks().map(|chunk| owned(chunk.segments())).collect(),
            reply_chunk: reply.map(|chunk| owned(chunk.segments())),
            offer: Offer::of(&writes, reply).expect("few Write chunks"),
            reduced,
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

    /// Records whether the Receive of the last Call is kept until it is answered. Returns `keeps`.
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

    /// Returns whether a Call with this XID is being answered.
    pub fn is_answering(&self, xid: u32) -> bool {
        self.calls.iter().flatten().any(|call| call.xid == xid)
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

    /// Carries out one of the restored Calls. Returns whether a kept Receive is free again.
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
            line.no_reply();
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
                line.refuse(xid, shortage.report());
                self.end(at)
            }
        }
    }

    /// Sends the Reply that waits longest, if it may be sent. Returns whether a kept Receive is free again.
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
        match line.try_post(&sending) {
            Ok(credit) => {
                self.waiting.pop_front();
                self.replying.push(call.xid);
                call.post(line, queue, choices, credit);
                self.end(at)
            }
            Err(Unsent::Wait) => false,
            Err(Unsent::TooLong { .. }) => {
                // The peer's credits have shrunk since the Reply was planned.
                let shape = shape(&reply.stream, &reply.items);
                match exchange::plan_reply(&line.reply_terms(), &call.offer, &shape) {
                    Ok(plan) => {
                        reply.plan = plan;
                        false
                    }
                    Err(shortage) => {
                        line.refuse(call.xid, shortage.report());
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

    /// Forgets a Call. Returns whether it had kept its Receive.
    fn end(&mut self, at: usize) -> bool {
        self.calls[at].take().is_some_and(|call| call.keeps_receive)
    }
}

fn shape<'a>(stream: &[u8], items: &'a [Option<DataItem>]) -> ReplyShape<'a> {
    let length = u32::try_from(stream.len()).expect("it is not that long");
    ReplyShape { length, items, may_reduce: true }
}

/// Length of the longest Call, in octets.
const STREAM_MAX: usize = 1 << 23;
