//! The chunks of a Call, as its procedure allows them and as its Reply needs them.

use haulage_mr_pool::{Leases, Pool};
use haulage_proto::chunk::Reduced;
use haulage_proto::rpc::Violation;
use haulage_proto::v2::continuation::Split;
use haulage_proto::v2::error::ErrorBody;

use crate::core::connection::Connection;
use crate::core::program::{Offers, ReadChunk, Room, Served};
use crate::items::Items;
use crate::limits::Limits;
use crate::outgoing::segments::Segments;
use crate::service::{Placement, ReducedArgument, Refusal};

impl Served {
    /// Checks the chunks of a Call for a procedure, which arrived on `connection`.
    ///
    /// # Errors
    /// The binding does not allow them, or the peer serves no Reads of the arguments.
    pub(crate) fn check_chunks(
        &self,
        number: u32,
        offers: &Offers<'_>,
        connection: &Connection,
        pool: &Pool,
    ) -> Result<Items<ReducedArgument>, ErrorBody> {
        // [V2-4.4.2-2] only items that the binding allows are reduced.
        let Some(procedure) = self.procedure(number) else { return Err(ErrorBody::System) };
        let reduced = offers.reads.iter().map(|ReadChunk { position, source }| Reduced {
            position: *position,
            length: u32::try_from(source.length()).unwrap_or(u32::MAX),
        });
        // P12: no Read is posted to a peer that serves none.
        let are_along = offers.reads.iter().all(|read| read.source.is_along());
        if !are_along && !connection.share.may_read() {
            return Err(Violation::Arguments { max: 0 }.report());
        }
        // E20: a Write chunk of no octets asks for its result inline.
        let last = offers.writes.iter().rposition(|write| write.length() > 0);
        let write_chunks = last.map_or(0, |at| u32::try_from(at + 1).unwrap_or(u32::MAX));
        let write_chunks = connection.session.terms().write_chunks_judged(write_chunks);
        match procedure.check_call(reduced, write_chunks) {
            // An argument that is too long is not read, and the service is told.
            Ok(()) | Err(Violation::TooLong { .. }) => {}
            Err(violation) => return Err(violation.report()),
        }
        let longest = procedure.arguments.iter().map(|argument| argument.length_max).max();
        let settle = |ReadChunk { position, source }: &ReadChunk| {
            let (position, length) = (*position, source.length());
            let placed = match length {
                0 => pool
                    .lease(0)
                    .map(Leases::One)
                    .map_or(Placement::Refused(Refusal::NoMemory), Placement::Placed),
                _ if length > longest.unwrap_or(0) as u64 => Placement::Refused(Refusal::TooLarge),
                _ => Placement::None,
            };
            ReducedArgument { position, length, placed }
        };
        Ok(offers.reads.iter().map(settle).collect())
    }

    /// Returns the memory that the Reply to a Call of a procedure may take.
    pub(crate) fn room(
        &self,
        number: u32,
        offers: &Offers<'_>,
        connection: &Connection,
        limits: &Limits,
    ) -> Room {
        let Some(procedure) = self.procedure(number) else { return Room::default() };
        let octets = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let terms = connection.session.terms();
        let inline = terms.reply_max(offers.writes);
        // [R5666-5.2-2] what has no other room is read by the client, if it is one that does that.
        let read = match offers.writes {
            [] => octets(procedure.reply_max(&procedure.longest_results())),
            _ => self.results_end(number),
        };
        let read = read.min(terms.read_reply_max).min(limits.read_max());
        let body = if let Some(chunk) = offers.reply {
            let needed = procedure.reply_max(&procedure.longest_results());
            octets(chunk.length().min(needed)).max(inline).max(read)
        } else {
            // [V2-6.6.4-1]
            //~ V2-6.6.4-1: `reply_messages_max(&connection.engine)` -> `reply_messages_max(&connection.engine).min(1)`
            let most = limits.reply_messages_max(&connection.engine) - 1;
            let part = Split::part_max(terms.replies.reply_threshold as usize);
            let in_parts = inline.saturating_add(part.saturating_mul(most as usize));
            let needed = self.results_end(number).min(in_parts).min(limits.message_max as usize);
            let needed = needed.max(read);
            // Most Replies are made in their messages.
            if needed > inline { needed } else { 0 }
        };
        let result = match (offers.writes, offers.reply) {
            ([], None) => 0,
            ([], Some(reply)) => {
                let all = self.result_room(number, std::iter::repeat(reply.length()));
                all.min(reply.octets())
            }
            (writes, _) => self.result_room(number, writes.iter().map(Segments::length)),
        };
        Room { body, result }
    }
}
