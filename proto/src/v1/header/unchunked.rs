//! The most common messages: an `RDMA_MSG` without chunks, followed by the whole RPC message.

use super::MSG;
use crate::v1::VERSION;
use crate::v2::continuation::Kind;
use crate::v2::header::Unchunked;

/// The length of the transport header of a message without chunks, in octets.
#[doc(hidden)]
pub const UNCHUNKED_LEN: usize = 28;

/// Recognises an `RDMA_MSG` without chunks. Returns `None` for any other message, valid or not.
///
/// The result agrees with [`decode_transport`](super::decode_transport). The second word of the RPC message gives its
/// direction; the first must be the XID of the transport header.
#[doc(hidden)]
#[inline]
pub fn unchunked(message: &[u8]) -> Option<Unchunked> {
    let words: &[[u8; 4]; 9] = message.first_chunk::<36>()?.as_chunks().0.try_into().ok()?;
    // The words are compared as octets: the compiler does not inline `map` over an array of nine.
    let [xid, vers, credit, proc, lists @ .., rpc_xid, direction] = words;
    // No Read list, no Write list, no Reply chunk.
    let is_plain = *vers == VERSION.to_be_bytes()
        && *proc == MSG.to_be_bytes()
        && *lists == [[0; 4]; 3]
        && rpc_xid == xid;
    if !is_plain {
        return None;
    }
    let kind = match direction {
        [0, 0, 0, 0] => Kind::Call,
        [0, 0, 0, 1] => Kind::Reply,
        _ => return None,
    };
    let (xid, credit) = (u32::from_be_bytes(*xid), u32::from_be_bytes(*credit));
    Some(Unchunked { kind, xid, credit, payload_at: 28 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use crate::v1::header::{Direction, Message, decode_transport};

    #[test]
    fn an_unchunked_message_is_what_the_whole_decoder_finds_in_it() {
        let mut random = Rng::new(1);
        let (mut found, mut others) = ([0; 2], 0);
        for _ in 0..20_000 {
            let words =
                [7, 1, u32::from(random.octet()), 0, 0, 0, 0, 7, u32::from(random.octet() % 2)];
            let mut message: [u8; 40] = core::array::from_fn(|_| 0);
            message[..36].copy_from_slice(words.map(u32::to_be_bytes).as_flattened());
            // Now and then one octet makes the message something else.
            if random.below(2) == 0 {
                message[random.below(36)] = random.octet() % 3;
            }
            let message = &message[..40 - random.below(12)];
            let expected = match decode_transport(message) {
                Ok(Message::Msg(rpc))
                    if rpc.has_no_chunks() && rpc.payload.get(..4) == message.get(..4) =>
                {
                    let kind = rpc.direction().map(|direction| match direction {
                        Direction::Call => Kind::Call,
                        Direction::Reply => Kind::Reply,
                    });
                    let payload_at = u32::try_from(message.len() - rpc.payload.len()).unwrap();
                    let (xid, credit) = (rpc.prefix.xid, rpc.prefix.credit);
                    kind.map(|kind| Unchunked { kind, xid, credit, payload_at })
                }
                _ => None,
            };
            assert_eq!(unchunked(message), expected, "{message:?}");
            match expected {
                Some(unchunked) => found[usize::from(unchunked.kind == Kind::Call)] += 1,
                None => others += 1,
            }
        }
        assert!(found.iter().all(|count| *count > 1_000) && others > 1_000, "{found:?}, {others}");
    }
}
