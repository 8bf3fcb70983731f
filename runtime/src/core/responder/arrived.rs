//! A Call as its message describes it, in whichever form it came.

use std::ops::Range;

use haulage_proto::negotiate::{self, Engine, Received};
use haulage_proto::rtrext::Extension;
use haulage_proto::rtrext::extension::Whole;
use haulage_proto::rtrext::item::{Location, ReceivedItem};
use haulage_proto::v1::header::Padding;
use haulage_proto::v1::private_data::Agreement;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Message;
use haulage_proto::verbs::Handle;

use crate::core::gathered::Gathered;
use crate::core::program::{ArgumentSource, ReadChunk};
use crate::items::Items;
use crate::outgoing::segments::Segments;

/// A Call that the engine accepted.
#[derive(Debug)]
pub(crate) struct ArrivedCall<'a> {
    pub(super) xid: u32,
    /// The handle that the Reply may invalidate.
    pub(super) invalidate: Option<Handle>,
    /// The Call chunk; empty if the Payload stream is in the message.
    pub(super) body: Segments,
    /// The reduced arguments, in the order of the stream.
    pub(super) reads: Items<ReadChunk>,
    pub(super) writes: Items<Segments>,
    pub(super) reply: Option<Segments>,
    /// The Payload stream in the message.
    pub(super) payload: &'a [u8],
    /// Where in the message that is.
    pub(crate) payload_at: Range<u32>,
    pub(super) padding: Option<Padding>,
    /// Why the Call is not served, whatever it asks for.
    pub(super) refused: Option<ErrorBody>,
}

impl<'a> ArrivedCall<'a> {
    /// Describes the Call that `message` is, or completes. `None` if it is none.
    pub(crate) fn of(
        decoded: &Received<'a>,
        (message, gathered): (&'a [u8], Option<&Gathered>),
        engine: &Engine,
        agreed: &Agreement,
    ) -> Option<Self> {
        if let (Received::Two(Ok(Message::Extended(_))), Engine::Two(two)) = (decoded, engine) {
            let whole = two.extension().and_then(Extension::whole)?;
            return Some(Self::with_items(&whole, message, gathered));
        }
        let call = negotiate::Call::of(decoded, agreed)?;
        let mut reads: Items<ReadChunk> = call.items().map(ReadChunk::of).collect();
        // Version 1 lets the chunks come in any order.
        reads.as_mut_slice().sort_by_key(|read| read.position);
        let writes = call.writes.chunks().map(|chunk| Segments::collect(chunk.segments()));
        Some(Self {
            xid: call.xid,
            invalidate: call.invalidate,
            body: Segments::collect(call.body()),
            reads,
            writes: writes.collect(),
            reply: call.reply.map(|chunk| Segments::collect(chunk.segments())),
            payload: call.payload,
            payload_at: wire(message.len() - call.payload.len())..wire(message.len()),
            padding: call.padding,
            refused: None,
        })
    }

    /// Describes a Call in transmissions, whose items were checked as it arrived.
    #[cold]
    fn with_items(whole: &Whole<'_>, message: &'a [u8], gathered: Option<&Gathered>) -> Self {
        let payload = whole.placement.payload().next().map_or(0..0, |(_, payload)| payload);
        let reads = whole.placement.items().filter_map(|item| {
            let source = match item.place {
                //~ RTR-7.3-2: `chunk.segments()` -> `chunk.segments().take(1)`
                Location::Exrw(chunk) => ArgumentSource::Peer(Segments::collect(chunk.segments())),
                Location::Tbsn { .. } => ArgumentSource::Message(parts(whole, &item, gathered)),
                Location::TooShort | Location::NoItem => return None,
            };
            //~ RTR-7.3-1: `position: item.disp` -> `position: item.disp + 4`
            Some(ReadChunk { position: item.disp, source })
        });
        // Replies go by the base protocol, and follow no directions.
        let refused = !whole.rsd.iter().all(|set| set.items.iter().next().is_none());
        Self {
            xid: whole.xid,
            invalidate: None,
            body: Segments::default(),
            reads: reads.collect(),
            writes: Items::None,
            reply: None,
            payload: message.get(payload.clone()).unwrap_or_default(),
            payload_at: wire(payload.start)..wire(payload.end),
            padding: None,
            refused: refused.then_some(ErrorBody::WriteChunks { max: 0 }),
        }
    }
}

/// Returns the parts of the message that have an item, in order, or the parts of what was gathered. Parts that follow each
/// other are one.
fn parts(
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

/// Returns an offset in a message as a number of 32 bits: no message is longer.
fn wire(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
