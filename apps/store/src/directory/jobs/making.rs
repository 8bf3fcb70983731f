//! Creating files, with their owner and their permission bits from the beginning.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::access::{Caller, SET_GID, SET_UID, STICKY};
use crate::backend::{New, NewKind};
use crate::directory::jobs::change::{At, By, Done};
use crate::directory::jobs::syncing::{Sync, ready};
use crate::directory::system::descriptors::Descriptors;
use crate::directory::system::look::{MODE_MASK, check_end};
use crate::directory::system::place::{Fresh, give, place_of, set_times};
use crate::directory::system::rights::group_of;
use crate::nfs3::{Attributes, FileType, Status};

/// Creates a file under a name that must be free.
#[derive(Debug)]
pub(crate) struct Make {
    pub(crate) by: By,
    pub(crate) at: At,
    pub(crate) descriptors: Arc<Descriptors>,
    /// The directory before the file is created.
    pub(crate) parent: Attributes,
    /// The file, but for the path of a symbolic link.
    pub(crate) new: New<'static>,
    pub(crate) path: Box<[u8]>,
    /// The top of the tree, if the new file is to be on stable storage.
    pub(crate) top: Option<Arc<OwnedFd>>,
    /// The act of another process after a file was created by its name, and before it is opened by it.
    #[cfg(test)]
    pub(crate) between: Between,
}

/// What another process does after a file was created by its name, and before it is opened by it.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Between(pub(crate) Arc<dyn Fn() + Send + std::marker::Sync>);

#[cfg(test)]
impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Between").finish_non_exhaustive()
    }
}

impl Make {
    /// Splits a file to be created into what needs no memory of the Call, and the path of a symbolic link.
    pub(crate) fn apart(new: &New<'_>) -> (New<'static>, Box<[u8]>) {
        let New { mode, uid, gid, size, atime, mtime, .. } = *new;
        let (kind, path) = match new.kind {
            NewKind::Regular => (NewKind::Regular, &[][..]),
            NewKind::Directory => (NewKind::Directory, &[][..]),
            NewKind::Symlink(path) => (NewKind::Symlink(&[]), path),
            NewKind::Special(kind, device) => (NewKind::Special(kind, device), &[][..]),
        };
        (New { kind, mode, uid, gid, size, atime, mtime }, path.into())
    }

    /// Creates the file. Returns it with what is to be brought to stable storage.
    pub(crate) fn run(&self) -> Done {
        let dir_changed = ready(self.at.changed.as_ref())?;
        let before = self.at.look();
        let mut fresh = self.create()?;
        // A new file that cannot be completed is removed again: nobody but this Call knows it.
        let changed = self.complete(&mut fresh).and_then(|()| self.syncing(&fresh));
        let changed = changed.inspect_err(|_| self.undo())?;
        let changed = dir_changed.into_iter().chain(changed).collect();
        Ok(self.at.changed(before, Some(fresh), changed))
    }

    fn asked(&self) -> New<'_> {
        match self.new.kind {
            NewKind::Symlink(_) => New { kind: NewKind::Symlink(&self.path), ..self.new },
            _ => self.new,
        }
    }

    /// Creates the file as its owner, and opens it. One that is no regular file is opened by its name: what is found need
    /// not be what was created.
    fn create(&self) -> Result<Fresh, Status> {
        let (dir, name, new) = (&self.at.dir, &*self.at.name, self.asked());
        let acting = self.by.rights.as_maker(&self.by.caller, &new)?;
        let mode = Mode::from_raw_mode(new.mode & MODE_MASK);
        match new.kind {
            NewKind::Regular => {
                let made = self.descriptors.create(dir, name, mode)?;
                #[cfg(test)]
                {
                    drop(acting);
                    (self.between.0)();
                }
                return Ok(made);
            }
            NewKind::Directory => fs::mkdirat(dir, name, mode)?,
            NewKind::Symlink(path) => fs::symlinkat(path, dir, name)?,
            NewKind::Special(kind, device) => {
                let device = fs::makedev(device.major, device.minor);
                fs::mknodat(dir, name, special(kind)?, mode, device)?;
            }
        }
        drop(acting);
        #[cfg(test)]
        (self.between.0)();
        let found = place_of(dir, name).and_then(|place| Fresh::new(place, None));
        let found = match found {
            // Another process mounted a file system there.
            Err(Errno::XDEV) => return Err(Status::Jukebox),
            found => found.inspect_err(|_| self.undo())?,
        };
        if found.look.attributes.kind != new.kind.file_type() {
            // Another process replaced the file.
            return Err(Status::Jukebox);
        }
        Ok(found)
    }

    /// Sets what the system does not give a new file when it is created. A file that is not exactly as a new one was
    /// replaced by another process, or is on a file system that keeps no owners, or in a directory with a default ACL:
    /// it is left as it is. What is changed is changed as the owner, who may do as much to all that it can be, and to all
    /// that becomes of it meanwhile.
    fn complete(&self, fresh: &mut Fresh) -> Result<(), Status> {
        let (new, By { rights, caller }) = (self.asked(), &self.by);
        let is_regular = matches!(new.kind, NewKind::Regular);
        let is_sole_owner = rights.is_sole_owner();
        let uid = if is_sole_owner { geteuid().as_raw() } else { new.uid };
        let by_name = !is_regular && !is_sole_owner;
        let found = fresh.look.attributes;
        // A file of the superuser that is older than this Call is left as it is, although its owner might change it.
        let is_foreign = by_name && uid == ROOT && !fresh.look.is_born_since(self.parent.ctime);
        if found.uid != uid || is_foreign {
            return Ok(());
        }
        let acting = rights.as_owner(caller, &new)?;
        let (mode, gid) = given(caller, &self.parent, &new);
        if !is_sole_owner && found.gid == gid && gid != new.gid {
            give(&fresh.place, None, Some(new.gid))?;
        }
        if let (Some(size), Some(writing)) = (new.size, &fresh.writing) {
            check_end(size, 0)?;
            fs::ftruncate(writing, size)?;
        }
        // To set the size, or the group, takes SUID and SGID from a file.
        let is_taken = new.size.is_some() && new.mode & (SET_UID | SET_GID) != 0;
        if found.mode == mode && (mode != new.mode || gid != new.gid || is_taken) {
            self.descriptors.chmod(&fresh.place, new.mode)?;
            fresh.look.attributes.mode = new.mode;
        }
        set_times(&fresh.place, new.atime, new.mtime)?;
        drop(acting);
        Ok(())
    }

    /// Returns by what the file is brought to stable storage, if it is to be.
    fn syncing(&self, fresh: &Fresh) -> Result<Option<Sync>, Status> {
        let Some(top) = &self.top else { return Ok(None) };
        Ok(match (self.new.kind, &fresh.writing) {
            (NewKind::Regular, Some(writing)) => {
                Some(Sync::File(fresh.look.id, Arc::clone(writing)))
            }
            (NewKind::Directory, _) => match self.descriptors.open_directory(&fresh.place) {
                Err(Errno::ACCESS) => {
                    let top = self.descriptors.open_directory(top)?;
                    Some(Sync::FileSystem(Arc::new(top)))
                }
                opened => Some(Sync::File(fresh.look.id, Arc::new(opened?))),
            },
            _ => None,
        })
    }

    /// Removes the name of a file that could not be completed, as far as its owner may.
    fn undo(&self) {
        let new = self.asked();
        let is_dir = matches!(new.kind, NewKind::Directory);
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        if let Ok(_acting) = self.by.rights.as_owner(&self.by.caller, &new) {
            let _ = fs::unlinkat(&self.at.dir, &*self.at.name, flags);
        }
    }
}

/// Returns the permission bits and the group that the system gives a new file.
fn given(caller: &Caller, parent: &Attributes, new: &New<'_>) -> (u32, u32) {
    let inherits = parent.mode & SET_GID != 0;
    let gid = if inherits { parent.gid } else { group_of(caller, new) };
    let mode = match new.kind {
        NewKind::Directory => {
            new.mode & (PERMISSIONS | STICKY) | if inherits { SET_GID } else { 0 }
        }
        NewKind::Regular | NewKind::Symlink(_) | NewKind::Special(..) => new.mode,
    };
    (mode, gid)
}

fn special(kind: FileType) -> Result<fs::FileType, Status> {
    match kind {
        FileType::Block => Ok(fs::FileType::BlockDevice),
        FileType::Character => Ok(fs::FileType::CharacterDevice),
        FileType::Socket => Ok(fs::FileType::Socket),
        FileType::Fifo => Ok(fs::FileType::Fifo),
        FileType::Regular | FileType::Directory | FileType::Symlink => Err(Status::BadType),
    }
}

/// The user that no permission bits stop.
const ROOT: u32 = 0;
/// The bits of permissions alone.
const PERMISSIONS: u32 = 0o777;
