//! The storage interface of the NFS server: [`Backend`] and its argument and result types.

use haulage::service::ResultSource;
use haulage_mr_pool::{Local, Pool};

use crate::access::Caller;
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{
    Attributes, Device, FileType, Name, SetAttributes, SetTime, Status, Time, Verifier,
};
use haulage_mr_pool::{Piece, Pieces};

/// A file system that can be served.
///
/// Contract:
/// - No method blocks. A slow operation returns [`Progress::Later`], and [`poll`](Self::poll) returns its result, once,
///   with the ticket of the operation.
/// - An unknown file is [`Status::Stale`]: a backend never acts on a [`FileId`] whose file is gone.
/// - A change of attributes or names is the backend's to judge, for the caller in its [`Context`], and when it is made:
///   what was read before may be true no longer. Before reading, writing, looking up and listing, the server
///   [asks](Self::check); a backend may refuse more.
/// - Names are as clients sent them, but never empty, never `.` or `..` (except in [`lookup`](Self::lookup)), never
///   with a slash or a NUL, and never longer than [`Capabilities::name_max`].
/// - A file's `ctime` changes with every change of the file, so that comparing it detects changes.
pub trait Backend {
    /// Returns the directory at the top.
    fn root(&self) -> FileId;

    /// Returns the limits and abilities of the file system, which do not change while it is served.
    fn capabilities(&self) -> Capabilities;

    /// Returns where the data of a READ come from: memory that the backend holds, or memory that it leases to read
    /// into.
    fn read_source(&self) -> ResultSource {
        ResultSource::Resident
    }

    /// Returns the status of a Call whose data found no memory in the pool, where none is to be expected while the files
    /// stay as they are: [`Status::NoSpc`] if the data of files fills the pool. By default it is [`Status::Jukebox`]:
    /// memory that is leased for transfers alone comes back.
    fn exhausted(&self) -> Status {
        Status::Jukebox
    }

    /// Returns whether nobody may change a file, whatever its permission bits and whoever asks, as on a read-only file
    /// system. The server asks after [`attributes`](Self::attributes), for the same file.
    fn is_read_only(&self, file: FileId) -> bool {
        let _ = file;
        false
    }

    /// Returns whether the file system takes no changes now, of whatever file. The server asks for ACCESS alone: a change
    /// of such a file system is refused by the backend.
    fn is_mounted_read_only(&self) -> bool {
        false
    }

    /// Returns the total and free space.
    fn room(&mut self, cx: &Context<'_>) -> Result<Room, Status>;

    /// Returns a file's attributes. The server fills in their `fsid`.
    fn attributes(&mut self, cx: &Context<'_>, file: FileId) -> Result<Attributes, Status>;

    /// Checks that a file with these attributes, which were just [read](Self::attributes), allows the caller all of
    /// `wanted`, a sum of [`READ`](crate::access::READ), [`WRITE`](crate::access::WRITE) and
    /// [`EXECUTE`](crate::access::EXECUTE). By default the permission bits decide.
    ///
    /// # Errors
    /// [`Status::Acces`] if the owner could allow it, [`Status::Perm`] if not.
    fn check(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        attributes: &Attributes,
        wanted: u32,
    ) -> Result<(), Status> {
        let _ = file;
        cx.caller.check(attributes, wanted)
    }

    /// Changes a file's attributes, if the caller may. A new size truncates the file, or extends it with zeros. A program
    /// loses SUID and SGID when its owner or group is set, and when anybody but the superuser sets its size.
    fn change(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        setting: &Setting,
    ) -> Progress<()>;

    /// Looks up a name. `.` is the directory itself and `..` its parent; the top is its own parent.
    fn lookup(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<FileId, Status>;

    /// Returns whether a change of a file, or of a name in a directory, is made and not on stable storage yet.
    fn is_unsettled(&self, file: FileId) -> bool {
        let _ = file;
        false
    }

    /// Has [`poll`](Self::poll) report when all is on stable storage that was changed of these files, and of names in them.
    fn settle(&mut self, ticket: Ticket, files: [Option<FileId>; 3]) -> Result<(), Status> {
        let _ = (ticket, files);
        Err(Status::NotSupp)
    }

    /// Returns the file of a name that was [read](Self::look_into) for the Call, and what it is like; `None` if the name is
    /// to be looked up.
    fn listed(
        &mut self,
        dir: FileId,
        name: Name<'_>,
    ) -> Option<Result<(FileId, Attributes), Status>> {
        let _ = (dir, name);
        None
    }

    /// Looks up the names of a Call before it is executed, so that [`lookup`](Self::lookup) and changes of these names do
    /// not wait. What was looked up for an earlier Call is forgotten.
    fn look_up(&mut self, ticket: Ticket, names: [Option<(FileId, Name<'_>)>; 2]) -> Names {
        let _ = (ticket, names);
        Names::Known
    }

    /// Reads the names that a Call lists before it is executed, so that [`list`](Self::list), and [`lookup`](Self::lookup)
    /// of these names, do not wait. What was read for an earlier Call is forgotten.
    fn look_into(&mut self, ticket: Ticket, listing: &Listing) -> Names {
        let _ = (ticket, listing);
        Names::Known
    }

    /// Creates a file under a name that must be free. A failure leaves no file behind.
    fn make(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        at: (FileId, Name<'_>),
        new: New<'_>,
    ) -> Progress<FileId>;

    /// Gives a file one more name, which must be free.
    fn link(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        at: (FileId, Name<'_>),
    ) -> Progress<()>;

    /// Removes the name of a file that is not a directory.
    fn remove(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()>;

    /// Removes an empty directory.
    fn remove_dir(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()>;

    /// Renames a file or directory atomically. An existing target is replaced if both are directories or neither is,
    /// and a replaced directory must be empty. If both names belong to one file, nothing happens.
    fn rename(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Progress<()>;

    /// Passes the names of a directory that follow a cookie to `show`, until `show` returns false or no name is left;
    /// a backend that has to [read](Self::look_into) them first, no more than it has read. Returns whether no name is
    /// left. The order of the names does not change when the directory does.
    ///
    /// Cookie zero is the start. The cookies of names are at least [`COOKIE_MIN`]; the server uses those below. `.`
    /// and `..` are not passed.
    fn list(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status>;

    /// Returns a verifier that changes when a directory's cookies become invalid.
    fn cookie_verifier(&mut self, cx: &Context<'_>, dir: FileId) -> Result<Verifier, Status> {
        let _ = (cx, dir);
        Ok(Verifier(0))
    }

    /// Returns the path in a symbolic link.
    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status>;

    /// Reads at most `count` octets of a regular file; fewer only at its end, or if [`Pieces`] has no room for more.
    fn read(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Progress<ReadDone>;

    /// Writes to a regular file. A backend should keep placed octets where they are, and not copy them. A program loses
    /// SUID and SGID when anybody but the superuser writes to it.
    fn write(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone>;

    /// Brings written octets to stable storage. A `count` of zero means all from `offset` to the end of the file.
    fn commit(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Progress<Verifier>;

    /// Returns whether a change of a file, or of a name in a directory, is under way. A Call that changes the file waits
    /// until that is made, before anything is checked for it. A Call that only makes or removes this name in a directory
    /// need not wait for those that do so with others, unless too many are under way.
    fn is_changing(&self, file: FileId, name: Option<Name<'_>>) -> bool {
        let _ = (file, name);
        false
    }

    /// Says that a Call waits which takes these names, mostly to make files of them.
    fn expect(&mut self, dir: FileId, name: Name<'_>) {
        let _ = (dir, name);
    }

    /// Returns a file that the names of a Call lead to, as they were [looked up](Self::look_up), and that is changing. A
    /// Call that changes these names waits for it, too.
    fn named_changing(&self) -> Option<FileId> {
        None
    }

    /// Returns whether a file can be acted on at once. Another file must be [located](Self::locate) first; until then,
    /// every operation on it fails with [`Status::Jukebox`].
    fn is_at_hand(&self, file: FileId) -> bool {
        let _ = file;
        true
    }

    /// Finds a file that is not at hand, or finds that it is gone. If this returns [`Located::Later`],
    /// [`poll`](Self::poll) reports the end of the search.
    fn locate(&mut self, file: FileId) -> Located {
        let _ = file;
        Located::Now
    }

    /// Takes in that Calls have arrived since attributes were last read: for these, the attributes are read anew.
    fn forget_attributes(&mut self) {}

    /// Begins a turn of the core. The backend drops the checks cached in the last turn and does a bounded part of its
    /// background work. Returns whether more background work is left.
    fn turn(&mut self) -> bool {
        false
    }

    /// Returns whether the backend has background work for the next turn, such as a search.
    fn has_work(&self) -> bool {
        false
    }

    /// Returns the next operation that ended after it returned [`Progress::Later`] or [`Located::Later`].
    fn poll(&mut self) -> Option<Finished> {
        None
    }
}

/// The context of one Call: memory, time and caller.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The registered memory of the core that serves the Call.
    pub pool: &'a Pool,
    /// The time of day.
    pub now: Time,
    /// The caller, after squashing.
    pub caller: &'a Caller,
}

/// Identifies an operation that ends later, and says whose it is. The server chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The number, which no other operation has.
    pub number: u64,
    /// The network of the client. What is bounded is shared by network.
    pub network: u64,
}

/// The state of an operation: ended with a result, or still running.
#[derive(Debug)]
pub enum Progress<T> {
    /// The operation ended with this result.
    Ended(Result<T, Status>),
    /// The operation is still running; [`Backend::poll`] returns its result.
    Later,
}

impl<T> From<Result<T, Status>> for Progress<T> {
    fn from(ended: Result<T, Status>) -> Self {
        Self::Ended(ended)
    }
}

/// The state of a search for a file, as [`Backend::locate`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// The file is at hand, or is known to be gone.
    Now,
    /// The file is being searched for; [`Finished::Located`] reports the end of the search.
    Later,
    /// Too many other files are being searched for.
    Busy,
}

/// The names of a directory that a Call lists, and what it takes of them at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listing {
    /// The directory.
    pub dir: FileId,
    /// The cookie that the names follow.
    pub after: u64,
    /// Maximum number of names.
    pub names_max: usize,
    /// Octets for all names but the first.
    pub octets_max: usize,
    /// Octets that a name takes of these, besides its own.
    pub octets_each: usize,
    /// Whether the Call looks up each name that is shown.
    pub kind: ListingKind,
}

/// The knowledge that a Call needs of the names that it lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListingKind {
    /// The Call needs to know which files have the names.
    Names,
    /// The Call looks up the files.
    Files,
}

/// The state of the names of a Call, as [`Backend::look_up`] and [`Backend::look_into`] return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The names are looked up, or read.
    Known,
    /// A name is being looked up, or the names are being read; [`Finished::LookedUp`] or [`Finished::Listed`] reports
    /// the end, and the server asks again.
    Begun,
    /// Other names of this directory are being looked up, or read for another Call; the server asks again once one was
    /// looked up, or the other Call was executed.
    Behind(FileId),
    /// Too many names are being looked up.
    Full,
}

/// The result of an operation that ended later.
#[derive(Debug)]
pub enum Finished {
    /// The result of [`Backend::read`].
    Read(Ticket, Result<ReadDone, Status>),
    /// The result of [`Backend::write`].
    Write(Ticket, Result<WriteDone, Status>),
    /// The result of [`Backend::commit`].
    Commit(Ticket, Result<Verifier, Status>),
    /// The Call with this ticket keeps these files from other changes no longer: its own is made, or refused. The result
    /// follows, once the change is on stable storage. With the attributes of the first file around the change, if later changes of
    /// that file may have been made before this is reported.
    Free(Ticket, Vec<FileId>, Option<Around>),
    /// The result of [`Backend::make`].
    Made(Ticket, Result<FileId, Status>),
    /// The result of [`Backend::change`], of another change of names, or of [`Backend::settle`].
    Changed(Ticket, Result<(), Status>),
    /// A name of the Call with this ticket has been looked up, in this directory; without a ticket, one for no Call: those
    /// behind it ask again.
    LookedUp(Option<Ticket>, FileId),
    /// The names that the Call with this ticket lists have been read, in this directory.
    Listed(Ticket, FileId),
    /// The result of [`Backend::locate`]: the file is at hand, or is known to be gone, or the client must ask again
    /// later.
    Located(FileId),
}

/// The attributes of a file before and after a change, without their `fsid`.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// The attributes before.
    pub before: Attributes,
    /// The attributes after.
    pub after: Attributes,
}

/// The result of a read.
#[derive(Debug)]
pub struct ReadDone {
    /// The octets.
    pub data: Pieces,
    /// The offset in the file behind the octets.
    pub end: u64,
    /// Whether the file ended there when they were read.
    pub eof: bool,
}

/// The attributes that a caller sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The attributes. Times have less than a second of nanoseconds.
    pub to: SetAttributes,
    /// The `ctime` that the file must have; with another one it is left as it is, and the result is
    /// [`Status::NotSync`].
    pub guard: Option<Time>,
}

impl From<SetAttributes> for Setting {
    fn from(to: SetAttributes) -> Self {
        Self { to, guard: None }
    }
}

/// The data of a write, and where it goes.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The offset in the file.
    pub offset: u64,
    /// The octets to write.
    pub data: Octets<'a>,
    /// How stable the octets must be before the Reply.
    pub stable: Stable,
}

/// The octets that a Call brought.
#[derive(Debug)]
pub enum Octets<'a> {
    /// Octets in a message; keeping them takes a copy.
    Unreduced(&'a [u8]),
    /// Octets that came by direct data placement and can stay where they are.
    Placed(Local),
}

impl Octets<'_> {
    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Unreduced(bytes) => bytes,
            Self::Placed(lease) => lease.bytes(),
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// The number of octets written: at least one, unless the write was empty.
    pub count: u32,
    /// How stable the written octets are.
    pub stable: Stable,
    /// The write verifier, which changes when unstable octets may have been lost.
    pub verifier: Verifier,
}

/// The kind, permissions, owner, size and times of a file to be created.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The kind of file.
    pub kind: NewKind<'a>,
    /// The permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The size of a regular file, which reads as zeros; `None` for an empty one.
    pub size: Option<u64>,
    /// The access time; [`SetTime::Keep`] is now.
    pub atime: SetTime,
    /// The modification time; [`SetTime::Keep`] is now.
    pub mtime: SetTime,
}

/// The kind of a file to be created, with its content.
#[derive(Clone, Copy, Debug)]
pub enum NewKind<'a> {
    /// A regular file.
    Regular,
    /// A directory, empty.
    Directory,
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A device, a socket or a pipe.
    Special(FileType, Device),
}

impl NewKind<'_> {
    /// Returns the file type of the attributes.
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(kind, _) => *kind,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The name.
    pub name: Name<'a>,
    /// The file that has it.
    pub file: FileId,
    /// The cookie from which a listing continues after this name.
    pub cookie: u64,
}

/// The least cookie a backend may use: one and two are the server's `.` and `..`.
pub const COOKIE_MIN: u64 = 3;

/// The size and free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Octets in total.
    pub total_bytes: u64,
    /// Octets not in use.
    pub free_bytes: u64,
    /// Free octets that callers may use: some file systems reserve the rest for their superuser.
    pub available_bytes: u64,
    /// Files in total, existing and free.
    pub total_files: u64,
    /// Files that do not exist yet.
    pub free_files: u64,
    /// Files that callers may create.
    pub available_files: u64,
}

/// The limits and abilities of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Octets of the longest name.
    pub name_max: u32,
    /// Maximum number of names of one file.
    pub links_max: u32,
    /// Maximum size of a file, in octets.
    pub file_max: u64,
    /// The resolution of timestamps.
    pub time_delta: Time,
}

#[cfg(test)]
pub(crate) mod bed;
#[cfg(test)]
mod contract;
