//! Calls with one chunk of one segment, on a connection of either version.

use super::{Connection, Engine, Version};
use crate::v1;
use crate::v1::private_data::Agreement;
use crate::v2::header::SingleChunk;
use crate::verbs::Handle;

/// Recognises the Calls with one chunk of one segment that [`Connection::take`] accepts.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SingleChunks {
    version: Version,
    /// Octets of the longest Read chunk; zero if there may be none.
    pub read_max: u32,
    /// Octets of the longest Write chunk; zero if there may be none.
    pub write_max: u32,
    /// Whether on version 1 the Reply may invalidate the handle of the chunk.
    invalidates: bool,
}

impl Connection {
    /// Returns what recognises the Calls with one chunk that this server takes. On version 1 `agreed` decides whether the
    /// Reply may invalidate a handle.
    #[doc(hidden)]
    #[inline]
    pub fn single_chunks(&self, agreed: &Agreement) -> SingleChunks {
        let (version, [read_max, write_max]) = match &self.engine {
            Engine::One(one) => (Version::One, one.chunk_max()),
            Engine::Two(two) => (Version::Two, two.chunk_max()),
        };
        SingleChunks { version, read_max, write_max, invalidates: agreed.invalidation }
    }
}

impl SingleChunks {
    /// Returns the version of the messages.
    #[inline]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Recognises a Call with one chunk, or on version 2 a Reply. Returns `None` for any other message, valid or not.
    #[inline(always)]
    pub fn of(&self, message: &[u8]) -> Option<SingleChunk> {
        let one = match self.version {
            Version::One => self.version_one(message)?,
            Version::Two => SingleChunk::of(message)?,
        };
        let length_max = if one.position.is_some() { self.read_max } else { self.write_max };
        (1..=length_max).contains(&one.segment.length).then_some(one)
    }

    /// Reads a message that [`Self::of`] has recognised.
    #[inline(always)]
    pub fn read(&self, message: &[u8]) -> Option<SingleChunk> {
        match self.version {
            Version::One => self.version_one(message),
            Version::Two => SingleChunk::read(message),
        }
    }

    #[inline]
    fn version_one(&self, message: &[u8]) -> Option<SingleChunk> {
        let one = v1::header::single_chunk(message)?;
        Some(if self.invalidates { one } else { SingleChunk { inv_handle: Handle(0), ..one } })
    }
}
