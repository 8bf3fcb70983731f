//! The most common messages with a chunk: a Call that offers one Read chunk or one Write chunk, and a Reply that
//! returns one Write chunk.

use super::{CALL_INLINE, REPLY_INLINE, Unchunked};
use crate::v2::VERSION;
use crate::v2::continuation::Kind;
use crate::verbs::{Handle, Segment};

/// A Call or a Reply, complete in one message, with one chunk of one segment: a Write chunk, or in a Call a Read chunk
/// that is not at position zero.
///
/// [`decode_transport`](super::decode_transport) decodes the same message; recognising only this
/// form is faster.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleChunk {
    /// The message apart from its chunk.
    pub unchunked: Unchunked,
    /// The handle that the Reply to a Call may invalidate; zero for none.
    pub inv_handle: Handle,
    /// The position of a Read chunk; `None` for a Write chunk.
    pub position: Option<u32>,
    /// The only segment; in a Reply its length is the number of octets written.
    pub segment: Segment,
}

impl SingleChunk {
    /// The length of the transport header of a Call with one chunk of either kind, in octets.
    pub const CALL_LEN: usize = 56;
    /// The length of the transport header of a Reply with one chunk, in octets.
    pub const REPLY_LEN: usize = 44;

    /// Recognises a Call or a Reply with one chunk of one segment. Returns `None` for any other
    /// message, valid or not.
    #[inline]
    pub fn of(message: &[u8]) -> Option<Self> {
        let [xid, vers, _, htype] = words(message, 0)?;
        let named = match (vers, htype) {
            (TWO, CALL) => match words(message, 16)? {
                // No Read list, a Write list of one chunk, no Reply chunk.
                [inv_handle, 0, ONE, ONE, handle, _, _, _, 0, 0] => [inv_handle, handle],
                // A Read list of one segment, no Write list, no Reply chunk.
                [inv_handle, ONE, position, handle, _, _, _, 0, 0, 0]
                    if position != 0 && u32::from_be(position).is_multiple_of(4) =>
                {
                    [inv_handle, handle]
                }
                _ => return None,
            },
            (TWO, REPLY) => match words(message, 16)? {
                [ONE, ONE, handle, _, _, _, 0] => [0, handle],
                _ => return None,
            },
            _ => return None,
        };
        let [inv_handle, handle] = named;
        let payload_at = if htype == CALL { Self::CALL_LEN } else { Self::REPLY_LEN };
        // The message asks to have its own handle invalidated, or none. Its payload begins with its XID (reading E9).
        let in_order = inv_handle == 0 || inv_handle == handle;
        if in_order && words(message, payload_at)? == [xid] { Self::read(message) } else { None }
    }

    /// Reads a message that [`Self::of`] has recognised.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Self> {
        let [xid, _, credit, htype, first, second, third] = words(message, 0)?.map(u32::from_be);
        let is_call = htype == CALL_INLINE;
        let is_read = is_call && second == 1;
        let position = is_read.then_some(third);
        let segment_at = match (is_call, is_read) {
            (true, true) => 28,
            (true, false) => 32,
            (false, _) => 24,
        };
        let [handle, length, high, low] = words(message, segment_at)?.map(u32::from_be);
        let (kind, payload_at) = match is_call {
            true => (Kind::Call, Self::CALL_LEN),
            false => (Kind::Reply, Self::REPLY_LEN),
        };
        #[expect(clippy::cast_possible_truncation, reason = "it is one of two short lengths")]
        let unchunked = Unchunked { kind, xid, credit, payload_at: payload_at as u32 };
        let inv_handle = Handle(if is_call { first } else { 0 });
        let offset = u64::from(high) << 32 | u64::from(low);
        let segment = Segment { handle: Handle(handle), length, offset };
        Some(Self { unchunked, inv_handle, position, segment })
    }
}

/// Returns the words at offset `at` of a message, without conversion.
#[inline(always)]
fn words<const N: usize>(message: &[u8], at: usize) -> Option<[u32; N]> {
    let (words, _) = message.get(at..)?.as_chunks();
    Some(words.first_chunk::<N>()?.map(u32::from_ne_bytes))
}

// Words as `words` returns them: in network order.
const ONE: u32 = 1_u32.to_be();
const TWO: u32 = VERSION.to_be();
const CALL: u32 = CALL_INLINE.to_be();
const REPLY: u32 = REPLY_INLINE.to_be();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::WriteList;
    use crate::testing::Rng;
    use crate::v2::header::{Message, decode_transport};

    /// Returns the one segment of a Write list that has no other.
    fn only(writes: &WriteList<'_>) -> Option<Segment> {
        let mut chunks = writes.chunks();
        let mut segments = chunks.next().filter(|_| chunks.next().is_none())?.segments();
        segments.next().filter(|_| segments.next().is_none())
    }

    #[test]
    fn a_message_with_one_chunk_is_what_the_whole_decoder_finds_in_it() {
        let mut random = Rng::new(1);
        let (mut found, mut others) = ([0; 3], 0);
        for _ in 0..40_000 {
            let credit = u32::from(random.octet());
            let chunk = [1, 1, 5, 77, 3, 0xffff_fff0, 0];
            let mut words = std::vec![7, 2, credit];
            let inv_handle = [0, 5, 6][random.below(3)];
            match random.below(3) {
                0 => {
                    words.extend([CALL_INLINE, inv_handle, 0]);
                    words.extend(chunk);
                    words.push(0);
                }
                1 => {
                    let position = [0, 44][usize::from(random.below(8) > 0)];
                    let read = [1, position, 5, 77, 3, 0xffff_fff0, 0, 0, 0];
                    words.extend([CALL_INLINE, inv_handle]);
                    words.extend(read);
                }
                _ => {
                    words.push(REPLY_INLINE);
                    words.extend(chunk);
                }
            }
            words.extend([7, 1, 2]);
            let mut message: std::vec::Vec<u8> =
                words.iter().flat_map(|word| word.to_be_bytes()).collect();
            // Now and then one octet makes the message something else.
            if random.below(2) == 0 {
                let at = random.below(message.len());
                message[at] = random.octet() % 4;
            }
            message.truncate(message.len() - random.below(3) * random.below(8));
            let expected = match decode_transport(&message) {
                Ok(Message::CallInline(call)) if call.reply.is_none() => {
                    let mut reads = call.reads.entries();
                    let chunk = match (reads.next(), reads.next()) {
                        (None, _) => only(&call.writes).map(|segment| (None, segment)),
                        // A chunk at position zero is the body, not an argument.
                        (Some((position @ 1.., segment)), None)
                            if call.writes.chunk_count() == 0 =>
                        {
                            Some((Some(position), segment))
                        }
                        _ => None,
                    };
                    let prefix = call.prefix;
                    chunk.map(|chunk| (Kind::Call, prefix, call.inv_handle, chunk, call.payload))
                }
                Ok(Message::ReplyInline(reply)) => only(&reply.writes).map(|segment| {
                    (Kind::Reply, reply.prefix, Handle(0), (None, segment), reply.payload)
                }),
                _ => None,
            };
            // A Payload stream of another XID is left to the whole decoder.
            let expected = expected.filter(|(.., payload)| payload.get(..4) == Some(&[0, 0, 0, 7]));
            let expected = expected.filter(|(_, prefix, ..)| prefix.xid == 7).map(
                |(kind, prefix, inv_handle, (position, segment), payload)| SingleChunk {
                    unchunked: Unchunked {
                        kind,
                        xid: prefix.xid,
                        credit: prefix.credit,
                        payload_at: u32::try_from(message.len() - payload.len()).unwrap(),
                    },
                    inv_handle,
                    position,
                    segment,
                },
            );
            assert_eq!(SingleChunk::of(&message), expected, "{message:?}");
            match expected {
                Some(SingleChunk { position: Some(_), .. }) => found[2] += 1,
                Some(one) => found[usize::from(one.unchunked.kind == Kind::Call)] += 1,
                None => others += 1,
            }
        }
        assert!(
            found.iter().all(|count| *count > 1_000) && others > 1_000,
            "{found:?} and {others}"
        );
    }
}
