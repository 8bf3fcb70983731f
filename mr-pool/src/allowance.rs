//! The share of the machine that the system lets this process use: what is there, and the limits of its control groups.
//!
//! # Normal operation
//! A process is in one control group of each hierarchy, and that group is inside others, up to the root of the
//! hierarchy. Each of them may have a limit, and the smallest remainder counts. `/proc/self/cgroup` names the groups; in
//! a container their directories may be missing or mounted elsewhere, and then the root of the hierarchy stands for the
//! container's own group. Files of version 2 and of version 1 are read (Linux,
//! `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`, and `scheduler/sched-bwc.rst`).

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The memory and the CPU time that this process may use. A field is `None` if the system sets no limit or tells none.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Allowance {
    /// Octets that this process can take without swapping: what the machine has available, or what its control groups
    /// leave if that is less.
    pub available: Option<usize>,
    /// The tightest limit of memory of the control groups.
    pub memory: Option<GroupLimit>,
    /// The tightest limit of 2 MiB pages of the control groups.
    pub huge: Option<GroupLimit>,
    /// The tightest limit of 1 GiB pages of the control groups.
    pub gigantic: Option<GroupLimit>,
    /// The tightest quota of CPU time of the control groups.
    pub cpu: Option<CpuQuota>,
}

/// A limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupLimit {
    /// The octets that the group may have.
    pub limit: usize,
    /// The octets that the group can still take. Clean pages of files that were not used lately count as free.
    pub left: usize,
    /// The file that sets the limit.
    pub file: PathBuf,
}

/// A quota of CPU time of a control group, which is stopped once it has used the quota, until the period is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuQuota {
    /// The CPU time of each period, in microseconds.
    pub quota_us: u64,
    /// The length of a period, in microseconds; never zero.
    pub period_us: u64,
    /// The file that sets the quota.
    pub file: PathBuf,
}

impl Allowance {
    /// Reads the allowance of this process on this machine.
    pub fn here() -> Self {
        Self::under(Path::new("/"))
    }

    /// Reads the allowance from `proc` and `sys` in the directory `root`.
    pub fn under(root: &Path) -> Self {
        let groups = Groups::of_this_process(root);
        let machine = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let machine = field(&machine, "MemAvailable:");
        let memory = groups.tightest(&MEMORY);
        let left = memory.as_ref().map(|memory| memory.left);
        Self {
            available: machine.into_iter().chain(left).min(),
            memory,
            huge: groups.tightest(&HUGE),
            gigantic: groups.tightest(&GIGANTIC),
            cpu: groups.cpu(),
        }
    }
}

impl CpuQuota {
    /// Returns the number of CPUs that the quota is worth.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// A resource whose use control groups limit: the names of its files.
#[derive(Debug)]
struct Resource {
    /// The controller, as version 1 names it.
    controller: &'static str,
    v2: Files,
    v1: Files,
}

#[derive(Debug)]
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// The field of `memory.stat` with the octets among those in use that the kernel takes back for the asking.
    reclaimable: Option<&'static str>,
}

/// Beyond `memory.high` the kernel slows down the group instead of ending it, which locked memory does not survive
/// either: it cannot be taken back.
const MEMORY: Resource = Resource {
    controller: "memory",
    v2: Files {
        limits: &["memory.max", "memory.high"],
        used: "memory.current",
        reclaimable: Some("inactive_file"),
    },
    v1: Files {
        limits: &["memory.limit_in_bytes"],
        used: "memory.usage_in_bytes",
        reclaimable: Some("total_inactive_file"),
    },
};

const HUGE: Resource = Resource {
    controller: "hugetlb",
    v2: Files { limits: &["hugetlb.2MB.max"], used: "hugetlb.2MB.current", reclaimable: None },
    v1: Files {
        limits: &["hugetlb.2MB.limit_in_bytes"],
        used: "hugetlb.2MB.usage_in_bytes",
        reclaimable: None,
    },
};

const GIGANTIC: Resource = Resource {
    controller: "hugetlb",
    v2: Files { limits: &["hugetlb.1GB.max"], used: "hugetlb.1GB.current", reclaimable: None },
    v1: Files {
        limits: &["hugetlb.1GB.limit_in_bytes"],
        used: "hugetlb.1GB.usage_in_bytes",
        reclaimable: None,
    },
};

/// The control groups of a process.
#[derive(Debug)]
struct Groups {
    /// The directory in which the hierarchies are mounted.
    mounts: PathBuf,
    /// `/proc/self/cgroup`: a line for each hierarchy, `NUMBER:CONTROLLERS:PATH`.
    own: String,
}

impl Groups {
    fn of_this_process(root: &Path) -> Self {
        let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        Self { mounts: root.join("sys/fs/cgroup"), own }
    }

    /// Returns the limit of a resource that leaves least.
    fn tightest(&self, resource: &Resource) -> Option<GroupLimit> {
        let v2 = self.v2().filter_map(|group| resource.v2.read(&group));
        let v1 = self.v1(resource.controller).filter_map(|group| resource.v1.read(&group));
        v2.chain(v1).min_by_key(|limit| limit.left)
    }

    /// Returns the quota that gives the least CPU time.
    fn cpu(&self) -> Option<CpuQuota> {
        let v2 = self.v2().filter_map(|group| quota_v2(&group));
        let v1 = self.v1("cpu").filter_map(|group| quota_v1(&group));
        v2.chain(v1).min_by(|a, b| a.cpus().total_cmp(&b.cpus()))
    }

    /// Returns the directories of the groups of version 2, the process's own first.
    fn v2(&self) -> impl Iterator<Item = PathBuf> {
        let path = self.hierarchies().find_map(|(names, path)| names.is_empty().then_some(path));
        upwards(&self.mounts, path.unwrap_or_default())
    }

    /// Returns the directories of the groups of version 1 with this controller, the process's own first.
    fn v1(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
        // The directory has the name of the hierarchy, such as `cpu,cpuacct`, or that of the controller.
        let is_its = |names: &str| names.split(',').any(|name| name == controller);
        let its = self.hierarchies().find(|(names, _)| is_its(names));
        let (names, path) = its.unwrap_or((controller, ""));
        let [mount, other] = [names, controller].map(|name| self.mounts.join(name));
        upwards(if mount.is_dir() { &mount } else { &other }, path)
    }

    /// Returns the controllers of each hierarchy, none for version 2, and the path of the process's group in it.
    fn hierarchies(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
    }
}

impl Files {
    fn read(&self, group: &Path) -> Option<GroupLimit> {
        let limits = self.limits.iter().map(|name| group.join(name));
        let limits = limits.filter_map(|file| Some((number_in(&file)?, file)));
        let (limit, file) = limits.min()?;
        // Version 1 says "no limit" by the largest multiple of a page.
        if limit > isize::MAX as usize / 2 {
            return None;
        }
        let used: usize = number_in(&group.join(self.used)).unwrap_or(0);
        let reclaimable = self.reclaimable.and_then(|name| {
            let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
            let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
            fields.find(|(field, _)| *field == name)?.1.trim().parse().ok()
        });
        let used = used.saturating_sub(reclaimable.unwrap_or(0));
        Some(GroupLimit { limit, left: limit.saturating_sub(used), file })
    }
}

fn quota_v2(group: &Path) -> Option<CpuQuota> {
    let file = group.join("cpu.max");
    let text = fs::read_to_string(&file).ok()?;
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (Some(Ok(quota_us)), Some(Ok(period_us))) = (words.next(), words.next()) else {
        return None;
    };
    (period_us > 0).then_some(CpuQuota { quota_us, period_us, file })
}

fn quota_v1(group: &Path) -> Option<CpuQuota> {
    let file = group.join("cpu.cfs_quota_us");
    // No quota is -1, which is no number here.
    let quota_us = number_in(&file)?;
    let period_us = number_in(&group.join("cpu.cfs_period_us")).filter(|period| *period > 0)?;
    Some(CpuQuota { quota_us, period_us, file })
}

/// Returns the directory of the group at `path` in the hierarchy mounted at `mount`, and those of the groups it is in,
/// up to `mount`.
fn upwards(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let names = Path::new(path).components().filter(|part| !matches!(part, Component::RootDir));
    let names: Vec<_> = names.collect();
    // A group outside of what the process sees: only the root of the hierarchy is known.
    let is_outside = names.iter().any(|part| !matches!(part, Component::Normal(_)));
    let names = if is_outside { &[][..] } else { &names };
    let mut groups = vec![mount.to_owned()];
    for name in names {
        let below = groups.last().map(|group| group.join(name));
        groups.extend(below);
    }
    groups.into_iter().rev()
}

/// Returns a field in KiB as octets, if `text` has it.
pub(crate) fn field(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Returns the number in a file; `None` if there is another word.
pub(crate) fn number_in<N: FromStr>(file: &Path) -> Option<N> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests;
