//! Which files are searched for.

use std::collections::{BTreeMap, VecDeque};

use super::gone::Searched;
use crate::handle::FileId;

/// The files that are searched for.
#[derive(Debug, Default)]
pub(super) struct Sought {
    /// Files for the next pass.
    pub(super) queued: BTreeMap<FileId, Scope>,
    /// Files that the running pass looks for.
    pub(super) wanted: BTreeMap<FileId, Wanted>,
    /// Files whose search has ended, found or not, until that is reported.
    pub(super) ended: VecDeque<FileId>,
}

/// The scope of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole tree.
    Tree,
    /// The directory where the file was last seen: a recent search found it in no other.
    Directory(FileId),
}

/// A file that a pass looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) searched: Option<Searched>,
    /// Whether the file was listed under a name and then not found there: it is being renamed.
    pub(super) is_moving: bool,
}

impl Sought {
    /// Queues a file for a search. Returns whether there was room.
    pub(super) fn search_for(&mut self, file: FileId, scope: Scope) -> bool {
        let is_sought = self.is_sought(file);
        let room = self.queued.len() < QUEUED_MAX;
        if room && !is_sought {
            self.queued.insert(file, scope);
        }
        room || is_sought
    }

    /// Returns whether a file is searched for, or queued for that.
    pub(super) fn is_sought(&self, file: FileId) -> bool {
        self.wanted.contains_key(&file) || self.queued.contains_key(&file)
    }
}

/// Maximum number of files that wait for the next pass.
const QUEUED_MAX: usize = 256;
