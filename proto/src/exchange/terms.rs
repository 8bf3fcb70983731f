//! The limits of both ends of a connection that apply to one exchange.

use crate::chunk::Version;
use crate::v2::properties::Properties;

/// The limits of one exchange: the agreements of the connection and the choices of this end.
///
/// The forward and the reverse direction of a connection have separate terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The protocol version.
    pub version: Version,
    /// The call inline threshold: the length of the largest message to the Responder, in octets.
    pub call_threshold: u32,
    /// The reply inline threshold: the length of the largest message to the Requester, in octets.
    pub reply_threshold: u32,
    /// The length of the largest segment that the peer handles, in octets.
    pub segment_size_max: u32,
    /// The most segments in one transport header.
    pub segments_max: u32,
    /// The most segments in one chunk.
    pub chunk_segments_max: u32,
    /// The most Read chunks of data items in one Call.
    pub read_chunks_max: u32,
    /// The most Write chunks in one Call.
    pub write_chunks_max: u32,
    /// The most messages of a continued Call: at most the credits of an idle connection. One means
    /// that Calls are not continued.
    pub call_messages_max: u32,
    /// The most messages of a continued Reply: at most the credits of an idle connection. One means
    /// that Replies are not continued.
    pub reply_messages_max: u32,
    /// The length from which an item gets a chunk of its own even if it would fit inline, in
    /// octets.
    pub reduce_min: u32,
}

impl Terms {
    /// Makes the terms of a version 1 connection with these inline thresholds.
    ///
    /// They allow one Read chunk and one Write chunk, which every known peer accepts (E23). A caller that knows its peer to
    /// take more raises that.
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
    /// the properties `peer`. Nothing is continued unless the caller raises `call_messages_max` or
    /// `reply_messages_max`.
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

    /// Returns the number of segments of a chunk of `length` octets, or `None` if it exceeds the limit of one chunk.
    pub(super) fn segments(&self, length: u32) -> Option<u32> {
        let count = length.div_ceil(self.segment_size_max.max(1));
        (count <= self.chunk_segments_max).then_some(count)
    }
}

/// The largest segment offered on version 1. Linux servers take segments of slightly less.
const V1_SEGMENT_SIZE_MAX: u32 = 1 << 20;

/// The most segments on version 1, which is what Linux clients send.
const V1_SEGMENTS_MAX: u32 = 16;
