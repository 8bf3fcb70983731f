//! The round-trip extensions: their headers, and groups of transmissions.

use haulage_proto::rtrext::direction::DirectionSet;
use haulage_proto::rtrext::header::{self, Header};
use haulage_proto::rtrext::{CODE_BASE, Items};
use haulage_proto::xdr::Writer;

use super::Codec;
use super::bound::bounded;
use super::octets::{Octets, any_word, segments, short, some_octets, word};
use crate::world::choices::Choices;

pub(super) mod group;

/// Messages of the four header types.
pub(super) const MESSAGE: Codec = Codec { valid, again };

fn valid(choices: &mut Choices) -> Vec<u8> {
    let (xid, kind) = (any_word(choices), short(choices.of(1..=4)));
    let prefix = Octets::default().words(&[xid, 2, word(choices), CODE_BASE | kind]);
    body(prefix, choices, kind).0
}

fn body(prefix: Octets, choices: &mut Choices, kind: u32) -> Octets {
    match kind {
        1 => {
            let lists = directions(items(prefix, choices), choices);
            let rest = lists.words(&[word(choices), word(choices), word(choices)]);
            rest.put(&some_octets(choices, 64))
        }
        2 => {
            let rest = items(prefix, choices).words(&[word(choices), word(choices)]);
            rest.put(&some_octets(choices, 64))
        }
        3 => {
            let rest = prefix.words(&[word(choices), word(choices), word(choices)]);
            rest.put(&some_octets(choices, 64))
        }
        _ => report(prefix, choices),
    }
}

/// Appends an `xmdp_grpinfo`.
fn items(stream: Octets, choices: &mut Choices) -> Octets {
    let count = choices.of(0..=3);
    (0..count).fold(stream.words(&[short(count)]), |stream, _| {
        let kind = choices.pick(&[1, 2, 5, 6]);
        let item = stream.words(&[word(choices), word(choices), kind]);
        match kind {
            1 => item.chunk(&segments(choices, 0)),
            2 => {
                let numbers: Vec<_> = (0..choices.of(0..=3)).map(|_| word(choices)).collect();
                item.words(&[word(choices), short(numbers.len())]).words(&numbers)
            }
            _ => item,
        }
    })
}

/// Appends an `xmdp_rsdgroup`.
fn directions(stream: Octets, choices: &mut Choices) -> Octets {
    let count = choices.of(0..=3);
    (0..count).fold(stream.words(&[short(count)]), |stream, _| {
        let items = choices.of(0..=3);
        let set = stream.words(&[word(choices), word(choices), short(items)]);
        (0..items).fold(set, |set, _| {
            let kind = choices.pick(&[1, 2, 3, 4]);
            let item = set.words(&[word(choices), kind]);
            match kind {
                2 => item,
                4 => item.words(&[word(choices)]).chunk(&segments(choices, 0)),
                _ => item.chunk(&segments(choices, 0)),
            }
        })
    })
}

fn report(stream: Octets, choices: &mut Choices) -> Octets {
    let id = |stream: Octets, choices: &mut Choices| {
        stream.words(&[word(choices), short(choices.below(2)), word(choices)])
    };
    let stream = id(stream, choices);
    let stream =
        if choices.one_in(2) { id(stream.words(&[1]), choices) } else { stream.words(&[0]) };
    let code = short(choices.of(1..=8));
    let (a, b, c) = (word(choices), word(choices), word(choices));
    match code {
        3 => stream.words(&[code]),
        6.. => stream.words(&[code, a, b, c]),
        _ => stream.words(&[code, a, b]),
    }
}

fn again(data: &[u8]) -> Option<Vec<u8>> {
    let (prefix, header) = match bounded(data.len(), || header::decode(data)) {
        Ok(decoded) => decoded,
        Err(fault) => {
            assert!(fault.at <= data.len(), "{fault}: not in the message");
            return None;
        }
    };
    assert_eq!(prefix.htype, header.htype());
    assert!(!format!("{header:?}").is_empty());
    match &header {
        Header::Request(request) => {
            walk(&request.dp, data.len());
            let sets: usize =
                request.rsd.iter().map(|set: DirectionSet<'_>| set.items.iter().count()).sum();
            assert!(
                request.rsd.iter().count() * 12 + sets * 8 <= data.len(),
                "a direction has its octets"
            );
        }
        Header::Response(response) => walk(&response.dp, data.len()),
        Header::Continue(_) | Header::Report(_) => {}
    }
    let mut room = vec![0; data.len()];
    let mut w = Writer::new(&mut room);
    let written = prefix.encode(&mut w).and_then(|()| header.encode(&mut w));
    written.expect("it is as long as it was");
    let length = w.position();
    room.truncate(length);
    Some(room)
}

/// Checks that an array yields as many items as it counts, and no more than its octets hold.
fn walk(items: &Items<'_>, length: usize) {
    let yielded = items.iter().count();
    assert_eq!(u32::try_from(yielded), Ok(items.len()), "items are what was counted");
    assert!(yielded * 12 <= length, "an item has three words at least");
}
