//! A part of a directory that a search goes through: its next names, with the files that they may lead to.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::directory::system::descriptors::Descriptors;
use crate::directory::system::listing::Names;
use crate::directory::system::place::{Fresh, place_of};

/// The next names of a directory, which a helper lists, or the core where there is none.
pub(crate) struct Part {
    pub(crate) descriptors: Arc<Descriptors>,
    /// A place of the directory.
    pub(crate) dir: OwnedFd,
    /// The rest of its names; none before the first, and after the last.
    pub(crate) names: Option<Names>,
    /// The inode numbers of the files that are searched for, in ascending order.
    pub(crate) wanted: Box<[u64]>,
    /// Whether directories in it are opened, too.
    pub(crate) is_deep: bool,
    /// Number of names that may be examined.
    pub(crate) names_left: usize,
    /// What the examination may cost, in names.
    pub(crate) cost_left: usize,
    /// Number of names that were examined.
    pub(crate) looked_at: usize,
    /// The names that may lead to a file that is searched for, or to a directory, with what they led to.
    pub(crate) found: Vec<Child>,
    /// The error that kept the other names from being examined.
    pub(crate) failed: Option<Errno>,
}

/// A name in a directory, with the inode number that the directory has for it.
pub(crate) struct Child {
    pub(crate) inode: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) file: Result<Fresh, Errno>,
}

impl Part {
    /// Examines names, at most as many as allowed.
    pub(crate) fn run(&mut self) {
        let mut names = match self.names.take() {
            Some(names) => names,
            None => {
                self.cost_left = self.cost_left.saturating_sub(OPENING);
                let listing = self.descriptors.listing(&self.dir);
                match listing.and_then(|listing| Names::of(listing, 0, usize::MAX)) {
                    Ok(names) => names,
                    // A directory that is gone, or may not be read, has no names.
                    Err(errno) => return self.failed = Some(errno),
                }
            }
        };
        while self.cost_left > 0 && self.names_left > 0 && self.found.len() < CHILDREN_MAX {
            let named = match names.next() {
                Some(Ok(named)) => named,
                Some(Err(errno)) => return self.failed = Some(errno),
                None => return,
            };
            self.names_left -= 1;
            self.cost_left -= 1;
            self.looked_at += 1;
            let is_wanted = self.wanted.binary_search(&named.inode).is_ok();
            if is_wanted || named.may_be_directory && self.is_deep {
                self.cost_left = self.cost_left.saturating_sub(LOOKING);
                let file = place_of(&self.dir, named.name);
                let file = file.and_then(|place| Fresh::new(place, None));
                self.found.push(Child { inode: named.inode, name: named.name.into(), file });
            }
        }
        self.names = Some(names);
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("looked_at", &self.looked_at).finish_non_exhaustive()
    }
}

/// Maximum number of files that a part opens, each of which takes a descriptor.
const CHILDREN_MAX: usize = 64;
/// The cost of opening a directory, in names.
const OPENING: usize = 8;
/// The cost of opening a name's file, in names, besides the name itself.
const LOOKING: usize = 3;
