//! Changes under way: what the core does before and after a helper.

use std::rc::Rc;

use rustix::io::Errno;

use super::Directory;
use super::acts::{Act, Done, Made, Undone};
use super::found::{Found, What};
use super::helpers::Cost;
use super::node::Node;
use crate::backend::{Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::Status;

/// A change under way.
#[derive(Debug)]
pub(super) struct Change {
    /// The files that the system locks for the change: those that are changed, and the directories of the names. No
    /// other change of them begins meanwhile: so changes of a file keep their order, what was checked for a change
    /// still holds when it is made, and one lock takes one helper.
    pub(super) files: Vec<FileId>,
    pub(super) cost: Cost,
    pub(super) then: Then,
}

/// What the core does once a change has ended.
#[derive(Debug)]
pub(super) enum Then {
    /// Keeps what a name leads to for the Call that asked.
    Show { dir: FileId, name: Box<[u8]> },
    /// Has the Call ask once more: the names of the directory have changed since.
    Again { dir: FileId },
    /// Keeps a new file open.
    Keep { dir: FileId, name: Box<[u8]> },
    /// Notes the permission bits that were set.
    Set { node: Rc<Node>, mode: Option<u32> },
    /// Forgets a file that has no name left.
    Reap(Rc<Node>),
    /// Records one more name of a file.
    See { node: Rc<Node>, dir: FileId, name: Box<[u8]> },
    /// Records the new name of a file, and forgets the one that had it.
    Move { node: Rc<Node>, target: Option<Rc<Node>>, dir: FileId, name: Box<[u8]> },
}

impl Directory {
    /// Makes a change. Returns `None` if it is left to a helper, and otherwise the new file, if it makes one.
    pub(super) fn begin_change(
        &mut self,
        ticket: Ticket,
        act: Act,
        change: Change,
    ) -> Result<Option<Option<FileId>>, Status> {
        if self.tree.helpers.is_full(change.cost, ticket) {
            return Err(Status::Jukebox);
        }
        let Some(act) = self.tree.helpers.make(act, ticket, change.cost) else {
            self.changes.insert(ticket, change);
            return Ok(None);
        };
        self.finish_change(&change, act.run()).map(Some)
    }

    /// Takes in a change that a helper has made. Returns what the server is told.
    pub(super) fn changed(&mut self, ticket: Ticket, done: Done) -> Option<Finished> {
        let done = match self.finish_list(ticket, done) {
            Ok(dir) => return Some(Finished::Listed(ticket, dir)),
            Err(done) => done,
        };
        let change = self.changes.remove(&ticket)?;
        if let Then::Again { dir } = change.then {
            self.tree.looked_in(dir);
            return Some(Finished::LookedUp(Some(ticket), dir));
        }
        if let Then::Show { dir, name } = change.then {
            let what = match done {
                Ok(Made::File(fresh)) => {
                    What::Descriptor(Node::from_fresh(fresh, &self.tree.helpers).place)
                }
                Err(Undone::Absent(errno)) => What::Failed(errno),
                _ => What::Failed(Errno::IO),
            };
            self.tree.looked_in(dir);
            self.looked.entry(ticket).or_default().push(Found { dir, name, what });
            return Some(Finished::LookedUp(Some(ticket), dir));
        }
        let is_new = matches!(change.then, Then::Keep { .. });
        let ended = self.finish_change(&change, done);
        Some(if is_new {
            // The outcome of a change that makes a file is that file.
            let made = ended.and_then(|made| made.ok_or(Status::ServerFault));
            Finished::Made(ticket, made, change.files)
        } else {
            Finished::Changed(ticket, ended.map(drop), change.files)
        })
    }

    /// Returns whether a change of a file is under way.
    pub(super) fn is_changing(&self, file: FileId) -> bool {
        self.changes.values().any(|change| change.files.contains(&file))
    }

    /// Checks that no helper cuts a file. The system has everybody who changes the file, or a name of it, wait until it is
    /// cut.
    pub(super) fn check_uncut(&self, file: FileId) -> Result<(), Status> {
        let is_it = |change: &Change| change.files.contains(&file);
        let is_cut = self.changes.values().any(|change| change.cost == Cost::Dear && is_it(change));
        if is_cut { Err(Status::Jukebox) } else { Ok(()) }
    }

    /// Takes in that a change was made, or refused. Returns the new file, if it makes one.
    pub(super) fn finish_change(
        &mut self,
        change: &Change,
        done: Done,
    ) -> Result<Option<FileId>, Status> {
        self.forget_what_was_found(&change.files);
        self.tree.forget_looks();
        let is_made = !matches!(done, Err(Undone::Refused(_) | Undone::Absent(_)));
        match &change.then {
            Then::Set { node, mode: Some(mode) } if is_made => node.note_mode(*mode),
            Then::Reap(node) if is_made => self.reap(node),
            Then::See { node, dir, name } if is_made => self.tree.saw(node, *dir, name),
            // Renaming one name of a file to another of its names changes nothing.
            Then::Move { node, target: Some(target), .. } if target.id == node.id => {}
            Then::Move { node, target, dir, name } if is_made => {
                if let Some(target) = target {
                    self.reap(target);
                }
                self.tree.saw(node, *dir, name);
            }
            _ => {}
        }
        match (done, &change.then) {
            (Ok(Made::File(fresh)), Then::Keep { dir, name }) => {
                let node = Node::from_fresh(fresh, &self.tree.helpers);
                Ok(Some(self.tree.keep(node, *dir, name).id))
            }
            (Ok(_), _) => Ok(None),
            (Err(Undone::Refused(status)), _) => Err(status),
            (Err(Undone::Absent(errno)), _) => Err(errno.into()),
            (Err(Undone::Unsettled(errno)), _) => Err(self.lost(errno)),
        }
    }

    /// Forgets what names in these directories led to before they were changed.
    fn forget_what_was_found(&mut self, dirs: &[FileId]) {
        self.tree.found.clear();
        self.looked.values_mut().for_each(|found| found.retain(|found| !dirs.contains(&found.dir)));
        for change in self.changes.values_mut() {
            if let Then::Show { dir, .. } = change.then
                && dirs.contains(&dir)
            {
                change.then = Then::Again { dir };
            }
        }
    }

    /// Forgets a file that has no name left.
    fn reap(&mut self, node: &Node) {
        if node.look().is_ok_and(|look| look.attributes.links == 0) {
            self.tree.forget(node.id);
        }
    }
}
