//! Path resolution, one component after the other.
//!
//! A path begins at the top of the export and never leaves it. The client resolves `..` itself, from the components it
//! passed; at the top, `..` is the top. An absolute path in a symbolic link begins at the top, too.

use std::collections::VecDeque;

use haulage_proto::chunk::Item;

use super::requester::ask;
use super::{Client, DirEntry, Error, File, Found, Items, Requester};
use crate::nfs3::results::Target;
use crate::nfs3::{Arguments, FileType, PATH_MAX, Procedure, Results, Status};

/// The result of resolving a path.
#[derive(Debug)]
pub enum ResolvedPath {
    /// An existing file.
    There {
        /// The file.
        found: Found,
        /// The directory that it was found in, and its name there; `None` for the top of the export.
        entry: Option<DirEntry>,
    },
    /// A free name in an existing directory.
    Free(DirEntry),
}

/// The handling of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Follow the link.
    Follow,
    /// Return the link itself.
    Keep,
}

impl<R: Requester> Client<R> {
    /// Resolves a path to a file, or to a free name in a directory.
    ///
    /// # Errors
    /// A component cannot be looked up; the error names it.
    pub fn find(&mut self, path: &[u8], last: Last) -> Result<ResolvedPath, Error> {
        let file = self.root;
        let attributes = self.attributes(&file).map_err(|error| error.at(b"/"))?;
        let mut way = Way { passed: vec![], ahead: VecDeque::new() };
        way.prepend(path);
        let top = Found { file, attributes };
        let mut links = 0;
        while let Some(name) = way.ahead.pop_front() {
            let here = way.passed.last().map_or(top, |(_, found)| *found);
            if here.attributes.kind != FileType::Directory {
                return Err(Error::File(way.path(None), Status::NotDir));
            }
            match name.as_slice() {
                b"." => continue,
                b".." => {
                    way.passed.pop();
                    continue;
                }
                _ if name.len() > NAME_MAX => {
                    return Err(Error::File(way.path(Some(&name)), Status::NameTooLong));
                }
                _ => {}
            }
            let found = match self.look_up(&here.file, &name) {
                Err(Error::Refused(Status::NoEnt)) if way.ahead.is_empty() => {
                    return Ok(ResolvedPath::Free(DirEntry { dir: here.file, name }));
                }
                found => found.map_err(|error| error.at(&way.path(Some(&name))))?,
            };
            let follow = last == Last::Follow || !way.ahead.is_empty();
            if found.attributes.kind != FileType::Symlink || !follow {
                way.passed.push((name, found));
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Links(path.to_vec()));
            }
            let target = self.read_link(&found.file);
            let target = target.map_err(|error| error.at(&way.path(Some(&name))))?;
            if target.is_empty() {
                return Err(Error::File(way.path(Some(&name)), Status::NoEnt));
            }
            way.prepend(&target);
        }
        Ok(match way.passed.pop() {
            None => ResolvedPath::There { found: top, entry: None },
            Some((name, found)) => {
                let dir = way.passed.last().map_or(top, |(_, found)| *found).file;
                ResolvedPath::There { found, entry: Some(DirEntry { dir, name }) }
            }
        })
    }

    /// Resolves a path to an existing file.
    ///
    /// # Errors
    /// The file does not exist, or a component cannot be looked up.
    pub fn find_file(&mut self, path: &[u8], last: Last) -> Result<Found, Error> {
        match self.find(path, last)? {
            ResolvedPath::There { found, .. } => Ok(found),
            ResolvedPath::Free(_) => Err(Error::File(path.to_vec(), Status::NoEnt)),
        }
    }

    /// Returns the path in a symbolic link.
    ///
    /// # Errors
    /// The server refuses, for example since `link` is no symbolic link.
    pub fn read_link(&mut self, link: &File) -> Result<Vec<u8>, Error> {
        let room = self.requester.lease(PATH_MAX)?;
        let mut room = Some(room);
        let items = || Items { argument: None, result: room.take() };
        let answer = ask(&mut self.requester, &Arguments::ReadLink(link.handle()), items)?;
        let target = match answer.results(Procedure::ReadLink)? {
            Results::ReadLink(Ok(Target { path, .. })) => path,
            other => return Err(Error::of(&other)),
        };
        match target.0 {
            Item::Unreduced(octets) => Ok(octets.to_vec()),
            Item::Reduced { length } => {
                let octets = answer.items.result.as_ref().map(|lease| lease.bytes());
                let octets = octets.unwrap_or_default();
                let octets = usize::try_from(length).ok().and_then(|length| octets.get(..length));
                octets.map(<[u8]>::to_vec).ok_or(Error::Nonsense("a path is shorter than it says"))
            }
        }
    }
}

/// A path that is being resolved.
#[derive(Debug)]
struct Way {
    /// The components passed, from below the top. Only the last may be a symbolic link.
    passed: Vec<(Vec<u8>, Found)>,
    /// The components still to be looked up.
    ahead: VecDeque<Vec<u8>>,
}

impl Way {
    /// Inserts the components of `path` before those ahead; returns to the top if `path` begins with a slash.
    fn prepend(&mut self, path: &[u8]) {
        if path.starts_with(b"/") {
            self.passed.clear();
        }
        // A trailing slash asks for a directory, as a dot does.
        let end = path.ends_with(b"/").then_some(&b"."[..]);
        let components = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
        let components: Vec<_> = components.chain(end).map(<[u8]>::to_vec).collect();
        for component in components.into_iter().rev() {
            self.ahead.push_front(component);
        }
    }

    /// Returns the path of the current place, with `name` appended if there is one.
    fn path(&self, name: Option<&[u8]>) -> Vec<u8> {
        let passed = self.passed.iter().map(|(name, _)| name.as_slice());
        passed.chain(name).flat_map(|name| [b"/", name].concat()).collect()
    }
}

/// Maximum number of symbolic links in one path: as many as Linux follows.
const LINKS_MAX: u32 = 40;

/// Maximum length of a name, in octets: the Linux server does not parse a longer one.
const NAME_MAX: usize = 255;
