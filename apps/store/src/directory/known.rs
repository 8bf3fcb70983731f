//! Where files were seen last: from a file's number to a directory and a name in it.
//!
//! # Recovery
//! With a [`Journal`] the table outlives the server, so that a client's handles still lead somewhere
//! when it is started again. What is in the table is a hint: whoever follows it checks where it led.
//!
//! # Limits
//! At most [`KNOWN_MAX`] files; those beyond are found by a search. Making the journal short again, once
//! for several changes of every file in it, takes the core as long as the disk needs to write it.

use std::collections::BTreeMap;

use super::journal::{Journal, Record};
use crate::handle::FileId;

/// Where files were seen.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By the file's number: its generation, and where it was.
    seen: BTreeMap<u64, (u64, Seen)>,
    journal: Option<Journal>,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The directory.
    pub(super) dir: FileId,
    /// The name in it.
    pub(super) name: Box<[u8]>,
    /// What its file system calls the file; empty if that is of no use.
    pub(super) called: Box<[u8]>,
}

impl Known {
    /// Takes what a journal says, and goes on with it.
    pub(super) fn from_journal(mut journal: Journal) -> std::io::Result<Self> {
        let mut known = Self::default();
        journal.read(|record| match record {
            Record::Seen { file, dir, name, called } => {
                let seen = Seen { dir, name: name.into(), called: called.into() };
                known.seen.insert(file.inode, (file.generation, seen));
            }
            Record::Gone { file } => {
                known.seen.remove(&file.inode);
            }
        })?;
        known.rewrite(&mut journal)?;
        known.journal = Some(journal);
        Ok(known)
    }

    /// Returns where a file was seen last.
    pub(super) fn find(&self, file: FileId) -> Option<&Seen> {
        let (generation, seen) = self.seen.get(&file.inode)?;
        (*generation == file.generation).then_some(seen)
    }

    /// Notes where a file is. `called` tells what its file system calls it, if that is not known.
    pub(super) fn note(
        &mut self,
        file: FileId,
        dir: FileId,
        name: &[u8],
        called: impl FnOnce() -> Box<[u8]>,
    ) {
        let old = self.find(file);
        let known = old.is_some_and(|seen| seen.dir == dir && *seen.name == *name);
        let room = self.seen.len() < KNOWN_MAX || self.seen.contains_key(&file.inode);
        if known || !room {
            return;
        }
        let called = old.map_or_else(called, |seen| seen.called.clone());
        self.write(&Record::Seen { file, dir, name, called: &called });
        self.seen.insert(file.inode, (file.generation, Seen { dir, name: name.into(), called }));
    }

    /// Forgets a file that is gone.
    pub(super) fn forget(&mut self, file: FileId) {
        if self.find(file).is_some() {
            self.seen.remove(&file.inode);
            self.write(&Record::Gone { file });
        }
    }

    /// Adds to the journal, and makes it short again if most of it says nothing any more.
    fn write(&mut self, record: &Record<'_>) {
        let Some(mut journal) = self.journal.take() else { return };
        // A disk that fails costs handles that outlive the server, not the service.
        let written = journal.append(record);
        let wasted = journal.records() > 4 * self.seen.len() as u64 + SHORT;
        if written.is_ok() && wasted {
            let _ = self.rewrite(&mut journal);
        }
        self.journal = Some(journal);
    }

    fn rewrite(&self, journal: &mut Journal) -> std::io::Result<()> {
        journal.rewrite(self.seen.iter().map(|(inode, (generation, seen))| {
            let file = FileId { inode: *inode, generation: *generation };
            let Seen { dir, name, called } = seen;
            Record::Seen { file, dir: *dir, name, called }
        }))
    }
}

/// Files that are known at most: some 100 octets each.
const KNOWN_MAX: usize = 4 << 20;
/// Records not worth making fewer.
const SHORT: u64 = 1 << 16;
