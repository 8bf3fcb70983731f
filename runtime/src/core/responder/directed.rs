//! Replies as their Calls direct (round-trip extensions, responses).
//!
//! # Normal operation
//! A Call that directs how its results come has memory for the messages of its Reply before the service runs, if a result
//! may come along with it: for as many as the Requester has reserved Receives for, and as it may ever have credits for. Each
//! result then follows the next direction: it is copied into the messages, or written to the Requester's memory. What is
//! too short for its direction, or has none, returns to the Payload stream.
//!
//! # Recovery
//! A Call for whose results there is no memory in time is not carried out: it goes again by chunks.

use haulage_proto::exchange::Format;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rtrext::Extension;
use haulage_proto::rtrext::plan::Source;
use haulage_proto::rtrext::respond::{Answers, Prefer, ResultItem};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::UNIT;

use super::answer::{Answer, Delivery};
use super::response::Response;
use super::{ServedCall, Stage};
use crate::service::{Data, Reply};

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
            Ok(response) => {
                let format = match u32::try_from(response.plan.transmissions()).unwrap_or(u32::MAX)
                {
                    0 | 1 => Format::Simple,
                    messages => Format::Continued { messages },
                };
                let mut answer = Answer::new(reply, Delivery::Sent(format));
                answer.response = Some(Box::new(response));
                self.stage = Stage::Replying(answer);
                Ok(())
            }
            Err(error) => Err((reply, error)),
        }
    }

    /// Plans the response. What does not leave the Payload stream is put back there.
    fn respond(&mut self, reply: &mut Reply, extension: &Extension) -> Result<Response, ErrorBody> {
        let Some(directing) = &mut self.directing else { return Err(ErrorBody::System) };
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
        // [RTR-7.4-1] the choice is ours.
        //~ RTR-7.4-1: `{ Prefer::Send }` -> `{ Prefer::Write }`
        let preferred = if directing.rooms.is_empty() { Prefer::Write } else { Prefer::Send };
        let planned = extension.respond(&directing.asked, preferred, (length, &results))?;
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
        let mut rooms = std::mem::take(&mut directing.rooms);
        // A message without results is made where its Payload stream is.
        let needed = plan.transmissions();
        rooms.truncate(if is_sent || needed > 1 { needed } else { 0 });
        if rooms.len() < needed && (is_sent || needed > 1) {
            return Err(ErrorBody::ReplyResource { length_needed: length });
        }
        Ok(Response { plan, items, data, length: reply.at, rooms })
    }
}
