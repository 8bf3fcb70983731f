//! Who calls, as far as they are believed, and what they may do to a file.
//!
//! AUTH_SYS is a claim: whoever can send to the server can claim to be anybody. Squashing bounds what
//! a claim is worth; the permission bits of files do the rest, as POSIX reads them.

use haulage_proto::rpc::Credential;

use crate::nfs3::{Attributes, FileType, rights};

/// Who calls, after squashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    groups: [u32; GROUPS_MAX],
    group_count: usize,
}

/// Which claims are not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None: who claims to be the superuser is.
    Nobody,
    /// That of being the superuser, or of its group.
    #[default]
    Root,
    /// All.
    All,
}

/// How claims are turned into callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which claims are not believed.
    pub squash: Squash,
    /// The user of those who are not believed, or claim nothing.
    pub anonymous_uid: u32,
    /// Their group.
    pub anonymous_gid: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { squash: Squash::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY }
    }
}

impl Policy {
    /// Returns who calls with this credential. Flavors other than AUTH_SYS claim nothing.
    pub fn caller(&self, credential: &Credential<'_>) -> Caller {
        let anonymous = Caller::new(self.anonymous_uid, self.anonymous_gid, []);
        let Credential::Sys(claim) = credential else { return anonymous };
        let group = |gid| if gid == ROOT { self.anonymous_gid } else { gid };
        match self.squash {
            Squash::Nobody => Caller::new(claim.uid, claim.gid, claim.gids()),
            Squash::Root if claim.uid == ROOT => anonymous,
            Squash::Root => Caller::new(claim.uid, group(claim.gid), claim.gids().map(group)),
            Squash::All => anonymous,
        }
    }
}

impl Caller {
    /// Makes a caller of a user, a group and at most 16 further groups; more are left out.
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

    /// Returns whether the caller is of a group.
    pub fn is_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups[..self.group_count].contains(&gid)
    }

    /// Returns whether a file's permission bits allow the caller all that is wanted of [`READ`],
    /// [`WRITE`] and [`EXECUTE`].
    pub fn may(&self, file: &Attributes, wanted: u32) -> bool {
        if self.is_root() {
            // What nobody may execute the superuser may not either, a directory apart.
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

    /// Returns whether the caller may read a file's data. A client that opened a file goes on reading
    /// after its bits changed, and reads what it may only execute, so the owner and those who may
    /// execute it are let in (RFC 1813 section 4.4).
    pub fn may_read(&self, file: &Attributes) -> bool {
        self.owns(file) || self.may(file, READ) || self.may(file, EXECUTE)
    }

    /// Returns whether the caller may write a file's data; its owner always, as for reading.
    pub fn may_write(&self, file: &Attributes) -> bool {
        self.owns(file) || self.may(file, WRITE)
    }

    /// Returns whether the caller may remove or rename a file in a directory it may change: in one
    /// with the sticky bit only what it owns, or all if it owns the directory.
    pub const fn may_unlink(&self, dir: &Attributes, file: &Attributes) -> bool {
        dir.mode & STICKY == 0 || self.owns(file) || self.owns(dir)
    }

    /// Returns those of the [`rights`] asked about that the caller has.
    pub fn rights(&self, file: &Attributes, asked: u32) -> u32 {
        let is_dir = file.kind == FileType::Directory;
        let has = |right| match (right, is_dir) {
            (rights::READ, _) => self.may(file, READ),
            (rights::LOOKUP, true) | (rights::EXECUTE, false) => self.may(file, EXECUTE),
            (rights::MODIFY | rights::EXTEND, _) | (rights::DELETE, true) => self.may(file, WRITE),
            _ => false,
        };
        let all = (0..u32::BITS).map(|bit| 1 << bit);
        all.filter(|right| asked & right != 0 && has(*right)).sum()
    }
}

/// To read a file, or list a directory.
pub const READ: u32 = 4;
/// To write a file, or change the names in a directory.
pub const WRITE: u32 = 2;
/// To execute a file, or find names in a directory.
pub const EXECUTE: u32 = 1;

/// The bit of a directory from which only owners remove.
const STICKY: u32 = 0o1000;
/// The superuser, and its group.
const ROOT: u32 = 0;
/// The user and group of nobody in particular.
const NOBODY: u32 = 65_534;
/// Further groups of AUTH_SYS (RFC 5531 appendix A).
const GROUPS_MAX: usize = 16;

#[cfg(test)]
mod tests;
