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

use std::collections::BTreeMap;
use std::rc::Rc;

use super::helpers::Cost;
use super::jobs::steps::{Ahead, LookUp, Stepped};
use super::node::Node;
use super::tree::Tree;
use super::tree::found::{Found, What};
use crate::backend::{Finished, Names, Ticket};
use crate::handle::FileId;
use crate::nfs3::Name;

/// Names that are looked up for Calls.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    /// What helpers look up.
    under_way: BTreeMap<Ticket, Asked>,
    /// What helpers have looked up for Calls that wait.
    found: BTreeMap<Ticket, Vec<Found>>,
    /// Names that Calls will take which wait for changes of these directories.
    expected: BTreeMap<FileId, Vec<Box<[u8]>>>,
}

/// A name that a helper looks up.
#[derive(Debug)]
struct Asked {
    dir: FileId,
    name: Box<[u8]>,
    /// Whether names of the directory have changed since: the Call asks once more.
    is_outdated: bool,
}

impl LookUps {
    /// Looks up the names of a Call.
    pub(super) fn look_up(
        &mut self,
        tree: &mut Tree,
        ticket: Ticket,
        names: [Option<(FileId, Name<'_>)>; 2],
    ) -> Names {
        let mut found = self.found.remove(&ticket).unwrap_or_default();
        if tree.files.helpers.has_waker() {
            for (dir, name) in names.into_iter().flatten() {
                let is_it = |found: &Found| found.dir == dir && *found.name == *name.0;
                if matches!(name.0, b"." | b"..") || found.iter().any(is_it) {
                    continue;
                }
                // A directory that is not at hand is found to be none, or gone, when the Call is executed.
                let Some(node) = tree.files.at_hand(dir) else { continue };
                let what = match node.cached_place(name.0) {
                    Some(Ok(place)) => What::Descriptor(place),
                    Some(Err(errno)) => What::Failed(errno),
                    None => {
                        let begun = self.begin(tree, ticket, &node, name);
                        // The results of a Call that waits behind others are not kept.
                        if begun == Names::Begun {
                            self.found.insert(ticket, found);
                        }
                        return begun;
                    }
                };
                found.push(Found { dir, name: name.0.into(), what });
            }
        }
        tree.found = found;
        Names::Known
    }

    /// Takes in what a helper has looked up for a Call. Returns what the server is told.
    pub(super) fn looked_up(
        &mut self,
        tree: &mut Tree,
        ticket: Ticket,
        found: Stepped,
    ) -> Option<Finished> {
        let Asked { dir, name, is_outdated } = self.under_way.remove(&ticket)?;
        if !is_outdated {
            let what = match found {
                Ok(fresh) => What::Descriptor(Node::from_fresh(*fresh, &tree.files.helpers).place),
                Err(errno) => What::Failed(errno),
            };
            self.found.entry(ticket).or_default().push(Found { dir, name, what });
        }
        tree.looked_in(dir);
        Some(Finished::LookedUp(Some(ticket), dir))
    }

    /// Notes that a Call will take a name, which is looked up at the end of the turn.
    pub(super) fn expect(&mut self, tree: &mut Tree, dir: FileId, name: Name<'_>) {
        let count: usize = self.expected.values().map(Vec::len).sum();
        if !tree.files.helpers.has_waker() || count >= EXPECTED_MAX {
            return;
        }
        let is_cached = |dir: Rc<Node>| dir.cached_place(name.0).is_some();
        if !tree.files.at_hand(dir).is_none_or(is_cached) {
            self.expected.entry(dir).or_default().push(name.0.into());
        }
    }

    /// Has helpers look up the names that Calls will take.
    pub(super) fn look_ahead(&mut self, tree: &mut Tree) {
        while let Some((dir, names)) = self.expected.pop_first() {
            let place = tree.files.at_hand(dir).and_then(|dir| dir.another_place().ok());
            if let Some(place) = place {
                tree.files.helpers.look_ahead(Ahead { dir: place, names }, dir);
            }
        }
    }

    /// Forgets what names in these directories led to before they were changed.
    pub(super) fn forget(&mut self, dirs: &[FileId]) {
        self.found.values_mut().for_each(|found| found.retain(|found| !dirs.contains(&found.dir)));
        let asked = self.under_way.values_mut().filter(|asked| dirs.contains(&asked.dir));
        asked.for_each(|asked| asked.is_outdated = true);
    }

    /// Returns the number of names that helpers look up.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Returns whether nothing is kept of what helpers looked up.
    #[cfg(test)]
    pub(super) fn has_found_nothing(&self) -> bool {
        self.found.is_empty()
    }

    fn begin(&mut self, tree: &mut Tree, ticket: Ticket, dir: &Node, name: Name<'_>) -> Names {
        if !tree.may_look_in(dir.id) {
            return Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return Names::Full };
        let (dir, name): (_, Box<[u8]>) = (dir.id, name.0.into());
        let look_up = LookUp { dir: place, name: name.clone() };
        let helpers = &tree.files.helpers;
        if helpers.is_full(Cost::Little, ticket.network) || !helpers.look_up(look_up, ticket) {
            return Names::Full;
        }
        self.under_way.insert(ticket, Asked { dir, name, is_outdated: false });
        tree.looks_in(dir);
        Names::Begun
    }
}

/// Maximum number of names that are looked up for Calls that wait, begun in one turn.
const EXPECTED_MAX: usize = 64;
