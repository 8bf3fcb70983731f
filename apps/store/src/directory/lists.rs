//! Names that are read for a Call before it is executed, so that nothing waits while it lists them.
//!
//! # Normal operation
//! Reading the names of a directory, and their attributes, waits for its lock. So a helper reads as many names as the
//! Call's limits take, with what the Call wants to know of each, and the Call is executed once that has ended. What was
//! read is [kept](super::recent) for a while, for Calls that list the same.
//!
//! # Limits
//! One helper reads a directory at a time; another Call begins when the one before it was executed. The
//! helpers bound how many directories are read, or were read for a Call that is not executed yet ([`Cost::List`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::helpers::Cost;
use super::jobs::Helpers;
use super::jobs::list::{Batch, List};
use super::recent::{Began, Recent};
use super::shared::Shared;
use super::tree::Tree;
use crate::backend::{self, Listing, Shown, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Attributes, Status};

/// The directories that are read for Calls.
#[derive(Debug)]
pub(super) struct Lists {
    /// Directories that are read for Calls that wait.
    reading: BTreeMap<Ticket, Reading>,
    /// What was read for the Call that is executed.
    listed: Option<Read>,
    /// What was read for the Calls before.
    pub(super) recent: Recent,
}

/// A directory that is read for a Call.
#[derive(Debug)]
struct Reading {
    listing: Listing,
    began: Began,
    /// The names read, once the reading has ended.
    read: Option<Read>,
}

/// What was read for a Call.
#[derive(Debug)]
struct Read {
    dir: FileId,
    after: u64,
    names: Result<Rc<Batch>, Errno>,
    /// The number of the name behind the one that was told last.
    next: usize,
}

impl Lists {
    /// Keeps lists for `kept_max`, or none if that is zero.
    pub(super) fn new(kept_max: Duration) -> Self {
        Self { reading: BTreeMap::new(), listed: None, recent: Recent::new(kept_max) }
    }

    /// Begins a turn: drops lists that are too old.
    pub(super) fn turn(&mut self) {
        self.listed = None;
        self.recent.turn();
    }

    /// Reads the names that a Call lists.
    pub(super) fn look_into(
        &mut self,
        tree: &mut Tree,
        ticket: Ticket,
        listing: &Listing,
    ) -> backend::Names {
        tree.found.clear();
        self.listed = self.take_read(&tree.files.helpers, ticket);
        // A directory that is not at hand is found to be gone when the Call is executed.
        let Some(dir) = tree.files.at_hand(listing.dir) else { return backend::Names::Known };
        let is_it = |read: &Read| (read.dir, read.after) == (dir.id, listing.after);
        if self.listed.as_ref().is_some_and(is_it) {
            return backend::Names::Known;
        }
        if let Some(names) = self.recent_list(tree, listing) {
            self.listed = Some(Read::of(listing, Ok(names)));
            return backend::Names::Known;
        }
        if dir.is_stand_in() {
            self.listed = Some(Read::of(listing, Ok(Rc::new(Batch::none()))));
            return backend::Names::Known;
        }
        if self.reading.values().any(|other| other.listing.dir == dir.id) {
            return backend::Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return backend::Names::Full };
        if tree.files.helpers.is_full(Cost::List, ticket.network) {
            return backend::Names::Full;
        }
        let list = List {
            descriptors: Arc::clone(&tree.files.descriptors),
            place,
            has_attributes: tree.files.has_attributes(),
            called: tree.files.called(),
            listing: *listing,
        };
        let reading = Reading {
            listing: *listing,
            began: Began::now(&tree.files.shared.changed),
            read: None,
        };
        match tree.files.helpers.list(list, ticket) {
            None => {
                self.reading.insert(ticket, reading);
                backend::Names::Begun
            }
            Some(list) => {
                self.listed = Some(self.read_for(&mut tree.files.shared, &reading, list.run()));
                backend::Names::Known
            }
        }
    }

    /// Takes in what a helper has read for a Call. Returns the directory.
    pub(super) fn finish(
        &mut self,
        shared: &mut Shared,
        ticket: Ticket,
        names: Result<Batch, Errno>,
    ) -> Option<FileId> {
        let mut reading = self.reading.remove(&ticket)?;
        let dir = reading.listing.dir;
        reading.read = Some(self.read_for(shared, &reading, names));
        self.reading.insert(ticket, reading);
        Some(dir)
    }

    /// Drops what was read for a Call that lists nothing any more.
    pub(super) fn leave(&mut self, helpers: &Helpers, ticket: Ticket) {
        self.listed = None;
        drop(self.take_read(helpers, ticket));
    }

    /// Takes what was read for a Call that is executed now, or refused.
    fn take_read(&mut self, helpers: &Helpers, ticket: Ticket) -> Option<Read> {
        let read = self.reading.get_mut(&ticket)?.read.take()?;
        self.reading.remove(&ticket);
        helpers.end_list(ticket.network);
        Some(read)
    }

    /// Shows the names that were read.
    pub(super) fn show_read(
        &self,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status> {
        let read = self.listed.as_ref().filter(|read| (read.dir, read.after) == (dir, after));
        let batch = read.ok_or(Status::Jukebox)?.names.as_ref().map_err(|errno| *errno)?;
        Ok(batch.shown().all(show) && batch.is_last())
    }

    /// Returns the file of a name that was read, which is recorded, and what it is like; `None` if it has to be looked up.
    pub(super) fn tell_read(
        &mut self,
        tree: &mut Tree,
        dir: FileId,
        name: &[u8],
    ) -> Option<Result<(FileId, Attributes), Status>> {
        let read = self.listed.as_mut().filter(|read| read.dir == dir)?;
        let names = read.names.as_ref().ok()?;
        let at = names.find(name, read.next)?;
        read.next = at + 1;
        let look = match names.look(at)? {
            Ok(look) => look,
            Err(errno) => return Some(Err(errno.into())),
        };
        tree.files.saw_called(look.id, (dir, name), || names.called(at).into());
        Some(Ok((look.id, look.attributes)))
    }

    /// Returns whether no list is kept for a Call that waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.reading.is_empty()
    }

    /// Returns the names of a list that was read for an earlier Call, if the directory has them still.
    fn recent_list(&self, tree: &mut Tree, listing: &Listing) -> Option<Rc<Batch>> {
        if self.recent.is_empty() {
            return None;
        }
        let (_, dir) = tree.find(listing.dir).ok()?;
        self.recent.find(&tree.files.shared.changed, listing, dir.attributes.ctime)
    }

    /// Takes in what was read for a Call, and keeps it.
    fn read_for(
        &mut self,
        shared: &mut Shared,
        reading: &Reading,
        names: Result<Batch, Errno>,
    ) -> Read {
        let names = names.map(Rc::new);
        if let Ok(names) = &names {
            self.recent.keep(&mut shared.changed, (&reading.listing, reading.began), names);
        }
        Read::of(&reading.listing, names)
    }
}

impl Read {
    const fn of(listing: &Listing, names: Result<Rc<Batch>, Errno>) -> Self {
        Self { dir: listing.dir, after: listing.after, names, next: 0 }
    }
}
