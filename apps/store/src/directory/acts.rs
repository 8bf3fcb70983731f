//! Changes of files and names: what a helper does, with all that it needs.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use super::lists::{Batch, List};
use super::making::Make;
use super::system::descriptors::Descriptors;
use super::system::look::look;
use super::system::place::{Fresh, give, place_of, set_times};
use super::system::rights::Rights;
use crate::access::{Caller, SET_GID, SET_UID};
use crate::backend::{Around, Setting};
use crate::handle::FileId;
use crate::nfs3::{Attributes, SetTime, Status};

/// A change.
#[derive(Debug)]
pub(super) enum Act {
    Set(Set),
    Make(Make),
    LookUp(LookUp),
    Open(Open),
    List(List),
    Unlink(Unlink),
    Link(Link),
    Rename(Rename),
}

/// Sets attributes of a file.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) by: By,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) place: OwnedFd,
    pub(super) setting: Setting,
    pub(super) changed: Option<Sync>,
}

/// The caller of a change, whose rights it takes.
#[derive(Debug)]
pub(super) struct By {
    pub(super) rights: Arc<Rights>,
    pub(super) caller: Caller,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct At {
    pub(super) dir: OwnedFd,
    pub(super) name: Box<[u8]>,
    /// How the change of the directory is brought to stable storage.
    pub(super) changed: Option<Sync>,
}

/// Opens the file with a name in a directory, which changes nothing.
#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) dir: OwnedFd,
    pub(super) name: Box<[u8]>,
}

/// Looks up names, so that the system knows of each whether there is a file.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) dir: OwnedFd,
    pub(super) names: Vec<Box<[u8]>>,
}

/// Opens a file by its file system's handle, which changes nothing. It waits until the system has given back the room of a
/// file that was just removed.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) mount: Arc<OwnedFd>,
    pub(super) called: FileName,
}

/// Removes a name, of a directory if the flags say so.
#[derive(Debug)]
pub(super) struct Unlink {
    pub(super) by: By,
    pub(super) at: At,
    pub(super) flags: AtFlags,
}

/// Gives an open file one more name.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) by: By,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) place: OwnedFd,
    pub(super) at: At,
    pub(super) changed: Option<Sync>,
}

/// Renames a file.
#[derive(Debug)]
pub(super) struct Rename {
    pub(super) by: By,
    pub(super) from: At,
    pub(super) to: At,
}

/// What is brought to stable storage after a change.
#[derive(Clone, Debug)]
pub(super) enum Sync {
    /// A file, or a directory, alone.
    File(FileId, Arc<OwnedFd>),
    /// The file system with this file.
    FileSystem(Arc<OwnedFd>),
    /// A file that its permission bits keep the core from opening.
    Shut(Shut),
}

/// A file, or a directory, that is opened before its change.
#[derive(Clone, Debug)]
pub(super) struct Shut {
    pub(super) id: FileId,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) place: Arc<OwnedFd>,
    pub(super) is_directory: bool,
    /// The top of the tree, by which the file system is opened if the file is not our own user's.
    pub(super) top: Arc<OwnedFd>,
}

/// The reason why a change did not become what the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// The change was refused.
    Refused(Status),
    /// The system does not open the name, or the handle.
    Absent(Errno),
}

/// What a change made, or what was found.
#[derive(Debug)]
pub(super) enum Made {
    /// A change.
    Change(Box<After>),
    /// A file that was there.
    File(Box<Fresh>),
    /// Names of a directory.
    Names(Batch),
}

/// What is left to do, and to tell, after a change.
#[derive(Debug)]
pub(super) struct After {
    /// The file, if it is new.
    pub(super) made: Option<Fresh>,
    /// What is to be brought to stable storage.
    pub(super) unsettled: Vec<Sync>,
    /// The directory before and after, if other changes of it may be queued.
    pub(super) around: Option<Around>,
}

/// What became of a change.
pub(super) type Done = Result<Made, Undone>;

impl Act {
    /// Makes the change, which is not on stable storage yet.
    pub(super) fn run(&self) -> Done {
        let changed = match self {
            Self::Make(act) => return act.run(),
            Self::LookUp(act) => return act.run().map(Box::new).map(Made::File),
            Self::Open(act) => return act.run().map(Box::new).map(Made::File),
            Self::List(act) => return act.run().map(Made::Names).map_err(Undone::Absent),
            Self::Unlink(act) => return act.run(),
            Self::Set(act) => act.run(),
            Self::Link(act) => act.run(),
            Self::Rename(act) => act.run(),
        };
        let after = |unsettled| After { made: None, unsettled, around: None };
        changed.map(|unsettled| Made::Change(Box::new(after(unsettled))))
    }
}

impl Act {
    /// Returns whether the change may be made once more after it was refused. A part of it may be done, which a guard would
    /// take for the change of somebody else.
    pub(super) const fn may_be_repeated(&self) -> bool {
        !matches!(self, Self::Set(Set { setting: Setting { guard: Some(_), .. }, .. }))
    }
}

impl Set {
    /// Sets the attributes as the caller, so that the system judges each of them when it is set. What the caller may not
    /// set keeps the file's data as they are: they are cut last.
    fn run(&self) -> Result<Vec<Sync>, Undone> {
        let Self { by, descriptors, place, setting: Setting { to, guard }, changed } = self;
        let changed = ready(changed.as_ref())?;
        let writer = to.size.map(|_| self.writer()).transpose()?;
        let acting = by.rights.as_caller(&by.caller)?;
        if let Some(ctime) = guard
            && look(place)?.attributes.ctime != *ctime
        {
            return Err(Status::NotSync.into());
        }
        give(place, to.uid, to.gid)?;
        let set_mode = || to.mode.map_or(Ok(()), |mode| descriptors.chmod(place, mode));
        set_mode()?;
        // To cut a file sets its time of modification to now.
        let is_cut = writer.is_some();
        let mtime = if is_cut && to.mtime == SetTime::ToServer { SetTime::Keep } else { to.mtime };
        set_times(place, to.atime, mtime)?;
        if let (Some(writer), Some(size)) = (writer, to.size) {
            fs::ftruncate(writer, size)?;
            // That has changed the time, and taken SUID and SGID from the file.
            if to.mode.is_some_and(|mode| mode & (SET_UID | SET_GID) != 0) {
                set_mode()?;
            }
            set_times(place, SetTime::Keep, mtime)?;
        }
        drop(acting);
        Ok(changed.into_iter().collect())
    }

    /// Opens the file to be cut: as the caller, or for him if he owns it, since he may cut it whatever its permission bits
    /// are. He owns it after it is open, so he could have opened it then.
    fn writer(&self) -> Result<OwnedFd, Errno> {
        let Self { by: By { rights, caller }, descriptors, place, .. } = self;
        let acting = rights.as_caller(caller)?;
        let opened = descriptors.open_as_is(place, OFlags::WRONLY);
        drop(acting);
        let Err(Errno::ACCESS) = opened else { return opened };
        if !caller.owns(&look(place)?.attributes) {
            return opened;
        }
        let opened = descriptors.open(place, OFlags::WRONLY)?;
        let owns = caller.owns(&look(place)?.attributes);
        if owns { Ok(opened) } else { Err(Errno::ACCESS) }
    }
}

impl LookUp {
    fn run(&self) -> Result<Fresh, Undone> {
        let place = place_of(&self.dir, &self.name);
        place.and_then(|place| Fresh::new(place, None)).map_err(Undone::Absent)
    }
}

impl Ahead {
    pub(super) fn run(&self) {
        for name in &self.names {
            drop(place_of(&self.dir, name));
        }
    }
}

impl Open {
    fn run(&self) -> Result<Fresh, Undone> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let place = self.called.open(self.mount.as_fd()).map_err(errno);
        place.and_then(|place| Fresh::new(place, None)).map_err(Undone::Absent)
    }
}

impl Unlink {
    fn run(&self) -> Done {
        let Self { by: By { rights, caller }, at, flags } = self;
        let changed = ready(at.changed.as_ref())?;
        let before = at.look();
        let acting = rights.as_caller(caller)?;
        fs::unlinkat(&at.dir, &*at.name, *flags).map_err(|errno| match errno {
            // Some file systems return EEXIST for a directory that is not empty.
            Errno::EXIST => Status::NotEmpty,
            errno => errno.into(),
        })?;
        drop(acting);
        Ok(at.changed(before, None, changed.into_iter().collect()))
    }
}

impl At {
    /// Reads the attributes of the directory.
    pub(super) fn look(&self) -> Option<Attributes> {
        look(&self.dir).ok().map(|look| look.attributes)
    }

    /// Returns what a change of one name made, with the directory before it.
    pub(super) fn changed(
        &self,
        before: Option<Attributes>,
        made: Option<Fresh>,
        unsettled: Vec<Sync>,
    ) -> Made {
        let around = before.and_then(|before| Some(Around { before, after: self.look()? }));
        Made::Change(Box::new(After { made, unsettled, around }))
    }
}

impl Link {
    fn run(&self) -> Result<Vec<Sync>, Undone> {
        let Self { by: By { rights, caller }, descriptors, place, at, changed } = self;
        let (dir_changed, changed) = (ready(at.changed.as_ref())?, ready(changed.as_ref())?);
        let acting = rights.as_caller(caller)?;
        descriptors.link(place, &at.dir, &at.name)?;
        drop(acting);
        Ok(dir_changed.into_iter().chain(changed).collect())
    }
}

impl Rename {
    fn run(&self) -> Result<Vec<Sync>, Undone> {
        let Self { by: By { rights, caller }, from, to } = self;
        let (from_changed, to_changed) =
            (ready(from.changed.as_ref())?, ready(to.changed.as_ref())?);
        let acting = rights.as_caller(caller)?;
        fs::renameat(&from.dir, &*from.name, &to.dir, &*to.name).map_err(|errno| match errno {
            // These errors are about the target.
            Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY => Status::Exist,
            errno => errno.into(),
        })?;
        drop(acting);
        Ok(from_changed.into_iter().chain(to_changed).collect())
    }
}

impl From<Errno> for Undone {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno.into())
    }
}

impl From<Status> for Undone {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

/// Opens what is brought to stable storage after a change: a client that is told to try again for want of descriptors must
/// not find its change done.
pub(super) fn ready(changed: Option<&Sync>) -> Result<Option<Sync>, Errno> {
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

impl Sync {
    /// Brings changes to stable storage, with all data of the file.
    pub(super) fn run(&self) -> Result<(), Errno> {
        match self {
            Self::File(_, file) => fs::fsync(file),
            Self::FileSystem(file) => fs::syncfs(file),
            // The file was never opened for syncing: see `ready`.
            Self::Shut(_) => Err(Errno::ACCESS),
        }
    }
}
