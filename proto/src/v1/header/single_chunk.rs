//! The most common Calls with a chunk: an `RDMA_MSG` that offers one Read chunk or one Write chunk of one segment,
//! followed by the whole RPC message.

use super::MSG;
use crate::v1::VERSION;
use crate::v2::continuation::Kind;
use crate::v2::header::{SingleChunk, Unchunked};
use crate::verbs::{Handle, Segment};

/// The length of the transport header of a Call with one chunk of one segment, of either kind, in octets. The header of
/// a Reply that returns the Write chunk is as long.
#[doc(hidden)]
pub const SINGLE_CHUNK_LEN: usize = 52;

/// Recognises a Call, complete in one `RDMA_MSG`, with one chunk of one segment: a Write chunk, or a Read chunk that is
/// not at position zero. Returns `None` for any other message, valid or not.
///
/// The result agrees with [`decode_transport`](super::decode_transport). The handle that the Reply may invalidate is the
/// only one of the Call ([`choose`](crate::v1::invalidation::choose)); whether it may depends on what both ends set in
/// their private data.
#[doc(hidden)]
#[inline]
pub fn single_chunk(message: &[u8]) -> Option<SingleChunk> {
    let words: &[[u8; 4]; 15] = message.first_chunk::<60>()?.as_chunks().0.try_into().ok()?;
    let [xid, vers, credit, proc, lists @ .., rpc_xid, direction] = words.map(u32::from_be_bytes);
    if vers != VERSION || proc != MSG || rpc_xid != xid || direction != CALL {
        return None;
    }
    let (position, handle, length, high, low) = match lists {
        // No Read list, a Write list of one chunk, no Reply chunk.
        [0, 1, 1, handle, length, high, low, 0, 0] => (None, handle, length, high, low),
        // A Read list of one segment, no Write list, no Reply chunk.
        [1, position, handle, length, high, low, 0, 0, 0]
            if position != 0 && position.is_multiple_of(4) =>
        {
            (Some(position), handle, length, high, low)
        }
        _ => return None,
    };
    let offset = u64::from(high) << 32 | u64::from(low);
    let segment = Segment { handle: Handle(handle), length, offset };
    let unchunked = Unchunked { kind: Kind::Call, xid, credit, payload_at: 52 };
    Some(SingleChunk { unchunked, inv_handle: segment.handle, position, segment })
}

/// The direction of a Call, in the second word of its RPC header (RFC 5531 section 9).
const CALL: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use crate::v1::header::{Direction, Message, decode_transport};
    use crate::v1::invalidation::choose;
    use crate::v1::private_data::Agreement;

    #[test]
    fn a_call_with_one_chunk_is_what_the_whole_decoder_finds_in_it() {
        let agreed = Agreement { client_to_server: 0, server_to_client: 0, invalidation: true };
        let mut random = Rng::new(1);
        let (mut found, mut others) = ([0; 2], 0);
        for _ in 0..40_000 {
            let position = [0, 44][usize::from(random.below(8) > 0)];
            let lists = match random.below(2) {
                0 => [0, 1, 1, 5, 77, 3, 0xffff_fff0, 0, 0],
                _ => [1, position, 5, 77, 3, 0xffff_fff0, 0, 0, 0],
            };
            let mut words = std::vec![7, 1, u32::from(random.octet()), 0];
            words.extend(lists);
            words.extend([7, u32::from(random.below(8) == 0), 2]);
            let mut message: std::vec::Vec<u8> =
                words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
            // Now and then one octet makes the message something else.
            if random.below(2) == 0 {
                let at = random.below(message.len());
                message[at] = random.octet() % 4;
            }
            message.truncate(message.len() - random.below(3) * random.below(8));
            let expected = match decode_transport(&message) {
                Ok(Message::Msg(rpc))
                    if rpc.reply.is_none() && rpc.direction() == Some(Direction::Call) =>
                {
                    let mut reads = rpc.reads.chunks().map(|chunk| {
                        let mut segments = chunk.segments();
                        (Some(chunk.position()), segments.next(), segments.count())
                    });
                    let mut writes = rpc.writes.chunks().map(|chunk| {
                        let mut segments = chunk.segments();
                        (None, segments.next(), segments.count())
                    });
                    let chunks = [reads.next(), writes.next(), reads.next(), writes.next()];
                    let one = match chunks {
                        [Some((position @ Some(1..), Some(segment), 0)), None, None, None]
                        | [None, Some((position @ None, Some(segment), 0)), None, None] => {
                            Some((position, segment))
                        }
                        _ => None,
                    };
                    one.map(|one| (rpc, one))
                }
                _ => None,
            };
            // `single_chunk` leaves two kinds of message to the whole decoder: those whose RPC message has another XID, and
            // those whose position is not a multiple of four.
            let expected = expected.filter(|(rpc, (position, _))| {
                rpc.payload.get(..4) == Some(&[0, 0, 0, 7])
                    && rpc.prefix.xid == 7
                    && position.is_none_or(|position| position.is_multiple_of(4))
            });
            let expected = expected.map(|(rpc, (position, segment))| SingleChunk {
                unchunked: Unchunked {
                    kind: Kind::Call,
                    xid: rpc.prefix.xid,
                    credit: rpc.prefix.credit,
                    payload_at: u32::try_from(message.len() - rpc.payload.len()).unwrap(),
                },
                inv_handle: choose(&rpc, &agreed).expect("the call has one handle"),
                position,
                segment,
            });
            let ours = single_chunk(&message);
            // Any word but zero announces an entry of a list; we know the word one, which all ends write.
            if ours.is_some() || announces_with_one(&message) {
                assert_eq!(ours, expected, "{message:?}");
            }
            match ours {
                Some(one) => found[usize::from(one.position.is_none())] += 1,
                None => others += 1,
            }
        }
        assert!(
            found.iter().all(|count| *count > 1_000) && others > 1_000,
            "{found:?} and {others}"
        );
    }

    /// Returns whether each word that announces an entry, or ends a list, is zero or one in a message of either form.
    fn announces_with_one(message: &[u8]) -> bool {
        let word =
            |at: usize| message.get(16 + 4 * at..).and_then(|words| words.first_chunk::<4>());
        let last = if word(0) == Some(&[0; 4]) { [0, 1, 7, 8] } else { [0, 6, 7, 8] };
        last.into_iter().all(|at| matches!(word(at), Some([0, 0, 0, 0 | 1])))
    }
}
