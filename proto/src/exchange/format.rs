//! Payload formats (version 2, section 6.6; version 1 has Simple and Special format only), and the
//! lengths of their transport headers.

pub use crate::chunk::Format;
use crate::chunk::{ReadList, Version, WriteList};
use crate::v2::continuation::Split;
use crate::v2::header::Prefix;

/// The number of segments in each list of a Call's header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallLists {
    /// The segments of the Call chunk, in a Special Call.
    pub(super) call: Option<u32>,
    /// The segments of all data item chunks.
    pub(super) reads: u32,
    /// The segments of the Reply chunk.
    pub(super) reply: Option<u32>,
}

impl CallLists {
    /// Returns the length of the header in octets; `writes` yields the number of segments of each
    /// Write chunk.
    pub(super) fn wire_len(&self, version: Version, writes: impl Iterator<Item = u32>) -> usize {
        let call = self.call.unwrap_or_default();
        let lists = match version {
            // Version 1 has one list for Read chunks and the Call chunk.
            Version::One => ReadList::wire_len(count(self.reads.saturating_add(call))),
            Version::Two => {
                let call = self.call.map_or(0, |call| ReadList::wire_len(count(call)));
                // The 4 octets are rdma_inv_handle, which stands before the lists.
                ReadList::wire_len(count(self.reads)).saturating_add(call).saturating_add(4)
            }
        };
        PREFIX
            .saturating_add(lists)
            .saturating_add(WriteList::wire_len(writes.map(count)))
            .saturating_add(WriteList::wire_len_optional(self.reply.map(count)))
    }
}

/// Returns the length of a Reply's header in octets. `writes` yields the number of segments of each Write chunk;
/// `reply` is the number of segments of the Reply chunk, in a Special Reply.
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

/// Returns the number of messages of at most `threshold` octets that convey `payload` octets if the
/// header of the last one has `header` octets; `None` if no number of messages does.
pub(super) fn messages(
    version: Version,
    threshold: u32,
    header: usize,
    payload: usize,
) -> Option<u32> {
    let threshold = count(threshold);
    match version {
        Version::One => (header.checked_add(payload)? <= threshold).then_some(1),
        // [V2-6.6.2-1] a continued message is divided wherever a message is full.
        Version::Two => Split::new(payload, threshold, header).map(|split| split.messages()),
    }
}

/// Returns the format of an RPC message sent in `messages` messages, if `messages_max` allows them.
pub(super) fn in_messages(messages: Option<u32>, messages_max: u32) -> Option<Format> {
    match messages? {
        1 => Some(Format::Simple),
        //~ V2-6.6.2-1: `<= messages_max` -> `< messages_max.min(1)`
        messages => (messages <= messages_max).then_some(Format::Continued { messages }),
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The length of the common prefix in octets, in both versions.
const PREFIX: usize = Prefix::WIRE_LEN;
