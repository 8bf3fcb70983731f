//! Whole exchanges through real headers: what was planned fits, arrives, and is what was sent.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::chunk::testing::{HEADER, Memory, Sample};
use crate::chunk::{
    self, DataItem, Item, Kind, Layout, PayloadReader, ReadList, Reduced, Source, Version,
    WriteChunk, WriteList, reduce, restore,
};
use crate::rpc::{Eligible, Procedure};
use crate::testing::Rng;
use crate::v1::header as v1;
use crate::v2::header as v2;
use crate::verbs::{Handle, Segment};
use crate::xdr::Writer;

const XID: u32 = 0xeeee_eeee;

/// A registered chunk of the Requester.
type Chunk = (Handle, Vec<Segment>);

/// What both ends of one exchange know.
struct World {
    terms: Terms,
    call: Sample,
    reply: Sample,
    procedure: Procedure,
    /// Octets of each result of the Reply, and what more it might have had.
    rooms: Vec<u32>,
    reply_max: u32,
    memory: Memory,
}

/// How often each path was taken.
#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    formats: [[u32; 3]; 2],
    reduced: [u32; 2],
    empty: u32,
}

#[test]
fn what_is_planned_fits_and_arrives_whole() {
    for version in [Version::One, Version::Two] {
        let mut seen = Seen::default();
        for seed in 0..6000 {
            let mut rng = Rng::new(seed);
            World::random(&mut rng, version).exchange(&mut rng, &mut seen);
        }
        // Version 1 continues nothing and sends no chunk without segments.
        let two = version == Version::Two;
        let taken = seen.formats.iter().flatten().filter(|count| **count > 200).count();
        assert_eq!(taken, if two { 6 } else { 4 }, "{seen:?}");
        assert!(seen.reduced.iter().all(|count| *count > 200), "{seen:?}");
        assert_eq!(seen.empty > 50, two, "{seen:?}");
        assert!(seen.refused < 3000, "{seen:?}");
    }
}

impl World {
    fn random(rng: &mut Rng, version: Version) -> Self {
        let mut up_to = |max: usize| u32::try_from(1 + rng.below(max)).unwrap();
        let terms = Terms {
            version,
            call_threshold: 100 + up_to(900),
            reply_threshold: 100 + up_to(900),
            segment_size_max: up_to(900),
            segments_max: up_to(20),
            chunk_segments_max: up_to(10),
            read_chunks_max: up_to(6) - 1,
            write_chunks_max: up_to(6) - 1,
            call_messages_max: up_to(4),
            reply_messages_max: up_to(4),
            reduce_min: up_to(300),
        };
        let call = Sample::random(rng, 5, 500);
        let reply = Sample::random(rng, 4, 500);
        let eligible = |item: &DataItem| Eligible {
            kind: item.kind(),
            length_max: item.length() + 64,
            count_max: 1,
        };
        let slack = u32::try_from(rng.below(64)).unwrap();
        let longer = |item: &DataItem| u32::try_from(item.length()).unwrap() + slack;
        let rooms: Vec<u32> = reply.items.iter().map(longer).collect();
        // Each result can be as long as its room, and padded.
        let grown = rooms.iter().map(|room| room.next_multiple_of(4)).sum::<u32>();
        let items = reply.items.iter().map(|i| i.length().next_multiple_of(4)).sum::<usize>();
        let rest = u32::try_from(reply.stream.len() - items).unwrap();
        let mut procedure = Procedure::new("any");
        procedure.arguments = call.items.iter().map(eligible).collect();
        procedure.results = reply.items.iter().map(eligible).collect();
        let (memory, reply_max) = (Memory::default(), rest + grown);
        Self { terms, call, reply, procedure, rooms, reply_max, memory }
    }

    fn exchange(mut self, rng: &mut Rng, seen: &mut Seen) {
        let shape = CallShape {
            procedure: &self.procedure,
            length: u32::try_from(self.call.stream.len()).unwrap(),
            arguments_at: u32::try_from(HEADER).unwrap(),
            items: &self.call.items,
            results: &self.rooms,
            reply_max: self.reply_max,
            reply_limit: u32::MAX,
            may_reduce: rng.below(8) > 0,
        };
        let may_reduce = shape.may_reduce;
        let Ok(plan) = plan_call(&self.terms, &shape) else {
            seen.refused += 1;
            return;
        };
        self.check_limits(&plan);
        seen.formats[0][index(plan.format)] += 1;
        seen.reduced[0] += u32::from(!plan.reads.is_empty());
        seen.empty += u32::from(plan.writes.contains(&0));
        if !may_reduce {
            assert!(plan.reads.is_empty() && plan.writes.is_empty());
        }

        // The Requester registers, and encodes.
        let stream = self.call.stream.clone();
        let chosen: Vec<DataItem> = plan.reads.iter().map(|r| self.call.items[r.index]).collect();
        let reduction = reduce(&stream, &chosen).unwrap();
        let mut body: Vec<u8> = reduction.kept().flat_map(|r| stream[r].to_vec()).collect();
        let mut expose = |octets: Vec<u8>| {
            let length = u32::try_from(octets.len()).unwrap();
            let (handle, offset) = self.memory.register(rng, octets);
            (handle, plan.split(handle, offset, length).collect::<Vec<_>>())
        };
        let reads: Vec<(u32, Chunk)> = reduction
            .chunks()
            .zip(&chosen)
            .map(|(reduced, item)| (reduced.position, expose(stream[item.data()].to_vec())))
            .collect();
        for (planned, reduced) in plan.reads.iter().zip(reduction.chunks()) {
            assert_eq!((planned.position, planned.length), (reduced.position, reduced.length));
        }
        let writes: Vec<Chunk> = plan.writes.iter().map(|l| expose(vec![0; *l as usize])).collect();
        let reply: Option<Chunk> = plan.reply.map(|length| expose(vec![0; length as usize]));
        let call: Option<Chunk> = plan.call.map(|length| {
            assert_eq!(length as usize, body.len());
            expose(core::mem::take(&mut body))
        });
        assert_eq!(body.len(), plan.inline as usize);
        let message =
            self.encode_call(&plan, call.as_ref(), &reads, &writes, reply.as_ref(), &body);

        // The Responder restores, and answers.
        let offer = self.restore_call(&message, &body);
        let items: Vec<Option<DataItem>> = self.reply.items.iter().copied().map(Some).collect();
        let length = u32::try_from(self.reply.stream.len()).unwrap();
        let shape = ReplyShape { length, items: &items, may_reduce };
        let answer = plan_reply(&self.terms, &offer, &shape).expect("provided for the maximum");
        seen.formats[1][index(answer.format)] += 1;
        seen.reduced[1] += u32::from(answer.writes.iter().any(|used| used.length > 0));
        let body = self.write(&answer, &writes);
        let message = self.encode_reply(&answer, &writes, reply.as_ref(), &body);

        // The Requester checks, and reads.
        self.check_reply(&message, &writes, reply.as_ref(), &body);
    }

    fn check_limits(&self, plan: &CallPlan) {
        let terms = &self.terms;
        let reads = plan.reads.iter().map(|read| read.length);
        let all = reads.chain(plan.writes.iter().copied()).chain(plan.call).chain(plan.reply);
        let counts: Vec<u32> = all.map(|length| length.div_ceil(terms.segment_size_max)).collect();
        assert!(counts.iter().sum::<u32>() <= terms.segments_max);
        assert!(counts.iter().all(|count| *count <= terms.chunk_segments_max));
        assert!(plan.reads.len() <= terms.read_chunks_max as usize);
        assert!(plan.writes.len() <= terms.write_chunks_max as usize);
        if let Format::Continued { messages } = plan.format {
            assert!((2..=terms.call_messages_max).contains(&messages));
        }
        if terms.version == Version::One {
            assert!(plan.call.is_none() || plan.reads.is_empty());
            assert!(plan.reply.is_none() || plan.writes.is_empty());
            assert!(!plan.writes.contains(&0));
        }
    }

    /// Encodes the message with the chunks of a Call. Of a continued one that is the last, which here
    /// carries nothing else.
    fn encode_call(
        &self,
        plan: &CallPlan,
        call: Option<&Chunk>,
        reads: &[(u32, Chunk)],
        writes: &[Chunk],
        reply: Option<&Chunk>,
        body: &[u8],
    ) -> Vec<u8> {
        let mut reads: Vec<(u32, &[Segment])> =
            reads.iter().map(|(position, (_, segments))| (*position, &segments[..])).collect();
        let writes: Vec<&[Segment]> = writes.iter().map(|(_, segments)| &segments[..]).collect();
        let reply = reply.map(|(_, segments)| &segments[..]);
        let mut room = vec![0; self.terms.call_threshold as usize];
        let mut w = Writer::new(&mut room);
        if self.terms.version == Version::One {
            reads.splice(..0, call.map(|(_, segments)| (0, &segments[..])));
            let form = if call.is_some() { v1::Form::NoMsg } else { v1::Form::Msg };
            let lists = v1::CallLists { reads: &reads, writes: &writes, reply };
            v1::encode_call(&mut w, XID, 1, form, &lists).unwrap();
        } else {
            let lists =
                v2::CallLists { inv_handle: Handle(0), reads: &reads, writes: &writes, reply };
            match call {
                Some((_, call)) => v2::encode_call_external(&mut w, XID, 1, call, &lists),
                None => v2::encode_call_inline(&mut w, XID, 1, &lists),
            }
            .unwrap();
        }
        finish(w, plan.format, body)
    }

    /// Decodes a Call, restores it, and returns what it offers.
    fn restore_call(&self, message: &[u8], body: &[u8]) -> Offer {
        let none = ReadList::default();
        let (call, reads, writes, reply) = match self.terms.version {
            Version::One => match v1::decode_transport(message).unwrap() {
                v1::Message::Msg(rpc) | v1::Message::NoMsg(rpc) => {
                    (none, rpc.reads, rpc.writes, rpc.reply)
                }
                other => panic!("{other:?}"),
            },
            Version::Two => match v2::decode_transport(message).unwrap() {
                v2::Message::CallInline(call) => (none, call.reads, call.writes, call.reply),
                v2::Message::CallExternal(call) => (call.call, call.reads, call.writes, call.reply),
                other => panic!("{other:?}"),
            },
        };
        let data = reads.chunks().filter(|chunk| chunk.position() > 0).map(|chunk| Reduced {
            position: chunk.position(),
            length: chunk.segments().map(|segment| segment.length).sum(),
        });
        let data: Vec<_> = data.collect();
        assert_eq!(self.procedure.check_call(data.into_iter(), writes.chunk_count()), Ok(()));
        let call = call.entries().map(|(_, segment)| segment);
        let length_max = self.call.stream.len();
        let plan = restore(self.terms.version, body.len(), call, reads.entries(), length_max);
        let plan = plan.unwrap();
        assert_eq!(self.memory.restore(body, plan.steps(), plan.length()), self.call.stream);
        Offer::of(&writes, reply).unwrap()
    }

    /// Writes the reduced results, and returns the rest of the Reply.
    fn write(&mut self, answer: &ReplyPlan, writes: &[Chunk]) -> Vec<u8> {
        let stream = &self.reply.stream;
        let mut reduced = Vec::new();
        for (index, item) in self.reply.items.iter().enumerate() {
            if answer.reduces(index) {
                reduced.push(*item);
                let data = &stream[item.data()];
                assert_eq!(answer.writes[index].length as usize, data.len(), "no padding");
                for (target, range) in chunk::fill(&writes[index].1, data.len()) {
                    self.memory.write(&target, &data[range]);
                }
            }
        }
        let reduction = reduce(stream, &reduced).unwrap();
        assert_eq!(reduction.length(), answer.rest as usize);
        reduction.kept().flat_map(|range| stream[range].to_vec()).collect()
    }

    fn encode_reply(
        &mut self,
        answer: &ReplyPlan,
        writes: &[Chunk],
        reply: Option<&Chunk>,
        body: &[u8],
    ) -> Vec<u8> {
        let special = answer.format == Format::Special;
        let reply = reply.filter(|_| special).map(|(_, segments)| &segments[..]);
        for (target, range) in chunk::fill(reply.unwrap_or_default(), body.len()) {
            self.memory.write(&target, &body[range]);
        }
        let used = writes.iter().zip(answer.writes.iter());
        let used: Vec<_> = used.map(|((_, s), used)| (&s[..], used.length as usize)).collect();
        let mut room = vec![0; self.terms.reply_threshold as usize];
        let mut w = Writer::new(&mut room);
        if self.terms.version == Version::One {
            let form = if special { v1::Form::NoMsg } else { v1::Form::Msg };
            let reply = reply.map(|segments| (segments, body.len()));
            let lists = v1::ReplyLists { reads: &[], writes: &used, reply };
            v1::encode_reply(&mut w, XID, 1, form, &lists).unwrap();
        } else {
            let returned = |offered, length| v2::Returned { offered, length };
            let used: Vec<_> = used.iter().map(|(s, length)| returned(s, *length)).collect();
            match reply {
                Some(segments) => {
                    let reply = returned(segments, body.len());
                    v2::encode_reply_external(&mut w, XID, 1, &used, &reply)
                }
                None => v2::encode_reply_inline(&mut w, XID, 1, &used),
            }
            .unwrap();
        }
        finish(w, answer.format, body)
    }

    /// Decodes a Reply, checks it, and restores its stream.
    fn check_reply(&self, message: &[u8], writes: &[Chunk], reply: Option<&Chunk>, body: &[u8]) {
        let offered: Vec<&[Segment]> = writes.iter().map(|(_, segments)| &segments[..]).collect();
        let reply_chunk = reply.map(|(_, segments)| &segments[..]);
        let offered = Offered { writes: &offered, reply: reply_chunk, reads: false };
        let lists = self.lists(message);
        let arrived = check_reply(self.terms.version, &offered, &lists).unwrap();
        let body = match (arrived.body, reply) {
            (Body::Inline, _) => body,
            (Body::ReplyChunk { length }, Some((handle, _))) => self.memory.range(*handle, length),
            (Body::ReplyChunk { .. } | Body::Read, _) => panic!("no such chunk was offered"),
        };
        let reader = PayloadReader::reply_of_many(body, HEADER, &arrived.writes);
        let found = self.find_results(reader.of_version(self.terms.version));
        let layout = Layout::of(body.len(), found.iter().map(|(_, r)| *r), usize::MAX).unwrap();
        let mut whole = Vec::new();
        for piece in layout.pieces() {
            assert_eq!(piece.to.start, whole.len());
            match piece.source {
                Source::Body { at } => whole.extend(&body[at..at + piece.to.len()]),
                Source::Item { index } => {
                    let (chunk, reduced) = found[index];
                    whole.extend(self.memory.range(writes[chunk].0, reduced.length));
                }
                Source::Padding => whole.extend(vec![0; piece.to.len()]),
            }
        }
        assert_eq!(whole, self.reply.stream);
    }

    fn lists<'a>(&self, message: &'a [u8]) -> ReplyLists<'a> {
        let lists = |writes: WriteList<'a>, reply: Option<WriteChunk<'a>>, external| ReplyLists {
            writes,
            reply,
            external,
            reads: false,
        };
        match self.terms.version {
            Version::One => match v1::decode_transport(message).unwrap() {
                v1::Message::Msg(rpc) => lists(rpc.writes, rpc.reply, false),
                v1::Message::NoMsg(rpc) => lists(rpc.writes, rpc.reply, true),
                other => panic!("{other:?}"),
            },
            Version::Two => match v2::decode_transport(message).unwrap() {
                v2::Message::ReplyInline(reply) => lists(reply.writes, None, false),
                v2::Message::ReplyExternal(reply) => lists(reply.writes, Some(reply.reply), true),
                other => panic!("{other:?}"),
            },
        }
    }

    /// Parses the results as their types say. Returns the number of each Write chunk that holds one,
    /// and where that belongs.
    fn find_results(&self, mut reader: PayloadReader<'_>) -> Vec<(usize, Reduced)> {
        let mut found = Vec::new();
        let mut at = HEADER;
        let skip = |reader: &mut PayloadReader<'_>, octets: usize| {
            (0..octets / 4).for_each(|_| assert!(reader.u32().is_ok()));
        };
        for (index, item) in self.reply.items.iter().enumerate() {
            skip(&mut reader, item.at() - at);
            let position = u32::try_from(item.data().start).unwrap();
            let length = if item.kind() == Kind::Opaque {
                match reader.eligible_opaque(usize::MAX).unwrap() {
                    Item::Unreduced(_) => None,
                    Item::Reduced { length } => Some(length),
                }
            } else {
                skip(&mut reader, item.data().start - item.at());
                let reduced = reader.eligible().unwrap();
                if reduced.is_none() {
                    skip(&mut reader, item.length().next_multiple_of(4));
                }
                reduced
            };
            if let Some(length) = length {
                found.push((index, Reduced { position, length: u32::try_from(length).unwrap() }));
            }
            at = item.data().end.next_multiple_of(4);
        }
        skip(&mut reader, self.reply.stream.len() - at);
        assert!(reader.is_empty(), "every chunk was an eligible result");
        found
    }
}

/// Appends the Payload stream of a Simple message, and returns the message. The buffer is as long as
/// the inline threshold, so what is appended fits.
fn finish(mut w: Writer<'_>, format: Format, body: &[u8]) -> Vec<u8> {
    let fits = w.room() >= body.len();
    match format {
        Format::Simple => w.put(body).unwrap(),
        Format::Continued { .. } => assert!(!fits, "one message would do"),
        Format::Special => {}
    }
    w.written().to_vec()
}

const fn index(format: Format) -> usize {
    match format {
        Format::Simple => 0,
        Format::Continued { .. } => 1,
        Format::Special => 2,
    }
}
