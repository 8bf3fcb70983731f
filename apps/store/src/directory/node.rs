//! One file, held by an `O_PATH` descriptor, and the operations on it.
//!
//! An `O_PATH` descriptor, here called a place, refers to a file of any kind, takes no permission to open, follows no
//! symbolic link, and stays with the file when it is renamed. Descriptors for data are opened from it through
//! `/proc/self/fd`, so that they refer to the same file.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use rustix::fs::{
    self, AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp,
    Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Gid, Uid};

use super::acl;
use super::closing::{PathDescriptor, may_be_large};
use super::helpers::Helpers;
use super::mounted;
use super::status::status;
use crate::handle::FileId;
use crate::nfs3::{Attributes, Device, FileType, SetTime, Status, Time};

/// An open file: its place, and descriptors opened from it; or a stand-in (`mounted`), whose place is its directory's.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    /// The name in the directory `place` of another file system's mount point, if the node is the stand-in for that.
    mounted: Option<Box<[u8]>>,
    reading: OnceCell<Arc<OwnedFd>>,
    writing: OnceCell<Arc<OwnedFd>>,
    /// Descriptors that bypass the page cache; `None` inside if the file system has no direct I/O.
    reading_direct: OnceCell<Option<Arc<OwnedFd>>>,
    writing_direct: OnceCell<Option<Arc<OwnedFd>>>,
    /// Whether `writing` cannot read.
    is_write_only: Cell<bool>,
    /// Whether the permission bits, when last seen, kept the owner from opening the file.
    is_shut: Cell<bool>,
    /// The descriptor that a helper is opening.
    opening: RefCell<Option<Opening>>,
    /// What the file was like at a [`Moment`].
    seen: Cell<Option<(Moment, Look)>>,
    /// Whom the file allows what beside its owner.
    pub(super) acl: acl::Seen,
    helpers: Helpers,
    /// The place is closed after all other descriptors.
    pub(super) place: PathDescriptor,
}

/// The identity and attributes of a file, from `statx`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) id: FileId,
    /// The attributes, as the protocol has them.
    pub(super) attributes: Attributes,
    /// What nobody may change of the file, whatever its permission bits.
    pub(super) hold: Hold,
}

/// What nobody may change of a file (`chattr +i`, `chattr +a`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// All may be changed.
    #[default]
    None,
    /// Data and names may be added; none may be changed or removed.
    Appended,
    /// Nothing may be changed.
    Immutable,
}

/// A time within which attributes hold: no Call came after they were read, and the server changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl Moment {
    /// Returns the next moment, for which attributes are read anew.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A file that was just created.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) place: OwnedFd,
    /// A descriptor that reads and writes, of a regular file.
    pub(super) writing: Option<Arc<OwnedFd>>,
    pub(super) look: Look,
}

/// A descriptor that a helper opens for a node.
#[derive(Debug)]
struct Opening {
    flags: OFlags,
    opened: Receiver<Result<OwnedFd, Errno>>,
}

/// Opens a file of our own user that its permission bits keep us from opening.
#[derive(Debug)]
pub(super) struct OpenShut {
    descriptors: Arc<Descriptors>,
    place: OwnedFd,
    flags: OFlags,
    opened: Sender<Result<OwnedFd, Errno>>,
}

/// The directory `/proc/self/fd`.
#[derive(Debug)]
pub(super) struct Descriptors(OwnedFd);

impl Node {
    /// Creates a node from an `O_PATH` descriptor, and reads the file's attributes.
    pub(super) fn new(place: OwnedFd, helpers: &Helpers) -> Result<(Self, Look), Errno> {
        let fresh = Fresh::new(place, None)?;
        let look = fresh.look;
        Ok((Self::from_fresh(fresh, helpers), look))
    }

    /// Creates the stand-in for a name of this directory where another file system is mounted.
    fn stand_in(&self, name: &[u8]) -> Result<(Self, Look), Errno> {
        let place = PathDescriptor::new(fcntl_dupfd_cloexec(&self.place, 0)?, None);
        let id = mounted::id(self.id, name);
        let node = Self::with(place, id, Some(name.into()), &self.helpers);
        let look = node.look()?;
        Ok((node, look))
    }

    fn with(
        place: PathDescriptor,
        id: FileId,
        mounted: Option<Box<[u8]>>,
        helpers: &Helpers,
    ) -> Self {
        Self {
            id,
            mounted,
            reading: OnceCell::new(),
            writing: OnceCell::new(),
            reading_direct: OnceCell::new(),
            writing_direct: OnceCell::new(),
            is_write_only: Cell::new(false),
            is_shut: Cell::new(false),
            opening: RefCell::new(None),
            seen: Cell::new(None),
            acl: acl::Seen::default(),
            helpers: helpers.clone(),
            place,
        }
    }

    /// Creates a node of a file, and reads its attributes.
    pub(super) fn of_place(
        place: PathDescriptor,
        helpers: &Helpers,
    ) -> Result<(Self, Look), Errno> {
        let look = look(&place)?;
        Ok((Self::with(place, look.id, None, helpers), look))
    }

    /// Returns a place of the file with a name in this directory, or why there is none, if the system knows without
    /// waiting. A name of which it does not know is `None`.
    pub(super) fn cached_place(&self, name: &[u8]) -> Option<Result<PathDescriptor, Errno>> {
        if self.is_stand_in() {
            return Some(Err(Errno::NOENT));
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let within = WITHIN.union(ResolveFlags::CACHED);
        match fs::openat2(&self.place, name, flags, Mode::empty(), within) {
            // Systems before 5.12 have no such flag.
            Err(Errno::AGAIN | Errno::INVAL) => None,
            place => {
                Some(place.map(|place| PathDescriptor::new(place, Some(self.helpers.clone()))))
            }
        }
    }

    /// Opens the file with a name in this directory. The name is one component; a symbolic link is not followed, and
    /// where another file system is mounted the stand-in is returned.
    pub(super) fn child(&self, name: &[u8]) -> Result<(Self, Look), Errno> {
        if self.is_stand_in() {
            return Err(Errno::NOENT);
        }
        match place_of(&self.place, name) {
            // A name that leads out of the directory has this error, too.
            Err(Errno::XDEV) if !name.contains(&b'/') && name != b".." => self.stand_in(name),
            place => Self::new(place?, &self.helpers),
        }
    }

    /// Returns whether the node stands for a place where another file system is mounted: an empty directory, which
    /// nobody may change.
    pub(super) const fn is_stand_in(&self) -> bool {
        self.mounted.is_some()
    }

    /// Returns the parent directory, in the tree or not; [`Errno::STALE`] if it is on another mount, which is not asked.
    pub(super) fn above(&self) -> Result<(Self, Look), Errno> {
        if self.is_stand_in() {
            return Self::new(fcntl_dupfd_cloexec(&self.place, 0)?, &self.helpers);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::openat2(&self.place, "..", flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Err(Errno::XDEV) => Err(Errno::STALE),
            above => Self::new(above?, &self.helpers),
        }
    }

    /// Creates a node of a new file. A regular one stays open for writing, which its permission bits may not allow later.
    pub(super) fn from_fresh(fresh: Fresh, helpers: &Helpers) -> Self {
        let Fresh { place, writing, look } = fresh;
        let place =
            PathDescriptor::new(place, may_be_large(look.attributes.kind).then(|| helpers.clone()));
        let node = Self::with(place, look.id, None, helpers);
        if let Some(writing) = writing {
            node.note_mode(look.attributes.mode);
            let _ = node.writing.set(writing);
        }
        node
    }

    /// Closes a node of a file that has another one.
    pub(super) fn close_beside(self) {
        self.place.close_beside();
    }

    /// Returns whether the file has an open descriptor that its permission bits would not allow to open again.
    pub(super) fn is_irreplaceable(&self) -> bool {
        self.is_shut.get() && (self.writing.get().is_some() || self.reading.get().is_some())
    }

    /// Reads the file's current attributes.
    pub(super) fn look(&self) -> Result<Look, Errno> {
        let Some(name) = &self.mounted else { return look(&self.place) };
        match place_of(&self.place, name) {
            Err(Errno::XDEV) => Ok(mounted::look(self.id, look(&self.place)?.attributes)),
            // Nothing is mounted there any more.
            Ok(_) | Err(Errno::NOENT) => Err(Errno::STALE),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the file's attributes, as they were at this moment or are now.
    pub(super) fn look_at(&self, moment: Moment) -> Result<Look, Errno> {
        if let Some((then, look)) = self.seen.get()
            && then == moment
        {
            return Ok(look);
        }
        let look = self.look()?;
        self.seen.set(Some((moment, look)));
        Ok(look)
    }

    /// Notes the attributes that the file has at this moment.
    pub(super) fn note_look(&self, moment: Moment, look: Look) {
        self.seen.set(Some((moment, look)));
    }

    /// Returns a descriptor for reading.
    pub(super) fn reader(&self, open: &Arc<Descriptors>) -> Result<Arc<OwnedFd>, Errno> {
        let writing = self.writing.get().filter(|_| !self.is_write_only.get());
        if let Some(open) = writing.or_else(|| self.reading.get()) {
            return Ok(Arc::clone(open));
        }
        let opened = Arc::new(self.open(open, OFlags::RDONLY)?);
        Ok(Arc::clone(self.reading.get_or_init(|| opened)))
    }

    /// Returns a descriptor for writing. It reads, too, unless the file may only be written.
    pub(super) fn writer(&self, open: &Arc<Descriptors>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(open) = self.writing.get() {
            return Ok(Arc::clone(open));
        }
        let opened = match self.open(open, OFlags::RDWR) {
            Err(Errno::ACCESS) => {
                let opened = open.open_as_is(&self.place, OFlags::WRONLY)?;
                self.is_write_only.set(true);
                opened
            }
            opened => opened?,
        };
        let opened = Arc::new(opened);
        Ok(Arc::clone(self.writing.get_or_init(|| opened)))
    }

    /// Returns a descriptor for reading that bypasses the page cache, if the file system has direct I/O.
    pub(super) fn direct_reader(
        &self,
        open: &Arc<Descriptors>,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        if let Some(Some(open)) = self.writing_direct.get() {
            return Ok(Some(Arc::clone(open)));
        }
        self.direct(&self.reading_direct, open, OFlags::RDONLY)
    }

    /// Returns a descriptor for writing that bypasses the page cache, if the file system has direct I/O.
    pub(super) fn direct_writer(
        &self,
        open: &Arc<Descriptors>,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        self.direct(&self.writing_direct, open, OFlags::RDWR)
    }

    fn direct(
        &self,
        cell: &OnceCell<Option<Arc<OwnedFd>>>,
        open: &Arc<Descriptors>,
        flags: OFlags,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        if let Some(opened) = cell.get() {
            return Ok(opened.clone());
        }
        let opened = match self.open(open, flags | OFlags::DIRECT) {
            Ok(opened) => Some(Arc::new(opened)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => None,
            // A descriptor that only writes goes through the page cache.
            Err(Errno::ACCESS) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        Ok(cell.get_or_init(|| opened).clone())
    }

    /// Returns a descriptor by which the file's data and attributes, or a directory's names, can be brought to stable
    /// storage, if its permission bits allow one. A symbolic link, a device or a pipe cannot be opened without side effects
    /// and has none; syncing its directory has to do.
    pub(super) fn syncing(
        &self,
        kind: FileType,
        open: &Descriptors,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let opened = match (kind, self.writing.get().or_else(|| self.reading.get())) {
            (FileType::Regular, Some(open)) => return Ok(Some(Arc::clone(open))),
            (FileType::Regular, None) => match open.open_as_is(&self.place, OFlags::RDONLY) {
                Err(Errno::ACCESS) => open.open_as_is(&self.place, OFlags::WRONLY)?,
                opened => {
                    let opened = Arc::new(opened?);
                    return Ok(Some(Arc::clone(self.reading.get_or_init(|| opened))));
                }
            },
            (FileType::Directory, Some(open)) => return Ok(Some(Arc::clone(open))),
            (FileType::Directory, None) => {
                let opened = Arc::new(open.listing(&self.place)?);
                return Ok(Some(Arc::clone(self.reading.get_or_init(|| opened))));
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(opened)))
    }

    /// Returns a descriptor by which a regular file can be brought to stable storage: any will do.
    pub(super) fn syncing_data(&self, open: &Arc<Descriptors>) -> Result<Arc<OwnedFd>, Errno> {
        match self.reader(open) {
            Err(Errno::ACCESS) => self.writer(open),
            opened => opened,
        }
    }

    /// Notes the permission bits that the file has now.
    pub(super) fn note_mode(&self, mode: u32) {
        self.is_shut.set(is_shut(Mode::from_raw_mode(mode & MODE_MASK)));
    }

    /// Opens the file for itself. One of our own user that its permission bits keep us from opening is opened by a helper,
    /// since that changes the bits, which waits for the lock of the file.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] until the helper has opened it.
    fn open(&self, open: &Arc<Descriptors>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let opened = open.open_as_is(&self.place, flags);
        let Err(Errno::ACCESS) = opened else { return opened };
        if let Some(opening) = self.opening.take() {
            match opening.opened.try_recv() {
                Ok(opened) if opening.flags == flags => {
                    self.is_shut.set(true);
                    return opened;
                }
                Err(TryRecvError::Empty) => {
                    self.opening.replace(Some(opening));
                    return Err(Errno::AGAIN);
                }
                // The helper opened the file for another kind of access, or failed to open it.
                Ok(_) | Err(TryRecvError::Disconnected) => {}
            }
        }
        widened(&self.place, flags)?;
        let (give, opened) = channel();
        let descriptors = Arc::clone(open);
        let act = OpenShut { descriptors, place: self.another_place()?, flags, opened: give };
        if let Some(act) = self.helpers.open(act) {
            act.run();
        }
        opened.try_recv().unwrap_or_else(|_| {
            self.opening.replace(Some(Opening { flags, opened }));
            Err(Errno::AGAIN)
        })
    }

    /// Returns another descriptor of the same place.
    pub(super) fn another_place(&self) -> Result<OwnedFd, Errno> {
        fcntl_dupfd_cloexec(&self.place, 0)
    }
}

impl OpenShut {
    /// Opens the file.
    pub(super) fn run(self) {
        // The node may be gone.
        let _ = self.opened.send(self.descriptors.open(&self.place, self.flags));
    }
}

impl Descriptors {
    /// Opens the directory.
    pub(super) fn find() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = fs::open("/proc/self/fd", flags, Mode::empty())?;
        // Another file system mounted there could lead anywhere.
        if fs::fstatfs(&list)?.f_type != PROC_MAGIC {
            return Err(Errno::NOSYS);
        }
        Ok(Self(list))
    }

    /// Returns the current path of an open directory.
    pub(super) fn path(&self, open: &OwnedFd) -> Result<Vec<u8>, Errno> {
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
    /// this rare, a file stays open after its creation, and is evicted last (`is_irreplaceable`).
    pub(super) fn open(&self, place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
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
    pub(super) fn open_as_is(&self, place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let asked = flags | AT_ONCE | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = fs::openat(&self.0, &*number(place), asked, Mode::empty())?;
        // A ring of an older system would take the flag to mean that a transfer must not wait for the disk.
        fs::fcntl_setfl(&opened, flags)?;
        Ok(opened)
    }

    /// Creates a regular file under a name that must be free in a directory. It is open for reading and writing.
    pub(super) fn create(&self, dir: &OwnedFd, name: &[u8], mode: Mode) -> Result<Fresh, Errno> {
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
    pub(super) fn listing(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open_as_is(place, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the regular file of a place, by which a change of its attributes is brought to stable storage.
    pub(super) fn open_file(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open(place, OFlags::RDONLY)
    }

    /// Opens the directory of a place, by which a change of its names is brought to stable storage.
    pub(super) fn open_directory(&self, place: &OwnedFd) -> Result<OwnedFd, Errno> {
        self.open(place, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Sets the permission bits of the file of a place; does nothing for a symbolic link, which has none.
    pub(super) fn chmod(&self, place: &OwnedFd, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & MODE_MASK);
        match fs::chmodat(&self.0, &*number(place), mode, AtFlags::empty()) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            done => done,
        }
    }

    /// Gives the file of a place one more name.
    pub(super) fn link(&self, place: &OwnedFd, dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        fs::linkat(&self.0, &*number(place), dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Fresh {
    /// Reads the attributes of a file.
    pub(super) fn new(place: OwnedFd, writing: Option<Arc<OwnedFd>>) -> Result<Self, Errno> {
        let look = look(&place)?;
        Ok(Self { place, writing, look })
    }
}

impl Look {
    fn of(found: &Statx) -> Self {
        let id = FileId { inode: found.stx_ino, generation: generation(found) };
        let kind = fs::FileType::from_raw_mode(u32::from(found.stx_mode));
        let attributes = Attributes {
            kind: file_type(kind),
            mode: u32::from(found.stx_mode) & MODE_MASK,
            links: found.stx_nlink,
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            used: found.stx_blocks.saturating_mul(SECTOR),
            device: Device { major: found.stx_rdev_major, minor: found.stx_rdev_minor },
            fsid: 0,
            fileid: found.stx_ino,
            atime: time(found.stx_atime),
            mtime: time(found.stx_mtime),
            ctime: time(found.stx_ctime),
        };
        let hold = if found.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
            Hold::Immutable
        } else if found.stx_attributes.contains(StatxAttributes::APPEND) {
            Hold::Appended
        } else {
            Hold::None
        };
        Self { id, attributes, hold }
    }

    /// Returns whether the system refuses all writes: those of a client may be anywhere in the file.
    pub(super) const fn is_held(&self) -> bool {
        match self.hold {
            Hold::None => false,
            Hold::Appended => matches!(self.attributes.kind, FileType::Regular),
            Hold::Immutable => true,
        }
    }

    /// Returns whether it is a directory.
    pub(super) const fn is_directory(&self) -> bool {
        matches!(self.attributes.kind, FileType::Directory)
    }

    /// Returns whether the file was created at a time, or later, if its file system keeps the time.
    pub(super) const fn is_born_since(&self, at: Time) -> bool {
        self.id.generation >= at.seconds as u64 * NANOS + at.nanoseconds as u64
    }

    /// Returns this look if the file is a directory.
    pub(super) const fn directory(self) -> Result<Self, Status> {
        if self.is_directory() { Ok(self) } else { Err(Status::NotDir) }
    }

    /// Returns this look if the file is a regular file.
    pub(super) const fn regular(self) -> Result<Self, Status> {
        match self.attributes.kind {
            FileType::Regular => Ok(self),
            _ => Err(Status::Inval),
        }
    }
}

/// Opens the top directory by a path that the operator gave.
pub(super) fn open_top(path: &std::path::Path, helpers: &Helpers) -> Result<(Node, Look), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Node::new(fs::open(path, flags, Mode::empty())?, helpers)
}

/// Returns a place of the file with a name in a directory; [`Errno::XDEV`] where another file system is mounted, which is
/// not asked.
pub(super) fn place_of(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(dir, name, flags, Mode::empty(), WITHIN)
}

/// Returns the identity of the file with a name in the directory `id`, as [`Node::child`] does, mostly by one system
/// call, with attributes that are current on a file system whose attributes the system itself has. A file system that is
/// mounted there is asked for nothing that it has to fetch.
pub(super) fn peek(dir: &OwnedFd, id: FileId, name: &[u8]) -> Result<Look, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match fs::statx(dir, name, flags, WANTED) {
        Ok(found) if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(Look::of(&found))
        }
        Err(Errno::NOENT) => Err(Errno::NOENT),
        // Another file system is mounted on the name; some refuse even `statx` to all but their owner.
        Ok(_) | Err(_) => match place_of(dir, name) {
            Err(Errno::XDEV) => Ok(mounted::look(mounted::id(id, name), look(dir)?.attributes)),
            place => look(place?),
        },
    }
}

/// Changes the user and the group of a place's file. To what it has already, too: the system takes SUID, SGID and
/// capabilities from it then.
pub(super) fn give(place: &OwnedFd, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    // `chown` takes all ones as "do not change".
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno::INVAL);
    }
    if uid.is_none() && gid.is_none() {
        return Ok(());
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    fs::chownat(place, "", uid, gid, AtFlags::EMPTY_PATH)
}

/// Sets the access and modification times of a place's file.
pub(super) fn set_times(place: &OwnedFd, atime: SetTime, mtime: SetTime) -> Result<(), Errno> {
    if (atime, mtime) == (SetTime::Keep, SetTime::Keep) {
        return Ok(());
    }
    let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
    fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH)
}

/// Returns whether permission bits keep the owner from opening a file.
const fn is_shut(mode: Mode) -> bool {
    !mode.contains(Mode::RUSR.union(Mode::WUSR))
}

/// Returns the permission bits of a file, and those with which its owner opens it.
///
/// # Errors
/// [`Errno::ACCESS`] if the file is not our own user's, or the permission bits are not the reason why it does not open.
fn widened(place: &OwnedFd, flags: OFlags) -> Result<(u32, u32), Errno> {
    let Attributes { uid, mode, .. } = look(place)?.attributes;
    let needed = match flags & OFlags::RWMODE {
        OFlags::RDWR => 0o600,
        OFlags::WRONLY => 0o200,
        _ => 0o400,
    };
    let is_shut = uid == rustix::process::geteuid().as_raw() && mode | needed != mode;
    if is_shut { Ok((mode, mode | needed)) } else { Err(Errno::ACCESS) }
}

/// Reads a file's identity and attributes by `statx`.
pub(super) fn look(place: impl AsFd) -> Result<Look, Errno> {
    Ok(Look::of(&fs::statx(place, "", AtFlags::EMPTY_PATH, WANTED)?))
}

/// Returns the generation of a file: its creation time, which distinguishes it from files that had its inode number
/// before. Zero if the file system does not keep that time.
fn generation(found: &Statx) -> u64 {
    if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    let born = found.stx_btime;
    // Distinct for all times within 500 years of 1970.
    born.tv_sec.cast_unsigned().wrapping_mul(NANOS).wrapping_add(u64::from(born.tv_nsec))
}

const fn file_type(kind: fs::FileType) -> FileType {
    match kind {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::BlockDevice => FileType::Block,
        fs::FileType::CharacterDevice => FileType::Character,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::Fifo => FileType::Fifo,
        _ => FileType::Regular,
    }
}

/// Converts a time to the protocol's, which reaches from 1970 to 2106.
fn time(at: StatxTimestamp) -> Time {
    match u32::try_from(at.tv_sec) {
        Ok(seconds) => Time { seconds, nanoseconds: at.tv_nsec },
        Err(_) if at.tv_sec < 0 => Time::default(),
        Err(_) => Time { seconds: u32::MAX, nanoseconds: at.tv_nsec },
    }
}

const fn timespec(to: SetTime) -> Timespec {
    match to {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::ToServer => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(Time { seconds, nanoseconds }) => {
            Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 }
        }
    }
}

/// Returns the name of a descriptor in `/proc/self/fd`.
fn number(open: &OwnedFd) -> String {
    open.as_raw_fd().to_string()
}

/// Converts an error of the system to the status that a client receives.
impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        status(errno)
    }
}

/// Resolution flags by which no name leads up, through a link, or to another mount.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// Opening never waits: not for a local process to give up its lease on the file (`F_SETLEASE` in fcntl(2)), which takes
/// as long as that process likes, up to 45 seconds, and is EWOULDBLOCK so; and not for the other end of a pipe. The
/// system has told the process to give up the lease, so that a repetition succeeds some time.
const AT_ONCE: OFlags = OFlags::NONBLOCK;
/// The `statx` fields read of every file.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);
/// The file system type of `/proc`, in `statfs`.
const PROC_MAGIC: rustix::fs::FsWord = 0x9fa0;
/// All permission bits.
pub(super) const MODE_MASK: u32 = 0o7777;
/// The unit of `stx_blocks`, in octets.
pub(super) const SECTOR: u64 = 512;
const NANOS: u64 = 1_000_000_000;
