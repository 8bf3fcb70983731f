//! SETATTR of the files of a directory tree.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::closing::{Cut, DEAR};
use super::data::check_end;
use super::names::Sync;
use super::node::Node;
use super::{Directory, fs};
use crate::backend::{Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::{SetAttributes, Status};

/// A change of attributes under way.
#[derive(Debug)]
pub(super) struct Change {
    node: Rc<Node>,
    to: SetAttributes,
    /// The new size, and the descriptor by which it is set.
    resized: Option<(Rc<OwnedFd>, u64)>,
    /// Whether the file is so large that cutting it may take long.
    is_dear: bool,
    changed: Option<Sync>,
}

impl Directory {
    /// Changes attributes, all at once.
    pub(super) fn change(&mut self, file: FileId, to: &SetAttributes) -> Result<(), Status> {
        let change = self.begin_change(file, to)?;
        if let Some((writer, size)) = &change.resized {
            fs::ftruncate(writer, *size)?;
        }
        self.end_change(&change)
    }

    /// Changes attributes. Returns whether all is done: the helper cuts a large file.
    pub(super) fn change_size(
        &mut self,
        ticket: Ticket,
        file: FileId,
        to: &SetAttributes,
    ) -> Result<Option<()>, Status> {
        let change = self.begin_change(file, to)?;
        if let Some((writer, size)) = &change.resized {
            if change.is_dear && self.tree.closer.cut(writer, *size, ticket) {
                self.changes.insert(ticket, change);
                return Ok(None);
            }
            fs::ftruncate(writer, *size)?;
        }
        self.end_change(&change).map(Some)
    }

    /// Returns the next change of which the helper has cut the file.
    pub(super) fn next_changed(&mut self) -> Option<Finished> {
        let (ticket, cut): Cut = self.tree.closer.next_cut()?;
        let change = self.changes.remove(&ticket)?;
        let ended = cut.map_err(Status::from).and_then(|()| self.end_change(&change));
        Some(Finished::Resized(ticket, ended))
    }

    /// Checks that the helper does not cut a file. The system has everybody who changes the file, or a name of it, wait
    /// until it is cut.
    pub(super) fn check_uncut(&self, file: FileId) -> Result<(), Status> {
        let is_cut = self.changes.values().any(|change| change.node.id == file);
        if is_cut { Err(Status::Jukebox) } else { Ok(()) }
    }

    /// Changes the owner, and opens what the rest takes.
    fn begin_change(&mut self, file: FileId, to: &SetAttributes) -> Result<Change, Status> {
        self.check_uncut(file)?;
        let (node, look) = self.tree.find(file)?;
        let changed = self.before_change(&node, look.attributes.kind)?;
        let resized = to.size.map(|size| {
            look.regular()?;
            check_end(size, 0)?;
            Ok::<_, Status>((node.writer(&self.tree.descriptors)?, size))
        });
        let resized = resized.transpose()?;
        let uid = to.uid.filter(|uid| *uid != look.attributes.uid);
        let gid = to.gid.filter(|gid| *gid != look.attributes.gid);
        let is_cut = to.size.is_some_and(|size| size < look.attributes.size);
        let is_dear = is_cut && look.attributes.used >= DEAR;
        if is_dear && self.tree.closer.is_full() {
            return Err(Status::Jukebox);
        }
        // A file that cannot be given away keeps its data.
        node.give(uid, gid)?;
        Ok(Change { node, to: *to, resized, is_dear, changed })
    }

    fn end_change(&mut self, change: &Change) -> Result<(), Status> {
        let Change { node, to, changed, .. } = change;
        // The mode is set after the owner and the size, since changing these clears bits.
        if let Some(mode) = to.mode {
            self.tree.descriptors.set_mode(node, mode)?;
        }
        node.set_times(to.atime, to.mtime)?;
        self.settle(changed.as_ref())
    }
}
