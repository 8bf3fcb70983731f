//! What a server needs from storage, and nothing more.

use haulage::service::ResultSource;
use haulage_mr_pool::{Local, Pool};

use crate::access::Caller;
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Attributes, Device, FileType, Name, SetAttributes, Status, Time, Verifier};
use haulage_mr_pool::{Piece, Pieces};

/// A file system that can be served.
///
/// Contract:
/// - Nothing blocks. What takes long is answered [`Progress::Later`], and its end comes out of
///   [`poll`](Self::poll), once, with the ticket it was begun with.
/// - What is not known is [`Status::Stale`]: a backend never acts on a [`FileId`] whose file is gone.
/// - Who may do what was decided by the caller; a backend may refuse more.
/// - Names come as clients sent them, but never empty, never `.` or `..` (but for
///   [`lookup`](Self::lookup)), never with a slash or a NUL, and never longer than
///   [`Capabilities::name_max`].
/// - A file's `ctime` changes with every change of it, so that two looks tell whether it changed.
pub trait Backend {
    /// Returns the directory at the top.
    fn root(&self) -> FileId;

    /// Returns what does not change while it is served.
    fn capabilities(&self) -> Capabilities;

    /// Returns where the data of a READ come from: memory that the backend holds, or memory that it leases to read
    /// into.
    fn read_source(&self) -> ResultSource {
        ResultSource::Resident
    }

    /// Returns how much room there is.
    fn room(&mut self, cx: &Context<'_>) -> Result<Room, Status>;

    /// Returns a file's attributes. Their `fsid` is the server's to fill in.
    fn attributes(&mut self, cx: &Context<'_>, file: FileId) -> Result<Attributes, Status>;

    /// Changes a file's attributes; a size cuts it, or extends it with zeros.
    fn set_attributes(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        to: &SetAttributes,
    ) -> Result<(), Status>;

    /// Finds a name; `.` is the directory itself, `..` the one it is in, the top being its own.
    fn lookup(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<FileId, Status>;

    /// Makes a file under a name that must be free.
    fn make(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        name: Name<'_>,
        new: New<'_>,
    ) -> Result<FileId, Status>;

    /// Gives a file one more name, which must be free.
    fn link(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        dir: FileId,
        name: Name<'_>,
    ) -> Result<(), Status>;

    /// Removes a name that is not a directory's.
    fn remove(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<(), Status>;

    /// Removes an empty directory.
    fn remove_dir(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<(), Status>;

    /// Renames at once whatever has a name. What has the new name is removed, if it is of the same
    /// kind and no directory with names in it; if both names are the same file's, nothing happens.
    fn rename(
        &mut self,
        cx: &Context<'_>,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Result<(), Status>;

    /// Shows the names in a directory behind a place, in an order that changes with no change of it,
    /// until `show` returns false or there are none. Returns whether there are none.
    ///
    /// The place before the first is zero. Cookies are [`COOKIE_MIN`] at least: those below are the
    /// server's. `.` and `..` are not shown.
    fn list(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status>;

    /// Returns what changes when a directory's cookies lose their meaning.
    fn cookie_verifier(&mut self, cx: &Context<'_>, dir: FileId) -> Result<Verifier, Status> {
        let _ = (cx, dir);
        Ok(Verifier(0))
    }

    /// Returns what a symbolic link holds.
    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status>;

    /// Reads at most `count` octets of a regular file, fewer only before its end or where the row of
    /// pieces is full.
    fn read(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Progress<ReadDone>;

    /// Writes to a regular file. Octets that were placed should stay where they are.
    fn write(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone>;

    /// Brings to stable storage what was written; `count` zero is all behind `offset`.
    fn commit(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Progress<Verifier>;

    /// Returns whether a file can be acted on at once. What is not at hand has to be
    /// [located](Self::locate) first; until it is, everything asked of it is answered
    /// [`Status::Jukebox`].
    fn is_at_hand(&self, file: FileId) -> bool {
        let _ = file;
        true
    }

    /// Finds a file that is not at hand, or finds out that it is gone. If that takes long, its end comes
    /// out of [`poll`](Self::poll).
    fn locate(&mut self, file: FileId) -> Located {
        let _ = file;
        Located::Now
    }

    /// Begins a turn of the core: what the backend checked in the last one holds no more, and it does a
    /// bounded part of the work that outlasts a Call. Returns whether there is more of that.
    fn turn(&mut self) -> bool {
        false
    }

    /// Returns whether the backend has work that goes on in the next turn, such as a search.
    fn has_work(&self) -> bool {
        false
    }

    /// Returns the next of those that were to come later and have ended.
    fn poll(&mut self) -> Option<Finished> {
        None
    }
}

/// What surrounds one Call.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The registered memory of the core that serves it.
    pub pool: &'a Pool,
    /// The time of day.
    pub now: Time,
    /// Who calls, as far as they are believed.
    pub caller: &'a Caller,
}

/// Names an operation that ends later. The server's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Whether an operation has ended.
#[derive(Debug)]
pub enum Progress<T> {
    /// It has, like this.
    Ended(Result<T, Status>),
    /// It has not; [`Backend::poll`] tells when.
    Later,
}

/// Whether a file was located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// It was, or is known to be gone.
    Now,
    /// It is being searched for; [`Finished::Located`] tells when that has ended.
    Later,
    /// Too many others are being searched for.
    Busy,
}

/// The end of an operation that came later.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a READ takes nothing from the heap")]
pub enum Finished {
    /// Of [`Backend::read`].
    Read(Ticket, Result<ReadDone, Status>),
    /// Of [`Backend::write`].
    Write(Ticket, Result<WriteDone, Status>),
    /// Of [`Backend::commit`].
    Commit(Ticket, Result<Verifier, Status>),
    /// Of [`Backend::locate`]: the file is at hand, or is known to be gone, or has to be asked for again
    /// in a while.
    Located(FileId),
}

/// What was read.
#[derive(Debug)]
pub struct ReadDone {
    /// The octets.
    pub data: Pieces,
    /// Whether the file ends behind them.
    pub eof: bool,
}

/// What is to be written.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Where.
    pub offset: u64,
    /// What.
    pub data: Octets<'a>,
    /// How stable it must be when it is answered.
    pub stable: Stable,
}

/// Octets that came with a Call.
#[derive(Debug)]
pub enum Octets<'a> {
    /// They are in a message, and have to be copied to be kept.
    Inline(&'a [u8]),
    /// They came by direct data placement and can stay where they are.
    Placed(Local),
}

impl Octets<'_> {
    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Placed(lease) => lease.bytes(),
        }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// How many octets: at least one, if there were any.
    pub count: u32,
    /// How stable they are.
    pub stable: Stable,
    /// Changes when what was not stable may have been lost.
    pub verifier: Verifier,
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// What kind of file.
    pub kind: NewKind<'a>,
    /// The permission bits.
    pub mode: u32,
    /// Who owns it.
    pub uid: u32,
    /// Which group it belongs to.
    pub gid: u32,
}

/// A kind of file, with what such a file is made of.
#[derive(Clone, Copy, Debug)]
pub enum NewKind<'a> {
    /// A regular file, empty.
    Regular,
    /// A directory, empty.
    Directory,
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A device, a socket or a pipe.
    Special(FileType, Device),
}

impl NewKind<'_> {
    /// Returns what kind of file it is.
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(kind, _) => *kind,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The name.
    pub name: Name<'a>,
    /// The file that has it.
    pub file: FileId,
    /// The place behind it.
    pub cookie: u64,
}

/// The least cookie a backend may use: one and two are the server's `.` and `..`.
pub const COOKIE_MIN: u64 = 3;

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Octets in all.
    pub total_bytes: u64,
    /// Octets not in use.
    pub free_bytes: u64,
    /// Files there can be.
    pub total_files: u64,
    /// Files there can be yet.
    pub free_files: u64,
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Octets of the longest name.
    pub name_max: u32,
    /// Names a file can have.
    pub links_max: u32,
    /// Octets of the longest file.
    pub file_max: u64,
    /// How exact times are.
    pub time_delta: Time,
}

#[cfg(test)]
pub(crate) mod bed;
#[cfg(test)]
mod contract;
