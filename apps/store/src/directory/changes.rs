//! Changes under way: what the core does before and after a helper.

use std::rc::Rc;

use super::Directory;
use super::helpers::Cost;
use super::jobs::acts::Act;
use super::jobs::change::Done;
use super::jobs::steps::Stepped;
use super::jobs::syncing::Sync;
use super::node::Node;
use super::tree::found::{Found, What};
use crate::backend::{Around, Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::Status;

/// A change under way.
#[derive(Debug)]
pub(super) struct Change {
    /// The files that the system locks for the change: those that are changed, and the directories of the names. No
    /// other change of them begins meanwhile: so changes of a file keep their order, what was checked for a change
    /// still holds when it is made, and one lock takes one helper.
    pub(super) files: Vec<FileId>,
    /// The only name of the first of the files that the change takes, if it changes nothing else of that directory. Changes
    /// of other names may be queued behind it.
    pub(super) name: Option<Box<[u8]>>,
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
    /// Makes a change. Returns `None` if it is left to a helper, and otherwise the new file, if it makes one. What the core
    /// makes itself is on stable storage then.
    pub(super) fn begin_change(
        &mut self,
        ticket: Ticket,
        act: Act,
        change: Change,
    ) -> Result<Option<Option<FileId>>, Status> {
        if self.tree.files.helpers.is_full(change.cost, ticket.network)
            || self.settling.is_full(ticket)
        {
            return Err(Status::Jukebox);
        }
        let dir = change.files.first().filter(|_| change.name.is_some());
        let Some(act) = self.tree.files.helpers.make(act, ticket, (change.cost, dir.copied()))
        else {
            self.changes.insert(ticket, change);
            self.settling.enter(ticket);
            return Ok(None);
        };
        self.change_at_once(&act, &change).map(Some)
    }

    /// Makes a change, and brings it to stable storage, before it returns the new file.
    pub(super) fn change_at_once(
        &mut self,
        act: &Act,
        change: &Change,
    ) -> Result<Option<FileId>, Status> {
        let (made, changed) = self.finish_change(change, act.run());
        let settled = self.settle_at_once(&changed);
        made.and_then(|made| settled.map(|()| made))
    }

    /// Takes in what a helper has looked up for a Call. Returns what the server is told.
    pub(super) fn looked_up(&mut self, ticket: Ticket, found: Stepped) -> Option<Finished> {
        let dir = match self.changes.remove(&ticket)?.then {
            Then::Show { dir, name } => {
                let what = match found {
                    Ok(fresh) => {
                        What::Descriptor(Node::from_fresh(*fresh, &self.tree.files.helpers).place)
                    }
                    Err(errno) => What::Failed(errno),
                };
                self.looked.entry(ticket).or_default().push(Found { dir, name, what });
                dir
            }
            Then::Again { dir } => dir,
            _ => return None,
        };
        self.tree.looked_in(dir);
        Some(Finished::LookedUp(Some(ticket), dir))
    }

    /// Takes in a change that a helper has made. Returns what the server is told.
    pub(super) fn changed(&mut self, ticket: Ticket, done: Done) -> Option<Finished> {
        let change = self.changes.remove(&ticket)?;
        let is_new = matches!(change.then, Then::Keep { .. });
        let around = done.as_ref().ok().and_then(|after| after.around);
        let around = around.or_else(|| self.unchanged(&change));
        self.tree.files.known.gather();
        let (ended, changed) = self.finish_change(&change, done);
        self.tree.files.known.stop_gathering();
        let finished = if is_new {
            // The outcome of a change that makes a file is that file.
            Finished::Made(ticket, ended.and_then(|made| made.ok_or(Status::ServerFault)))
        } else {
            Finished::Changed(ticket, ended.map(drop))
        };
        self.settle(ticket, finished, changed);
        Some(Finished::Free(ticket, change.files, around))
    }

    /// Returns the attributes of a directory that a change has left as it is, if others may be queued behind it.
    fn unchanged(&mut self, change: &Change) -> Option<Around> {
        let dir = change.files.first().filter(|_| change.name.is_some())?;
        self.tree.files.forget_looks();
        let (_, look) = self.tree.find(*dir).ok()?;
        Some(Around { before: look.attributes, after: look.attributes })
    }

    /// Returns whether a change of a file is under way that one of this name in it, or any, has to wait for.
    pub(super) fn is_changing(&self, file: FileId, name: Option<&[u8]>) -> bool {
        let mut queued = 0;
        self.changes.values().filter(|change| change.files.contains(&file)).any(|change| {
            queued += 1;
            !change.leaves(file, name) || queued == QUEUED_MAX
        })
    }

    /// Checks that no helper cuts a file. The system has everybody who changes the file, or a name of it, wait until it is
    /// cut.
    pub(super) fn check_uncut(&self, file: FileId) -> Result<(), Status> {
        let is_it = |change: &Change| change.files.contains(&file);
        let is_cut = self.changes.values().any(|change| change.cost == Cost::Dear && is_it(change));
        if is_cut { Err(Status::Jukebox) } else { Ok(()) }
    }

    /// Takes in that a change was made, or refused. Returns the new file, if it makes one, and what is to be brought to
    /// stable storage.
    pub(super) fn finish_change(
        &mut self,
        change: &Change,
        done: Done,
    ) -> (Result<Option<FileId>, Status>, Vec<Sync>) {
        self.forget_what_was_found(&change.files);
        self.note_change(change.files.iter().copied());
        let is_made = done.is_ok();
        match &change.then {
            Then::Set { node, mode: Some(mode) } if is_made => node.note_mode(*mode),
            Then::Reap(node) if is_made => self.reap(node),
            Then::See { node, dir, name } if is_made => self.tree.files.saw(node, *dir, name),
            // Renaming one name of a file to another of its names changes nothing.
            Then::Move { node, target: Some(target), .. } if target.id == node.id => {}
            Then::Move { node, target, dir, name } if is_made => {
                if let Some(target) = target {
                    self.reap(target);
                }
                self.tree.files.saw(node, *dir, name);
            }
            _ => {}
        }
        match (done, &change.then) {
            (Ok(after), Then::Keep { dir, name }) => {
                let made = after.made.map(|fresh| {
                    let node = Node::from_fresh(fresh, &self.tree.files.helpers);
                    self.tree.files.keep(node, *dir, name).id
                });
                (Ok(made), after.unsettled)
            }
            (Ok(after), _) => (Ok(None), after.unsettled),
            (Err(status), _) => (Err(status), Vec::new()),
        }
    }

    /// Takes in that the server has changed files, or may have.
    pub(super) fn note_change(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.tree.files.forget_looks();
        files.into_iter().for_each(|file| self.recent.note_change(file));
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
            self.tree.files.forget(node.id);
        }
    }
}

impl Change {
    /// Returns whether the change leaves a name of a file as it is, and what a change of that name rests on.
    fn leaves(&self, file: FileId, name: Option<&[u8]>) -> bool {
        let is_it =
            |own: &[u8]| self.files.first() == Some(&file) && name.is_some_and(|it| it != own);
        self.name.as_deref().is_some_and(is_it)
    }
}

/// Maximum number of changes of one directory that are under way.
const QUEUED_MAX: usize = 32;
