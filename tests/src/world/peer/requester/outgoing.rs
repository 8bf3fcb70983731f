//! One Call of this end: its messages, and the check of its Reply.

use haulage_proto::chunk::{self, DataItem, Returned, Version};
use haulage_proto::exchange::{Arrived, Body, CallPlan, CallShape, Format};
use haulage_proto::rpc::binding::Binding;
use haulage_proto::v1;
use haulage_proto::v1::header::Form;
use haulage_proto::v2::continuation::Split;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{
    CallLists, call_inline_wire_len, encode_call_external, encode_call_inline, encode_call_middle,
};
use haulage_proto::verbs::{Access, Handle, Segment};

use super::chunks::{Chunk, Chunks};
use crate::world::choices::Choices;
use crate::world::exercise::{self, Exercise, Expected};
use crate::world::fabric::QueuePair;
use crate::world::mix::{Event, Tally};
use crate::world::peer::Tag;
use crate::world::peer::line::{Line, encoded, messages};

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) xid: u32,
    pub(super) exercise: Exercise,
    /// The Payload stream.
    pub(super) stream: Vec<u8>,
    pub(super) items: Vec<DataItem>,
    pub(super) expected: Expected,
    pub(super) plan: CallPlan,
    pub(super) chunks: Chunks,
    pub(super) end: Option<End>,
}

/// The end of a Call, kept while its handles are invalidated.
#[derive(Debug)]
pub(super) enum End {
    Replied { stream: Vec<u8>, arrived: Box<Arrived> },
    Refused(ErrorBody),
}

impl Outgoing {
    pub(super) fn shape<'a>(&'a self, binding: &'a Binding) -> CallShape<'a> {
        shape(binding, &self.exercise, &self.stream, &self.items, &self.expected)
    }

    /// Exposes the memory of the Call, and posts its messages.
    pub(super) fn post(
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
        match line.version() {
            Version::One => self.post_one(line, queue, credit, &body),
            Version::Two => self.post_two(line, queue, choices, credit, &body),
        }
    }

    fn post_one(&self, line: &mut Line, queue: &mut QueuePair<Tag>, credit: u32, body: &[u8]) {
        let chunks = &self.chunks;
        let call = chunks.call.iter().map(|chunk| (0, &*chunk.segments));
        let reads = chunks.reads.iter().map(|(position, chunk)| (*position, &*chunk.segments));
        let reads: Vec<(u32, &[Segment])> = call.chain(reads).collect();
        let writes: Vec<_> = chunks.writes.iter().map(|chunk| &*chunk.segments).collect();
        let reply = chunks.reply.as_ref().map(|chunk| &*chunk.segments);
        let lists = v1::header::CallLists { reads: &reads, writes: &writes, reply };
        let (form, inline) = match chunks.call {
            Some(_) => (Form::NoMsg, &[][..]),
            None => (Form::Msg, body),
        };
        let bytes = encoded(line.thresholds().send as usize, |w| {
            v1::header::encode_call(w, self.xid, credit, form, &lists)?;
            w.put(inline)
        });
        line.send(queue, bytes, None, Tag::Message);
    }

    fn post_two(
        &self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        credit: u32,
        body: &[u8],
    ) {
        let (xid, chunks) = (self.xid, &self.chunks);
        let most = line.thresholds().send as usize;
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

    /// Counts the events of sending.
    pub(super) fn note_sent(&self, tally: &mut Tally) {
        let (plan, chunks) = (&self.plan, &self.chunks);
        tally.note(match plan.format {
            Format::Simple => Event::SimpleCall,
            Format::Continued { .. } => Event::ContinuedCall,
            Format::Special => Event::SpecialCall,
        });
        tally.note_if(!chunks.reads.is_empty(), Event::ReadChunk);
        tally.note_if(chunks.reads.len() > 1, Event::ReadChunks);
        tally.note_if(chunks.writes.len() > 1, Event::WriteChunks);
        let mut writes = chunks.writes.iter();
        tally.note_if(writes.any(|chunk| chunk.segments.is_empty()), Event::EmptyWriteChunk);
        tally.note_if(chunks.all().any(|chunk| chunk.segments.len() > 1), Event::Segments);
        let is_split =
            |chunk: &Chunk| chunk.segments.windows(2).any(|two| two[0].handle != two[1].handle);
        tally.note_if(chunks.all().any(is_split), Event::Handles);
        tally.note_if(self.exercise.procedure == exercise::TELL, Event::CallOnly);
    }

    /// Counts the events of the Reply.
    pub(super) fn note_arrived(&self, tally: &mut Tally, arrived: &Arrived, is_continued: bool) {
        let is_special = matches!(arrived.body, Body::ReplyChunk { .. });
        tally.note(match arrived.body {
            Body::ReplyChunk { .. } => Event::SpecialReply,
            Body::Inline if is_continued => Event::ContinuedReply,
            Body::Inline => Event::SimpleReply,
            Body::Read => panic!("no Read list is taken"),
        });
        tally.note_if(!is_special && self.chunks.reply.is_some(), Event::UnusedReplyChunk);
        let mut writes = arrived.writes.iter();
        tally.note_if(writes.clone().any(|chunk| chunk.written > 0), Event::WriteChunk);
        let is_unused = |chunk: &Returned| chunk.written == 0 && chunk.offered > 0;
        tally.note_if(writes.any(is_unused), Event::UnusedWriteChunk);
    }

    /// Checks every octet of the Reply.
    pub(super) fn check(
        &self,
        version: Version,
        queue: &QueuePair<Tag>,
        stream: &[u8],
        arrived: &Arrived,
    ) {
        let chunk = |chunk: &Chunk| chunk.block.map_or(&[][..], |block| queue.memory.bytes(block));
        let written: Vec<_> = self.chunks.writes.iter().map(chunk).collect();
        let body = match (arrived.body, &self.chunks.reply) {
            (Body::ReplyChunk { length }, Some(reply)) => &chunk(reply)[..length as usize],
            _ => stream,
        };
        self.exercise.check_reply(version, self.xid, body, &arrived.writes, &written);
    }
}

pub(super) fn shape<'a>(
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
