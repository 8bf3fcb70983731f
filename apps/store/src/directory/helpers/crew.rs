//! The threads, with the jobs that wait for one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use haulage::provider::Waker;
use haulage::shares::Shares;

use super::job::Job;
use super::queue::{Cost, Queue, Task};
use super::thread::{Report, Signs, Thread};

/// The threads, with the jobs that wait for one. A thread that has done its job reports it, and gets another.
#[derive(Debug)]
pub(super) struct Crew<J: Job> {
    /// How the core hears of reports. Without it, helpers do only what gives room back.
    pub(super) waker: Option<Waker>,
    pub(super) threads: Vec<Thread<J>>,
    pub(super) idle: Vec<usize>,
    changes: Queue<J>,
    pub(super) dear: Queue<J>,
    lists: Queue<J>,
    syncs: Queue<J>,
    /// Threads that do anything but list.
    pub(super) busy: Shares,
    /// Jobs that give room back and are not done, by number, and the number of the next one.
    freeing: BTreeSet<u64>,
    next_freeing: u64,
    /// Jobs without room, each behind those that give some back before it is done once more.
    pub(super) roomless: VecDeque<(u64, Task<J>)>,
    ended: VecDeque<J::Ended>,
    reports: Receiver<Report<J>>,
    reporter: Sender<Report<J>>,
    pub(super) signs: Signs,
}

impl<J: Job> Default for Crew<J> {
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
            freeing: BTreeSet::new(),
            next_freeing: 0,
            roomless: VecDeque::new(),
            ended: VecDeque::new(),
            reports,
            reporter,
            signs: Signs::default(),
        }
    }
}

impl<J: Job> Crew<J> {
    /// Takes a job. Returns it if there is no room for it, or no thread.
    pub(super) fn give(&mut self, task: Task<J>) -> Option<J> {
        self.hear();
        let task = self.give_behind(task)?;
        let Task { cost, network, frees, .. } = task;
        // Who made a job that gives room back has asked before whether there is room for it, or could not.
        let is_let_in = frees.is_some() && self.dear.tasks.len() < FREEING_MAX;
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

    /// Takes a job that gives room back. Returns it if there is no room for it, or no thread.
    pub(super) fn free(&mut self, job: J) -> Option<J> {
        let number = self.next_freeing;
        let task = Task::new(job, (Cost::Dear, OURS));
        let refused = self.give(Task { frees: Some(number), ..task });
        if refused.is_none() {
            self.next_freeing += 1;
            self.freeing.insert(number);
            self.signs.is_freeing.store(true, Ordering::Release);
        }
        refused
    }

    /// Takes in that a list was used, so that another one may be read.
    pub(super) fn end_list(&mut self, network: u64) {
        self.lists.under_way.give_back(network, 1);
        self.hear();
    }

    /// Returns what became of the next job that has ended.
    pub(super) fn next_ended(&mut self) -> Option<J::Ended> {
        self.hear();
        self.ended.pop_front()
    }

    /// Returns whether as many jobs of a cost and a network wait as may.
    pub(super) fn is_full(&mut self, cost: Cost, network: u64) -> bool {
        self.hear();
        !self.queue(cost).waiting.has_room(network, 1)
    }

    /// Returns the last of the jobs that give room back and are not done.
    pub(super) fn last_freeing(&mut self) -> Option<u64> {
        if !self.freeing.is_empty() {
            self.hear();
        }
        self.freeing.last().copied()
    }

    /// Returns whether a job that gives room back is done, with all before it.
    pub(super) fn has_freed(&self, last: u64) -> bool {
        self.freeing.first().is_none_or(|first| *first > last)
    }

    /// Takes in what the threads report, and gives them the next jobs.
    pub(super) fn hear(&mut self) {
        while let Ok(Report { thread, ended, freed, roomless }) = self.reports.try_recv() {
            self.ended.extend(ended);
            if let Some(number) = freed {
                self.freeing.remove(&number);
                self.signs.is_freeing.store(!self.freeing.is_empty(), Ordering::Release);
            }
            if let Some(task) = roomless {
                self.roomless.push_back((self.freeing.last().copied().unwrap_or(0), task));
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
            // A list is under way until it is used.
            if cost != Cost::List {
                self.queue(cost).under_way.give_back(network, 1);
                self.busy.give_back(network, 1);
            }
        }
        self.repeat();
        self.assign();
    }

    /// Gives a job to the thread that has its lock, or waits for it. Returns it if there is none.
    fn give_behind(&mut self, task: Task<J>) -> Option<Task<J>> {
        let has_it = |thread: &&mut Thread<J>| thread.left > 0 && thread.lock == task.lock;
        let thread = task.lock.and_then(|_| self.threads.iter_mut().find(has_it));
        let Some(thread) = thread else { return Some(task) };
        thread.send(task);
        None
    }

    /// Has jobs done once more whose room is back.
    fn repeat(&mut self) {
        while let Some((last, _)) = self.roomless.front()
            && self.has_freed(*last)
            && let Some((_, task)) = self.roomless.pop_front()
            && let Some(task) = self.give_behind(task)
        {
            let queue = self.queue(task.cost);
            queue.waiting.take(task.network, 1);
            queue.tasks.push_front(task);
        }
    }

    const fn queue(&mut self, cost: Cost) -> &mut Queue<J> {
        match cost {
            Cost::Little => &mut self.changes,
            Cost::Dear => &mut self.dear,
            Cost::List => &mut self.lists,
            Cost::Sync => &mut self.syncs,
        }
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
            // What is dear is counted until it is done.
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
    fn next_task(&mut self) -> Option<Task<J>> {
        let Self { dear, changes, syncs, lists, busy, .. } = self;
        let has_thread = |network| busy.has_room(network, 1);
        let next = dear.next(has_thread).or_else(|| changes.next(has_thread));
        next.or_else(|| syncs.next(has_thread)).or_else(|| lists.next(|_| true))
    }

    fn start(&mut self) {
        let number = self.threads.len();
        let (reporter, waker) = (self.reporter.clone(), self.waker.clone());
        if let Some(thread) = Thread::start(number, reporter, waker, self.signs.clone()) {
            self.idle.push(number);
            self.threads.push(thread);
        }
    }
}

impl<J: Job> Drop for Crew<J> {
    fn drop(&mut self) {
        self.signs.is_over.store(true, Ordering::Release);
        // The core must not wait for these jobs while it is dropped.
        let roomless = self.roomless.drain(..).map(|(_, task)| task);
        let left = self.dear.tasks.drain(..).chain(self.changes.tasks.drain(..)).chain(roomless);
        for (task, thread) in left.zip(self.threads.iter().cycle()) {
            thread.send_last(task);
        }
    }
}

/// Maximum number of threads that do not list: as many inodes as a local process must have locked before a change of
/// another file waits.
const THREADS_MAX: usize = 16;
/// Maximum number of threads that do what is dear, so that others are free for what takes little.
pub(crate) const DEAR_THREADS_MAX: usize = 4;
/// Maximum number of threads that bring changes to stable storage, so that others are free to make some.
const SYNC_THREADS_MAX: usize = 8;
/// Maximum number of lists that are read at a time, those included that were not used yet.
const LISTS_MAX: usize = 7;
/// Maximum number of dear jobs that wait, those under way included.
pub(super) const DEAR_MAX: usize = 64;
/// Maximum number of dear jobs that wait when the core has to give room back itself.
const FREEING_MAX: usize = 256;
/// Maximum number of other jobs that wait for a thread, of lists, and of syncs.
const CHANGES_MAX: usize = 256;
/// Stands for the network of what is done for no Call, or for Calls of several networks. No client has it: it is of
/// multicast.
pub(crate) const OURS: u64 = u64::MAX;
