//! Files of a directory tree, found by number.
//!
//! # Normal operation
//! A file that was looked for lately is still open. Another is found where it was seen last: from a
//! directory that is open, or the top, down name by name, each checked to lead to the file that it
//! led to when it was seen.
//!
//! # Recovery
//! What is not where it was seen was renamed behind our back or removed. With the privilege to open files
//! by what their file system calls them, a directory is found wherever it went, and what is gone is
//! known to be. The rest a bounded [search](search) tells, in later turns; if that ends before the tree
//! does, a file that is known to exist is taken to be in it. What was not found is remembered as long
//! as the directory where it was seen last does not change; then that one is looked through again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use super::Config;
use super::gone::{Gone, Searched};
use super::known::Known;
use super::node::{Descriptors, Look, Node, open_top};
use super::open::Open;
use super::within::Within;
use crate::backend::Located;
use crate::handle::FileId;
use crate::nfs3::Status;

mod descent;
mod search;

use descent::{Descent, Reached};
use search::{Scope, Searches};

/// The files below a directory, on its mount.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) descriptors: Descriptors,
    root: Rc<Node>,
    within: Within,
    /// Open on the mount, if files can be opened by what their file system calls them.
    mount: Option<OwnedFd>,
    open: Open,
    known: Known,
    /// Files that were searched for and not found.
    gone: Gone,
    searches: Searches,
    /// Names looked at in one search.
    search_max: usize,
    /// Names looked at in one turn.
    search_turn_max: usize,
}

/// What came of looking for a file where it was seen last.
enum Seek {
    Found(Rc<Node>),
    /// It is not in the tree.
    Gone,
    /// It is further down than is gone in one turn.
    Further(Descent),
    /// It is not there.
    Unknown,
}

impl Tree {
    /// Takes the tree below the directory at `path`, and what is known of it.
    pub(super) fn new(path: &Path, known: Known, config: &Config) -> io::Result<Self> {
        let descriptors = Descriptors::find().map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("/proc/self/fd: {error}"))
        })?;
        let (root, _) = open_top(path)?;
        // Says now whether the system can do what every look-up will ask of it.
        let listing = root.listing()?;
        let called = FileName::of(root.place.as_fd());
        let opens = called.and_then(|name| name.open(listing.as_fd())).is_ok();
        Ok(Self {
            descriptors,
            root: Rc::new(root),
            within: Within::default(),
            mount: opens.then_some(listing),
            open: Open::new(config.open_max),
            known,
            gone: Gone::new(GONE_MAX),
            searches: Searches::default(),
            search_max: config.search_max,
            search_turn_max: config.search_turn_max.max(1),
        })
    }

    /// Returns the directory at the top.
    pub(super) fn root(&self) -> &Rc<Node> {
        &self.root
    }

    /// Finds a file, and looks at it.
    pub(super) fn find(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if id == self.root.id {
            return Ok((Rc::clone(&self.root), self.root.look()?));
        }
        if let Some(node) = self.open.get(id) {
            let look = node.look()?;
            if look.attributes.links > 0 {
                return Ok((node, look));
            }
            self.forget(id);
            return Err(Status::Stale);
        }
        self.find_closed(id)
    }

    /// Begins a turn: where directories were in the last one says nothing of this one. Goes on with
    /// searches. Returns whether there is more of them.
    pub(super) fn turn(&mut self) -> bool {
        self.within.turn();
        self.search()
    }

    /// Finds a directory whose names are to be looked at or changed. It must still be in the tree.
    pub(super) fn directory(&mut self, id: FileId) -> Result<Rc<Node>, Status> {
        let (node, look) = self.find(id)?;
        look.directory()?;
        self.check_within(&node)?;
        Ok(node)
    }

    /// Finds what has a name in a directory.
    pub(super) fn child(&mut self, dir: &Node, name: &[u8]) -> Result<(Rc<Node>, Look), Status> {
        let (node, look) = match dir.child(name) {
            // Another file system is mounted there, which is not served.
            Err(Errno::XDEV) => return Err(Status::NoEnt),
            found => found?,
        };
        Ok((self.keep(node, dir.id, name), look))
    }

    /// Takes in a file that is where it is said to be.
    pub(super) fn keep(&mut self, node: Node, dir: FileId, name: &[u8]) -> Rc<Node> {
        self.saw(&node, dir, name);
        self.open.keep(node)
    }

    /// Notes where a file is.
    pub(super) fn saw(&mut self, node: &Node, dir: FileId, name: &[u8]) {
        self.gone.remove(node.id);
        let by_name = self.mount.is_some();
        let called = || {
            let called = by_name.then(|| FileName::of(node.place.as_fd()).ok()).flatten();
            called.map_or_else(Box::default, |name| name.to_bytes())
        };
        self.known.note(node.id, (dir, name), called, |file| self.open.contains(file));
    }

    /// Notes that a file is gone: no search has to tell.
    pub(super) fn forget(&mut self, id: FileId) {
        self.open.forget(id);
        self.known.forget(id);
        self.gone.insert(id, None);
    }

    /// Returns the directory that a directory is in; the top is in itself.
    pub(super) fn parent(&mut self, dir: &Node) -> Result<FileId, Status> {
        if dir.id == self.root.id {
            return Ok(dir.id);
        }
        let (parent, _) = dir.above()?;
        // The directory may have been moved out of the tree just now: what is above it there is not
        // served.
        self.check_within(&parent)?;
        Ok(parent.id)
    }

    /// Checks that a directory is the top or below it.
    fn check_within(&mut self, dir: &Node) -> Result<(), Status> {
        self.within.check(dir, &self.root, &self.descriptors)
    }

    /// Returns whether a file can be acted on without looking for it.
    pub(super) fn is_at_hand(&self, id: FileId) -> bool {
        id == self.root.id || self.open.contains(id)
    }

    /// Looks for a file where it was seen last. What that does not tell a search does, in later turns.
    pub(super) fn locate(&mut self, id: FileId) -> Located {
        if self.is_at_hand(id) {
            return Located::Now;
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
        let begun = match self.find_where_seen(id) {
            Seek::Found(_) | Seek::Gone => return Located::Now,
            Seek::Further(descent) => self.descend_later(descent),
            Seek::Unknown => self.search_for(id, scope),
        };
        if begun { Located::Later } else { Located::Busy }
    }

    /// Returns whether a directory that a file was searched for in has changed since. A directory that
    /// is not open any more is not looked at.
    fn since(&mut self, searched: Searched) -> Since {
        let is_top = searched.dir == self.root.id;
        let dir = if is_top { Some(Rc::clone(&self.root)) } else { self.open.get(searched.dir) };
        match dir.and_then(|dir| dir.look().ok()) {
            Some(look) if look.attributes.ctime == searched.changed => Since::Unchanged,
            Some(_) => Since::Changed,
            None => Since::Unknown,
        }
    }

    /// Finds a file that is not open.
    ///
    /// # Errors
    /// [`Status::Stale`] if it is gone; [`Status::Jukebox`] if a search has to tell, which
    /// [`locate`](Self::locate) begins.
    fn find_closed(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if self.gone.get(id).is_some() {
            return Err(Status::Stale);
        }
        match self.find_where_seen(id) {
            Seek::Found(node) => {
                let look = node.look()?;
                Ok((node, look))
            }
            Seek::Gone => Err(Status::Stale),
            Seek::Further(_) | Seek::Unknown => Err(Status::Jukebox),
        }
    }

    /// Finds a file by what its file system calls it, or where it was seen last.
    fn find_where_seen(&mut self, id: FileId) -> Seek {
        match self.by_name(id) {
            ByName::Gone => {
                self.known.forget(id);
                self.gone.insert(id, None);
                return Seek::Gone;
            }
            ByName::Found(node, look) if look.is_directory() => {
                return Seek::Found(self.open.keep(node));
            }
            ByName::Found(..) | ByName::Unknown => {}
        }
        let Some(way) = self.way_to(id) else { return Seek::Unknown };
        match self.go_down(way) {
            Reached::File(node) => Seek::Found(node),
            Reached::Partway(rest) => Seek::Further(rest),
            Reached::Nothing => Seek::Unknown,
        }
    }

    /// Opens a file by what its file system calls it. A directory that was moved out of the tree is
    /// gone; of another file nothing tells where it is.
    fn by_name(&mut self, id: FileId) -> ByName {
        let called = self.known.find(id).and_then(|seen| FileName::from_bytes(seen.called));
        let (Some(mount), Some(name)) = (&self.mount, called) else { return ByName::Unknown };
        let place = match name.open(mount.as_fd()) {
            Ok(place) => place,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::STALE) => {
                return ByName::Gone;
            }
            Err(_) => return ByName::Unknown,
        };
        let Ok((node, look)) = Node::new(place) else { return ByName::Unknown };
        let is_it = node.id == id && look.attributes.links > 0;
        if !is_it {
            return ByName::Gone;
        }
        if look.is_directory() {
            match self.check_within(&node) {
                Ok(()) => {}
                Err(Status::Stale) => return ByName::Gone,
                Err(_) => return ByName::Unknown,
            }
        }
        ByName::Found(node, look)
    }

    /// Returns how many times the system was asked where directories are, since this was asked last.
    #[cfg(test)]
    pub(super) const fn take_asked(&mut self) -> usize {
        self.within.take_asked()
    }

    /// Returns how many files are known, and how many octets that takes.
    #[cfg(test)]
    pub(super) fn known_len(&self) -> (usize, usize) {
        self.known.len()
    }

    /// Returns how many files are kept open.
    #[cfg(test)]
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether files can be opened by what their file system calls them.
    #[cfg(test)]
    pub(super) const fn opens_by_name(&self) -> bool {
        self.mount.is_some()
    }

    /// Opens no files any more by what their file system calls them, as a server without the privilege.
    #[cfg(test)]
    pub(super) fn close_mount(&mut self) {
        self.mount = None;
    }

    /// Closes all files, as if they had not been looked for lately.
    #[cfg(test)]
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }
}

/// What came of opening a file by what its file system calls it.
enum ByName {
    Found(Node, Look),
    /// There is no such file in the tree any more.
    Gone,
    /// It is not called anything, or may not be opened so.
    Unknown,
}

/// What a directory is now, beside what it was when a file was searched for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Unchanged,
    Changed,
    /// It is not open, or cannot be looked at.
    Unknown,
}

/// Files remembered to be gone.
const GONE_MAX: usize = 4096;
