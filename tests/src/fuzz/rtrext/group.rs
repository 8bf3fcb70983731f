//! One end of the extension, with the bytes as the transmissions it receives.

use haulage_proto::rtrext::extension::{Config, Event, Extension};
use haulage_proto::rtrext::placement::Span;
use haulage_proto::rtrext::properties::Offer;
use haulage_proto::rtrext::structure::{BufferSegment, Structure};
use haulage_proto::rtrext::{CODE_BASE, REPTERR};
use haulage_proto::v2::connection::ChunkLimits;
use haulage_proto::v2::header::Prefix;
use haulage_proto::v2::properties::{Properties, PropertySet};
use haulage_proto::xdr::{Reader, Writer};

use super::super::bound::bounded;
use super::super::octets::{Octets, short, some_octets, spoil, word};
use super::{body, directions};
use crate::world::choices::Choices;

pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut end = extension(&mut choices);
    let mut lengths = Vec::new();
    while !choices.is_spent() {
        let xid = short(choices.of(1..=2));
        let kind = choices.pick(&[1, 1, 2, 2, 3, 3, 3, 4, 5]);
        let prefix = Prefix { xid, vers: 2, credit: 0, htype: CODE_BASE | kind };
        match kind {
            5 => {
                let htype = short(choices.of(4..=13));
                let told = end.base_message(&Prefix { htype, ..prefix });
                assert!(told.is_none_or(|report| report.bad.xid == xid), "what broke it is named");
            }
            _ => receive(&mut end, &mut choices, &prefix, &mut lengths),
        }
        if choices.one_in(4) {
            end.release();
            assert!(end.whole().is_none(), "what was released is gone");
        }
    }
}

fn extension(choices: &mut Choices) -> Extension {
    let segment = |length, flags| BufferSegment { length, align: 4, flags };
    let structures = [
        None,
        Structure::new(&[segment(256, 0), segment(4096, 1)]),
        Structure::new(&[segment(128, 0), segment(16, 1), segment(16, 1), segment(4096, 0)]),
    ];
    let offer = Offer {
        support: short(choices.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7])),
        structure: choices.pick(&structures),
        request_receive_max: short(choices.of(1..=4)),
        response_send_max: 4,
    };
    let limits = ChunkLimits { read_chunks_max: 2, write_chunks_max: 2, segments_max: 2 };
    let responses_max = short(choices.of(1..=4));
    let mut end = Extension::new(Config { offer, responses_max, chunks: limits });
    // Two ends with equal offers agree on all of it, so the peer makes the same offer.
    let mut room = [0; 512];
    let mut w = Writer::new(&mut room);
    let entries = offer.entries();
    w.u32(short(entries.len())).expect("four properties are short");
    for (which, data) in &entries {
        w.u32(*which).and_then(|()| w.opaque(data)).expect("four properties are short");
    }
    let set = PropertySet::decode(&mut Reader::new(w.written())).expect("our own properties");
    let heard = end.heard(&set).expect("our own properties");
    end.heed(heard);
    end.agree(&Properties::default(), &Properties::default());
    end
}

fn receive(end: &mut Extension, choices: &mut Choices, prefix: &Prefix, lengths: &mut Vec<usize>) {
    let mut octets = transmission(choices, prefix);
    if choices.one_in(8) {
        spoil(choices, &mut octets);
    }
    let event = bounded(octets.len(), || end.receive(prefix, &octets));
    if let Event::Refused(refusal) = event {
        assert!(!refusal.rule.is_empty());
        assert!(prefix.htype != REPTERR || refusal.answer.is_none(), "an error is never answered");
    }
    lengths.push(octets.len() + Prefix::WIRE_LEN);
    if !matches!(event, Event::Complete) {
        return assert!(end.whole().is_none(), "nothing is whole without its last transmission");
    }
    let whole = end.whole().expect("it was just said to be complete");
    // No message refers to octets that did not arrive.
    let longest = lengths.iter().copied().max().unwrap_or(0);
    for item in whole.placement.items() {
        let pieces = whole.placement.pieces(&item);
        let mut placed = 0;
        for piece in pieces {
            assert!(piece.message.end <= longest, "a piece beyond its message");
            assert_eq!(piece.message.len(), piece.range.len());
            placed += piece.message.len();
        }
        assert!(placed == 0 || u32::try_from(placed) == Ok(item.length), "all of it or nothing");
    }
    let spans = whole.placement.stream().take(1 << 12).inspect(|span| match span {
        Span::Payload(_, range) => assert!(range.end <= longest, "a span beyond its message"),
        Span::Item(..) => {}
        Span::Pad(count) => assert!(*count < 4, "padding completes a unit"),
    });
    assert!(spans.count() < 1 << 12, "as many spans as items and transmissions");
}

/// Draws the body of a transmission, mostly a valid one: short items that fit somewhere, and the
/// right Payload length.
fn transmission(choices: &mut Choices, prefix: &Prefix) -> Vec<u8> {
    let kind = prefix.htype & 0xff;
    if choices.one_in(4) {
        return body(Octets::default(), choices, kind).0;
    }
    let pslen = 4 * choices.of(1..=8);
    let bulk = some_octets(choices, 128);
    let (count, number) = (short(choices.of(1..=3)), short(choices.below(4)));
    let stream = match kind {
        1 => directions(dp(choices), choices).words(&[count, number, short(pslen)]),
        2 => dp(choices).words(&[count, short(pslen)]),
        3 => Octets::default().words(&[number, 0, short(pslen)]),
        _ => return body(Octets::default(), choices, kind).0,
    };
    let stream = if kind == 3 { stream } else { stream.words(&[prefix.xid]) };
    let inside = if kind == 3 { pslen } else { pslen - 4 };
    stream.put(&vec![0; inside]).put(&bulk).0
}

/// Draws items in buffer segments with low numbers.
fn dp(choices: &mut Choices) -> Octets {
    let count = choices.of(0..=2);
    let mut disp = 0;
    (0..count).fold(Octets::default().words(&[short(count)]), |stream, at| {
        disp += 4 * short(choices.of(1..=4));
        let length = if choices.one_in(8) { word(choices) } else { short(choices.below(40)) };
        stream.words(&[disp, length, 2, 0, 1, short(at)])
    })
}
