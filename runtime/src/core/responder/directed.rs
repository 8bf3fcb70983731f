//! Replies as their Calls direct (round-trip extensions, responses).
//!
//! # Normal operation
//! A Call that directs how its results come has memory for the message of its Reply before the service runs, if a result
//! may come along with it. Each result then follows the next direction: it is copied into the message, or written to the
//! Requester's memory. What is too short for its direction, or has none, returns to the Payload stream.
//!
//! # Recovery
//! A Call for whose results there is no memory in time is not carried out: it goes again by chunks.

use haulage_mr_pool::Local;
use haulage_proto::exchange::Format;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rtrext::direction::Directed;
use haulage_proto::rtrext::plan::{Kind, Outgoing as Message, Piece, Plan, Source};
use haulage_proto::rtrext::properties::Terms;
use haulage_proto::rtrext::respond::{Answers, Asked, Prefer, ResultItem};
use haulage_proto::rtrext::{Extension, item};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Prefix;
use haulage_proto::xdr::{UNIT, Writer};

use super::answer::{Answer, Delivery};
use super::{ServedCall, Stage};
use crate::core::common::Common;
use crate::core::memory::Charge;
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::provider::{Head, Outgoing, Port};
use crate::service::{Data, Reply};

/// The directions of a Call for its results.
#[derive(Debug)]
pub(crate) struct Directing {
    pub(super) asked: Asked,
    /// Octets of the longest result that can come along with the Reply.
    pub(super) along_max: usize,
}

/// A Reply that follows directions.
#[derive(Debug)]
pub(super) struct Response {
    plan: Plan,
    items: Vec<item::Item<Source>>,
    /// The octets of each item.
    data: Vec<Data>,
}

impl Directing {
    /// Keeps directions of which nothing is known yet.
    pub(super) const fn new(asked: Asked) -> Self {
        Self { asked, along_max: 0 }
    }

    /// Notes how long a result may be that comes along with the shortest Reply. A longer Reply may have no room for it.
    pub(super) fn settle(&mut self, terms: &Terms) {
        let front = Prefix::WIRE_LEN + ReplyHeader::SUCCESS_LEN;
        self.along_max = terms.theirs.room_behind(front, terms.message_max);
    }

    /// Returns whether a result may come along with the Reply, or `has_to`.
    pub(super) fn sends(&self, has_to: bool) -> bool {
        let directions = self.asked.directions.get();
        directions.iter().flat_map(|set| set.items.iter()).any(|direction| match direction.place {
            Directed::Exrw(_) => false,
            Directed::Tbsn => true,
            Directed::Choice(_) | Directed::BySize { .. } => !has_to,
        })
    }

    /// Returns the octets that each result may have, of which those that come by RDMA Write have these rooms.
    pub(super) fn offered(&self, writes: &[Segments]) -> Items<u64> {
        let directions = self.asked.directions.get();
        let directions = directions.iter().flat_map(|set| set.items.iter());
        let room = directions.zip(writes).map(|(direction, write)| match direction.place {
            Directed::Exrw(_) => write.length(),
            Directed::Tbsn => self.along_max as u64,
            Directed::Choice(_) | Directed::BySize { .. } => {
                write.length().max(self.along_max as u64)
            }
        });
        room.collect()
    }
}

impl ServedCall {
    /// Completes the Reply as the Call directs, which then waits for credit: `header`, and the results in `reply`.
    ///
    /// # Errors
    /// A result fits neither the message nor the memory that its direction offers. The Reply comes back.
    #[expect(clippy::result_large_err, reason = "it is moved back once, not boxed")]
    #[cold]
    pub(super) fn answer_directed(
        &mut self,
        header: &ReplyHeader,
        mut reply: Reply,
        extension: &Extension,
    ) -> Result<(), (Reply, ErrorBody)> {
        let end = std::mem::take(&mut reply.at);
        reply.results(|w| header.encode(w));
        reply.at = reply.at.max(end);
        let directed = self.writes.len();
        let is_short = |(index, _): (u32, u32)| self.reduces && (index as usize) < directed;
        if !reply.fits() || reply.first_unreduced().is_some_and(is_short) {
            let error = reply.shortage();
            return Err((reply, error));
        }
        match self.respond(&mut reply, extension) {
            Ok((response, body)) => {
                let format = match response.plan.transmissions() {
                    1 => Format::Simple,
                    messages => {
                        Format::Continued { messages: u32::try_from(messages).unwrap_or(u32::MAX) }
                    }
                };
                let mut answer = Answer::new(reply, Delivery::Sent(format));
                (answer.body, answer.response) = (body, Some(Box::new(response)));
                self.stage = Stage::Replying(answer);
                Ok(())
            }
            Err(error) => Err((reply, error)),
        }
    }

    /// Plans the response. What does not leave the Payload stream is put back there. Returns the plan, and the memory for the
    /// message if it brings results.
    fn respond(
        &mut self,
        reply: &mut Reply,
        extension: &Extension,
    ) -> Result<(Response, Option<Local>), ErrorBody> {
        let Some(directing) = &self.directing else { return Err(ErrorBody::System) };
        let wire = |octets: usize| u32::try_from(octets).unwrap_or(u32::MAX);
        let reduced = reply.take_reduced();
        // The whole Call causes its results.
        let cause = wire(self.header.arguments_at.min(self.length.saturating_sub(UNIT)));
        let mut gone = 0;
        let results = reduced.iter().map(|(at, data)| {
            let disp = wire(at + gone);
            gone += data.len().next_multiple_of(UNIT);
            ResultItem { cause, disp, length: wire(data.len()) }
        });
        let results: Vec<_> = results.collect();
        let length = wire(reply.at + gone);
        let preferred = if self.reply_body.is_some() { Prefer::Send } else { Prefer::Write };
        let asked = Asked { rsbuf: 0, ..directing.asked.clone() };
        let planned = extension.respond(&asked, preferred, (length, &results))?;
        let Some((Answers { items, results: answered }, plan)) = planned else {
            return Err(ErrorBody::System);
        };
        let mut left: Vec<_> = reduced.into_iter().map(|(at, data)| (at, Some(data))).collect();
        let data = items.iter().zip(&answered).map(|(item, index)| {
            let result = index.and_then(|index| left.get_mut(index));
            match item.place {
                Source::Exrw(_) | Source::Send => result.and_then(|(_, data)| data.take()),
                Source::TooShort | Source::NoItem => None,
            }
        });
        let data: Vec<_> = data.map(|data| data.unwrap_or(Data::Empty)).collect();
        let mut shift = 0;
        for (at, data) in left {
            let Some(data) = data else { continue };
            let is_back = reply.put_back(at + shift, &data);
            is_back.ok_or(ErrorBody::ReplyResource { length_needed: length })?;
            shift += data.len().next_multiple_of(UNIT);
        }
        let is_sent = items.iter().any(|item| item.place == Source::Send && item.length > 0);
        let body = self.reply_body.take().filter(|_| is_sent);
        if is_sent && body.is_none() {
            return Err(ErrorBody::ReplyResource { length_needed: length });
        }
        Ok((Response { plan, items, data }, body))
    }
}

/// Sends a Reply that follows directions, behind the Writes of its results. The credit of all its messages is already spent.
#[cold]
pub(super) fn send_response(
    common: &mut Common,
    (key, xid, credit): (ConnectionKey, u32, u32),
    (answer, response): (Answer, Response),
    charge: Charge,
    port: &mut impl Port,
) {
    let Answer { mut buffer, body, length, .. } = answer;
    let Response { plan, items, data } = response;
    let kind = Kind::Response { count_max: 1 };
    let of = Message { kind, payload_length: length, items: &items };
    let sent = items.iter().filter(|item| item.place == Source::Send);
    common.counters.results_sent_along += sent.clone().count() as u64;
    common.counters.bytes_along += sent.map(|item| u64::from(item.length)).sum::<u64>();
    let (mut message, range) = if let Some(mut whole) = body {
        let range = 0..plan.length(0);
        let w = &mut Writer::new(whole.bytes_mut().get_mut(range.clone()).unwrap_or_default());
        let payload = buffer.bytes().get(HEADER_ROOM..).unwrap_or_default();
        let mut written = plan.encode_header(w, 0, (xid, credit), &of);
        for piece in plan.pieces(0) {
            written = written.and_then(|()| match piece {
                Piece::Payload(range) => w.put(payload.get(range).unwrap_or_default()),
                Piece::Zeros(count) => (0..count).try_for_each(|_| w.put([0])),
                Piece::Item(item, range) => data
                    .get(item)
                    .map_or(Ok(()), |data| data.parts_of(range).try_for_each(|part| w.put(part))),
            });
        }
        assert!(written.is_ok(), "the room is as long as the plan says");
        common.buffers.recycle(buffer);
        (Outgoing::within(whole), range)
    } else {
        let start = HEADER_ROOM - plan.length(0).saturating_sub(length);
        let room = buffer.bytes_mut().get_mut(start..HEADER_ROOM).unwrap_or_default();
        let written = plan.encode_header(&mut Writer::new(room), 0, (xid, credit), &of);
        assert!(written.is_ok(), "the header room holds the longest header");
        (Outgoing::within(buffer), start..HEADER_ROOM + length)
    };
    for (item, data) in items.into_iter().zip(data) {
        if let Source::Exrw(segments) = item.place {
            message.write(data, Segments::collect(segments.into_iter()));
        }
    }
    common.leave(key, &Head::written(range, None), &mut message, charge, port);
    message.take_buffer().into_iter().for_each(|buffer| common.buffers.recycle(buffer));
}
