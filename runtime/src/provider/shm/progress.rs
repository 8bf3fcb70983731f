//! How far the peer of a connection has come with what waits for it.
//!
//! Output waits for a peer when its ring is full, or when it copies under a handle that is to be closed; a
//! message in parts waits for its last one. Reads and Writes are copied by us and wait for nobody.

use std::convert::Infallible;

use haulage_proto::verbs::WrId;

use crate::provider::progress;

/// The clocks of a connection. A message is known by its number: all of it has one deadline.
pub(super) type Progress = progress::Progress<Infallible, OutputMark, u32>;
/// How far its peer is now.
pub(super) type Marks = progress::Marks<Infallible, OutputMark, u32>;

/// How far the oldest request that waits has come.
#[derive(Debug, PartialEq)]
pub(super) struct OutputMark {
    /// Up to where the peer has made room in our ring, if the request waits for room.
    pub(super) room: Option<u64>,
    pub(super) request: WrId,
    /// Octets of that request that were moved.
    pub(super) moved: usize,
}
