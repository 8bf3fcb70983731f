//! One Call of the peer, and its Reply.

use haulage_proto::chunk::{self, DataItem, Reduced, Version};
use haulage_proto::exchange::{Format, Offer, ReplyPlan};
use haulage_proto::v1::header::{Form, ReplyLists, encode_reply};
use haulage_proto::v2::continuation::{Kind, Split};
use haulage_proto::v2::header::{
    Returned, encode_reply_external, encode_reply_inline, encode_reply_middle,
    reply_inline_wire_len,
};
use haulage_proto::v2::invalidation::{MessagePlace, invalidates};
use haulage_proto::verbs::{Handle, Operation, Segment};

use crate::world::choices::Choices;
use crate::world::fabric::QueuePair;
use crate::world::memory::{BlockId, Part};
use crate::world::peer::Tag;
use crate::world::peer::line::{Line, encoded, messages};

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) xid: u32,
    pub(super) inv_handle: Handle,
    pub(super) writes: Vec<Vec<Segment>>,
    pub(super) reply_chunk: Option<Vec<Segment>>,
    pub(super) offer: Offer,
    /// The items that the peer reduced.
    pub(super) reduced: Vec<Reduced>,
    /// The Payload stream that is being restored.
    pub(super) block: BlockId,
    pub(super) fetching: usize,
    pub(super) keeps_receive: bool,
    /// The Reply, once it is made.
    pub(super) reply: Option<Reply>,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) stream: Vec<u8>,
    pub(super) items: Vec<Option<DataItem>>,
    pub(super) plan: ReplyPlan,
}

impl Incoming {
    /// Posts the Writes and the messages of the Reply.
    pub(super) fn post(
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
        if plan.format == Format::Special {
            let segments = self.reply_chunk.as_ref().expect("it was offered");
            write(queue, segments, body.clone());
        }
        // A Responder that may invalidate need not.
        let solicited = if choices.one_in(8) { Handle(0) } else { self.inv_handle };
        match line.version() {
            Version::One => self.post_one(line, queue, credit, solicited, &body),
            Version::Two => self.post_two(line, queue, credit, solicited, &body),
        }
    }

    fn post_one(
        &self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        credit: u32,
        solicited: Handle,
        body: &[u8],
    ) {
        let plan = &self.reply.as_ref().expect("it was made").plan;
        let used = plan.writes.iter().map(|used| used.length as usize);
        let writes: Vec<_> = self.writes.iter().map(Vec::as_slice).zip(used).collect();
        let offered = self.reply_chunk.as_deref();
        let (form, inline, reply) = match plan.format {
            Format::Special => (Form::NoMsg, &[][..], offered.map(|chunk| (chunk, body.len()))),
            // An unused Reply chunk is left out: there may be no room for it.
            _ => (Form::Msg, body, None),
        };
        let lists = ReplyLists { reads: &[], writes: &writes, reply };
        let bytes = encoded(line.thresholds().send as usize, |w| {
            encode_reply(w, self.xid, credit, form, &lists)?;
            w.put(inline)
        });
        let invalidate = Some(solicited).filter(|handle| *handle != Handle(0));
        line.send(queue, bytes, invalidate, |block| Tag::Reply(block, self.xid));
    }

    fn post_two(
        &self,
        line: &mut Line,
        queue: &mut QueuePair<Tag>,
        credit: u32,
        solicited: Handle,
        body: &[u8],
    ) {
        let plan = &self.reply.as_ref().expect("it was made").plan;
        let used = plan.writes.iter().map(|used| used.length as usize);
        let writes: Vec<_> = self
            .writes
            .iter()
            .zip(used)
            .map(|(offered, length)| Returned { offered, length })
            .collect();
        let (xid, most) = (self.xid, line.thresholds().send as usize);
        let last = |block| Tag::Reply(block, xid);
        if let (Format::Special, Some(offered)) = (plan.format, &self.reply_chunk) {
            let reply = Returned { offered, length: body.len() };
            let bytes = encoded(most, |w| encode_reply_external(w, xid, credit, &writes, &reply));
            return line.send(
                queue,
                bytes,
                invalidates(Kind::Reply, MessagePlace::Last, solicited),
                last,
            );
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
            let place = if piece.is_last { MessagePlace::Last } else { MessagePlace::Earlier };
            let invalidate = invalidates(Kind::Reply, place, solicited);
            if piece.is_last {
                line.send(queue, bytes, invalidate, last);
            } else {
                line.send(queue, bytes, invalidate, Tag::Message);
            }
        }
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
