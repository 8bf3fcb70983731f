//! A bounded cache of open files.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::node::Node;
use crate::handle::FileId;

/// A cache of the most recently used files.
#[derive(Debug)]
pub(super) struct Open {
    nodes: BTreeMap<FileId, (u64, Rc<Node>)>,
    by_use: BTreeMap<u64, FileId>,
    uses: u64,
    nodes_max: usize,
    /// The file that was used last.
    last: Option<Rc<Node>>,
}

impl Open {
    pub(super) fn new(nodes_max: usize) -> Self {
        let nodes_max = nodes_max.max(1);
        Self { nodes: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, nodes_max, last: None }
    }

    /// Returns a cached file, and marks it as used.
    pub(super) fn get(&mut self, id: FileId) -> Option<Rc<Node>> {
        // The file used last is the most recent already.
        if let Some(last) = &self.last
            && last.id == id
        {
            return Some(Rc::clone(last));
        }
        let (used, node) = self.nodes.get_mut(&id)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, id);
        self.last = Some(Rc::clone(node));
        self.last.clone()
    }

    /// Returns a cached file, without marking it as used.
    pub(super) fn peek(&self, id: FileId) -> Option<&Node> {
        self.nodes.get(&id).map(|(_, node)| &**node)
    }

    /// Returns whether a file is cached.
    pub(super) fn contains(&self, id: FileId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Caches a file; evicts the least recently used one if the cache is full. A file that is cached already stays,
    /// since its descriptors may allow more than its permission bits do now. For the same reason eviction skips a few
    /// irreplaceable files.
    pub(super) fn keep(&mut self, node: Node) -> Rc<Node> {
        if let Some(kept) = self.get(node.id) {
            node.close_beside();
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
        self.last = Some(Rc::clone(&node));
        node
    }

    /// Returns the least recently used file that could be opened again. If there is none among the first
    /// [`PASSED_MAX`], returns the least recently used of all.
    fn dispensable(&self) -> Option<FileId> {
        let is_dispensable =
            |id: &&FileId| self.nodes.get(id).is_none_or(|(_, node)| !node.is_irreplaceable());
        let found = self.by_use.values().take(PASSED_MAX).find(is_dispensable);
        found.or_else(|| self.by_use.values().next()).copied()
    }

    /// Removes a file, which closes when its last user drops it.
    pub(super) fn forget(&mut self, id: FileId) {
        self.last.take_if(|last| last.id == id);
        if let Some((used, _)) = self.nodes.remove(&id) {
            self.by_use.remove(&used);
        }
    }

    /// Removes all files.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.by_use.clear();
        self.last = None;
    }

    /// Returns the number of cached files.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.nodes.len(), self.by_use.len());
        self.nodes.len()
    }
}

/// Maximum number of files that eviction examines.
const PASSED_MAX: usize = 64;
