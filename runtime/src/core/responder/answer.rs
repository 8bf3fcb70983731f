//! A Reply that is complete: in which format it goes, and the Writes of its result.

use std::ops::Range;

use haulage_mr_pool::{Local, Source};
use haulage_proto::chunk;
use haulage_proto::exchange::{self, Format, Offer, OfferedChunk};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Flags, Segment};

use crate::core::common::Common;
use crate::core::connection::Terms;
use crate::core::memory::Charge;
use crate::core::program::Offers;
use crate::core::segments::Segments;
use crate::core::table::ConnectionKey;
use crate::core::work::{Held, Name, PostedData};
use crate::limits::HEADER_ROOM;
use crate::provider::{Operation, Port, WorkRequest};
use crate::service::{Data, Reply};

/// A Reply that waits for credit.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The message: room for its transport header, then the Payload stream unless `body` has it.
    pub(crate) buffer: Local,
    pub(super) body: Option<Local>,
    /// Octets of the Payload stream.
    pub(super) length: usize,
    /// Whether the Payload stream goes into the Reply chunk.
    pub(super) is_special: bool,
    /// The reduced result.
    pub(super) data: Data,
}

impl Answer {
    /// Makes one that goes in its message, whose Payload stream of so many octets is in `buffer`.
    pub(crate) const fn complete(buffer: Local, length: usize, data: Data) -> Self {
        Self { buffer, body: None, length, is_special: false, data }
    }

    /// Chooses how a Reply goes to a Call that offers this.
    ///
    /// # Errors
    /// It fits neither the message nor what was offered. The buffer comes back.
    pub(crate) fn new(
        mut reply: Reply,
        terms: &Terms,
        offers: &Offers<'_>,
    ) -> Result<Self, (Local, ErrorBody)> {
        let length = reply.at;
        let rest = u32::try_from(length).unwrap_or(u32::MAX);
        let format = match offers.reply {
            // What fits the room that was given fits the message.
            None => Some(Format::Simple),
            Some(_) => exchange::reply_format(&terms.replies, &offer(offers), rest),
        };
        let Some(format) = format else {
            return Err((reply.buffer, ErrorBody::ReplyResource { length_needed: rest }));
        };
        let is_special = format == Format::Special;
        if !is_special && let Some(body) = reply.body.take() {
            let inline = reply.buffer.bytes_mut().get_mut(HEADER_ROOM..HEADER_ROOM + length);
            if let (Some(inline), Some(bytes)) = (inline, body.bytes().get(..length)) {
                inline.copy_from_slice(bytes);
            }
        }
        let Reply { buffer, body, data, .. } = reply;
        Ok(Self { buffer, body, length, is_special, data })
    }
}

/// Returns what a Call offers for its Reply.
fn offer(offers: &Offers<'_>) -> Offer {
    let offered = |chunk: &Segments| OfferedChunk {
        length: u32::try_from(chunk.length()).unwrap_or(u32::MAX),
        segments: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
    };
    let mut offer = Offer { reply: offers.reply.map(offered), ..Offer::default() };
    let fits = offers.write.is_none_or(|write| offer.writes.push(offered(write)));
    debug_assert!(fits, "one chunk is few");
    offer
}

/// Gives the Writes of a result to `port`, or to the queue of the connection from the first on that it
/// does not take. The last tells when they are done; `data` and `charge` are held until then. Returns `data`
/// if there was nothing to write.
pub(crate) fn stage_writes(
    common: &mut Common,
    key: ConnectionKey,
    data: PostedData,
    charge: &mut Charge,
    write: &[Segment],
    port: &mut (impl Port + ?Sized),
) -> PostedData {
    let Some(connection) = common.connections.get_mut(key) else { return data };
    let mut last: Option<WorkRequest> = None;
    let sources = |range, each: &mut dyn FnMut(Source)| data.sources(range, each);
    writes(write, data.len(), sources, |request| {
        if let Some(request) = last.replace(request) {
            connection.stage(request, port);
        }
    });
    let Some(mut request) = last else { return data };
    let held = Held::Written { data, charge: std::mem::take(charge) };
    request.id = common.posted.enter(key, held);
    request.flags.signaled = true;
    connection.stage(request, port);
    PostedData::None
}

/// Tells `each` the Writes that fill a chunk of the peer's with `length` octets, of which `sources` tells which
/// views a range of them takes.
#[inline]
pub(super) fn writes(
    segments: &[Segment],
    length: usize,
    sources: impl Fn(Range<usize>, &mut dyn FnMut(Source)),
    mut each: impl FnMut(WorkRequest),
) {
    // [V2-4.5.2.1-1] contiguously, in segment order.
    for (claim, range) in chunk::fill(segments, length) {
        let mut at = 0;
        sources(range, &mut |source| {
            let part = u32::try_from(source.len()).unwrap_or(u32::MAX);
            let Ok(target) = claim.window(at, part) else { return };
            at += u64::from(part);
            let operation = Operation::Write { source, target };
            let id = Name::Unsignaled.wr_id();
            each(WorkRequest { id, flags: Flags::default(), operation });
        });
    }
}
