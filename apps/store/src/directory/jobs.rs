//! What the helpers of a directory do.
//!
//! A change of a file, or of a name, waits for the system's lock of the inode, which any local process can hold for as
//! long as it likes: while it writes gigabytes, cuts a file of many pieces, or lists a directory into memory that is slow
//! to come. So the core checks a change, and a helper makes it as an [`Act`], with the caller's rights. Closing the last
//! descriptor of a large file without a name takes as long as cutting it, and is a helper's, too: the file's room comes
//! back then. So are the steps by which a file that is not open is found: looking up a name, opening a file by its file
//! system's handle, and listing a directory.
//!
//! # Limits
//! Each job keeps three descriptors at most, but for what a list has [read](list). A client whose change no helper has
//! begun when the backend ends hears nothing, and repeats its Call, perhaps of the next server.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::helpers::{self, Attempt, Cost, OURS};
use super::system::descriptors::OpenShut;
use crate::backend::Ticket;
use crate::handle::FileId;
use crate::nfs3::Status;

pub(super) mod acts;
pub(super) mod called;
pub(super) mod change;
pub(super) mod list;
pub(super) mod making;
pub(super) mod searching;
pub(super) mod steps;
pub(super) mod syncing;

use acts::Act;
use change::Done;
use list::List;
use searching::Part;
use steps::{Ahead, LookUp, Step, Stepped};
use syncing::{Sync, Target};

/// The helpers of a directory.
pub(super) type Helpers = helpers::Helpers<Job>;

/// What a helper does.
#[derive(Debug)]
pub(super) enum Job {
    /// Closes a file, which gives its room back.
    Close(OwnedFd),
    Open(Box<OpenShut>),
    Change(Box<Act>, Ticket),
    LookUp(Box<LookUp>, Ticket),
    LookAhead(Ahead),
    Step(Box<Step>, FileId),
    List(Box<List>, Ticket),
    Search(Box<Part>),
    Sync(Sync, Target),
}

/// What became of a job.
#[derive(Debug)]
pub(super) enum Ended {
    /// A change for the Call with this ticket.
    Changed(Ticket, Done),
    /// What a name of the Call with this ticket leads to.
    LookedUp(Ticket, Stepped),
    /// A step on the way to this file.
    Stepped(FileId, Stepped),
    /// The names that the Call with this ticket lists.
    Listed(Ticket, Result<list::Batch, Errno>),
    /// A part of a directory that is searched.
    Searched(Box<Part>),
    /// Changes were brought to stable storage.
    Synced(Target, Result<(), Errno>),
}

impl helpers::Job for Job {
    type Ended = Ended;

    fn run(self, attempt: Attempt) -> Result<Option<Ended>, Self> {
        Ok(match self {
            Self::Close(file) => {
                drop(file);
                None
            }
            Self::Open(shut) => {
                shut.run();
                None
            }
            Self::Change(act, ticket) => {
                let done = act.run();
                if attempt == Attempt::Repeatable && is_roomless(&done) && act.may_be_repeated() {
                    return Err(Self::Change(act, ticket));
                }
                // Closing the files of the change may take long, too.
                drop(act);
                Some(Ended::Changed(ticket, done))
            }
            Self::LookUp(names, ticket) => {
                let found = names.run();
                drop(names);
                Some(Ended::LookedUp(ticket, found))
            }
            Self::LookAhead(names) => {
                names.run();
                None
            }
            Self::Step(step, file) => Some(Ended::Stepped(file, step.run())),
            Self::List(list, ticket) => {
                let names = list.run();
                drop(list);
                Some(Ended::Listed(ticket, names))
            }
            Self::Search(mut part) => {
                part.run();
                Some(Ended::Searched(part))
            }
            Self::Sync(sync, target) => Some(Ended::Synced(target, sync.run())),
        })
    }

    fn is_dispensable(&self) -> bool {
        matches!(self, Self::Change(..) | Self::LookUp(..) | Self::List(..) | Self::Step(..))
    }
}

impl helpers::Helpers<Job> {
    /// Has a helper make a change, behind those that wait for the lock of the same directory. Returns the change if there
    /// is no helper: the core has to make it.
    pub(super) fn make(
        &self,
        act: Act,
        ticket: Ticket,
        (cost, lock): (Cost, Option<FileId>),
    ) -> Option<Act> {
        let job = Job::Change(Box::new(act), ticket);
        match self.hand(job, (cost, ticket.network), lock)? {
            Job::Change(act, _) => Some(*act),
            _ => None,
        }
    }

    /// Has a helper look up a name for a Call. Returns whether one does.
    pub(super) fn look_up(&self, name: LookUp, ticket: Ticket) -> bool {
        let job = Job::LookUp(Box::new(name), ticket);
        self.hand(job, (Cost::Little, ticket.network), None).is_none()
    }

    /// Has a helper look up names of a directory: the one that has its lock, or waits for it, if there is one. If too much
    /// waits for them already, nobody looks.
    pub(super) fn look_ahead(&self, names: Ahead, dir: FileId) {
        let _ = self.hand(Job::LookAhead(names), (Cost::Little, OURS), Some(dir));
    }

    /// Has a helper take a step on the way to a file. Returns the step if there is no helper: the core has to take it.
    pub(super) fn step(&self, step: Box<Step>, file: FileId) -> Option<Box<Step>> {
        match self.hand(Job::Step(step, file), (Cost::Little, OURS), None)? {
            Job::Step(step, _) => Some(step),
            _ => None,
        }
    }

    /// Has a helper read names for a Call. Returns what was to be read if there is no helper: the core has to read it.
    pub(super) fn list(&self, list: List, ticket: Ticket) -> Option<List> {
        let job = Job::List(Box::new(list), ticket);
        match self.hand(job, (Cost::List, ticket.network), None)? {
            Job::List(list, _) => Some(*list),
            _ => None,
        }
    }

    /// Has a helper search a part of a directory. Returns the part if there is no helper: the core has to search it.
    pub(super) fn search(&self, part: Box<Part>) -> Option<Box<Part>> {
        match self.hand(Job::Search(part), (Cost::Little, OURS), None)? {
            Job::Search(part) => Some(part),
            _ => None,
        }
    }

    /// Has a helper bring changes to stable storage, of which the first is of this Call. Returns how, if there is no
    /// helper: the core has to do it.
    pub(super) fn sync(&self, sync: Sync, target: Target, first: Ticket) -> Option<Sync> {
        match self.hand(Job::Sync(sync, target), (Cost::Sync, first.network), None)? {
            Job::Sync(sync, _) => Some(sync),
            _ => None,
        }
    }

    /// Has a helper open a file. Returns it if there are no helpers: the core has to. If too much waits for them already
    /// nobody opens it.
    pub(super) fn open(&self, shut: OpenShut) -> Option<OpenShut> {
        if !self.has_waker() {
            return Some(shut);
        }
        let _ = self.hand(Job::Open(Box::new(shut)), (Cost::Little, OURS), None);
        None
    }

    /// Has a helper close a file.
    pub(super) fn close(&self, file: OwnedFd) {
        // Without helpers the core closes the file here.
        drop(self.free(Job::Close(file)));
    }
}

/// Returns whether a change was refused for want of room.
const fn is_roomless(done: &Done) -> bool {
    matches!(done, Err(Status::NoSpc | Status::DQuot))
}
