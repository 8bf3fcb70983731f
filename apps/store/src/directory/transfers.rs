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
use std::os::fd::AsFd;
use std::sync::Arc;

use haulage::shares::Shares;
use haulage::sys::file_user::elsewhere;
use haulage::sys::files::{Credentials, Done, FileRing, Road, Stability, Writing};
use haulage_mr_pool::Local;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::{fs, io};

use super::jobs::Helpers;
use super::system::file_system::{PROMPT, TMPFS};
use super::system::rights::Rights;
use crate::backend::{ReadDone, Ticket};

mod here;
mod ring;
mod under_way;

pub use ring::Ring;
pub(super) use under_way::{
    BLOCK, Ended, Held, Lane, Read, Room, Sync, Syncing, UnderWay, Write, Writer,
};

use here::{is_passing, read_here, sync_here, write_all};
use under_way::stability;

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

/// Returns a transfer that the ring refused, as it is queued.
fn with_lease((what, lease): (UnderWay, Local)) -> (UnderWay, Option<Local>) {
    (what, Some(lease))
}

/// Maximum number of transfers that wait for the ring.
pub(super) const WAITING_MAX: usize = 1024;

#[cfg(test)]
mod tests;
