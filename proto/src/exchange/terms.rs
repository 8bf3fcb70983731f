//! What the ends of a connection can do for one exchange.

use crate::chunk::Version;
use crate::v2::properties::Properties;

/// What one exchange has to keep to: the connection's agreements and our own choices.
///
/// On each direction of a connection they are another value, because the roles are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The protocol version.
    pub version: Version,
    /// The call inline threshold: octets of the largest message to the Responder.
    pub call_threshold: u32,
    /// The reply inline threshold: octets of the largest message to the Requester.
    pub reply_threshold: u32,
    /// Octets of the largest segment the peer handles.
    pub segment_size_max: u32,
    /// Segments in one transport header.
    pub segments_max: u32,
    /// Segments in one chunk.
    pub chunk_segments_max: u32,
    /// Read chunks of data items in one Call.
    pub read_chunks_max: u32,
    /// Write chunks in one Call.
    pub write_chunks_max: u32,
    /// Messages a continued Call may consist of: as many as the credits of an idle connection, or
    /// fewer. One means that Calls are not continued.
    pub call_messages_max: u32,
    /// Messages a continued Reply may consist of, in the same way.
    pub reply_messages_max: u32,
    /// Octets from which on an item is worth a chunk of its own even if it would fit inline.
    pub reduce_min: u32,
}

impl Terms {
    /// Makes the terms of a version 1 connection with these inline thresholds.
    ///
    /// One Read chunk and one Write chunk: what every known peer takes (E23).
    pub const fn version_one(call_threshold: u32, reply_threshold: u32) -> Self {
        Self {
            version: Version::One,
            call_threshold,
            reply_threshold,
            segment_size_max: V1_SEGMENT_SIZE_MAX,
            segments_max: V1_SEGMENTS_MAX,
            chunk_segments_max: V1_SEGMENTS_MAX,
            read_chunks_max: 1,
            write_chunks_max: 1,
            call_messages_max: 1,
            reply_messages_max: 1,
            reduce_min: 1,
        }
    }

    /// Makes the terms of a version 2 connection with these inline thresholds, whose peer announced
    /// these properties. Nothing is continued unless the caller allows it.
    pub const fn version_two(call_threshold: u32, reply_threshold: u32, peer: &Properties) -> Self {
        Self {
            version: Version::Two,
            call_threshold,
            reply_threshold,
            segment_size_max: peer.segment_size_max,
            segments_max: peer.segment_count_max,
            chunk_segments_max: peer.segment_count_max,
            read_chunks_max: u32::MAX,
            write_chunks_max: u32::MAX,
            call_messages_max: 1,
            reply_messages_max: 1,
            reduce_min: 1,
        }
    }

    /// Returns how many segments a chunk of `length` octets takes, or `None` if one chunk cannot have
    /// so many.
    pub(super) fn segments(&self, length: u32) -> Option<u32> {
        let count = length.div_ceil(self.segment_size_max.max(1));
        (count <= self.chunk_segments_max).then_some(count)
    }
}

/// Linux servers of version 1 take segments of a little less than this.
const V1_SEGMENT_SIZE_MAX: u32 = 1 << 20;

/// As many as Linux clients send.
const V1_SEGMENTS_MAX: u32 = 16;
