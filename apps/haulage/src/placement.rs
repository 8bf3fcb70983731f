//! Placement of cores on CPUs.

use std::io::{self, IsTerminal};
use std::path::Path;

use haulage::sys::{affinity, cpu, process};

use crate::cli::values::{CoreList, Polling};
use crate::failure::Failure;
use crate::output::Output;

mod server_cores;
mod sides;

pub use server_cores::{ServerCores, Topology};
pub use sides::{Named, Sides, place_words};

/// The CPUs this process can run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPUs on which the scheduler may run this process.
    pub usable: Vec<usize>,
    /// Isolated CPUs, on which only pinned threads run.
    pub isolated: Vec<usize>,
}

impl Cpus {
    /// Reads the CPUs from the system.
    pub fn here() -> Result<Self, Failure> {
        let usable = affinity::usable().map_err(|error| {
            Failure::failed(format!("cannot ask which CPUs are usable: {error}"))
        })?;
        Ok(Self { usable: usable.to_vec(), isolated: cpu::isolated(Path::new("/")) })
    }

    /// Returns whether there is only one CPU, so that no core is pinned and none spins.
    pub fn is_single(&self) -> bool {
        self.usable.len() <= 1 && self.isolated.iter().all(|cpu| self.usable.contains(cpu))
    }

    /// Removes isolated CPUs to which this process cannot pin a thread.
    pub fn keep_pinnable(&mut self) {
        self.isolated.retain(|cpu| can_pin(*cpu));
    }

    /// Checks that a core can be pinned to each CPU of `list`, which `option` named.
    fn check(&self, list: &CoreList, option: &str) -> Result<(), Failure> {
        let Some(cpu) = list.cpus().iter().find(|cpu| !can_pin(**cpu)) else { return Ok(()) };
        let mut all = [&self.usable[..], &self.isolated].concat();
        all.sort_unstable();
        all.dedup();
        let all = cpu::format_list(&all).replace('-', " to ").replace(',', ", ");
        Err(Failure::failed(format!("no CPU {cpu} here ({all}); name others with {option}")))
    }
}

/// Returns whether this thread can be pinned to a CPU. Only trying tells: a thread can move to some CPUs that the system does
/// not list.
fn can_pin(cpu: usize) -> bool {
    affinity::pin(cpu).and_then(|()| affinity::unpin()).is_ok()
}

/// The CPUs and the polling mode of the cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One entry for each core: the CPU it is pinned to, if any.
    pub cores: Vec<Option<usize>>,
    /// The polling mode of each core.
    pub polling: Polling,
    /// A note for the user about a choice that the options did not make.
    pub note: Option<&'static str>,
}

impl Placement {
    /// Places one core on each CPU of `asked`, the value of `--cores`, or one core that is not pinned.
    ///
    /// # Errors
    /// A CPU of `asked` does not exist, or this process may not use it.
    pub fn new(asked: Option<&CoreList>, polling: Polling, cpus: &Cpus) -> Result<Self, Failure> {
        Self::of_option("--cores", asked, (polling, cpus))
    }

    /// Places one core on each CPU of the value of `--client-cores`.
    ///
    /// # Errors
    /// A CPU of it does not exist, or this process may not use it.
    pub fn of_clients(asked: &CoreList, polling: Polling, cpus: &Cpus) -> Result<Self, Failure> {
        Self::of_option("--client-cores", Some(asked), (polling, cpus))
    }

    fn of_option(
        option: &str,
        asked: Option<&CoreList>,
        (polling, cpus): (Polling, &Cpus),
    ) -> Result<Self, Failure> {
        let cores = match asked {
            Some(list) => list.cpus().iter().copied().map(Some).collect(),
            None => vec![None],
        };
        if cpus.is_single() {
            let cores = vec![None; cores.len()];
            return Ok(Self { cores, polling: Polling::Adaptive, note: Some(ONE_CPU) });
        }
        asked.map_or(Ok(()), |list| cpus.check(list, option))?;
        Ok(Self { cores, polling, note: None })
    }

    /// Places two ends on the two CPUs of `asked`, or on the first two CPUs. On a machine with one CPU they are not
    /// pinned. Returns `None` if `asked` does not name two CPUs.
    pub fn pair(
        &self,
        asked: Option<&CoreList>,
        cpus: &Cpus,
    ) -> Option<(Option<usize>, Option<usize>)> {
        match (asked, &self.cores[..], &cpus.usable[..]) {
            _ if cpus.is_single() => Some((None, None)),
            (Some(_), [near, far], _) => Some((*near, *far)),
            (None, _, [near, far, ..]) => Some((Some(*near), Some(*far))),
            _ => None,
        }
    }
}

/// Raises the priority of a benchmark over other scheduler sessions (autogroups), except in the session of a terminal,
/// which it shares with other processes.
pub fn favour(output: &Output) {
    let shared = io::stdin().is_terminal() || io::stderr().is_terminal();
    let alone = !shared && (process::leads_session() || process::begin_session().is_ok());
    match alone.then(process::favour_session) {
        Some(Ok(())) => output.detail("scheduling: before all other sessions"),
        Some(Err(error)) => output.detail(&format!("scheduling: as any other session ({error})")),
        None => {
            output.detail("scheduling: as the rest of this session; `setsid` would set it apart")
        }
    }
}

const ONE_CPU: &str = "this machine has one CPU: nothing is pinned and polling is adaptive";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_pinned_only_where_asked() {
        let cpus = Cpus { usable: vec![0, 1], isolated: vec![] };
        let here = affinity::usable().unwrap();
        let free = Placement::new(None, Polling::Event, &cpus).unwrap();
        assert_eq!(free, Placement { cores: vec![None], polling: Polling::Event, note: None });
        let list = cpu::format_list(here).parse().unwrap();
        let pinned = Placement::new(Some(&list), Polling::Busy, &cpus).unwrap();
        let cores: Vec<_> = here.iter().copied().map(Some).collect();
        assert_eq!((pinned.cores, pinned.polling), (cores, Polling::Busy));
    }

    #[test]
    fn one_cpu_is_shared_by_everything_and_the_user_is_told() {
        let cpus = Cpus { usable: vec![3], isolated: vec![] };
        let list = "0,3".parse().unwrap();
        let placement = Placement::new(Some(&list), Polling::Busy, &cpus).unwrap();
        assert_eq!(placement.cores, [None, None]);
        assert_eq!((placement.polling, placement.note), (Polling::Adaptive, Some(ONE_CPU)));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
        let list = "8191".parse().unwrap();
        for (usable, isolated, says) in [
            (vec![0, 1], vec![], "no CPU 8191 here (0 to 1)"),
            (vec![0, 2, 3], vec![1, 7], "no CPU 8191 here (0 to 3, 7)"),
        ] {
            let cpus = Cpus { usable, isolated };
            let refused = Placement::new(Some(&list), Polling::Busy, &cpus).unwrap_err();
            assert!(refused.to_string().starts_with(says), "{refused}");
        }
    }

    #[test]
    fn an_isolated_cpu_is_a_second_one() {
        assert!(!Cpus { usable: vec![0], isolated: vec![1] }.is_single());
        assert!(Cpus { usable: vec![0], isolated: vec![0] }.is_single());
    }
}
