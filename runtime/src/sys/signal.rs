//! SIGTERM and SIGINT as a request to end: a flag, and a wake-up for cores that sleep.
//!
//! SIGPIPE needs no handler: Rust programs ignore it from their first instruction, so a closed pipe
//! is an error of the write that meets it. SIGXFSZ is its like for the limit of a file's size, and Rust leaves it as it
//! is: [`ignore_file_size_limit`]. No other signal that ends a process comes of what a peer asks for: SIGBUS has a
//! handler where regions of peers are mapped, SIGURG and SIGWINCH are ignored by default, and SIGXCPU is the end that
//! an operator has set for the process.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use super::wake::Waker;

/// Makes SIGTERM and SIGINT set the flag that [`end_requested`] reads and wake every registered
/// waker. The second such signal ends the process at once, with status 1.
pub fn catch_termination() -> io::Result<()> {
    [libc::SIGTERM, libc::SIGINT].into_iter().try_for_each(|signal| handle(signal, on_signal))
}

/// Has the signals of [`catch_termination`] end the process at once, with status 0, until [`end_start`]: while it starts there
/// is nothing to drain, and a thread that fills memory in one call of the system sees no flag.
pub fn begin_start() {
    IS_STARTING.store(true, Ordering::SeqCst);
}

/// Has the signals of [`catch_termination`] set the flag from now on.
pub fn end_start() {
    IS_STARTING.store(false, Ordering::SeqCst);
}

/// Makes SIGTERM, SIGINT, SIGQUIT and SIGHUP end the process if it is process 1 of its PID namespace, as in a container
/// without an init. The kernel keeps from process 1 every signal that it has no handler for. The exit status is 128 and
/// the signal's number, as a shell tells of a process that a signal ended.
pub fn end_as_first_process() -> io::Result<()> {
    if std::process::id() != 1 {
        return Ok(());
    }
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
    signals.into_iter().try_for_each(|signal| handle(signal, end_at_once))
}

/// Installs a handler, which calls only what POSIX lists as safe in a handler.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is a live, initialized value; the callers' handlers, `on_signal`, `on_hangup` and `end_at_once`,
    // call only what is safe in a handler; the old action is not asked for.
    if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes SIGHUP set the flag that [`take_hangup`] takes, and wake every registered waker.
pub fn catch_hangup() -> io::Result<()> {
    handle(libc::SIGHUP, on_hangup)
}

/// Returns whether SIGHUP came since this function was last called.
pub fn take_hangup() -> bool {
    HUNG_UP.swap(false, Ordering::SeqCst)
}

/// Makes the process ignore SIGHUP: a server continues when the terminal it was started from is gone.
pub fn ignore_hangup() -> io::Result<()> {
    ignore(libc::SIGHUP)
}

/// Makes the process ignore SIGXFSZ: what grows a file beyond the limit of file sizes (`ulimit -f`, `LimitFSIZE=`) fails
/// with EFBIG, and the process goes on. Children inherit it.
pub fn ignore_file_size_limit() -> io::Result<()> {
    ignore(libc::SIGXFSZ)
}

fn ignore(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = libc::SIG_IGN;
    // SAFETY: `action` is a live, initialized value without a handler; the old action is not asked for.
    if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns whether the process was asked to end.
pub fn end_requested() -> bool {
    SIGNALS.load(Ordering::Acquire) != 0
}

/// Wakes `waker` when the process is asked to end, and at once if it already was.
///
/// The registration lasts as long as the process: a handler may run at any moment, so its
/// descriptor is never closed. Fails once [`WAKERS_MAX`] are registered.
pub fn wake_on_end(waker: &Waker) -> Result<(), TooManyWakers> {
    let slot = WAKERS_USED.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = WAKERS.get(slot) else {
        WAKERS_USED.fetch_sub(1, Ordering::Relaxed);
        return Err(TooManyWakers);
    };
    // The clone keeps the descriptor open for ever.
    std::mem::forget(waker.clone());
    slot.store(waker.signal_fd(), Ordering::SeqCst);
    // A signal between the caller's start and the store above found no descriptor to wake.
    if SIGNALS.load(Ordering::SeqCst) != 0 {
        waker.wake();
    }
    Ok(())
}

/// Every place for a waker is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyWakers;

/// Wakers that can be registered: one per core.
pub const WAKERS_MAX: usize = 1024;

/// Signals received so far.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
/// Descriptors to wake; `NO_FD` in unused places.
static WAKERS: [AtomicI32; WAKERS_MAX] = [const { AtomicI32::new(NO_FD) }; WAKERS_MAX];
/// Places taken in `WAKERS`, filled from the front.
static WAKERS_USED: AtomicUsize = AtomicUsize::new(0);

/// Whether SIGHUP came and nobody has taken notice.
static HUNG_UP: AtomicBool = AtomicBool::new(false);
/// Whether a signal ends the process at once.
static IS_STARTING: AtomicBool = AtomicBool::new(false);

const NO_FD: i32 = -1;
const SUCCESS: i32 = 0;
const FAILURE: i32 = 1;

/// Ends the process from the middle of any thread.
extern "C" fn end_at_once(signal: libc::c_int) {
    // SAFETY: `_exit` is safe in a handler; it runs no destructor and does not return.
    unsafe { libc::_exit(128 + signal) };
}

/// Runs in the middle of any thread: no allocation, no lock, no unwinding, errno kept.
extern "C" fn on_signal(_signal: libc::c_int) {
    if IS_STARTING.load(Ordering::SeqCst) {
        // SAFETY: `_exit` is safe in a handler; it runs no destructor and does not return.
        unsafe { libc::_exit(SUCCESS) };
    }
    if SIGNALS.fetch_add(1, Ordering::SeqCst) != 0 {
        // SAFETY: `_exit` is safe in a handler; it runs no destructor and does not return.
        unsafe { libc::_exit(FAILURE) };
    }
    wake_all();
}

/// Runs in the middle of any thread, as [`on_signal`] does.
extern "C" fn on_hangup(_signal: libc::c_int) {
    HUNG_UP.store(true, Ordering::SeqCst);
    wake_all();
}

/// Wakes every registered waker from a handler: no allocation, no lock, no unwinding, errno kept.
fn wake_all() {
    // SAFETY: the location is this thread's own errno, valid as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's initialized errno, which no one else accesses.
    let kept = unsafe { errno.read() };
    for waker in &WAKERS {
        let fd = waker.load(Ordering::SeqCst);
        if fd == NO_FD {
            continue;
        }
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `write` is safe in a handler and reads eight octets of a live array. `fd` is an
        // eventfd that is never closed (`wake_on_end`). Failure means it is already signaled.
        unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
    }
    // SAFETY: as for the read above.
    unsafe { errno.write(kept) };
}
