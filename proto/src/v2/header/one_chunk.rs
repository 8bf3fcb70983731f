//! The commonest messages with a chunk: a Call that offers a place for one result, and the Reply that says how
//! much of it was used.

use super::{Bare, CALL_INLINE, REPLY_INLINE};
use crate::v2::VERSION;
use crate::v2::continuation::Kind;
use crate::verbs::{Handle, Segment};

/// A Call or a Reply, all of it in one message, with one Write chunk of one segment and no other chunk.
///
/// [`decode_transport`](super::decode_transport) finds the same in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneChunk {
    /// All but the chunk.
    pub bare: Bare,
    /// What a Call asks its Reply to invalidate; zero for nothing.
    pub inv_handle: Handle,
    /// The only segment: in a Reply with the octets that were written.
    pub segment: Segment,
}

impl OneChunk {
    /// Octets of the transport header of such a Call.
    pub const CALL_LEN: usize = 56;
    /// Octets of the transport header of such a Reply.
    pub const REPLY_LEN: usize = 44;

    /// Looks whether a message is one; `None` if it is any other, be it good or bad.
    #[inline]
    pub fn of(message: &[u8]) -> Option<Self> {
        let [xid, vers, credit, htype] = words(message, 0)?;
        if vers != VERSION {
            return None;
        }
        let (kind, inv_handle, write_at, payload_at) = match htype {
            CALL_INLINE => {
                // A handle, an empty Read list, and behind the Write list no Reply chunk.
                let ([inv_handle, 0], [0, 0]) = (words(message, 16)?, words(message, 48)?) else {
                    return None;
                };
                (Kind::Call, inv_handle, 24, Self::CALL_LEN)
            }
            REPLY_INLINE => {
                let [0] = words(message, 40)? else { return None };
                (Kind::Reply, 0, 16, Self::REPLY_LEN)
            }
            _ => return None,
        };
        let [1, 1, handle, length, high, low] = words(message, write_at)? else { return None };
        // What is to be invalidated is of this message, or nothing is; and E9.
        let named = inv_handle == 0 || inv_handle == handle;
        if !named || words(message, payload_at)? != [xid] {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is one of two short lengths")]
        let bare = Bare { kind, xid, credit, payload_at: payload_at as u32 };
        let offset = u64::from(high) << 32 | u64::from(low);
        let segment = Segment { handle: Handle(handle), length, offset };
        Some(Self { bare, inv_handle: Handle(inv_handle), segment })
    }
}

/// Reads words at an octet of a message.
#[inline(always)]
fn words<const N: usize>(message: &[u8], at: usize) -> Option<[u32; N]> {
    let (words, _) = message.get(at..)?.as_chunks();
    Some(words.first_chunk::<N>()?.map(u32::from_be_bytes))
}

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
        let (mut found, mut others) = ([0, 0], 0);
        for _ in 0..40_000 {
            let credit = u32::from(random.octet());
            let chunk = [1, 1, 5, 77, 3, 0xffff_fff0, 0];
            let mut words = std::vec![7, 2, credit];
            if random.below(2) == 0 {
                words.extend([CALL_INLINE, [0, 5, 6][random.below(3)], 0]);
                words.extend(chunk);
                words.push(0);
            } else {
                words.push(REPLY_INLINE);
                words.extend(chunk);
            }
            words.extend([7, 1, 2]);
            let mut message: std::vec::Vec<u8> =
                words.iter().flat_map(|word| word.to_be_bytes()).collect();
            // Now and then an octet that makes it something else.
            if random.below(2) == 0 {
                let at = random.below(message.len());
                message[at] = random.octet() % 4;
            }
            message.truncate(message.len() - random.below(3) * random.below(8));
            let expected = match decode_transport(&message) {
                Ok(Message::CallInline(call)) if call.reads.is_empty() && call.reply.is_none() => {
                    only(&call.writes).map(|segment| {
                        (Kind::Call, call.prefix, call.inv_handle, segment, call.payload)
                    })
                }
                Ok(Message::ReplyInline(reply)) => only(&reply.writes)
                    .map(|segment| (Kind::Reply, reply.prefix, Handle(0), segment, reply.payload)),
                _ => None,
            };
            // A Payload stream that is another RPC's is for whoever looks at it whole.
            let expected = expected.filter(|(.., payload)| payload.get(..4) == Some(&[0, 0, 0, 7]));
            let expected = expected.filter(|(_, prefix, ..)| prefix.xid == 7).map(
                |(kind, prefix, inv_handle, segment, payload)| OneChunk {
                    bare: Bare {
                        kind,
                        xid: prefix.xid,
                        credit: prefix.credit,
                        payload_at: u32::try_from(message.len() - payload.len()).unwrap(),
                    },
                    inv_handle,
                    segment,
                },
            );
            assert_eq!(OneChunk::of(&message), expected, "{message:?}");
            match expected {
                Some(one) => found[usize::from(one.bare.kind == Kind::Call)] += 1,
                None => others += 1,
            }
        }
        assert!(
            found.iter().all(|count| *count > 1_000) && others > 1_000,
            "{found:?} and {others}"
        );
    }
}
