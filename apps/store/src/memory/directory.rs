//! The names of a directory, looked up by name and listed in the order in which they were added.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::backend::COOKIE_MIN;

/// The names of a directory, each with the inode number of its file.
///
/// A name's cookie is a sequence number that is never reused. So a listing that continues after a cookie neither misses
/// a name that existed throughout nor shows one twice, even if the directory changed meanwhile.
#[derive(Debug)]
pub(super) struct Directory {
    by_name: BTreeMap<Rc<[u8]>, Named>,
    by_cookie: BTreeMap<u64, Rc<[u8]>>,
    next_cookie: u64,
    /// The inode number of the parent directory; the top is its own parent.
    pub(super) parent: u64,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    inode: u64,
    cookie: u64,
}

impl Directory {
    pub(super) const fn new(parent: u64) -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: COOKIE_MIN,
            parent,
        }
    }

    /// Adds a name that is free.
    pub(super) fn add(&mut self, name: &[u8], inode: u64) {
        let name: Rc<[u8]> = name.into();
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_cookie.insert(cookie, Rc::clone(&name));
        let taken = self.by_name.insert(name, Named { inode, cookie });
        assert!(taken.is_none(), "the caller found the name to be free");
    }

    /// Removes a name. Returns the inode number of its file.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let named = self.by_name.remove(name)?;
        self.by_cookie.remove(&named.cookie);
        Some(named.inode)
    }

    /// Returns the inode number of the file with a name.
    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|named| named.inode)
    }

    /// Returns the names after a cookie, each as its cookie, name and inode number.
    pub(super) fn behind(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        let behind = cookie.checked_add(1).map(|first| self.by_cookie.range(first..));
        behind.into_iter().flatten().filter_map(|(cookie, name)| {
            self.by_name.get(name).map(|named| (*cookie, &**name, named.inode))
        })
    }

    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether the directory has no names.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}
