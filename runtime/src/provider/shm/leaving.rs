//! Limits on the octets that shm moves at once, and the kind of record that carries a Send.

use haulage_proto::verbs::Handle;

use super::ring::Kind;

/// Returns the kind of record that carries a Send, and the handle in it.
#[inline]
pub(super) fn kind(invalidate: Option<Handle>) -> (Kind, Handle) {
    match invalidate {
        None => (Kind::Send, Handle(0)),
        Some(handle) => (Kind::SendInvalidate, handle),
    }
}

/// Octets of Writes and Reads moved in one call, before other connections and the caller have their turn.
pub(super) const MOVED_PER_CALL: usize = 4 << 20;
/// From this many octets on, a Write is copied only after the peer was shown the messages ahead of it.
pub(super) const PUBLISH_BEFORE: usize = 16 << 10;

/// Octets of the longest copied Send, if one record of the ring holds as many: see `Producer::copied_max`.
pub(super) const COPIED_MAX: usize = 8 << 10;
/// Octets of the longest Read that is done at once.
#[expect(clippy::cast_possible_truncation, reason = "a few MiB")]
pub(super) const READ_MAX: u32 = MOVED_PER_CALL as u32;
