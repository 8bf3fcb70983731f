//! RPC-over-RDMA version 2: its messages, and one end of a connection.

use haulage_proto::chunk::{ReadList, WriteChunk, WriteList};
use haulage_proto::v2::header::{self, ConnProp, Message};
use haulage_proto::xdr::Writer;

use super::Codec;
use super::bound::bounded;
use super::octets::{
    Octets, any_word, octet, read_list, segments, short, some_octets, word, write_list,
};
use crate::world::choices::Choices;

pub(super) mod connection;

/// Messages of the ten header types.
pub(super) const MESSAGE: Codec = Codec { valid, again };

fn valid(choices: &mut Choices) -> Vec<u8> {
    let (xid, credit, htype) = (any_word(choices), word(choices), short(choices.of(4..=13)));
    message(choices, xid, credit, htype)
}

/// Builds a valid message of a header type.
fn message(choices: &mut Choices, xid: u32, credit: u32, htype: u32) -> Vec<u8> {
    let prefix = Octets::default().words(&[xid, 2, credit, htype]);
    let payload =
        |stream: Octets, choices: &mut Choices| stream.words(&[xid]).put(&some_octets(choices, 64));
    match htype {
        header::ERROR => error(prefix, choices),
        header::CONNPROP_MIDDLE | header::CONNPROP_FINAL => properties(prefix, choices),
        header::CALL_EXTERNAL => {
            let chunk: Vec<_> = segments(choices, 1).into_iter().map(|s| (0, s)).collect();
            call(prefix, choices, Some(&chunk))
        }
        header::CALL_INLINE => payload(call(prefix, choices, None), choices),
        header::CALL_MIDDLE | header::REPLY_MIDDLE => {
            payload(prefix.words(&[word(choices)]), choices)
        }
        header::REPLY_EXTERNAL => {
            let writes = write_list(choices);
            prefix.write_list(&writes).optional_chunk(Some(&segments(choices, 0)))
        }
        header::REPLY_INLINE => payload(prefix.write_list(&write_list(choices)), choices),
        _ => prefix,
    }
    .0
}

fn error(prefix: Octets, choices: &mut Choices) -> Octets {
    let code = choices.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 100]);
    let (a, b) = (word(choices), word(choices));
    match code {
        1 | 9 => prefix.words(&[code, a, b]),
        6 | 7 | 8 | 10 => prefix.words(&[code, a]),
        _ => prefix.words(&[code]),
    }
}

fn properties(prefix: Octets, choices: &mut Choices) -> Octets {
    let count = choices.of(0..=8);
    (0..count).fold(prefix.words(&[short(count)]), |set, _| {
        let which = choices.pick(&[1, 2, 3, 4, 5, 6, 7, u32::MAX]);
        match which {
            1..=4 if choices.one_in(4) => set.words(&[which, 0]),
            1..=4 => set.words(&[which, 4, word(choices)]),
            5 => set.words(&[which, 4, short(choices.below(4))]),
            6 => {
                let octets = some_octets(choices, 40);
                let padded = octets.len().next_multiple_of(4);
                set.words(&[which, 4 + short(padded)]).opaque(&octets)
            }
            _ => set.words(&[which]).opaque(&some_octets(choices, 40)),
        }
    })
}

/// Appends `rdma_inv_handle` and the lists of a Call.
fn call(
    prefix: Octets,
    choices: &mut Choices,
    chunk: Option<&[(u32, super::octets::Segment)]>,
) -> Octets {
    let (reads, writes) = (read_list(choices), write_list(choices));
    let reply = choices.one_in(2).then(|| segments(choices, 0));
    let read = reads.iter().chain(chunk.unwrap_or_default()).map(|(_, segment)| segment);
    let named: Vec<_> = read.chain(writes.iter().flatten()).chain(reply.iter().flatten()).collect();
    let handle = match named.as_slice() {
        [] => 0,
        all => choices.pick(all).0,
    };
    let prefix = prefix.words(&[if choices.one_in(2) { handle } else { 0 }]);
    let prefix = match chunk {
        Some(entries) => prefix.read_list(entries),
        None => prefix,
    };
    prefix.read_list(&reads).write_list(&writes).optional_chunk(reply.as_deref())
}

fn again(data: &[u8]) -> Option<Vec<u8>> {
    let transport = bounded(data.len(), || header::decode_transport(data));
    let whole = bounded(data.len(), || header::decode(data));
    let message = match transport {
        Ok(message) => message,
        Err(fault) => {
            assert!(fault.at <= data.len(), "{fault}: not in the message");
            assert_eq!(whole.err(), Some(fault), "what is no header is no message either");
            return None;
        }
    };
    if let Err(fault) = whole {
        assert!(fault.at <= data.len(), "{fault}: not in the message");
    }
    walk(&message, data.len());
    let mut room = vec![0; data.len()];
    let mut w = Writer::new(&mut room);
    message.encode(&mut w).expect("it is as long as it was");
    let length = w.position();
    room.truncate(length);
    Some(room)
}

/// Reads every part of a message.
fn walk(message: &Message<'_>, length: usize) {
    let said = format!("{message:?}");
    assert!(!said.is_empty());
    match message {
        Message::CallExternal(call) => {
            walk_reads(&call.call, length);
            walk_lists(&call.reads, &call.writes, call.reply, length);
        }
        Message::CallInline(call) => walk_lists(&call.reads, &call.writes, call.reply, length),
        Message::ReplyExternal(reply) => {
            walk_lists(&ReadList::default(), &reply.writes, Some(reply.reply), length);
        }
        Message::ReplyInline(reply) => {
            walk_lists(&ReadList::default(), &reply.writes, None, length);
        }
        Message::ConnProp(ConnProp { set, .. }) => {
            let yielded = set.entries().count();
            assert_eq!(u32::try_from(yielded), Ok(set.count()), "the set yields what it counts");
            assert!(yielded * 8 <= length, "a property has two words at least");
            let effective = bounded(length, || set.properties());
            assert!(!format!("{effective:?}").is_empty());
        }
        _ => {}
    }
}

/// Checks that lists yield as many entries as they count, and no more than their octets hold.
fn walk_lists(
    reads: &ReadList<'_>,
    writes: &WriteList<'_>,
    reply: Option<WriteChunk<'_>>,
    length: usize,
) {
    walk_reads(reads, length);
    let chunks = writes.chunks().count();
    assert_eq!(u32::try_from(chunks), Ok(writes.chunk_count()), "chunks are what was counted");
    let segments: usize = writes.chunks().chain(reply).map(|chunk| chunk.segments().count()).sum();
    assert!(segments * 16 + chunks * 8 <= length, "a segment has sixteen octets");
}

fn walk_reads(reads: &ReadList<'_>, length: usize) {
    let chunks = reads.chunks().count();
    assert_eq!(u32::try_from(chunks), Ok(reads.chunk_count()), "chunks are what was counted");
    let segments: usize = reads.chunks().map(|chunk| chunk.segments().count()).sum();
    assert_eq!(reads.entries().count(), segments, "each segment is in one chunk");
    assert!(segments * 24 <= length, "an entry has twenty-four octets");
    assert!(chunks <= segments, "no chunk is without one");
    let positions: Vec<_> = reads.chunks().map(|chunk| chunk.position()).collect();
    assert!(positions.is_sorted(), "positions never decrease");
}

/// Draws at most 96 octets of any value.
fn raw(choices: &mut Choices) -> Vec<u8> {
    let length = choices.of(0..=96);
    (0..length).map(|_| octet(choices)).collect()
}
