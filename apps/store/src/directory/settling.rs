//! Changes that were made and are not on stable storage yet.
//!
//! # Normal operation
//! A helper makes a change in the time of a few system calls, and the core takes it in at once: others see it, and change
//! the same directory. Only its Reply waits until all that was changed is on stable storage. One sync of a file, or of a
//! directory, settles all changes that were made before it began: those made while it is under way are gathered for the
//! next one, since it need not include them. So a sync under way keeps no change from being made, and what it costs is
//! shared. Files are synced beside each other.
//!
//! A Call that is answered at once because of what another one has just made waits until that is settled, too
//! ([`Settling::settle_others`]): a CREATE that finds the file, a REMOVE that finds none. So does a change of a file whose
//! own name is not settled yet.
//!
//! A sync goes by the ring, or by a helper: without a ring, and for a whole file system. Where the core makes changes
//! itself, for want of helpers, it settles each at once by blocking calls.
//!
//! # Recovery
//! If a sync fails, all Calls fail that wait for it, and the write verifier changes.
//!
//! # Limits
//! At most [`SETTLING_MAX`] Calls have a change under way or unsettled. These places are shared by network. Each takes
//! two syncs at most, which are counted with the transfers, or with the jobs of helpers, but wait for room there.

use std::collections::{BTreeMap, VecDeque};

use haulage::shares::Shares;
use rustix::io::Errno;

use super::helpers::Cost;
use super::jobs::syncing::{Sync, Target};
use super::shared::Shared;
use super::transfers::{self, Held, Syncing, Transfers};
use super::tree::files::Files;
use crate::backend::{Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::Status;

/// The changes that are not on stable storage yet.
#[derive(Debug)]
pub(super) struct Settling {
    calls: BTreeMap<Ticket, Unsettled>,
    gathers: BTreeMap<Target, Gather>,
    /// What is to be synced, and is not.
    due: VecDeque<Target>,
    ended: VecDeque<Finished>,
    places: Shares,
    /// The syncs begun, and whether they fail.
    #[cfg(test)]
    begun: Vec<Target>,
    #[cfg(test)]
    fails: bool,
}

/// A Call that waits for stable storage.
#[derive(Debug)]
struct Unsettled {
    /// What the server is told if all syncs succeed.
    finished: Finished,
    /// Number of syncs that it waits for.
    left: usize,
    failed: Option<Status>,
}

/// The Calls that wait for syncs of one target.
#[derive(Debug)]
struct Gather {
    /// Those that the sync under way settles; none if there is none.
    running: Vec<Ticket>,
    /// Those that the next one settles.
    next: Vec<Ticket>,
    sync: Sync,
    held: Held,
}

/// A sync that is to begin.
struct Due {
    target: Target,
    /// The first Call that waits for it.
    ticket: Ticket,
    sync: Sync,
    held: Held,
}

impl Settling {
    pub(super) const fn new() -> Self {
        Self {
            calls: BTreeMap::new(),
            gathers: BTreeMap::new(),
            due: VecDeque::new(),
            ended: VecDeque::new(),
            places: Shares::new(SETTLING_MAX),
            #[cfg(test)]
            begun: Vec::new(),
            #[cfg(test)]
            fails: false,
        }
    }

    /// Has a Call wait until what it has changed is on stable storage.
    pub(super) fn settle(
        &mut self,
        files: &mut Files,
        ticket: Ticket,
        (finished, changed): (Finished, Vec<Sync>),
    ) {
        let mut left = 0;
        let mut dirs = Vec::new();
        for sync in changed {
            let file = match sync.target() {
                Target::File(file) => Some(file),
                Target::FileSystem => None,
            };
            dirs.extend(file.and_then(|file| files.seen_in(file)));
            let held = file.and_then(|file| files.at_hand(file));
            left += usize::from(self.join(ticket, sync, held));
        }
        for dir in dirs {
            left += usize::from(self.follow(ticket, dir));
        }
        self.wait_for(ticket, finished, left);
    }

    /// Has a Call wait until what others have changed of these files is on stable storage.
    pub(super) fn settle_others(
        &mut self,
        ticket: Ticket,
        files: [Option<FileId>; 3],
    ) -> Result<(), Status> {
        if self.is_full(ticket) {
            return Err(Status::Jukebox);
        }
        self.enter(ticket);
        let waits = |file| self.follow(ticket, file);
        let left = files.into_iter().flatten().map(waits).filter(|waits| *waits).count();
        self.wait_for(ticket, Finished::Changed(ticket, Ok(())), left);
        Ok(())
    }

    fn wait_for(&mut self, ticket: Ticket, finished: Finished, left: usize) {
        if left == 0 {
            return self.leave(ticket, finished);
        }
        self.calls.insert(ticket, Unsettled { finished, left, failed: None });
    }

    /// Begins the syncs that are due. Before that, the names that were changed are recorded.
    pub(super) fn begin_syncs(&mut self, files: &mut Files, transfers: &mut Transfers) {
        files.write_gathered();
        while let Some((target, ticket)) = self.peek() {
            let by_ring = transfers.has_ring() && target != Target::FileSystem;
            // When a helper has ended, the core goes on.
            if !by_ring && files.helpers.is_full(Cost::Sync, ticket.network) {
                return;
            }
            let Some(Due { target, ticket, sync, held }) = self.begin() else { return };
            let done = match (sync, target) {
                (Sync::File(_, file), Target::File(id)) if by_ring => {
                    let of = Syncing::Change(id);
                    transfers.sync(transfers::Sync { ticket, file, of, held })
                }
                (sync, target) => {
                    let refused = files.helpers.sync(sync, target, ticket);
                    refused.map(|sync| sync.run())
                }
            };
            if let Some(done) = done {
                self.synced(&mut files.shared, target, done);
            }
        }
    }

    /// Takes in that a sync has ended.
    pub(super) fn synced(&mut self, shared: &mut Shared, target: Target, done: Result<(), Errno>) {
        let ended = done.map_err(|errno| shared.verifier.lost(errno));
        self.settle_target(target, ended);
    }

    /// Returns whether as many changes are under way or unsettled as may, for the Call with this ticket.
    pub(super) fn is_full(&self, ticket: Ticket) -> bool {
        !self.places.has_room(ticket.network, 1)
    }

    /// Returns whether a change of a file, or of a name in a directory, is not on stable storage.
    pub(super) fn is_unsettled(&self, file: FileId) -> bool {
        self.gathers.contains_key(&Target::File(file))
    }

    /// Takes in that a change is under way.
    pub(super) fn enter(&mut self, ticket: Ticket) {
        self.places.take(ticket.network, 1);
    }

    /// Takes in that a Call waits for nothing any more.
    fn leave(&mut self, ticket: Ticket, finished: Finished) {
        self.places.give_back(ticket.network, 1);
        self.ended.push_back(finished);
    }

    /// Returns whether the server is to be told of Calls that are settled.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns what became of the next Call that is settled.
    pub(super) fn next_ended(&mut self) -> Option<Finished> {
        self.ended.pop_front()
    }

    /// Has a Call wait for the next sync of what it has changed. Returns whether it waits for one more.
    fn join(&mut self, ticket: Ticket, sync: Sync, held: Held) -> bool {
        let target = sync.target();
        let none = || Gather { running: Vec::new(), next: Vec::new(), sync: sync.clone(), held };
        let gather = self.gathers.entry(target).or_insert_with(none);
        if gather.next.last() == Some(&ticket) {
            return false;
        }
        if gather.next.is_empty() && gather.running.is_empty() {
            self.due.push_back(target);
        }
        gather.next.push(ticket);
        true
    }

    /// Has a Call wait for the last change of a file that is not settled yet. Returns whether there is one for which it
    /// does not wait already.
    fn follow(&mut self, ticket: Ticket, file: FileId) -> bool {
        let Some(gather) = self.gathers.get_mut(&Target::File(file)) else { return false };
        let last = if gather.next.is_empty() { &mut gather.running } else { &mut gather.next };
        let is_new = last.last() != Some(&ticket);
        if is_new {
            last.push(ticket);
        }
        is_new
    }

    /// Returns the next sync that is to begin.
    fn peek(&self) -> Option<(Target, Ticket)> {
        let target = *self.due.front()?;
        Some((target, *self.gathers.get(&target)?.next.first()?))
    }

    /// Takes the next sync that is to begin, for all that were gathered.
    fn begin(&mut self) -> Option<Due> {
        let (target, ticket) = self.peek()?;
        self.due.pop_front();
        let gather = self.gathers.get_mut(&target)?;
        gather.running = std::mem::take(&mut gather.next);
        let (sync, held) = (gather.sync.clone(), gather.held.clone());
        #[cfg(test)]
        let sync = self.tried(sync);
        Some(Due { target, ticket, sync, held })
    }

    /// Takes the next sync that is to begin, and leaves it to the test.
    #[cfg(test)]
    pub(super) fn begin_unseen(&mut self) -> Option<Target> {
        self.begin().map(|due| due.target)
    }

    /// Returns how often a file was synced, or began to be.
    #[cfg(test)]
    pub(super) fn syncs_of(&self, file: FileId) -> usize {
        self.begun.iter().filter(|target| **target == Target::File(file)).count()
    }

    /// Returns whether no Call waits.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        let is_idle = self.calls.is_empty() && self.due.is_empty() && self.ended.is_empty();
        is_idle && self.gathers.is_empty() && self.places.held() == 0
    }

    /// Has all syncs fail from now on.
    #[cfg(test)]
    pub(super) const fn fail(&mut self) {
        self.fails = true;
    }

    /// Notes that a sync begins, which fails if a test wants it to.
    #[cfg(test)]
    fn tried(&mut self, sync: Sync) -> Sync {
        self.begun.push(sync.target());
        match sync {
            // A pipe stands for what cannot be synced.
            Sync::File(id, _) if self.fails => {
                let (pipe, _) = std::io::pipe().expect("a pipe");
                Sync::File(id, std::sync::Arc::new(pipe.into()))
            }
            sync => sync,
        }
    }

    fn settle_target(&mut self, target: Target, ended: Result<(), Status>) {
        let Some(gather) = self.gathers.get_mut(&target) else { return };
        let settled = std::mem::take(&mut gather.running);
        if gather.next.is_empty() {
            self.gathers.remove(&target);
        } else {
            self.due.push_back(target);
        }
        for ticket in settled {
            let Some(call) = self.calls.get_mut(&ticket) else { continue };
            call.left -= 1;
            call.failed = call.failed.or(ended.err());
            if call.left == 0
                && let Some(Unsettled { finished, failed, .. }) = self.calls.remove(&ticket)
            {
                let refusal = failed.map(|status| refused(ticket, &finished, status));
                self.leave(ticket, refusal.unwrap_or(finished));
            }
        }
    }
}

/// Brings a change to stable storage by blocking calls.
pub(super) fn settle_at_once(shared: &mut Shared, changed: &[Sync]) -> Result<(), Status> {
    changed.iter().try_for_each(Sync::run).map_err(|errno| shared.verifier.lost(errno))
}

/// Returns what the server is told of a Call that fails.
const fn refused(ticket: Ticket, finished: &Finished, status: Status) -> Finished {
    match finished {
        Finished::Made(..) => Finished::Made(ticket, Err(status)),
        _ => Finished::Changed(ticket, Err(status)),
    }
}

/// Maximum number of Calls with a change under way or unsettled.
const SETTLING_MAX: usize = 1024;
