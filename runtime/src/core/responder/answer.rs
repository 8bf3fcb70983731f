//! A complete Reply, and the choice of its format.

use std::iter::once;

use haulage_mr_pool::Local;
use haulage_proto::chunk::Few;
use haulage_proto::exchange::{self, Format, Offer, OfferedChunk, Shortage};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::pad;

use super::response::Response;
use crate::core::connection::Terms;
use crate::core::program::Offers;
use crate::items::Items;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::service::{Data, LeftOut, Reply};

/// A Reply that waits for credit.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The message: room for its transport header, then the Payload stream unless `body` has it.
    pub(super) buffer: Local,
    pub(super) body: Option<Local>,
    /// Octets of the Payload stream.
    pub(super) length: usize,
    pub(super) delivery: Delivery,
    /// The item that is not in the Payload stream.
    pub(super) data: Data,
    /// Its place in the Payload stream, unless it goes into the first Write chunk.
    pub(super) left_out: Option<LeftOut>,
    /// The items that go into the Write chunks behind the first one.
    pub(super) further: Items<Data>,
    /// How the Reply follows the directions of its Call, if that gives any.
    pub(super) response: Option<Box<Response>>,
}

/// How the Payload stream of a Reply gets to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// It is sent in this format.
    Sent(Format),
    /// The client reads it, and says `RDMA_DONE` (version 1, RFC 5666).
    Read,
}

/// Chooses how a Reply, which may take as many as `messages_max` messages, gets to a Call with these chunks; `None` if
/// it fits nowhere.
pub(super) fn delivery(
    reply: &Reply,
    terms: &Terms,
    messages_max: u32,
    offers: &Offers<'_>,
) -> Option<Delivery> {
    if let Some(format) = format(reply, terms, messages_max, offers) {
        return Some(Delivery::Sent(format));
    }
    // [R5666-3.4-4] [R5666-5.2-2] without room at the client, its last resort is a Read chunk of the whole.
    //~ R5666-5.2-2: `reply.length() <= terms.read_reply_max` -> `reply.length() == 0`
    let is_read = reply.length() <= terms.read_reply_max;
    let is_at_hand = reply.body.is_some() && reply.is_whole() && reply.left_out().is_none();
    (is_read && is_at_hand).then_some(Delivery::Read)
}

/// Chooses the format of a Reply that is sent.
fn format(reply: &Reply, terms: &Terms, messages_max: u32, offers: &Offers<'_>) -> Option<Format> {
    let rest = u32::try_from(reply.length()).ok().filter(|_| reply.is_whole())?;
    let replies = exchange::Terms { reply_messages_max: messages_max, ..terms.replies };
    let format = exchange::reply_format(&replies, &offer(offers), rest)?;
    // Only parts are made with the item in its place.
    //~ V2-6.6.4-1: ` || matches!(format, Format::Continued { .. })` -> ``
    let is_whole = reply.left_out().is_none() || matches!(format, Format::Continued { .. });
    is_whole.then_some(format)
}

impl Answer {
    /// Makes a Reply that is delivered so.
    pub(super) fn new(mut reply: Reply, delivery: Delivery) -> Self {
        let length = reply.length();
        if delivery == Delivery::Sent(Format::Simple)
            && let Some(body) = reply.body.take()
        {
            let inline = reply.message.room().get_mut(HEADER_ROOM..HEADER_ROOM + length);
            if let (Some(inline), Some(bytes)) = (inline, body.bytes().get(..length)) {
                inline.copy_from_slice(bytes);
            }
        }
        let Some(buffer) = reply.message.take_buffer() else { panic!("a Reply is in its buffer") };
        let left_out = reply.left_out();
        let Reply { body, data, further, .. } = reply;
        let further = further.into_iter().map(|chunk| chunk.data).collect();
        Self { buffer, body, length, delivery, data, left_out, further, response: None }
    }

    /// Returns the octets that go into each of the `count` Write chunks.
    pub(super) fn written(&self, count: usize) -> impl Iterator<Item = usize> {
        let first = if self.left_out.is_some() { 0 } else { self.data.len() };
        let further = self.further.iter().map(Data::len).chain(std::iter::repeat(0));
        std::iter::once(first).chain(further).take(count)
    }

    /// Returns the error to send in place of this Reply, whose Write chunks have `offered` octets.
    pub(super) fn shortage(&self, offered: &[u64]) -> ErrorBody {
        let wire = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let needed = wire(self.length);
        let shortage =
            self.left_out.map_or(Shortage::Reply { needed }, |LeftOut { index, .. }| {
                let offered = offered.get(index as usize).copied().unwrap_or(0);
                let offered = offered.try_into().unwrap_or(u32::MAX);
                Shortage::of_result(index.saturating_add(1), offered, wire(self.data.len()), needed)
            });
        shortage.report()
    }

    /// Copies octets of the Payload stream, from `at` on and with the item in its place, until `to` is full.
    pub(super) fn copy(&self, mut at: usize, mut to: &mut [u8]) {
        let stream = match &self.body {
            Some(body) => body.bytes(),
            None => self.buffer.bytes().get(HEADER_ROOM..).unwrap_or_default(),
        };
        let (front, back) = stream.split_at(self.left_out.map_or(0, |item| item.at));
        let item = self.left_out.iter().flat_map(|_| self.data.parts());
        let padding = &[0; 3][..self.left_out.map_or(0, |_| pad(self.data.len()))];
        //~ V2-4.1-2: `[padding, back]` -> `[back, padding]`
        for part in once(front).chain(item).chain([padding, back]) {
            let part = part.get(at..).unwrap_or_else(|| {
                at -= part.len();
                &[]
            });
            if part.is_empty() {
                continue;
            }
            at = 0;
            let (room, rest) = to.split_at_mut(part.len().min(to.len()));
            room.copy_from_slice(&part[..room.len()]);
            to = rest;
        }
    }
}

/// Describes the chunks that a Call offers for its Reply.
fn offer(offers: &Offers<'_>) -> Offer {
    let offered = |chunk: &Segments| OfferedChunk {
        length: u32::try_from(chunk.length()).unwrap_or(u32::MAX),
        segments: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
    };
    let writes = Few::collect(offers.writes.iter().map(offered));
    let Some(writes) = writes else { panic!("the chunks of a Call are few") };
    Offer { writes, reply: offers.reply.map(offered) }
}
