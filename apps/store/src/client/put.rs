//! Storing a file by its path: complete under its name, or not there.
//!
//! # Normal operation
//! The first octets of the source are read before anything is changed, so that a source that cannot be read changes
//! nothing. All go to a new file beside the name, which takes the name once everything is on stable storage.
//!
//! An existing file that a new one cannot stand in for is written in place, from its start: one that has several links,
//! another owner than files that this caller creates, or other permission bits than the server gives it, or is in a
//! directory that takes no new file. A symbolic link stays, as its target has the name that is taken.
//!
//! # Recovery
//! A failure leaves the name as it was, and the new file is removed. If the connection is lost it stays, as
//! `NAME.NUMBER.part`.

use std::io;

use super::write::fill;
use super::{Client, DirEntry, Error, File, Found, Last, Requester, ResolvedPath};
use crate::nfs3::arguments::How;
use crate::nfs3::arguments::Rename;
use crate::nfs3::{
    Arguments, Attributes, DirName, FileType, Name, Procedure, Results, SetAttributes, Status,
};

/// How a file comes to be.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// The permission bits of a file that was not there.
    pub mode: u32,
    /// A number for the name that the new file has at first. Processes that store the same file at one time should have
    /// different ones.
    pub number: u64,
}

impl<R: Requester> Client<R> {
    /// Stores the octets of `source` as the regular file that `path` leads to. `source` fills memory and returns the number
    /// of octets, zero at its end. Returns the total, all of it on stable storage.
    ///
    /// # Errors
    /// The server refuses, or `source` does. Then the file is as before, unless it is written in place.
    pub fn put(
        &mut self,
        path: &[u8],
        new: New,
        mut source: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, Error> {
        let mut ahead = vec![0; AHEAD];
        let length = fill(&mut ahead, &mut source).map_err(Error::Local)?;
        let (mut ahead, is_all) = (ahead.get(..length).unwrap_or_default(), length < AHEAD);
        let source = |room: &mut [u8]| match ahead {
            [] if is_all => Ok(0),
            [] => source(room),
            _ => io::Read::read(&mut ahead, room),
        };
        match self.find(path, Last::Follow)? {
            ResolvedPath::Free(entry) => {
                let part = self.create_part(&entry, new)?;
                self.put_part(part, entry, source)
            }
            ResolvedPath::There { found, entry } => {
                let found = found.regular(path)?;
                match entry.and_then(|entry| Some((self.stand_in(&entry, &found, new)?, entry))) {
                    Some((part, entry)) => self.put_part(part, entry, source),
                    None => {
                        if found.attributes.size > 0 {
                            self.truncate(&found.file, 0)?;
                        }
                        self.write(&found.file, source)
                    }
                }
            }
        }
    }

    /// Creates a file that can replace another, if there can be one.
    fn stand_in(&mut self, entry: &DirEntry, old: &Found, new: New) -> Option<Part> {
        let Attributes { mode, uid, gid, links: 1, .. } = old.attributes else { return None };
        let mode = mode & PERMISSIONS;
        let part = self.create_part(entry, New { mode, ..new }).ok()?;
        let made = part.found.attributes;
        // The server need not make a file that belongs to the old one's owner, nor with the bits that were asked for: a caller
        // may be allowed to create files in a directory where others' files lie.
        let is_alike =
            |made: Attributes| (made.mode & PERMISSIONS, made.uid, made.gid) == (mode, uid, gid);
        let is_like_it = is_alike(made)
            || ((made.uid, made.gid) == (uid, gid)
                && self.set_mode(&part.found.file, mode).is_ok()
                && self.attributes(&part.found.file).is_ok_and(is_alike));
        if is_like_it {
            return Some(part);
        }
        self.drop_part(&part);
        None
    }

    /// Writes a file that is to have the name of `entry`, and gives it that.
    fn put_part(
        &mut self,
        part: Part,
        entry: DirEntry,
        source: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, Error> {
        let written = self.write(&part.found.file, source).and_then(|length| {
            self.rename(&part.entry, &entry)?;
            Ok(length)
        });
        if written.is_err() {
            self.drop_part(&part);
        }
        written
    }

    /// Creates a file beside the name of `entry`.
    fn create_part(&mut self, entry: &DirEntry, new: New) -> Result<Part, Error> {
        let attributes = SetAttributes { mode: Some(new.mode), ..SetAttributes::default() };
        let stem = entry.name.get(..STEM_MAX).unwrap_or(&entry.name);
        let mut tried = 0;
        loop {
            // A process that was killed may have had the same number, and left its file.
            let number = new.number + tried * NUMBERS_APART;
            let name = [stem, format!(".{number}.part").as_bytes()].concat();
            match self.create_as(&entry.dir, &name, How::Guarded(attributes)) {
                Err(Error::Refused(Status::Exist)) if tried < TRIES_MAX => tried += 1,
                made => {
                    return Ok(Part { found: made?, entry: DirEntry { dir: entry.dir, name } });
                }
            }
        }
    }

    /// Removes a file that is not wanted any more.
    fn drop_part(&mut self, part: &Part) {
        // What failed before is told. If this fails, too, the file stays.
        let _ = self.ask(&Arguments::Remove(part.entry.as_arguments()));
    }

    fn rename(&mut self, from: &DirEntry, to: &DirEntry) -> Result<(), Error> {
        let arguments = Rename { from: from.as_arguments(), to: to.as_arguments() };
        match self.ask(&Arguments::Rename(arguments))?.results(Procedure::Rename)? {
            Results::Rename(Ok(_)) => Ok(()),
            other => Err(Error::of(&other)),
        }
    }

    fn set_mode(&mut self, file: &File, mode: u32) -> Result<(), Error> {
        self.set(file, SetAttributes { mode: Some(mode), ..SetAttributes::default() })
    }
}

/// A file that is not complete, and the name that it has so long.
struct Part {
    found: Found,
    entry: DirEntry,
}

impl DirEntry {
    fn as_arguments(&self) -> DirName<'_> {
        DirName { dir: self.dir.handle(), name: Name(&self.name) }
    }
}

impl Found {
    /// Checks that it is a regular file. `path` led to it.
    ///
    /// # Errors
    /// It is none.
    pub fn regular(self, path: &[u8]) -> Result<Self, Error> {
        match self.attributes.kind {
            FileType::Regular => Ok(self),
            FileType::Directory => Err(Error::File(path.to_vec(), Status::IsDir)),
            _ => Err(Error::File(path.to_vec(), Status::Inval)),
        }
    }
}

/// Octets of the source that are read before anything is changed.
const AHEAD: usize = 64 << 10;

/// The bits of a mode that say who may do what.
const PERMISSIONS: u32 = 0o7777;

/// Maximum length of the part of the name that the new file has at first, in octets: with the rest, servers allow 255.
const STEM_MAX: usize = 200;

/// Times that another name is tried.
const TRIES_MAX: u64 = 100;

/// A number above all process IDs of Linux.
const NUMBERS_APART: u64 = 1 << 22;
