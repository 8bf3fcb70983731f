//! The machine's CPUs, and how steady they are at this moment.

use std::fs;
use std::path::Path;

use super::affinity::CPUS_MAX;
use super::clock;

/// Parses a list of CPUs as the kernel and people write it: `0,2-3`.
///
/// Returns the numbers in rising order, each once; `None` if `text` is not such a list or names a
/// number no kernel has. An empty `text` is an empty list.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(cpus);
    }
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// Formats `cpus`, in rising order, so that [`parse_list`] can read it.
pub fn format_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| b.checked_sub(*a) == Some(1));
    let parts = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Returns the CPUs kept free of the scheduler (`isolcpus`, isolated cpusets); none if unknown.
///
/// `root` is the directory that has `sys`: `/`, except in tests.
pub fn isolated(root: &Path) -> Vec<usize> {
    list(root, "sys/devices/system/cpu/isolated")
}

/// Returns the CPUs that are threads of the same physical core as `cpu`, itself included; only itself if the machine does
/// not tell.
///
/// `root` is the directory that has `sys`: `/`, except in tests.
pub fn siblings(root: &Path, cpu: usize) -> Vec<usize> {
    let siblings =
        list(root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    if siblings.contains(&cpu) { siblings } else { vec![cpu] }
}

/// Returns the NUMA nodes that are online; only node 0 if the machine does not tell.
///
/// `root` is the directory that has `sys`: `/`, except in tests.
pub fn nodes(root: &Path) -> Vec<usize> {
    let nodes = list(root, "sys/devices/system/node/online");
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// Returns the NUMA node of `cpu`; `None` if the machine does not tell.
pub fn node_of(root: &Path, cpu: usize) -> Option<usize> {
    nodes(root).into_iter().find(|node| {
        list(root, &format!("sys/devices/system/node/node{node}/cpulist")).contains(&cpu)
    })
}

/// Returns the cost of one reading of the CPU's time stamp counter at this moment, in nanoseconds.
///
/// It is a measure of noise: on a quiet core it is steady, and it about doubles while a sibling is busy. Takes a few
/// microseconds. `None` on a CPU without such a counter.
pub fn time_stamp_cost_ns() -> Option<f64> {
    const ROUNDS: u32 = 256;
    let started = clock::now();
    for _ in 0..ROUNDS {
        std::hint::black_box(time_stamp()?);
    }
    let took = clock::now().saturating_since(started);
    Some(took.as_secs_f64() * 1e9 / f64::from(ROUNDS))
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> Option<u64> {
    // SAFETY: every x86_64 CPU has the instruction; it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> Option<u64> {
    None
}

fn list(root: &Path, file: &str) -> Vec<usize> {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    parse_list(&text).unwrap_or_default()
}

fn number(text: &str) -> Option<usize> {
    // `parse` would also take a sign.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && *n < CPUS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_the_kernel_and_people_write_them() {
        assert_eq!(parse_list("0,2-4\n"), Some(vec![0, 2, 3, 4]));
        assert_eq!(parse_list("3,1-3,1"), Some(vec![1, 2, 3]));
        assert_eq!(parse_list(""), Some(vec![]));
        for wrong in ["a", "1-", "-1", "3-1", "1,,2", "+1", "0-99999999999", "8192", "1 2"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for cpus in [vec![], vec![0], vec![0, 1], vec![0, 2, 3, 4, 9]] {
            assert_eq!(parse_list(&format_list(&cpus)), Some(cpus));
        }
        assert_eq!(format_list(&[0, 2, 3, 4, 9]), "0,2-4,9");
    }

    #[test]
    fn a_machine_that_says_nothing_has_one_node_and_no_isolated_cpu() {
        let nowhere = Path::new("/nonexistent");
        assert_eq!(
            (isolated(nowhere), nodes(nowhere), node_of(nowhere, 0)),
            (vec![], vec![0], None)
        );
        assert_eq!(siblings(nowhere, 3), [3], "each CPU is a physical core");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_noise_witness_is_a_plausible_time() {
        let cost = time_stamp_cost_ns().unwrap();
        assert!(cost > 0.1 && cost < 1e6, "{cost} ns");
    }
}
