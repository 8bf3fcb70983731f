//! Finding the files of a directory tree by their IDs.
//!
//! # Normal operation
//! A recently used file is still open. Another is found where it was last seen: from an open directory, or the top,
//! down name by name. Each step checks that the name still leads to the same file as when it was seen. What the system
//! has to wait for, a helper does.
//!
//! # Recovery
//! A file that is not where it was seen was renamed outside the server, or removed. With the privilege to open files by
//! their file system's handles, a directory is found wherever it was moved, and a removed file is known to be gone.
//! Other files are found by a bounded search, in later turns. If that ends before the end of the tree, a file
//! that is known to exist is assumed to be in the tree. A file that was not found is remembered as gone until the
//! directory in which it was last seen changes; then that directory is searched again.

use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::config::Config;
use super::jobs::searching::Part;
use super::jobs::steps::Stepped;
use super::known::Known;
use super::node::Node;
use super::shared::Shared;
use super::system::look::Look;
use crate::backend::Located;
use crate::handle::FileId;
use crate::nfs3::Status;

mod descent;
pub(super) mod files;
pub(super) mod found;
mod gone;
mod open;
mod search;
mod sought;
mod ways;
mod within;

use descent::{Descent, Otherwise, Reached};
use files::{Files, Since};
use found::{Found, What};
use search::Searches;
use sought::Scope;
use ways::Ways;

/// The files below a directory, and how they are found.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) files: Files,
    /// What was looked up for the Call that is executed.
    pub(super) found: Vec<Found>,
    ways: Ways,
    searches: Searches,
}

impl Tree {
    /// Opens the tree below the directory at `path`. `known` holds where its files were seen.
    pub(super) fn new(
        path: &Path,
        (known, shared): (Known, Shared),
        config: &Config,
    ) -> io::Result<Self> {
        Ok(Self {
            files: Files::new(path, (known, shared), config.open_max)?,
            found: Vec::new(),
            ways: Ways::default(),
            searches: Searches::new(config.search_max, config.search_turn_max.max(1)),
        })
    }

    /// Finds a file, and reads its attributes.
    pub(super) fn find(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        match self.files.find(id)? {
            Some(found) => Ok(found),
            None => self.find_closed(id),
        }
    }

    /// Begins a turn: drops the cached attributes and places of directories, and continues searches. Returns whether
    /// searches are left.
    pub(super) fn turn(&mut self) -> bool {
        self.files.turn();
        self.found.clear();
        self.searches.search(&mut self.files, &mut self.ways)
    }

    /// Finds a directory whose names are to be read or changed, and checks that it is still in the tree.
    pub(super) fn directory(&mut self, id: FileId) -> Result<Rc<Node>, Status> {
        let (node, look) = self.find(id)?;
        look.directory()?;
        self.files.check_within(&node)?;
        Ok(node)
    }

    /// Finds the file with a name in a directory: where it was looked up for the Call that is executed, what was found.
    pub(super) fn child(&mut self, dir: &Node, name: &[u8]) -> Result<(Rc<Node>, Look), Status> {
        // Where another file system is mounted, `Node::child` knows what stands for it; the system keeps such names.
        let is_mounted = |found: &Found| matches!(found.what, What::Failed(Errno::XDEV));
        let is_it =
            |found: &Found| found.dir == dir.id && *found.name == *name && !is_mounted(found);
        let Some(at) = self.found.iter().position(is_it) else {
            let (node, look) = dir.child(name)?;
            return Ok((self.files.keep_seen((node, look), dir.id, name), look));
        };
        let found = self.found.swap_remove(at);
        let (node, look) = match found.what {
            What::Kept(node) => {
                let look = self.files.look_at(&node)?;
                (node, look)
            }
            What::Descriptor(place) => {
                let (node, look) = Node::of_place(place, &self.files.helpers)?;
                (self.files.keep_seen((node, look), dir.id, name), look)
            }
            What::Failed(errno) => {
                self.found.push(found);
                return Err(errno.into());
            }
        };
        let what = What::Kept(Rc::clone(&node));
        self.found.push(Found { what, ..found });
        Ok((node, look))
    }

    /// Looks for a file where it was last seen, as far as the system knows without waiting. The rest of the way, and the
    /// search for a file that is not there, go on in later turns.
    pub(super) fn locate(&mut self, id: FileId) -> Located {
        if self.files.is_at_hand(id) {
            return Located::Now;
        }
        if self.ways.is_on_the_way(id) || self.ways.sought.is_sought(id) {
            return Located::Later;
        }
        let mut scope = Scope::Tree;
        if let Some(searched) = self.files.gone.get(id) {
            match searched {
                Some(searched) => match self.files.since(searched) {
                    Since::Unchanged => return Located::Now,
                    Since::Changed => scope = Scope::Directory(searched.dir),
                    Since::Unknown => {}
                },
                None => return Located::Now,
            }
        }
        let descent = Descent::set_out(&mut self.files, id, Otherwise::Search(scope));
        self.ways.go_on(&mut self.files, descent)
    }

    /// Takes in what became of a step on the way to a file.
    pub(super) fn stepped(&mut self, file: FileId, done: Stepped) {
        self.ways.stepped(&mut self.files, file, done);
    }

    /// Takes in what a helper has searched.
    pub(super) fn searched(&mut self, part: Part) {
        self.searches.searched(&mut self.files, &mut self.ways, part);
    }

    /// Returns the next file whose search has ended, found or not.
    pub(super) fn next_searched(&mut self) -> Option<FileId> {
        self.ways.sought.ended.pop_front()
    }

    /// Returns the next directory in which a name was looked up on the way to a file: Calls may wait to look up one there.
    pub(super) fn next_left(&mut self) -> Option<FileId> {
        self.ways.next_left()
    }

    /// Takes in that a helper looks up a name in a directory.
    pub(super) fn looks_in(&mut self, dir: FileId) {
        self.ways.looks_in(dir);
    }

    /// Takes in that a helper has looked up a name in a directory.
    pub(super) fn looked_in(&mut self, dir: FileId) {
        self.ways.looked_in(&mut self.files, dir);
    }

    /// Returns whether one more name may be looked up in a directory.
    pub(super) fn may_look_in(&self, dir: FileId) -> bool {
        self.ways.may_look_in(dir)
    }

    /// Returns whether searches go on in the next turn. One that waits for a helper goes on once that has ended.
    pub(super) fn is_searching(&self) -> bool {
        self.searches.is_searching(&self.files, &self.ways)
    }

    /// Finds a file that is not open, without a wait.
    ///
    /// # Errors
    /// [`Status::Stale`] if the file is gone; [`Status::Jukebox`] if it has to be waited for, which
    /// [`locate`](Self::locate) begins.
    #[inline(never)]
    fn find_closed(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if self.files.gone.get(id).is_some() {
            return Err(Status::Stale);
        }
        let descent = Descent::set_out(&mut self.files, id, Otherwise::Search(Scope::Tree));
        match descent.go_at_once(&mut self.files) {
            Reached::File(node) => {
                let look = node.look()?;
                Ok((node, look))
            }
            Reached::Gone => Err(Status::Stale),
            Reached::Partway(_) | Reached::Step(..) | Reached::Nothing(_) => Err(Status::Jukebox),
        }
    }
}

#[cfg(test)]
impl Tree {
    /// Returns whether a descent to a file is under way.
    pub(super) fn is_on_the_way(&self, file: FileId) -> bool {
        self.ways.is_on_the_way(file)
    }

    /// Returns whether a file is searched for, or queued for that.
    pub(super) fn is_sought(&self, file: FileId) -> bool {
        self.ways.sought.is_sought(file)
    }

    /// Has as many helpers wait for the removal of files as may.
    pub(super) fn hold_handles(&mut self) {
        self.ways.hold_handles();
    }

    /// Makes the running search miss a part of the tree, as if the system had failed with this error.
    pub(super) fn miss(&mut self, errno: Errno) {
        self.searches.miss(errno);
    }

    /// Returns the number of names examined in this turn.
    pub(super) const fn looked_at(&self) -> usize {
        self.searches.looked_at()
    }
}
