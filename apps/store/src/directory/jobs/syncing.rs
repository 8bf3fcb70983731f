//! Bringing changes to stable storage.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs;
use rustix::io::Errno;

use crate::directory::system::descriptors::Descriptors;
use crate::handle::FileId;

/// What is brought to stable storage after a change.
#[derive(Clone, Debug)]
pub(crate) enum Sync {
    /// A file, or a directory, alone.
    File(FileId, Arc<OwnedFd>),
    /// The file system with this file.
    FileSystem(Arc<OwnedFd>),
    /// A file that its permission bits keep the core from opening.
    Shut(Shut),
}

/// A file, or a directory, that is opened before its change.
#[derive(Clone, Debug)]
pub(crate) struct Shut {
    pub(crate) id: FileId,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) place: Arc<OwnedFd>,
    pub(crate) is_directory: bool,
    /// The top of the tree, by which the file system is opened if the file is not our own user's.
    pub(crate) top: Arc<OwnedFd>,
}

/// What a sync brings to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A file, or a directory.
    File(FileId),
    /// The file system.
    FileSystem,
}

impl Sync {
    /// Brings changes to stable storage, with all data of the file.
    pub(crate) fn run(&self) -> Result<(), Errno> {
        match self {
            Self::File(_, file) => fs::fsync(file),
            Self::FileSystem(file) => fs::syncfs(file),
            // The file was never opened for syncing: see `ready`.
            Self::Shut(_) => Err(Errno::ACCESS),
        }
    }

    /// Returns what is brought to stable storage.
    pub(crate) const fn target(&self) -> Target {
        match self {
            Self::File(file, _) => Target::File(*file),
            Self::Shut(shut) => Target::File(shut.id),
            Self::FileSystem(_) => Target::FileSystem,
        }
    }
}

/// Opens what is brought to stable storage after a change: a client that is told to try again for want of descriptors must
/// not find its change done.
pub(crate) fn ready(changed: Option<&Sync>) -> Result<Option<Sync>, Errno> {
    let Some(Sync::Shut(Shut { id, descriptors, place, is_directory, top })) = changed else {
        return Ok(changed.cloned());
    };
    let opened = if *is_directory {
        descriptors.open_directory(place)
    } else {
        descriptors.open_file(place)
    };
    Ok(Some(match opened {
        Err(Errno::ACCESS) => Sync::FileSystem(Arc::new(descriptors.open_directory(top)?)),
        opened => Sync::File(*id, Arc::new(opened?)),
    }))
}
