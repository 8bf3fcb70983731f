//! A Call as its message describes it, in whichever form it came.

use std::ops::Range;

use haulage_proto::chunk::WriteChunk;
use haulage_proto::negotiate::{self, Engine, Received};
use haulage_proto::rtrext::item::Location;
use haulage_proto::rtrext::{Extension, XMTRESP};
use haulage_proto::v1::header::Padding;
use haulage_proto::v1::private_data::Agreement;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::Message;
use haulage_proto::verbs::Handle;

use super::directing::Directing;
use crate::core::gathered::{Gathered, parts, payload_of, wire};
use crate::core::program::{ArgumentSource, ReadChunk};
use crate::items::Items;
use crate::limits::CHUNKS_MAX;
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
    /// How the results are to come, if the Call says that.
    pub(super) directing: Option<Box<Directing>>,
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
            return Self::with_items(two.extension()?, message, gathered);
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
            directing: None,
            refused: None,
        })
    }

    /// Describes a Call in transmissions, whose items were checked as it arrived.
    #[cold]
    fn with_items(
        extension: &Extension,
        message: &'a [u8],
        gathered: Option<&Gathered>,
    ) -> Option<Self> {
        let whole = &extension.whole()?;
        let answers = extension.terms().is_some_and(|terms| terms.allows(XMTRESP));
        let payload_at = payload_of(whole);
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
        let directions = || whole.rsd.iter().flat_map(|set| set.items.iter());
        let is_directing = directions().next().is_some();
        let segments = |chunk: &WriteChunk<'_>| Segments::collect(chunk.segments());
        let writes = directions().take(CHUNKS_MAX as usize);
        let writes = writes.map(|direction| direction.place.segments().map(segments));
        let refused = match directions().count() {
            0 => None,
            // Replies go by the base protocol, and follow no directions.
            _ if !answers => Some(ErrorBody::WriteChunks { max: 0 }),
            count if count > CHUNKS_MAX as usize => {
                Some(ErrorBody::WriteChunks { max: CHUNKS_MAX })
            }
            _ => None,
        };
        Some(Self {
            xid: whole.xid,
            invalidate: None,
            body: Segments::default(),
            reads: reads.collect(),
            writes: writes.map(Option::unwrap_or_default).collect(),
            reply: None,
            payload: message
                .get(payload_at.start as usize..payload_at.end as usize)
                .unwrap_or_default(),
            payload_at,
            padding: None,
            directing: is_directing.then(|| Box::new(Directing::new(whole.asked()))),
            refused,
        })
    }
}
