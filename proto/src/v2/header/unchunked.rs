//! The most common messages: a Call or a Reply without chunks, complete in one message.

use super::{CALL_INLINE, REPLY_INLINE};
use crate::v2::VERSION;
use crate::v2::continuation::Kind;

/// A Call or a Reply without chunks, complete in one message.
///
/// [`decode`](super::decode) decodes the same message; recognising only this form is faster.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unchunked {
    /// Whether the message is a Call or a Reply.
    pub kind: Kind,
    /// The XID of the RPC message.
    pub xid: u32,
    /// `rdma_credit`.
    pub credit: u32,
    /// The offset of the Payload stream in the message.
    pub payload_at: u32,
}

impl Unchunked {
    /// Recognises a Call or a Reply without chunks. Returns `None` for any other message, valid or
    /// not.
    #[inline]
    pub fn of(message: &[u8]) -> Option<Self> {
        let prefix: &[[u8; 4]; 4] = message.first_chunk::<16>()?.as_chunks().0.try_into().ok()?;
        let [xid, vers, credit, htype] = prefix.map(u32::from_be_bytes);
        //~ V2-7.1.2-2: `vers != VERSION` -> `vers != VERSION && vers != 3`
        if vers != VERSION {
            return None;
        }
        let (kind, payload_at) = match htype {
            // No handle to invalidate, two empty lists, no Reply chunk.
            //~ V2-7.1.3-2: `CALL_INLINE` -> `CALL_INLINE | 14`
            //~ V2-7.2.1-2: `16..32)? == [0; 16]` -> `20..32)? == [0; 12]`
            CALL_INLINE if message.get(16..32)? == [0; 16] => (Kind::Call, 32),
            // An empty Write list.
            REPLY_INLINE if message.get(16..20)? == [0; 4] => (Kind::Reply, 20),
            _ => return None,
        };
        // E9
        let begins = message.get(payload_at as usize..)?.first_chunk().copied();
        let begins = begins.map(u32::from_be_bytes);
        (begins == Some(xid)).then_some(Self { kind, xid, credit, payload_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use crate::v2::header::{Message, decode};

    #[test]
    fn an_unchunked_message_is_what_the_whole_decoder_finds_in_it() {
        let mut random = Rng::new(1);
        let (mut unchunked, mut others) = (0, 0);
        for _ in 0..20_000 {
            let mut message: [u8; 40] = core::array::from_fn(|_| 0);
            let htype = 8 + u32::from(random.octet() % 8);
            let words = [7, 2, u32::from(random.octet()), htype];
            message[..16].copy_from_slice(words.map(u32::to_be_bytes).as_flattened());
            let payload = if htype == CALL_INLINE { 32 } else { 20 };
            message[payload + 3] = 7;
            // Now and then one octet makes the message something else.
            if random.below(2) == 0 {
                message[random.below(40)] = random.octet() % 3;
            }
            let message = &message[..40 - random.below(12)];
            let found = match decode(message) {
                Ok(Message::CallInline(call))
                    if call.inv_handle.0 == 0
                        && call.reads.is_empty()
                        && call.writes.chunks().count() == 0
                        && call.reply.is_none() =>
                {
                    Some((Kind::Call, call.prefix, call.payload))
                }
                Ok(Message::ReplyInline(reply)) if reply.writes.chunks().count() == 0 => {
                    Some((Kind::Reply, reply.prefix, reply.payload))
                }
                _ => None,
            };
            let expected = found.map(|(kind, prefix, payload)| Unchunked {
                kind,
                xid: prefix.xid,
                credit: prefix.credit,
                payload_at: u32::try_from(message.len() - payload.len()).unwrap(),
            });
            assert_eq!(Unchunked::of(message), expected, "{message:?}");
            if expected.is_some() { unchunked += 1 } else { others += 1 }
        }
        assert!(unchunked > 1_000 && others > 1_000, "{unchunked} and {others}");
    }
}
