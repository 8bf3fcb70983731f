//! ONC RPC message headers, of Calls and of Replies.

use haulage_proto::rpc::{CallHeader, ReplyHeader};
use haulage_proto::xdr::Writer;

use super::Codec;
use super::bound::bounded;
use super::octets::{Octets, any_word, short, some_octets, word};
use crate::world::choices::Choices;

/// A header, and any octets behind it.
pub(super) const HEADER: Codec = Codec { valid, again };

fn valid(choices: &mut Choices) -> Vec<u8> {
    let xid = any_word(choices);
    let header = if choices.one_in(2) { call(xid, choices) } else { reply(xid, choices) };
    header.put(&some_octets(choices, 16)).0
}

fn call(xid: u32, choices: &mut Choices) -> Octets {
    let procedure = [word(choices), word(choices), word(choices)];
    let header = Octets::default().words(&[xid, 0, 2]).words(&procedure);
    let header = credential(header, choices);
    credential(header, choices)
}

fn credential(header: Octets, choices: &mut Choices) -> Octets {
    match choices.below(3) {
        0 => header.words(&[0, 0]),
        1 => {
            let machine = some_octets(choices, 255);
            let gids: Vec<_> = (0..choices.of(0..=16)).map(|_| word(choices)).collect();
            let body = Octets::default().words(&[word(choices)]).opaque(&machine);
            let body = body.words(&[word(choices), word(choices), short(gids.len())]).words(&gids);
            header.words(&[1]).opaque(&body.0)
        }
        _ => header.words(&[word(choices)]).opaque(&some_octets(choices, 400)),
    }
}

fn reply(xid: u32, choices: &mut Choices) -> Octets {
    let header = Octets::default().words(&[xid, 1]);
    let (a, b) = (word(choices), word(choices));
    match choices.below(8) {
        6 => header.words(&[1, 0, a, b]),
        7 => header.words(&[1, 1, a]),
        2 => header.words(&[0, 0, 0, 2, a, b]),
        stat => header.words(&[0, 0, 0, short(stat)]),
    }
}

fn again(data: &[u8]) -> Option<Vec<u8>> {
    let call = bounded(data.len(), || CallHeader::decode(data));
    let reply = bounded(data.len(), || ReplyHeader::decode(data));
    assert!(call.is_err() || reply.is_err(), "a Call is no Reply");
    let mut room = vec![0; data.len()];
    let mut w = Writer::new(&mut room);
    let end = match (call, reply) {
        (Ok((header, end)), _) => header.encode(&mut w).map(|()| end),
        // A verifier is not kept: only an empty one is encoded again.
        (_, Ok((header, end))) if !data[8..].starts_with(&[0; 4]) || data[12..20] == [0; 8] => {
            header.encode(&mut w).map(|()| end)
        }
        _ => return None,
    };
    let end = end.expect("it is as long as it was");
    assert_eq!(w.position(), end, "what follows the header starts where it was written to end");
    w.put(&data[end..]).expect("the rest fits");
    Some(room)
}
