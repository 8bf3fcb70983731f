//! A check that the machine has enough available memory.

use std::fs;

use crate::cli::bytes;
use crate::failure::Failure;

/// Checks that the machine has this much memory available, in octets.
///
/// # Errors
/// The machine or its control group has less.
pub(crate) fn check(octets: usize) -> Result<(), Failure> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    match available(&meminfo, &limit) {
        Some(available) if octets as u64 > available => {
            let reason = format!("{} is available", bytes::rounded(available));
            Err(Failure::failed(refusal(&bytes::rounded(octets as u64), &reason)))
        }
        _ => Ok(()),
    }
}

/// Returns the error text for a request of more memory than is available.
pub(crate) fn refusal(size: &str, reason: &str) -> String {
    format!(
        "cannot have {size} of memory: {reason}; ask for less or free memory (it is filled at start, \
         once per core)"
    )
}

/// Returns the octets available without swapping, or the limit of the control group if that is less.
fn available(meminfo: &str, limit: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let octets = kib.and_then(|kib| kib.checked_mul(1024));
    octets.into_iter().chain(limit.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_the_least_that_the_system_says() {
        let meminfo = "MemTotal:  100 kB\nMemAvailable:   7 kB\n";
        for (meminfo, limit, expected) in [
            (meminfo, "max\n", Some(7 << 10)),
            (meminfo, "4096\n", Some(4096)),
            (meminfo, "999999\n", Some(7 << 10)),
            ("", "4096\n", Some(4096)),
            ("", "", None),
        ] {
            assert_eq!(available(meminfo, limit), expected, "{meminfo:?} {limit:?}");
        }
    }

    #[test]
    fn more_than_any_machine_has_is_refused() {
        assert!(check(0).is_ok());
        assert!(check(usize::MAX).is_err());
    }
}
