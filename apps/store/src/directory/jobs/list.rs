//! Reading names of a directory for a Call.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use crate::backend::{Listing, ListingKind, Shown};
use crate::directory::jobs::called::Called;
use crate::directory::system::descriptors::Descriptors;
use crate::directory::system::listing::{Named, Names};
use crate::directory::system::look::{Look, look};
use crate::directory::system::place::{peek, place_of};
use crate::handle::FileId;
use crate::nfs3::{Name, Time};

/// Reads names of a directory, with their files' attributes if the Call tells them.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) place: OwnedFd,
    /// Whether the system itself has the attributes of all files, and asks no server for them.
    pub(crate) has_attributes: bool,
    /// The files of which the file system's handle is known, if files are opened by handles.
    pub(crate) called: Option<Arc<Called>>,
    pub(crate) listing: Listing,
}

/// Names that were read, in the directory's order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
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

impl List {
    /// Reads the names.
    pub(crate) fn run(&self) -> Result<Batch, Errno> {
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

impl Batch {
    /// Returns the names of an empty directory.
    pub(crate) fn none() -> Self {
        Self { is_last: true, ..Self::default() }
    }

    /// Returns whether no name is left behind these.
    pub(crate) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// Returns the names as a listing shows them.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Shown<'_>> {
        self.entries.iter().enumerate().map(|(at, entry)| Shown {
            name: Name(self.name(at)),
            file: entry.id,
            cookie: entry.cookie,
        })
    }

    /// Returns the number of a name, which is `from` at least.
    pub(crate) fn find(&self, name: &[u8], from: usize) -> Option<usize> {
        (from..self.entries.len()).find(|at| self.name(*at) == name)
    }

    /// Returns what the file of the name with a number is like, if the Call tells that.
    pub(crate) fn look(&self, at: usize) -> Option<Result<Look, Errno>> {
        self.entries.get(at)?.look
    }

    /// Returns the `ctime` that the directory had before the reading, if the system itself has it.
    pub(crate) const fn dir_changed(&self) -> Option<Time> {
        self.dir_changed
    }

    /// Returns the files, each with its `ctime` if that was read.
    pub(crate) fn files(&self) -> impl Iterator<Item = (FileId, Option<Time>)> {
        let changed = |look: Look| look.attributes.ctime;
        self.entries
            .iter()
            .map(move |entry| (entry.id, entry.look.and_then(Result::ok).map(changed)))
    }

    /// Returns names of as many files, read when the directory had this `ctime`.
    #[cfg(test)]
    pub(crate) fn of_files(dir_changed: Time, files: u64) -> Self {
        let id = |inode| FileId { inode, generation: 1 };
        let entry =
            |inode| Entry { end: 0, called_end: 0, cookie: inode, id: id(inode), look: None };
        let (entries, dir_changed) = ((0..files).map(entry).collect(), Some(dir_changed));
        Self { entries, dir_changed, ..Self::default() }
    }

    /// Returns the memory that the names take, in octets.
    pub(crate) fn size(&self) -> usize {
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
    pub(crate) fn called(&self, at: usize) -> &[u8] {
        let called = self.entries.get(at).map(|entry| entry.end..entry.called_end);
        called.and_then(|called| self.octets.get(called)).unwrap_or_default()
    }
}
