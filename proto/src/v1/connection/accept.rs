//! The direction of an RPC message, and the check that a Call can be served.

use super::config::{CallLimits, Config, Reverse};
use crate::engine::Role;
use crate::v1::error::ErrorBody;
use crate::v1::header::{Direction, Message, Rpc};

impl CallLimits {
    fn allow(&self, call: &Rpc<'_>) -> bool {
        let (whole, items): (u32, u32) =
            call.reads.chunks().fold((0, 0), |(whole, items), chunk| match chunk.position() {
                0 => (whole.saturating_add(1), items),
                _ => (whole, items.saturating_add(1)),
            });
        let reads = call.reads.chunks().map(|chunk| chunk.segment_count());
        let writes = call.writes.chunks().chain(call.reply).map(|chunk| chunk.segments().len());
        // A chunk without segments is tolerated in Replies only, as by Linux servers.
        let fits = |count| u32::try_from(count).is_ok_and(|c| 0 < c && c <= self.segments_max);
        whole <= 1
            && items <= self.read_chunks_max
            && call.writes.chunk_count() <= self.write_chunks_max
            && reads.chain(writes).all(fits)
    }
}

/// Checks that a Call with a Read list can be fetched: `ord` is the number of RDMA Reads that the peer lets this end
/// have outstanding.
///
/// # Errors
/// The error to pass to [`super::Connection::refuse`] if no RDMA Read can be issued.
pub fn check_reads(call: &Rpc<'_>, ord: u32) -> Result<(), ErrorBody> {
    // [R5666-6.2-5] P12
    if ord == 0 && !call.reads.is_empty() { Err(ErrorBody::Chunk) } else { Ok(()) }
}

/// Returns whether this end serves Calls of the peer.
pub(super) fn serves(config: &Config) -> bool {
    config.role == Role::Server || config.reverse != Reverse::None
}

/// Returns the direction of a message, if it can be determined.
pub(super) fn direction(config: &Config, rpc: &Rpc<'_>) -> Option<Direction> {
    if !rpc.payload.is_empty() {
        return rpc.direction();
    }
    // A message with a Reply chunk and no Read list is a Reply, whose octets were written into that chunk. One with
    // a Read list is a Call, but a Reply at a client that takes Read lists in Replies, or that nobody may call.
    //~ R8167-5.3-2: `== Reverse::None` -> `!= Reverse::Chunks`
    let replies_are_read = config.profile.is_some() || config.reverse == Reverse::None;
    match (rpc.reads.is_empty(), config.role) {
        (true, _) => rpc.reply.map(|_| Direction::Reply),
        (false, Role::Client) if replies_are_read => Some(Direction::Reply),
        (false, _) => Some(Direction::Call),
    }
}

/// Returns whether a Call can be served.
pub(super) fn is_acceptable(config: &Config, message: &Message<'_>, call: &Rpc<'_>) -> bool {
    let expected = match (config.role, config.reverse) {
        //~ R8167-5.3-1: `true` -> `config.role == Role::Server`
        (Role::Server, _) | (Role::Client, Reverse::Chunks) => true,
        // [R8167-5.3-2]
        //~ R8167-5.3-2: `call.has_no_chunks()` -> `true`
        (Role::Client, Reverse::Inline) => call.has_no_chunks(),
        (Role::Client, Reverse::None) => false,
    };
    // [R5666-4.2-1] A Call is in its message or at position zero of the Read list. A message with both is
    // ambiguous, and is refused.
    let is_here = !call.payload.is_empty();
    let whole = is_here != call.is_read()
        && match message {
            // P11: whether padding counts in the positions of Read chunks, no text says.
            Message::MsgP(padding, call) => {
                config.profile.is_some() && padding.is_usable() && call.reads.is_empty()
            }
            _ => true,
        };
    expected && whole && config.calls.allow(call)
}
