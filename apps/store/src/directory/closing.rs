//! Closing files that have no name left.
//!
//! The file system gives the room of a file back when its last name is gone and its last descriptor is closed. For a file
//! of many pieces that takes seconds, for which the core cannot wait. The place of a file is its last descriptor, since
//! transfers keep it open, too; a helper thread closes it if the file is gone and large. While many such files wait for
//! the helpers, no client removes one, and the core closes one itself only while very many do.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;

use super::helpers::Cost;
use super::jobs::Helpers;
use super::system::look::SECTOR;
use crate::nfs3::{Attributes, FileType};

/// A place: an `O_PATH` descriptor that is closed by a helper if it is the last one of a large file without a name.
#[derive(Debug)]
pub(super) struct PathDescriptor {
    /// Taken when it is dropped.
    file: Option<OwnedFd>,
    /// The helpers, for a file that may be large.
    helpers: Option<Helpers>,
}

impl PathDescriptor {
    /// Holds a place, of a file that may be large if there are helpers.
    pub(super) const fn new(file: OwnedFd, helpers: Option<Helpers>) -> Self {
        Self { file: Some(file), helpers }
    }

    /// Closes a place of a file that has another one.
    pub(super) fn close_beside(mut self) {
        self.helpers = None;
    }
}

impl Deref for PathDescriptor {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        self.file.as_ref().unwrap_or_else(|| unreachable!("it is taken when it is dropped"))
    }
}

impl AsFd for PathDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl Drop for PathDescriptor {
    fn drop(&mut self) {
        let (Some(file), Some(helpers)) = (self.file.take(), self.helpers.take()) else { return };
        let is_dear = |found: rustix::fs::Stat| {
            found.st_nlink == 0 && found.st_blocks.cast_unsigned().saturating_mul(SECTOR) >= DEAR
        };
        if fstat(&file).is_ok_and(is_dear) {
            helpers.close(file);
        }
    }
}

/// Returns whether the helpers take another file, if a file with these attributes needs one once it is removed.
pub(super) fn has_room_for(helpers: &Helpers, file: &Attributes) -> bool {
    // A directory has one name, whatever the number of its links is.
    let is_last = file.kind == FileType::Directory || file.links == 1;
    let is_dear = may_be_large(file.kind) && is_last && file.used >= DEAR;
    !is_dear || !helpers.is_full_for_us(Cost::Dear)
}

/// Returns whether files of a kind have room that takes long to give back. A directory keeps what its names took.
pub(super) const fn may_be_large(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory)
}

/// Octets of a file that takes longer to close than to hand to another thread: sixteen pieces at most.
pub(super) const DEAR: u64 = 64 << 10;
