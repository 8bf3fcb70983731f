//! Names in a directory, found by name and listed in the order in which they came.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::backend::COOKIE_MIN;

/// The names in a directory, and which file has each.
///
/// A name's cookie is its number in the order of arrival, never used again. So a listing that goes on
/// behind a cookie misses nothing that was there all the time and shows nothing twice, whatever
/// changed meanwhile.
#[derive(Debug)]
pub(super) struct Directory {
    by_name: BTreeMap<Rc<[u8]>, Named>,
    by_cookie: BTreeMap<u64, Rc<[u8]>>,
    next_cookie: u64,
    /// The number of the directory it is in; its own if it is the top.
    pub(super) parent: u64,
}

/// What has a name.
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

    /// Removes a name. Returns the number of the file that had it.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let named = self.by_name.remove(name)?;
        self.by_cookie.remove(&named.cookie);
        Some(named.inode)
    }

    /// Returns the number of the file that has a name.
    pub(super) fn find(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|named| named.inode)
    }

    /// Returns names behind a place: cookie, name, the number of the file.
    pub(super) fn behind(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        let behind = cookie.checked_add(1).map(|first| self.by_cookie.range(first..));
        behind.into_iter().flatten().filter_map(|(cookie, name)| {
            self.by_name.get(name).map(|named| (*cookie, &**name, named.inode))
        })
    }

    /// Returns how many names there are.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}
