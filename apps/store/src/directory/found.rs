//! Names that were looked up for a Call before it is executed, so that nothing waits while it is.
//!
//! # Normal operation
//! A name that the system has cached is opened without a wait. Another is looked up by a helper, since that takes the lock
//! of the directory, and the Call is executed once that has ended. What was found is the Call's alone, and is dropped
//! after the turn in which it was executed, or when the names of the directory have changed before.
//!
//! A Call that waits for a change of a directory is not executed yet, but a helper looks up the name already, if the Call
//! is to make a file of it: then the system knows that there is none, and the Call need not wait twice.
//!
//! # Limits
//! A bounded number of helpers looks up names of one directory (`Tree::may_look_in`); other Calls wait behind them. At
//! most [`EXPECTED_MAX`] names a turn are looked up for Calls that wait, by the helper that waits for the directory's lock.

use std::rc::Rc;

use super::Directory;
use super::changes::{Change, Then};
use super::helpers::Cost;
use super::jobs::steps::{Ahead, LookUp};
use super::node::Node;
use super::tree::found::{Found, What};
use crate::backend::{Names, Ticket};
use crate::handle::FileId;
use crate::nfs3::Name;

impl Directory {
    /// Looks up the names of a Call.
    pub(super) fn look_up(
        &mut self,
        ticket: Ticket,
        names: [Option<(FileId, Name<'_>)>; 2],
    ) -> Names {
        if let [Some((from, _)), Some((to, _))] = names
            && from != to
            && self.is_changing(ACROSS, None)
        {
            return Names::Behind(ACROSS);
        }
        let mut found = self.looked.remove(&ticket).unwrap_or_default();
        self.listed = None;
        drop(self.take_read(ticket));
        if self.tree.files.helpers.has_waker() {
            for (dir, name) in names.into_iter().flatten() {
                let is_it = |found: &Found| found.dir == dir && *found.name == *name.0;
                if matches!(name.0, b"." | b"..") || found.iter().any(is_it) {
                    continue;
                }
                // A directory that is not at hand is found to be none, or gone, when the Call is executed.
                let Some(node) = self.tree.files.at_hand(dir) else { continue };
                let what = match node.cached_place(name.0) {
                    Some(Ok(place)) => What::Descriptor(place),
                    Some(Err(errno)) => What::Failed(errno),
                    None => {
                        let begun = self.begin_look_up(ticket, &node, name);
                        // The results of a Call that waits behind others are not kept.
                        if begun == Names::Begun {
                            self.looked.insert(ticket, found);
                        }
                        return begun;
                    }
                };
                found.push(Found { dir, name: name.0.into(), what });
            }
        }
        self.tree.found = found;
        Names::Known
    }

    /// Returns a file that a name of the Call leads to, as it was looked up, and that is changing.
    pub(super) fn named_changing(&self) -> Option<FileId> {
        if self.changes.is_empty() {
            return None;
        }
        let files = self.tree.found.iter().filter_map(|found| found.what.file());
        files.into_iter().find(|file| self.is_changing(*file, None))
    }

    /// Notes that a Call will take a name, which is looked up at the end of the turn.
    pub(super) fn expect(&mut self, dir: FileId, name: Name<'_>) {
        let count: usize = self.expected.values().map(Vec::len).sum();
        if !self.tree.files.helpers.has_waker() || count >= EXPECTED_MAX {
            return;
        }
        let is_cached = |dir: Rc<Node>| dir.cached_place(name.0).is_some();
        if !self.tree.files.at_hand(dir).is_none_or(is_cached) {
            self.expected.entry(dir).or_default().push(name.0.into());
        }
    }

    /// Has helpers look up the names that Calls will take.
    pub(super) fn look_ahead(&mut self) {
        while let Some((dir, names)) = self.expected.pop_first() {
            let place = self.tree.files.at_hand(dir).and_then(|dir| dir.another_place().ok());
            if let Some(place) = place {
                self.tree.files.helpers.look_ahead(Ahead { dir: place, names }, dir);
            }
        }
    }

    fn begin_look_up(&mut self, ticket: Ticket, dir: &Node, name: Name<'_>) -> Names {
        if !self.tree.may_look_in(dir.id) {
            return Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return Names::Full };
        let look_up = LookUp { dir: place, name: name.0.into() };
        let then = Then::Show { dir: dir.id, name: name.0.into() };
        let change = Change { files: Vec::new(), name: None, cost: Cost::Little, then };
        if self.tree.files.helpers.is_full(Cost::Little, ticket.network)
            || !self.tree.files.helpers.look_up(look_up, ticket)
        {
            return Names::Full;
        }
        self.changes.insert(ticket, change);
        self.tree.looks_in(dir.id);
        Names::Begun
    }
}

/// Maximum number of names that are looked up for Calls that wait, begun in one turn.
const EXPECTED_MAX: usize = 64;

/// Stands for the lock of the file system that the system takes for a name that goes to another directory: such changes
/// are made one by one.
pub(super) const ACROSS: FileId = FileId { inode: 0, generation: 0 };
