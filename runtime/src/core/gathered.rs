//! The octets of a message that came in several transport messages.

use std::ops::Range;

use haulage_mr_pool::Local;
use haulage_proto::rtrext::extension::Whole;
use haulage_proto::rtrext::item::ReceivedItem;

use crate::items::Items;
use crate::limits::TRANSMISSIONS_MAX;

/// The octets of a message in several transport messages.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The Payload stream, room, and what came behind the Payload stream.
    pub(crate) octets: Local,
    /// Octets of the Payload stream.
    pub(crate) payload: usize,
    /// Where the octets begin that came behind the Payload stream, of each transmission of a group.
    pub(crate) behind: [usize; TRANSMISSIONS_MAX as usize],
}

impl Gathered {
    /// Begins with room for all octets.
    pub(crate) const fn of(octets: Local) -> Self {
        Self { octets, payload: 0, behind: [0; TRANSMISSIONS_MAX as usize] }
    }

    /// Returns where the octets begin that came behind the Payload stream in this transmission of a group.
    pub(crate) fn behind(&self, transmission: usize) -> usize {
        self.behind.get(transmission).copied().unwrap_or(usize::MAX)
    }
}

/// Returns the parts of the message that have an item, in order, or the parts of what was gathered. Parts that follow each
/// other are one.
pub(crate) fn parts(
    whole: &Whole<'_>,
    item: &ReceivedItem<'_>,
    gathered: Option<&Gathered>,
) -> Items<Range<usize>> {
    let mut parts = Items::None;
    for piece in whole.placement.pieces(item) {
        let Range { start, end } = match gathered {
            None => piece.message,
            Some(gathered) => {
                // Items are behind the Payload stream of their transmission.
                let mut streams = whole.placement.payload();
                let front = streams.nth(piece.transmission).map_or(0, |(_, stream)| stream.end);
                let at = gathered.behind(piece.transmission);
                //~ RTR-7.2-1: `.saturating_sub(front)` -> ``
                let start = at.saturating_add(piece.message.start.saturating_sub(front));
                start..start.saturating_add(piece.message.len())
            }
        };
        match Items::as_mut_slice(&mut parts).last_mut() {
            Some(Range { end: last, .. }) if *last == start => *last = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

/// Returns where in its message the Payload stream is of a message in one transmission.
pub(crate) fn payload_of(whole: &Whole<'_>) -> Range<u32> {
    let payload = whole.placement.payload().next().map_or(0..0, |(_, payload)| payload);
    wire(payload.start)..wire(payload.end)
}

/// Returns an offset in a message as a number of 32 bits: no message is longer.
pub(crate) fn wire(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
