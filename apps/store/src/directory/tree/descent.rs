//! The descent to a file along the names where it was last seen, from an open directory.

use std::rc::Rc;

use super::super::known::Seen;
use super::super::node::Node;
use super::{ByName, Tree};
use crate::handle::FileId;

/// The rest of a descent.
#[derive(Debug)]
pub(super) struct Descent {
    /// The file at the end of the descent.
    pub(super) file: FileId,
    at: Rc<Node>,
    /// The steps left, the last one first: the file that each name led to, and the name.
    steps: Vec<(FileId, Box<[u8]>)>,
}

/// The result of a descent.
#[derive(Debug)]
pub(super) enum Reached {
    /// The file.
    File(Rc<Node>),
    /// A directory above the file; the rest of the descent is left.
    Partway(Descent),
    /// A name that no longer leads to the same file.
    Nothing,
}

impl Tree {
    /// Returns the descent to a file from the nearest directory above it that is open, or can be opened by its file
    /// system's handle. Returns `None` if it is not known where the file was seen.
    pub(super) fn way_to(&mut self, file: FileId) -> Option<Descent> {
        let mut steps = Vec::new();
        let mut at = file;
        loop {
            if at == self.root.id {
                return Some(Descent { file, at: Rc::clone(&self.root), steps });
            }
            if at != file
                && let Some(node) = self.open.get(at)
            {
                return Some(Descent { file, at: node, steps });
            }
            if at != file
                && steps.len() <= BY_NAME_MAX
                && let ByName::Found(node, _) = self.by_name(at)
            {
                return Some(Descent { file, at: self.open.keep(node), steps });
            }
            if steps.len() == DEPTH_MAX {
                return None;
            }
            let Seen { dir, name, .. } = self.known.find(at)?;
            steps.push((at, name.into()));
            at = dir;
        }
    }

    /// Descends at most [`LEVELS_MAX`] levels.
    pub(super) fn go_down(&mut self, mut descent: Descent) -> Reached {
        for _ in 0..LEVELS_MAX {
            let Some((wanted, name)) = descent.steps.pop() else { break };
            match descent.at.child(&name) {
                Ok((found, _)) if found.id == wanted => {
                    descent.at = self.keep(found, descent.at.id, &name);
                }
                _ => return Reached::Nothing,
            }
        }
        if !descent.steps.is_empty() {
            return Reached::Partway(descent);
        }
        if descent.at.id == descent.file { Reached::File(descent.at) } else { Reached::Nothing }
    }
}

/// Maximum depth of a descent, in directories.
const DEPTH_MAX: usize = 1024;
/// Maximum number of levels descended at once.
pub(super) const LEVELS_MAX: usize = 16;
/// Maximum number of directories above a file that are tried by their file system's handles. A directory that cannot be
/// opened was moved out of the tree or removed, and those above it rarely were.
const BY_NAME_MAX: usize = 8;
