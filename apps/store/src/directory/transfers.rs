//! Transfers between files and leases.
//!
//! # Normal operation
//! The kernel reads into the lease from which the Reply is sent, and writes from the lease into which a WRITE was placed.
//! Data in memory is read within the turn. With a ring, all else is queued and ends in a later turn, and WRITEs that may
//! have to wait are made by the ring's own threads. The turn itself tries no write: on a frozen file system the system keeps
//! a write waiting before it looks at whether the write may wait, unless it came by a ring. What finds the ring full waits
//! until a transfer has ended, in the order in which Calls came. Without a ring, a blocking system call transfers the data
//! at once. Either way, what the superuser did not write is written without the server's privileges.
//!
//! A WRITE without room is made once more when the files are closed that were being closed meanwhile.
//!
//! # Limits
//! READs, WRITEs and syncs have a third of the ring each, and at most [`WAITING_MAX`] of each wait for it. These places are
//! [shared](haulage::shares) by network. What is beyond is to be asked again later ([`Transfers::admit`]). A WRITE
//! that waits for room has a place of those that wait.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use haulage::provider::Waker;
use haulage::shares::Shares;
use haulage::sys::file_user::elsewhere;
use haulage::sys::files::{Credentials, Done, FileRing, Road, Stability, Writing};
use haulage::sys::uring::Unavailable;
use haulage_mr_pool::{Local, Piece, Pieces, Pool};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::{fs, io};

use super::jobs::Helpers;
use super::node::Node;
use super::system::file_system::TMPFS;
use super::system::rights::Rights;
use crate::access::Caller;
use crate::backend::{ReadDone, Ticket};
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;

/// Asynchronous file I/O, by io_uring.
#[derive(Debug)]
pub struct Ring(pub(super) FileRing<UnderWay>);

impl Ring {
    /// Creates a ring over a core's memory. A completion wakes the core.
    ///
    /// # Errors
    /// io_uring is not available.
    pub fn new(pool: &Pool, waker: &Waker) -> Result<Self, Unavailable> {
        FileRing::new(RING_MAX, pool, waker).map(Self)
    }

    /// Returns whether the memory is registered with io_uring, which makes transfers a little faster.
    pub fn is_registered(&self) -> bool {
        self.0.is_registered()
    }
}

/// The queue of transfers, with or without a ring.
#[derive(Debug)]
pub(super) struct Transfers {
    ring: Option<FileRing<UnderWay>>,
    /// Transfers that the ring has no room for, each with the lease it reads into or writes from. If there are any, the
    /// ring is full, or has as many of their networks as it may.
    waiting: VecDeque<(UnderWay, Option<Local>)>,
    /// WRITEs without room, each with the last file that is closed before it is made once more.
    roomless: VecDeque<(u64, Write, Local)>,
    helpers: Helpers,
    /// What networks have of the places where transfers wait, and of the ring, in each [`Lane`].
    lanes: [Places; 3],
    rights: Arc<Rights>,
    reads: Promptness,
    /// The first to try a WRITE through the system's cache.
    writes: Road,
    /// The credentials with which the ring writes for all but the superuser; none if the server has no privileges.
    anonymous: Option<Credentials>,
}

/// Whether data is read without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promptness {
    /// Every call does: the file system has no disk.
    Always,
    /// The system refuses a call that would wait (`RWF_NOWAIT` in preadv2(2)).
    Asked,
    /// Not known of any call: the file system has none that can be refused.
    Never,
}

/// The places of transfers of one kind, which networks share.
#[derive(Debug)]
struct Places {
    waiting: Shares,
    under_way: Shares,
}

/// The kind of a transfer. Each has a third of the ring: READs, or WRITEs, of files that are locked for long keep neither
/// the other nor a sync waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    Write,
    Sync,
}

/// A transfer, with its progress.
#[derive(Debug)]
pub(super) enum UnderWay {
    Read(Read),
    Write(Write),
    Sync(Sync),
}

/// A file that is not closed for the last time when its transfer ends; none in tests.
pub(super) type Held = Option<Rc<Node>>;

/// A READ.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) ticket: Ticket,
    pub(super) file: Arc<OwnedFd>,
    pub(super) offset: u64,
    /// Octets to be read.
    pub(super) wanted: usize,
    /// Whether the file is read in whole blocks of [`BLOCK`] octets.
    pub(super) in_blocks: bool,
    /// Size of the file when the READ began.
    pub(super) size: u64,
    pub(super) done: usize,
    pub(super) held: Held,
}

/// A WRITE.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) ticket: Ticket,
    pub(super) file: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) stable: Stable,
    pub(super) writer: Writer,
    /// Whether it goes past the system's cache.
    pub(super) is_direct: bool,
    pub(super) done: usize,
    pub(super) room: Room,
    pub(super) held: Held,
}

/// What a WRITE knows of the room that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
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
pub(super) struct Sync {
    pub(super) ticket: Ticket,
    pub(super) file: Arc<OwnedFd>,
    pub(super) of: Syncing,
    pub(super) held: Held,
}

/// What is brought to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncing {
    /// The data of a COMMIT.
    Commit,
    /// A WRITE of no octets.
    Write(Stable),
    /// Changes of this file, or of names in this directory.
    Change(FileId),
}

/// The writer of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The superuser, for whom quotas and reserves of room do not hold.
    Superuser,
    /// Anybody else.
    Other,
}

/// A transfer that has ended.
#[derive(Debug)]
pub(super) enum Ended {
    Read(Ticket, Held, Result<ReadDone, Errno>),
    /// A WRITE, with the stability asked for and the number of octets written.
    Write(Ticket, Held, (Stable, Result<usize, Errno>)),
    Commit(Ticket, Result<(), Errno>),
    /// Changes of this file, or of names in this directory, were brought to stable storage.
    Change(FileId, Result<(), Errno>),
}

impl Transfers {
    /// Creates the queue of a server with these rights, for files of the file system of `top`.
    ///
    /// # Errors
    /// The system's, where it does not take a user without privileges for the ring.
    pub(super) fn new(
        ring: Option<Ring>,
        rights: Arc<Rights>,
        (top, helpers): (impl AsFd, &Helpers),
    ) -> std::io::Result<Self> {
        let mut ring = ring.map(|ring| ring.0);
        let anonymous = match &mut ring {
            Some(ring) if !rights.is_sole_owner() => {
                let rights = Arc::clone(&rights);
                Some(ring.register_credentials(Arc::new(move |act| {
                    let _acting = rights.as_anonymous()?;
                    act();
                    Ok(())
                }))?)
            }
            _ => None,
        };
        let under_way = ring.as_ref().map_or(0, FileRing::requests_max).div_ceil(3);
        let lane =
            || Places { waiting: Shares::new(WAITING_MAX), under_way: Shares::new(under_way) };
        let lanes = [lane(), lane(), lane()];
        let file_system = fs::fstatfs(top)?.f_type;
        let reads = if file_system == TMPFS { Promptness::Always } else { Promptness::Asked };
        let writes = if PROMPT.contains(&file_system) { Road::Kernel } else { Road::Thread };
        let (waiting, roomless, helpers) = (VecDeque::new(), VecDeque::new(), helpers.clone());
        Ok(Self { ring, waiting, roomless, helpers, lanes, rights, reads, writes, anonymous })
    }

    /// Starts reading into a lease. Returns the result if the READ ended at once.
    pub(super) fn read(
        &mut self,
        mut read: Read,
        mut lease: Local,
    ) -> Option<Result<ReadDone, Errno>> {
        let reads = if read.in_blocks { Promptness::Never } else { self.reads };
        if !self.has_ring() || reads == Promptness::Always {
            return Some(read_here(read, lease));
        }
        if reads == Promptness::Asked {
            let into = &mut lease.bytes_mut()[read.done..read.wanted];
            let into = &mut [IoSliceMut::new(into)];
            match io::preadv2(&read.file, into, read.at(), ReadWriteFlags::NOWAIT) {
                // Some systems say that a file ends where its data is not in memory.
                Ok(count) => read.done += count,
                Err(Errno::OPNOTSUPP) => self.reads = Promptness::Never,
                Err(_) => {}
            }
            if read.is_done() {
                return Some(Ok(read.end(lease)));
            }
        }
        self.queue(UnderWay::Read(read), Some(lease));
        None
    }

    /// Starts writing from a lease. Returns the result if the WRITE ended at once.
    pub(super) fn write(&mut self, mut write: Write, lease: Local) -> Option<Result<usize, Errno>> {
        if write.room == Room::Still {
            write.room = self.helpers.last_freeing().map_or(Room::Still, |_| Room::Coming);
        }
        match &self.ring {
            None => {
                let ended = self.write_here(&write, lease.bytes());
                return self.unless_roomless(write, lease, ended);
            }
            Some(_) => self.queue(UnderWay::Write(write), Some(lease)),
        }
        None
    }

    /// Returns how a WRITE ended, unless room for it is about to come.
    fn unless_roomless(
        &mut self,
        mut write: Write,
        lease: Local,
        ended: Result<usize, Errno>,
    ) -> Option<Result<usize, Errno>> {
        let is_roomless = matches!(ended, Err(Errno::NOSPC | Errno::DQUOT));
        if !is_roomless || write.done > 0 {
            return Some(ended);
        }
        let (room, last) = (write.room, self.helpers.last_freeing());
        write.room = Room::Awaited;
        let last = match (room, last) {
            (Room::Awaited, _) | (Room::Still, None) => return Some(ended),
            (Room::Still | Room::Coming, Some(last)) => last,
            // The room has come meanwhile.
            (Room::Coming, None) => return self.write(write, lease),
        };
        self.lanes[Lane::Write as usize].waiting.take(write.ticket.network, 1);
        self.roomless.push_back((last, write, lease));
        None
    }

    /// Makes WRITEs once more whose room is back. Returns one that has ended.
    fn go_on(&mut self) -> Option<Ended> {
        while let Some((last, ..)) = self.roomless.front()
            && self.helpers.has_freed(*last)
            && let Some((_, write, lease)) = self.roomless.pop_front()
        {
            let (ticket, held, stable) = (write.ticket, write.held.clone(), write.stable);
            self.lanes[Lane::Write as usize].waiting.give_back(ticket.network, 1);
            if let Some(ended) = self.write(write, lease) {
                return Some(Ended::Write(ticket, held, (stable, ended)));
            }
        }
        None
    }

    /// Starts bringing a file to stable storage. Returns the result if that ended at once.
    pub(super) fn sync(&mut self, sync: Sync) -> Option<Result<(), Errno>> {
        let stability = sync.of.stability();
        if self.has_ring() && stability != Stability::None {
            self.queue(UnderWay::Sync(sync), None);
            return None;
        }
        Some(sync_here(&sync.file, stability))
    }

    /// Returns the next transfer that has ended.
    pub(super) fn poll(&mut self) -> Option<Ended> {
        loop {
            let ended = self.go_on();
            if ended.is_some() {
                return ended;
            }
            let Done { what, lease, result } = self.ring.as_mut()?.pop()?;
            self.lanes[what.lane() as usize].under_way.give_back(what.network(), 1);
            // Every error of the ring has an errno.
            let result = result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
            let ended = match (what, lease) {
                (UnderWay::Read(read), Some(lease)) => self.on_read(read, lease, result),
                (UnderWay::Write(write), Some(lease)) => self.on_written(write, lease, result),
                (UnderWay::Sync(Sync { ticket, of, held, .. }), _) => Some(match of {
                    Syncing::Commit => Ended::Commit(ticket, result.map(drop)),
                    Syncing::Write(stable) => {
                        Ended::Write(ticket, held, (stable, result.map(|_| 0)))
                    }
                    Syncing::Change(file) => Ended::Change(file, result.map(drop)),
                }),
                (UnderWay::Read(_) | UnderWay::Write(_), None) => {
                    unreachable!("both are queued with a lease")
                }
            };
            // The ring has room again.
            self.feed();
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Returns the number of WRITEs that wait for room.
    #[cfg(test)]
    pub(super) fn roomless(&self) -> usize {
        self.roomless.len()
    }

    /// Returns whether transfers go by a ring.
    pub(super) const fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Checks that a Call may start a transfer.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if as many of its kind and its network wait for the ring as may.
    pub(super) fn admit(&self, lane: Lane, ticket: Ticket) -> Result<(), Errno> {
        let waiting = &self.lanes[lane as usize].waiting;
        if waiting.has_room(ticket.network, 1) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Writes `octets` by blocking calls, without privileges unless the superuser is the writer.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if the system starts no thread for it.
    pub(super) fn write_here(&self, write: &Write, octets: &[u8]) -> Result<usize, Errno> {
        let Write { file, offset, done, stable, .. } = write;
        let (rights, at, stability) = (&self.rights, (*offset, *done), stability(*stable));
        if write.writer == Writer::Superuser || rights.is_sole_owner() {
            return write_all(file, at, octets, stability);
        }
        let written = elsewhere(|| {
            let _acting = rights.as_anonymous()?;
            write_all(file, at, octets, stability)
        });
        written.unwrap_or(Err(Errno::AGAIN))
    }

    fn on_read(
        &mut self,
        mut read: Read,
        lease: Local,
        result: Result<usize, Errno>,
    ) -> Option<Ended> {
        let (ticket, held) = (read.ticket, read.held.clone());
        let ended = match result {
            Err(errno) if !is_passing(errno) => Err(errno),
            // The file was truncated meanwhile.
            Ok(0) => Ok(read.end(lease)),
            result => {
                read.done += result.unwrap_or(0);
                if read.is_done() { Ok(read.end(lease)) } else { self.read(read, lease)? }
            }
        };
        Some(Ended::Read(ticket, held, ended))
    }

    fn on_written(
        &mut self,
        mut write: Write,
        lease: Local,
        result: Result<usize, Errno>,
    ) -> Option<Ended> {
        let (ticket, held, stable) = (write.ticket, write.held.clone(), write.stable);
        let ended = match result {
            Err(errno) if !is_passing(errno) => {
                let ended = write.end(Err(errno));
                self.unless_roomless(write, lease, ended)?
            }
            Ok(0) => write.end(Ok(())),
            result => {
                write.done += result.unwrap_or(0);
                if write.done >= lease.len() {
                    write.end(Ok(()))
                } else {
                    self.write(write, lease)?
                }
            }
        };
        Some(Ended::Write(ticket, held, (stable, ended)))
    }

    /// Queues a transfer behind those that wait. One of which a part is done goes before those that have not begun.
    pub(super) fn queue(&mut self, what: UnderWay, lease: Option<Local>) {
        self.lanes[what.lane() as usize].waiting.take(what.network(), 1);
        if what.has_begun() {
            self.waiting.push_front((what, lease));
        } else {
            self.waiting.push_back((what, lease));
        }
        self.feed();
    }

    /// Hands what waits to the ring until the ring is full: of each network in order, as long as that has a share left.
    fn feed(&mut self) {
        let Self { ring: Some(ring), waiting, lanes, writes, anonymous, .. } = self else {
            return;
        };
        loop {
            let may_begin = |(what, _): &(UnderWay, _)| {
                lanes[what.lane() as usize].under_way.has_room(what.network(), 1)
            };
            let Some(first) = waiting.iter().position(may_begin) else { return };
            let Some((what, lease)) = waiting.remove(first) else { return };
            let (network, lane) = (what.network(), what.lane());
            let handed = match (what, lease) {
                (UnderWay::Read(read), Some(lease)) => {
                    let (file, at) = (Arc::clone(&read.file), read.at());
                    let into = read.done..read.asked();
                    ring.read(&file, at, lease, into, UnderWay::Read(read)).map_err(with_lease)
                }
                (UnderWay::Write(write), Some(lease)) => {
                    let by = anonymous.filter(|_| write.writer == Writer::Other);
                    let road = if write.is_direct { Road::Kernel } else { *writes };
                    let how = Writing { stability: stability(write.stable), by, road };
                    let (file, at) = (Arc::clone(&write.file), write.at());
                    let from = write.done..lease.len();
                    let queued = ring.write(&file, at, (lease, from), how, UnderWay::Write(write));
                    queued.map_err(with_lease)
                }
                (UnderWay::Sync(sync), _) => {
                    let (file, stability) = (Arc::clone(&sync.file), sync.of.stability());
                    ring.sync(&file, stability, UnderWay::Sync(sync)).map_err(|sync| (sync, None))
                }
                (UnderWay::Read(_) | UnderWay::Write(_), None) => {
                    unreachable!("both are queued with a lease")
                }
            };
            if let Err(refused) = handed {
                return waiting.insert(first, refused);
            }
            let lane = &mut lanes[lane as usize];
            lane.waiting.give_back(network, 1);
            lane.under_way.take(network, 1);
        }
    }
}

impl UnderWay {
    /// Returns the network of the client whose Call it is.
    const fn network(&self) -> u64 {
        match self {
            Self::Read(Read { ticket, .. })
            | Self::Write(Write { ticket, .. })
            | Self::Sync(Sync { ticket, .. }) => ticket.network,
        }
    }

    const fn lane(&self) -> Lane {
        match self {
            Self::Read(_) => Lane::Read,
            Self::Write(_) => Lane::Write,
            Self::Sync(_) => Lane::Sync,
        }
    }

    /// Returns whether a part of the transfer is done.
    const fn has_begun(&self) -> bool {
        match self {
            Self::Read(read) => read.done > 0,
            Self::Write(write) => write.done > 0,
            Self::Sync(_) => false,
        }
    }
}

impl Syncing {
    const fn stability(self) -> Stability {
        match self {
            Self::Commit => Stability::Data,
            Self::Write(stable) => stability(stable),
            Self::Change(_) => Stability::All,
        }
    }
}

impl Read {
    const fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Returns the number of octets to request from the system.
    const fn asked(&self) -> usize {
        if self.in_blocks { self.wanted.next_multiple_of(BLOCK) } else { self.wanted }
    }

    /// Returns whether the READ is complete. A READ in whole blocks is also complete at the end of the file within a
    /// block.
    const fn is_done(&self) -> bool {
        self.done >= self.wanted || self.in_blocks && !self.done.is_multiple_of(BLOCK)
    }

    fn end(&self, mut lease: Local) -> ReadDone {
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
    const fn at(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// Returns the number of octets written, if there are any; the error counts only if nothing was written.
    const fn end(&self, result: Result<(), Errno>) -> Result<usize, Errno> {
        match result {
            Err(errno) if self.done == 0 => Err(errno),
            _ => Ok(self.done),
        }
    }
}

/// Reads by blocking calls until the READ is complete or the file ends.
fn read_here(mut read: Read, mut lease: Local) -> Result<ReadDone, Errno> {
    while read.done < read.asked() {
        let into = read.done..read.asked();
        match io::pread(&read.file, &mut lease.bytes_mut()[into], read.at()) {
            Ok(0) => break,
            Ok(count) => {
                read.done += count;
                if read.is_done() {
                    break;
                }
            }
            Err(errno) if is_passing(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(read.end(lease))
}

/// Writes `octets` to a file by blocking calls, as if from `offset`, of which the first `done` are written already, until
/// all are, or an error occurs. Returns the number written, which is at least one unless `octets` is empty.
fn write_all(
    file: &OwnedFd,
    (offset, mut done): (u64, usize),
    octets: &[u8],
    stability: Stability,
) -> Result<usize, Errno> {
    while done < octets.len() {
        match io::pwrite(file, &octets[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) if is_passing(errno) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    sync_here(file, stability)?;
    Ok(done)
}

/// Brings written data to stable storage by a blocking call.
fn sync_here(file: &OwnedFd, stability: Stability) -> Result<(), Errno> {
    match stability {
        Stability::None => Ok(()),
        Stability::Data => fs::fdatasync(file),
        Stability::All => fs::fsync(file),
    }
}

/// Returns how stable data of a WRITE is when that has ended.
const fn stability(stable: Stable) -> Stability {
    match stable {
        Stable::Unstable => Stability::None,
        Stable::DataSync => Stability::Data,
        Stable::FileSync => Stability::All,
    }
}

/// Returns a transfer that the ring refused, as it is queued.
fn with_lease((what, lease): (UnderWay, Local)) -> (UnderWay, Option<Local>) {
    (what, Some(lease))
}

impl Writer {
    /// Returns who writes for a caller.
    pub(super) const fn of(caller: &Caller) -> Self {
        if caller.is_root() { Self::Superuser } else { Self::Other }
    }
}

/// Returns whether an error is transient, so that an immediate retry may work.
const fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::INTR)
}

/// The types of XFS and of btrfs, which take data into the system's cache without waiting, where they can.
const PROMPT: [fs::FsWord; 2] = [0x5846_5342, 0x9123_683e];

/// The block size of direct I/O: a page, which is a multiple of the block size of common disks.
pub(super) const BLOCK: usize = 4096;

/// Maximum number of transfers between files and memory in flight: 128 READs, WRITEs and syncs each.
const RING_MAX: u16 = 384;
/// Maximum number of transfers that wait for the ring.
pub(super) const WAITING_MAX: usize = 1024;

#[cfg(test)]
mod tests;
