//! The Responder's plan of a Reply, within what the Requester offered.

use super::format::{Format, in_messages, messages, reply_wire_len};
use super::terms::Terms;
use crate::chunk::{DataItem, Few, Segments, Version, WriteChunk, WriteList};
use crate::v2::error::ErrorBody;

/// What a Call offers for its Reply.
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
    /// Octets it can take.
    pub length: u32,
    /// Segments it has.
    pub segments: u32,
}

impl Offer {
    /// Reads the chunk lists of a Call, or returns `None` if there are more Write chunks than any
    /// Reply here returns.
    pub fn of(writes: &WriteList<'_>, reply: Option<WriteChunk<'_>>) -> Option<Self> {
        let writes = Few::collect(writes.chunks().map(|chunk| OfferedChunk::of(chunk.segments())))?;
        Some(Self { writes, reply: reply.map(|chunk| OfferedChunk::of(chunk.segments())) })
    }
}

impl OfferedChunk {
    fn of(segments: Segments<'_>) -> Self {
        let count = u32::try_from(segments.len()).unwrap_or(u32::MAX);
        // A decoded chunk is not longer than that.
        let length = segments.fold(0_u32, |sum, segment| sum.saturating_add(segment.length));
        Self { length, segments: count }
    }

    const fn holds(&self, length: u32) -> bool {
        self.length >= length
    }
}

/// A Reply to be planned, its results known.
#[derive(Clone, Copy, Debug)]
pub struct ReplyShape<'a> {
    /// Octets of the unreduced Payload stream, RPC header and all: a whole number of units.
    pub length: u32,
    /// The DDP-eligible results in order; `None` for one that is absent from this Reply.
    pub items: &'a [Option<DataItem>],
    /// Whether the credential lets anything be reduced: [`Credential::may_reduce`].
    ///
    /// [`Credential::may_reduce`]: crate::rpc::Credential::may_reduce
    pub may_reduce: bool,
}

/// How to send a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// How its Payload stream goes.
    pub format: Format,
    /// Octets of the reduced Payload stream, in messages or in the Reply chunk.
    pub rest: u32,
    /// What becomes of each Write chunk that was offered. All of them are returned, each with its
    /// segments and the lengths [`chunk::plan::filled`](crate::chunk::plan::filled) gives them. A
    /// Reply chunk is returned in Special format only.
    pub writes: Few<WriteUse>,
}

impl ReplyPlan {
    /// Returns whether a result leaves the Payload stream.
    pub fn reduces(&self, result: usize) -> bool {
        self.writes.get(result).is_some_and(|used| used.reduces)
    }
}

/// What becomes of a Write chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteUse {
    /// Whether the result of the same index leaves the stream.
    pub reduces: bool,
    /// Octets written into the chunk: those of the result, without padding.
    pub length: u32,
}

/// Why a Reply cannot be conveyed by what was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// A Write chunk is too short.
    Write {
        /// Which one, from 1.
        index: u32,
        /// Octets it needs.
        needed: u32,
    },
    /// There is no Reply chunk, or it is too short.
    Reply {
        /// Octets it needs.
        needed: u32,
    },
}

impl Shortage {
    /// Returns what is short for a result of `length` octets that fits neither the Write chunk of this
    /// `index`, which takes `offered` octets, nor the message. The Payload stream has `rest` octets if the
    /// result stays in it.
    ///
    /// A Write chunk that takes nothing asks for an inline result, so the Reply chunk is what is short.
    pub const fn of_result(index: u32, offered: u32, length: u32, rest: u32) -> Self {
        if offered > 0 {
            Self::Write { index, needed: length }
        } else {
            Self::Reply { needed: rest }
        }
    }

    /// Returns what to answer on version 2. On version 1 both are `ERR_CHUNK`.
    pub const fn report(self) -> ErrorBody {
        match self {
            // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3]
            Self::Write { index, needed } => {
                ErrorBody::WriteResource { chunk_index: index, length_needed: needed }
            }
            // [V2-7.3.5-1] [V2-7.3.5-2]
            Self::Reply { needed } => ErrorBody::ReplyResource { length_needed: needed },
        }
    }
}

/// Chooses how to send a Reply.
///
/// Each Write chunk takes the DDP-eligible result of the same number, if it is long enough. What is
/// left goes in one message; else into the Reply chunk; else, on version 2, in as many messages as the
/// terms allow. On version 1 a Reply chunk that was offered is used however short the Reply is, as
/// Linux does, because Linux clients take no other Reply for granted (E23).
///
/// # Errors
/// Returns the first chunk that is too short, and what it needs.
pub fn plan_reply(
    terms: &Terms,
    offer: &Offer,
    shape: &ReplyShape<'_>,
) -> Result<ReplyPlan, Shortage> {
    // [V2-4.5.3-1] so that a body chunk is aligned.
    debug_assert!(shape.length.is_multiple_of(4), "a Payload stream is made of units");
    let mut writes = Few::default();
    let (mut rest, mut short) = (shape.length, None);
    for (index, chunk) in (1_u32..).zip(offer.writes.iter()) {
        let item = shape.items.get(writes.len()).copied().flatten();
        let length = item.map_or(0, |item| u32::try_from(item.length()).unwrap_or(u32::MAX));
        // [V2-11.2.2.3-2] and a chunk that can take nothing asks for an inline result.
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

/// Returns the octets an opaque of `length` octets takes in a Payload stream, behind its length word.
pub const fn padded(length: u32) -> u32 {
    match length.checked_next_multiple_of(4) {
        Some(padded) => padded,
        None => u32::MAX,
    }
}

/// Chooses the format for the `rest` of a Reply: the octets of its Payload stream that are not reduced.
pub fn reply_format(terms: &Terms, offer: &Offer, rest: u32) -> Option<Format> {
    let special = offer.reply.filter(|chunk| {
        // The header that says so has to fit as well.
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
        // [V2-6.6.3-3] the Reply chunk before continuation; [V2-6.6.4-1] continuation before failure.
        Version::Two => {
            simple.or(special).or_else(|| in_messages(messages, terms.reply_messages_max))
        }
    }
}

fn reply_header(terms: &Terms, offer: &Offer, reply: Option<u32>) -> usize {
    reply_wire_len(terms.version, offer.writes.iter().map(|chunk| chunk.segments), reply)
}

#[cfg(test)]
mod tests;
