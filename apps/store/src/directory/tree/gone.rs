//! A bounded cache of files that were searched for and not found.

use std::collections::BTreeMap;

use crate::handle::FileId;
use crate::nfs3::Time;

/// The files known to be gone.
#[derive(Debug)]
pub(super) struct Gone {
    files: BTreeMap<FileId, (u64, Option<Searched>)>,
    by_use: BTreeMap<u64, FileId>,
    uses: u64,
    files_max: usize,
}

/// The directory in which a file was seen last, with its state when the file was not found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Searched {
    pub(super) dir: FileId,
    /// The last change of the directory at that time.
    pub(super) changed: Time,
}

impl Gone {
    /// Creates an empty cache of at most `files_max` files.
    pub(super) const fn new(files_max: usize) -> Self {
        Self { files: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, files_max }
    }

    /// Returns `Some` if a file is gone, with the directory that was searched first, if any.
    pub(super) fn get(&mut self, file: FileId) -> Option<Option<Searched>> {
        let (used, searched) = self.files.get_mut(&file)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, file);
        Some(*searched)
    }

    /// Adds a file; evicts the least recently used one if the cache is full.
    pub(super) fn insert(&mut self, file: FileId, searched: Option<Searched>) {
        self.remove(file);
        if self.files.len() >= self.files_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.files.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, file);
        self.files.insert(file, (self.uses, searched));
    }

    /// Removes a file, since it was seen.
    pub(super) fn remove(&mut self, file: FileId) {
        if let Some((used, _)) = self.files.remove(&file) {
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_not_asked_for_longest_is_forgotten_and_no_other() {
        let file = |inode| FileId { inode, generation: 1 };
        let mut gone = Gone::new(3);
        for inode in 0..3 {
            gone.insert(file(inode), None);
        }
        assert_eq!(gone.get(file(0)), Some(None));
        let searched = Searched { dir: file(9), changed: Time::default() };
        gone.insert(file(3), Some(searched));
        let all = [0, 1, 2, 3].map(|inode| gone.get(file(inode)));
        assert_eq!(all, [Some(None), None, Some(None), Some(Some(searched))]);
        gone.remove(file(2));
        gone.insert(file(4), None);
        assert_eq!(gone.get(file(0)), Some(None));
        assert_eq!(gone.files.len(), gone.by_use.len());
    }
}
