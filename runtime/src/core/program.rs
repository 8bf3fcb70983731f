//! The programs that a core's service implements: their Calls, and the items that each may move.

use std::ops::Range;

use haulage_proto::chunk::{self, Reduced};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::auth::AUTH_NONE;
use haulage_proto::rpc::{
    AcceptStat, CallHeader, Credential, LikeCalls, PlainCalls, Procedure, RejectStat, ReplyBody,
    ReplyHeader,
};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::SingleChunk;
use haulage_proto::verbs::Segment;

use crate::items::Items;
use crate::limits::INLINE_SIZE;
use crate::outgoing::segments::Segments;
use crate::service::{ArgumentLeases, Binding, Program, Reply, ResultSource, Serving};

/// The programs of a service, read when its core starts.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The first one, which most services have alone; it has no procedures if there is none.
    first: Served,
    others: Box<[Served]>,
    /// Whether any procedure is costly.
    has_costly: bool,
    /// The length of the longest Payload stream that a binding allows a Reply, eligible items apart.
    results_end_max: usize,
    /// Whether any procedure leases its result.
    has_leased: bool,
}

/// One program of a service.
#[derive(Debug)]
pub(crate) struct Served {
    binding: Binding,
    /// The authentication flavors that it takes.
    flavors: Box<[u32]>,
    procedures: Box<[Serving]>,
    is_open_to_all: bool,
    /// A bit for each of the first procedures that is costly.
    costly: u64,
    /// Matches the RPC headers of AUTH_NONE Calls.
    plain_calls: PlainCalls,
    /// The length of the RPC header and of the smallest `results_max` of the binding: a Payload stream of this length
    /// keeps to the declarations of every procedure. Zero if any procedure never has a Reply.
    results_end_min: usize,
}

/// The parts of the RPC header of a Call that are needed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The place of the program in [`Programs`].
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    /// Where in the Payload stream the arguments start.
    pub(crate) arguments_at: usize,
}

/// The RPC header of a Call that is served, for the Calls behind it that say the same but for XID and procedure.
#[derive(Debug)]
pub(crate) struct KnownHeader<'a> {
    calls: LikeCalls<'a>,
    header: Header,
    credential: Credential<'a>,
}

/// Why a Call does not reach the service.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// The transport refuses it.
    Refused(ErrorBody),
    /// The RPC layer answers it.
    Verdict(ReplyHeader),
    /// The RPC layer would answer so, but the procedure never has a Reply.
    Untold(ReplyHeader),
}

/// The chunks of a Call, other than a Call chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offers<'a> {
    /// The reduced arguments.
    pub(crate) reads: &'a [ReadChunk],
    /// The Write chunks.
    pub(crate) writes: &'a [Segments],
    /// The Reply chunk.
    pub(crate) reply: Option<&'a Segments>,
}

/// A reduced argument that is not in memory of its own yet.
#[derive(Clone, Debug)]
pub(crate) struct ReadChunk {
    /// Where it belongs in the Payload stream.
    pub(crate) position: u32,
    pub(crate) source: ArgumentSource,
}

/// Where a reduced argument is.
#[derive(Clone, Debug)]
pub(crate) enum ArgumentSource {
    /// In the Requester's memory, to be read.
    Peer(Segments),
    /// In these parts of the message of the Call (round-trip extensions).
    Message(Items<Range<usize>>),
}

impl ArgumentSource {
    /// Returns the octets of the argument.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Peer(segments) => segments.length(),
            Self::Message(parts) => parts.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Returns the octets of the argument, as a length of our own memory.
    pub(crate) fn octets(&self) -> usize {
        usize::try_from(self.length()).unwrap_or(usize::MAX)
    }

    /// Returns the segments to be read.
    pub(crate) fn segments(&self) -> &[Segment] {
        match self {
            Self::Peer(segments) => segments.as_slice(),
            Self::Message(_) => &[],
        }
    }

    /// Returns whether the argument came with the message of the Call.
    pub(crate) const fn is_along(&self) -> bool {
        matches!(self, Self::Message(_))
    }
}

/// Memory that the Reply to a Call may take, in octets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// Memory for a Payload stream that goes into the Reply chunk.
    pub(crate) body: usize,
    /// Memory for the results that the service leases.
    pub(crate) result: usize,
}

impl ReadChunk {
    /// Keeps a Read chunk of a message.
    pub(crate) fn of(chunk: chunk::ReadChunk<'_>) -> Self {
        let source = ArgumentSource::Peer(Segments::collect(chunk.segments()));
        Self { position: chunk.position(), source }
    }
}

impl Programs {
    pub(crate) fn new(programs: Vec<Program>) -> Self {
        let mut all = programs.into_iter().map(Served::new);
        let first = all.next().unwrap_or_else(Served::nothing);
        let others: Box<[Served]> = all.collect();
        let any = |is: fn(&Served) -> bool| is(&first) || others.iter().any(is);
        let has_costly = any(|served| served.costly != 0);
        let has_leased = any(Served::leases);
        let all = std::iter::once(&first).chain(&others);
        let results_end_max = all.map(Served::results_end_max).max().unwrap_or(0);
        Self { first, others, has_costly, results_end_max, has_leased }
    }

    /// Returns each program, and its place.
    #[inline]
    fn each(&self) -> impl Iterator<Item = (u32, &Served)> {
        (0..).zip(std::iter::once(&self.first).chain(&self.others))
    }

    /// Returns the program that a header names; for a header that it did not make, the first one.
    #[inline]
    pub(crate) fn of(&self, header: Header) -> &Served {
        if header.program == 0 { &self.first } else { self.other(header) }
    }

    #[cold]
    fn other(&self, header: Header) -> &Served {
        self.others.get(header.program as usize - 1).unwrap_or(&self.first)
    }

    /// Reads the RPC header of a Call that arrived under this XID. Returns it, and what is needed of it later.
    ///
    /// # Errors
    /// The Call is not for the service.
    pub(crate) fn read_header<'a>(
        &self,
        xid: u32,
        payload: &'a [u8],
    ) -> Result<(CallHeader<'a>, Header), Unserved> {
        let (asked, arguments_at) = CallHeader::decode(payload).map_err(|fault| {
            fault.reply(xid).map_or(Unserved::Refused(ErrorBody::BadXdr), Unserved::Verdict)
        })?;
        // [V2-4.6.1-1] the RPC Call has the XID of its header.
        //~ V2-4.6.1-1: `asked.xid != xid` -> `false` together
        //~ R8167-5.1-2: `asked.xid != xid` -> `false` together
        if asked.xid != xid {
            return Err(Unserved::Refused(ErrorBody::BadXdr));
        }
        let Some((program, served)) = self.find(asked.program, asked.version) else {
            return Err(self.why_unserved(&asked));
        };
        let procedure = asked.procedure;
        if let Err(denied) = asked.credential.check(&served.flavors) {
            let header = ReplyHeader { xid, body: ReplyBody::Denied(denied) };
            return Err(match served.is_call_only(procedure) {
                true => Unserved::Untold(header),
                false => Unserved::Verdict(header),
            });
        }
        if served.procedure(procedure).is_none() {
            return Err(Unserved::accepted(xid, AcceptStat::ProcUnavail));
        }
        Ok((asked, Header { program, procedure, arguments_at }))
    }

    /// Reads the RPC header of a Call of a run, as [`Self::read_header`] does. Returns its credential, and what is needed of
    /// it later. `known` is the header of an earlier Call of the run: callers rarely take turns, so most headers need no
    /// decoding.
    ///
    /// # Errors
    /// The Call is not for the service.
    #[inline]
    pub(crate) fn read_header_of_run<'a>(
        &self,
        xid: u32,
        payload: &'a [u8],
        known: &mut Option<KnownHeader<'a>>,
    ) -> Result<(Credential<'a>, Header), Unserved> {
        if let Some(known) = known
            && let Some(procedure) = known.calls.procedure(xid, payload)
            && self.of(known.header).procedure(procedure).is_some()
        {
            return Ok((known.credential, Header { procedure, ..known.header }));
        }
        let (CallHeader { credential, .. }, header) = self.read_header(xid, payload)?;
        // A credential of another flavor differs with each Call, so its header is not worth remembering.
        if let Credential::None | Credential::Sys(_) = credential {
            let calls = LikeCalls::of(payload, header.arguments_at);
            *known = calls.map(|calls| KnownHeader { calls, header, credential });
        }
        Ok((credential, header))
    }

    /// Returns a version of a program, and its place.
    #[inline]
    fn find(&self, program: u32, version: u32) -> Option<(u32, &Served)> {
        if self.first.is(program, version) {
            return Some((0, &self.first));
        }
        (1..).zip(&self.others).find(|(_, served)| served.is(program, version))
    }

    /// Returns the answer to a Call of a program that is not served, or not in its version.
    #[cold]
    fn why_unserved(&self, asked: &CallHeader<'_>) -> Unserved {
        // A flavor that no program takes is denied whatever is asked.
        let mut checked = self.each().map(|(_, served)| asked.credential.check(&served.flavors));
        if let Some(Err(denied)) = checked.next()
            && checked.all(|checked| checked.is_err())
        {
            return Unserved::denied(asked.xid, denied);
        }
        let others = || self.each().filter(|(_, it)| it.has(asked.program));
        let versions = || others().map(|(_, served)| served.binding.version);
        let stat = match (versions().min(), versions().max()) {
            (Some(low), Some(high)) => AcceptStat::ProgMismatch { low, high },
            _ => AcceptStat::ProgUnavail,
        };
        Unserved::accepted(asked.xid, stat)
    }

    /// Reads the RPC header of a Call without a credential, if the service has its procedure and takes such Calls.
    #[inline]
    pub(crate) fn plain(&self, payload: &[u8]) -> Option<Header> {
        let plain = |program, served: &Served| {
            let procedure = served.plain_calls.procedure(payload)?;
            Some(Header { program, procedure, arguments_at: CallHeader::PLAIN_LEN })
        };
        if let Some(header) = plain(0, &self.first) {
            return Some(header);
        }
        (1..).zip(&self.others).find_map(|(program, served)| plain(program, served))
    }

    /// Returns the header of a Call without a credential of this program, version and procedure, as [`Self::plain`]
    /// does. Where its arguments start is not known.
    pub(crate) fn plain_of(&self, asked: [u32; 3]) -> Option<Header> {
        self.each().find_map(|(program, served)| {
            let procedure = served.plain_calls.procedure_of(asked)?;
            Some(Header { program, procedure, arguments_at: 0 })
        })
    }

    /// Returns the program and the procedure that a Call asks for, by its Payload stream, whatever the rest of its header
    /// says.
    #[inline]
    fn asked(&self, payload: &[u8]) -> Option<(&Served, u32)> {
        let [program, version, procedure] = CallHeader::asked(payload)?;
        let (_, served) = self.find(program, version)?;
        Some((served, procedure))
    }

    /// Returns whether a Call with one chunk may be handled as it arrives: its procedure has an argument that can be
    /// read from there, or a result that can be written there.
    #[inline]
    pub(crate) fn allows(&self, chunk: &SingleChunk, call: &[u8]) -> bool {
        let payload = call.get(chunk.unchunked.payload_at as usize..).unwrap_or_default();
        self.asked(payload).is_some_and(|(served, procedure)| served.allows(chunk, procedure))
    }

    /// Returns the octets that the service leases for the only result of a Call that has room for `offered` at the peer.
    #[inline]
    pub(crate) fn result_room(&self, payload: &[u8], offered: u32) -> usize {
        if !self.has_leased {
            return 0;
        }
        let asked = self.asked(payload);
        asked.map_or(0, |(served, procedure)| served.result_room(procedure, [u64::from(offered)]))
    }

    /// Returns the octets that the service leases for the results of a Call over TCP, by the start of its Payload stream.
    #[inline]
    pub(crate) fn result_over_tcp(&self, payload: &[u8]) -> usize {
        if !self.has_leased {
            return 0;
        }
        let asked = self.asked(payload).filter(|(served, procedure)| served.is_leased(*procedure));
        asked.map_or(0, |(served, procedure)| {
            served.room_over_tcp(procedure, CallHeader::arguments_of(payload)).result
        })
    }

    /// Returns whether a Call is one that peers may make whom the service does not admit, or one that no program serves.
    pub(crate) fn may_be_open_to_all(&self, payload: &[u8]) -> bool {
        self.asked(payload).is_none_or(|(served, _)| served.is_open_to_all)
    }

    /// Returns whether any Call may wait for its turn ([`Self::takes_turns`]).
    #[inline]
    pub(crate) const fn has_turns(&self, room: usize) -> bool {
        self.has_costly || self.results_end_max > room
    }

    /// Returns whether a Call waits for its turn: it may take long, or the Payload stream of its Reply may have more than
    /// `room` octets, eligible items apart. Its header is known, or is read from the start of its Payload stream.
    #[inline]
    pub(crate) fn takes_turns(&self, header: Option<Header>, payload: &[u8], room: usize) -> bool {
        let asked = match header {
            Some(header) => Some((self.of(header), header.procedure)),
            None => self.asked(payload),
        };
        asked.is_some_and(|(served, procedure)| {
            served.is_costly(procedure) || served.results_end(procedure) > room
        })
    }
}

impl Unserved {
    const fn accepted(xid: u32, stat: AcceptStat) -> Self {
        Self::Verdict(ReplyHeader::accepted(xid, stat))
    }

    const fn denied(xid: u32, why: RejectStat) -> Self {
        Self::Verdict(ReplyHeader { xid, body: ReplyBody::Denied(why) })
    }

    /// Returns what becomes of the Call in a version: in version 1 every Call has a Reply.
    pub(crate) const fn in_version(self, version: Version) -> Self {
        match (self, version) {
            (Self::Untold(header), Version::One) => Self::Verdict(header),
            (unserved, _) => unserved,
        }
    }
}

impl Served {
    fn new(program: Program) -> Self {
        let Program { mut binding, flavors, procedures, is_open_to_all } = program;
        let call_only = binding.procedures.iter_mut().filter(|procedure| procedure.call_only);
        let has_call_only = call_only.map(Self::without_chunks).count() > 0;
        let plain_calls = PlainCalls::of(&binding);
        let plain_calls =
            if flavors.contains(&AUTH_NONE) { plain_calls } else { plain_calls.refused() };
        let results_min = binding.procedures.iter().map(|procedure| procedure.results_max).min();
        let results_end_min = match has_call_only {
            // No Reply is as short: each is checked against its own procedure.
            true => 0,
            false => ReplyHeader::SUCCESS_LEN + results_min.unwrap_or(0) as usize,
        };
        let costly = (0..).zip(&procedures).filter(|(_, serving)| serving.is_costly);
        let costly = costly.fold(0, |costly, (number, _)| costly | bit(number));
        Self { binding, flavors, procedures, is_open_to_all, costly, plain_calls, results_end_min }
    }

    /// Has a procedure that never has a Reply take no chunks: [V2-4.7-1] nobody may use them.
    fn without_chunks(procedure: &mut Procedure) {
        procedure.arguments.clear();
        procedure.results.clear();
        procedure.results_max = 0;
    }

    /// Makes a program that serves nothing.
    fn nothing() -> Self {
        Self::new(Program::new(Binding { program: 0, version: 0, procedures: Vec::new() }))
    }

    /// Returns whether this is some version of this program.
    fn has(&self, program: u32) -> bool {
        self.binding.program == program && !self.procedures.is_empty()
    }

    /// Returns the number of the program and its version.
    #[inline]
    pub(crate) const fn name(&self) -> (u32, u32) {
        (self.binding.program, self.binding.version)
    }

    /// Returns whether this is the program of this number in this version.
    #[inline]
    fn is(&self, program: u32, version: u32) -> bool {
        self.has(program) && self.binding.version == version
    }

    /// Returns whether a Call of a procedure with this chunk alone may be handled as it arrives.
    fn allows(&self, chunk: &SingleChunk, number: u32) -> bool {
        let Some(procedure) = self.procedure(number) else { return false };
        match chunk.position {
            None => !procedure.results.is_empty(),
            Some(position) => {
                let read = Reduced { position, length: chunk.segment.length };
                procedure.check_call(std::iter::once(read), 0).is_ok()
            }
        }
    }

    /// Returns whether any procedure leases its result.
    fn leases(&self) -> bool {
        self.procedures.iter().any(|serving| serving.result == ResultSource::Leased)
    }

    /// Returns whether a procedure leases its result.
    #[inline]
    fn is_leased(&self, number: u32) -> bool {
        self.serving(number).is_some_and(|serving| serving.result == ResultSource::Leased)
    }

    /// Returns the octets that the service leases for results each of which has room at the peer, as `offered` says.
    pub(crate) fn result_room(&self, number: u32, offered: impl IntoIterator<Item = u64>) -> usize {
        let procedure = self.procedure(number).filter(|_| self.is_leased(number));
        let each = procedure.map(|procedure| procedure.results.as_slice()).unwrap_or_default();
        let longest = each
            .iter()
            .flat_map(|result| std::iter::repeat_n(result.length_max, result.count_max as usize));
        let octets = |offered| usize::try_from(offered).unwrap_or(usize::MAX);
        let rooms = longest.zip(offered).map(|(longest, offered)| octets(offered).min(longest));
        rooms.fold(0, usize::saturating_add)
    }

    /// Returns the memory that the Reply to a Call over TCP may take, of a procedure with these arguments.
    pub(crate) fn room_over_tcp(&self, number: u32, arguments: Option<&[u8]>) -> Room {
        let asked = self.serving(number).and_then(|serving| serving.asked);
        let asked = asked.map_or(usize::MAX, |asked| asked(arguments.unwrap_or_default()));
        let result = self.result_room(number, std::iter::repeat(asked as u64)).min(asked);
        let end = self.results_end(number);
        Room { body: if end > INLINE_SIZE { end } else { 0 }, result }
    }

    /// Returns whether the argument of a procedure may lie in several leases.
    pub(crate) fn takes_several(&self, procedure: u32) -> bool {
        self.serving(procedure).is_some_and(|serving| serving.argument == ArgumentLeases::Any)
    }

    /// Returns whether Calls of a procedure may take long.
    #[inline]
    pub(crate) const fn is_costly(&self, procedure: u32) -> bool {
        self.costly & bit(procedure) != 0
    }

    /// Returns whether results keep to the declarations of the binding for a procedure, which has a Reply.
    #[inline]
    pub(crate) fn keeps_to(&self, procedure: u32, reply: &Reply) -> bool {
        reply.at <= self.results_end_min || self.keeps_to_its_own(procedure, reply)
    }

    fn keeps_to_its_own(&self, procedure: u32, reply: &Reply) -> bool {
        let bound = self.procedure(procedure).filter(|bound| !bound.call_only);
        bound.is_some_and(|bound| reply.keeps_to(bound.results_max, bound.results_count()))
    }

    /// Returns whether a procedure never has a Reply.
    pub(crate) fn is_call_only(&self, procedure: u32) -> bool {
        self.procedure(procedure).is_some_and(|procedure| procedure.call_only)
    }

    /// Returns whether a procedure has results that may go into a Write chunk.
    pub(crate) fn reduces(&self, procedure: u32) -> bool {
        //~ R5666-3.6-2: `is_some_and(|procedure| !procedure.results.is_empty())` -> `is_some()`
        self.procedure(procedure).is_some_and(|procedure| !procedure.results.is_empty())
    }

    /// Returns the length of the longest Payload stream that the binding allows a Reply of a procedure, eligible items
    /// apart.
    #[inline]
    pub(crate) fn results_end(&self, procedure: u32) -> usize {
        ReplyHeader::SUCCESS_LEN.saturating_add(self.results_max(procedure) as usize)
    }

    fn results_end_max(&self) -> usize {
        let results_max = self.binding.procedures.iter().map(|bound| bound.results_max).max();
        ReplyHeader::SUCCESS_LEN.saturating_add(results_max.unwrap_or(0) as usize)
    }

    /// Returns how many octets the results of a procedure may have, beside its eligible items.
    fn results_max(&self, procedure: u32) -> u32 {
        self.procedure(procedure).map_or(0, |bound| bound.results_max)
    }

    #[inline]
    pub(crate) fn procedure(&self, number: u32) -> Option<&Procedure> {
        self.binding.procedure(number)
    }

    #[inline]
    pub(crate) fn serving(&self, number: u32) -> Option<Serving> {
        self.procedures.get(usize::try_from(number).ok()?).copied()
    }
}

/// Returns the bit of a procedure in [`Served::costly`]; none for later procedures than it has bits for.
const fn bit(procedure: u32) -> u64 {
    if procedure < u64::BITS { 1 << procedure } else { 0 }
}

#[cfg(test)]
mod tests {
    use haulage_proto::chunk::Kind;
    use haulage_proto::negotiate::put_call_headers_with;
    use haulage_proto::rpc::{AuthSys, Eligible};
    use haulage_proto::verbs::{Handle, HeaderPatch, Segment};
    use haulage_proto::xdr::Writer;

    use super::*;
    use crate::service::AUTH_SYS;

    fn call(asked: [u32; 3]) -> [u8; CallHeader::PLAIN_LEN] {
        let mut octets = [0; CallHeader::PLAIN_LEN];
        let [number, version, procedure] = asked;
        let header = CallHeader::new(7, number, version, procedure);
        header.encode(&mut Writer::new(&mut octets)).unwrap();
        octets
    }

    /// Returns why a Call with XID 7 in its RPC header, which arrived under the XID `under`, is not served.
    fn why_unserved(programs: &Programs, under: u32, asked: [u32; 3]) -> Option<Unserved> {
        programs.read_header(under, &call(asked)).err()
    }

    /// Returns a program whose procedures have these names.
    fn program(program: u32, version: u32, names: &[&'static str]) -> Program {
        let procedures = names.iter().copied().map(Procedure::new).collect();
        Program::new(Binding { program, version, procedures })
    }

    #[test]
    fn a_header_is_read_alike_whether_one_like_it_came_before() {
        let flavors = [AUTH_NONE, AUTH_SYS];
        let programs = Programs::new(vec![program(5, 2, &["NULL", "GET"]).flavors(&flavors)]);
        let credential = Credential::Sys(AuthSys::new(1, b"here", 1000, 100));
        let written = |xid, [number, version, procedure]: [u32; 3]| {
            let header = CallHeader::new(xid, number, version, procedure);
            let mut octets = [0; 100];
            let mut w = Writer::new(&mut octets);
            CallHeader { credential, ..header }.encode(&mut w).unwrap();
            w.written().to_vec()
        };
        let first = written(6, [5, 2, 1]);
        let mut served = 0;
        for (xid, asked) in [
            (7, [5, 2, 1]),
            (7, [5, 2, 0]),
            (7, [5, 2, 2]),
            (7, [5, 3, 1]),
            (7, [6, 2, 1]),
            (8, [5, 2, 1]),
        ] {
            let call = written(xid, asked);
            let mut known = None;
            let first = programs.read_header_of_run(6, &first, &mut known);
            assert!(first.is_ok() && known.is_some());
            let found = programs.read_header_of_run(7, &call, &mut known);
            let expected = programs.read_header(7, &call);
            let expected = expected.map(|(asked, header)| (asked.credential, header));
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{asked:?}");
            served += u32::from(found.is_ok());
        }
        assert_eq!(served, 2);
    }

    #[test]
    fn a_call_is_for_a_program_under_its_own_xid_alone() {
        let programs = Programs::new(vec![program(5, 2, &["NULL"])]);
        assert!(why_unserved(&programs, 7, [5, 2, 0]).is_none());
        let other_xid = why_unserved(&programs, 8, [5, 2, 0]);
        assert!(matches!(other_xid, Some(Unserved::Refused(ErrorBody::BadXdr))), "{other_xid:?}");
    }

    #[test]
    fn a_call_that_no_program_takes_is_answered_over_all_of_them() {
        let programs = vec![
            program(5, 4, &["NULL"]),
            program(6, 1, &["NULL", "A"]),
            program(5, 2, &["NULL", "B", "C"]).flavors(&[AUTH_SYS]),
        ];
        let programs = Programs::new(programs);
        let mismatch = AcceptStat::ProgMismatch { low: 2, high: 4 };
        for (asked, expected) in [
            ([5, 4, 0], Ok(0)),
            ([6, 1, 1], Ok(1)),
            ([5, 4, 1], Err(AcceptStat::ProcUnavail)),
            ([6, 1, 2], Err(AcceptStat::ProcUnavail)),
            ([5, 3, 0], Err(mismatch)),
            ([5, 0, 0], Err(mismatch)),
            ([6, 2, 0], Err(AcceptStat::ProgMismatch { low: 1, high: 1 })),
            ([7, 1, 0], Err(AcceptStat::ProgUnavail)),
        ] {
            let octets = call(asked);
            let (plain, read) = (programs.plain(&octets), programs.read_header(7, &octets));
            match (expected, read) {
                (Ok(place), Ok((_, header))) => {
                    let arguments_at = CallHeader::PLAIN_LEN;
                    let expected = Header { program: place, procedure: asked[2], arguments_at };
                    assert_eq!((header, plain), (expected, Some(expected)));
                    assert_eq!(programs.of(header).name(), (asked[0], asked[1]));
                    let alone = Header { arguments_at: 0, ..expected };
                    assert_eq!(programs.plain_of(asked), Some(alone));
                }
                (Err(stat), Err(Unserved::Verdict(verdict))) => {
                    assert_eq!(verdict, ReplyHeader::accepted(7, stat), "{asked:?}");
                    assert!(plain.is_none() && programs.plain_of(asked).is_none());
                }
                (_, read) => panic!("{asked:?}: {read:?}"),
            }
        }
        // Version 2 of program 5 takes no anonymous Calls.
        let denied = why_unserved(&programs, 7, [5, 2, 1]);
        let Some(Unserved::Verdict(ReplyHeader { body: ReplyBody::Denied(why), .. })) = denied
        else {
            panic!("{denied:?}")
        };
        assert!(matches!(why, RejectStat::AuthError(_)), "{why:?}");
        assert!(
            programs.plain(&call([5, 2, 1])).is_none() && programs.plain_of([5, 2, 1]).is_none()
        );
    }

    #[test]
    fn a_flavor_that_no_program_takes_is_denied_whatever_is_asked() {
        let flavors = |taken: &[u32]| program(5, 2, &["NULL"]).flavors(taken);
        let is_denied = |programs: Vec<Program>| {
            let why = why_unserved(&Programs::new(programs), 7, [8, 1, 0]);
            let Some(Unserved::Verdict(verdict)) = why else { panic!("{why:?}") };
            matches!(verdict.body, ReplyBody::Denied(_))
        };
        assert!(is_denied(vec![flavors(&[AUTH_SYS])]));
        assert!(!is_denied(vec![flavors(&[AUTH_SYS]), program(6, 1, &["NULL"])]));
        assert!(!is_denied(Vec::new()));
    }

    #[test]
    fn a_procedure_is_costly_in_its_own_program_alone() {
        let one = program(5, 2, &["NULL", "A", "B"]).costly([2]);
        let programs = Programs::new(vec![one, program(6, 1, &["NULL", "C", "D"]).costly([1])]);
        for number in 0..3 {
            for (asked, costly) in [([5, 2, number], 2), ([6, 1, number], 1), ([7, 1, number], 9)] {
                let octets = call(asked);
                let is_costly = number == costly;
                let takes_turns =
                    |header, payload| programs.takes_turns(header, payload, usize::MAX);
                assert_eq!(takes_turns(None, &octets[..]), is_costly, "{asked:?}");
                assert_eq!(takes_turns(programs.plain(&octets), &[]), is_costly);
            }
        }
        assert!(!programs.takes_turns(None, &[0; 20], usize::MAX));
    }

    #[test]
    fn only_what_a_procedure_has_is_moved_by_the_short_way() {
        const STORE: u32 = 1;
        const FETCH: u32 = 2;
        let item = Eligible { kind: Kind::Opaque, ..Eligible::opaque(100) };
        let procedures = vec![
            Procedure::new("NULL"),
            Procedure::new("STORE").argument(item),
            Procedure::new("FETCH").result(item),
        ];
        let other = program(6, 1, &["NULL", "A", "B"]);
        let served = Program::new(Binding { program: 7, version: 1, procedures });
        let programs = Programs::new(vec![other, served]);
        let allowed = |asked, position, length| {
            let segment = Segment { handle: Handle(5), length, offset: 0 };
            let mut message = [0; 96];
            let patch = HeaderPatch { xid: 3, credit: 9 };
            put_call_headers_with(&mut message, patch, Handle(5), position, &segment, asked)
                .unwrap();
            let chunk = SingleChunk::of(&message).unwrap();
            programs.allows(&chunk, &message)
        };
        assert!(allowed([7, 1, STORE], Some(44), 100) && allowed([7, 1, FETCH], None, 100));
        // The room for a result may be longer than any result; the service refuses an argument that is too long.
        assert!(allowed([7, 1, FETCH], None, 101) && !allowed([7, 1, STORE], Some(44), 101));
        for asked in [[7, 1, 0], [7, 1, FETCH], [7, 1, 3], [7, 2, STORE], [6, 1, STORE]] {
            assert!(!allowed(asked, Some(44), 100), "{asked:?}");
        }
        for asked in [[7, 1, 0], [7, 1, STORE], [7, 1, 3], [7, 2, FETCH], [6, 1, FETCH]] {
            assert!(!allowed(asked, None, 100), "{asked:?}");
        }
    }
}
