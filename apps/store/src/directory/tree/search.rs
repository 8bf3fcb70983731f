//! The search for files by their IDs, a bounded number of names in each turn.
//!
//! # Normal operation
//! Files to be searched for wait in a queue. One pass through the tree looks for all files that waited when it began:
//! first in the directories where they were last seen, then in all others, breadth first. Directories that once led to
//! one of the files come before others. Each file is reported as soon as it is found. Files not found at the end are
//! gone, or are being renamed. If the system failed to show a part of the tree, no file counts as gone.
//!
//! A helper lists the directories, a [`Part`] at a time, since that takes the lock of the directory.
//!
//! # Limits
//! A part, and a pass, each examine a bounded number of names; without helpers, a turn does. A pass keeps a bounded number
//! of directories open. One helper serves all searches, which wait as long as somebody keeps a directory locked.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::super::helpers::Cost;
use super::super::jobs::searching::{Child, Part};
use super::super::node::Node;
use super::super::system::listing::Names;
use super::super::system::look::Look;
use super::descent::{Absence, Descent, Otherwise};
use super::files::Files;
use super::gone::Searched;
use super::sought::{Scope, Sought, Wanted};
use super::ways::Ways;
use crate::handle::FileId;

/// The state of all searches.
#[derive(Debug)]
pub(super) struct Searches {
    pass: Option<Pass>,
    /// Maximum number of names examined in one search.
    names_max: usize,
    /// Maximum number of names examined in one turn.
    turn_max: usize,
    /// Number of names examined in this turn.
    #[cfg(test)]
    looked_at: usize,
}

/// One pass through the tree.
struct Pass {
    /// Directories that once led to a wanted file.
    ways: BTreeSet<FileId>,
    /// Directories still to be examined, all of them open.
    pending: VecDeque<Rc<Node>>,
    /// The directories where wanted files were last seen, and the top: they are examined first, and only once.
    last: BTreeSet<FileId>,
    /// The directory that is being examined, with the rest of its names.
    listing: Option<(Rc<Node>, Names)>,
    /// The directory of the part that a helper, or the core, is listing.
    part_of: Option<Rc<Node>>,
    depth: Depth,
    /// Number of names that the pass may still examine.
    names_left: usize,
    /// Whether the pass examined all of the tree.
    is_whole: bool,
    /// Whether the system failed to show a part of the tree, perhaps only this time.
    is_hampered: bool,
}

/// The depth to which directories are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// The names in the directories only.
    Names,
    /// The names in the directories, and all directories below them.
    All,
}

impl Searches {
    /// Examines at most `names_max` names in one search, and `turn_max` in one turn.
    pub(super) const fn new(names_max: usize, turn_max: usize) -> Self {
        Self {
            pass: None,
            names_max,
            turn_max,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Runs all searches for one turn. Returns whether there is more to do.
    pub(super) fn search(&mut self, files: &mut Files, ways: &mut Ways) -> bool {
        #[cfg(test)]
        {
            self.looked_at = 0;
        }
        ways.proceed_with_next(files);
        if self.pass.is_none() && !ways.sought.queued.is_empty() {
            self.pass = Some(self.begin_pass(files, ways));
        }
        if let Some(mut pass) = self.pass.take() {
            if self.go_through(files, ways, &mut pass) {
                self.pass = Some(pass);
            } else {
                end_pass(files, ways, &pass);
            }
        }
        self.is_searching(files, ways)
    }

    /// Returns whether searches go on in the next turn. One that waits for a helper goes on once that has ended.
    pub(super) fn is_searching(&self, files: &Files, ways: &Ways) -> bool {
        ways.is_descending()
            || match &self.pass {
                Some(pass) => pass.part_of.is_none() && !files.helpers.is_full_for_us(Cost::Little),
                None => !ways.sought.queued.is_empty(),
            }
    }

    fn begin_pass(&self, files: &mut Files, ways: &mut Ways) -> Pass {
        let queued = std::mem::take(&mut ways.sought.queued);
        let in_tree = queued.values().any(|scope| *scope == Scope::Tree);
        let mut pass = Pass {
            ways: BTreeSet::new(),
            pending: VecDeque::new(),
            last: BTreeSet::new(),
            listing: None,
            part_of: None,
            names_left: self.names_max,
            depth: if in_tree { Depth::All } else { Depth::Names },
            is_whole: true,
            is_hampered: false,
        };
        for (file, scope) in queued {
            let dir = match scope {
                Scope::Directory(dir) => Some(dir),
                Scope::Tree => files.known.find(file).map(|seen| seen.dir),
            };
            let searched = dir.and_then(|dir| begin_in(files, dir, &mut pass));
            ways.sought.wanted.insert(file, Wanted { searched, is_moving: false });
            note_way(files, file, &mut pass.ways);
        }
        if in_tree && pass.last.insert(files.root().id) {
            pass.pending.push_back(Rc::clone(files.root()));
        }
        pass
    }

    /// Examines as many names as one turn allows, or has a helper do so. Returns whether the pass continues.
    fn go_through(&mut self, files: &mut Files, ways: &mut Ways, pass: &mut Pass) -> bool {
        let mut turn_left = self.turn_max;
        while turn_left > 0 {
            if pass.part_of.is_some() || files.helpers.is_full_for_us(Cost::Little) {
                return true;
            }
            if ways.sought.wanted.is_empty() {
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
            let part = Part {
                descriptors: Arc::clone(&files.descriptors),
                dir: place,
                names,
                wanted: ways.sought.wanted.keys().map(|file| file.inode).collect(),
                is_deep: pass.depth == Depth::All,
                names_left: pass.names_left,
                cost_left: turn_left,
                looked_at: 0,
                found: Vec::new(),
                failed: None,
            };
            pass.part_of = Some(dir);
            let Some(mut part) = files.helpers.search(Box::new(part)) else { return true };
            part.run();
            turn_left = part.cost_left;
            self.take_in(files, ways, pass, *part);
        }
        true
    }

    /// Takes in what a helper has listed.
    pub(super) fn searched(&mut self, files: &mut Files, ways: &mut Ways, part: Part) {
        if let Some(mut pass) = self.pass.take() {
            self.take_in(files, ways, &mut pass, part);
            self.pass = Some(pass);
        }
    }

    fn take_in(&mut self, files: &mut Files, ways: &mut Ways, pass: &mut Pass, part: Part) {
        let Some(dir) = pass.part_of.take() else { return };
        pass.names_left = part.names_left;
        #[cfg(test)]
        {
            self.looked_at += part.looked_at;
        }
        part.failed.into_iter().for_each(|errno| pass.miss(errno));
        for Child { inode, name, file } in part.found {
            let found = match file {
                Ok(fresh) => {
                    let look = fresh.look;
                    Some((Node::from_fresh(fresh, &files.helpers), look))
                }
                // The system keeps the names where other file systems are mounted.
                Err(Errno::XDEV) => pass.seen(dir.child(&name)),
                Err(errno) => {
                    pass.miss(errno);
                    None
                }
            };
            pass.on_name((files, &mut ways.sought), &dir, (inode, &name), found);
        }
        pass.listing = part.names.map(|names| (dir, names));
    }

    /// Makes the running pass miss a part of the tree, as if the system had failed with this error.
    #[cfg(test)]
    pub(super) fn miss(&mut self, errno: Errno) {
        self.pass.as_mut().unwrap().miss(errno);
    }

    /// Returns the number of names examined in this turn.
    #[cfg(test)]
    pub(super) const fn looked_at(&self) -> usize {
        self.looked_at
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
    /// Examines a name in the directory of the self.
    fn on_name(
        &mut self,
        (files, sought): (&mut Files, &mut Sought),
        dir: &Rc<Node>,
        (inode, name): (u64, &[u8]),
        found: Option<(Node, Look)>,
    ) {
        // A directory on which another file system is mounted is not being renamed: it is out of sight.
        let is_other = |node: &Node| node.id.inode != inode && !node.is_stand_in();
        if found.as_ref().is_none_or(|(node, _)| is_other(node)) {
            for (_, wanted) in sought.wanted.range_mut(all_of(inode)) {
                wanted.is_moving = true;
            }
        }
        let Some((node, look)) = found else { return };
        let id = node.id;
        let is_below = look.is_directory() && self.depth == Depth::All && !self.last.contains(&id);
        let node = if sought.wanted.remove(&id).is_some() {
            sought.ended.push_back(id);
            files.keep(node, dir.id, name)
        } else if is_below {
            Rc::new(node)
        } else {
            return;
        };
        if !is_below {
            return;
        }
        if self.ways.contains(&id) {
            self.pending.push_front(node);
        } else if self.pending.len() < PENDING_MAX {
            self.pending.push_back(node);
        } else {
            self.is_whole = false;
        }
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// Begins a pass with a directory where a file was last seen, if it is open. Returns the directory's state before
/// its names are examined, so that a change during the pass is detected later.
fn begin_in(files: &mut Files, dir: FileId, pass: &mut Pass) -> Option<Searched> {
    let node = files.at_hand(dir)?;
    files.check_within(&node).ok()?;
    let changed = node.look().ok()?.attributes.ctime;
    if pass.last.insert(dir) {
        pass.pending.push_back(node);
    }
    Some(Searched { dir, changed })
}

/// Adds the directories that once led to a file to `ways`.
fn note_way(files: &Files, file: FileId, ways: &mut BTreeSet<FileId>) {
    let mut at = file;
    for _ in 0..WAY_MAX {
        let Some(seen) = files.known.find(at) else { break };
        at = seen.dir;
        if at == files.root().id || !ways.insert(at) {
            break;
        }
    }
}

/// Ends a pass, and decides about the files that were not found.
fn end_pass(files: &mut Files, ways: &mut Ways, pass: &Pass) {
    for (file, wanted) in std::mem::take(&mut ways.sought.wanted) {
        if !wanted.is_moving && !pass.is_whole {
            // If the file exists, it is assumed to be in the part that the pass did not reach.
            let otherwise = match pass.is_hampered {
                true => Otherwise::LeaveOpen,
                false => Otherwise::Settle(wanted.searched),
            };
            ways.proceed(files, Descent::by_handle(file, otherwise));
            continue;
        }
        ways.sought.ended.push_back(file);
        // The file may exist: the next Call for it begins another search.
        if !wanted.is_moving && !pass.is_hampered {
            files.note_gone(file, wanted.searched);
        }
    }
}

/// Returns the range of all IDs with an inode number.
fn all_of(inode: u64) -> std::ops::RangeInclusive<FileId> {
    FileId { inode, generation: 0 }..=FileId { inode, generation: u64::MAX }
}

/// Maximum number of directories still to be examined, except those that once led to a wanted file.
const PENDING_MAX: usize = 256;
/// Maximum number of directories that once led to a file and are examined before others.
const WAY_MAX: usize = 16;
