//! Finding the files of a directory tree by their IDs.
//!
//! # Normal operation
//! A recently used file is still open. Another is found where it was last seen: from an open directory, or the top,
//! down name by name. Each step checks that the name still leads to the same file as when it was seen. What the system
//! has to wait for, a [helper](super::helpers) does.
//!
//! # Recovery
//! A file that is not where it was seen was renamed outside the server, or removed. With the privilege to open files by
//! their file system's handles, a directory is found wherever it was moved, and a removed file is known to be gone.
//! Other files are found by a bounded [search](search), in later turns. If that ends before the end of the tree, a file
//! that is known to exist is assumed to be in the tree. A file that was not found is remembered as gone until the
//! directory in which it was last seen changes; then that directory is searched again.
//!
//! # Limits
//! At most [`LOOK_UPS_MAX`] helpers look up names of one directory, for Calls and on the way to files together.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::fs::{FsWord, StatVfsMountFlags, fstatfs, fstatvfs};
use rustix::io::Errno;

use super::Config;
use super::found::{Found, What};
use super::gone::{Gone, Searched};
use super::jobs::Helpers;
use super::known::{Called, Known};
use super::node::{Moment, Node, open_top};
use super::open::Open;
use super::system::descriptors::Descriptors;
use super::system::look::Look;
use super::transfers::TMPFS;
use super::within::Within;
use crate::backend::Located;
use crate::handle::FileId;
use crate::nfs3::{Attributes, Status, Time};

mod descent;
mod search;

use descent::{Descents, Otherwise, Reached};
use search::{Scope, Searches};

/// The files below a directory, on the same mount.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) descriptors: Arc<Descriptors>,
    root: Rc<Node>,
    within: Within,
    /// A descriptor on the mount, if files can be opened by their file system's handles.
    mount: Option<Arc<OwnedFd>>,
    open: Open,
    pub(super) helpers: Helpers,
    /// A place of the directory at the top.
    pub(super) top: Arc<OwnedFd>,
    pub(super) known: Known,
    /// What was looked up for the Call that is executed.
    pub(super) found: Vec<Found>,
    /// Whether the system itself has the attributes of all files.
    has_attributes: bool,
    access_times: AccessTimes,
    /// Whether the directory at the top was removed.
    is_top_gone: bool,
    /// The moment for which attributes were read.
    moment: Moment,
    /// Number of names that helpers look up in each directory.
    looking: BTreeMap<FileId, usize>,
    /// Files that were searched for and not found.
    gone: Gone,
    descents: Descents,
    searches: Searches,
    /// Maximum number of names examined in one search.
    search_max: usize,
    /// Maximum number of names examined in one turn.
    search_turn_max: usize,
}

impl Tree {
    /// Opens the tree below the directory at `path`. `known` holds where its files were seen.
    pub(super) fn new(path: &Path, known: Known, config: &Config) -> io::Result<Self> {
        let descriptors = Descriptors::find().map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("/proc/self/fd: {error}"))
        })?;
        let helpers = Helpers::default();
        let (root, _) = open_top(path, &helpers)?;
        // Fail now if the system lacks a feature that every look-up needs.
        let listing = descriptors.listing(&root.place)?;
        let called = FileName::of(root.place.as_fd());
        let has_attributes = LOCAL.contains(&fstatfs(&root.place)?.f_type);
        let access_times = AccessTimes::of(fstatvfs(&root.place)?.f_flag);
        let opens = called.and_then(|name| name.open(listing.as_fd())).is_ok();
        Ok(Self {
            descriptors: Arc::new(descriptors),
            top: Arc::new(root.another_place()?),
            root: Rc::new(root),
            within: Within::default(),
            mount: opens.then(|| Arc::new(listing)),
            open: Open::new(config.open_max),
            helpers,
            known,
            found: Vec::new(),
            has_attributes,
            access_times,
            is_top_gone: false,
            moment: Moment::default(),
            looking: BTreeMap::new(),
            gone: Gone::new(GONE_MAX),
            descents: Descents::default(),
            searches: Searches::default(),
            search_max: config.search_max,
            search_turn_max: config.search_turn_max.max(1),
        })
    }

    /// Returns the directory at the top.
    pub(super) fn root(&self) -> &Rc<Node> {
        &self.root
    }

    /// Finds a file, and reads its attributes.
    pub(super) fn find(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if id == self.root.id {
            let look = self.root.look_at(self.moment)?;
            return match look.attributes.links {
                0 => Err(self.lose_top()),
                _ => Ok((Rc::clone(&self.root), look)),
            };
        }
        if let Some(node) = self.open.get(id) {
            let look = node.look_at(self.moment)?;
            if look.attributes.links > 0 {
                return Ok((node, look));
            }
            self.forget(id);
            return Err(Status::Stale);
        }
        self.find_closed(id)
    }

    /// Says, once, that the directory at the top was removed, also if another one has its name now.
    fn lose_top(&mut self) -> Status {
        if !std::mem::replace(&mut self.is_top_gone, true) {
            let hint = "clients mount nothing: restart the server, which serves the directory of that name";
            tracing::error!(target: "haulage", hint, "store.export_removed");
        }
        Status::Stale
    }

    /// Has attributes read anew: Calls came, or the server has changed a file.
    pub(super) fn forget_looks(&mut self) {
        self.moment = self.moment.next();
    }

    /// Returns whether reading a file with these attributes now sets its access time.
    pub(super) fn notes_reading(&self, file: &Attributes, now: Time) -> bool {
        self.access_times.may_be_set(file, now)
    }

    /// Begins a turn: drops the cached attributes and places of directories, and continues searches. Returns whether
    /// searches are left.
    pub(super) fn turn(&mut self) -> bool {
        self.forget_looks();
        self.found.clear();
        self.within.turn();
        self.search()
    }

    /// Finds a directory whose names are to be read or changed, and checks that it is still in the tree.
    pub(super) fn directory(&mut self, id: FileId) -> Result<Rc<Node>, Status> {
        let (node, look) = self.find(id)?;
        look.directory()?;
        self.check_within(&node)?;
        Ok(node)
    }

    /// Returns a directory if it can be acted on without a search.
    pub(super) fn at_hand(&mut self, id: FileId) -> Option<Rc<Node>> {
        if id == self.root.id { Some(Rc::clone(&self.root)) } else { self.open.get(id) }
    }

    /// Finds the file with a name in a directory: where it was looked up for the Call that is executed, what was found.
    pub(super) fn child(&mut self, dir: &Node, name: &[u8]) -> Result<(Rc<Node>, Look), Status> {
        // Where another file system is mounted, `Node::child` knows what stands for it; the system keeps such names.
        let is_mounted = |found: &Found| matches!(found.what, What::Failed(Errno::XDEV));
        let is_it =
            |found: &Found| found.dir == dir.id && *found.name == *name && !is_mounted(found);
        let Some(at) = self.found.iter().position(is_it) else {
            let (node, look) = dir.child(name)?;
            return Ok((self.keep_seen((node, look), dir.id, name), look));
        };
        let found = self.found.swap_remove(at);
        let (node, look) = match found.what {
            What::Kept(node) => {
                let look = node.look_at(self.moment)?;
                (node, look)
            }
            What::Descriptor(place) => {
                let (node, look) = Node::of_place(place, &self.helpers)?;
                (self.keep_seen((node, look), dir.id, name), look)
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

    /// Records where a file is, and keeps it open, with what it is like at this moment.
    fn keep_seen(&mut self, (node, look): (Node, Look), dir: FileId, name: &[u8]) -> Rc<Node> {
        let node = self.keep(node, dir, name);
        node.note_look(self.moment, look);
        node
    }

    /// Records where a file is, and keeps it open.
    pub(super) fn keep(&mut self, node: Node, dir: FileId, name: &[u8]) -> Rc<Node> {
        self.saw(&node, dir, name);
        self.open.keep(node)
    }

    /// Records where a file is.
    pub(super) fn saw(&mut self, node: &Node, dir: FileId, name: &[u8]) {
        let by_name = self.mount.is_some() && !node.is_stand_in();
        self.saw_called(node.id, (dir, name), || {
            let called = by_name.then(|| FileName::of(node.place.as_fd()).ok()).flatten();
            called.map_or_else(Box::default, |name| name.to_bytes())
        });
    }

    /// Records where a file is. `called` returns its file system's handle, if that is not known.
    pub(super) fn saw_called(
        &mut self,
        file: FileId,
        at: (FileId, &[u8]),
        called: impl FnOnce() -> Box<[u8]>,
    ) {
        self.gone.remove(file);
        self.known.note(file, at, called, |file| self.open.contains(file));
    }

    /// Returns whether the system itself has the attributes of all files, and asks no server for them.
    pub(super) const fn has_attributes(&self) -> bool {
        self.has_attributes
    }

    /// Returns the files of which the file system's handle is known, if files can be opened by handles.
    pub(super) fn called(&self) -> Option<Arc<Called>> {
        self.mount.as_ref().map(|_| self.known.called())
    }

    /// Returns the directory in which a file was seen last.
    pub(super) fn seen_in(&self, file: FileId) -> Option<FileId> {
        self.known.find(file).map(|seen| seen.dir)
    }

    /// Records that a file is gone, so that it is not searched for.
    pub(super) fn forget(&mut self, id: FileId) {
        self.open.forget(id);
        self.known.forget(id);
        self.gone.insert(id, None);
    }

    /// Returns the parent of a directory; the top is its own parent.
    pub(super) fn parent(&mut self, dir: &Node) -> Result<FileId, Status> {
        if dir.id == self.root.id {
            return Ok(dir.id);
        }
        let (parent, _) = match dir.above() {
            // A directory that may be read and not searched shows its names, with the parent where it was last seen.
            Err(Errno::ACCESS) => {
                return self.known.find(dir.id).map(|seen| seen.dir).ok_or(Status::Acces);
            }
            found => found?,
        };
        // The directory may just have been moved out of the tree; a parent outside it is not served.
        self.check_within(&parent)?;
        Ok(parent.id)
    }

    /// Checks that a directory is the top, or below it.
    fn check_within(&mut self, dir: &Node) -> Result<(), Status> {
        self.within.check(dir, &self.root, &self.descriptors)
    }

    /// Returns whether a file can be acted on without a search.
    pub(super) fn is_at_hand(&self, id: FileId) -> bool {
        id == self.root.id || self.open.contains(id)
    }

    /// Returns whether an open file is the stand-in for a place where another file system is mounted.
    pub(super) fn is_stand_in(&self, id: FileId) -> bool {
        self.open.peek(id).is_some_and(|node| node.is_stand_in())
    }

    /// Looks for a file where it was last seen, as far as the system knows without waiting. The rest of the way, and the
    /// search for a file that is not there, go on in later turns.
    pub(super) fn locate(&mut self, id: FileId) -> Located {
        if self.is_at_hand(id) {
            return Located::Now;
        }
        if self.is_on_the_way(id) || self.is_sought(id) {
            return Located::Later;
        }
        let mut scope = Scope::Tree;
        if let Some(searched) = self.gone.get(id) {
            match searched {
                Some(searched) => match self.since(searched) {
                    Since::Unchanged => return Located::Now,
                    Since::Changed => scope = Scope::Directory(searched.dir),
                    Since::Unknown => {}
                },
                None => return Located::Now,
            }
        }
        let descent = self.set_out(id, Otherwise::Search(scope));
        self.go_on(descent)
    }

    /// Returns whether a directory has changed since a file was searched for in it. A directory that is no longer open
    /// is not examined.
    fn since(&mut self, searched: Searched) -> Since {
        let is_top = searched.dir == self.root.id;
        let dir = if is_top { Some(Rc::clone(&self.root)) } else { self.open.get(searched.dir) };
        match dir.and_then(|dir| dir.look().ok()) {
            Some(look) if look.attributes.ctime == searched.changed => Since::Unchanged,
            Some(_) => Since::Changed,
            None => Since::Unknown,
        }
    }

    /// Finds a file that is not open, without a wait.
    ///
    /// # Errors
    /// [`Status::Stale`] if the file is gone; [`Status::Jukebox`] if it has to be waited for, which
    /// [`locate`](Self::locate) begins.
    fn find_closed(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if self.gone.get(id).is_some() {
            return Err(Status::Stale);
        }
        let descent = self.set_out(id, Otherwise::Search(Scope::Tree));
        match self.go_at_once(descent) {
            Reached::File(node) => {
                let look = node.look()?;
                Ok((node, look))
            }
            Reached::Gone => Err(Status::Stale),
            Reached::Partway(_) | Reached::Step(..) | Reached::Nothing(_) => Err(Status::Jukebox),
        }
    }

    /// Returns whether one more name may be looked up in a directory.
    pub(super) fn may_look_in(&self, dir: FileId) -> bool {
        self.looking.get(&dir).is_none_or(|count| *count < LOOK_UPS_MAX)
    }

    /// Takes in that a helper looks up a name in a directory.
    pub(super) fn looks_in(&mut self, dir: FileId) {
        *self.looking.entry(dir).or_default() += 1;
    }

    /// Takes in that a helper has looked up a name in a directory.
    pub(super) fn looked_in(&mut self, dir: FileId) {
        if let Some(count) = self.looking.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                self.looking.remove(&dir);
            }
        }
        self.go_on_in(dir);
    }

    /// Returns the number of paths that were read from the system since the last call.
    #[cfg(test)]
    pub(super) const fn take_asked(&mut self) -> usize {
        self.within.take_asked()
    }

    /// Returns the number of files in the table of places, and its size in octets.
    #[cfg(test)]
    pub(super) fn known_len(&self) -> (usize, usize) {
        self.known.len()
    }

    /// Returns the number of open files.
    #[cfg(test)]
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether files can be opened by their file system's handles.
    #[cfg(test)]
    pub(super) const fn opens_by_name(&self) -> bool {
        self.mount.is_some()
    }

    /// Stops opening files by their file system's handles, like a server without the privilege.
    #[cfg(test)]
    pub(super) fn close_mount(&mut self) {
        self.mount = None;
    }

    /// Closes all files, as if they had not been used recently.
    #[cfg(test)]
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }
}

/// The state of a directory, compared with when a file was searched for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Unchanged,
    Changed,
    /// The directory is not open, or its attributes cannot be read.
    Unknown,
}

/// When reading a file sets its access time, as mount(8) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessTimes {
    Never,
    /// If the file was changed since, or the time is a day old.
    Relative,
    Always,
}

impl AccessTimes {
    const fn of(flags: StatVfsMountFlags) -> Self {
        if flags.contains(StatVfsMountFlags::NOATIME) {
            Self::Never
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            Self::Relative
        } else {
            Self::Always
        }
    }

    /// Returns whether reading a file with these attributes now sets its access time.
    fn may_be_set(self, file: &Attributes, now: Time) -> bool {
        let Attributes { atime, mtime, ctime, .. } = file;
        match self {
            Self::Never => false,
            Self::Relative => {
                let is_old = now.seconds.saturating_sub(atime.seconds) >= DAY - 1;
                atime <= mtime || atime <= ctime || is_old
            }
            Self::Always => true,
        }
    }
}

/// The types of file systems of which the system itself has all attributes, of statfs(2): ext4 and its like, XFS, btrfs,
/// F2FS, `tmpfs`.
const LOCAL: [FsWord; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, TMPFS];
/// Seconds of a day.
const DAY: u32 = 24 * 60 * 60;
/// Maximum number of files remembered as gone.
const GONE_MAX: usize = 4096;
/// Maximum number of names of one directory that are looked up at a time.
const LOOK_UPS_MAX: usize = 2;
