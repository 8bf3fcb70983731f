//! An io_uring that receives into buffers of its own and waits for sockets.
//!
//! # Normal operation
//!
//! Requests are queued and reach the kernel at the next [`Ring::enter`] or [`Ring::wait`]. With `DEFER_TASKRUN` the
//! kernel works for us only inside those two calls, so between them it takes no octets off a socket.
//! [`Ring::wants_enter`] costs no system call.
//!
//! # Memory ownership
//!
//! The kernel writes only into the ring's own receive buffers, all of the same size. A filled buffer comes out as a
//! [`Filled`], which is the right to read it; giving it back hands it to the kernel again.
//!
//! # Limits
//!
//! When all buffers are filled, a receive ends with [`Outcome::Starved`], and has to be started again.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use thiserror::Error;

/// An event of a request.
#[derive(Debug)]
pub struct Event {
    /// The name of the request.
    pub token: u64,
    /// The request continues; there will be more events of it.
    pub more: bool,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Octets arrived.
    Received(Filled),
    /// The stream has ended.
    Ended,
    /// The socket is ready, as the request asked.
    Ready,
    /// No receive buffer was free.
    Starved,
    /// The request was canceled.
    Canceled,
    /// The system reported an error.
    Failed(io::Error),
}

/// A receive buffer that holds octets: the right to read it. Dropping it loses the buffer.
#[derive(Debug)]
#[must_use = "a buffer not given back is lost to the ring"]
pub struct Filled {
    index: u16,
    length: usize,
}

/// The reason that there is no ring here.
#[derive(Debug, Error)]
#[error("io_uring is not available: {step}: {error}")]
pub struct Unavailable {
    /// The step that failed.
    pub step: &'static str,
    /// The system's error.
    pub error: io::Error,
}

/// The ring. It stays on the thread that made it.
pub struct Ring {
    ring: IoUring,
    buffers: Buffers,
    entered: u64,
}

impl Ring {
    /// Makes a ring with room for `entries` queued requests, and `count` receive buffers, a power
    /// of two, of `length` octets each.
    pub fn new(entries: u32, count: u16, length: u32) -> Result<Self, Unavailable> {
        let failed = |step| move |error| Unavailable { step, error };
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .dontfork()
            // A receive completes many times; the kernel requires at least `entries`.
            .setup_cqsize(entries.saturating_mul(4));
        // A ring without the array of indices saves an indirection, and needs Linux 6.6.
        let ring = match builder.clone().setup_no_sqarray().build(entries) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => builder.build(entries),
            result => result,
        };
        let ring = ring.map_err(failed("setup"))?;
        let buffers = Buffers::new(count, length);
        // SAFETY: the entries are a page-aligned array of `count` that lives as long as `buffers`,
        // which is dropped after the ring, and is written only as the kernel allows: by `give`.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                count,
                GROUP,
                0,
            )
        }
        .map_err(failed("register buffers"))?;
        let mut ring = Self { ring, buffers, entered: 0 };
        for index in 0..count {
            ring.buffers.give(index);
        }
        ring.try_out().map_err(failed("enter"))?;
        Ok(ring)
    }

    /// Has the kernel do nothing once. A filter may allow rings to be made and forbid entering them, and a ring that
    /// cannot be entered reports nothing, ever.
    fn try_out(&mut self) -> io::Result<()> {
        self.push(&opcode::Nop::new().build().user_data(TOKEN_NONE))?;
        self.ring.submit_and_wait(1)?;
        let done = self.ring.completion().next().ok_or(io::ErrorKind::TimedOut)?;
        if done.result() < 0 { Err(io::Error::from_raw_os_error(-done.result())) } else { Ok(()) }
    }

    /// Receives from `fd` whenever octets arrive, until an event without `more`.
    pub fn receive(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.push(&opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(token))
    }

    /// Reports once that `fd` can be read.
    pub fn readable(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.poll(fd, libc::POLLIN, token)
    }

    /// Reports once that `fd` can be written, or that connecting is over.
    pub fn writable(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        self.poll(fd, libc::POLLOUT, token)
    }

    /// Cancels the request named `token`, which ends with [`Outcome::Canceled`] unless it has ended
    /// already.
    pub fn cancel(&mut self, token: u64) -> io::Result<()> {
        self.push(&opcode::AsyncCancel::new(token).build().user_data(TOKEN_NONE))
    }

    /// Returns whether [`Self::enter`] has anything to do.
    pub fn wants_enter(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow() || !queue.is_empty()
    }

    /// Returns whether [`Self::pop`] has anything to return.
    pub fn has_events(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Hands queued requests to the kernel and lets it deliver what has arrived. Does not block.
    pub fn enter(&mut self) -> io::Result<()> {
        self.entered += 1;
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: no argument structure is passed, and every queued request is one of `push`'s.
        let result = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(
                queued,
                0,
                EnterFlags::GETEVENTS.bits(),
                None,
            )
        };
        forgive(result)
    }

    /// Like [`Self::enter`], but waits until there is an event, at most `limit` (`None`: without limit).
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.entered += 1;
        let limit = limit.map(Timespec::from);
        let mut arguments = SubmitArgs::new();
        if let Some(limit) = &limit {
            arguments = arguments.timespec(limit);
        }
        forgive(self.ring.submitter().submit_with_args(1, &arguments))
    }

    /// Takes the oldest event.
    pub fn pop(&mut self) -> Option<Event> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == TOKEN_NONE {
                // The outcome of a cancel adds nothing to that of its target.
                continue;
            }
            let outcome = self.outcome(&entry);
            return Some(Event {
                token: entry.user_data(),
                more: cqueue::more(entry.flags()),
                outcome,
            });
        }
    }

    /// Returns the octets in `filled`.
    pub fn bytes(&self, filled: &Filled) -> &[u8] {
        self.buffers.bytes(filled)
    }

    /// Gives a buffer back to the kernel.
    #[expect(clippy::needless_pass_by_value, reason = "giving it back ends the right to read it")]
    pub fn give_back(&mut self, filled: Filled) {
        self.buffers.give(filled.index);
    }

    /// Returns how often the kernel was entered.
    pub const fn entered(&self) -> u64 {
        self.entered
    }

    fn poll(&mut self, fd: RawFd, events: libc::c_short, token: u64) -> io::Result<()> {
        let events = u32::try_from(events).unwrap_or_default();
        self.push(&opcode::PollAdd::new(Fd(fd), events).build().user_data(token))
    }

    /// Queues a request, making room if the queue is full.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        for _ in 0..2 {
            // SAFETY: the requests made here name no memory: receives choose among the registered
            // buffers, which outlive the ring; polls and cancels use none.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter()?;
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    fn outcome(&mut self, entry: &cqueue::Entry) -> Outcome {
        let result = entry.result();
        if let Some(index) = cqueue::buffer_select(entry.flags()) {
            let length = usize::try_from(result).unwrap_or(0).min(self.buffers.length);
            if length > 0 {
                return Outcome::Received(Filled { index, length });
            }
            // A buffer was chosen and not filled: the stream ended, or the receive failed.
            self.buffers.give(index);
        }
        match -result {
            0 => Outcome::Ended,
            libc::ENOBUFS => Outcome::Starved,
            libc::ECANCELED => Outcome::Canceled,
            errno if errno > 0 => Outcome::Failed(io::Error::from_raw_os_error(errno)),
            _ => Outcome::Ready,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Closing a ring cancels its requests, but may return before that is done. Buffers may be freed only once no
        // receive is left that could fill them.
        let all = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
        let none_left = all.or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        });
        let unregistered = self.ring.submitter().unregister_buf_ring(GROUP);
        let gone = none_left.is_ok() && unregistered.is_ok();
        self.buffers.freed_on_drop = gone;
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("entered", &self.entered).finish_non_exhaustive()
    }
}

/// The receive buffers, and the ring of entries that gives them to the kernel.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: u16,
    length: usize,
    /// The number of entries ever given, wrapping: the tail that the kernel reads.
    given: u16,
    /// The kernel is known to be done with the memory; otherwise the memory is leaked.
    freed_on_drop: bool,
}

impl Buffers {
    fn new(count: u16, length: u32) -> Self {
        assert!(count.is_power_of_two() && length > 0, "the kernel wants a power of two");
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let entries = allocate(Self::entries_layout(count)).cast();
        let memory = allocate(Self::memory_layout(count, length));
        Self { entries, memory, count, length, given: 0, freed_on_drop: true }
    }

    fn entries_layout(count: u16) -> Layout {
        let size = usize::from(count) * size_of::<BufRingEntry>();
        Layout::from_size_align(size, PAGE).expect("at most a mebibyte")
    }

    fn memory_layout(count: u16, length: usize) -> Layout {
        let size = usize::from(count).checked_mul(length).expect("receive buffers fit the machine");
        Layout::from_size_align(size, PAGE).expect("receive buffers fit the machine")
    }

    /// Hands buffer `index` to the kernel.
    fn give(&mut self, index: u16) {
        let slot = usize::from(self.given & (self.count - 1));
        assert!(index < self.count, "a buffer of this ring");
        // SAFETY: `slot` is below `count`, so it is inside the array.
        let entry = unsafe { self.entries.add(slot) };
        // SAFETY: `index` is below `count`, so the address is inside `memory`.
        let buffer = unsafe { self.memory.add(usize::from(index) * self.length) };
        // SAFETY: `entry` is live; the kernel reads it only once the tail below says so. Fields are
        // written one by one because the first entry shares its last octets with the tail.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(buffer.as_ptr() as u64);
        entry.set_len(u32::try_from(self.length).unwrap_or(u32::MAX));
        entry.set_bid(index);
        self.given = self.given.wrapping_add(1);
        // SAFETY: `entries` is the start of the live array, which is where `tail` looks.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is two aligned octets of the array, touched by nobody but the kernel,
        // which reads them, and us, atomically, here.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.given, Ordering::Release);
    }

    fn bytes(&self, filled: &Filled) -> &[u8] {
        // SAFETY: the kernel named `index`, one of those it was given, below `count`.
        let start = unsafe { self.memory.add(usize::from(filled.index) * self.length) };
        // SAFETY: `length` is at most that of a buffer. The kernel filled this one and does not
        // touch it until it is given back, which takes the `Filled` borrowed here. The memory was
        // zeroed when it was allocated, so all of it is initialized.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), filled.length) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if !self.freed_on_drop {
            return;
        }
        // SAFETY: allocated by `new` with this layout; the kernel has given up every claim to it.
        unsafe { dealloc(self.entries.as_ptr().cast(), Self::entries_layout(self.count)) };
        let layout = Self::memory_layout(self.count, self.length);
        // SAFETY: as above.
        unsafe { dealloc(self.memory.as_ptr(), layout) };
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layouts made here are never of size zero.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Ignores the error of an enter that ended early, or found the completion queue full: it will be repeated.
fn forgive(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(e) => match e.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(e),
        },
    }
}

/// The only group of receive buffers.
const GROUP: u16 = 0;
/// The token of requests whose outcome is ignored.
const TOKEN_NONE: u64 = u64::MAX;
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Forbids the calling thread one system call for ever, by a filter as containers have it.
    fn forbid(call: libc::c_long) {
        let [load, equals, give] = [
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        ]
        .map(|code| u16::try_from(code).unwrap());
        let step = |code, (jt, jf), k| libc::sock_filter { code, jt, jf, k };
        let forbidden = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
        let mut steps = [
            // The number of the call is the first field of what a filter sees.
            step(load, (0, 0), 0),
            step(equals, (0, 1), u32::try_from(call).unwrap()),
            step(give, (0, 0), forbidden),
            step(give, (0, 0), libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
        // SAFETY: the call takes numbers; it touches no memory.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the kernel copies the program, whose steps are live, before the call returns.
        let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_ring_that_may_be_made_and_not_entered_is_no_ring() {
        if let Err(why) = Ring::new(8, 8, 4096) {
            eprintln!("skipped: {why}");
            return;
        }
        // The filter ends with its thread.
        let why = std::thread::scope(|threads| {
            let filtered = threads.spawn(|| {
                forbid(libc::SYS_io_uring_enter);
                Ring::new(8, 8, 4096).unwrap_err()
            });
            filtered.join().unwrap()
        });
        assert_eq!((why.step, why.error.raw_os_error()), ("enter", Some(libc::EPERM)));
    }

    #[test]
    fn a_new_ring_has_no_news_of_its_trial() {
        if let Ok(mut ring) = Ring::new(8, 8, 4096) {
            assert!(ring.pop().is_none() && !ring.has_events());
        }
    }
}
