//! Finding files by path, one component after the other.
//!
//! A path begins at the top of what is mounted, and never leaves it: `..` leads back the way that was
//! come, at the top nowhere, and is not the server's to look up; the path in a symbolic link that
//! begins with a slash begins at the top, too.

use std::collections::VecDeque;

use haulage_proto::chunk::Item;

use super::{Client, Error, File, Items, Requester, ask};
use crate::nfs3::results::Target;
use crate::nfs3::{Arguments, Attributes, FileType, PATH_MAX, Procedure, Results, Status};

/// Where a path leads.
#[derive(Debug)]
pub enum Place {
    /// To a file.
    There(Found),
    /// To a name that is free, in a directory.
    Free {
        /// The directory.
        dir: File,
        /// The name.
        name: Vec<u8>,
    },
}

/// A file, and what was known of it when it was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The file.
    pub file: File,
    /// What was known.
    pub attributes: Attributes,
}

/// What to do with a path that ends at a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Go where it leads.
    Follow,
    /// It is what was looked for.
    Keep,
}

impl<R: Requester> Client<R> {
    /// Finds where a path leads.
    ///
    /// # Errors
    /// It leads nowhere: the error names the component at which it ends.
    pub fn find(&mut self, path: &[u8], last: Last) -> Result<Place, Error> {
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
                    return Ok(Place::Free { dir: here.file, name });
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
        Ok(Place::There(way.passed.pop().map_or(top, |(_, found)| found)))
    }

    /// Finds the file to which a path leads.
    ///
    /// # Errors
    /// There is none.
    pub fn find_file(&mut self, path: &[u8], last: Last) -> Result<Found, Error> {
        match self.find(path, last)? {
            Place::There(found) => Ok(found),
            Place::Free { .. } => Err(Error::File(path.to_vec(), Status::NoEnt)),
        }
    }

    /// Returns what a symbolic link holds.
    ///
    /// # Errors
    /// It is none, among others.
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
            Item::Inline(octets) => Ok(octets.to_vec()),
            Item::Reduced { length } => {
                let octets = answer.items.result.as_ref().map(|lease| lease.bytes());
                let octets = octets.unwrap_or_default();
                let octets = usize::try_from(length).ok().and_then(|length| octets.get(..length));
                octets.map(<[u8]>::to_vec).ok_or(Error::Nonsense("a path is shorter than it says"))
            }
        }
    }
}

/// How far a path has been followed.
#[derive(Debug)]
struct Way {
    /// The components passed, below the top, none of which is a symbolic link but perhaps the last.
    passed: Vec<(Vec<u8>, Found)>,
    /// Those ahead.
    ahead: VecDeque<Vec<u8>>,
}

impl Way {
    /// Goes along `path` before all else; from the top, if it begins with a slash.
    fn prepend(&mut self, path: &[u8]) {
        if path.starts_with(b"/") {
            self.passed.clear();
        }
        // What ends with a slash is a directory, which is what a dot says.
        let end = path.ends_with(b"/").then_some(&b"."[..]);
        let components = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
        let components: Vec<_> = components.chain(end).map(<[u8]>::to_vec).collect();
        for component in components.into_iter().rev() {
            self.ahead.push_front(component);
        }
    }

    /// Returns the path of a name at the place come to, or of that place itself.
    fn path(&self, name: Option<&[u8]>) -> Vec<u8> {
        let passed = self.passed.iter().map(|(name, _)| name.as_slice());
        passed.chain(name).flat_map(|name| [b"/", name].concat()).collect()
    }
}

/// Symbolic links on one path: as many as Linux follows.
const LINKS_MAX: u32 = 40;

/// Octets of the longest name that there can be: Linux's server does not even parse a longer one.
const NAME_MAX: usize = 255;
