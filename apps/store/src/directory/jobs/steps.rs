//! Opening files by a name, or by their file system's handle, which changes nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use crate::directory::system::place::{Fresh, place_of};

/// A step on the way to a file.
#[derive(Debug)]
pub(crate) enum Step {
    LookUp(LookUp),
    Open(Open),
}

/// What a step led to.
pub(crate) type Stepped = Result<Box<Fresh>, Errno>;

/// Opens the file with a name in a directory, which changes nothing.
#[derive(Debug)]
pub(crate) struct LookUp {
    pub(crate) dir: OwnedFd,
    pub(crate) name: Box<[u8]>,
}

/// Looks up names, so that the system knows of each whether there is a file.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) dir: OwnedFd,
    pub(crate) names: Vec<Box<[u8]>>,
}

/// Opens a file by its file system's handle, which changes nothing. It waits until the system has given back the room of a
/// file that was just removed.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) mount: Arc<OwnedFd>,
    pub(crate) called: FileName,
}

impl Step {
    /// Takes the step.
    pub(crate) fn run(&self) -> Stepped {
        match self {
            Self::LookUp(step) => step.run(),
            Self::Open(step) => step.run(),
        }
    }
}

impl LookUp {
    /// Opens the file.
    pub(crate) fn run(&self) -> Stepped {
        let place = place_of(&self.dir, &self.name);
        place.and_then(|place| Fresh::new(place, None)).map(Box::new)
    }
}

impl Ahead {
    /// Looks up the names.
    pub(crate) fn run(&self) {
        for name in &self.names {
            drop(place_of(&self.dir, name));
        }
    }
}

impl Open {
    fn run(&self) -> Stepped {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let place = self.called.open(self.mount.as_fd()).map_err(errno);
        place.and_then(|place| Fresh::new(place, None)).map(Box::new)
    }
}
