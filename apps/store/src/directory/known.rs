//! The table of where files were last seen: it maps an inode number to a directory and a name in it.
//!
//! # Recovery
//! With a [`Journal`] the table outlives the server, so that clients' handles can be resolved after a restart. An entry
//! is a hint: its user checks that the name still leads to the file.
//!
//! # Limits
//! The table takes a bounded number of octets. When it is full, it evicts, clock-wise, files that are neither open nor
//! recently used; if a client uses one of those again, a search has to find it. Compacting the journal, which is rare,
//! takes the core as long as the disk needs to write it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::jobs::called::Called;
use super::shared::journal::{Journal, Record};
use super::shared::records::Records;
use crate::handle::FileId;

/// The table of where files were last seen.
#[derive(Debug)]
pub(super) struct Known {
    /// The entries by inode number.
    entries: BTreeMap<u64, PackedSeen>,
    /// Estimated size of the table, in octets.
    octets: usize,
    octets_max: usize,
    /// The entries with a file system's handle.
    called: Arc<Called>,
    /// The clock hand: the inode number last examined for eviction.
    hand: u64,
}

/// The directory and the name where a file was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen<'a> {
    /// The directory.
    pub(super) dir: FileId,
    /// The name in it.
    pub(super) name: &'a [u8],
    /// The file system's handle of the file; empty if there is none.
    pub(super) called: &'a [u8],
}

/// A [`Seen`] in one block of memory.
#[derive(Debug)]
struct PackedSeen {
    generation: u64,
    /// Whether the file was noted or looked up since the clock hand last passed it.
    is_recent: Cell<bool>,
    /// The directory's inode number and generation, the length of the file system's handle, the handle, and the name.
    packed: Box<[u8]>,
}

impl Known {
    /// Creates an empty table of at most `octets_max` octets.
    pub(super) fn new(octets_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            octets: 0,
            octets_max,
            called: Arc::new(Called::of(octets_max / AROUND)),
            hand: 0,
        }
    }

    /// Creates a table from the records of a journal, which then has those of the table alone.
    pub(super) fn from_journal(journal: &mut Journal, octets_max: usize) -> std::io::Result<Self> {
        let mut known = Self::new(octets_max);
        journal.read(|record| match record {
            Record::Seen { file, dir, name, called } => {
                known.insert(file, Seen { dir, name, called }, |_| false);
            }
            Record::Gone { file } => known.remove(file.inode),
        })?;
        journal.rewrite(known.records())?;
        Ok(known)
    }

    /// Returns where a file was seen last.
    pub(super) fn find(&self, file: FileId) -> Option<Seen<'_>> {
        let entry = self.entries.get(&file.inode)?;
        let seen = (entry.generation == file.generation).then(|| entry.seen()).flatten();
        entry.is_recent.set(seen.is_some());
        seen
    }

    /// Records where a file is. If the table is full, evicts files for which `is_open` is false. `called` returns the
    /// file system's handle of the file, and is called only if the handle is not known.
    pub(super) fn note(
        &mut self,
        records: &mut Records,
        file: FileId,
        (dir, name): (FileId, &[u8]),
        called: impl FnOnce() -> Box<[u8]>,
        is_open: impl Fn(FileId) -> bool,
    ) {
        // Most files are listed where they were before.
        if self.called.has(file, (dir, name)) {
            return;
        }
        let old = self.find(file);
        let is_there = old.is_some_and(|seen| seen.dir == dir && *seen.name == *name);
        let called = match old.map(|seen| seen.called).filter(|called| !called.is_empty()) {
            Some(_) if is_there => return,
            Some(called) => called.into(),
            None => called(),
        };
        if is_there && called.is_empty() {
            return;
        }
        self.insert(file, Seen { dir, name, called: &called }, is_open);
        // With this record the journal may be compacted, to what is in the table.
        self.write(records, &Record::Seen { file, dir, name, called: &called });
    }

    /// Removes a file that is gone.
    pub(super) fn forget(&mut self, records: &mut Records, file: FileId) {
        if self.find(file).is_some() {
            self.remove(file.inode);
            self.write(records, &Record::Gone { file });
        }
    }

    fn insert(&mut self, file: FileId, seen: Seen<'_>, is_open: impl Fn(FileId) -> bool) {
        self.remove(file.inode);
        let entry = PackedSeen::new(file.generation, &seen);
        while self.octets + entry.octets() > self.octets_max {
            let Some(oldest) = self.forgettable(&is_open) else { return };
            self.remove(oldest);
        }
        self.octets += entry.octets();
        self.entries.insert(file.inode, entry);
        if !seen.called.is_empty() {
            self.called.set(file, (seen.dir, seen.name));
        }
    }

    fn remove(&mut self, inode: u64) {
        if let Some(entry) = self.entries.remove(&inode) {
            self.octets -= entry.octets();
            let file = FileId { inode, generation: entry.generation };
            entry
                .seen()
                .into_iter()
                .for_each(|seen| self.called.clear(file, (seen.dir, seen.name)));
        }
    }

    /// Returns which files are in the table with a file system's handle, for other threads to ask.
    pub(super) fn called(&self) -> Arc<Called> {
        Arc::clone(&self.called)
    }

    /// Returns the inode number of a file to evict. Skips files in use, at most [`PASSED_MAX`] of them.
    fn forgettable(&mut self, is_open: impl Fn(FileId) -> bool) -> Option<u64> {
        for _ in 0..PASSED_MAX {
            let (inode, entry) = self.next_behind(self.hand)?;
            let file = FileId { inode, generation: entry.generation };
            let is_used = entry.is_recent.take() || is_open(file);
            self.hand = inode;
            if !is_used {
                break;
            }
        }
        Some(self.hand)
    }

    /// Returns the entry with the next higher inode number, or the first entry after the last.
    fn next_behind(&self, inode: u64) -> Option<(u64, &PackedSeen)> {
        let mut behind = self.entries.range((Bound::Excluded(inode), Bound::Unbounded));
        let next = behind.next().or_else(|| self.entries.first_key_value());
        next.map(|(inode, entry)| (*inode, entry))
    }

    fn write(&self, records: &mut Records, record: &Record<'_>) {
        if records.append(record) {
            self.write_gathered(records);
        }
    }

    /// Writes the records that wait to the journal, and compacts it if most of its records are obsolete.
    pub(super) fn write_gathered(&self, records: &mut Records) {
        records.write(self.entries.len(), || self.records());
    }

    /// Returns the records from which the table can be made again.
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.entries.iter().filter_map(|(inode, entry)| {
            let file = FileId { inode: *inode, generation: entry.generation };
            let Seen { dir, name, called } = entry.seen()?;
            Some(Record::Seen { file, dir, name, called })
        })
    }

    /// Returns the number of files in the table, and its size in octets.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        let octets = self.entries.values().map(PackedSeen::octets).sum();
        assert_eq!(self.octets, octets);
        (self.entries.len(), octets)
    }
}

impl PackedSeen {
    fn new(generation: u64, seen: &Seen<'_>) -> Self {
        // A file system's handle is at most 132 octets long.
        let length = u8::try_from(seen.called.len()).unwrap_or(0);
        let called = seen.called.get(..usize::from(length)).unwrap_or_default();
        let numbers = [seen.dir.inode, seen.dir.generation].map(u64::to_be_bytes);
        let packed = [&numbers[0][..], &numbers[1], &[length], called, seen.name].concat();
        Self { generation, is_recent: Cell::new(true), packed: packed.into() }
    }

    fn seen(&self) -> Option<Seen<'_>> {
        let (inode, rest) = self.packed.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let ([length], rest) = rest.split_first_chunk()?;
        let (called, name) = rest.split_at_checked(usize::from(*length))?;
        let [inode, generation] = [inode, generation].map(|number| u64::from_be_bytes(*number));
        Some(Seen { dir: FileId { inode, generation }, name, called })
    }

    const fn octets(&self) -> usize {
        AROUND + self.packed.len()
    }
}

/// Octets of an entry besides its own block: some 150 in all for a name of 16.
const AROUND: usize = {
    let mut octets = 0;
    octets += 2 * (size_of::<u64>() + size_of::<PackedSeen>()); // in a node that may be half full
    octets += 24; // what the heap adds to a block, at most
    octets
};
/// Maximum number of files in use that eviction skips; it then takes the next one, in use or not.
const PASSED_MAX: usize = 64;
#[cfg(test)]
mod tests {
    use haulage::sys::private::Directory;

    use super::*;

    /// Returns no journal.
    const fn none() -> Records {
        Records::new(None)
    }

    const ROOT: FileId = FileId { inode: 2, generation: 9 };

    const fn file(inode: u64) -> FileId {
        FileId { inode, generation: 7 }
    }

    fn note(known: &mut Known, inode: u64, open: &[u64]) {
        let name = inode.to_be_bytes();
        let is_open = |file: FileId| open.contains(&file.inode);
        known.note(&mut none(), file(inode), (ROOT, &name), || [1, 2, 3].into(), is_open);
    }

    #[test]
    fn what_is_known_takes_a_bounded_number_of_octets() {
        let each = AROUND + 16 + 1 + 3 + 8;
        let mut known = Known::new(10 * each);
        for inode in 100..1000 {
            note(&mut known, inode, &[]);
            assert!(known.len().1 <= 10 * each);
            let name = inode.to_be_bytes();
            let seen = Seen { dir: ROOT, name: &name, called: &[1, 2, 3] };
            assert_eq!(known.find(file(inode)), Some(seen), "the latest is known");
        }
        assert_eq!(known.len(), (10, 10 * each));
        // A file that is noted twice is counted once.
        note(&mut known, 999, &[]);
        let longer = known.len().1;
        known.note(&mut none(), file(999), (ROOT, b"a longer name"), Box::default, |_| false);
        assert!(known.len().1 <= longer);
        known.forget(&mut none(), file(999));
        assert_eq!(known.find(file(999)), None);
        // An entry that is longer than the whole table is not kept.
        let mut none = Known::new(each - 1);
        note(&mut none, 100, &[]);
        assert_eq!(none.len(), (0, 0));
    }

    #[test]
    fn others_see_which_handles_are_known() {
        let each = AROUND + 16 + 1 + 3 + 8;
        let mut known = Known::new(10 * each);
        let called = known.called();
        let has = |inode: u64| called.has(file(inode), (ROOT, &inode.to_be_bytes()));
        for inode in 0..100 {
            assert!(!has(inode));
            note(&mut known, inode, &[]);
            assert!(has(inode), "{inode}");
        }
        let seen = (0..100).filter(|inode| has(*inode)).count();
        assert_eq!(seen, 10, "those that were evicted are not known");
        assert!(!called.has(FileId { inode: 99, generation: 8 }, (ROOT, &99_u64.to_be_bytes())));
        known.forget(&mut none(), file(99));
        assert!(!has(99));
        // A handle that was not known when a file was noted is noted with the next one.
        for handle in [&[][..], &[], &[4, 5]] {
            known.note(&mut none(), file(7), (ROOT, b"seven"), || handle.into(), |_| false);
            let seen = Seen { dir: ROOT, name: b"seven", called: handle };
            assert_eq!(known.find(file(7)), Some(seen));
            assert_eq!(called.has(file(7), (ROOT, b"seven")), !handle.is_empty());
        }
        let another = || panic!("the handle is known");
        known.note(&mut none(), file(7), (ROOT, b"seven"), another, |_| false);
        known.note(&mut none(), file(7), (ROOT, b"moved"), another, |_| false);
        let moved = Seen { dir: ROOT, name: b"moved", called: &[4, 5] };
        assert_eq!(known.find(file(7)), Some(moved));
        assert_eq!(
            [&b"seven"[..], b"moved"].map(|name| called.has(file(7), (ROOT, name))),
            [false, true]
        );
    }

    #[test]
    fn a_record_with_which_the_journal_is_compacted_is_kept() {
        let place = crate::testing::TempDir::new();
        let directory = Arc::new(Directory::open(&place.path().join("state")).unwrap());
        let open = || Journal::open(Arc::clone(&directory)).unwrap();
        let mut records = Records::new(Some(open()));
        let mut known = Known::new(1 << 20);
        let length = || std::fs::metadata(directory.path("names")).unwrap().len();
        // The records of two names, by turns, until the journal has become shorter.
        let mut before = 0;
        let last = (0..1_000_000_u32).find(|at| {
            let name = [if at % 2 == 0 { b'a' } else { b'b' }];
            known.note(&mut records, file(7), (ROOT, &name), Box::default, |_| false);
            length() < std::mem::replace(&mut before, length())
        });
        let name = [if last.unwrap() % 2 == 0 { b'a' } else { b'b' }];
        let known = Known::from_journal(&mut open(), 1 << 20).unwrap();
        assert_eq!(known.find(file(7)), Some(Seen { dir: ROOT, name: &name, called: &[] }));
    }

    #[test]
    fn what_is_open_or_looked_for_is_forgotten_last() {
        let each = AROUND + 16 + 1 + 3 + 8;
        let mut known = Known::new(10 * each);
        (0..10).for_each(|inode| note(&mut known, inode, &[]));
        for inode in 10..200 {
            note(&mut known, inode, &[3]);
            assert!(known.find(file(5)).is_some(), "after {inode}");
        }
        assert!(known.find(file(3)).is_some());
        assert!((0..10).filter(|inode| known.find(file(*inode)).is_some()).count() < 5);
    }
}
