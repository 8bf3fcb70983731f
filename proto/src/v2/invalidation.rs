//! Remote Invalidation (section 6.5): which Send may be one with Invalidate.

use super::continuation::Kind;
use crate::verbs::Handle;

/// Returns the handle that a message invalidates, if any: `solicited` is `rdma_inv_handle` of the Call
/// it answers, `is_last` says that no part of it follows.
///
/// Control messages have no `Kind` and never invalidate anything.
pub fn invalidates(kind: Kind, is_last: bool, solicited: Handle) -> Option<Handle> {
    // [V2-6.5-1] exactly the handle the Call solicited. E7: and only when all of the Reply has left.
    (kind == Kind::Reply && is_last && solicited != Handle(0)).then_some(solicited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_message_of_a_reply_invalidates_and_only_what_was_solicited() {
        let handle = Handle(0x1234);
        assert_eq!(invalidates(Kind::Reply, true, handle), Some(handle));
        assert_eq!(invalidates(Kind::Reply, false, handle), None);
        assert_eq!(invalidates(Kind::Call, true, handle), None);
        assert_eq!(invalidates(Kind::Reply, true, Handle(0)), None);
    }
}
