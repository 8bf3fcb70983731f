//! Payload streams from which an item was reduced.

use haulage_proto::chunk::payload::{Item, PayloadReader};

use super::bound::bounded;
use super::octets::{short, some_octets, word};
use crate::world::choices::Choices;

pub(super) mod restore;

/// Reads a stream in an order that the bytes choose.
pub(super) fn payload_reader(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let payload = some_octets(&mut choices, 255);
    let at = choices.of(0..=payload.len());
    let mut r = if choices.one_in(2) {
        let position = short(choices.below(64)) * choices.pick(&[1, 4]);
        let chunk = choices.one_in(2).then(|| (position, word(&mut choices).into()));
        PayloadReader::call(&payload, at, chunk)
    } else {
        let reduced = choices.one_in(2).then(|| word(&mut choices));
        PayloadReader::reply(&payload, at, reduced)
    };
    let mut items_reduced = 0;
    while !choices.is_spent() {
        let before = r.position();
        let max = choices.pick(&[0, 1, 16, usize::MAX]);
        let taken = bounded(payload.len(), || match choices.below(4) {
            0 => r.u32().map(|_| 4),
            1 => r.u64().map(|_| 8),
            2 => r.opaque(max).map(|octets| 4 + octets.len().next_multiple_of(4)),
            _ => r.eligible_opaque(max).map(|item| match item {
                Item::Unreduced(octets) => 4 + octets.len().next_multiple_of(4),
                Item::Reduced { .. } => {
                    items_reduced += 1;
                    4
                }
            }),
        });
        if let Ok(taken) = taken {
            assert_eq!(r.position(), before + taken, "an item takes its octets and no more");
        }
        assert!(before <= r.position() && r.position() <= payload.len());
        assert_eq!(r.rest(), &payload[r.position()..]);
    }
    assert!(items_reduced <= 1, "one chunk stands for one item");
    assert!(!r.is_empty() || r.rest().is_empty());
}
