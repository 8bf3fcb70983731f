//! Names that are read for a Call before it is executed, so that nothing waits while it lists them.
//!
//! # Normal operation
//! Reading the names of a directory, and opening their files, waits for its lock. So a helper reads as many names as the
//! Call's limits take, with what the Call wants to know of each, and the Call is executed once that has ended. What was
//! read is the Call's alone: what its Reply does not take is dropped, and the next Call reads it anew.
//!
//! # Limits
//! One helper reads a directory at a time; another Call begins when the one before it was executed. At most [`LISTS_MAX`]
//! directories are read, or were read for a Call that is not executed yet, and each of these has at most a quarter as many
//! files open as may stay open.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::Directory;
use super::acts::{Act, Done, Made, Undone};
use super::helpers::Cost;
use super::listing::{Named, Names};
use super::mounted;
use super::node::{self, Descriptors, Fresh, Look, Node};
use crate::backend::{self, Listing, ListingKind, Shown, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Name, Status};

/// Reads names of a directory, with their files if the Call looks them up.
#[derive(Debug)]
pub(super) struct List {
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) place: OwnedFd,
    pub(super) listing: Listing,
}

/// Names that were read, in the directory's order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The names' octets, one behind the other.
    octets: Vec<u8>,
    entries: Vec<Entry>,
    /// Whether no name is left behind these.
    is_last: bool,
}

/// A name that was read.
#[derive(Debug)]
struct Entry {
    /// Where its octets end; they begin where those of the name before end.
    end: usize,
    cookie: u64,
    id: FileId,
    /// The file, if it was opened or should have been.
    file: Option<Result<Fresh, Errno>>,
}

/// A directory that is read for a Call.
#[derive(Debug)]
pub(super) struct Reading {
    dir: FileId,
    after: u64,
    /// The names read, once the reading has ended.
    read: Option<Read>,
}

/// What was read for a Call.
#[derive(Debug)]
pub(super) struct Read {
    dir: FileId,
    after: u64,
    names: Result<Batch, Errno>,
    /// The files of the names that were not looked up yet.
    files: Vec<Option<Result<(Node, Look), Errno>>>,
    /// The number of the name behind the one that was looked up last.
    next: usize,
}

impl List {
    /// Reads the names.
    pub(super) fn run(&self) -> Result<Batch, Errno> {
        let Listing { after, names_max, octets_max, octets_each, .. } = self.listing;
        let mut names = Names::of(self.descriptors.listing(&self.place)?, after)?;
        let mut batch = Batch::default();
        let mut left = octets_max;
        while let Some(named) = names.next() {
            let named = named?;
            let octets = named.name.len().next_multiple_of(4).saturating_add(octets_each);
            let is_first = batch.entries.is_empty();
            if !is_first && (batch.entries.len() >= names_max || octets > left) {
                return Ok(batch);
            }
            // Names that are gone by now are left out.
            let Some((id, file)) = self.meet(&named) else { continue };
            left = left.saturating_sub(octets);
            batch.octets.extend(named.name);
            let end = batch.octets.len();
            batch.entries.push(Entry { end, cookie: named.cookie, id, file });
        }
        batch.is_last = true;
        Ok(batch)
    }

    /// Returns the identity of the file with a name, and the file if the Call looks it up; `None` if it is gone. Where
    /// another file system is mounted nothing is opened.
    fn meet(&self, named: &Named<'_>) -> Option<(FileId, Option<Result<Fresh, Errno>>)> {
        let Self { place, listing, .. } = self;
        let opened = match listing.kind {
            ListingKind::Names => None,
            ListingKind::Files => {
                let file = node::place_of(place, named.name);
                match file.and_then(|place| Fresh::new(place, None)) {
                    Err(Errno::NOENT) => return None,
                    Err(Errno::XDEV) => {
                        return Some((mounted::id(listing.dir, named.name), None));
                    }
                    opened => Some(opened),
                }
            }
        };
        let id = match &opened {
            Some(Ok(file)) => Ok(file.look.id),
            _ => node::peek(place, listing.dir, named.name),
        };
        match id {
            Ok(id) => Some((id, opened)),
            // In a directory that may be read and not searched, a name has a number and no more.
            Err(Errno::ACCESS) => Some((FileId { inode: named.inode, generation: 0 }, opened)),
            Err(_) => None,
        }
    }
}

impl Directory {
    /// Reads the names that a Call lists.
    pub(super) fn look_into(&mut self, ticket: Ticket, listing: &Listing) -> backend::Names {
        self.tree.found.clear();
        self.listed = self.take_read(ticket);
        // A directory that is not at hand is found to be gone when the Call is executed.
        let Some(dir) = self.tree.at_hand(listing.dir) else { return backend::Names::Known };
        let is_it = |read: &Read| (read.dir, read.after) == (dir.id, listing.after);
        if self.listed.as_ref().is_some_and(is_it) {
            return backend::Names::Known;
        }
        let reading = Reading { dir: dir.id, after: listing.after, read: None };
        if dir.is_stand_in() {
            let nothing = Batch { is_last: true, ..Batch::default() };
            self.listed = Some(self.read_for(&reading, Ok(Made::Names(nothing))));
            return backend::Names::Known;
        }
        if self.lists.values().any(|other| other.dir == dir.id) {
            return backend::Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return backend::Names::Full };
        if self.tree.helpers.is_full(Cost::List, ticket) {
            return backend::Names::Full;
        }
        let names_max = match listing.kind {
            ListingKind::Names => listing.names_max,
            ListingKind::Files => listing.names_max.min(self.listed_max),
        };
        let listing = Listing { names_max, ..*listing };
        let descriptors = Arc::clone(&self.tree.descriptors);
        let act = Act::List(List { descriptors, place, listing });
        match self.tree.helpers.make(act, ticket, Cost::List) {
            None => {
                self.lists.insert(ticket, reading);
                backend::Names::Begun
            }
            Some(act) => {
                self.listed = Some(self.read_for(&reading, act.run()));
                backend::Names::Known
            }
        }
    }

    /// Takes in what a helper has read for a Call. Returns the directory, or what became of another act.
    pub(super) fn finish_list(&mut self, ticket: Ticket, done: Done) -> Result<FileId, Done> {
        let Some(mut reading) = self.lists.remove(&ticket) else { return Err(done) };
        let dir = reading.dir;
        reading.read = Some(self.read_for(&reading, done));
        self.lists.insert(ticket, reading);
        Ok(dir)
    }

    /// Takes what was read for a Call that is executed now, or refused.
    pub(super) fn take_read(&mut self, ticket: Ticket) -> Option<Read> {
        let read = self.lists.get_mut(&ticket)?.read.take()?;
        self.lists.remove(&ticket);
        self.tree.helpers.end_list(ticket);
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
        for (at, entry) in batch.entries.iter().enumerate() {
            let name = Name(batch.name(at));
            if !show(Shown { name, file: entry.id, cookie: entry.cookie }) {
                return Ok(false);
            }
        }
        Ok(batch.is_last)
    }

    /// Keeps the file of a name that was read, and returns its identity; `None` if the name has to be looked up.
    pub(super) fn keep_read(&mut self, dir: FileId, name: &[u8]) -> Option<Result<FileId, Status>> {
        let read = self.listed.as_mut().filter(|read| read.dir == dir)?;
        let names = read.names.as_ref().ok()?;
        let at = (read.next..names.entries.len()).find(|at| names.name(*at) == name)?;
        read.next = at + 1;
        let file = read.files.get_mut(at)?.take()?;
        Some(file.map(|(node, _)| self.tree.keep(node, dir, name).id).map_err(Status::from))
    }

    /// Returns what was read, with its files as the core keeps them.
    fn read_for(&self, reading: &Reading, done: Done) -> Read {
        let mut names = match done {
            Ok(Made::Names(batch)) => Ok(batch),
            Err(Undone::Absent(errno)) => Err(errno),
            _ => Err(Errno::IO),
        };
        let entries = names.iter_mut().flat_map(|batch| &mut batch.entries);
        let kept = |file: Fresh| {
            let look = file.look;
            (Node::from_fresh(file, &self.tree.helpers), look)
        };
        let files = entries.map(|entry| Some(entry.file.take()?.map(kept))).collect();
        Read { dir: reading.dir, after: reading.after, names, files, next: 0 }
    }
}

impl Batch {
    /// Returns the name with a number.
    fn name(&self, at: usize) -> &[u8] {
        let end_of = |at: usize| self.entries.get(at).map_or(0, |entry| entry.end);
        let begin = at.checked_sub(1).map_or(0, end_of);
        self.octets.get(begin..end_of(at)).unwrap_or_default()
    }
}

/// Maximum number of directories that are read at a time, those included of which the names wait for their Call.
pub(super) const LISTS_MAX: usize = 7;
/// Number of files that may stay open for each file that one list may have open. So all lists, with the one of the Call
/// that is executed, have two descriptors for each file that may stay open.
pub(super) const SHARE: usize = 4;
const _: () = assert!(LISTS_MAX < 2 * SHARE);
