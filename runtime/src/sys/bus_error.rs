//! SIGBUS in memory that a peer shares with us.
//!
//! A sealed memfd cannot shrink, but any process that has it can punch holes into it. The system finds no page for a
//! hole when all huge pages are in use, or when it has promised no more memory. The next access to the hole raises
//! SIGBUS, which by default ends the process: one peer would end the service of all others.
//!
//! # Normal operation
//!
//! A `Guard` covers one mapping. The handler finds the guard of the address that faulted, replaces the pages
//! around it by private pages of zeros, counts the fault and returns: the access is made again and succeeds.
//! The owner of the guard compares [`faults`] with the count it saw last, once per poll, and ends the
//! connections whose guards are broken.
//!
//! Any other SIGBUS is passed to the handler that was there before, or has its default effect.
//!
//! # Memory ownership
//!
//! The handler replaces pages only in the range of a guard, and only for a fault in that range. Guards never
//! overlap: `Guard::new` demands that a guard goes before its mapping does, so an address belongs to at most
//! one of them. The thread that faults has a borrow of the mapping, or it could not access it, and the guard
//! outlives every borrow. So the slot that the handler looks for is stable as long as the handler runs. Other
//! slots may change meanwhile, as other threads make and drop guards: each has a version, which is odd during
//! a change and different after it, and the handler passes over a slot whose version is not the same and even
//! before and after it reads the range. It never waits.
//!
//! The handler calls `mmap` and nothing else, allocates nothing, locks nothing, and keeps `errno`.
//!
//! # Limits
//!
//! 2^18 guards exist at once. The handler looks through all slots that were ever in use.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Keeps faults in a mapping from ending the process with SIGBUS, until dropped.
#[derive(Debug)]
pub(super) struct Guard {
    index: usize,
}

impl Guard {
    /// Guards `length` octets from `start`. A fault replaces the extent around it: `extent` octets, counted from
    /// `start`, and cut off at the end.
    ///
    /// # Safety
    ///
    /// The range is a mapping of the caller's, of whole pages; `extent` is a whole number of pages, too. The guard is
    /// dropped before the mapping. Threads access the range only while they borrow, directly or not, the owner of the
    /// guard. Any octet of the range may become zero at any moment.
    pub(super) unsafe fn new(start: NonNull<u8>, length: usize, extent: usize) -> io::Result<Self> {
        install()?;
        let first = NEXT.load(Ordering::Relaxed).min(SLOTS_MAX);
        let claimed = (first..SLOTS_MAX)
            .chain(0..first)
            .find(|index| SLOTS.get(*index).is_some_and(GuardSlot::claim));
        let index = claimed.ok_or(io::ErrorKind::QuotaExceeded)?;
        NEXT.store(index + 1, Ordering::Relaxed);
        USED.fetch_max(index + 1, Ordering::Release);
        let guard = Self { index };
        guard.slot().set(Range { start: start.addr().get(), length, extent });
        Ok(guard)
    }

    /// Returns whether pages of the mapping were replaced.
    pub(super) fn is_broken(&self) -> bool {
        self.slot().faults.load(Ordering::Relaxed) != 0
    }

    fn slot(&self) -> &'static GuardSlot {
        &SLOTS[self.index]
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.slot().clear();
        NEXT.fetch_min(self.index, Ordering::Relaxed);
    }
}

/// Returns how many faults the handler has mended in this process.
#[inline]
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// The octets that a guard covers.
#[derive(Clone, Copy)]
struct Range {
    start: usize,
    length: usize,
    extent: usize,
}

impl Range {
    /// Returns start and length of the extent to replace for a fault at `address`, if that is covered.
    fn around(self, address: usize) -> Option<(usize, usize)> {
        let offset = address.checked_sub(self.start).filter(|offset| *offset < self.length)?;
        let skipped = offset - offset.checked_rem(self.extent)?;
        Some((self.start + skipped, self.extent.min(self.length - skipped)))
    }
}

/// A slot for a guard. It is free while its length is zero.
struct GuardSlot {
    version: AtomicU64,
    start: AtomicUsize,
    length: AtomicUsize,
    extent: AtomicUsize,
    faults: AtomicU64,
}

impl GuardSlot {
    const fn free() -> Self {
        Self {
            version: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            extent: AtomicUsize::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// Begins to change the slot if it is free; returns whether it is.
    fn claim(&self) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let is_free = version.is_multiple_of(2) && self.length.load(Ordering::Relaxed) == 0;
        let (now, odd) = (Ordering::Acquire, version + 1);
        is_free && self.version.compare_exchange(version, odd, now, Ordering::Relaxed).is_ok()
    }

    /// Sets the range of a slot that was claimed.
    fn set(&self, range: Range) {
        fence(Ordering::Release);
        self.start.store(range.start, Ordering::Relaxed);
        self.extent.store(range.extent, Ordering::Relaxed);
        self.faults.store(0, Ordering::Relaxed);
        self.length.store(range.length, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Frees the slot.
    fn clear(&self) {
        self.version.fetch_add(1, Ordering::Acquire);
        fence(Ordering::Release);
        self.length.store(0, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the range, unless another thread is changing it.
    fn range(&self) -> Option<Range> {
        let before = self.version.load(Ordering::Acquire);
        let range = Range {
            start: self.start.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            extent: self.extent.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let is_stable = before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before;
        is_stable.then_some(range)
    }

    /// Replaces the pages around `address` if the slot covers it; returns whether it did.
    fn mend(&self, address: usize) -> bool {
        let Some((start, length)) = self.range().and_then(|range| range.around(address)) else {
            return false;
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // The system reads whole registers, of which a C `int` sets only a part.
        let (access, flags) = (libc::c_long::from(access), libc::c_long::from(flags));
        let (fd, offset): (libc::c_long, libc::c_long) = (-1, 0);
        // SAFETY: the octets are part of a guarded mapping, which lives: this thread is in the middle of an
        // access to it, and the guard, which is still there, goes before the mapping. Its owner accepts that
        // octets become zero. They are whole pages of the mapping, so that huge ones are replaced whole. This
        // is the system call itself, which is safe in a handler, as the C library may do more in its `mmap`.
        let mapped =
            unsafe { libc::syscall(libc::SYS_mmap, start, length, access, flags, fd, offset) };
        if mapped == -1 {
            // The system may have taken the old pages away: the caller ends the process.
            return false;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        FAULTS.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || try_install().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL));
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

fn try_install() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no action is given, and `before` is live and writable.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The handler reads the previous action, and may run as soon as it is installed: store the action before.
    PREVIOUS.get_or_init(|| before);
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as Handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is a live, initialized value whose handler takes three arguments, as its flags say, and
    // does only what is safe in a handler; the old action is not asked for.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Runs in the middle of any access to memory: no allocation, no lock, no unwinding, errno kept.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the location is this thread's own errno, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's initialized errno, which no one else accesses.
    let kept = unsafe { errno.read() };
    // SAFETY: the system passes a live, initialized siginfo to a handler with SA_SIGINFO.
    let (code, address) = unsafe { info.as_ref() }.map_or((0, ptr::null_mut()), |about| {
        // SAFETY: of a SIGBUS that the system raises for a fault this is the address. In any other case the
        // octets there mean nothing, and are not looked at.
        (about.si_code, unsafe { about.si_addr() })
    });
    let is_mended = code == libc::BUS_ADRERR && mend(address.addr());
    // SAFETY: as for the read above.
    unsafe { errno.write(kept) };
    if !is_mended {
        pass_on(signal, code, info, context);
    }
}

/// Replaces the pages around `address` if a guard covers it; returns whether one does.
fn mend(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire);
    SLOTS.iter().take(used).any(|slot| slot.mend(address))
}

/// Passes the signal on to the handler that was there before, or has its default effect.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let (handler, flags) =
        PREVIOUS.get().map_or((libc::SIG_DFL, 0), |action| (action.sa_sigaction, action.sa_flags));
    let is_fault = code > 0;
    match handler {
        // The system does not let a process ignore a fault.
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: `SIG_DFL` is an action of any signal, and `signal` is safe in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if !is_fault {
                // SAFETY: `raise` is safe in a handler. The signal is blocked until this handler returns.
                unsafe { libc::raise(signal) };
            }
            // The access is made again, and raises the fault again.
        }
        handler if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the action that was installed before had this flag, so its handler takes three arguments.
            let handler = unsafe { std::mem::transmute::<libc::sighandler_t, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the action that was installed before had a handler of one argument.
            let handler = unsafe {
                std::mem::transmute::<libc::sighandler_t, extern "C" fn(libc::c_int)>(handler)
            };
            handler(signal);
        }
    }
}

/// The most guards at once: three for each of the connections that four cores can have.
pub(super) const SLOTS_MAX: usize = 1 << 18;

/// The guards, as the handler finds them.
static SLOTS: [GuardSlot; SLOTS_MAX] = [const { GuardSlot::free() }; SLOTS_MAX];
/// The number of slots, from the first, that may have been in use at some time.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The slot at which the search for a free one begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The number of faults mended.
static FAULTS: AtomicU64 = AtomicU64::new(0);
/// The action for SIGBUS before ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

#[cfg(test)]
mod tests;
