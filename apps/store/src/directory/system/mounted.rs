//! The stand-in for a place in the tree where another file system is mounted: an empty directory, which nobody may change.
//!
//! It is known by its directory and its name there, and what is mounted is not asked: a file system whose server is gone
//! may never answer.

use sha2::{Digest, Sha256};

use super::look::{Hold, Look};
use crate::handle::FileId;
use crate::nfs3::{Attributes, FileType};

/// Returns the identity of the stand-in for a name in a directory. It is the same after a restart, and no other file's:
/// it has 128 bits of a digest.
pub(crate) fn id(dir: FileId, name: &[u8]) -> FileId {
    let digest = Sha256::new()
        .chain_update(dir.inode.to_be_bytes())
        .chain_update(dir.generation.to_be_bytes())
        .chain_update(name)
        .finalize();
    let half =
        |at: usize| digest[at..].first_chunk().map_or(0, |octets| u64::from_be_bytes(*octets));
    FileId { inode: half(0), generation: half(8) }
}

/// Returns what clients see of a stand-in in a directory with these attributes: its owner and its times.
pub(crate) fn look(id: FileId, dir: Attributes) -> Look {
    let (kind, mode, links) = (FileType::Directory, MODE, LINKS);
    let attributes = Attributes { kind, mode, links, size: 0, used: 0, fileid: id.inode, ..dir };
    Look { id, attributes, hold: Hold::None }
}

/// The permission bits: all may look into it, and see nothing.
const MODE: u32 = 0o555;
/// The names of an empty directory: its own, and `.`.
const LINKS: u32 = 2;
