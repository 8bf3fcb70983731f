//! Changes of files and names: what a helper does, with all that it needs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use crate::access::{SET_GID, SET_UID};
use crate::backend::Setting;
use crate::directory::jobs::change::{After, At, By, Done};
use crate::directory::jobs::making::Make;
use crate::directory::jobs::syncing::{Sync, ready};
use crate::directory::system::descriptors::Descriptors;
use crate::directory::system::look::look;
use crate::directory::system::place::{give, set_times};
use crate::nfs3::{SetTime, Status};

/// A change.
#[derive(Debug)]
pub(crate) enum Act {
    Set(Set),
    Make(Make),
    Unlink(Unlink),
    Link(Link),
    Rename(Rename),
}

/// Sets attributes of a file.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) by: By,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) place: OwnedFd,
    pub(crate) setting: Setting,
    pub(crate) changed: Option<Sync>,
}

/// Removes a name, of a directory if the flags say so.
#[derive(Debug)]
pub(crate) struct Unlink {
    pub(crate) by: By,
    pub(crate) at: At,
    pub(crate) flags: AtFlags,
}

/// Gives an open file one more name.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) by: By,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) place: OwnedFd,
    pub(crate) at: At,
    pub(crate) changed: Option<Sync>,
}

/// Renames a file.
#[derive(Debug)]
pub(crate) struct Rename {
    pub(crate) by: By,
    pub(crate) from: At,
    pub(crate) to: At,
}

impl Act {
    /// Makes the change, which is not on stable storage yet.
    pub(crate) fn run(&self) -> Done {
        let changed = match self {
            Self::Make(act) => return act.run(),
            Self::Unlink(act) => return act.run(),
            Self::Set(act) => act.run(),
            Self::Link(act) => act.run(),
            Self::Rename(act) => act.run(),
        };
        let after = |unsettled| After { made: None, unsettled, around: None };
        changed.map(|unsettled| Box::new(after(unsettled)))
    }

    /// Returns whether the change may be made once more after it was refused. A part of it may be done, which a guard would
    /// take for the change of somebody else.
    pub(crate) const fn may_be_repeated(&self) -> bool {
        !matches!(self, Self::Set(Set { setting: Setting { guard: Some(_), .. }, .. }))
    }
}

impl Set {
    /// Sets the attributes as the caller, so that the system judges each of them when it is set. What the caller may not
    /// set keeps the file's data as they are: they are cut last.
    fn run(&self) -> Result<Vec<Sync>, Status> {
        let Self { by, descriptors, place, setting: Setting { to, guard }, changed } = self;
        let changed = ready(changed.as_ref())?;
        let writer = to.size.map(|_| self.writer()).transpose()?;
        let acting = by.rights.as_caller(&by.caller)?;
        if let Some(ctime) = guard
            && look(place)?.attributes.ctime != *ctime
        {
            return Err(Status::NotSync);
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

impl Link {
    fn run(&self) -> Result<Vec<Sync>, Status> {
        let Self { by: By { rights, caller }, descriptors, place, at, changed } = self;
        let (dir_changed, changed) = (ready(at.changed.as_ref())?, ready(changed.as_ref())?);
        let acting = rights.as_caller(caller)?;
        descriptors.link(place, &at.dir, &at.name)?;
        drop(acting);
        Ok(dir_changed.into_iter().chain(changed).collect())
    }
}

impl Rename {
    fn run(&self) -> Result<Vec<Sync>, Status> {
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
