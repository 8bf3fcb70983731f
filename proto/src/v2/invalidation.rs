//! Remote Invalidation (section 6.5): the choice of Sends that invalidate a handle.

use super::continuation::Kind;
use crate::verbs::Handle;

/// The place of a transport message among those that carry one RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePlace {
    /// Further messages follow.
    Earlier,
    /// No further message follows.
    Last,
}

/// Returns the handle that a transport message at this place of an RPC message invalidates, if any: `solicited` is
/// `rdma_inv_handle` of the Call that the RPC message answers.
///
/// Control messages have no `Kind` and never invalidate anything.
pub fn invalidates(kind: Kind, place: MessagePlace, solicited: Handle) -> Option<Handle> {
    // [V2-6.5-1] invalidate only the handle that the Call solicited. E7: the last message of the Reply does so.
    (kind == Kind::Reply && place == MessagePlace::Last && solicited != Handle(0))
        .then_some(solicited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_message_of_a_reply_invalidates_and_only_what_was_solicited() {
        let handle = Handle(0x1234);
        assert_eq!(invalidates(Kind::Reply, MessagePlace::Last, handle), Some(handle));
        assert_eq!(invalidates(Kind::Reply, MessagePlace::Earlier, handle), None);
        assert_eq!(invalidates(Kind::Call, MessagePlace::Last, handle), None);
        assert_eq!(invalidates(Kind::Reply, MessagePlace::Last, Handle(0)), None);
    }
}
