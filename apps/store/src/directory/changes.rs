//! Changes under way: what the core does before and after a helper.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::config::Config;
use super::helpers::Cost;
use super::jobs::Helpers;
use super::jobs::acts::Act;
use super::jobs::change::Done;
#[cfg(test)]
use super::jobs::making::Between;
use super::jobs::syncing::Sync;
use super::node::Node;
use super::settling::Settling;
use super::system::rights::Rights;
use super::tree::Tree;
use super::tree::files::Files;
use crate::backend::{Around, Ticket};
use crate::handle::FileId;
use crate::nfs3::Status;

/// The changes under way, and how changes are made.
#[derive(Debug)]
pub(super) struct Changes {
    /// Changes that helpers make.
    under_way: BTreeMap<Ticket, Change>,
    pub(super) rights: Arc<Rights>,
    /// Whether a change is on stable storage before its Reply.
    pub(super) is_stable: bool,
    #[cfg(test)]
    pub(super) between: Between,
}

/// What a helper, or the core, is to do, and what the core does then.
pub(super) type Plan = (Act, Change);

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

impl Changes {
    /// Has changes made with these rights, and on stable storage before their Reply if the configuration says so.
    pub(super) fn new(rights: Arc<Rights>, config: &Config) -> Self {
        Self {
            under_way: BTreeMap::new(),
            rights,
            is_stable: config.stable,
            #[cfg(test)]
            between: Between(Arc::new(|| ())),
        }
    }

    /// Has a helper make a change. Returns it if there is no helper: the core has to make it.
    ///
    /// # Errors
    /// [`Status::Jukebox`] if as much waits as may.
    pub(super) fn begin(
        &mut self,
        helpers: &Helpers,
        settling: &mut Settling,
        ticket: Ticket,
        (act, change): Plan,
    ) -> Result<Option<Plan>, Status> {
        if helpers.is_full(change.cost, ticket.network) || settling.is_full(ticket) {
            return Err(Status::Jukebox);
        }
        let dir = change.files.first().filter(|_| change.name.is_some());
        let Some(act) = helpers.make(act, ticket, (change.cost, dir.copied())) else {
            self.under_way.insert(ticket, change);
            settling.enter(ticket);
            return Ok(None);
        };
        Ok(Some((act, change)))
    }

    /// Takes the change of a Call, which a helper has made.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Change> {
        self.under_way.remove(&ticket)
    }

    /// Returns a file that a name of the Call leads to, as it was looked up, and that is changing.
    pub(super) fn named(&self, tree: &Tree) -> Option<FileId> {
        if self.under_way.is_empty() {
            return None;
        }
        let files = tree.found.iter().filter_map(|found| found.what.file());
        files.into_iter().find(|file| self.is_changing(*file, None))
    }

    /// Returns whether a change of a file is under way that one of this name in it, or any, has to wait for.
    pub(super) fn is_changing(&self, file: FileId, name: Option<&[u8]>) -> bool {
        let mut queued = 0;
        self.under_way.values().filter(|change| change.files.contains(&file)).any(|change| {
            queued += 1;
            !change.leaves(file, name) || queued == QUEUED_MAX
        })
    }

    /// Checks that no helper cuts a file. The system has everybody who changes the file, or a name of it, wait until it is
    /// cut.
    pub(super) fn check_uncut(&self, file: FileId) -> Result<(), Status> {
        let is_it = |change: &Change| change.files.contains(&file);
        let is_cut =
            self.under_way.values().any(|change| change.cost == Cost::Dear && is_it(change));
        if is_cut { Err(Status::Jukebox) } else { Ok(()) }
    }

    /// Returns the number of changes that helpers are to make.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

impl Change {
    /// Takes in that a change was made, or refused. Returns the new file, if it makes one, and what is to be brought to
    /// stable storage.
    pub(super) fn finish(
        &self,
        files: &mut Files,
        done: Done,
    ) -> (Result<Option<FileId>, Status>, Vec<Sync>) {
        files.note_change(self.files.iter().copied());
        let is_made = done.is_ok();
        match &self.then {
            Then::Set { node, mode: Some(mode) } if is_made => node.note_mode(*mode),
            Then::Reap(node) if is_made => reap(files, node),
            Then::See { node, dir, name } if is_made => files.saw(node, *dir, name),
            // Renaming one name of a file to another of its names changes nothing.
            Then::Move { node, target: Some(target), .. } if target.id == node.id => {}
            Then::Move { node, target, dir, name } if is_made => {
                if let Some(target) = target {
                    reap(files, target);
                }
                files.saw(node, *dir, name);
            }
            _ => {}
        }
        match (done, &self.then) {
            (Ok(after), Then::Keep { dir, name }) => {
                let made = after.made.map(|fresh| {
                    let node = Node::from_fresh(fresh, &files.helpers);
                    files.keep(node, *dir, name).id
                });
                (Ok(made), after.unsettled)
            }
            (Ok(after), _) => (Ok(None), after.unsettled),
            (Err(status), _) => (Err(status), Vec::new()),
        }
    }

    /// Returns the attributes of a directory that a change has left as it is, if others may be queued behind it.
    pub(super) fn unchanged(&self, tree: &mut Tree) -> Option<Around> {
        let dir = self.files.first().filter(|_| self.name.is_some())?;
        tree.files.forget_looks();
        let (_, look) = tree.find(*dir).ok()?;
        Some(Around { before: look.attributes, after: look.attributes })
    }

    /// Returns whether the change leaves a name of a file as it is, and what a change of that name rests on.
    fn leaves(&self, file: FileId, name: Option<&[u8]>) -> bool {
        let is_it =
            |own: &[u8]| self.files.first() == Some(&file) && name.is_some_and(|it| it != own);
        self.name.as_deref().is_some_and(is_it)
    }
}

/// Forgets a file that has no name left.
fn reap(files: &mut Files, node: &Node) {
    if node.look().is_ok_and(|look| look.attributes.links == 0) {
        files.forget(node.id);
    }
}

/// Maximum number of changes of one directory that are under way.
const QUEUED_MAX: usize = 32;

/// Stands for the lock of the file system that the system takes for a name that goes to another directory: such changes
/// are made one by one.
pub(super) const ACROSS: FileId = FileId { inode: 0, generation: 0 };
