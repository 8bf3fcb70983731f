//! Descriptors for data, opened from places.
//!
//! They are opened through `/proc/self/fd`, so that they refer to the same file as the place.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::look::{MODE_MASK, look};
use super::place::{Fresh, WITHIN};
use crate::nfs3::Attributes;

/// The directory `/proc/self/fd`.
#[derive(Debug)]
pub(crate) struct Descriptors(OwnedFd);

/// Opens a file of our own user that its permission bits keep us from opening.
#[derive(Debug)]
pub(crate) struct OpenShut {
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) place: OwnedFd,
    pub(crate) flags: OFlags,
    pub(crate) opened: Sender<Result<OwnedFd, Errno>>,
}

impl Descriptors {
    /// Opens the directory.
    pub(crate) fn find() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = fs::open("/proc/self/fd", flags, Mode::empty())?;
        // Another file system mounted there could lead anywhere.
        if fs::fstatfs(&list)?.f_type != PROC_MAGIC {
            return Err(Errno::NOSYS);
        }
        Ok(Self(list))
    }

    /// Returns the current path of an open directory.
    pub(crate) fn path(&self, open: &OwnedFd) -> Result<Vec<u8>, Errno> {
        fs::readlinkat(&self.0, &*number(open), Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// Returns a place of an open file.
    fn place(&self, open: &OwnedFd) -> Result<OwnedFd, Errno> {
        fs::openat(&self.0, &*number(open), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens the file that a place stands for.
    ///
    /// A file of our own user opens whatever its permission bits are: the server has checked the caller's rights, an
    /// owner may keep writing a file after making it read-only (RFC 1813 section 4.4), and a directory has to be open
    /// for a change of its names to be synced, though the change needs no permission to read it. Linux has no such
    /// exceptions. So without privileges this adds the owner's bits that are missing, opens the file, and takes them away again. A
    /// server killed in between leaves the bits set; only our own user gains by them, who may set them anyway. To make
    /// this rare, a file stays open after its creation, and is evicted last (`Node::is_irreplaceable`).
    pub(crate) fn open(&self, place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let opened = self.open_as_is(place, flags);
        let Err(Errno::ACCESS) = opened else { return opened };
        let (mode, widened) = widened(place, flags)?;
        self.chmod(place, widened)?;
        let opened = self.open_as_is(place, flags);
        // Keep a mode that another process has set meanwhile.
        if look(place).is_ok_and(|seen| seen.attributes.mode == widened) {
            self.chmod(place, mode)?;
        }
        opened
    }

    /// Opens the file that a place stands for, as far as its permission bits allow it to this thread.
    pub(crate) fn open_as_is(&self, place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let asked = flags | AT_ONCE | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = fs::openat(&self.0, &*number(place), asked, Mode::empty())?;
        // A ring of an older system would take the flag to mean that a transfer must not wait for the disk.
        fs::fcntl_setfl(&opened, flags)?;
        Ok(opened)
    }

    /// Creates a regular file under a name that must be free in a directory. It is open for reading and writing.
    pub(crate) fn create(&self, dir: &OwnedFd, name: &[u8], mode: Mode) -> Result<Fresh, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | AT_ONCE;
        let made = fs::openat2(dir, name, flags | OFlags::CLOEXEC, mode, WITHIN)?;
        let found = fs::fcntl_setfl(&made, OFlags::RDWR).and_then(|()| self.place(&made));
        let found = found.and_then(|place| Fresh::new(place, Some(Arc::new(made))));
        // No other Call knows the new file, so it may be removed.
        found.inspect_err(|_| {
            let _ = fs::unlinkat(dir, name, AtFlags::empty());
        })
    }

    /// Opens the directory of a place for listing, which needs no permission to search it.
    pub(crate) fn listing(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open_as_is(place, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the regular file of a place, by which a change of its attributes is brought to stable storage.
    pub(crate) fn open_file(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open(place, OFlags::RDONLY)
    }

    /// Opens the directory of a place, by which a change of its names is brought to stable storage.
    pub(crate) fn open_directory(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open(place, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Sets the permission bits of the file of a place; does nothing for a symbolic link, which has none.
    pub(crate) fn chmod(&self, place: &OwnedFd, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & MODE_MASK);
        match fs::chmodat(&self.0, &*number(place), mode, AtFlags::empty()) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            done => done,
        }
    }

    /// Gives the file of a place one more name.
    pub(crate) fn link(&self, place: &OwnedFd, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        fs::linkat(&self.0, &*number(place), dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl OpenShut {
    /// Opens the file.
    pub(crate) fn run(self) {
        // The node may be gone.
        let _ = self.opened.send(self.descriptors.open(&self.place, self.flags));
    }
}

/// Returns the permission bits of a file, and those with which its owner opens it.
///
/// # Errors
/// [`Errno::ACCESS`] if the file is not our own user's, or the permission bits are not the reason why it does not open.
pub(crate) fn widened(place: &OwnedFd, flags: OFlags) -> Result<(u32, u32), Errno> {
    let Attributes { uid, mode, .. } = look(place)?.attributes;
    let needed = match flags & OFlags::RWMODE {
        OFlags::RDWR => 0o600,
        OFlags::WRONLY => 0o200,
        _ => 0o400,
    };
    let is_shut = uid == rustix::process::geteuid().as_raw() && mode | needed != mode;
    if is_shut { Ok((mode, mode | needed)) } else { Err(Errno::ACCESS) }
}

/// Returns the name of a descriptor in `/proc/self/fd`.
fn number(open: &OwnedFd) -> String {
    open.as_raw_fd().to_string()
}

/// Opening never waits: not for a local process to give up its lease on the file (`F_SETLEASE` in fcntl(2)), which takes
/// as long as that process likes, up to 45 seconds, and is EWOULDBLOCK so; and not for the other end of a pipe. The
/// system has told the process to give up the lease, so that a repetition succeeds some time.
const AT_ONCE: OFlags = OFlags::NONBLOCK;
/// The file system type of `/proc`, in `statfs`.
const PROC_MAGIC: rustix::fs::FsWord = 0x9fa0;
