//! File I/O through an io_uring, from and into leases.
//!
//! # Normal operation
//! A request is queued with the lease it reads from or fills, and reaches the kernel at the next [`FileRing::pop`] or
//! [`FileRing::submit`]. Its result is popped, with the lease. The memory of the pool is registered with the kernel if
//! the system allows it: then the kernel need not look up and hold the pages of each request. Writes that may have to wait
//! are made by threads of our own (`writers`), since the kernel's would keep those of other files waiting behind them; the
//! kernel is asked for those that it may make at once, and refuses what would wait.
//!
//! # Memory ownership
//! The lease of a request is in the ring from the moment it is queued until it is popped. No other code reads or writes
//! it in that time, and the memory stays where it is. A ring that is dropped waits for the requests under way.
//!
//! # Limits
//! The ring has a maximum of requests under way; those beyond come straight back. There is a thread for each that has to
//! wait, of the kernel's or of ours, but for writes of one file: none waits for another file's.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use haulage_mr_pool::{Local, Pool};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode, squeue};

use super::file_user::{AsSomebody, elsewhere};
use super::uring::Unavailable;
use super::wake::Waker;
use writers::{Job, Octets, Writers, Written};

mod writers;

/// The ring. It stays on the thread that made it.
pub struct FileRing<T> {
    ring: IoUring,
    requests: Vec<Option<Request<T>>>,
    free: Vec<usize>,
    /// The addresses of the pool's memory that is registered, by the number of the buffer.
    registered: Vec<Range<usize>>,
    writers: Writers,
    entered: u64,
}

/// A request under way.
struct Request<T> {
    what: T,
    /// The file stays open until the request has ended.
    _file: Arc<OwnedFd>,
    lease: Option<Local>,
    /// What a thread does if the kernel does not write at once.
    otherwise: Option<Job>,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done<T> {
    /// The value it was queued with.
    pub what: T,
    /// The lease it was queued with, if it reads or writes.
    pub lease: Option<Local>,
    /// The number of octets read or written, or the system's error.
    pub result: io::Result<usize>,
}

/// The user, the groups and the privileges that a thread had, with which the kernel carries out requests of one ring.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// The number that the kernel gave them.
    personality: u16,
    /// The threads that have them.
    crew: usize,
}

/// The first to try a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    /// The kernel, if it need not wait: of a file system that takes writes so, or past the page cache.
    Kernel,
    /// A thread of ours.
    Thread,
}

/// How octets are written.
#[derive(Clone, Copy, Debug)]
pub struct Writing {
    /// How stable they are then.
    pub stability: Stability,
    /// The user whose limits of room hold, and whose writing takes SUID and SGID from the file; `None`: this thread's.
    pub by: Option<Credentials>,
    /// The first to try the write. What is to be stable is always written by a thread: some file systems (XFS, btrfs) take a write at
    /// once and then bring it to stable storage at once, too.
    pub road: Road,
}

/// How stable written data is when its request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Not stable.
    None,
    /// The data, and the metadata needed to find it.
    Data,
    /// The data and all metadata, including attributes.
    All,
}

impl<T> FileRing<T> {
    /// Makes a ring for `requests_max` requests at once, over the memory of `pool`. When a request has ended that the
    /// core waits for, the ring wakes it by `waker`.
    ///
    /// # Errors
    /// The system does not allow us an io_uring.
    pub fn new(requests_max: u16, pool: &Pool, waker: &Waker) -> Result<Self, Unavailable> {
        let failed = |step| move |error| Unavailable { step, error };
        let mut builder = IoUring::builder();
        // The ring is not set up for a single issuer: another thread registers credentials with it.
        builder.setup_coop_taskrun().setup_taskrun_flag().dontfork();
        let ring = builder.build(u32::from(requests_max)).map_err(failed("setup"))?;
        ring.submitter().register_eventfd(waker.signal_fd()).map_err(failed("register eventfd"))?;
        let count = usize::from(requests_max);
        let requests = (0..count).map(|_| None).collect();
        let (free, registered, writers) =
            ((0..count).collect(), Vec::new(), Writers::new(count, waker));
        let mut ring = Self { ring, requests, free, registered, writers, entered: 0 };
        ring.quiet();
        ring.register(pool);
        ring.raise_workers(u32::from(requests_max));
        Ok(ring)
    }

    /// Keeps the user, the groups and the privileges of a thread that acts as somebody, for writes of this ring.
    ///
    /// # Errors
    /// The system's, and that of acting.
    pub fn register_credentials(&mut self, as_somebody: AsSomebody) -> io::Result<Credentials> {
        let ring = &self.ring;
        let personality = elsewhere(|| {
            let mut personality = Err(io::ErrorKind::Other.into());
            as_somebody(&mut || personality = ring.submitter().register_personality())?;
            personality
        })??;
        Ok(Credentials { personality, crew: self.writers.add(as_somebody) })
    }

    /// Fills octets `into` of `lease` from a file at `offset`.
    ///
    /// # Errors
    /// The ring is full: `what` and the lease come back.
    ///
    /// # Panics
    /// If `into` is not within the lease.
    pub fn read(
        &mut self,
        file: &Arc<OwnedFd>,
        offset: u64,
        mut lease: Local,
        into: Range<usize>,
        what: T,
    ) -> Result<(), (T, Local)> {
        let fd = Fd(file.as_raw_fd());
        let octets = &mut lease.bytes_mut()[into];
        let (start, length) = (octets.as_mut_ptr(), length(octets));
        let entry = match self.buffer(octets) {
            Some(buffer) => {
                opcode::ReadFixed::new(fd, start, length, buffer).offset(offset).build()
            }
            None => opcode::Read::new(fd, start, length).offset(offset).build(),
        };
        self.push(&entry, file, what, Some(lease)).map_err(handed_back)
    }

    /// Writes octets `from` of `lease` to a file at `offset`.
    ///
    /// # Errors
    /// The ring is full: `what` and the lease come back.
    ///
    /// # Panics
    /// If `from` is not within the lease.
    pub fn write(
        &mut self,
        file: &Arc<OwnedFd>,
        offset: u64,
        (lease, from): (Local, Range<usize>),
        how: Writing,
        what: T,
    ) -> Result<(), (T, Local)> {
        let octets = &lease.bytes()[from];
        let (octets_at, start, length) = (Octets::of(octets), octets.as_ptr(), length(octets));
        let (file_number, flags) = (file.as_raw_fd(), how.stability.write_flags());
        let (personality, crew) = how.by.map_or((OWN, OURS), |by| (by.personality, by.crew));
        let Some(request) = self.free.last().copied() else { return Err((what, lease)) };
        let job = Job { request, crew, file: file_number, offset, octets: octets_at, flags };
        let is_stable = how.stability != Stability::None;
        let is_tried = how.road == Road::Kernel && !is_stable;
        if !is_tried && self.writers.write(job) {
            self.free.pop();
            let (lease, _file, otherwise) = (Some(lease), Arc::clone(file), None);
            self.requests[request] = Some(Request { what, _file, lease, otherwise });
            return Ok(());
        }
        let (fd, flags) = (Fd(file_number), if is_tried { libc::RWF_NOWAIT } else { flags });
        let entry = match self.buffer(lease.bytes()) {
            Some(buffer) => {
                let write = opcode::WriteFixed::new(fd, start, length, buffer);
                write.offset(offset).rw_flags(flags).build()
            }
            None => opcode::Write::new(fd, start, length).offset(offset).rw_flags(flags).build(),
        };
        // Where the system starts no thread of ours, one of its own writes what is to be stable, whatever the file system
        // could do at once.
        let entry = if is_stable { entry.flags(squeue::Flags::ASYNC) } else { entry };
        let entry = entry.personality(personality);
        self.push(&entry, file, what, Some(lease)).map_err(handed_back)?;
        if let Some(Some(request)) = self.requests.get_mut(request) {
            request.otherwise = is_tried.then_some(job);
        }
        Ok(())
    }

    /// Brings written data of a file to stable storage. Returns `what` if the ring is full.
    pub fn sync(&mut self, file: &Arc<OwnedFd>, stability: Stability, what: T) -> Result<(), T> {
        let flags = match stability {
            Stability::All => FsyncFlags::empty(),
            Stability::None | Stability::Data => FsyncFlags::DATASYNC,
        };
        let entry = opcode::Fsync::new(Fd(file.as_raw_fd())).flags(flags).build();
        self.push(&entry, file, what, None).map_err(|(what, _)| what)
    }

    /// Takes a request that has ended.
    ///
    /// When there is none, the end of each request under way wakes the core, until the next submit.
    pub fn pop(&mut self) -> Option<Done<T>> {
        loop {
            self.writers.hand();
            if let Some(done) = self.take() {
                return Some(done);
            }
            // A failure to submit leaves the requests queued, for the next time.
            if self.wants_enter() && self.submit().is_ok() {
                continue;
            }
            if self.under_way() == 0 || !self.wake_from_now() {
                let done = self.take();
                if done.is_some() || !self.writers.has_given() {
                    return done;
                }
            }
        }
    }

    /// Hands queued requests to the kernel.
    ///
    /// # Errors
    /// The system's; queued requests stay queued.
    pub fn submit(&mut self) -> io::Result<()> {
        self.entered += 1;
        self.quiet();
        self.ring.submit().map(drop)
    }

    /// Returns how many requests there may be at once.
    pub const fn requests_max(&self) -> usize {
        self.requests.len()
    }

    /// Returns how many requests are under way or queued.
    pub fn under_way(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Returns whether the pool's memory is registered.
    pub fn is_registered(&self) -> bool {
        !self.registered.is_empty()
    }

    /// Returns how often the kernel was entered.
    pub const fn entered(&self) -> u64 {
        self.entered
    }

    fn wants_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }

    /// Stops ends of requests from waking the core, which is awake.
    fn quiet(&mut self) {
        self.ring.completion().disable_eventfd();
    }

    /// Has the ends of requests wake the core. Returns whether a request had ended before that took effect.
    fn wake_from_now(&mut self) -> bool {
        let queue = self.ring.completion();
        if queue.eventfd_disabled() {
            queue.enable_eventfd();
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        }
        drop(queue);
        self.writers.wake_from_now();
        !self.ring.completion().is_empty()
    }

    fn take(&mut self) -> Option<Done<T>> {
        loop {
            let Some(entry) = self.ring.completion().next() else { break };
            let request = usize::try_from(entry.user_data()).ok()?;
            let errno = entry.result().saturating_neg();
            let otherwise = self.requests.get_mut(request)?.as_mut()?.otherwise.take();
            if matches!(errno, libc::EAGAIN | libc::EOPNOTSUPP)
                && let Some(job) = otherwise
                && self.writers.write(job)
            {
                continue;
            }
            let result =
                usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(errno));
            return self.end(request, result);
        }
        let Written { request, result, .. } = self.writers.take()?;
        self.end(request, result)
    }

    fn end(&mut self, request: usize, result: io::Result<usize>) -> Option<Done<T>> {
        let Request { what, lease, .. } = self.requests.get_mut(request)?.take()?;
        self.free.push(request);
        Some(Done { what, lease, result })
    }

    /// Queues a request, whose memory is that of its own lease.
    fn push(
        &mut self,
        entry: &squeue::Entry,
        file: &Arc<OwnedFd>,
        what: T,
        lease: Option<Local>,
    ) -> Result<(), (T, Option<Local>)> {
        let Some(index) = self.free.pop() else { return Err((what, lease)) };
        let entry = entry.clone().user_data(index as u64);
        // SAFETY: what the entry names stays valid until it has completed: its octets are those of the
        // lease, which is kept in `requests` from here until the completion is taken, as is the
        // descriptor; a dropped ring waits for completions first, or leaks both. The kernel writes only
        // what `read` borrowed mutably, and nobody reads or writes the lease while it is kept.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            // The queue is never full: it has as many entries as there are requests, and a submit takes all of them.
            self.free.push(index);
            return Err((what, lease));
        }
        let _file = Arc::clone(file);
        self.requests[index] = Some(Request { what, _file, lease, otherwise: None });
        Ok(())
    }

    /// Lets the kernel start a thread for each request that has to wait, up to `workers_max`. Otherwise it starts four for
    /// each CPU, and as many requests that wait long, such as for one locked file, keep all others waiting. Systems
    /// before 5.15 know no such request.
    fn raise_workers(&self, workers_max: u32) {
        // A count of 0 stays as it is.
        let _ = self.ring.submitter().register_iowq_max_workers(&mut [workers_max, 0]);
    }

    /// Registers the pool's memory. Otherwise, requests take a little longer.
    fn register(&mut self, pool: &Pool) {
        let region = pool.region();
        let (start, length) = (region.cast::<u8>(), region.len());
        let mut buffers = Vec::new();
        let mut registered = Vec::new();
        for from in (0..length).step_by(BUFFER_MAX) {
            let part = BUFFER_MAX.min(length - from);
            // SAFETY: `from` is below the region's length, which is one allocation.
            let base = unsafe { start.add(from) };
            buffers.push(libc::iovec { iov_base: base.as_ptr().cast(), iov_len: part });
            registered.push(base.addr().get()..base.addr().get() + part);
        }
        // SAFETY: the kernel holds the pages of these addresses, which are mapped; it reads or writes
        // them only for a request that names them.
        if unsafe { self.ring.submitter().register_buffers(&buffers) }.is_ok() {
            self.registered = registered;
        }
    }

    /// Returns the number of the registered buffer that holds `octets`.
    fn buffer(&self, octets: &[u8]) -> Option<u16> {
        let range = octets.as_ptr_range();
        let (start, end) = (range.start.addr(), range.end.addr());
        let within = |buffer: &Range<usize>| buffer.start <= start && end <= buffer.end;
        u16::try_from(self.registered.iter().position(within)?).ok()
    }
}

impl Stability {
    fn write_flags(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Data => libc::RWF_DSYNC,
            Self::All => libc::RWF_SYNC,
        }
    }
}

impl<T> Drop for FileRing<T> {
    fn drop(&mut self) {
        while self.under_way() > 0 {
            if self.take().is_some() {
                continue;
            }
            if let Some(Written { request, result, .. }) = self.writers.wait() {
                drop(self.end(request, result));
            } else if self.ring.submit_and_wait(1).is_err() {
                // The kernel may still use the leases and descriptors of these requests: leak them.
                self.requests.drain(..).flatten().for_each(std::mem::forget);
                return;
            }
        }
    }
}

impl<T> fmt::Debug for FileRing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRing")
            .field("under_way", &self.under_way())
            .field("registered", &self.is_registered())
            .finish_non_exhaustive()
    }
}

/// Returns the value and the lease of a refused request that reads or writes.
fn handed_back<T>((what, lease): (T, Option<Local>)) -> (T, Local) {
    (what, lease.unwrap_or_else(|| unreachable!("it was queued with one")))
}

/// Returns a length for the kernel, whose requests have 32 bits for it.
fn length(octets: &[u8]) -> u32 {
    u32::try_from(octets.len()).unwrap_or(u32::MAX)
}

/// The number of no registered credentials: those of the thread that submits.
const OWN: u16 = 0;
/// The threads that have no other credentials than the process.
const OURS: usize = 0;

/// Octets of the largest buffer that the kernel registers.
const BUFFER_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests;
