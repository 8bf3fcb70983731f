//! Names that are read for a Call before it is executed, so that nothing waits while it lists them.
//!
//! # Normal operation
//! Reading the names of a directory, and their attributes, waits for its lock. So a helper reads as many names as the
//! Call's limits take, with what the Call wants to know of each, and the Call is executed once that has ended. What was
//! read is [kept](super::recent) for a while, for Calls that list the same.
//!
//! # Limits
//! One helper reads a directory at a time; another Call begins when the one before it was executed. At most [`LISTS_MAX`]
//! directories are read, or were read for a Call that is not executed yet.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use super::Directory;
use super::acts::{Act, Done, Made, Undone};
use super::helpers::Cost;
use super::known::Called;
use super::recent::Began;
use super::system::descriptors::Descriptors;
use super::system::listing::{Named, Names};
use super::system::look::{Look, look};
use super::system::place::{peek, place_of};
use crate::backend::{self, Listing, ListingKind, Shown, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Attributes, Name, Status, Time};

/// Reads names of a directory, with their files' attributes if the Call tells them.
#[derive(Debug)]
pub(super) struct List {
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) place: OwnedFd,
    /// Whether the system itself has the attributes of all files, and asks no server for them.
    pub(super) has_attributes: bool,
    /// The files of which the file system's handle is known, if files are opened by handles.
    pub(super) called: Option<Arc<Called>>,
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
    /// The `ctime` of the directory before the reading, if the system itself has it.
    dir_changed: Option<Time>,
}

/// A name that was read.
#[derive(Debug)]
struct Entry {
    /// Where its octets end; they begin where those of the name before end.
    end: usize,
    /// Where the octets of the file system's handle of the file end, which are behind the name; there are none where
    /// files are not opened by them, or where it is known already.
    called_end: usize,
    cookie: u64,
    id: FileId,
    /// What the file is like, if the Call tells it.
    look: Option<Result<Look, Errno>>,
}

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

impl List {
    /// Reads the names.
    pub(super) fn run(&self) -> Result<Batch, Errno> {
        let Listing { after, names_max, octets_max, octets_each, .. } = self.listing;
        let dir = look(&self.place).ok().filter(|_| self.has_attributes);
        let dir_changed = dir.map(|look| look.attributes.ctime);
        let mut names = Names::of(self.descriptors.listing(&self.place)?, after, names_max)?;
        let mut batch = Batch { dir_changed, ..Batch::default() };
        let mut left = octets_max;
        while let Some(named) = names.next() {
            let named = named?;
            let octets = named.name.len().next_multiple_of(4).saturating_add(octets_each);
            let is_first = batch.entries.is_empty();
            if !is_first && (batch.entries.len() >= names_max || octets > left) {
                return Ok(batch);
            }
            // Names that are gone by now are left out.
            let Some((id, look)) = self.meet(&named) else { continue };
            left = left.saturating_sub(octets);
            batch.octets.extend(named.name);
            let end = batch.octets.len();
            let at = (self.listing.dir, named.name);
            let is_new = |called: &Arc<Called>| !called.has(id, at);
            if matches!(look, Some(Ok(_))) && self.called.as_ref().is_some_and(is_new) {
                batch.octets.extend(self.handle(named.name).unwrap_or_default());
            }
            let called_end = batch.octets.len();
            batch.entries.push(Entry { end, called_end, cookie: named.cookie, id, look });
        }
        batch.is_last = true;
        Ok(batch)
    }

    /// Returns the identity of the file with a name, and what it is like if the Call tells that; `None` if it is gone.
    fn meet(&self, named: &Named<'_>) -> Option<(FileId, Option<Result<Look, Errno>>)> {
        let Self { place, listing, .. } = self;
        let peek = || peek(place, listing.dir, named.name);
        let look = match listing.kind {
            ListingKind::Files if !self.has_attributes => match place_of(place, named.name) {
                Err(Errno::XDEV) => peek(),
                place => place.and_then(look),
            },
            ListingKind::Files | ListingKind::Names => peek(),
        };
        let tells = listing.kind == ListingKind::Files;
        match look {
            Ok(look) => Some((look.id, tells.then_some(Ok(look)))),
            // In a directory that may be read and not searched, a name has a number and no more.
            Err(errno @ Errno::ACCESS) => {
                let id = FileId { inode: named.inode, generation: 0 };
                Some((id, tells.then_some(Err(errno))))
            }
            Err(_) => None,
        }
    }

    /// Returns the file system's handle of the file with a name.
    fn handle(&self, name: &[u8]) -> Option<Box<[u8]>> {
        let called = FileName::at(self.place.as_fd(), &CString::new(name).ok()?);
        Some(called.ok()?.to_bytes())
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
        if let Some(names) = self.recent_list(listing) {
            self.listed = Some(Read::of(listing, Ok(names)));
            return backend::Names::Known;
        }
        if dir.is_stand_in() {
            let nothing = Batch { is_last: true, ..Batch::default() };
            self.listed = Some(Read::of(listing, Ok(Rc::new(nothing))));
            return backend::Names::Known;
        }
        if self.lists.values().any(|other| other.listing.dir == dir.id) {
            return backend::Names::Behind(dir.id);
        }
        let Ok(place) = dir.another_place() else { return backend::Names::Full };
        if self.tree.helpers.is_full(Cost::List, ticket) {
            return backend::Names::Full;
        }
        let act = Act::List(List {
            descriptors: Arc::clone(&self.tree.descriptors),
            place,
            has_attributes: self.tree.has_attributes(),
            called: self.tree.called(),
            listing: *listing,
        });
        let reading = Reading { listing: *listing, began: self.recent.begin(), read: None };
        match self.tree.helpers.make(act, ticket, (Cost::List, None)) {
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
        let dir = reading.listing.dir;
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

    /// Returns the file of a name that was read, which is recorded, and what it is like; `None` if it has to be looked up.
    pub(super) fn tell_read(
        &mut self,
        dir: FileId,
        name: &[u8],
    ) -> Option<Result<(FileId, Attributes), Status>> {
        let read = self.listed.as_mut().filter(|read| read.dir == dir)?;
        let names = read.names.as_ref().ok()?;
        let at = (read.next..names.entries.len()).find(|at| names.name(*at) == name)?;
        read.next = at + 1;
        let look = match names.entries.get(at)?.look? {
            Ok(look) => look,
            Err(errno) => return Some(Err(errno.into())),
        };
        self.tree.saw_called(look.id, (dir, name), || names.called(at).into());
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
    fn read_for(&mut self, reading: &Reading, done: Done) -> Read {
        let names = batch_of(done).map(Rc::new);
        if let Ok(names) = &names {
            self.recent.keep(&reading.listing, reading.began, names);
        }
        Read::of(&reading.listing, names)
    }
}

/// Returns the names that were read.
fn batch_of(done: Done) -> Result<Batch, Errno> {
    match done {
        Ok(Made::Names(batch)) => Ok(batch),
        Err(Undone::Absent(errno)) => Err(errno),
        _ => Err(Errno::IO),
    }
}

impl Read {
    const fn of(listing: &Listing, names: Result<Rc<Batch>, Errno>) -> Self {
        Self { dir: listing.dir, after: listing.after, names, next: 0 }
    }
}

impl Batch {
    /// Returns the `ctime` that the directory had before the reading, if the system itself has it.
    pub(super) const fn dir_changed(&self) -> Option<Time> {
        self.dir_changed
    }

    /// Returns the files, each with its `ctime` if that was read.
    pub(super) fn files(&self) -> impl Iterator<Item = (FileId, Option<Time>)> {
        let changed = |look: Look| look.attributes.ctime;
        self.entries
            .iter()
            .map(move |entry| (entry.id, entry.look.and_then(Result::ok).map(changed)))
    }

    /// Returns names of as many files, read when the directory had this `ctime`.
    #[cfg(test)]
    pub(super) fn of_files(dir_changed: Time, files: u64) -> Self {
        let id = |inode| FileId { inode, generation: 1 };
        let entry =
            |inode| Entry { end: 0, called_end: 0, cookie: inode, id: id(inode), look: None };
        let (entries, dir_changed) = ((0..files).map(entry).collect(), Some(dir_changed));
        Self { entries, dir_changed, ..Self::default() }
    }

    /// Returns the memory that the names take, in octets.
    pub(super) fn size(&self) -> usize {
        size_of::<Self>() + self.octets.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Returns the name with a number.
    fn name(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).and_then(|before| self.entries.get(before));
        let begin = begin.map_or(0, |before| before.called_end);
        let end = self.entries.get(at).map_or(0, |entry| entry.end);
        self.octets.get(begin..end).unwrap_or_default()
    }

    /// Returns the file system's handle of the file with the name of a number; empty if there is none.
    fn called(&self, at: usize) -> &[u8] {
        let called = self.entries.get(at).map(|entry| entry.end..entry.called_end);
        called.and_then(|called| self.octets.get(called)).unwrap_or_default()
    }
}

/// Maximum number of directories that are read at a time, those included of which the names wait for their Call.
pub(super) const LISTS_MAX: usize = 7;
