//! Callers after squashing, and the permission checks on files.
//!
//! AUTH_SYS is a claim: any client can claim to be any user. Squashing limits which claims are believed; the
//! permission bits of files, as POSIX defines them, decide the rest.

use haulage_proto::rpc::Credential;

use crate::nfs3::{Attributes, FileType, NO_ID, Status, rights};

/// The user and groups of a caller, after squashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    groups: [u32; GROUPS_MAX],
    group_count: usize,
}

/// The AUTH_SYS claims that are not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// No claims: a caller that claims to be the superuser is one.
    Nobody,
    /// The claim to be the superuser, or to be in its group.
    #[default]
    Root,
    /// All claims.
    All,
}

/// The rules that turn AUTH_SYS claims into callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The claims that are not believed.
    pub squash: Squash,
    /// The user of callers that are not believed, or claim nothing.
    pub anonymous_uid: u32,
    /// The group of callers that are not believed, or claim nothing.
    pub anonymous_gid: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { squash: Squash::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY }
    }
}

impl Policy {
    /// Returns the caller that a credential names. Flavors other than AUTH_SYS claim nothing.
    pub fn caller(&self, credential: &Credential<'_>) -> Caller {
        let anonymous = Caller::new(self.anonymous_uid, self.anonymous_gid, []);
        let Credential::Sys(claim) = credential else { return anonymous };
        let group = |gid| if gid == ROOT { self.anonymous_gid } else { gid };
        // A claim to be no user, or in no group, is one to be the anonymous user's, as Linux's server has it.
        let uid = if claim.uid == NO_ID { self.anonymous_uid } else { claim.uid };
        let gid = if claim.gid == NO_ID { self.anonymous_gid } else { claim.gid };
        match self.squash {
            Squash::Nobody => Caller::new(uid, gid, claim.gids()),
            Squash::Root if uid == ROOT => anonymous,
            Squash::Root => Caller::new(uid, group(gid), claim.gids().map(group)),
            Squash::All => anonymous,
        }
    }
}

impl Caller {
    /// Creates a caller from a user, a group and at most 16 further groups; more are left out.
    pub fn new(uid: u32, gid: u32, further: impl IntoIterator<Item = u32>) -> Self {
        let mut caller = Self { uid, gid, groups: [0; GROUPS_MAX], group_count: 0 };
        for (slot, group) in caller.groups.iter_mut().zip(further) {
            *slot = group;
            caller.group_count += 1;
        }
        caller
    }

    /// Returns whether the caller is the superuser.
    pub const fn is_root(&self) -> bool {
        self.uid == ROOT
    }

    /// Returns whether the caller is the superuser, or owns the file.
    pub const fn owns(&self, file: &Attributes) -> bool {
        self.is_root() || self.uid == file.uid
    }

    /// Returns whether the caller is in a group.
    pub fn is_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups[..self.group_count].contains(&gid)
    }

    /// Returns the groups that the caller is in.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        [self.gid].into_iter().chain(self.groups[..self.group_count].iter().copied())
    }

    /// Checks that a file's permission bits allow the caller all of `wanted`, a sum of [`READ`], [`WRITE`] and
    /// [`EXECUTE`].
    ///
    /// # Errors
    /// [`Status::Acces`] if they do not.
    pub fn check(&self, file: &Attributes, wanted: u32) -> Result<(), Status> {
        if self.may(file, wanted) { Ok(()) } else { Err(Status::Acces) }
    }

    /// Returns whether a file's permission bits allow the caller all of `wanted`, a sum of [`READ`], [`WRITE`] and
    /// [`EXECUTE`].
    pub fn may(&self, file: &Attributes, wanted: u32) -> bool {
        if self.is_root() {
            // The superuser may execute a file if anybody may, and search every directory.
            let executable = file.kind == FileType::Directory || file.mode & 0o111 != 0;
            return wanted & EXECUTE == 0 || executable;
        }
        // Only the first class that fits counts, even if a later one allowed more.
        let granted = if self.uid == file.uid {
            file.mode >> 6
        } else if self.is_of(file.gid) {
            file.mode >> 3
        } else {
            file.mode
        };
        wanted & !granted == 0
    }

    /// Returns whether the caller may remove or rename a file in a directory that it may change. If the directory has
    /// the sticky bit, the caller must own the file or the directory.
    pub const fn may_unlink(&self, dir: &Attributes, file: &Attributes) -> bool {
        dir.mode & STICKY == 0 || self.owns(file) || self.owns(dir)
    }
}

/// Returns the permission that one of the [`rights`] takes of a file of this kind; `None` for a right that no such file
/// gives.
pub const fn permission(right: u32, kind: FileType) -> Option<u32> {
    match (right, matches!(kind, FileType::Directory)) {
        (rights::READ, _) => Some(READ),
        (rights::LOOKUP, true) | (rights::EXECUTE, false) => Some(EXECUTE),
        (rights::MODIFY | rights::EXTEND, _) | (rights::DELETE, true) => Some(WRITE),
        _ => None,
    }
}

/// Permission to read a file, or list a directory.
pub const READ: u32 = 4;
/// Permission to write a file, or change the names in a directory.
pub const WRITE: u32 = 2;
/// Permission to execute a file, or look up names in a directory.
pub const EXECUTE: u32 = 1;

/// The sticky bit: only owners remove names from a directory that has it.
pub(crate) const STICKY: u32 = 0o1000;
/// The SUID bit: a program runs as its owner.
pub(crate) const SET_UID: u32 = 0o4000;
/// The SGID bit: a program runs as its group; new files in a directory get its group.
pub(crate) const SET_GID: u32 = 0o2000;
/// The ID of the superuser, and of its group.
const ROOT: u32 = 0;
/// The default ID of the anonymous user, and of its group.
const NOBODY: u32 = 65_534;
/// Maximum number of further groups in an AUTH_SYS credential (RFC 5531 appendix A).
const GROUPS_MAX: usize = 16;

#[cfg(test)]
mod tests;
