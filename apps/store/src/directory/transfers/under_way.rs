//! Transfers of each kind, with their progress.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use haulage::sys::files::Stability;
use haulage_mr_pool::{Local, Piece, Pieces};
use rustix::io::Errno;

use crate::access::Caller;
use crate::backend::{ReadDone, Ticket};
use crate::directory::node::Node;
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;

/// The kind of a transfer. Each has a third of the ring: READs, or WRITEs, of files that are locked for long keep neither
/// the other nor a sync waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Read,
    Write,
    Sync,
}

/// A transfer, with its progress.
#[derive(Debug)]
pub(crate) enum UnderWay {
    Read(Read),
    Write(Write),
    Sync(Sync),
}

/// A file that is not closed for the last time when its transfer ends; none in tests.
pub(crate) type Held = Option<Rc<Node>>;

/// A READ.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) ticket: Ticket,
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) offset: u64,
    /// Octets to be read.
    pub(crate) wanted: usize,
    /// Whether the file is read in whole blocks of [`BLOCK`] octets.
    pub(crate) in_blocks: bool,
    /// Size of the file when the READ began.
    pub(crate) size: u64,
    pub(crate) done: usize,
    pub(crate) held: Held,
}

/// A WRITE.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) ticket: Ticket,
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) offset: u64,
    pub(crate) stable: Stable,
    pub(crate) writer: Writer,
    /// Whether it goes past the system's cache.
    pub(crate) is_direct: bool,
    pub(crate) done: usize,
    pub(crate) room: Room,
    pub(crate) held: Held,
}

/// What a WRITE knows of the room that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// No file was being closed when the WRITE began.
    Still,
    /// Files were being closed, whose room comes back.
    Coming,
    /// There was no room before.
    Awaited,
}

/// What is on its way to stable storage: a COMMIT, a WRITE of no octets that is to be stable, or changes of names and
/// attributes.
#[derive(Debug)]
pub(crate) struct Sync {
    pub(crate) ticket: Ticket,
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) of: Syncing,
    pub(crate) held: Held,
}

/// What is brought to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncing {
    /// The data of a COMMIT.
    Commit,
    /// A WRITE of no octets.
    Write(Stable),
    /// Changes of this file, or of names in this directory.
    Change(FileId),
}

/// The writer of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The superuser, for whom quotas and reserves of room do not hold.
    Superuser,
    /// Anybody else.
    Other,
}

/// A transfer that has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Read(Ticket, Held, Result<ReadDone, Errno>),
    /// A WRITE, with the stability asked for and the number of octets written.
    Write(Ticket, Held, (Stable, Result<usize, Errno>)),
    Commit(Ticket, Result<(), Errno>),
    /// Changes of this file, or of names in this directory, were brought to stable storage.
    Change(FileId, Result<(), Errno>),
}

impl UnderWay {
    /// Returns the network of the client whose Call it is.
    pub(super) const fn network(&self) -> u64 {
        match self {
            Self::Read(Read { ticket, .. })
            | Self::Write(Write { ticket, .. })
            | Self::Sync(Sync { ticket, .. }) => ticket.network,
        }
    }

    pub(super) const fn lane(&self) -> Lane {
        match self {
            Self::Read(_) => Lane::Read,
            Self::Write(_) => Lane::Write,
            Self::Sync(_) => Lane::Sync,
        }
    }

    /// Returns whether a part of the transfer is done.
    pub(super) const fn has_begun(&self) -> bool {
        match self {
            Self::Read(read) => read.done > 0,
            Self::Write(write) => write.done > 0,
            Self::Sync(_) => false,
        }
    }
}

impl Syncing {
    pub(super) const fn stability(self) -> Stability {
        match self {
            Self::Commit => Stability::Data,
            Self::Write(stable) => stability(stable),
            Self::Change(_) => Stability::All,
        }
    }
}

impl Read {
    pub(super) const fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Returns the number of octets to request from the system.
    pub(super) const fn asked(&self) -> usize {
        if self.in_blocks { self.wanted.next_multiple_of(BLOCK) } else { self.wanted }
    }

    /// Returns whether the READ is complete. A READ in whole blocks is also complete at the end of the file within a
    /// block.
    pub(super) const fn is_done(&self) -> bool {
        self.done >= self.wanted || self.in_blocks && !self.done.is_multiple_of(BLOCK)
    }

    pub(super) fn end(&self, mut lease: Local) -> ReadDone {
        let done = self.done.min(self.wanted);
        lease.set_len(done);
        let mut data = Pieces::default();
        let fits = data.push(Piece::whole(lease.share()));
        debug_assert!(fits.is_ok(), "the row is empty");
        let end = self.offset + done as u64;
        ReadDone { data, end, eof: done < self.wanted || end >= self.size }
    }
}

impl Write {
    pub(super) const fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Returns the number of octets written, if there are any; the error counts only if nothing was written.
    pub(super) const fn end(&self, result: Result<(), Errno>) -> Result<usize, Errno> {
        match result {
            Err(errno) if self.done == 0 => Err(errno),
            _ => Ok(self.done),
        }
    }
}

impl Writer {
    /// Returns who writes for a caller.
    pub(crate) const fn of(caller: &Caller) -> Self {
        if caller.is_root() { Self::Superuser } else { Self::Other }
    }
}

/// Returns how stable data of a WRITE is when that has ended.
pub(super) const fn stability(stable: Stable) -> Stability {
    match stable {
        Stable::Unstable => Stability::None,
        Stable::DataSync => Stability::Data,
        Stable::FileSync => Stability::All,
    }
}

/// The block size of direct I/O: a page, which is a multiple of the block size of common disks.
pub(crate) const BLOCK: usize = 4096;
