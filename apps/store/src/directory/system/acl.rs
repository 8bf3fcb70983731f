//! Access control lists, as the system keeps them with files: `system.posix_acl_access`, acl(5).

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use haulage::sys::clock;
use rustix::fs::getxattr;
use rustix::io::Errno;

use crate::access::Caller;
use crate::nfs3::{Attributes, Time};

/// The ACL of a file, or that it has none, and the `ctime` with which it was read.
#[derive(Debug, Default)]
pub(crate) struct Seen(RefCell<Option<(Time, Option<Acl>)>>);

/// What a file allows whom beside its owner, who has the permission bits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Box<[Entry]>,
    /// The most that a user who is named, or a group, is allowed.
    mask: u32,
    other: u32,
}

/// What somebody is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    who: Who,
    allowed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    User(u32),
    /// The group of the file.
    OwnGroup,
    Group(u32),
}

impl Seen {
    /// Returns whether the file at a place, with these attributes, allows a caller all of `wanted`, as the system judges it:
    /// by its ACL if it has one.
    ///
    /// # Errors
    /// The system's, where the ACL has to be read.
    pub(crate) fn allows(
        &self,
        (caller, wanted): (&Caller, u32),
        file: &Attributes,
        place: &OwnedFd,
    ) -> Result<bool, Errno> {
        // The permission bits of the group are the most that an ACL gives anybody but the owner.
        if caller.owns(file) || file.mode & GROUP_BITS == 0 {
            return Ok(caller.may(file, wanted));
        }
        let allows = |acl: Option<&Acl>| match acl {
            Some(acl) => acl.allows(caller, file.gid, wanted),
            None => caller.may(file, wanted),
        };
        if let Some((then, acl)) = &*self.0.borrow()
            && *then == file.ctime
        {
            return Ok(allows(acl.as_ref()));
        }
        let acl = Acl::read(place)?;
        let allowed = allows(acl.as_ref());
        // A change of a moment later would not show in another time.
        if is_at_rest(file.ctime, clock::time_of_day()) && acl.as_ref().is_none_or(Acl::is_short) {
            self.0.replace(Some((file.ctime, acl)));
        }
        Ok(allowed)
    }

    /// Returns whether a file with this `ctime` is known to have no ACL.
    pub(crate) fn is_none(&self, ctime: Time) -> bool {
        matches!(&*self.0.borrow(), Some((then, None)) if *then == ctime)
    }
}

impl Acl {
    /// Reads the ACL of the file at a place, if it has one.
    fn read(place: &OwnedFd) -> Result<Option<Self>, Errno> {
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        let mut short = [0; SHORT];
        match getxattr(&*path, NAME, &mut short) {
            Ok(length) => Self::decode(&short[..length]).map(Some),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(Errno::RANGE) => {
                let mut long = vec![0; LONG];
                let length = getxattr(&*path, NAME, &mut long)?;
                Self::decode(&long[..length]).map(Some)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Decodes the extended attribute.
    ///
    /// # Errors
    /// [`Errno::IO`] if it is none.
    pub(crate) fn decode(octets: &[u8]) -> Result<Self, Errno> {
        let (version, entries) = octets.split_first_chunk().ok_or(Errno::IO)?;
        if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(ENTRY) {
            return Err(Errno::IO);
        }
        let mut acl = Self { entries: Box::default(), mask: ALL, other: 0 };
        let mut named = Vec::with_capacity(entries.len() / ENTRY);
        for entry in entries.as_chunks::<ENTRY>().0 {
            let &[tag, tag_high, allowed, _, id @ ..] = entry;
            let (allowed, id) = (u32::from(allowed) & ALL, u32::from_le_bytes(id));
            let who = match u16::from_le_bytes([tag, tag_high]) {
                // The permission bits have what the owner is allowed.
                OWNER => continue,
                USER => Who::User(id),
                OWN_GROUP => Who::OwnGroup,
                GROUP => Who::Group(id),
                MASK => {
                    acl.mask = allowed;
                    continue;
                }
                OTHER => {
                    acl.other = allowed;
                    continue;
                }
                _ => return Err(Errno::IO),
            };
            named.push(Entry { who, allowed });
        }
        acl.entries = named.into();
        Ok(acl)
    }

    /// Returns whether a caller who is not the owner is allowed all of `wanted` of a file of this group: by the entry
    /// that names him; else by any of those of his groups that has it all; else as all others.
    pub(crate) fn allows(&self, caller: &Caller, group: u32, wanted: u32) -> bool {
        let has = |entry: &Entry| wanted & !(entry.allowed & self.mask) == 0;
        let is_him = |entry: &&Entry| entry.who == Who::User(caller.uid);
        if let Some(own) = self.entries.iter().find(is_him) {
            return has(own);
        }
        let is_his = |entry: &&Entry| match entry.who {
            Who::User(_) => false,
            Who::OwnGroup => caller.is_of(group),
            Who::Group(gid) => caller.is_of(gid),
        };
        let mut his = self.entries.iter().filter(is_his).peekable();
        if his.peek().is_none() {
            return wanted & !self.other == 0;
        }
        his.any(has)
    }

    /// Returns whether the ACL takes little memory.
    fn is_short(&self) -> bool {
        self.entries.len() <= SHORT / ENTRY
    }
}

/// Returns whether, at this time of day, the next change of a file with this `ctime` shows in another one: the clock of
/// its file system has moved on since.
pub(crate) fn is_at_rest(changed: Time, time_of_day: Duration) -> bool {
    let changed = Duration::new(u64::from(changed.seconds), changed.nanoseconds);
    changed.saturating_add(STEP) < time_of_day
}

/// The extended attribute that has a file's ACL.
const NAME: &str = "system.posix_acl_access";
/// Length of most ACLs at most, in octets.
const SHORT: usize = 4 + 32 * ENTRY;
/// Maximum length of an extended attribute, in octets.
const LONG: usize = 1 << 16;

/// The version of the encoding.
const VERSION: u32 = 2;
/// Length of an entry, in octets: tag, permissions, and the ID of whom it names.
const ENTRY: usize = 8;
/// Tags of entries.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWN_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The permission bits of the group.
const GROUP_BITS: u32 = 0o070;
/// All permissions.
const ALL: u32 = 0o7;
/// The step of the clock by which Linux sets the times of files, at most: a tick of 100 a second, and as much again.
const STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
