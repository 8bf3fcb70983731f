//! A complete Reply, and the choice of its format.

use haulage_mr_pool::Local;
use haulage_proto::exchange::{self, Format, Offer, OfferedChunk};
use haulage_proto::v2::error::ErrorBody;

use crate::core::connection::Terms;
use crate::core::program::Offers;
use crate::limits::HEADER_ROOM;
use crate::outgoing::segments::Segments;
use crate::service::{Data, Reply};

/// A Reply that waits for credit.
#[derive(Debug)]
pub(crate) struct QueuedReply {
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

impl QueuedReply {
    /// Chooses the format of a Reply to a Call with these chunks.
    ///
    /// # Errors
    /// The Reply fits neither a message nor the chunks. It comes back.
    #[expect(clippy::result_large_err, reason = "it is moved back once, not boxed")]
    pub(crate) fn new(
        mut reply: Reply,
        terms: &Terms,
        offers: &Offers<'_>,
    ) -> Result<Self, (Reply, ErrorBody)> {
        let length = reply.at;
        let rest = u32::try_from(length).unwrap_or(u32::MAX);
        let format = match offers.reply {
            // Without a Reply chunk, the Reply had only the room of one message, so it fits.
            None => Some(Format::Simple),
            Some(_) => exchange::reply_format(&terms.replies, &offer(offers), rest),
        };
        let Some(format) = format else {
            return Err((reply, ErrorBody::ReplyResource { length_needed: rest }));
        };
        let is_special = format == Format::Special;
        if !is_special && let Some(body) = reply.body.take() {
            let inline = reply.message.room().get_mut(HEADER_ROOM..HEADER_ROOM + length);
            if let (Some(inline), Some(bytes)) = (inline, body.bytes().get(..length)) {
                inline.copy_from_slice(bytes);
            }
        }
        let Some(buffer) = reply.message.take_buffer() else { panic!("a Reply is in its buffer") };
        let Reply { body, data, .. } = reply;
        Ok(Self { buffer, body, length, is_special, data })
    }
}

/// Describes the chunks that a Call offers for its Reply.
fn offer(offers: &Offers<'_>) -> Offer {
    let offered = |chunk: &Segments| OfferedChunk {
        length: u32::try_from(chunk.length()).unwrap_or(u32::MAX),
        segments: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
    };
    let mut offer = Offer { reply: offers.reply.map(offered), ..Offer::default() };
    let fits = offers.write.is_none_or(|write| offer.writes.push(offered(write)));
    assert!(fits, "one chunk is few");
    offer
}
