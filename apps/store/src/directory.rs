//! A backend that exports a directory tree of the system.
//!
//! # Normal operation
//! A file is identified by its inode number and its creation time. Every step into the tree opens one name relative to
//! an open directory, never through a symbolic link and never onto another mount, for which an empty directory
//! stands in. So no name and no link leads out of the tree, whoever created it.
//!
//! Attributes of open files are read by blocking system calls: the core waits for the disk if they are not cached. Calls
//! that arrived together share what was read, until the server changes a file. Attributes are changed by helper threads,
//! which also look up names that are not cached, find files that are not open, and list directories. The Reply to a change
//! waits until a sync of all that was changed has ended, and nothing else does. With a [`Ring`], the core never waits for
//! data.
//!
//! # Rooms
//! A room uses those before it: `system` touches the system, `helpers` run jobs that they do not know, and `shared` is what
//! several cores would have in common. `jobs` says what helpers do here. A `node` is an open file, `known` is where files
//! were seen, and `tree` finds them. `transfers` moves data, `settling` brings changes to stable storage; `lists`,
//! `look_ups`, `changes` and `data` have what is under way for Calls. [`Directory`] owns all of these and hands on what one
//! of them made of a job; `backend` is what a server calls.
//!
//! # Recovery
//! [`State`] records where files are, so that handles outlive the server. Files that were renamed outside the server
//! are searched for.
//!
//! # Limits
//! Descriptors are bounded by [`Config::open_max`], at most [`DESCRIPTORS_PER_FILE`] for each file, and a few beside.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use haulage::provider::Waker;
use rustix::fs;
use rustix::process::umask;

use crate::backend::{Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::Status;

mod attributes;
mod backend;
mod changes;
mod closing;
mod config;
mod data;
mod helpers;
mod jobs;
mod known;
mod lists;
mod look_ups;
mod names;
mod node;
mod plain;
mod recent;
mod settling;
mod shared;
mod state;
mod surroundings;
mod system;
mod transfers;
mod tree;

pub use config::Config;
pub use haulage::sys::namespace::{Ids, is_alone};
pub use state::{Kept, State};
pub use surroundings::{Surroundings, surroundings};
pub use system::rights::{Owner, is_overriding, sole_owner};
pub use transfers::Ring;

use changes::{Change, Changes, Plan, Then};
use data::FileData;
use jobs::Ended;
use jobs::change::Done;
use jobs::syncing::Sync;
use known::Known;
use lists::Lists;
use look_ups::LookUps;
use node::Node;
use plain::Plain;
use settling::{Settling, settle_at_once};
use shared::Shared;
use system::rights::Rights;
use transfers::Transfers;
use tree::Tree;

/// The files of a directory tree, as one core serves them.
#[derive(Debug)]
pub struct Directory {
    /// Transfers, which have ended before the next server may begin.
    data: FileData,
    /// Holds the lock on the state directory, until all is closed that may take long to close.
    _state: Option<State>,
    tree: Tree,
    changes: Changes,
    /// Changes that are made and not on stable storage yet.
    settling: Settling,
    look_ups: LookUps,
    lists: Lists,
    plain: Plain,
    name_max: u32,
}

impl Directory {
    /// Opens the tree below `path`. `state` holds where files were seen by earlier runs. Data is transferred by `ring`,
    /// or by blocking calls if there is none.
    ///
    /// # Errors
    /// `path` is no directory, the system is too old, or `/proc` is missing.
    pub fn open(
        path: &Path,
        state: Option<State>,
        ring: Option<Ring>,
        config: Config,
    ) -> io::Result<Self> {
        let mut journal = state.as_ref().map(State::journal).transpose()?;
        let known = match &mut journal {
            Some(journal) => Known::from_journal(journal, config.known_octets_max)?,
            None => Known::new(config.known_octets_max),
        };
        let shared = Shared::new(config.run, journal);
        let tree = Tree::new(path, (known, shared), &config)?;
        let top = &tree.files.root().place;
        let names = fs::fstatvfs(top)?.f_namemax;
        let name_max = u32::try_from(names).unwrap_or(NAME_MAX).min(NAME_MAX);
        // The permission bits of new files are those that callers ask for.
        umask(fs::Mode::empty());
        let rights = Arc::new(Rights::find()?);
        let transfers = Transfers::new(ring, Arc::clone(&rights), (top, &tree.files.helpers))?;
        Ok(Self {
            data: FileData { transfers, is_direct: config.direct },
            _state: state,
            tree,
            changes: Changes::new(rights, &config),
            settling: Settling::new(),
            look_ups: LookUps::default(),
            lists: Lists::new(config.lists_kept),
            plain: Plain::new(),
            name_max,
        })
    }
}

impl Directory {
    /// Has files and names changed beside the core, which `waker` wakes then.
    #[must_use]
    pub fn woken_by(self, waker: &Waker) -> Self {
        self.tree.files.helpers.wake_by(waker.clone());
        self
    }

    /// Keeps a file of the top directory open, by a descriptor that the caller opened with `O_PATH`, as a LOOKUP does that
    /// finds it by `name`. Returns its ID. `benches/counts` has READs by it: valgrind 3.19 knows no `openat2`, by which
    /// names are looked up.
    ///
    /// # Errors
    /// The system does not tell the file's attributes.
    #[doc(hidden)]
    pub fn keep_open(&mut self, place: OwnedFd, name: &[u8]) -> io::Result<FileId> {
        let (node, _) = Node::new(place, &self.tree.files.helpers)?;
        let id = node.id;
        self.tree.files.keep(node, self.tree.files.root().id, name);
        Ok(id)
    }
}

impl Directory {
    /// Makes a change. Returns `None` if it is left to a helper, and otherwise the new file, if it makes one. What the core
    /// makes itself is on stable storage then.
    fn begin(&mut self, ticket: Ticket, plan: Plan) -> Result<Option<Option<FileId>>, Status> {
        let helpers = &self.tree.files.helpers;
        match self.changes.begin(helpers, &mut self.settling, ticket, plan)? {
            None => Ok(None),
            Some(plan) => self.change_at_once(plan).map(Some),
        }
    }

    /// Makes a change, and brings it to stable storage, before it returns the new file.
    fn change_at_once(&mut self, (act, change): Plan) -> Result<Option<FileId>, Status> {
        let (made, changed) = self.finish_change(&change, act.run());
        let settled = settle_at_once(&mut self.tree.files.shared, &changed);
        made.and_then(|made| settled.map(|()| made))
    }

    /// Takes in a change that a helper has made. Returns what the server is told.
    fn changed(&mut self, ticket: Ticket, done: Done) -> Option<Finished> {
        let change = self.changes.take(ticket)?;
        let is_new = matches!(change.then, Then::Keep { .. });
        let around = done.as_ref().ok().and_then(|after| after.around);
        let around = around.or_else(|| change.unchanged(&mut self.tree));
        self.tree.files.shared.records.gather();
        let (ended, changed) = self.finish_change(&change, done);
        self.tree.files.shared.records.stop_gathering();
        let finished = if is_new {
            // The outcome of a change that makes a file is that file.
            Finished::Made(ticket, ended.and_then(|made| made.ok_or(Status::ServerFault)))
        } else {
            Finished::Changed(ticket, ended.map(drop))
        };
        self.settling.settle(&mut self.tree.files, ticket, (finished, changed));
        Some(Finished::Free(ticket, change.files, around))
    }

    /// Takes in that a change was made, or refused. Returns the new file, if it makes one, and what is to be brought to
    /// stable storage.
    fn finish_change(
        &mut self,
        change: &Change,
        done: Done,
    ) -> (Result<Option<FileId>, Status>, Vec<Sync>) {
        // What names led to before they were changed is found anew.
        self.tree.found.clear();
        self.look_ups.forget(&change.files);
        change.finish(&mut self.tree.files, done)
    }

    /// Takes in what became of a job of a helper. Returns what the server is told.
    fn ended(&mut self, ended: Ended) -> Option<Finished> {
        match ended {
            Ended::Changed(ticket, done) => return self.changed(ticket, done),
            Ended::LookedUp(ticket, found) => {
                return self.look_ups.looked_up(&mut self.tree, ticket, found);
            }
            Ended::Listed(ticket, names) => {
                let dir = self.lists.finish(&mut self.tree.files.shared, ticket, names)?;
                return Some(Finished::Listed(ticket, dir));
            }
            Ended::Stepped(file, done) => self.tree.stepped(file, done),
            Ended::Searched(part) => self.tree.searched(*part),
            Ended::Synced(target, done) => {
                self.settling.synced(&mut self.tree.files.shared, target, done);
            }
        }
        None
    }
}

/// Maximum number of descriptors for each file that may stay open: its place, and those for reading and writing with and
/// without the page cache.
pub const DESCRIPTORS_PER_FILE: usize = 5;

/// Maximum length of a name on Linux, in octets.
const NAME_MAX: u32 = 255;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
