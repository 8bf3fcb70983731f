//! What changes have in common: for whom, at which name, and what they made.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::access::Caller;
use crate::backend::Around;
use crate::directory::jobs::syncing::Sync;
use crate::directory::system::look::look;
use crate::directory::system::place::Fresh;
use crate::directory::system::rights::Rights;
use crate::nfs3::{Attributes, Status};

/// The caller of a change, whose rights it takes.
#[derive(Debug)]
pub(crate) struct By {
    pub(crate) rights: Arc<Rights>,
    pub(crate) caller: Caller,
}

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct At {
    pub(crate) dir: OwnedFd,
    pub(crate) name: Box<[u8]>,
    /// How the change of the directory is brought to stable storage.
    pub(crate) changed: Option<Sync>,
}

/// What is left to do, and to tell, after a change.
#[derive(Debug)]
pub(crate) struct After {
    /// The file, if it is new.
    pub(crate) made: Option<Fresh>,
    /// What is to be brought to stable storage.
    pub(crate) unsettled: Vec<Sync>,
    /// The directory before and after, if other changes of it may be queued.
    pub(crate) around: Option<Around>,
}

/// What became of a change.
pub(crate) type Done = Result<Box<After>, Status>;

impl At {
    /// Reads the attributes of the directory.
    pub(crate) fn look(&self) -> Option<Attributes> {
        look(&self.dir).ok().map(|look| look.attributes)
    }

    /// Returns what a change of one name made, with the directory before it.
    pub(crate) fn changed(
        &self,
        before: Option<Attributes>,
        made: Option<Fresh>,
        unsettled: Vec<Sync>,
    ) -> Box<After> {
        let around = before.and_then(|before| Some(Around { before, after: self.look()? }));
        Box::new(After { made, unsettled, around })
    }
}
