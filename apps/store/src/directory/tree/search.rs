//! Looking for a file by its number alone.

use std::collections::VecDeque;
use std::rc::Rc;

use super::super::listing::Names;
use super::super::node::Node;
use super::Tree;
use crate::handle::FileId;

impl Tree {
    /// Looks for a file through a bounded number of names: first in the directory where it was seen
    /// last, then in all, those nearest the top first.
    pub(super) fn search(&mut self, id: FileId) -> Option<Rc<Node>> {
        let mut left = NAMES_MAX;
        let last = self.known.find(id).map(|seen| seen.dir).and_then(|dir| self.open.get(dir));
        let mut pending: VecDeque<_> = last.into_iter().chain([Rc::clone(&self.root)]).collect();
        let mut first = pending.len() > 1;
        while let Some(dir) = pending.pop_front() {
            let Ok(mut names) = Names::open(&dir, 0) else { continue };
            while let Some(Ok(name)) = names.next() {
                if left == 0 {
                    return None;
                }
                left -= 1;
                let here = name.inode == id.inode;
                let below = name.may_be_directory && !first;
                if !here && !below {
                    continue;
                }
                let Ok((node, look)) = dir.child(name.name) else { continue };
                if node.id == id {
                    return Some(self.keep(node, dir.id, name.name));
                }
                if look.is_directory() && below && pending.len() < PENDING_MAX {
                    pending.push_back(Rc::new(node));
                }
            }
            first = false;
        }
        None
    }
}

/// Names looked at before a file is given up: a fraction of a second.
const NAMES_MAX: usize = 100_000;
/// Directories yet to be looked through, all of them open.
const PENDING_MAX: usize = 256;
