//! The files whose descriptors are kept, a bounded number of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::node::Node;
use crate::handle::FileId;

/// The files looked for last.
#[derive(Debug)]
pub(super) struct Open {
    nodes: BTreeMap<FileId, (u64, Rc<Node>)>,
    by_use: BTreeMap<u64, FileId>,
    uses: u64,
    nodes_max: usize,
}

impl Open {
    pub(super) fn new(nodes_max: usize) -> Self {
        let nodes_max = nodes_max.max(1);
        Self { nodes: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, nodes_max }
    }

    /// Returns a file that is kept.
    pub(super) fn get(&mut self, id: FileId) -> Option<Rc<Node>> {
        let (used, node) = self.nodes.get_mut(&id)?;
        // One file looked for over and over moves nothing.
        if *used == self.uses {
            return Some(Rc::clone(node));
        }
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, id);
        Some(Rc::clone(node))
    }

    /// Returns whether a file is kept.
    pub(super) fn contains(&self, id: FileId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Keeps a file, instead of the one not looked for longest if there are too many. One that is kept
    /// already stays: it may be open for more than its permission bits allow by now. For the same reason
    /// a few of those are passed by.
    pub(super) fn keep(&mut self, node: Node) -> Rc<Node> {
        if let Some(kept) = self.get(node.id) {
            return kept;
        }
        if self.nodes.len() >= self.nodes_max
            && let Some(oldest) = self.dispensable()
        {
            self.forget(oldest);
        }
        self.uses += 1;
        let node = Rc::new(node);
        self.by_use.insert(self.uses, node.id);
        self.nodes.insert(node.id, (self.uses, Rc::clone(&node)));
        node
    }

    /// Returns the file not looked for longest that could be opened again, or the oldest of all if there is
    /// none among those that are looked at.
    fn dispensable(&self) -> Option<FileId> {
        let is_dispensable =
            |id: &&FileId| self.nodes.get(id).is_none_or(|(_, node)| !node.is_irreplaceable());
        let found = self.by_use.values().take(PASSED_MAX).find(is_dispensable);
        found.or_else(|| self.by_use.values().next()).copied()
    }

    /// Forgets a file, which is closed once nobody uses it.
    pub(super) fn forget(&mut self, id: FileId) {
        if let Some((used, _)) = self.nodes.remove(&id) {
            self.by_use.remove(&used);
        }
    }

    /// Forgets all.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.by_use.clear();
    }

    /// Returns how many are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.nodes.len(), self.by_use.len());
        self.nodes.len()
    }
}

/// Files that are passed by to find one to close.
const PASSED_MAX: usize = 64;
