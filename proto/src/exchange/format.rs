//! Payload formats (version 2, section 6.6; version 1 has the first and the last), and how long the
//! transport headers are that say so.

pub use crate::chunk::Format;
use crate::chunk::{ReadList, Version, WriteList};
use crate::v2::continuation::Split;
use crate::v2::header::Prefix;

/// Segments in the lists of a Call's header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallLists {
    /// Segments of the Call chunk, in a Special Call.
    pub(super) call: Option<u32>,
    /// Segments of all data item chunks.
    pub(super) reads: u32,
    /// Segments of the Reply chunk.
    pub(super) reply: Option<u32>,
}

impl CallLists {
    /// Returns the octets of the header; `writes` are the segments in each Write chunk.
    pub(super) fn wire_len(&self, version: Version, writes: impl Iterator<Item = u32>) -> usize {
        let call = self.call.unwrap_or_default();
        let lists = match version {
            // One list for both.
            Version::One => ReadList::wire_len(count(self.reads.saturating_add(call))),
            Version::Two => {
                let call = self.call.map_or(0, |call| ReadList::wire_len(count(call)));
                // rdma_inv_handle goes before them.
                ReadList::wire_len(count(self.reads)).saturating_add(call).saturating_add(4)
            }
        };
        PREFIX
            .saturating_add(lists)
            .saturating_add(WriteList::wire_len(writes.map(count)))
            .saturating_add(WriteList::wire_len_optional(self.reply.map(count)))
    }
}

/// Returns the octets of a Reply's header: `writes` are the segments in each Write chunk, `reply` those
/// of the Reply chunk of a Special Reply.
pub fn reply_wire_len(
    version: Version,
    writes: impl Iterator<Item = u32>,
    reply: Option<u32>,
) -> usize {
    let writes = WriteList::wire_len(writes.map(count)).saturating_add(PREFIX);
    let reply_chunk = WriteList::wire_len_optional(reply.map(count));
    match (version, reply) {
        // An empty Read list, and the Reply chunk or its absence.
        (Version::One, _) => writes.saturating_add(4).saturating_add(reply_chunk),
        (Version::Two, Some(_)) => writes.saturating_add(reply_chunk),
        (Version::Two, None) => writes,
    }
}

/// Returns how many messages of at most `threshold` octets convey `payload` octets, when the header
/// of the last has `header`; `None` if no number of them does.
pub(super) fn messages(
    version: Version,
    threshold: u32,
    header: usize,
    payload: usize,
) -> Option<u32> {
    let threshold = count(threshold);
    match version {
        Version::One => (header.checked_add(payload)? <= threshold).then_some(1),
        // [V2-6.6.2-1] divided wherever a message is full.
        Version::Two => Split::new(payload, threshold, header).map(|split| split.messages()),
    }
}

/// Returns the format a number of messages amounts to, if so many may be sent.
pub(super) fn in_messages(messages: Option<u32>, messages_max: u32) -> Option<Format> {
    match messages? {
        1 => Some(Format::Simple),
        messages => (messages <= messages_max).then_some(Format::Continued { messages }),
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Octets of the common prefix, in both versions.
const PREFIX: usize = Prefix::WIRE_LEN;
