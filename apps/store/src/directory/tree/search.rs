//! The search for files by their IDs, a bounded number of names in each turn.
//!
//! # Normal operation
//! Files to be searched for wait in a queue. One pass through the tree looks for all files that waited when it began:
//! first in the directories where they were last seen, then in all others, breadth first. Directories that once led to
//! one of the files come before others. Each file is reported as soon as it is found. Files not found at the end are
//! gone, or are being renamed. If the system failed to show a part of the tree, no file counts as gone.
//!
//! A helper lists the directories, a [`Part`] of names at a time, since that takes the lock of the directory.
//!
//! # Limits
//! A batch, and a pass, each examine a bounded number of names; without helpers, a turn does. A pass keeps a bounded number
//! of directories open. One helper serves all searches, which wait as long as somebody keeps a directory locked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::gone::Searched;
use super::super::helpers::Cost;
use super::super::jobs::searching::{Child, Part};
use super::super::node::Node;
use super::super::system::listing::Names;
use super::super::system::look::Look;
use super::Tree;
use super::descent::{Descent, Otherwise};
use crate::handle::FileId;

/// The state of all searches.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// Files for the next pass.
    queued: BTreeMap<FileId, Scope>,
    pass: Option<Pass>,
    /// Files whose search has ended, found or not, until that is reported.
    pub(super) ended: VecDeque<FileId>,
    /// Number of names examined in this turn.
    #[cfg(test)]
    looked_at: usize,
}

/// The scope of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole tree.
    Tree,
    /// The directory where the file was last seen: a recent search found it in no other.
    Directory(FileId),
}

/// One pass through the tree.
struct Pass {
    wanted: BTreeMap<FileId, Wanted>,
    /// Directories that once led to a wanted file.
    ways: BTreeSet<FileId>,
    /// Directories still to be examined, all of them open.
    pending: VecDeque<Rc<Node>>,
    /// The directories where wanted files were last seen, and the top: they are examined first, and only once.
    last: BTreeSet<FileId>,
    /// The directory that is being examined, with the rest of its names.
    listing: Option<(Rc<Node>, Names)>,
    /// The directory of the batch that a helper, or the core, is listing.
    batch_of: Option<Rc<Node>>,
    depth: Depth,
    /// Number of names that the pass may still examine.
    names_left: usize,
    /// Whether the pass examined all of the tree.
    is_whole: bool,
    /// Whether the system failed to show a part of the tree, perhaps only this time.
    is_hampered: bool,
}

/// The meaning of an error for the file that was to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// The file does not exist, or is not in this tree.
    Absent,
    /// The file may exist, but this server may not open it.
    Forbidden,
    /// The file may exist: the machine lacked a resource, or failed.
    Unknown,
}

/// A file that a pass looks for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    searched: Option<Searched>,
    /// Whether the file was listed under a name and then not found there: it is being renamed.
    is_moving: bool,
}

/// The depth to which directories are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The names in the directories only.
    Names,
    /// The names in the directories, and all directories below them.
    All,
}

impl Tree {
    /// Queues a file for a search. Returns whether there was room.
    pub(super) fn search_for(&mut self, file: FileId, scope: Scope) -> bool {
        let is_sought = self.is_sought(file);
        let room = self.searches.queued.len() < QUEUED_MAX;
        if room && !is_sought {
            self.searches.queued.insert(file, scope);
        }
        room || is_sought
    }

    /// Returns whether a file is searched for, or queued for that.
    pub(in super::super) fn is_sought(&self, file: FileId) -> bool {
        let Searches { queued, pass, .. } = &self.searches;
        let is_in_pass = pass.as_ref().is_some_and(|pass| pass.wanted.contains_key(&file));
        is_in_pass || queued.contains_key(&file)
    }

    /// Runs all searches for one turn. Returns whether there is more to do.
    pub(super) fn search(&mut self) -> bool {
        #[cfg(test)]
        {
            self.searches.looked_at = 0;
        }
        self.proceed_with_next();
        if self.searches.pass.is_none() && !self.searches.queued.is_empty() {
            self.searches.pass = Some(self.begin_pass());
        }
        if let Some(mut pass) = self.searches.pass.take() {
            if self.go_through(&mut pass) {
                self.searches.pass = Some(pass);
            } else {
                self.end_pass(pass);
            }
        }
        self.is_searching()
    }

    /// Returns whether searches go on in the next turn. One that waits for a helper goes on once that has ended.
    pub(in super::super) fn is_searching(&self) -> bool {
        self.is_descending()
            || match &self.searches.pass {
                Some(pass) => pass.batch_of.is_none() && !self.helpers.is_full_for_us(Cost::Little),
                None => !self.searches.queued.is_empty(),
            }
    }

    /// Returns the next file whose search has ended, found or not.
    pub(in super::super) fn next_searched(&mut self) -> Option<FileId> {
        self.searches.ended.pop_front()
    }

    fn begin_pass(&mut self) -> Pass {
        let queued = std::mem::take(&mut self.searches.queued);
        let in_tree = queued.values().any(|scope| *scope == Scope::Tree);
        let mut pass = Pass {
            wanted: BTreeMap::new(),
            ways: BTreeSet::new(),
            pending: VecDeque::new(),
            last: BTreeSet::new(),
            listing: None,
            batch_of: None,
            names_left: self.search_max,
            depth: if in_tree { Depth::All } else { Depth::Names },
            is_whole: true,
            is_hampered: false,
        };
        for (file, scope) in queued {
            let dir = match scope {
                Scope::Directory(dir) => Some(dir),
                Scope::Tree => self.known.find(file).map(|seen| seen.dir),
            };
            let searched = dir.and_then(|dir| self.begin_in(dir, &mut pass));
            pass.wanted.insert(file, Wanted { searched, is_moving: false });
            self.note_way(file, &mut pass.ways);
        }
        if in_tree && pass.last.insert(self.root.id) {
            pass.pending.push_back(Rc::clone(&self.root));
        }
        pass
    }

    /// Begins a pass with a directory where a file was last seen, if it is open. Returns the directory's state before
    /// its names are examined, so that a change during the pass is detected later.
    fn begin_in(&mut self, dir: FileId, pass: &mut Pass) -> Option<Searched> {
        let node = if dir == self.root.id { Rc::clone(&self.root) } else { self.open.get(dir)? };
        self.check_within(&node).ok()?;
        let changed = node.look().ok()?.attributes.ctime;
        if pass.last.insert(dir) {
            pass.pending.push_back(node);
        }
        Some(Searched { dir, changed })
    }

    /// Adds the directories that once led to a file to `ways`.
    fn note_way(&self, file: FileId, ways: &mut BTreeSet<FileId>) {
        let mut at = file;
        for _ in 0..WAY_MAX {
            let Some(seen) = self.known.find(at) else { break };
            at = seen.dir;
            if at == self.root.id || !ways.insert(at) {
                break;
            }
        }
    }

    /// Examines as many names as one turn allows, or has a helper do so. Returns whether the pass continues.
    fn go_through(&mut self, pass: &mut Pass) -> bool {
        let mut turn_left = self.search_turn_max;
        while turn_left > 0 {
            if pass.batch_of.is_some() || self.helpers.is_full_for_us(Cost::Little) {
                return true;
            }
            if pass.wanted.is_empty() {
                return false;
            }
            let (dir, names) = match (pass.listing.take(), pass.pending.pop_front()) {
                (Some((dir, names)), next) => {
                    next.into_iter().for_each(|next| pass.pending.push_front(next));
                    (dir, Some(names))
                }
                (None, Some(dir)) => (dir, None),
                (None, None) => return false,
            };
            if pass.names_left == 0 {
                pass.is_whole = false;
                return false;
            }
            // Where another file system is mounted, there are no names.
            if dir.is_stand_in() {
                continue;
            }
            let Some(place) = pass.seen(dir.another_place()) else { continue };
            let batch = Part {
                descriptors: Arc::clone(&self.descriptors),
                dir: place,
                names,
                wanted: pass.wanted.keys().map(|file| file.inode).collect(),
                is_deep: pass.depth == Depth::All,
                names_left: pass.names_left,
                cost_left: turn_left,
                looked_at: 0,
                found: Vec::new(),
                failed: None,
            };
            pass.batch_of = Some(dir);
            let Some(mut batch) = self.helpers.search(Box::new(batch)) else { return true };
            batch.run();
            turn_left = batch.cost_left;
            self.take_in(pass, *batch);
        }
        true
    }

    /// Takes in what a helper has listed.
    pub(in super::super) fn searched(&mut self, batch: Part) {
        if let Some(mut pass) = self.searches.pass.take() {
            self.take_in(&mut pass, batch);
            self.searches.pass = Some(pass);
        }
    }

    fn take_in(&mut self, pass: &mut Pass, batch: Part) {
        let Some(dir) = pass.batch_of.take() else { return };
        pass.names_left = batch.names_left;
        #[cfg(test)]
        {
            self.searches.looked_at += batch.looked_at;
        }
        batch.failed.into_iter().for_each(|errno| pass.miss(errno));
        for Child { inode, name, file } in batch.found {
            let found = match file {
                Ok(fresh) => {
                    let look = fresh.look;
                    Some((Node::from_fresh(fresh, &self.helpers), look))
                }
                // The system keeps the names where other file systems are mounted.
                Err(Errno::XDEV) => pass.seen(dir.child(&name)),
                Err(errno) => {
                    pass.miss(errno);
                    None
                }
            };
            self.on_name(pass, &dir, (inode, &name), found);
        }
        pass.listing = batch.names.map(|names| (dir, names));
    }

    /// Examines a name in the directory of the pass.
    fn on_name(
        &mut self,
        pass: &mut Pass,
        dir: &Rc<Node>,
        (inode, name): (u64, &[u8]),
        found: Option<(Node, Look)>,
    ) {
        // A directory on which another file system is mounted is not being renamed: it is out of sight.
        let is_other = |node: &Node| node.id.inode != inode && !node.is_stand_in();
        if found.as_ref().is_none_or(|(node, _)| is_other(node)) {
            for (_, wanted) in pass.wanted.range_mut(all_of(inode)) {
                wanted.is_moving = true;
            }
        }
        let Some((node, look)) = found else { return };
        let id = node.id;
        let is_below = look.is_directory() && pass.depth == Depth::All && !pass.last.contains(&id);
        let node = if pass.wanted.remove(&id).is_some() {
            self.searches.ended.push_back(id);
            self.keep(node, dir.id, name)
        } else if is_below {
            Rc::new(node)
        } else {
            return;
        };
        if !is_below {
            return;
        }
        if pass.ways.contains(&id) {
            pass.pending.push_front(node);
        } else if pass.pending.len() < PENDING_MAX {
            pass.pending.push_back(node);
        } else {
            pass.is_whole = false;
        }
    }

    /// Ends a pass, and decides about the files that were not found.
    fn end_pass(&mut self, pass: Pass) {
        for (file, wanted) in pass.wanted {
            if !wanted.is_moving && !pass.is_whole {
                // If the file exists, it is assumed to be in the part that the pass did not reach.
                let otherwise = match pass.is_hampered {
                    true => Otherwise::LeaveOpen,
                    false => Otherwise::Settle(wanted.searched),
                };
                self.proceed(Descent::by_handle(file, otherwise));
                continue;
            }
            self.searches.ended.push_back(file);
            // The file may exist: the next Call for it begins another search.
            if !wanted.is_moving && !pass.is_hampered {
                self.known.forget(file);
                self.gone.insert(file, wanted.searched);
            }
        }
    }

    /// Makes the running pass miss a part of the tree, as if the system had failed with this error.
    #[cfg(test)]
    pub(in super::super) fn miss(&mut self, errno: Errno) {
        self.searches.pass.as_mut().unwrap().miss(errno);
    }

    /// Returns the number of names examined in this turn.
    #[cfg(test)]
    pub(in super::super) const fn looked_at(&self) -> usize {
        self.searches.looked_at
    }
}

impl Pass {
    /// Returns the value of a successful result. Records an error as a missed part of the tree.
    fn seen<T>(&mut self, shown: Result<T, Errno>) -> Option<T> {
        shown.map_err(|errno| self.miss(errno)).ok()
    }

    /// Records that a part of the tree was missed.
    fn miss(&mut self, errno: Errno) {
        let absence = Absence::of(errno);
        self.is_whole &= absence == Absence::Absent;
        self.is_hampered |= absence == Absence::Unknown;
    }
}

impl Absence {
    pub(super) const fn of(errno: Errno) -> Self {
        match errno {
            // ELOOP: a link now stands in place of a directory, and files below a link are not in this tree.
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP => Self::Absent,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// Returns the range of all IDs with an inode number.
fn all_of(inode: u64) -> std::ops::RangeInclusive<FileId> {
    FileId { inode, generation: 0 }..=FileId { inode, generation: u64::MAX }
}

/// Maximum number of directories still to be examined, except those that once led to a wanted file.
const PENDING_MAX: usize = 256;
/// Maximum number of files that wait for the next pass.
const QUEUED_MAX: usize = 256;
/// Maximum number of directories that once led to a file and are examined before others.
const WAY_MAX: usize = 16;
