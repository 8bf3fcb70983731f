//! RPC-over-RDMA version 1: its messages, its private data, and one end of a connection.

use haulage_proto::v1::header::{self, Message, Rpc};
use haulage_proto::v1::private_data::PrivateData;
use haulage_proto::xdr::Writer;

use super::Codec;
use super::bound::bounded;
use super::octets::{
    Octets, any_word, octet, read_list, segments, short, some_octets, word, write_list,
};
use crate::world::choices::Choices;

pub(super) mod connection;

/// Messages of the five types.
pub(super) const MESSAGE: Codec = Codec { valid, again };

/// Private data, anywhere in the octets that a connection manager delivers.
pub(super) const PRIVATE_DATA: Codec =
    Codec { valid: valid_private_data, again: private_data_again };

fn valid(choices: &mut Choices) -> Vec<u8> {
    let (xid, credit, kind) = (any_word(choices), word(choices), short(choices.below(5)));
    message(choices, xid, credit, kind)
}

/// Builds a valid message of one type.
fn message(choices: &mut Choices, xid: u32, credit: u32, kind: u32) -> Vec<u8> {
    let prefix = Octets::default().words(&[xid, 1, credit, kind]);
    match kind {
        header::MSG | header::NOMSG => rpc(prefix, choices, xid),
        header::MSGP => {
            let padding = [word(choices), word(choices)];
            rpc(prefix.words(&padding), choices, xid)
        }
        header::ERROR if choices.one_in(2) => prefix.words(&[1, word(choices), word(choices)]),
        header::ERROR => prefix.words(&[2]),
        _ => prefix,
    }
    .0
}

fn rpc(prefix: Octets, choices: &mut Choices, xid: u32) -> Octets {
    let mut reads = read_list(choices);
    if choices.one_in(2) {
        reads.extend(segments(choices, 1).into_iter().map(|segment| (0, segment)));
    }
    let reply = choices.one_in(2).then(|| segments(choices, 0));
    let lists = prefix.read_list(&reads).write_list(&write_list(choices));
    let lists = lists.optional_chunk(reply.as_deref());
    let direction = short(choices.below(2));
    lists.words(&[xid, direction]).put(&some_octets(choices, 64))
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
    assert!(!format!("{message:?}").is_empty());
    if let Message::Msg(rpc) | Message::NoMsg(rpc) | Message::MsgP(_, rpc) = &message {
        walk(rpc, data.len());
    }
    let mut room = vec![0; data.len()];
    let mut w = Writer::new(&mut room);
    message.encode(&mut w).expect("it is as long as it was");
    let length = w.position();
    // The words that RFC 5666 has behind ERR_CHUNK are ignored and not kept.
    let kept = length == data.len() || !matches!(message, Message::Error { .. });
    room.truncate(length);
    kept.then_some(room)
}

/// Checks that lists yield as many entries as they count, and no more than their octets hold.
fn walk(rpc: &Rpc<'_>, length: usize) {
    let runs = rpc.reads.chunks().count();
    assert_eq!(u32::try_from(runs), Ok(rpc.reads.chunk_count()), "runs are what was counted");
    let reads = rpc.reads.entries().count();
    let chunks = rpc.writes.chunks().count();
    assert_eq!(u32::try_from(chunks), Ok(rpc.writes.chunk_count()), "chunks are what was counted");
    let all = rpc.segments().count();
    assert!(runs <= reads && reads <= all, "each segment is one of the header's");
    assert!(reads * 24 + (all - reads) * 16 + chunks * 8 <= length, "and has its octets there");
    assert_eq!(rpc.is_read(), rpc.reads.entries().any(|(position, _)| position == 0));
}

fn valid_private_data(choices: &mut Choices) -> Vec<u8> {
    let before = vec![0; choices.below(8)];
    let sizes = [octet(choices), octet(choices)];
    let flags = u8::from(choices.one_in(2));
    let ours = Octets(before).words(&[0xf6ab_0e18]).put(&[1, flags]).put(&sizes);
    ours.put(&some_octets(choices, 16)).0
}

fn private_data_again(data: &[u8]) -> Option<Vec<u8>> {
    let found = bounded(data.len(), || PrivateData::find(data))?;
    let mut written = [0; PrivateData::WIRE_LEN];
    found.encode(&mut Writer::new(&mut written)).expect("it has that length");
    // The bits beside R are ignored, so any octet may be where the encoder writes zero.
    let same = |octets: &[u8]| {
        let masked =
            octets.iter().enumerate().map(|(at, octet)| if at == 5 { octet & 1 } else { *octet });
        masked.eq(written)
    };
    let at = data.windows(written.len()).position(same).expect("what was found is there");
    let mut again = data.to_vec();
    again[at..at + written.len()].copy_from_slice(&written);
    Some(again)
}
