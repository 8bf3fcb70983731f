//! The contents of a received RPC message, of either version.

use haulage_proto::chunk::{Segments, WriteChunk, WriteList};
use haulage_proto::exchange::ReplyLists;
use haulage_proto::negotiate::Received;
use haulage_proto::v1::invalidation::choose;
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::{v1, v2};

use super::line::Line;

/// The chunk lists of a received Call, and the Payload stream in it.
pub(super) struct HeardCall<'a> {
    pub(super) xid: u32,
    /// The handle that the Reply may invalidate, or zero.
    pub(super) inv_handle: Handle,
    pub(super) call: Vec<Segment>,
    pub(super) reads: Vec<(u32, Segment)>,
    pub(super) writes: WriteList<'a>,
    pub(super) reply: Option<WriteChunk<'a>>,
}

impl Line {
    /// Returns the contents of a message that is a Call.
    pub(super) fn heard_call<'a>(&self, received: &Received<'a>) -> HeardCall<'a> {
        match received {
            Received::One(Ok(v1::header::Message::Msg(rpc) | v1::header::Message::NoMsg(rpc))) => {
                HeardCall {
                    xid: rpc.prefix.xid,
                    inv_handle: choose(rpc, &self.agreed).unwrap_or(Handle(0)),
                    call: Vec::new(),
                    reads: rpc.reads.entries().collect(),
                    writes: rpc.writes,
                    reply: rpc.reply,
                }
            }
            Received::Two(Ok(v2::header::Message::CallInline(call))) => HeardCall {
                xid: call.prefix.xid,
                inv_handle: call.inv_handle,
                call: Vec::new(),
                reads: call.reads.entries().collect(),
                writes: call.writes,
                reply: call.reply,
            },
            Received::Two(Ok(v2::header::Message::CallExternal(call))) => HeardCall {
                xid: call.prefix.xid,
                inv_handle: call.inv_handle,
                call: call.call.entries().map(|(_, segment)| segment).collect(),
                reads: call.reads.entries().collect(),
                writes: call.writes,
                reply: call.reply,
            },
            other => panic!("not a Call: {other:?}"),
        }
    }
}

/// Returns the XID and the chunk lists of a message that is a Reply.
pub(super) fn heard_reply<'a>(received: &Received<'a>) -> (u32, ReplyLists<'a>) {
    match received {
        Received::One(Ok(message)) => {
            let (rpc, external) = match message {
                v1::header::Message::Msg(rpc) => (rpc, false),
                v1::header::Message::NoMsg(rpc) => (rpc, true),
                other => panic!("not a Reply: {other:?}"),
            };
            let reads = !rpc.reads.is_empty();
            let lists = ReplyLists { writes: rpc.writes, reply: rpc.reply, external, reads };
            (rpc.prefix.xid, lists)
        }
        Received::Two(Ok(v2::header::Message::ReplyInline(reply))) => {
            let lists = ReplyLists { writes: reply.writes, ..ReplyLists::default() };
            (reply.prefix.xid, lists)
        }
        Received::Two(Ok(v2::header::Message::ReplyExternal(reply))) => {
            let (writes, chunk) = (reply.writes, Some(reply.reply));
            let lists = ReplyLists { writes, reply: chunk, external: true, reads: false };
            (reply.prefix.xid, lists)
        }
        other => panic!("not a Reply: {other:?}"),
    }
}

/// Returns the inline Payload stream of a message.
pub(super) const fn payload<'a>(received: &Received<'a>) -> &'a [u8] {
    use v2::header::Message;
    match received {
        Received::One(Ok(v1::header::Message::Msg(rpc) | v1::header::Message::NoMsg(rpc))) => {
            rpc.payload
        }
        Received::Two(Ok(Message::CallInline(call))) => call.payload,
        Received::Two(Ok(Message::ReplyInline(reply))) => reply.payload,
        Received::Two(Ok(Message::CallMiddle(part) | Message::ReplyMiddle(part))) => part.payload,
        _ => &[],
    }
}

pub(super) fn owned(segments: Segments<'_>) -> Vec<Segment> {
    segments.collect()
}
