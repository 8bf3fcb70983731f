//! The journal of where files are, if a server keeps one.

use super::journal::{Journal, Record};

/// The records of where files were seen, which outlive the server.
#[derive(Debug)]
pub(crate) struct Records {
    journal: Option<Journal>,
    /// Whether records wait until they are [written](Self::write).
    is_gathering: bool,
}

impl Records {
    /// Keeps records in a journal, or none if there is none.
    pub(crate) const fn new(journal: Option<Journal>) -> Self {
        Self { journal, is_gathering: false }
    }

    /// Has what is recorded from now on wait until it is [written](Self::write) in one go.
    pub(crate) const fn gather(&mut self) {
        self.is_gathering = true;
    }

    /// Has what is recorded from now on be written at once, behind what waits.
    pub(crate) const fn stop_gathering(&mut self) {
        self.is_gathering = false;
    }

    /// Records something. Returns whether it is to be written now.
    pub(crate) fn append(&mut self, record: &Record<'_>) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        journal.append(record);
        !self.is_gathering
    }

    /// Writes what was recorded. Where far more records than `count` are kept, `all` replaces them: `count` records.
    pub(crate) fn write<'a, R: Iterator<Item = Record<'a>>>(
        &mut self,
        count: usize,
        all: impl FnOnce() -> R,
    ) {
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.has_unwritten()) else {
            return;
        };
        // If the disk fails, handles may not outlive the server, but service continues.
        let written = journal.write();
        let wasted = journal.records() > 4 * count as u64 + SHORT;
        if written.is_ok() && wasted {
            let _ = journal.rewrite(all());
        }
    }
}

/// Number of records below which the journal is not compacted.
const SHORT: u64 = 1 << 16;
