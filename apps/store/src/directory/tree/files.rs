//! The files of a tree that are open, and what is remembered of the others.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::fs::{fstatfs, fstatvfs};
use rustix::io::Errno;

use super::super::closing::PathDescriptor;
use super::super::jobs::Helpers;
use super::super::jobs::called::Called;
use super::super::jobs::steps::{self, Step, Stepped};
use super::super::known::Known;
use super::super::node::{Moment, Node, open_top};
use super::super::shared::Shared;
use super::super::system::descriptors::Descriptors;
use super::super::system::file_system::{self, AccessTimes};
use super::super::system::look::Look;
use super::gone::{Gone, Searched};
use super::open::Open;
use super::within::Within;
use crate::handle::FileId;
use crate::nfs3::{Attributes, Status, Time};

/// The files below a directory, on the same mount.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) descriptors: Arc<Descriptors>,
    root: Rc<Node>,
    within: Within,
    /// A descriptor on the mount, if files can be opened by their file system's handles.
    mount: Option<Arc<OwnedFd>>,
    pub(super) open: Open,
    pub(crate) helpers: Helpers,
    /// A place of the directory at the top.
    pub(crate) top: Arc<OwnedFd>,
    pub(crate) known: Known,
    /// All that other cores would have, too. The rest is this core's own.
    pub(crate) shared: Shared,
    /// Whether the system itself has the attributes of all files.
    has_attributes: bool,
    access_times: AccessTimes,
    /// Whether the directory at the top was removed.
    is_top_gone: bool,
    /// The moment for which attributes were read.
    moment: Moment,
    /// Files that were searched for and not found.
    pub(super) gone: Gone,
    /// Whether a test has the system know no name without waiting.
    #[cfg(test)]
    is_cold: bool,
}

/// The state of a directory, compared with when a file was searched for in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Unchanged,
    Changed,
    /// The directory is not open, or its attributes cannot be read.
    Unknown,
}

impl Files {
    /// Opens the tree below the directory at `path`, of which at most `open_max` files stay open. `known` holds where its
    /// files were seen.
    pub(super) fn new(
        path: &Path,
        (known, shared): (Known, Shared),
        open_max: usize,
    ) -> io::Result<Self> {
        let descriptors = Descriptors::find().map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("/proc/self/fd: {error}"))
        })?;
        let helpers = Helpers::default();
        let (root, _) = open_top(path, &helpers)?;
        // Fail now if the system lacks a feature that every look-up needs.
        let listing = descriptors.listing(&root.place)?;
        let called = FileName::of(root.place.as_fd());
        let has_attributes = file_system::has_attributes(fstatfs(&root.place)?.f_type);
        let access_times = AccessTimes::of(fstatvfs(&root.place)?.f_flag);
        let opens = called.and_then(|name| name.open(listing.as_fd())).is_ok();
        Ok(Self {
            descriptors: Arc::new(descriptors),
            top: Arc::new(root.another_place()?),
            root: Rc::new(root),
            within: Within::default(),
            mount: opens.then(|| Arc::new(listing)),
            open: Open::new(open_max),
            helpers,
            known,
            shared,
            has_attributes,
            access_times,
            is_top_gone: false,
            moment: Moment::default(),
            gone: Gone::new(GONE_MAX),
            #[cfg(test)]
            is_cold: false,
        })
    }

    /// Begins a turn: drops the cached attributes and places of directories.
    pub(super) fn turn(&mut self) {
        self.forget_looks();
        self.within.turn();
    }

    /// Finds a file that is open, and reads its attributes.
    // What it returns is long, and the only caller on the way of every Call passes it on.
    #[inline(always)]
    pub(super) fn find(&mut self, id: FileId) -> Result<Option<(Rc<Node>, Look)>, Status> {
        if id == self.root.id {
            let look = self.root.look_at(self.moment)?;
            return match look.attributes.links {
                0 => Err(self.lose_top()),
                _ => Ok(Some((Rc::clone(&self.root), look))),
            };
        }
        let Some(node) = self.open.get(id) else { return Ok(None) };
        let look = node.look_at(self.moment)?;
        if look.attributes.links > 0 {
            return Ok(Some((node, look)));
        }
        self.forget(id);
        Err(Status::Stale)
    }

    /// Reads the attributes that an open file has at this moment.
    pub(super) fn look_at(&self, node: &Node) -> Result<Look, Errno> {
        node.look_at(self.moment)
    }

    /// Takes in that the server has changed files, or may have.
    pub(crate) fn note_change(&mut self, files: impl IntoIterator<Item = FileId>) {
        self.forget_looks();
        files.into_iter().for_each(|file| self.shared.changed.note(file));
    }

    /// Has attributes read anew: Calls came, or the server has changed a file.
    pub(crate) fn forget_looks(&mut self) {
        self.moment = self.moment.next();
    }

    /// Returns a directory if it can be acted on without a search.
    pub(crate) fn at_hand(&mut self, id: FileId) -> Option<Rc<Node>> {
        if id == self.root.id { Some(Rc::clone(&self.root)) } else { self.open.get(id) }
    }

    /// Records where a file is, and keeps it open, with what it is like at this moment.
    pub(super) fn keep_seen(
        &mut self,
        (node, look): (Node, Look),
        dir: FileId,
        name: &[u8],
    ) -> Rc<Node> {
        let node = self.keep(node, dir, name);
        node.note_look(self.moment, look);
        node
    }

    /// Records where a file is, and keeps it open.
    pub(crate) fn keep(&mut self, node: Node, dir: FileId, name: &[u8]) -> Rc<Node> {
        self.saw(&node, dir, name);
        self.open.keep(node)
    }

    /// Records where a file is.
    pub(crate) fn saw(&mut self, node: &Node, dir: FileId, name: &[u8]) {
        let by_name = self.mount.is_some() && !node.is_stand_in();
        self.saw_called(node.id, (dir, name), || {
            let called = by_name.then(|| FileName::of(node.place.as_fd()).ok()).flatten();
            called.map_or_else(Box::default, |name| name.to_bytes())
        });
    }

    /// Records where a file is. `called` returns its file system's handle, if that is not known.
    pub(crate) fn saw_called(
        &mut self,
        file: FileId,
        at: (FileId, &[u8]),
        called: impl FnOnce() -> Box<[u8]>,
    ) {
        self.gone.remove(file);
        let Self { known, shared, open, .. } = self;
        known.note(&mut shared.records, file, at, called, |file| open.contains(file));
    }

    /// Records that a file is gone, so that it is not searched for.
    pub(crate) fn forget(&mut self, id: FileId) {
        self.open.forget(id);
        self.note_gone(id, None);
    }

    /// Records that a file is gone: it was not found, though this directory was searched first, if any.
    pub(super) fn note_gone(&mut self, id: FileId, searched: Option<Searched>) {
        self.known.forget(&mut self.shared.records, id);
        self.gone.insert(id, searched);
    }

    /// Writes what was recorded of where files are, and is not written.
    pub(crate) fn write_gathered(&mut self) {
        self.known.write_gathered(&mut self.shared.records);
    }

    /// Returns the parent of a directory; the top is its own parent.
    pub(crate) fn parent(&mut self, dir: &Node) -> Result<FileId, Status> {
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
    pub(super) fn check_within(&mut self, dir: &Node) -> Result<(), Status> {
        self.within.check(dir, &self.root, &self.descriptors)
    }

    /// Returns whether a directory has changed since a file was searched for in it. A directory that is no longer open
    /// is not examined.
    pub(super) fn since(&mut self, searched: Searched) -> Since {
        match self.at_hand(searched.dir).and_then(|dir| dir.look().ok()) {
            Some(look) if look.attributes.ctime == searched.changed => Since::Unchanged,
            Some(_) => Since::Changed,
            None => Since::Unknown,
        }
    }

    /// Says, once, that the directory at the top was removed, also if another one has its name now.
    fn lose_top(&mut self) -> Status {
        if !std::mem::replace(&mut self.is_top_gone, true) {
            let hint = "clients mount nothing: restart the server, which serves the directory of that name";
            tracing::error!(target: "haulage", hint, "store.export_removed");
        }
        Status::Stale
    }

    /// Returns the directory at the top.
    pub(crate) fn root(&self) -> &Rc<Node> {
        &self.root
    }

    /// Returns whether a file can be acted on without a search.
    pub(crate) fn is_at_hand(&self, id: FileId) -> bool {
        id == self.root.id || self.open.contains(id)
    }

    /// Returns whether an open file is the stand-in for a place where another file system is mounted.
    pub(crate) fn is_stand_in(&self, id: FileId) -> bool {
        self.open.peek(id).is_some_and(|node| node.is_stand_in())
    }

    /// Returns whether the system itself has the attributes of all files, and asks no server for them.
    pub(crate) const fn has_attributes(&self) -> bool {
        self.has_attributes
    }

    /// Returns the files of which the file system's handle is known, if files can be opened by handles.
    pub(crate) fn called(&self) -> Option<Arc<Called>> {
        self.mount.as_ref().map(|_| self.known.called())
    }

    /// Returns the directory in which a file was seen last.
    pub(crate) fn seen_in(&self, file: FileId) -> Option<FileId> {
        self.known.find(file).map(|seen| seen.dir)
    }

    /// Returns whether reading a file with these attributes now sets its access time.
    pub(crate) fn notes_reading(&self, file: &Attributes, now: Time) -> bool {
        self.access_times.may_be_set(file, now)
    }

    /// Returns what a name in a directory leads to, if the system knows without waiting.
    pub(super) fn cached(&self, dir: &Node, name: &[u8]) -> Option<Result<PathDescriptor, Errno>> {
        #[cfg(test)]
        if self.is_cold {
            return None;
        }
        dir.cached_place(name)
    }

    /// Takes in what a name in a directory leads to.
    pub(super) fn named(&self, dir: &Node, name: &[u8], done: Stepped) -> Option<Node> {
        match done {
            Ok(fresh) => Some(Node::from_fresh(*fresh, &self.helpers)),
            // The system keeps the names where other file systems are mounted.
            Err(Errno::XDEV) => dir.child(name).ok().map(|(node, _)| node),
            Err(_) => None,
        }
    }

    /// Returns what opens a file by its handle, if it has one that may be used.
    pub(super) fn handle_of(&self, file: FileId) -> Option<Step> {
        let mount = Arc::clone(self.mount.as_ref()?);
        let called = FileName::from_bytes(self.known.find(file)?.called)?;
        Some(Step::Open(steps::Open { mount, called }))
    }
}

#[cfg(test)]
impl Files {
    /// Returns the number of paths that were read from the system since the last call.
    pub(crate) const fn take_asked(&mut self) -> usize {
        self.within.take_asked()
    }

    /// Returns the number of files in the table of places, and its size in octets.
    pub(crate) fn known_len(&self) -> (usize, usize) {
        self.known.len()
    }

    /// Returns the number of open files.
    pub(crate) fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether files can be opened by their file system's handles.
    pub(crate) const fn opens_by_name(&self) -> bool {
        self.mount.is_some()
    }

    /// Stops opening files by their file system's handles, like a server without the privilege.
    pub(crate) fn close_mount(&mut self) {
        self.mount = None;
    }

    /// Closes all files, as if they had not been used recently.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Has the system know no name without waiting.
    pub(crate) const fn forget_names(&mut self) {
        self.is_cold = true;
    }

    /// Has the system know names without waiting again.
    pub(crate) const fn recall_names(&mut self) {
        self.is_cold = false;
    }
}

/// Maximum number of files remembered as gone.
const GONE_MAX: usize = 4096;
