//! Which files the server has changed last.

use crate::handle::{FileId, scatter};

/// The order of the last changes of files by the server. Files share places by inode number, so that one may seem to be
/// changed later than it was.
#[derive(Debug)]
pub(crate) struct LastChanges {
    /// Number of changes.
    count: u64,
    /// Which change was the last of files with these inode numbers.
    last: Box<[u64]>,
}

impl LastChanges {
    pub(crate) fn new() -> Self {
        Self { count: 0, last: vec![0; PLACES].into() }
    }

    /// Takes in that the server has changed a file.
    pub(crate) fn note(&mut self, file: FileId) {
        self.count += 1;
        if let Some(last) = self.last.get_mut(scatter(file.inode, PLACES)) {
            *last = self.count;
        }
    }

    /// Returns the number of changes.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of the last change of a file, or of another that shares its place.
    pub(crate) fn of(&self, file: FileId) -> u64 {
        self.last.get(scatter(file.inode, PLACES)).copied().unwrap_or(u64::MAX)
    }
}

/// Number of places for the last changes of files.
const PLACES: usize = 1 << 12;
