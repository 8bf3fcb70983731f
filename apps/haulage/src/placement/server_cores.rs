//! The cores that a server takes if nobody names any.

use std::path::Path;

use haulage::sys::cpu;

use super::Cpus;

/// What decides how many cores a server takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// CPUs on which the scheduler may run this process: its affinity mask.
    pub usable: Vec<usize>,
    /// Isolated CPUs to which this process can pin threads.
    pub isolated: Vec<usize>,
    /// The physical cores of all these CPUs, each a list of those of the CPUs that are its hardware threads.
    pub physical: Vec<Vec<usize>>,
    /// The CPUs' worth of time that control groups allow; `None` is no limit.
    pub quota: Option<f64>,
}

/// The cores that a server takes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCores {
    /// The CPUs to pin cores to, one each; none stands for one core that is not pinned.
    pub cpus: Vec<usize>,
    /// The reason.
    pub why: String,
}

impl Topology {
    /// Reads the physical cores of `cpus` from the system. `root` is the directory that has `sys`: `/`, except in tests.
    pub fn read(root: &Path, cpus: &Cpus, quota: Option<f64>) -> Self {
        let Cpus { usable, isolated } = cpus.clone();
        let mut all = [&usable[..], &isolated].concat();
        all.sort_unstable();
        all.dedup();
        let threads = |cpu: &usize| {
            let mut threads = cpu::siblings(root, *cpu);
            threads.retain(|thread| all.contains(thread));
            threads
        };
        let mut physical: Vec<_> = all.iter().map(threads).collect();
        physical.sort_unstable();
        physical.dedup();
        Self { usable, isolated, physical, quota }
    }

    /// Returns the cores that a server takes: one where there are at most two physical cores; else the isolated CPUs; else
    /// a thread of each physical core of the affinity mask but the last one, which is left for the system. They are never
    /// more than the whole CPUs of the quota.
    pub fn server_cores(&self) -> ServerCores {
        let not_pinned = |why| ServerCores { cpus: Vec::new(), why };
        match self.physical.len() {
            0 | 1 => return not_pinned("there is one physical core".to_owned()),
            2 => return not_pinned("there are two physical cores".to_owned()),
            _ => {}
        }
        let (mut cpus, mut why) = if self.isolated.is_empty() {
            let thread =
                |core: &Vec<usize>| core.iter().find(|cpu| self.usable.contains(cpu)).copied();
            let mut threads: Vec<_> = self.physical.iter().filter_map(thread).collect();
            threads.pop();
            (threads, "one thread of each physical core, one left for the system".to_owned())
        } else {
            (self.isolated.clone(), "the isolated CPUs".to_owned())
        };
        if let Some(quota) = self.quota {
            let fits = |count: &usize| *count as f64 <= quota;
            let most = (1..=cpus.len()).rev().find(fits).unwrap_or(1);
            if most < cpus.len() {
                cpus.truncate(most);
                why.push_str(&format!("; the quota of {quota:.2} CPUs allows {most}"));
            }
        }
        // One of many cores that are all alike needs no CPU of its own; an isolated one is had only so.
        if cpus.len() <= 1 && self.isolated.is_empty() {
            cpus.clear();
        }
        ServerCores { cpus, why }
    }
}

impl ServerCores {
    /// Returns the words that name the cores and the reason.
    pub fn words(&self) -> String {
        let Self { cpus, why } = self;
        let list = cpu::format_list(cpus);
        match cpus.len() {
            0 => format!("one core, not pinned ({why})"),
            1 => format!("CPU {list} ({why})"),
            _ => format!("CPUs {list} ({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a machine of `cores` physical cores with `threads` hardware threads each. CPUs are numbered as on most machines:
    /// first one thread of each core, then the others.
    fn machine(cores: usize, threads: usize) -> Topology {
        let physical = |core| (0..threads).map(|thread| core + thread * cores).collect();
        Topology {
            usable: (0..cores * threads).collect(),
            isolated: vec![],
            physical: (0..cores).map(physical).collect(),
            quota: None,
        }
    }

    fn words(machine: &Topology) -> String {
        machine.server_cores().words()
    }

    #[test]
    fn a_small_machine_has_one_core_that_is_not_pinned() {
        for (cores, threads, why) in [
            (1, 1, "there is one physical core"),
            (1, 4, "there is one physical core"),
            (2, 1, "there are two physical cores"),
            (2, 2, "there are two physical cores"),
        ] {
            assert_eq!(words(&machine(cores, threads)), format!("one core, not pinned ({why})"));
        }
        let isolated = Topology { isolated: vec![1], ..machine(2, 1) };
        assert!(isolated.server_cores().cpus.is_empty());
    }

    #[test]
    fn a_larger_one_has_a_thread_of_each_physical_core_but_one() {
        let said = "CPUs 0-2 (one thread of each physical core, one left for the system)";
        assert_eq!(words(&machine(4, 1)), said);
        assert_eq!(words(&machine(4, 2)), said);
        assert_eq!(machine(3, 1).server_cores().cpus, [0, 1]);
        assert_eq!(machine(64, 2).server_cores().cpus, (0..63).collect::<Vec<_>>());
        // Here the threads of a core are neighbours.
        let pairs = vec![vec![0, 1], vec![2, 3], vec![4, 5]];
        assert_eq!(Topology { physical: pairs, ..machine(3, 2) }.server_cores().cpus, [0, 2]);
    }

    #[test]
    fn isolated_cpus_come_first() {
        let mut isolated = machine(4, 1);
        (isolated.usable, isolated.isolated) = (vec![0, 1], vec![2, 3]);
        assert_eq!(words(&isolated), "CPUs 2-3 (the isolated CPUs)");
        isolated.isolated = vec![3];
        assert_eq!(words(&isolated), "CPU 3 (the isolated CPUs)");
    }

    #[test]
    fn a_quota_bounds_the_cores_by_its_whole_cpus() {
        let under = |quota| Topology { quota: Some(quota), ..machine(8, 2) }.server_cores();
        assert_eq!(under(16.0), machine(8, 2).server_cores());
        assert_eq!(under(3.9).cpus, [0, 1, 2]);
        assert!(under(3.9).words().ends_with("; the quota of 3.90 CPUs allows 3)"));
        for less in [1.5, 1.0, 0.5, 0.0] {
            assert!(under(less).cpus.is_empty(), "{less}: one core, where the scheduler puts it");
        }
        let isolated = Topology { isolated: vec![6, 7], quota: Some(0.5), ..machine(8, 1) };
        assert_eq!(isolated.server_cores().cpus, [6]);
    }

    #[test]
    fn the_affinity_mask_decides_which_physical_cores_there_are() {
        let cpus = Cpus { usable: vec![1, 4, 5, 6], isolated: vec![] };
        let nowhere = Path::new("/nonexistent");
        let read = Topology::read(nowhere, &cpus, Some(4.0));
        assert_eq!(read.physical, [[1], [4], [5], [6]], "this machine tells nothing of threads");
        assert_eq!(read.server_cores().cpus, [1, 4, 5]);
        // Two of the four CPUs are the second threads of others that may not be used.
        let some = Topology { physical: vec![vec![1, 5], vec![4], vec![6]], ..read };
        assert_eq!(some.server_cores().cpus, [1, 4]);
    }
}
