//! A client of NFS version 3 over RDMA: finds files by path, lists, reads and writes them.
//!
//! # Normal operation
//! [`mount`] asks the server for the directory at the top, at the port of NFS or over TCP. A [`Client`] then makes Calls through a
//! [`Requester`]: several READs and WRITEs are in flight at once, all other Calls are made one at a time. The client
//! caches nothing, and its methods block.
//!
//! # Recovery
//! If the server is busy with a file (JUKEBOX), the client repeats the Call after a pause. If the write verifier
//! changes, the client writes again the data that the server may have lost. A lost connection is an error; the client
//! does not reconnect.
//!
//! # Limits
//! The client does not trust the server: an endless listing takes bounded memory, and contradictory results are an
//! error.

pub mod error;
mod file;
pub mod listing;
mod memory;
pub mod mount;
pub mod path;
pub mod put;
mod read;
pub mod requester;
mod write;

use crate::nfs3::arguments::{Create, How, SetAttr};
use crate::nfs3::binding::Limits;
use crate::nfs3::results::FsStat;
use crate::nfs3::{Arguments, Attributes, DirName, Name, Procedure, Results, SetAttributes};

pub use error::Error;
pub use file::{DirEntry, File, Found};
pub use memory::memory_max;
pub use path::{Last, ResolvedPath};
pub use requester::{Answer, Items, Requester};

use requester::ask;

/// A mounted file system.
#[derive(Debug)]
pub struct Client<R> {
    requester: R,
    root: File,
    limits: Limits,
}

impl<R: Requester> Client<R> {
    /// Creates a client for the files below `root`. Each Call moves no more than `most` and the server allow.
    ///
    /// # Errors
    /// FSINFO fails, or its limits allow no transfer.
    pub fn new(mut requester: R, root: File, most: Limits) -> Result<Self, Error> {
        let arguments = Arguments::FsInfo(root.handle());
        let answer = ask(&mut requester, &arguments, Items::default)?;
        let info = match answer.results(Procedure::FsInfo)? {
            Results::FsInfo(Ok(info)) => info,
            other => return Err(Error::of(&other)),
        };
        let limits = Limits {
            read_max: info.read_max.min(most.read_max),
            write_max: info.write_max.min(most.write_max),
            // The caller alone bounds a listing; servers send less.
            readdir_max: most.readdir_max,
        };
        if limits.read_max == 0 || limits.write_max == 0 {
            return Err(Error::Nonsense("its maximum transfer size is zero"));
        }
        Ok(Self { requester, root, limits })
    }

    /// Returns a file's attributes.
    pub fn attributes(&mut self, file: &File) -> Result<Attributes, Error> {
        let answer = self.ask(&Arguments::GetAttr(file.handle()))?;
        match answer.results(Procedure::GetAttr)? {
            Results::GetAttr(Ok(attributes)) => Ok(attributes),
            other => Err(Error::of(&other)),
        }
    }

    /// Returns the total and free space of a file's file system.
    pub fn room(&mut self, file: &File) -> Result<FsStat, Error> {
        let answer = self.ask(&Arguments::FsStat(file.handle()))?;
        match answer.results(Procedure::FsStat)? {
            Results::FsStat(Ok(room)) => Ok(room),
            other => Err(Error::of(&other)),
        }
    }

    /// Returns the regular file of this name; creates it if it does not exist.
    pub fn create(&mut self, dir: &File, name: &[u8], mode: u32) -> Result<Found, Error> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.create_as(dir, name, How::Unchecked(attributes))
    }

    fn create_as(&mut self, dir: &File, name: &[u8], how: How) -> Result<Found, Error> {
        let at = DirName { dir: dir.handle(), name: Name(name) };
        let answer = self.ask(&Arguments::Create(Create { at, how }))?;
        let (file, attributes) = match answer.results(Procedure::Create)? {
            Results::Create(Ok(made)) => (made.file.map(File::from), made.attributes),
            other => return Err(Error::of(&other)),
        };
        match (file, attributes) {
            (Some(file), Some(attributes)) => Ok(Found { file, attributes }),
            (Some(file), None) => Ok(Found { file, attributes: self.attributes(&file)? }),
            (None, _) => self.look_up(dir, name),
        }
    }

    /// Sets the size of a regular file.
    pub fn truncate(&mut self, file: &File, size: u64) -> Result<(), Error> {
        self.set(file, SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    fn set(&mut self, file: &File, to: SetAttributes) -> Result<(), Error> {
        let arguments = Arguments::SetAttr(SetAttr { file: file.handle(), to, guard: None });
        match self.ask(&arguments)?.results(Procedure::SetAttr)? {
            Results::SetAttr(Ok(_)) => Ok(()),
            other => Err(Error::of(&other)),
        }
    }

    /// Returns the requester.
    pub const fn requester(&self) -> &R {
        &self.requester
    }

    /// Returns the limits of one Call.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Ends the client and returns its requester.
    pub fn into_requester(self) -> R {
        self.requester
    }

    fn look_up(&mut self, dir: &File, name: &[u8]) -> Result<Found, Error> {
        let answer =
            self.ask(&Arguments::Lookup(DirName { dir: dir.handle(), name: Name(name) }))?;
        let (file, attributes) = match answer.results(Procedure::Lookup)? {
            Results::Lookup(Ok(found)) => (File::from(found.file), found.attributes),
            other => return Err(Error::of(&other)),
        };
        let attributes = attributes.map_or_else(|| self.attributes(&file), Ok)?;
        Ok(Found { file, attributes })
    }

    fn ask(&mut self, arguments: &Arguments<'_>) -> Result<Answer, Error> {
        ask(&mut self.requester, arguments, Items::default)
    }
}

#[cfg(test)]
mod tests;
