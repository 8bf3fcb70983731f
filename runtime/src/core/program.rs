//! The program that a core's service implements: its Calls, and the items that each may move.

use std::rc::Rc;

use haulage_mr_pool::{Leases, Pool};
use haulage_proto::chunk::{Few, Reduced};
use haulage_proto::rpc::auth::AUTH_NONE;
use haulage_proto::rpc::{
    AcceptStat, CallHeader, PlainCalls, Procedure, ReplyBody, ReplyHeader, Violation,
};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::SingleChunk;

use super::connection::Connection;
use super::segments::Segments;
use super::templates::Bound;
use crate::service::{ArgumentLeases, Binding, Placement, Refusal, Reply, ResultSource};

/// The declarations of a service, read when its core starts.
#[derive(Debug)]
pub(crate) struct Program {
    /// The binding: its procedures, and the items that they may reduce.
    pub(crate) binding: Rc<Bound>,
    /// The authentication flavors that it takes.
    flavors: Box<[u32]>,
    /// Where the items of each procedure lie.
    items: Box<[Items]>,
    /// A bit for each of the first procedures that is costly.
    costly: u64,
    /// Matches the RPC headers of AUTH_NONE Calls.
    pub(crate) plain_calls: PlainCalls,
    /// The length of the RPC header and of the smallest `results_max` of the binding: a Payload stream of this length
    /// keeps to the declarations of every procedure.
    results_end_min: usize,
}

/// Where the items of a procedure lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    pub(crate) argument: ArgumentLeases,
    pub(crate) result: ResultSource,
}

/// Why a Call does not reach the service.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// The transport refuses it.
    Refused(ErrorBody),
    /// The RPC layer answers it.
    Verdict(ReplyHeader),
}

/// The chunks of a Call, other than a Call chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offers<'a> {
    /// The reduced argument.
    pub(crate) read: Option<&'a ReadChunk>,
    /// The Write chunk.
    pub(crate) write: Option<&'a Segments>,
    /// The Reply chunk.
    pub(crate) reply: Option<&'a Segments>,
}

/// A reduced argument that is still where its Requester has it.
#[derive(Clone, Debug)]
pub(crate) struct ReadChunk {
    /// Where it belongs in the Payload stream.
    pub(crate) position: u32,
    pub(crate) segments: Segments,
}

/// A reduced argument that was placed or refused.
#[derive(Debug)]
pub(crate) struct Argument {
    /// Where it belongs in the Payload stream.
    pub(crate) position: u32,
    /// Octets that the Requester offered.
    pub(crate) length: u64,
    pub(crate) placed: Placement,
}

/// Memory that the Reply to a Call may take, in octets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// For a Payload stream that goes into the Reply chunk.
    pub(crate) body: usize,
    /// For a result that the service leases.
    pub(crate) result: usize,
}

/// The next step for the reduced argument of a Call.
#[derive(Debug)]
pub(crate) enum Fetch {
    /// None: there is no argument, or it is settled already.
    Settled(Option<Argument>),
    /// RDMA Reads of the argument.
    Read,
}

impl Program {
    /// Describes the program of a service with these declarations.
    pub(crate) fn new(
        binding: Rc<Bound>,
        flavors: Box<[u32]>,
        items: Box<[Items]>,
        costly: impl Iterator<Item = u32>,
    ) -> Self {
        let plain_calls = PlainCalls::of(&binding);
        let plain_calls =
            if flavors.contains(&AUTH_NONE) { plain_calls } else { plain_calls.refused() };
        let results_min = binding.procedures.iter().map(|procedure| procedure.results_max).min();
        let results_end_min = ReplyHeader::SUCCESS_LEN + results_min.unwrap_or(0) as usize;
        let costly = costly.fold(0, |costly, number| costly | bit(number));
        Self { binding, flavors, items, costly, plain_calls, results_end_min }
    }

    /// Reads the RPC header of a Call that arrived under this XID. Returns the header, and where the arguments start.
    ///
    /// # Errors
    /// The Call is not for the service.
    pub(crate) fn read_header<'a>(
        &self,
        xid: u32,
        payload: &'a [u8],
    ) -> Result<(CallHeader<'a>, usize), Unserved> {
        let (header, arguments_at) = CallHeader::decode(payload).map_err(|fault| {
            fault.reply(xid).map_or(Unserved::Refused(ErrorBody::BadXdr), Unserved::Verdict)
        })?;
        if header.xid != xid {
            return Err(Unserved::Refused(ErrorBody::BadXdr));
        }
        if let Err(denied) = header.credential.check(&self.flavors) {
            return Err(Unserved::Verdict(ReplyHeader { xid, body: ReplyBody::Denied(denied) }));
        }
        let Binding { program, version, .. } = **self.binding;
        let stat = if header.program != program {
            AcceptStat::ProgUnavail
        } else if header.version != version {
            AcceptStat::ProgMismatch { low: version, high: version }
        } else if self.binding.procedure(header.procedure).is_none() {
            AcceptStat::ProcUnavail
        } else {
            return Ok((header, arguments_at));
        };
        Err(Unserved::Verdict(ReplyHeader::accepted(xid, stat)))
    }

    /// Checks the chunks of a Call for a procedure, which arrived on `connection`.
    ///
    /// # Errors
    /// The binding does not allow them, or the peer serves no Reads of the argument.
    pub(crate) fn check_chunks(
        &self,
        number: u32,
        offers: &Offers<'_>,
        connection: &Connection,
        pool: &Pool,
    ) -> Result<Fetch, ErrorBody> {
        // [V2-4.4.2-2] nothing is reduced that the binding does not allow.
        let Some(procedure) = self.binding.procedure(number) else { return Err(ErrorBody::System) };
        let reduced = offers.read.map(|ReadChunk { position, segments }| Reduced {
            position: *position,
            length: u32::try_from(segments.length()).unwrap_or(u32::MAX),
        });
        // P12: no Read is posted to a peer that serves none.
        if reduced.is_some() && !connection.may_read() {
            return Err(Violation::Arguments { max: 0 }.report());
        }
        // E20: a chunk without room asks for nothing.
        let write_chunks = offers.write.map_or(0, |write| u32::from(write.length() > 0));
        let write_chunks = connection.terms.write_chunks_judged(write_chunks);
        match procedure.check_call(reduced.into_iter(), write_chunks) {
            // An argument that is too long stays where it is, and the service learns of it.
            Ok(()) | Err(Violation::TooLong { .. }) => {}
            Err(violation) => return Err(violation.report()),
        }
        let Some(ReadChunk { position, segments }) = offers.read else {
            return Ok(Fetch::Settled(None));
        };
        let length_max = procedure.arguments.first().map_or(0, |argument| argument.length_max);
        let (position, length) = (*position, segments.length());
        let placed = match length {
            0 => pool
                .lease(0)
                .map(Leases::One)
                .map_or(Placement::Refused(Refusal::NoMemory), Placement::Placed),
            _ if length > length_max as u64 => Placement::Refused(Refusal::TooLarge),
            _ => return Ok(Fetch::Read),
        };
        Ok(Fetch::Settled(Some(Argument { position, length, placed })))
    }

    /// Returns the memory that the Reply to a Call of a procedure may take.
    pub(crate) fn room(&self, number: u32, offers: &Offers<'_>, connection: &Connection) -> Room {
        let Some(procedure) = self.binding.procedure(number) else { return Room::default() };
        let octets = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let body = offers.reply.map_or(0, |chunk| {
            let longest = procedure.results.iter().map(|result| result.length_max);
            let longest = longest.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
            let needed = procedure.reply_max(&Few::collect(longest).unwrap_or_default());
            octets(chunk.length().min(needed)).max(connection.terms.reply_max(offers.write))
        });
        let result = match (self.source(number), offers.write.or(offers.reply)) {
            (Some(ResultSource::Leased), Some(chunk)) => procedure
                .results
                .first()
                .map_or(0, |result| octets(chunk.length()).min(result.length_max)),
            _ => 0,
        };
        Room { body, result }
    }

    /// Returns whether a Call with one chunk may be handled as it arrives: its procedure has an argument that can be
    /// read from there, or a result that can be written there and that takes no memory of the pool.
    #[inline]
    pub(crate) fn allows(&self, chunk: &SingleChunk, call: &[u8]) -> bool {
        let payload = call.get(SingleChunk::CALL_LEN..).unwrap_or_default();
        let number = self.plain_calls.procedure(payload).or_else(|| {
            let (header, _) = CallHeader::decode(payload).ok()?;
            let is_ours = self.binding.has(header.program, header.version, header.procedure);
            is_ours.then_some(header.procedure)
        });
        let Some((number, procedure)) = number.and_then(|it| Some((it, self.procedure(it)?)))
        else {
            return false;
        };
        match chunk.position {
            None => {
                let source = self.source(number);
                !procedure.results.is_empty() && source == Some(ResultSource::Resident)
            }
            Some(position) => {
                let read = Reduced { position, length: chunk.segment.length };
                procedure.check_call(std::iter::once(read), 0).is_ok()
            }
        }
    }

    /// Returns whether the argument of a procedure may lie in several leases.
    pub(crate) fn takes_several(&self, procedure: u32) -> bool {
        self.items(procedure).is_some_and(|items| items.argument == ArgumentLeases::Any)
    }

    /// Returns whether Calls of a procedure may take long.
    #[inline]
    pub(crate) const fn is_costly(&self, procedure: u32) -> bool {
        self.costly & bit(procedure) != 0
    }

    /// Returns whether a Call may take long. Its procedure is known, or is read from the start of its Payload stream.
    #[inline]
    pub(crate) fn is_costly_call(&self, procedure: Option<u32>, payload: &[u8]) -> bool {
        if self.costly == 0 {
            return false;
        }
        let procedure = procedure.or_else(|| {
            let word = payload.get(PROCEDURE_AT..)?.first_chunk()?;
            Some(u32::from_be_bytes(*word))
        });
        procedure.is_some_and(|procedure| self.is_costly(procedure))
    }

    /// Returns whether results keep to the declarations of the binding for a procedure.
    #[inline]
    pub(crate) fn keeps_to(&self, procedure: u32, reply: &Reply) -> bool {
        reply.at <= self.results_end_min || reply.keeps_to(self.results_max(procedure))
    }

    /// Returns whether a procedure has results that may go into a Write chunk.
    pub(crate) fn reduces(&self, procedure: u32) -> bool {
        self.procedure(procedure).is_some_and(|procedure| !procedure.results.is_empty())
    }

    /// Returns how many octets the results of a procedure may have, beside its eligible items.
    fn results_max(&self, procedure: u32) -> u32 {
        self.procedure(procedure).map_or(0, |bound| bound.results_max)
    }

    #[inline]
    fn procedure(&self, number: u32) -> Option<&Procedure> {
        self.binding.procedure(number)
    }

    #[inline]
    fn source(&self, number: u32) -> Option<ResultSource> {
        self.items(number).map(|items| items.result)
    }

    #[inline]
    fn items(&self, number: u32) -> Option<Items> {
        self.items.get(usize::try_from(number).ok()?).copied()
    }
}

/// Returns the bit of a procedure in [`Program::costly`]; none for later procedures than it has bits for.
const fn bit(procedure: u32) -> u64 {
    if procedure < u64::BITS { 1 << procedure } else { 0 }
}

/// Where a Call has its procedure: behind five words (RFC 5531 section 9).
const PROCEDURE_AT: usize = 20;

#[cfg(test)]
mod tests {
    use haulage_proto::xdr::Writer;

    use super::*;
    use crate::service::AUTH_SYS;

    /// Returns why a Call with XID 7 in its RPC header, which arrived under the XID `under`, is not served.
    fn why_unserved(program: &Program, under: u32, asked: [u32; 3]) -> Option<Unserved> {
        let mut octets = [0; CallHeader::PLAIN_LEN];
        let [number, version, procedure] = asked;
        let header = CallHeader::new(7, number, version, procedure);
        header.encode(&mut Writer::new(&mut octets)).unwrap();
        program.read_header(under, &octets).err()
    }

    #[test]
    fn a_call_is_for_the_service_under_its_own_xid_alone() {
        let binding = Binding { program: 5, version: 2, procedures: vec![Procedure::new("NULL")] };
        let bound = Rc::new(Bound::new(binding));
        let program = |flavors: &[u32]| {
            let items = Items { argument: ArgumentLeases::Any, result: ResultSource::Resident };
            Program::new(Rc::clone(&bound), flavors.into(), [items].into(), [].into_iter())
        };
        let all = program(&[AUTH_NONE]);
        assert!(why_unserved(&all, 7, [5, 2, 0]).is_none());
        let other_xid = why_unserved(&all, 8, [5, 2, 0]);
        assert!(matches!(other_xid, Some(Unserved::Refused(ErrorBody::BadXdr))), "{other_xid:?}");
        let verdicts = [
            ([6, 2, 0], AcceptStat::ProgUnavail),
            ([5, 3, 0], AcceptStat::ProgMismatch { low: 2, high: 2 }),
            ([5, 2, 1], AcceptStat::ProcUnavail),
        ];
        for (asked, stat) in verdicts {
            let why = why_unserved(&all, 7, asked);
            let expected = ReplyHeader::accepted(7, stat);
            assert!(matches!(why, Some(Unserved::Verdict(header)) if header == expected));
        }
        let denied = why_unserved(&program(&[AUTH_SYS]), 7, [5, 2, 0]);
        let is_denied =
            |header: &ReplyHeader| header.xid == 7 && matches!(header.body, ReplyBody::Denied(_));
        assert!(matches!(denied, Some(Unserved::Verdict(header)) if is_denied(&header)));
    }
}
