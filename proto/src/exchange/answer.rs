//! The Responder's plan of a Reply, within the chunks that the Requester offered.

use super::format::{Format, in_messages, messages, reply_wire_len};
use super::terms::Terms;
use crate::chunk::{DataItem, Few, Segments, Version, WriteChunk, WriteList};
use crate::v2::error::ErrorBody;

/// The chunks that a Call offers for its Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The Write chunks, in order.
    pub writes: Few<OfferedChunk>,
    /// The Reply chunk.
    pub reply: Option<OfferedChunk>,
}

/// One chunk that was offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferedChunk {
    /// The length of the chunk in octets.
    pub length: u32,
    /// The number of segments of the chunk.
    pub segments: u32,
}

impl Offer {
    /// Reads the offer from the chunk lists of a Call. Returns `None` if there are more Write
    /// chunks than a planned Reply can return.
    pub fn of(writes: &WriteList<'_>, reply: Option<WriteChunk<'_>>) -> Option<Self> {
        let writes = Few::collect(writes.chunks().map(|chunk| OfferedChunk::of(chunk.segments())))?;
        Some(Self { writes, reply: reply.map(|chunk| OfferedChunk::of(chunk.segments())) })
    }
}

impl OfferedChunk {
    fn of(segments: Segments<'_>) -> Self {
        let count = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        // A decoded chunk is never longer than `u32::MAX`, so the sum does not saturate.
        let length = segments.fold(0_u32, |sum, segment| sum.saturating_add(segment.length));
        Self { length, segments: count }
    }

    const fn holds(&self, length: u32) -> bool {
        self.length >= length
    }
}

/// The Reply to plan, whose results are known.
#[derive(Clone, Copy, Debug)]
pub struct ReplyShape<'a> {
    /// The length of the unreduced Payload stream in octets, the RPC header included: a multiple of
    /// the XDR unit.
    pub length: u32,
    /// The DDP-eligible results in order; `None` stands for a result that is absent from this
    /// Reply.
    pub items: &'a [Option<DataItem>],
    /// Whether the credential permits reduction: [`Credential::may_reduce`].
    ///
    /// [`Credential::may_reduce`]: crate::rpc::Credential::may_reduce
    pub may_reduce: bool,
}

/// The plan of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// The format that conveys the Payload stream.
    pub format: Format,
    /// The length of the reduced Payload stream, in messages or in the Reply chunk, in octets.
    pub rest: u32,
    /// The use of each Write chunk that was offered. The Reply returns all of them, each with its
    /// segments and the lengths computed by [`chunk::plan::filled`](crate::chunk::plan::filled). It
    /// returns a Reply chunk in Special format only.
    pub writes: Few<WriteUse>,
}

impl ReplyPlan {
    /// Returns whether the plan reduces the result of this index.
    pub fn reduces(&self, result: usize) -> bool {
        self.writes.get(result).is_some_and(|used| used.reduces)
    }
}

/// The use of one Write chunk by a Reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteUse {
    /// Whether the result of the same index is reduced into the chunk.
    pub reduces: bool,
    /// The number of octets written into the chunk: the result without padding.
    pub length: u32,
}

/// The offered chunk that is too short to convey a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// A Write chunk is too short.
    Write {
        /// The number of the Write chunk, from 1.
        index: u32,
        /// The length it needs, in octets.
        needed: u32,
    },
    /// The Reply chunk is absent or too short.
    Reply {
        /// The length it needs, in octets.
        needed: u32,
    },
}

impl Shortage {
    /// Returns the shortage for a result of `length` octets that fits neither the Write chunk of this `index`, which
    /// has `offered` octets, nor the message. The Payload stream has `rest` octets if the result stays in it.
    ///
    /// A Write chunk of no octets requests an inline result, so that the Reply chunk is the one that is too short.
    pub const fn of_result(index: u32, offered: u32, length: u32, rest: u32) -> Self {
        if offered > 0 {
            //~ V2-7.3.4-3: `length` -> `length.saturating_sub(offered)`
            Self::Write { index, needed: length }
        } else {
            //~ V2-7.3.5-2: `rest` -> `length`
            Self::Reply { needed: rest }
        }
    }

    /// Returns the error to answer with on version 2. The answer on version 1 is `ERR_CHUNK` for
    /// both shortages.
    pub const fn report(self) -> ErrorBody {
        match self {
            // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3]
            Self::Write { index, needed } => {
                //~ V2-7.3.4-2: `chunk_index: index` -> `chunk_index: index.saturating_add(1)`
                ErrorBody::WriteResource { chunk_index: index, length_needed: needed }
            }
            // [V2-7.3.5-1] [V2-7.3.5-2]
            //~ V2-7.3.5-1: `ReplyResource {` -> `WriteResource { chunk_index: 0,`
            Self::Reply { needed } => ErrorBody::ReplyResource { length_needed: needed },
        }
    }
}

/// Plans a Reply.
///
/// Each Write chunk takes the DDP-eligible result of the same number, if it is long enough. The rest of the Reply is
/// sent in one message if it fits, else in the Reply chunk, else, on version 2, in as many messages as the terms allow.
/// On version 1 a Reply chunk that was offered is used however short the Reply is: Linux servers do so, and Linux
/// clients rely on it (E23). What its Write chunk takes is reduced first (E29); a result that is longer stays in the Payload
/// stream (E19).
///
/// # Errors
/// Returns the first chunk that is too short, and the length it needs.
pub fn plan_reply(
    terms: &Terms,
    offer: &Offer,
    shape: &ReplyShape<'_>,
) -> Result<ReplyPlan, Shortage> {
    // [V2-4.5.3-1] a stream of whole units makes a body chunk of whole units.
    debug_assert!(shape.length.is_multiple_of(4), "a Payload stream is made of units");
    let mut writes = Few::default();
    let (mut rest, mut short) = (shape.length, None);
    for (index, chunk) in (1_u32..).zip(offer.writes.iter()) {
        let item = shape.items.get(writes.len()).copied().flatten();
        let length = item.map_or(0, |item| u32::try_from(item.length()).unwrap_or(u32::MAX));
        // [V2-11.2.2.3-2] some credentials forbid reduction, and a chunk without room asks for an inline result.
        let reduces = item.is_some() && shape.may_reduce && chunk.length > 0;
        let used = if reduces && chunk.holds(length) {
            // [V2-4.5.3.1-2] [V2-4.5.2.4-2] the padding leaves the stream, but is not written.
            rest = rest.saturating_sub(padded(length));
            WriteUse { reduces: true, length }
        } else {
            if reduces {
                let lacks = Shortage::of_result(index, chunk.length, length, shape.length);
                short = short.or(Some(lacks));
            }
            WriteUse::default()
        };
        writes.push(used);
    }
    match reply_format(terms, offer, rest) {
        Some(format) => Ok(ReplyPlan { format, rest, writes }),
        // Section 6.6.4: the Write list comes first.
        None => Err(short.unwrap_or(Shortage::Reply { needed: rest })),
    }
}

/// Returns the number of octets that an opaque of `length` octets occupies in a Payload stream after its length word.
pub const fn padded(length: u32) -> u32 {
    match length.checked_next_multiple_of(4) {
        Some(padded) => padded,
        None => u32::MAX,
    }
}

/// Chooses the format of a Reply whose reduced Payload stream has `rest` octets.
pub fn reply_format(terms: &Terms, offer: &Offer, rest: u32) -> Option<Format> {
    let special = offer.reply.filter(|chunk| {
        // The header with the Reply chunk has to fit one message as well.
        let header = reply_header(terms, offer, Some(chunk.segments));
        chunk.holds(rest) && messages(terms.version, terms.reply_threshold, header, 0) == Some(1)
    });
    let special = special.map(|_| Format::Special);
    let payload = usize::try_from(rest).ok()?;
    let header = reply_header(terms, offer, None);
    let messages = messages(terms.version, terms.reply_threshold, header, payload);
    let simple = in_messages(messages, 1);
    match terms.version {
        Version::One => special.or(simple),
        // [V2-6.6.3-3] a Reply chunk is preferred to continuation, and [V2-6.6.4-1] continuation to failure.
        Version::Two => {
            //~ V2-6.6.3-3: `.or(special)` -> ``
            //~ V2-6.6.4-1: `.or_else(|| in_messages(messages, terms.reply_messages_max))` -> ``
            simple.or(special).or_else(|| in_messages(messages, terms.reply_messages_max))
        }
    }
}

fn reply_header(terms: &Terms, offer: &Offer, reply: Option<u32>) -> usize {
    reply_wire_len(terms.version, offer.writes.iter().map(|chunk| chunk.segments), reply)
}

#[cfg(test)]
mod tests;
