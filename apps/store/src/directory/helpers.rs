//! Threads that make the system calls which may wait for somebody.
//!
//! # Normal operation
//! A change of a file, or of a name, waits for the system's lock of the inode, which any local process can hold for as
//! long as it likes: while it writes gigabytes, cuts a file of many pieces, or lists a directory into memory that is slow
//! to come. The core must not wait. It checks a change, gives it to the helpers as an [`Act`], and goes on; a helper
//! carries it out with the caller's rights and wakes the core, which answers the Call. Closing the last descriptor of a
//! large file without a name takes as long as cutting it, and is a helper's, too. So are the steps by which a file that is
//! not open is found: looking up a name, opening a file by its file system's handle, and listing a directory. Changes that
//! take other names of one directory follow each other on the thread that has its lock, or waits for it.
//!
//! A change that the file system has no room for is made once more when the files are closed that were being closed
//! meanwhile: their room comes back then. It takes no thread while it waits for that.
//!
//! # Limits
//! At most [`THREADS_MAX`] threads, started when they are needed, and [`LISTS_MAX`] more, so that directories are listed
//! while all others wait. At most [`DEAR_THREADS_MAX`] of the former cut and close large files, of which at most
//! [`DEAR_MAX`] wait, and at most [`SYNC_THREADS_MAX`] sync; of other changes, at most [`CHANGES_MAX`] wait, and as many
//! lists and syncs. What is beyond is to be asked for again. All of these are shared by network. Each keeps three
//! descriptors at most, but for what was [read](super::lists). When the backend ends, nobody waits for a helper, and what no
//! helper has begun is not done: a client that hears nothing repeats its Call, perhaps of the next server.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use haulage::provider::Waker;
use haulage::shares::Shares;
use rustix::io::Errno;

use super::acts::{Act, Ahead, Done, Sync, Undone};
use super::lists::LISTS_MAX;
use super::settling::Target;
use super::system::descriptors::OpenShut;
use super::tree::Batch;
use crate::backend::Ticket;
use crate::handle::FileId;
use crate::nfs3::Status;

/// The helper threads of one backend.
#[derive(Clone, Debug, Default)]
pub(super) struct Helpers(Rc<RefCell<Crew>>);

/// The threads, with the jobs that wait for one. A thread that has done its job reports it, and gets another.
#[derive(Debug)]
struct Crew {
    /// How the core hears of reports. Without it, no changes are made by helpers.
    waker: Option<Waker>,
    threads: Vec<Thread>,
    idle: Vec<usize>,
    changes: Queue,
    dear: Queue,
    lists: Queue,
    syncs: Queue,
    /// Threads that do anything but list.
    busy: Shares,
    /// Files that are to be closed, by number, and the number of the next one.
    closing: BTreeSet<u64>,
    next_close: u64,
    /// Whether there are any: what a thread asks that has found no room.
    has_closes: Arc<AtomicBool>,
    /// Changes without room, each behind the files that are closed before it is made once more.
    roomless: VecDeque<(u64, Task)>,
    ended: VecDeque<Ended>,
    reports: Receiver<Report>,
    reporter: Sender<Report>,
    /// Whether the crew has ended.
    over: Arc<AtomicBool>,
    /// Whether a test keeps the helpers from acting, from syncing, and from closing.
    #[cfg(test)]
    gate: Arc<AtomicBool>,
    #[cfg(test)]
    sync_gate: Arc<AtomicBool>,
    #[cfg(test)]
    close_gate: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Job {
    Close(OwnedFd, u64),
    Change(Box<Act>, Ticket),
    Step(Box<Act>, FileId),
    List(Box<Batch>),
    Open(Box<OpenShut>),
    Sync(Sync, Target),
    LookAhead(Ahead),
    /// Closes what a change that is not made holds.
    Forget(Box<Act>),
}

/// A job, and whose it is.
#[derive(Debug)]
struct Task {
    job: Job,
    cost: Cost,
    network: u64,
    /// The directory whose lock the job waits for, if others for the same lock may be given to the same thread.
    lock: Option<FileId>,
    /// Whether there was no room for the change before.
    is_repeated: bool,
}

/// The place of a task among those that a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    /// The thread had another one to do.
    Behind,
}

/// A thread, and what it has to do.
#[derive(Debug)]
struct Thread {
    tasks: Sender<(Task, Place)>,
    /// Number of tasks that it has not reported, and the lock that all of them wait for.
    left: usize,
    lock: Option<FileId>,
    /// What its first task counts as.
    cost: Cost,
    network: u64,
}

/// Jobs of one cost that wait for a thread.
#[derive(Debug)]
struct Queue {
    tasks: VecDeque<Task>,
    waiting: Shares,
    under_way: Shares,
}

/// What a thread says of a job.
#[derive(Debug)]
struct Report {
    thread: usize,
    /// The outcome of the job, if somebody waits for it.
    ended: Option<Ended>,
    /// The number of the file, if it was closed.
    closed: Option<u64>,
    /// The job, if there was no room for it.
    roomless: Option<Task>,
}

/// How long a change takes where nobody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// The change takes as long as a few system calls.
    Little,
    /// The change takes as long as the system needs to free the room of a large file.
    Dear,
    /// The job takes as long as the system needs to list some hundred names.
    List,
    /// The job takes as long as the disk needs to write what was changed.
    Sync,
}

/// A job that has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// A change, or a look-up, for the Call with this ticket.
    Change(Ticket, Done),
    /// A step on the way to this file.
    Step(FileId, Done),
    /// A part of a directory that is searched.
    List(Box<Batch>),
    /// Changes were brought to stable storage.
    Sync(Target, Result<(), Errno>),
}

impl Helpers {
    /// Has changes made by the helpers from now on, which wake the core.
    pub(super) fn wake_by(&self, waker: Waker) {
        self.0.borrow_mut().waker = Some(waker);
    }

    /// Returns whether helpers make changes.
    pub(super) fn has_waker(&self) -> bool {
        self.0.borrow().waker.is_some()
    }

    /// Has a helper make a change, behind those that wait for the lock of the same directory. Returns the change if there
    /// is no helper: the core has to make it.
    pub(super) fn make(
        &self,
        act: Act,
        ticket: Ticket,
        (cost, lock): (Cost, Option<FileId>),
    ) -> Option<Act> {
        let job = Job::Change(Box::new(act), ticket);
        let (network, is_repeated) = (ticket.network, false);
        match self.hand_task(Task { job, cost, network, lock, is_repeated })? {
            Job::Change(act, _) => Some(*act),
            _ => None,
        }
    }

    /// Has a helper take a step on the way to a file. Returns the step if there is no helper: the core has to take it.
    pub(super) fn step(&self, act: Box<Act>, file: FileId) -> Option<Box<Act>> {
        match self.hand(Job::Step(act, file), (Cost::Little, OURS))? {
            Job::Step(act, _) => Some(act),
            _ => None,
        }
    }

    /// Has a helper bring changes to stable storage, of which the first is of this Call. Returns how, if there is no
    /// helper: the core has to do it.
    pub(super) fn sync(&self, sync: Sync, target: Target, first: Ticket) -> Option<Sync> {
        match self.hand(Job::Sync(sync, target), (Cost::Sync, first.network))? {
            Job::Sync(sync, _) => Some(sync),
            _ => None,
        }
    }

    /// Has a helper list a part of a directory. Returns the part if there is no helper: the core has to list it.
    pub(super) fn list(&self, batch: Box<Batch>) -> Option<Box<Batch>> {
        match self.hand(Job::List(batch), (Cost::Little, OURS))? {
            Job::List(batch) => Some(batch),
            _ => None,
        }
    }

    /// Gives a job of a network to the helpers. Returns it if there are none, or no room for it.
    fn hand(&self, job: Job, (cost, network): (Cost, u64)) -> Option<Job> {
        self.hand_task(Task::new(job, (cost, network)))
    }

    fn hand_task(&self, task: Task) -> Option<Job> {
        let mut crew = self.0.borrow_mut();
        if crew.waker.is_none() { Some(task.job) } else { crew.give(task) }
    }

    /// Has a helper open a file. Returns it if there are no helpers: the core has to. If too much waits for them already
    /// nobody opens it.
    pub(super) fn open(&self, shut: OpenShut) -> Option<OpenShut> {
        let mut crew = self.0.borrow_mut();
        if crew.waker.is_none() {
            return Some(shut);
        }
        let job = Job::Open(Box::new(shut));
        crew.give(Task::new(job, (Cost::Little, OURS)));
        None
    }

    /// Has a helper look up names of a directory: the one that has its lock, or waits for it, if there is one. If too much
    /// waits for them already, nobody looks.
    pub(super) fn look_ahead(&self, names: Ahead, dir: FileId) {
        let (job, lock) = (Job::LookAhead(names), Some(dir));
        let _ = self.hand_task(Task { lock, ..Task::new(job, (Cost::Little, OURS)) });
    }

    /// Returns the last of the files that are to be closed: its room comes back when it is.
    pub(super) fn last_closing(&self) -> Option<u64> {
        let mut crew = self.0.borrow_mut();
        if !crew.closing.is_empty() {
            crew.hear();
        }
        crew.closing.last().copied()
    }

    /// Returns whether a file is closed, and all that were to be closed before it.
    pub(super) fn has_closed(&self, last: u64) -> bool {
        self.0.borrow().has_closed(last)
    }

    /// Takes in that a list was executed, so that another one may be read.
    pub(super) fn end_list(&self, ticket: Ticket) {
        let mut crew = self.0.borrow_mut();
        crew.lists.under_way.give_back(ticket.network, 1);
        crew.hear();
    }

    /// Has a helper close a file.
    pub(super) fn close(&self, file: OwnedFd) {
        // Without helpers the core closes the file here, when the borrow is over.
        let refused = self.0.borrow_mut().close(file);
        drop(refused);
    }

    /// Returns the next job that has ended.
    pub(super) fn next_ended(&self) -> Option<Ended> {
        let mut crew = self.0.borrow_mut();
        crew.hear();
        crew.ended.pop_front()
    }

    /// Returns whether as much waits for the helpers as may, for the Call with this ticket.
    pub(super) fn is_full(&self, cost: Cost, ticket: Ticket) -> bool {
        self.is_full_for(cost, ticket.network)
    }

    /// Returns whether as much waits for the helpers as may, for no Call.
    pub(super) fn is_full_for_us(&self, cost: Cost) -> bool {
        self.is_full_for(cost, OURS)
    }

    fn is_full_for(&self, cost: Cost, network: u64) -> bool {
        let mut crew = self.0.borrow_mut();
        crew.hear();
        !crew.queue(cost).waiting.has_room(network, 1)
    }

    /// Returns whether a helper was ever needed.
    #[cfg(test)]
    pub(super) fn has_started(&self) -> bool {
        !self.0.borrow().threads.is_empty()
    }

    /// Returns whether the helpers have nothing to do.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let mut crew = self.0.borrow_mut();
        crew.hear();
        crew.idle.len() == crew.threads.len()
    }

    /// Returns the number of helpers that have something to do other than to list.
    #[cfg(test)]
    pub(super) fn busy(&self) -> usize {
        self.0.borrow().busy.held()
    }

    /// Returns what keeps every helper from acting while it is true, like the lock of an inode.
    #[cfg(test)]
    pub(super) fn gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().gate)
    }

    /// Returns what keeps every helper from syncing while it is true.
    #[cfg(test)]
    pub(super) fn sync_gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().sync_gate)
    }

    /// Returns what keeps every helper from closing a file while it is true.
    #[cfg(test)]
    pub(super) fn close_gate(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.borrow().close_gate)
    }

    /// Returns the number of changes that wait for room.
    #[cfg(test)]
    pub(super) fn roomless(&self) -> usize {
        self.0.borrow().roomless.len()
    }

    /// Has as many dear jobs under way as may.
    #[cfg(test)]
    pub(super) fn fill(&self) {
        self.0.borrow_mut().dear.waiting.take(OURS, DEAR_MAX);
    }
}

impl Default for Crew {
    fn default() -> Self {
        let (reporter, reports) = channel();
        Self {
            waker: None,
            threads: Vec::new(),
            idle: Vec::new(),
            changes: Queue::new(CHANGES_MAX, THREADS_MAX),
            dear: Queue::new(DEAR_MAX, DEAR_THREADS_MAX),
            lists: Queue::new(CHANGES_MAX, LISTS_MAX),
            syncs: Queue::new(CHANGES_MAX, SYNC_THREADS_MAX),
            busy: Shares::new(THREADS_MAX),
            closing: BTreeSet::new(),
            next_close: 0,
            has_closes: Arc::default(),
            roomless: VecDeque::new(),
            ended: VecDeque::new(),
            reports,
            reporter,
            over: Arc::default(),
            #[cfg(test)]
            gate: Arc::default(),
            #[cfg(test)]
            sync_gate: Arc::default(),
            #[cfg(test)]
            close_gate: Arc::default(),
        }
    }
}

impl Crew {
    /// Takes a job. Returns it if there is no room for it, or no thread.
    fn give(&mut self, task: Task) -> Option<Job> {
        self.hear();
        let task = self.give_behind(task)?;
        let Task { ref job, cost, network, .. } = task;
        // A file that has to be closed was let in before (`closing::has_room_for`), or removed beside the server.
        let is_let_in = matches!(job, Job::Close(..)) && self.dear.tasks.len() < CLOSES_MAX;
        if !is_let_in && !self.queue(cost).waiting.has_room(network, 1) {
            return Some(task.job);
        }
        if self.idle.is_empty() && self.threads.len() < THREADS_MAX + LISTS_MAX {
            self.start();
        }
        if self.threads.is_empty() {
            return Some(task.job);
        }
        let queue = self.queue(cost);
        queue.waiting.take(network, 1);
        queue.tasks.push_back(task);
        self.assign();
        None
    }

    /// Gives a job to the thread that has its lock, or waits for it. Returns it if there is none.
    fn give_behind(&mut self, task: Task) -> Option<Task> {
        let has_it = |thread: &&mut Thread| thread.left > 0 && thread.lock == task.lock;
        let thread = task.lock.and_then(|_| self.threads.iter_mut().find(has_it));
        let Some(thread) = thread else { return Some(task) };
        thread.send(task);
        None
    }

    /// Takes a file to be closed. Returns it if there is no room for it, or no thread.
    fn close(&mut self, file: OwnedFd) -> Option<Job> {
        self.hear();
        let number = self.next_close;
        let refused = self.give(Task::new(Job::Close(file, number), (Cost::Dear, OURS)));
        if refused.is_none() {
            self.next_close += 1;
            self.closing.insert(number);
            self.has_closes.store(true, Ordering::Release);
        }
        refused
    }

    fn has_closed(&self, last: u64) -> bool {
        self.closing.first().is_none_or(|first| *first > last)
    }

    /// Has changes made once more whose room is back.
    fn repeat(&mut self) {
        while let Some((last, _)) = self.roomless.front()
            && self.has_closed(*last)
            && let Some((_, task)) = self.roomless.pop_front()
            && let Some(task) = self.give_behind(task)
        {
            let queue = self.queue(task.cost);
            queue.waiting.take(task.network, 1);
            queue.tasks.push_front(task);
        }
    }

    const fn queue(&mut self, cost: Cost) -> &mut Queue {
        match cost {
            Cost::Little => &mut self.changes,
            Cost::Dear => &mut self.dear,
            Cost::List => &mut self.lists,
            Cost::Sync => &mut self.syncs,
        }
    }

    /// Takes in what the threads report, and gives them the next jobs.
    fn hear(&mut self) {
        while let Ok(Report { thread, ended, closed, roomless }) = self.reports.try_recv() {
            self.ended.extend(ended);
            if let Some(number) = closed {
                self.closing.remove(&number);
                self.has_closes.store(!self.closing.is_empty(), Ordering::Release);
            }
            if let Some(task) = roomless {
                self.roomless.push_back((self.closing.last().copied().unwrap_or(0), task));
            }
            let Some(Thread { left, cost, network, .. }) = self.threads.get_mut(thread) else {
                continue;
            };
            *left -= 1;
            if *left > 0 {
                continue;
            }
            let (cost, network) = (*cost, *network);
            self.idle.push(thread);
            if cost == Cost::Dear {
                self.dear.waiting.give_back(network, 1);
            }
            // A list is under way until it is executed.
            if cost != Cost::List {
                self.queue(cost).under_way.give_back(network, 1);
                self.busy.give_back(network, 1);
            }
        }
        self.repeat();
        self.assign();
    }

    /// Gives jobs to threads that have none.
    fn assign(&mut self) {
        while let Some(thread) = self.idle.last().copied() {
            let Some(task) = self.next_task() else { return };
            let Task { cost, network, lock, .. } = task;
            if cost != Cost::List {
                self.busy.take(network, 1);
            }
            let queue = self.queue(cost);
            queue.under_way.take(network, 1);
            // Large files are counted until they are cut, or closed.
            if cost != Cost::Dear {
                queue.waiting.give_back(network, 1);
            }
            self.idle.pop();
            let Some(thread) = self.threads.get_mut(thread) else { continue };
            (thread.cost, thread.network, thread.lock) = (cost, network, lock);
            thread.send(task);
            // What waits for the same lock follows.
            let Some(lock) = lock else { continue };
            for task in std::mem::take(&mut self.changes.tasks) {
                if task.lock == Some(lock) {
                    self.changes.waiting.give_back(task.network, 1);
                    thread.send(task);
                } else {
                    self.changes.tasks.push_back(task);
                }
            }
        }
    }

    /// Returns the next job for which a thread may be used: the first one of a network that has a share left.
    fn next_task(&mut self) -> Option<Task> {
        let Self { dear, changes, syncs, lists, busy, .. } = self;
        let has_thread = |network| busy.has_room(network, 1);
        let next = dear.next(has_thread).or_else(|| changes.next(has_thread));
        next.or_else(|| syncs.next(has_thread)).or_else(|| lists.next(|_| true))
    }

    fn start(&mut self) {
        let (give, given) = channel::<(Task, Place)>();
        let (thread, reporter, waker) =
            (self.threads.len(), self.reporter.clone(), self.waker.clone());
        let (over, has_closes) = (Arc::clone(&self.over), Arc::clone(&self.has_closes));
        #[cfg(test)]
        let (gate, sync_gate, close_gate) =
            (Arc::clone(&self.gate), Arc::clone(&self.sync_gate), Arc::clone(&self.close_gate));
        let help = move || {
            for (Task { job, cost, network, lock, is_repeated }, place) in given {
                // What no helper has begun when the backend ends is not done.
                let is_over = place == Place::Behind && over.load(Ordering::Acquire);
                let job = if is_over { job.without_change() } else { job };
                #[cfg(test)]
                while gate.load(Ordering::Acquire)
                    || matches!(job, Job::Sync(..)) && sync_gate.load(Ordering::Acquire)
                    || matches!(job, Job::Close(..)) && close_gate.load(Ordering::Acquire)
                {
                    thread::yield_now();
                }
                let attempt = if !is_repeated && has_closes.load(Ordering::Acquire) {
                    Attempt::Repeatable
                } else {
                    Attempt::Last
                };
                let closed = if let Job::Close(_, number) = &job { Some(*number) } else { None };
                let (ended, roomless) = match job.run(attempt) {
                    Ok(ended) => (ended, None),
                    Err(job) => (None, Some(Task { job, cost, network, lock, is_repeated: true })),
                };
                // The backend may be gone.
                let _ = reporter.send(Report { thread, ended, closed, roomless });
                waker.iter().for_each(Waker::wake);
            }
        };
        if thread::Builder::new().name("helper".to_owned()).spawn(help).is_ok() {
            self.idle.push(thread);
            let (cost, network) = (Cost::Little, OURS);
            self.threads.push(Thread { tasks: give, left: 0, lock: None, cost, network });
        }
    }
}

impl Task {
    const fn new(job: Job, (cost, network): (Cost, u64)) -> Self {
        Self { job, cost, network, lock: None, is_repeated: false }
    }
}

impl Thread {
    fn send(&mut self, task: Task) {
        let place = if self.left > 0 { Place::Behind } else { Place::First };
        self.left += 1;
        // A thread ends only with the crew.
        let _ = self.tasks.send((task, place));
    }
}

impl Queue {
    fn new(waiting_max: usize, threads_max: usize) -> Self {
        let (waiting, under_way) = (Shares::new(waiting_max), Shares::new(threads_max));
        Self { tasks: VecDeque::new(), waiting, under_way }
    }

    /// Takes the first job of a network that has a share left.
    fn next(&mut self, has_thread: impl Fn(u64) -> bool) -> Option<Task> {
        let may_begin =
            |task: &Task| self.under_way.has_room(task.network, 1) && has_thread(task.network);
        let first = self.tasks.iter().position(may_begin)?;
        self.tasks.remove(first)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // The core must not wait for these jobs while it is dropped.
        let roomless = self.roomless.drain(..).map(|(_, task)| task);
        let left = self.dear.tasks.drain(..).chain(self.changes.tasks.drain(..)).chain(roomless);
        for (task, thread) in left.zip(self.threads.iter().cycle()) {
            let job = task.job.without_change();
            let _ = thread.tasks.send((Task { job, ..task }, Place::First));
        }
    }
}

impl Job {
    /// Returns what is left of the job if it changes nothing.
    fn without_change(self) -> Self {
        match self {
            Self::Change(act, _) | Self::Step(act, _) => Self::Forget(act),
            job => job,
        }
    }

    /// Does the job. Returns what became of it, if somebody asks.
    ///
    /// # Errors
    /// The job: it may be repeated, and there was no room for it.
    fn run(self, attempt: Attempt) -> Result<Option<Ended>, Self> {
        Ok(match self {
            Self::Close(file, _) => {
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
                Some(Ended::Change(ticket, done))
            }
            Self::Step(act, file) => Some(Ended::Step(file, act.run())),
            Self::LookAhead(names) => {
                names.run();
                None
            }
            Self::Sync(sync, target) => Some(Ended::Sync(target, sync.run())),
            Self::List(mut batch) => {
                batch.run();
                Some(Ended::List(batch))
            }
            Self::Forget(act) => {
                drop(act);
                None
            }
        })
    }
}

/// Whether a change that finds no room is made once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Room is about to come.
    Repeatable,
    Last,
}

/// Returns whether a change was refused for want of room.
const fn is_roomless(done: &Done) -> bool {
    matches!(done, Err(Undone::Refused(Status::NoSpc | Status::DQuot)))
}

/// Maximum number of threads that do not list: as many inodes as a local process must have locked before a change of
/// another file waits.
const THREADS_MAX: usize = 16;
/// Maximum number of threads that cut and close large files, so that others are free for what takes little.
pub(super) const DEAR_THREADS_MAX: usize = 4;
/// Maximum number of threads that bring changes to stable storage, so that others are free to make some.
const SYNC_THREADS_MAX: usize = 8;
/// Maximum number of large files that wait to be cut or closed, those under way included.
const DEAR_MAX: usize = 64;
/// Maximum number of large files that wait when the core has to close another one itself.
const CLOSES_MAX: usize = 256;
/// Maximum number of other changes that wait for a thread, of lists, and of syncs.
const CHANGES_MAX: usize = 256;
/// Stands for the network of what is done for no Call, or for Calls of several networks. No client has it: it is of
/// multicast.
const OURS: u64 = u64::MAX;
