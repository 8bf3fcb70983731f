//! What tests see of a directory, and what they do to it.

use std::sync::Arc;

use super::Directory;
use super::jobs::making::Between;
use crate::handle::FileId;

impl Directory {
    /// Closes all files, and from now on opens files only by name, like a server without privileges.
    pub(crate) fn open_by_names_alone(&mut self) {
        self.tree.files.close_mount();
        self.tree.files.close_all();
    }

    /// Closes all files, and from now on has the system know no name on the way to a file without waiting.
    pub(crate) fn close_all(&mut self) {
        self.tree.files.close_all();
        self.tree.files.forget_names();
    }

    /// Has the system know names without waiting again.
    pub(crate) fn recall_names(&mut self) {
        self.tree.files.recall_names();
    }

    /// Returns what keeps every helper from acting while it is true, like the lock of an inode.
    pub(crate) fn gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.gate()
    }

    /// Returns what keeps every helper from syncing while it is true.
    pub(crate) fn sync_gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.sync_gate()
    }

    /// Returns what keeps every helper from closing a file while it is true.
    pub(crate) fn close_gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.close_gate()
    }

    /// Returns the number of WRITEs and changes that wait for room.
    pub(crate) fn roomless(&self) -> usize {
        self.data.transfers.roomless() + self.tree.files.helpers.roomless()
    }

    /// Returns how often a file, or a directory, was synced, or began to be.
    pub(crate) fn syncs_of(&self, file: FileId) -> usize {
        self.settling.syncs_of(file)
    }

    /// Returns the number of helpers that have something to do other than to list.
    pub(crate) fn busy(&self) -> usize {
        self.tree.files.helpers.busy()
    }

    /// Returns whether no Call waits for stable storage.
    pub(crate) fn is_settled(&self) -> bool {
        self.settling.is_settled()
    }

    /// Has all syncs fail that begin from now on.
    pub(crate) const fn fail_syncs(&mut self) {
        self.settling.fail();
    }

    /// Returns the number of changes and look-ups that helpers are to make.
    pub(crate) fn under_way(&self) -> usize {
        self.changes.under_way() + self.look_ups.under_way()
    }

    /// Returns whether nothing is kept of what helpers looked up.
    pub(crate) fn has_found_nothing(&self) -> bool {
        self.look_ups.has_found_nothing() && self.lists.is_empty()
    }

    /// Returns whether the helpers have nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.tree.files.helpers.is_idle()
    }

    /// Has another process act whenever a file was created by its name and is not yet opened by it.
    pub(crate) fn between(&mut self, act: impl Fn() + Send + std::marker::Sync + 'static) {
        self.changes.between = Between(Arc::new(act));
    }
}
