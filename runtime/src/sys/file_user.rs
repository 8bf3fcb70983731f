//! The user and the groups by which the system judges what a thread does with files, and to whom new files belong.
//!
//! # Normal operation
//! A server of files acts for its callers. [`Own::act_as`] makes this thread, and no other, a user and groups of files
//! (setfsuid(2)), until its result is dropped: the system then judges names and permission bits, and new files have
//! their owner from the beginning. Nothing else of the process changes: signals and other threads see the same user.
//!
//! # Recovery
//! A thread that cannot become itself again must do nothing more: the process ends.
//!
//! # Limits
//! RDMA devices obey a thread only as long as it has the credentials with which it opened them, not others that are
//! equal. To act as somebody, and to be oneself again, is to have new ones: the thread of a core has it done
//! [`elsewhere`].
//!
//! A process that has acted as another user writes no core dump, and only the superuser traces it, as `PR_SET_DUMPABLE`
//! in prctl(2) says.

use std::io;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use rustix::process::getgroups;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};

/// A user and groups of files.
#[derive(Clone, Copy, Debug)]
pub struct FileUser<'a> {
    /// The user: the owner of new files.
    pub uid: u32,
    /// The group: that of new files, unless their directory says otherwise.
    pub gid: u32,
    /// Further groups.
    pub groups: &'a [Gid],
    /// The judge of what the user may do.
    pub judge: Judge,
}

pub use rustix::process::Gid;

/// The judge of what a user may do with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The system, by permission bits, owners and groups.
    System,
    /// The caller has judged: the thread keeps the privileges of the process.
    Caller,
}

/// The user and groups of files that a privileged process has of its own.
#[derive(Debug)]
pub struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
}

impl Own {
    /// Reads them. Returns `None` without the privileges to act as others and to be the judge of what they may do.
    ///
    /// # Errors
    /// The system's, if it starts no thread to find that out.
    pub fn privileged() -> io::Result<Option<Self>> {
        elsewhere(Self::find)
    }

    /// Reads them from this thread, which has new credentials then.
    fn find() -> Option<Self> {
        let capabilities = capabilities(None).ok()?;
        let (uid, gid) = (set_fs_user(NOBODY), set_fs_group(NOBODY));
        let is_privileged = capabilities.effective.contains(NEEDED);
        let groups = getgroups().ok()?;
        // A user namespace may forbid setting groups (user_namespaces(7)).
        let may_set_groups = is_privileged && set_thread_groups(&groups).is_ok();
        may_set_groups.then_some(Self { uid, gid, groups, capabilities })
    }

    /// Makes this thread a user of files until the result is dropped.
    ///
    /// # Errors
    /// `EINVAL` if the user namespace has no such user or group; `ENOMEM`. The thread is itself then.
    pub fn act_as(&self, user: &FileUser<'_>) -> io::Result<Acting<'_>> {
        let acting = Acting { own: self, _this_thread: PhantomData };
        let own = self.capabilities;
        let effective = match user.judge {
            Judge::System => own.effective.difference(JUDGING),
            Judge::Caller => own.effective,
        };
        become_user((user.uid, user.gid), user.groups, CapabilitySets { effective, ..own })?;
        Ok(acting)
    }
}

/// This thread acts as another user of files while this exists.
#[derive(Debug)]
#[must_use = "the thread is itself again when this is dropped"]
pub struct Acting<'a> {
    own: &'a Own,
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Own { uid, gid, groups, capabilities } = self.own;
        if let Err(error) = become_user((*uid, *gid), groups, *capabilities) {
            // If the process went on, it would act with another user's rights.
            tracing::error!(target: "haulage", reason = %error, "file_user.stuck");
            std::process::abort();
        }
    }
}

/// Has the calling thread act as somebody while it calls the function, or returns why it may not.
pub type AsSomebody = Arc<dyn Fn(&mut dyn FnMut()) -> io::Result<()> + Send + Sync>;

/// Does `work` on a thread of its own, and waits for it: the credentials of this thread stay as they are.
///
/// # Errors
/// The system's, if it starts no thread.
pub fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().name("as-caller".to_owned()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|cause| resume_unwind(cause)))
    })
}

fn become_user(
    (uid, gid): (u32, u32),
    groups: &[Gid],
    capabilities: CapabilitySets,
) -> Result<(), Errno> {
    set_thread_groups(groups)?;
    // Neither call reports a failure. Both return the previous ID, so calls with an invalid ID show the present one.
    set_fs_group(gid);
    set_fs_user(uid);
    if (set_fs_user(NOBODY), set_fs_group(NOBODY)) != (uid, gid) {
        return Err(Errno::INVAL);
    }
    set_capabilities(None, capabilities)
}

/// Sets the user of this thread's files, if there is such a user. Returns the one before.
fn set_fs_user(uid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory. The library passes it on for this thread alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// Sets the group of this thread's files, if there is such a group. Returns the one before.
fn set_fs_group(gid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory. The library passes it on for this thread alone.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

/// No user and no group, so that setting it changes nothing.
const NOBODY: u32 = u32::MAX;
/// The privileges by which the permission bits, owners and groups of files do not count, nor quotas and the room that a
/// file system keeps for the superuser. Linux's own server gives up as many for its callers.
const JUDGING: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE);
/// The privileges that acting as others takes, and those that a server has to give up for them.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Creates a file that is gone at once, and returns whose it is.
    fn owner() -> (u32, u32) {
        let directory = std::env::temp_dir();
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let mode = rustix::fs::Mode::RUSR;
        let file = File::from(rustix::fs::open(&directory, flags, mode).unwrap());
        let made = file.metadata().unwrap();
        (made.uid(), made.gid())
    }

    #[test]
    fn a_thread_acts_as_another_user_until_it_is_itself_again() {
        let Some(own) = Own::privileged().unwrap() else {
            return eprintln!("skipped: only the superuser acts as others");
        };
        let itself = owner();
        let groups = [Gid::from_raw(7), Gid::from_raw(8)];
        for judge in [Judge::System, Judge::Caller] {
            let user = FileUser { uid: 1, gid: 2, groups: &groups, judge };
            let acting = own.act_as(&user).unwrap();
            assert_eq!(owner(), (1, 2));
            assert_eq!(getgroups().unwrap(), groups);
            let has = capabilities(None).unwrap().effective.intersection(JUDGING);
            let had = own.capabilities.effective.intersection(JUDGING);
            assert!(had.contains(NEEDED.intersection(JUDGING)));
            assert_eq!(has, if judge == Judge::Caller { had } else { CapabilitySet::empty() });
            let other = std::thread::Builder::new().spawn(owner).unwrap().join().unwrap();
            assert_eq!(other, (1, 2), "a thread inherits from the one that starts it");
            drop(acting);
            assert_eq!(owner(), itself);
            let after = (getgroups().unwrap(), capabilities(None).unwrap().effective);
            assert_eq!(after, (own.groups.clone(), own.capabilities.effective));
        }
        // A change of user that fails half-way restores the groups and the capabilities.
        for (uid, gid) in [(u32::MAX, 2), (1, u32::MAX)] {
            let user = FileUser { uid, gid, groups: &groups, judge: Judge::System };
            let refused = own.act_as(&user).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
            assert_eq!((owner(), getgroups().unwrap()), (itself, own.groups.clone()));
        }
    }

    #[test]
    fn other_threads_stay_what_they_are() {
        let Some(own) = Own::privileged().unwrap() else {
            return eprintln!("skipped: only the superuser acts as others");
        };
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        let other = std::thread::Builder::new().spawn(move || {
            while asked.recv().is_ok() {
                answer.send(owner()).unwrap();
            }
        });
        let whose = || {
            ask.send(()).unwrap();
            answered.recv().unwrap()
        };
        let before = whose();
        let user = FileUser { uid: 1, gid: 2, groups: &[], judge: Judge::System };
        let acting = own.act_as(&user).unwrap();
        assert_eq!(whose(), before);
        drop(acting);
        drop(ask);
        other.unwrap().join().unwrap();
    }
}
