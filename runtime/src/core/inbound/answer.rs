//! A Reply that is complete: in which format it goes, and sending it.

use std::ops::Range;

use haulage_mr_pool::{Local, Source};
use haulage_proto::chunk;
use haulage_proto::exchange::{self, Format, Offer, OfferedChunk};
use haulage_proto::negotiate::ReplyChunks;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Returned;
use haulage_proto::v2::invalidation::invalidates;
use haulage_proto::verbs::{Flags, Segment};
use haulage_proto::xdr::Writer;

use super::{InboundCall, Segments, Stage};
use crate::core::connection::{Connection, Terms};
use crate::core::state::State;
use crate::core::table::Key;
use crate::core::work::{Name, PostedData};
use crate::limits::{HEADER_ROOM, SEND_BUFFER};
use crate::provider::{Operation, WorkRequest};
use crate::service::{Data, Reply};

/// A Reply that waits for credit.
#[derive(Debug)]
pub(super) struct Answer {
    /// The message: room for its transport header, then the Payload stream unless `body` has it.
    pub(super) buffer: Local,
    body: Option<Local>,
    /// Octets of the Payload stream.
    length: usize,
    /// Whether the Payload stream goes into the Reply chunk.
    is_special: bool,
    /// The reduced result.
    data: Data,
}

impl Answer {
    /// Chooses how a Reply to `call` goes.
    pub(super) fn new(
        mut reply: Reply,
        terms: &Terms,
        call: &InboundCall,
    ) -> Result<Self, (Local, ErrorBody)> {
        let length = reply.at;
        let rest = u32::try_from(length).unwrap_or(u32::MAX);
        let format = match &call.reply {
            // What fits the room that was given fits the message.
            None => Some(Format::Simple),
            Some(chunk) => exchange::reply_format(&terms.replies, &call.offer(chunk), rest),
        };
        let Some(format) = format else {
            return Err((reply.buffer, ErrorBody::ReplyResource { length_needed: rest }));
        };
        let is_special = format == Format::Special;
        if !is_special && let Some(body) = reply.body.take() {
            let inline = reply.buffer.bytes_mut().get_mut(HEADER_ROOM..HEADER_ROOM + length);
            if let (Some(inline), Some(bytes)) = (inline, body.bytes().get(..length)) {
                inline.copy_from_slice(bytes);
            }
        }
        let Reply { buffer, body, data, .. } = reply;
        Ok(Self { buffer, body, length, is_special, data })
    }
}

impl InboundCall {
    /// Returns how long the Payload stream of a Reply in one message may be.
    pub(super) fn inline_max(&self, terms: &Terms) -> usize {
        let write =
            self.write.as_ref().map(|write| [Returned { offered: write.as_slice(), length: 0 }]);
        let writes = write.as_ref().map_or(&[][..], |writes| writes.as_slice());
        let header = ReplyChunks { writes, reply: None }.wire_len(terms.version);
        let threshold = usize::try_from(terms.replies.reply_threshold).unwrap_or(usize::MAX);
        threshold.min(SEND_BUFFER - HEADER_ROOM).saturating_sub(header)
    }

    /// Returns what it offers for its Reply, of which `reply` is the Reply chunk.
    fn offer(&self, reply: &Segments) -> Offer {
        let offered = |chunk: &Segments| OfferedChunk {
            length: u32::try_from(chunk.length()).unwrap_or(u32::MAX),
            segments: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
        };
        let mut offer = Offer { reply: Some(offered(reply)), ..Offer::default() };
        let fits = self.write.as_ref().is_none_or(|write| offer.writes.push(offered(write)));
        debug_assert!(fits, "one chunk is few");
        offer
    }
}

impl State {
    /// Queues the Reply of a Call behind the Writes of its result. The credit is already spent.
    pub(crate) fn send_reply(&mut self, call: Key<InboundCall>, credit: u32) {
        let Some(inbound) = self.inbound.remove(call) else { return };
        let Stage::Replying(answer) = inbound.stage else { return };
        let Some(connection) = self.connections.get_mut(inbound.connection) else { return };
        let Answer { mut buffer, body, length, is_special, data } = answer;

        let write = inbound.write.as_ref().map(Segments::as_slice).unwrap_or_default();
        let reply = inbound.reply.as_ref().map(Segments::as_slice).unwrap_or_default();
        let item = data.len();
        let writes = [Returned { offered: write, length: item }];
        let chunks = ReplyChunks {
            writes: &writes[..usize::from(inbound.write.is_some())],
            reply: is_special.then_some(Returned { offered: reply, length }),
        };
        let version = connection.terms.version;
        let start = HEADER_ROOM - chunks.wire_len(version);
        let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
        let encoded = chunks.encode(version, &mut Writer::new(room), inbound.xid, credit);
        debug_assert!(encoded.is_ok(), "the header room holds the longest header");

        let data = PostedData::of(data);
        connection.write(write, item, |range| data.sources(range));
        let (buffer, body) = (buffer.into_source(), body.map(Local::into_source));
        let mut end = HEADER_ROOM + length;
        if is_special {
            connection.write(reply, length, |range| match &body {
                Some(body) => body.source(range),
                None => buffer.source(HEADER_ROOM + range.start..HEADER_ROOM + range.end),
            });
            end = HEADER_ROOM;
        }
        let written = [data, body.map_or(PostedData::None, PostedData::Local)];
        let invalidate =
            inbound.invalidate.and_then(|handle| invalidates(Kind::Reply, true, handle));
        self.send_posted(inbound.connection, buffer, start..end, invalidate, written);
    }
}

impl Connection {
    /// Queues the Writes that fill a chunk of the peer's with `length` octets, which `sources` are.
    fn write<I: IntoIterator<Item = Source>>(
        &mut self,
        segments: &[Segment],
        length: usize,
        sources: impl Fn(Range<usize>) -> I,
    ) {
        // [V2-4.5.2.1-1] contiguously, in segment order.
        for (claim, range) in chunk::fill(segments, length) {
            let mut at = 0;
            for source in sources(range) {
                let part = u32::try_from(source.len()).unwrap_or(u32::MAX);
                let Ok(target) = claim.window(at, part) else { break };
                at += u64::from(part);
                let operation = Operation::Write { source, target };
                let id = Name::Unsignaled.wr_id();
                self.queue.push_back(WorkRequest { id, flags: Flags::default(), operation });
            }
        }
    }
}
