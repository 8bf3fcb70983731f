//! Directory listings, one READDIRPLUS or READDIR at a time.

use std::collections::VecDeque;

use super::{Client, Error, File, Requester};
use crate::nfs3::arguments::{ReadDir, ReadDirPlus};
use crate::nfs3::{Arguments, Attributes, Procedure, Results, Status, Verifier};

/// An iterator over the names of a directory.
#[derive(Debug)]
pub struct Listing {
    dir: File,
    cookie: u64,
    verifier: Verifier,
    /// Whether the server may support READDIRPLUS; false once it refused.
    plus: bool,
    /// Whether the server has no more names.
    eof: bool,
    /// Names of the last Reply that were not returned yet.
    entries: VecDeque<Entry>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// The number of the file that has it.
    pub fileid: u64,
    /// The file and its attributes, unless the server refuses them.
    pub file: Option<(File, Attributes)>,
}

impl Listing {
    /// Creates a listing that starts before the first name.
    pub const fn new(dir: File) -> Self {
        let entries = VecDeque::new();
        Self { dir, cookie: 0, verifier: Verifier(0), plus: true, eof: false, entries }
    }

    /// Returns the next name, or `None` after the last. `.` and `..` are left out.
    ///
    /// # Errors
    /// The server refuses, or its listing makes no progress.
    pub fn next<R: Requester>(&mut self, client: &mut Client<R>) -> Result<Option<Entry>, Error> {
        loop {
            while let Some(entry) = self.entries.pop_front() {
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                if entry.file.is_some() {
                    return Ok(Some(entry));
                }
                match client.look_up(&self.dir, &entry.name) {
                    Ok(found) => {
                        let file = Some((found.file, found.attributes));
                        return Ok(Some(Entry { file, ..entry }));
                    }
                    // The file was removed after it was listed.
                    Err(Error::Refused(Status::NoEnt | Status::Stale)) => {}
                    Err(Error::Refused(_)) => return Ok(Some(entry)),
                    Err(error) => return Err(error),
                }
            }
            if self.eof {
                return Ok(None);
            }
            self.fill(client)?;
        }
    }

    /// Asks for more names.
    fn fill<R: Requester>(&mut self, client: &mut Client<R>) -> Result<(), Error> {
        let before = self.cookie;
        if self.plus {
            match self.with_attributes(client) {
                Err(Error::Refused(Status::NotSupp)) => self.plus = false,
                other => other?,
            }
        }
        if !self.plus {
            self.without(client)?;
        }
        if !self.eof && (self.entries.is_empty() || self.cookie == before) {
            return Err(Error::Nonsense("its directory listing makes no progress"));
        }
        Ok(())
    }

    fn with_attributes<R: Requester>(&mut self, client: &mut Client<R>) -> Result<(), Error> {
        let count = client.limits.readdir_max;
        let Self { dir, cookie, verifier, .. } = *self;
        let dir = dir.handle();
        let arguments = ReadDirPlus { dir, cookie, verifier, count, count_max: count };
        let answer = client.ask(&Arguments::ReadDirPlus(arguments))?;
        let listed = match answer.results(Procedure::ReadDirPlus)? {
            Results::ReadDirPlus(Ok(listed)) => listed,
            other => return Err(Error::of(&other)),
        };
        (self.verifier, self.eof) = (listed.verifier, listed.eof);
        for plus in listed.names.iter() {
            let file = plus.file.map(File::from).zip(plus.attributes);
            self.cookie = plus.entry.cookie;
            let (name, fileid) = (plus.entry.name.0.to_vec(), plus.entry.fileid);
            self.entries.push_back(Entry { name, fileid, file });
        }
        Ok(())
    }

    fn without<R: Requester>(&mut self, client: &mut Client<R>) -> Result<(), Error> {
        let count = client.limits.readdir_max;
        let Self { dir, cookie, verifier, .. } = *self;
        let arguments = ReadDir { dir: dir.handle(), cookie, verifier, count };
        let answer = client.ask(&Arguments::ReadDir(arguments))?;
        let listed = match answer.results(Procedure::ReadDir)? {
            Results::ReadDir(Ok(listed)) => listed,
            other => return Err(Error::of(&other)),
        };
        (self.verifier, self.eof) = (listed.verifier, listed.eof);
        for entry in listed.names.iter() {
            self.cookie = entry.cookie;
            let (name, fileid) = (entry.name.0.to_vec(), entry.fileid);
            self.entries.push_back(Entry { name, fileid, file: None });
        }
        Ok(())
    }
}
