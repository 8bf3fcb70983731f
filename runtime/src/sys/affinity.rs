//! The CPUs that this process may use, and pinning a thread to one of them.

use std::io;
use std::sync::OnceLock;

use core_affinity::CoreId;

/// Returns the CPUs that the process was allowed to use at the first call, in rising order.
///
/// The answer is taken once and before the first [`pin`]: a pinned thread would see only its own CPU. CPUs isolated
/// from the scheduler are usually not among them, yet a thread can be pinned to one.
pub fn usable() -> io::Result<&'static [usize]> {
    static USABLE: OnceLock<Result<Box<[usize]>, i32>> = OnceLock::new();
    match USABLE.get_or_init(ask) {
        Ok(cpus) => Ok(cpus),
        Err(errno) => Err(io::Error::from_raw_os_error(*errno)),
    }
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
///
/// The system's: `EINVAL` for a CPU that does not exist, is offline, or is forbidden to this process.
pub fn pin(cpu: usize) -> io::Result<()> {
    // The usable CPUs must be known before any thread narrows its own mask.
    usable()?;
    // The mask of core_affinity has no bit for a larger number.
    if cpu >= libc::CPU_SETSIZE as usize {
        return confine(&[cpu]);
    }
    if core_affinity::set_for_current(CoreId { id: cpu }) {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Undoes a pin that the calling thread has inherited from the thread that started it.
pub fn unpin() -> io::Result<()> {
    confine(usable()?)
}

fn confine(cpus: &[usize]) -> io::Result<()> {
    let mut mask = Mask::default();
    let set = cpus.iter().try_for_each(|cpu| mask.set(*cpu));
    set.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the kernel reads `size_of::<Mask>()` octets from a live, initialized `Mask`; thread 0
    // is the caller.
    let done = unsafe {
        libc::sched_setaffinity(0, size_of::<Mask>(), (&raw const mask).cast::<libc::cpu_set_t>())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// CPUs that a mask can name: the most that a Linux kernel can be built for.
pub const CPUS_MAX: usize = 8192;

/// A CPU mask as the kernel has it: bit `cpu % 64` of word `cpu / 64`.
///
/// Larger than libc's `cpu_set_t`, whose 1024 CPUs a large machine exceeds.
#[derive(Debug)]
struct Mask([u64; CPUS_MAX / 64]);

impl Default for Mask {
    fn default() -> Self {
        Self([0; CPUS_MAX / 64])
    }
}

impl Mask {
    fn set(&mut self, cpu: usize) -> Option<()> {
        *self.0.get_mut(cpu / 64)? |= 1 << (cpu % 64);
        Some(())
    }

    fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CPUS_MAX).filter(|cpu| self.0[cpu / 64] & (1 << (cpu % 64)) != 0)
    }
}

const _: () = assert!(size_of::<Mask>() >= size_of::<libc::cpu_set_t>());

fn ask() -> Result<Box<[usize]>, i32> {
    let mut mask = Mask::default();
    // SAFETY: the kernel writes at most `size_of::<Mask>()` octets into a live `Mask`, for which any
    // bits are valid; thread 0 is the caller.
    let done = unsafe {
        libc::sched_getaffinity(0, size_of::<Mask>(), (&raw mut mask).cast::<libc::cpu_set_t>())
    };
    if done == 0 {
        Ok(mask.cpus().collect())
    } else {
        Err(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_one_thread_changes_neither_the_list_nor_other_threads() {
        let before = usable().unwrap().to_vec();
        assert!(!before.is_empty());
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let last = *before.last().unwrap();
                    pin(last).unwrap();
                    assert_eq!(*ask().unwrap(), [last], "this thread sees only its own CPU");
                    assert_eq!(usable().unwrap(), before);
                    unpin().unwrap();
                    assert_eq!(*ask().unwrap(), *before);
                })
                .join()
                .unwrap();
        });
        assert_eq!(*ask().unwrap(), *before, "the other thread is where it was");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused_with_the_systems_reason() {
        for cpu in [1023, 1024, CPUS_MAX - 1, CPUS_MAX, usize::MAX] {
            assert_eq!(pin(cpu).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{cpu}");
        }
    }
}
