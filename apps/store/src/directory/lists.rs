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

use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::Directory;
use super::helpers::Cost;
use super::jobs::list::{Batch, List};
use super::recent::Began;
use crate::backend::{self, Listing, Shown, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Attributes, Status};

/// A directory that is read for a Call.
#[derive(Debug)]
pub(super) struct Reading {
    listing: Listing,
    began: Began,
    /// The names read, once the reading has ended.
    read: Option<Read>,
}

/// What was read for a Call.
#[derive(Debug)]
pub(super) struct Read {
    dir: FileId,
    after: u64,
    names: Result<Rc<Batch>, Errno>,
    /// The number of the name behind the one that was told last.
    next: usize,
}

impl Directory {
    /// Reads the names that a Call lists.
    pub(super) fn look_into(&mut self, ticket: Ticket, listing: &Listing) -> backend::Names {
        self.tree.found.clear();
        self.listed = self.take_read(ticket);
        // A directory that is not at hand is found to be gone when the Call is executed.
        let Some(dir) = self.tree.files.at_hand(listing.dir) else { return backend::Names::Known };
        let is_it = |read: &Read| (read.dir, read.after) == (dir.id, listing.after);
        if self.listed.as_ref().is_some_and(is_it) {
            return backend::Names::Known;
        }
        if let Some(names) = self.recent_list(listing) {
            self.listed = Some(Read::of(listing, Ok(names)));
            return backend::Names::Known;
        }
        if dir.is_stand_in() {
            self.listed = Some(Read::of(listing, Ok(Rc::new(Batch::none()))));
            return backend::Names::Known;
        }
        if self.lists.values().any(|other| other.listing.dir == dir.id) {
            return backend::Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return backend::Names::Full };
        if self.tree.files.helpers.is_full(Cost::List, ticket.network) {
            return backend::Names::Full;
        }
        let list = List {
            descriptors: Arc::clone(&self.tree.files.descriptors),
            place,
            has_attributes: self.tree.files.has_attributes(),
            called: self.tree.files.called(),
            listing: *listing,
        };
        let reading = Reading { listing: *listing, began: self.recent.begin(), read: None };
        match self.tree.files.helpers.list(list, ticket) {
            None => {
                self.lists.insert(ticket, reading);
                backend::Names::Begun
            }
            Some(list) => {
                self.listed = Some(self.read_for(&reading, list.run()));
                backend::Names::Known
            }
        }
    }

    /// Takes in what a helper has read for a Call. Returns the directory.
    pub(super) fn finish_list(
        &mut self,
        ticket: Ticket,
        names: Result<Batch, Errno>,
    ) -> Option<FileId> {
        let mut reading = self.lists.remove(&ticket)?;
        let dir = reading.listing.dir;
        reading.read = Some(self.read_for(&reading, names));
        self.lists.insert(ticket, reading);
        Some(dir)
    }

    /// Takes what was read for a Call that is executed now, or refused.
    pub(super) fn take_read(&mut self, ticket: Ticket) -> Option<Read> {
        let read = self.lists.get_mut(&ticket)?.read.take()?;
        self.lists.remove(&ticket);
        self.tree.files.helpers.end_list(ticket.network);
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
        self.tree.files.saw_called(look.id, (dir, name), || names.called(at).into());
        Some(Ok((look.id, look.attributes)))
    }

    /// Returns the names of a list that was read for an earlier Call, if the directory has them still.
    fn recent_list(&mut self, listing: &Listing) -> Option<Rc<Batch>> {
        if self.recent.is_empty() {
            return None;
        }
        let (_, dir) = self.tree.find(listing.dir).ok()?;
        self.recent.find(listing, dir.attributes.ctime)
    }

    /// Takes in what was read for a Call, and keeps it.
    fn read_for(&mut self, reading: &Reading, names: Result<Batch, Errno>) -> Read {
        let names = names.map(Rc::new);
        if let Ok(names) = &names {
            self.recent.keep(&reading.listing, reading.began, names);
        }
        Read::of(&reading.listing, names)
    }
}

impl Read {
    const fn of(listing: &Listing, names: Result<Rc<Batch>, Errno>) -> Self {
        Self { dir: listing.dir, after: listing.after, names, next: 0 }
    }
}
