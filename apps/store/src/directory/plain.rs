//! Files that have no access control list, so that Calls of them are judged without a look.

use crate::handle::{FileId, scatter};
use crate::nfs3::Time;

/// Files that their permission bits alone allow what they allow, each with the `ctime` with which they do.
#[derive(Debug)]
pub(super) struct Plain(Box<[(FileId, Time)]>);

impl Plain {
    pub(super) fn new() -> Self {
        Self(vec![(FileId { inode: 0, generation: 0 }, Time::default()); PLAIN].into())
    }

    /// Notes that only the permission bits of a file count.
    pub(super) fn note(&mut self, file: FileId, changed: Time) {
        if let Some(known) = self.0.get_mut(scatter(file.inode, PLAIN)) {
            *known = (file, changed);
        }
    }

    /// Returns whether only the permission bits of a file with this `ctime` are known to count.
    pub(super) fn has(&self, file: FileId, changed: Time) -> bool {
        self.0.get(scatter(file.inode, PLAIN)) == Some(&(file, changed))
    }
}

/// Number of places for files that have no ACL.
const PLAIN: usize = 1 << 8;
