//! The only module that reads the clocks.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use haulage_proto::time::Instant;

/// Reads the monotonic clock, in nanoseconds since the first call in this process.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    let now = monotonic();
    Instant::from_nanos(now.saturating_sub(*ORIGIN.get_or_init(|| now)))
}

/// Reads the system's monotonic clock, in nanoseconds.
fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` into a live value.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    debug_assert!(read == 0, "every system has this clock");
    let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Reads the time of day, as the time since 1970 began; zero if the clock is set to an earlier time.
#[expect(clippy::disallowed_methods, reason = "this is the module that reads the clock")]
pub fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns how long the calling thread has run on a CPU since it started; zero if the system does not tell. Makes one
/// system call.
pub fn thread_cpu_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` into a live value.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut spent) };
    let seconds = u64::try_from(spent.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(spent.tv_nsec).unwrap_or_default();
    if done == 0 { Duration::from_nanos(seconds * 1_000_000_000 + nanos) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_uses_its_cpu_and_one_that_waits_does_not() {
        let before = thread_cpu_time();
        let mut sum = 0_u64;
        while thread_cpu_time() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let (worked, origin) = (thread_cpu_time(), now());
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| while now().saturating_since(origin) < SHORT {});
            busy.join().unwrap();
        });
        assert!(
            thread_cpu_time().saturating_sub(worked) < SHORT,
            "another thread's time is its own"
        );
    }

    const SHORT: Duration = Duration::from_millis(20);
}
