//! Which files are known with their file system's handle, for other threads to ask.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handle::{FileId, scatter};

/// The files that are in the table with a file system's handle, and where. Other threads may ask while the table changes, so
/// an answer is a hint: some files with a handle are not among them.
#[derive(Debug)]
pub(crate) struct Called(Box<[Marks]>);

/// The marks of files, each in one of the places that its inode number leads to; zero for none.
type Marks = [AtomicU64; 8];

impl Called {
    /// Makes places for as many files, or for [`CALLED_MAX`].
    pub(crate) fn of(files: usize) -> Self {
        let groups = files.min(CALLED_MAX).div_ceil(Marks::default().len());
        Self(std::iter::repeat_with(Marks::default).take(groups).collect())
    }

    /// Returns whether the table has a file at a name in a directory, with its handle.
    pub(crate) fn has(&self, file: FileId, at: (FileId, &[u8])) -> bool {
        let mark = mark(file, at);
        self.places(file).iter().any(|place| place.load(Ordering::Relaxed) == mark)
    }

    /// Notes that the table has a file at a name in a directory, with its handle.
    pub(crate) fn set(&self, file: FileId, at: (FileId, &[u8])) {
        let mark = mark(file, at);
        let places = self.places(file);
        let free = places.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        // If all places are taken, the file takes that of another.
        let place = free.or_else(|| places.get(usize::from(mark.to_le_bytes()[0] % 8)));
        place.into_iter().for_each(|place| place.store(mark, Ordering::Relaxed));
    }

    /// Notes that the table has it no longer.
    pub(crate) fn clear(&self, file: FileId, at: (FileId, &[u8])) {
        let mark = mark(file, at);
        let places = self.places(file).iter();
        let taken = places.filter(|place| place.load(Ordering::Relaxed) == mark);
        taken.for_each(|place| place.store(0, Ordering::Relaxed));
    }

    fn places(&self, file: FileId) -> &[AtomicU64] {
        let number = scatter(file.inode, self.0.len());
        self.0.get(number).map_or(&[], <[AtomicU64; 8]>::as_slice)
    }
}

/// Returns the mark of a file at a name in a directory, which is not zero.
fn mark(file: FileId, at: (FileId, &[u8])) -> u64 {
    let mut hasher = DefaultHasher::new();
    (file, at).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Maximum number of files that [`Called`] knows: half a MiB.
const CALLED_MAX: usize = 1 << 16;
