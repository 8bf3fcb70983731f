//! What names led to that were looked up.

use std::rc::Rc;

use rustix::io::Errno;

use super::super::closing::PathDescriptor;
use super::super::node::Node;
use super::super::system::look::look;
use crate::handle::FileId;

/// What a name leads to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) dir: FileId,
    pub(crate) name: Box<[u8]>,
    pub(crate) what: What,
}

/// What was found under a name.
#[derive(Debug)]
pub(crate) enum What {
    /// A file that was not used yet.
    Descriptor(PathDescriptor),
    /// A file that is open.
    Kept(Rc<Node>),
    /// No file.
    Failed(Errno),
}

impl What {
    /// Returns the identity of the file, if there is one.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self {
            Self::Descriptor(place) => look(place).ok().map(|look| look.id),
            Self::Kept(node) => Some(node.id),
            Self::Failed(_) => None,
        }
    }
}
