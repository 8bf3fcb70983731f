//! Looking for a file by its number alone.

use std::collections::VecDeque;
use std::rc::Rc;

use super::super::listing::Names;
use super::super::node::Node;
use super::Tree;
use crate::handle::FileId;

/// Why a file was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is not in the tree.
    Gone,
    /// There are too many names to tell.
    TooMany,
    /// It was there a moment ago: it is being renamed.
    Moving,
}

impl Tree {
    /// Looks for a file through a bounded number of names: first in the directory where it was seen
    /// last, then in all, those nearest the top first.
    pub(super) fn search(&mut self, id: FileId) -> Result<Rc<Node>, Missing> {
        let mut missing = Missing::Gone;
        let mut left = self.search_max;
        let last = self.known.find(id).map(|seen| seen.dir).and_then(|dir| self.open.get(dir));
        let mut pending: VecDeque<_> = last.into_iter().chain([Rc::clone(&self.root)]).collect();
        let mut first = pending.len() > 1;
        while let Some(dir) = pending.pop_front() {
            let Ok(mut names) = Names::open(&dir, 0) else { continue };
            while let Some(Ok(name)) = names.next() {
                if left == 0 {
                    return Err(Missing::TooMany);
                }
                left -= 1;
                let here = name.inode == id.inode;
                let below = name.may_be_directory && !first;
                if !here && !below {
                    continue;
                }
                let found = dir.child(name.name);
                if here && !found.as_ref().is_ok_and(|(node, _)| node.id.inode == id.inode) {
                    missing = Missing::Moving;
                }
                let Ok((node, look)) = found else { continue };
                if node.id == id {
                    return Ok(self.keep(node, dir.id, name.name));
                }
                if look.is_directory() && below && pending.len() >= PENDING_MAX {
                    missing = Missing::TooMany;
                } else if look.is_directory() && below {
                    pending.push_back(Rc::new(node));
                }
            }
            first = false;
        }
        Err(missing)
    }
}

/// Directories yet to be looked through, all of them open.
const PENDING_MAX: usize = 256;
