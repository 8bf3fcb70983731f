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
//! known to be. The rest a bounded search tells; if that ends before the tree does, a file that is
//! known to exist is taken to be in it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use super::Config;
use super::known::{Known, Seen};
use super::node::{Descriptors, Look, Node, open_top};
use super::open::Open;
use super::within::Within;
use crate::handle::FileId;
use crate::nfs3::Status;

mod search;

use search::Missing;

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
    gone: BTreeSet<FileId>,
    /// Names looked at in one search.
    search_max: usize,
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
            gone: BTreeSet::new(),
            search_max: config.search_max,
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

    /// Begins a turn: where directories were in the last one says nothing of this one.
    pub(super) fn turn(&mut self) {
        self.within.turn();
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
        self.gone.remove(&node.id);
        let by_name = self.mount.is_some();
        self.known.note(node.id, dir, name, || {
            let called = by_name.then(|| FileName::of(node.place.as_fd()).ok()).flatten();
            called.map_or_else(Box::default, |name| name.to_bytes())
        });
    }

    /// Notes that a file is gone.
    pub(super) fn forget(&mut self, id: FileId) {
        self.open.forget(id);
        self.known.forget(id);
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

    /// Finds a file that is not open.
    fn find_closed(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if self.gone.contains(&id) {
            return Err(Status::Stale);
        }
        let alive = match self.by_name(id) {
            ByName::Unknown => None,
            ByName::Gone => return Err(self.missing(id, Missing::Gone)),
            ByName::Found(node, look) if look.is_directory() => {
                return Ok((self.open.keep(node), look));
            }
            ByName::Found(node, _) => Some(node),
        };
        // The way down, last step first, from a directory that is open or can be opened by its name.
        let mut steps = Vec::new();
        let mut at = id;
        let mut node = loop {
            if at == self.root.id {
                break Some(Rc::clone(&self.root));
            }
            if at != id {
                if let Some(node) = self.open.get(at) {
                    break Some(node);
                }
                if let ByName::Found(node, _) = self.by_name(at) {
                    break Some(self.open.keep(node));
                }
            }
            let Some(Seen { dir, name, .. }) =
                self.known.find(at).filter(|_| steps.len() < DEPTH_MAX)
            else {
                break None;
            };
            steps.push((at, name.clone()));
            at = *dir;
        };
        for (wanted, name) in steps.iter().rev() {
            let led = node.take().and_then(|dir| Some((dir.child(name).ok()?.0, dir.id)));
            node = match led {
                Some((found, dir)) if found.id == *wanted => Some(self.keep(found, dir, name)),
                _ => self.search(*wanted).ok(),
            };
            if node.is_none() {
                break;
            }
        }
        // Where it was is gone, though it may not be.
        let found = node.filter(|node| node.id == id).map_or_else(|| self.search(id), Ok);
        let node = match (found, alive) {
            (Ok(node), _) => node,
            (Err(Missing::TooMany), Some(alive)) => self.open.keep(alive),
            (Err(missing), _) => return Err(self.missing(id, missing)),
        };
        let look = node.look()?;
        Ok((node, look))
    }

    /// Opens a file by what its file system calls it. A directory that was moved out of the tree is
    /// gone; of another file nothing tells where it is.
    fn by_name(&mut self, id: FileId) -> ByName {
        let called = self.known.find(id).and_then(|seen| FileName::from_bytes(&seen.called));
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
        let within = !look.is_directory() || self.check_within(&node).is_ok();
        if is_it && within { ByName::Found(node, look) } else { ByName::Gone }
    }

    /// Returns what is said of a file that was not found, and remembers one that is gone.
    fn missing(&mut self, id: FileId, missing: Missing) -> Status {
        if missing == Missing::Moving {
            return Status::Jukebox;
        }
        self.known.forget(id);
        if self.gone.len() >= GONE_MAX {
            self.gone.clear();
        }
        self.gone.insert(id);
        Status::Stale
    }

    /// Returns how many times the system was asked where directories are, since this was asked last.
    #[cfg(test)]
    pub(super) const fn take_asked(&mut self) -> usize {
        self.within.take_asked()
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

/// Directories one in the other.
const DEPTH_MAX: usize = 4096;
/// Files remembered to be gone.
const GONE_MAX: usize = 4096;
