//! Counts the instructions of a thread, where the machine has a counter for them: many virtual ones have none.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns how many instructions the calling thread has executed outside the kernel since its first call; `None` if the
/// machine does not count them, does not allow us to, or has not counted all the time. Makes one system call.
pub fn of_this_thread() -> Option<u64> {
    thread_local! {
        static COUNTER: OnceCell<Option<Counter>> = const { OnceCell::new() };
    }
    COUNTER.with(|counter| counter.get_or_init(|| Counter::open(INSTRUCTIONS)).as_ref()?.read())
}

/// A kernel counter for one thread.
#[derive(Debug)]
struct Counter(File);

impl Counter {
    /// Begins to count for the calling thread.
    fn open((kind, config): (u32, u64)) -> Option<Self> {
        let attributes = Attributes { kind, config, flags: FLAGS, ..Attributes::default() };
        // SAFETY: the kernel reads as much of the live value as its `size` says.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                THIS_THREAD,
                ANY_CPU,
                NO_GROUP,
                CLOSE_ON_EXEC,
            )
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        Some(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Returns the count. The kernel gives none for a counter that another user has had meanwhile.
    fn read(&self) -> Option<u64> {
        let mut count = [0; 8];
        (&self.0).read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}

/// The kernel's `struct perf_event_attr`, with the length of its first version.
#[repr(C)]
#[derive(Debug)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            kind: 0,
            size: 64,
            config: 0,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: 0,
            wakeup: 0,
            breakpoint_type: 0,
            breakpoint_address: 0,
        }
    }
}

const _: () = assert!(size_of::<Attributes>() == 64, "PERF_ATTR_SIZE_VER0");

/// `PERF_TYPE_HARDWARE`, `PERF_COUNT_HW_INSTRUCTIONS`.
const INSTRUCTIONS: (u32, u64) = (0, 1);
/// `pinned`: counts always or never. `exclude_kernel` and `exclude_hv`: counts that need no privilege.
const FLAGS: u64 = 1 << 2 | 1 << 5 | 1 << 6;
const THIS_THREAD: libc::pid_t = 0;
const ANY_CPU: libc::c_int = -1;
const NO_GROUP: libc::c_int = -1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The test uses the kernel's count of page faults, which every machine has.
    #[test]
    fn a_counter_counts_what_this_thread_does() {
        const PAGE_FAULTS: (u32, u64) = (1, 2);
        let Some(counter) = Counter::open(PAGE_FAULTS) else {
            return assert_eq!(of_this_thread(), None, "the system forbids all counting");
        };
        let before = counter.read().unwrap();
        let touched = vec![1_u8; 64 << 20];
        assert!(std::hint::black_box(&touched).iter().step_by(4096).all(|byte| *byte == 1));
        assert!(counter.read().unwrap() > before);
    }

    #[test]
    fn instructions_are_counted_or_are_not() {
        let Some(before) = of_this_thread() else { return };
        assert!(of_this_thread().is_some_and(|after| after > before));
    }
}
