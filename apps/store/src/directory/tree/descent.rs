//! The way down to a file, as it was seen: from a directory that is open, name by name.

use std::rc::Rc;

use super::super::known::Seen;
use super::super::node::Node;
use super::{ByName, Tree};
use crate::handle::FileId;

/// A way down, as far as it is left.
#[derive(Debug)]
pub(super) struct Descent {
    /// The file that it leads to.
    pub(super) file: FileId,
    at: Rc<Node>,
    /// What is to come, the last step first: the file that each name led to, and the name.
    steps: Vec<(FileId, Box<[u8]>)>,
}

/// How far a descent came.
#[derive(Debug)]
pub(super) enum Reached {
    /// The file.
    File(Rc<Node>),
    /// A directory above it: the rest is to be gone.
    Partway(Descent),
    /// A name that leads elsewhere.
    Nothing,
}

impl Tree {
    /// Returns the way down to a file from the nearest directory above it that is open, or can be opened
    /// by what its file system calls it. `None` if it is not known.
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

    /// Goes at most [`LEVELS_MAX`] levels down.
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

/// Directories one in the other on a way down.
const DEPTH_MAX: usize = 1024;
/// Levels gone down at once.
pub(super) const LEVELS_MAX: usize = 16;
/// Directories above a file that are tried by what their file system calls them. One that is not
/// there was moved out of the tree or removed, and those above it rarely went with it.
const BY_NAME_MAX: usize = 8;
