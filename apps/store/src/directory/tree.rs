//! Files of a directory tree, found by number.
//!
//! # Normal operation
//! A file that was looked for lately is still open. Another is found where it was seen last: from a
//! directory that is open, or the top, down name by name, each checked to lead to the file that it
//! led to when it was seen.
//!
//! # Recovery
//! What is not where it was seen was renamed behind our back or removed: a bounded search tells.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::io::Errno;

use super::known::{Known, Seen};
use super::node::{Descriptors, Look, Node, open_top};
use super::open::Open;
use crate::handle::FileId;
use crate::nfs3::Status;

mod search;

use search::Missing;

/// The files below a directory, on its mount.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) descriptors: Descriptors,
    root: Rc<Node>,
    root_device: (u32, u32),
    open: Open,
    known: Known,
    /// Files that were searched for and not found.
    gone: BTreeSet<FileId>,
}

impl Tree {
    /// Takes the tree below the directory at `path`, and what is known of it.
    pub(super) fn new(path: &Path, known: Known, open_max: usize) -> io::Result<Self> {
        let descriptors = Descriptors::find().map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("/proc/self/fd: {error}"))
        })?;
        let (root, look) = open_top(path)?;
        // Says now whether the system can do what every look-up will ask of it.
        root.listing()?;
        let (open, gone) = (Open::new(open_max), BTreeSet::new());
        Ok(Self { descriptors, root: Rc::new(root), root_device: look.device, open, known, gone })
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

    /// Finds a directory.
    pub(super) fn directory(&mut self, id: FileId) -> Result<Rc<Node>, Status> {
        let (node, look) = self.find(id)?;
        look.directory().map(|_| node)
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
        self.saw(node.id, dir, name);
        self.open.keep(node)
    }

    /// Notes where a file is.
    pub(super) fn saw(&mut self, id: FileId, dir: FileId, name: &[u8]) {
        self.gone.remove(&id);
        self.known.note(id, dir, name);
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
        let (parent, look) = dir.above()?;
        // It may have been moved out of the tree: then what is above it is not ours to show.
        self.check_within(&parent, look)?;
        Ok(parent.id)
    }

    /// Checks that the top is above a directory, or is it.
    fn check_within(&self, dir: &Node, look: Look) -> Result<(), Status> {
        let (mut id, mut device) = (look.id, look.device);
        let mut above = None;
        for _ in 0..DEPTH_MAX {
            if device != self.root_device {
                break;
            }
            if id == self.root.id {
                return Ok(());
            }
            let (next, look) = above.as_ref().unwrap_or(dir).above()?;
            if look.id == id {
                break;
            }
            (id, device, above) = (look.id, look.device, Some(next));
        }
        Err(Status::Stale)
    }

    /// Finds a file that is not open.
    fn find_closed(&mut self, id: FileId) -> Result<(Rc<Node>, Look), Status> {
        if self.gone.contains(&id) {
            return Err(Status::Stale);
        }
        // The way down, last step first, from a directory that is open.
        let mut steps = Vec::new();
        let mut at = id;
        let mut node = loop {
            if at == self.root.id {
                break Some(Rc::clone(&self.root));
            }
            if at != id
                && let Some(node) = self.open.get(at)
            {
                break Some(node);
            }
            let Some(Seen { dir, name }) = self.known.find(at).filter(|_| steps.len() < DEPTH_MAX)
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
        let node = found.map_err(|missing| self.missing(id, missing))?;
        let look = node.look()?;
        Ok((node, look))
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

    /// Returns how many files are kept open.
    #[cfg(test)]
    pub(super) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Closes all files, as if they had not been looked for lately.
    #[cfg(test)]
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }
}

/// Directories one in the other.
const DEPTH_MAX: usize = 4096;
/// Files remembered to be gone.
const GONE_MAX: usize = 4096;
