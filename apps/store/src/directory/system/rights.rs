//! Acting for callers with their rights.
//!
//! What is done by name may hit another file than the one that was looked at: another process may rename in between. A
//! privileged server therefore changes names as the caller, so that the system judges what is hit, and a new file has
//! its owner from the beginning. What is done to an open file hits that file, and is done as the server itself, which has
//! judged by the file's own attributes; but data of others than the superuser is written without privileges, so that quotas
//! and the room that a file system keeps for the superuser hold.

use std::io;

use haulage::sys::file_user::{Acting, FileUser, Gid, Judge, Own};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};

use crate::access::Caller;
use crate::backend::New;
use haulage::sys::namespace::{Ids, is_alone};

/// The server's power to act as others, if it has it.
#[derive(Debug)]
pub(crate) struct Rights {
    own: Option<Own>,
    /// A user and a group without rights.
    anonymous: (u32, u32),
}

impl Rights {
    /// Reads what this process may do. In a user namespace of one user, or of one group, there is nobody to act as.
    ///
    /// # Errors
    /// The system's, if it starts no thread to find that out.
    pub(crate) fn find() -> io::Result<Self> {
        let anonymous = (Ids::users().powerless(), Ids::groups().powerless());
        Ok(Self { own: Own::privileged()?.filter(|_| !is_alone()), anonymous })
    }

    /// Returns whether all is done as this process's own user.
    pub(crate) const fn is_sole_owner(&self) -> bool {
        self.own.is_none()
    }

    /// Makes this thread a user without rights and without the server's privileges, while the result exists: for what the
    /// server has judged, and where the system is to see no superuser.
    pub(crate) fn as_anonymous(&self) -> Result<Option<Acting<'_>>, Errno> {
        let (uid, gid) = self.anonymous;
        self.act(self.anonymous, &Caller::new(uid, gid, []), Judge::System)
    }

    /// Makes this thread the caller, while the result exists. The superuser is the server itself.
    pub(crate) fn as_caller(&self, caller: &Caller) -> Result<Option<Acting<'_>>, Errno> {
        if caller.is_root() {
            return Ok(None);
        }
        self.act((caller.uid, caller.gid), caller, Judge::System)
    }

    /// Makes this thread the owner of a new file, with the caller's rights, while the result exists.
    pub(crate) fn as_maker(
        &self,
        caller: &Caller,
        new: &New<'_>,
    ) -> Result<Option<Acting<'_>>, Errno> {
        let judge = if caller.is_root() { Judge::Caller } else { Judge::System };
        self.act((new.uid, group_of(caller, new)), caller, judge)
    }

    /// Makes this thread the owner of a new file and nobody more, not even if the superuser calls.
    pub(crate) fn as_owner(
        &self,
        caller: &Caller,
        new: &New<'_>,
    ) -> Result<Option<Acting<'_>>, Errno> {
        self.act((new.uid, group_of(caller, new)), caller, Judge::System)
    }

    fn act(
        &self,
        (uid, gid): (u32, u32),
        caller: &Caller,
        judge: Judge,
    ) -> Result<Option<Acting<'_>>, Errno> {
        let Some(own) = &self.own else { return Ok(None) };
        // All ones are no user and no group.
        if uid == u32::MAX || gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let groups: Vec<_> = caller.groups().map(Gid::from_raw).collect();
        let user = FileUser { uid, gid, groups: &groups, judge };
        let acting = own.act_as(&user);
        acting.map(Some).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Returns the owner of all files that this process creates, or `None` if the process may create files for others, give
/// files away, and use files of other users as its own. In a user namespace of one user, or of one group, there is
/// nobody else.
///
/// # Errors
/// The system's, if it starts no thread to find that out.
pub fn sole_owner() -> io::Result<Option<Owner>> {
    let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    Ok(Rights::find()?.is_sole_owner().then_some(owner))
}

/// Returns whether this process has some privilege to use files of other users as its own.
pub fn is_overriding() -> bool {
    let some = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
    !is_alone() && capabilities(None).is_ok_and(|sets| sets.effective.intersects(some))
}

/// Returns the group by which a file is created. A group that the caller is not of is the directory's, and the system
/// gives the file that one.
pub(crate) fn group_of(caller: &Caller, new: &New<'_>) -> u32 {
    if caller.is_root() || caller.is_of(new.gid) { new.gid } else { caller.gid }
}
