//! Threads that write from leases, for a ring of files.
//!
//! # Normal operation
//! The kernel puts writes of regular files that have to wait in 64 rows, by a hash of the inode, and carries out those of
//! one row one behind the other: where a local process has a file locked, writes of other files wait as long. Therefore
//! these threads make the writes. Those of one file follow each other, so that they do not wait for each other's locks, and
//! none waits for that of another file.
//!
//! Waking a thread takes longer than a small write. So the writes of one turn are handed over together, and one thread at
//! most is being woken at a time; that one has the next woken if it leaves any behind.
//!
//! # Memory ownership
//! The octets of a write are those of a lease that the ring keeps until the thread has told the result, as it keeps the
//! descriptor. The thread only reads them, and nobody else writes them meanwhile.
//!
//! # Limits
//! Threads are started when they are needed, one for each write of another file at most.

#![expect(
    clippy::disallowed_types,
    reason = "a thread that hangs can give no write away, so none may own those that wait"
)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::sys::file_user::AsSomebody;
use crate::sys::wake::Waker;

/// The threads, for writes of this process's user or of somebody else, as each says.
#[derive(Debug)]
pub(super) struct Writers {
    crews: Vec<Crew>,
    results: Receiver<Written>,
    reporter: Reporter,
    /// Number of writes whose results are not taken.
    under_way: usize,
    threads_max: usize,
}

/// The threads that write as one user.
struct Crew {
    as_somebody: Option<AsSomebody>,
    /// Writes that no thread may see yet: those of one turn are given together.
    given: Vec<Job>,
    threads: usize,
    shared: Arc<Shared>,
}

/// What the threads of a crew share.
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes a thread.
    more: Condvar,
    /// Whether there are writes, all threads have some, and the core is to start another.
    wants_thread: AtomicBool,
    reporter: Reporter,
}

/// The writes that no thread has begun. One thread at most is being woken, or started: it has the next one woken if it
/// leaves writes behind. So threads that do not wait for anybody do most of the work, and one that does keeps nobody
/// waiting.
#[derive(Default)]
struct Queue {
    /// Writes of files of which none is under way.
    ready: VecDeque<Job>,
    /// Files of which a write is ready or under way, each with the writes behind it.
    rows: Vec<(RawFd, VecDeque<Job>)>,
    idle: usize,
    is_waking: bool,
    is_over: bool,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) request: usize,
    /// The crew, whose number is the order in which the users were added; 0: this process's own.
    pub(super) crew: usize,
    pub(super) file: RawFd,
    pub(super) offset: u64,
    pub(super) octets: Octets,
    /// The flags of pwritev2(2).
    pub(super) flags: i32,
}

/// The octets of a lease that the ring keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Octets {
    start: *const u8,
    length: usize,
}

// SAFETY: the octets stay where they are, and are written by nobody, until the result of the write is taken: see "Memory
// ownership".
unsafe impl Send for Octets {}

/// What became of a write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) request: usize,
    pub(super) result: io::Result<usize>,
}

/// How threads tell results.
#[derive(Clone, Debug)]
struct Reporter {
    results: Sender<Written>,
    /// Whether the core may sleep.
    is_awaited: Arc<AtomicBool>,
    waker: Waker,
}

impl Writers {
    /// Makes threads of at most this number for each user, which wake the core by `waker`.
    pub(super) fn new(threads_max: usize, waker: &Waker) -> Self {
        let (sender, results) = channel();
        let reporter =
            Reporter { results: sender, is_awaited: Arc::default(), waker: waker.clone() };
        let crews = vec![Crew::new(None, reporter.clone())];
        Self { crews, results, reporter, under_way: 0, threads_max }
    }

    /// Adds threads that write as somebody. Returns the number of their crew.
    pub(super) fn add(&mut self, as_somebody: AsSomebody) -> usize {
        self.crews.push(Crew::new(Some(as_somebody), self.reporter.clone()));
        self.crews.len() - 1
    }

    /// Has a thread write, behind the writes of the same file, from the next [`Self::hand`] on. Returns whether there is a
    /// thread.
    pub(super) fn write(&mut self, job: Job) -> bool {
        let Some(crew) = self.crews.get_mut(job.crew) else { return false };
        if crew.threads == 0 {
            // The thread takes the first write without being woken.
            crew.shared.lock().is_waking = true;
            if !crew.start() {
                return false;
            }
        }
        crew.given.push(job);
        self.under_way += 1;
        true
    }

    /// Shows new writes to the threads, and starts those that are missing. Results wake nobody from now on.
    pub(super) fn hand(&mut self) {
        if self.under_way > 0 {
            self.reporter.is_awaited.store(false, Ordering::Relaxed);
            self.crews.iter_mut().for_each(|crew| crew.hand(self.threads_max));
        }
    }

    /// Returns whether the threads have not seen all writes.
    pub(super) fn has_given(&self) -> bool {
        self.under_way > 0 && self.crews.iter().any(|crew| !crew.given.is_empty())
    }

    /// Takes the result of a write.
    pub(super) fn take(&mut self) -> Option<Written> {
        let written = if self.under_way > 0 { self.results.try_recv().ok()? } else { return None };
        self.under_way -= 1;
        Some(written)
    }

    /// Waits for the result of a write.
    pub(super) fn wait(&mut self) -> Option<Written> {
        loop {
            self.hand();
            self.wake_from_now();
            let written = self.take();
            if written.is_some() || self.under_way == 0 {
                return written;
            }
            crate::sys::wake::wait(&self.reporter.waker, std::time::Duration::MAX);
        }
    }

    /// Has results wake the core from now on, until it is awake. One that came before is taken by [`Self::take`].
    pub(super) fn wake_from_now(&mut self) {
        if self.under_way > 0 {
            self.reporter.is_awaited.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            self.crews.iter_mut().for_each(|crew| crew.grow(self.threads_max));
        }
    }
}

impl Crew {
    fn new(as_somebody: Option<AsSomebody>, reporter: Reporter) -> Self {
        let shared = Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            wants_thread: AtomicBool::new(false),
            reporter,
        };
        Self { as_somebody, given: Vec::new(), threads: 0, shared: Arc::new(shared) }
    }

    fn hand(&mut self, threads_max: usize) {
        if !self.given.is_empty() {
            let mut queue = self.shared.lock();
            for job in self.given.drain(..) {
                queue.put(job);
            }
            self.shared.wake(&mut queue);
        }
        self.grow(threads_max);
    }

    /// Starts a thread if one is wanted.
    fn grow(&mut self, threads_max: usize) {
        if self.shared.wants_thread.load(Ordering::Relaxed)
            && self.shared.wants_thread.swap(false, Ordering::AcqRel)
            && (self.threads == threads_max || !self.start())
        {
            // The threads that there are go on.
            self.shared.lock().is_waking = false;
        }
    }

    /// Starts a thread. Returns whether the system did.
    fn start(&mut self) -> bool {
        let (shared, as_somebody) = (Arc::clone(&self.shared), self.as_somebody.clone());
        let work = move || {
            let served = match as_somebody {
                Some(as_somebody) => as_somebody(&mut || shared.serve(Job::run)),
                None => {
                    shared.serve(Job::run);
                    Ok(())
                }
            };
            if served.is_err() {
                shared.serve(|_| Err(io::ErrorKind::WouldBlock.into()));
            }
        };
        let builder = thread::Builder::new().name("writer".to_owned()).stack_size(STACK);
        let is_started = builder.spawn(work).is_ok();
        self.threads += usize::from(is_started);
        is_started
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread wake for writes that are ready, unless one is about to.
    fn wake(&self, queue: &mut Queue) {
        if queue.ready.is_empty() || queue.is_waking {
            return;
        }
        queue.is_waking = true;
        if queue.idle > 0 {
            self.more.notify_one();
        } else {
            self.wants_thread.store(true, Ordering::Release);
            self.reporter.wake();
        }
    }

    /// Writes until the crew has ended.
    fn serve(&self, act: fn(&Job) -> io::Result<usize>) {
        let mut next = None;
        // A thread that was just started was waited for.
        let mut was_woken = true;
        while let Some(job) = next.or_else(|| self.next(&mut was_woken)) {
            let Job { request, file, .. } = job;
            let result = act(&job);
            next = self.lock().take_behind(file);
            self.reporter.tell(Written { request, result });
        }
    }

    /// Waits for a write. Returns `None` when the crew has ended.
    fn next(&self, was_woken: &mut bool) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if std::mem::take(was_woken) {
                queue.is_waking = false;
            }
            if let Some(job) = queue.ready.pop_front() {
                self.wake(&mut queue);
                return Some(job);
            }
            if queue.is_over {
                return None;
            }
            queue.idle += 1;
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            *was_woken = true;
        }
    }
}

impl Queue {
    fn put(&mut self, job: Job) {
        if let Some((_, row)) = self.rows.iter_mut().find(|(file, _)| *file == job.file) {
            row.push_back(job);
        } else {
            self.rows.push((job.file, VecDeque::new()));
            self.ready.push_back(job);
        }
    }

    /// Takes the write behind one of this file that has ended.
    fn take_behind(&mut self, file: RawFd) -> Option<Job> {
        let at = self.rows.iter().position(|(other, _)| *other == file)?;
        let next = self.rows[at].1.pop_front();
        if next.is_none() {
            self.rows.swap_remove(at);
        }
        next
    }
}

impl Reporter {
    fn tell(&self, written: Written) {
        // The ring takes all results before it ends.
        let _ = self.results.send(written);
        self.wake();
    }

    /// Wakes the core if it may sleep.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.more.notify_all();
    }
}

impl Job {
    fn run(&self) -> io::Result<usize> {
        let Self { file, offset, flags, octets: Octets { start, length }, .. } = *self;
        let part = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the system reads `length` octets from `start`, which are those of a lease that the ring keeps until
        // it takes the result, and the ring keeps the descriptor open as long.
        let result = unsafe { libc::pwritev2(file, &raw const part, 1, offset, flags) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

impl Octets {
    pub(super) const fn of(octets: &[u8]) -> Self {
        Self { start: octets.as_ptr(), length: octets.len() }
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Octets of a thread's stack: it makes one system call.
const STACK: usize = 64 << 10;
