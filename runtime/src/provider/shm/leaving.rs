//! What all that leaves has in common, whichever way it goes: how much goes at once, and in what records.

use haulage_proto::verbs::Handle;

use super::ring::Kind;

/// Returns which record carries a Send, and the handle that lies in it.
#[inline]
pub(super) fn kind(invalidate: Option<Handle>) -> (Kind, Handle) {
    match invalidate {
        None => (Kind::Send, Handle(0)),
        Some(handle) => (Kind::SendInvalidate, handle),
    }
}

/// Octets of Writes and Reads moved before the others, and the caller, have their turn.
pub(super) const MOVED_PER_CALL: usize = 4 << 20;
/// Octets of a Write before which the peer is shown what was sent ahead of it.
pub(super) const PUBLISH_BEFORE: usize = 16 << 10;

/// Octets of the longest Send without a view of its source. Any Send is copied, and one part of a
/// message holds more.
pub(super) const INLINE_MAX: usize = 8 << 10;
/// Octets of the longest Read that is made at once.
#[expect(clippy::cast_possible_truncation, reason = "a few MiB")]
pub(super) const READ_MAX: u32 = MOVED_PER_CALL as u32;
