//! One file, held by a [place](super::system::place), and the operations on it.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::closing::{PathDescriptor, may_be_large};
use super::jobs::Helpers;
use super::system::acl;
use super::system::descriptors::{Descriptors, OpenShut, widened};
use super::system::look::{Look, MODE_MASK, look};
use super::system::mounted;
use super::system::place::{Fresh, WITHIN, place_of};
use crate::handle::FileId;
use crate::nfs3::FileType;

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

/// A time within which attributes hold: no Call came after they were read, and the server changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl Moment {
    /// Returns the next moment, for which attributes are read anew.
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A descriptor that a helper opens for a node.
#[derive(Debug)]
struct Opening {
    flags: OFlags,
    opened: Receiver<Result<OwnedFd, Errno>>,
}

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

/// Opens the top directory by a path that the operator gave.
pub(super) fn open_top(path: &std::path::Path, helpers: &Helpers) -> Result<(Node, Look), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Node::new(fs::open(path, flags, Mode::empty())?, helpers)
}

/// Returns whether permission bits keep the owner from opening a file.
const fn is_shut(mode: Mode) -> bool {
    !mode.contains(Mode::RUSR.union(Mode::WUSR))
}
