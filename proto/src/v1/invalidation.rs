//! Remote Invalidation on version 1: the handles that a Reply may invalidate.
//!
//! Version 1 has no field for the handle: if both ends set R ([`super::private_data`]), the
//! Responder chooses among the handles of the Call.

use super::header::Rpc;
use super::private_data::Agreement;
use crate::verbs::{Handle, Segment};

/// Chooses the handle that the Reply to `call` invalidates, if it may invalidate one.
///
/// It is the handle that all segments of the Call share. If they have several handles, none is chosen: the last segment
/// of a Linux client's Write chunk may be padding, whose registration the client needs for the lifetime of the
/// connection.
/// Both ends have to allow it (E32).
pub fn choose(call: &Rpc<'_>, agreed: &Agreement) -> Option<Handle> {
    // [R8797-4.1-3] invalidate only if both ends support it, and [R8797-4.1-2] only a handle of this Call.
    if !agreed.invalidation {
        return None;
    }
    let mut segments = call.segments();
    let first = segments.next()?.handle;
    //~ R8797-4.1-2: `(first)` -> `(Handle(call.prefix.xid))`
    segments.all(|segment| segment.handle == first).then_some(first)
}

/// Returns whether the peer may invalidate `handle` with the Reply to a Call that offered these
/// segments.
///
/// The answer does not depend on the peer's R (P8). After the invalidation of any other handle the connection is
/// closed, once the registration of that handle is fenced.
pub fn is_expected(handle: Handle, offered: impl IntoIterator<Item = Segment>) -> bool {
    offered.into_iter().any(|segment| segment.handle == handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xdr;
    use crate::v1::header::tests::vector;
    use crate::v1::header::{Message, decode};

    const BOTH: Agreement =
        Agreement { client_to_server: 1024, server_to_client: 1024, invalidation: true };

    fn chosen(bytes: &[u8], agreed: &Agreement) -> Option<Handle> {
        match decode(bytes) {
            Ok(Message::Msg(rpc) | Message::NoMsg(rpc)) => choose(&rpc, agreed),
            other => panic!("no Call: {other:?}"),
        }
    }

    #[test]
    fn the_only_handle_of_a_call_is_chosen() {
        // A Linux server chose the same handle: its Reply to this Call was sent with invalidation.
        assert_eq!(chosen(&vector("rdma_msg/write_call"), &BOTH), Some(Handle(0x165d_4b02)));
        assert_eq!(chosen(&vector("rdma_msg/read_call"), &BOTH), Some(Handle(0x752c_5107)));
        assert_eq!(chosen(&vector("rdma_msg/null_call"), &BOTH), None);
        let header = || Xdr::common(7, 1, 1, 1);
        let same = header().read_list(&[(0, (9, 1, 0)), (0, (9, 1, 8))]);
        let same = same.write_list(&[&[(9, 1, 16)]]).words(&[1]).write_chunk(&[(9, 4, 32)]).0;
        assert_eq!(chosen(&same, &BOTH), Some(Handle(9)), "one handle in every list");
        let empty = header().read_list(&[]).write_list(&[&[(9, 0, 0)]]).words(&[0]).0;
        assert_eq!(chosen(&empty, &BOTH), Some(Handle(9)), "an unused chunk has one as well");
    }

    #[test]
    fn of_several_handles_none_is_chosen() {
        // Three registrations of a Reply chunk, the last of them the client's padding.
        assert_eq!(chosen(&vector("rdma_msg/readdirplus_call"), &BOTH), None);
        let header = || Xdr::common(7, 1, 1, 1);
        let padded = header().read_list(&[]).write_list(&[&[(9, 5001, 0), (8, 3, 0)]]);
        assert_eq!(chosen(&padded.words(&[0]).0, &BOTH), None, "the padding of a Write chunk");
        let across = header().read_list(&[(0, (9, 1, 0))]).write_list(&[&[(8, 1, 0)]]);
        assert_eq!(chosen(&across.words(&[0]).0, &BOTH), None);
        let reply = header().read_list(&[(0, (9, 1, 0))]).write_list(&[]).words(&[1]);
        assert_eq!(chosen(&reply.write_chunk(&[(8, 1, 0)]).0, &BOTH), None);
    }

    #[test]
    fn without_both_flags_nothing_is_chosen() {
        let one = Agreement { invalidation: false, ..BOTH };
        assert_eq!(chosen(&vector("rdma_msg/write_call"), &one), None);
    }

    #[test]
    fn a_client_takes_an_invalidation_of_what_it_offered_whatever_r_was() {
        let offered = [3, 5].map(|n| Segment { handle: Handle(n), length: 1, offset: 0 });
        assert!(is_expected(Handle(5), offered) && is_expected(Handle(3), offered));
        assert!(!is_expected(Handle(4), offered) && !is_expected(Handle(3), []));
    }
}
