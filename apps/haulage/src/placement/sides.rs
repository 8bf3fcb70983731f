//! The CPUs of a server of several cores and of its clients, all on one machine.

use std::cmp::Reverse;

use haulage::core::CORES_MAX;
use haulage::sys::cpu;

use super::Cpus;
use crate::cli::values::CoreList;
use crate::failure::Failure;

/// The CPUs that the options name for the cores of a server, and for its clients, of which each core has one.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// One CPU for each core of the server.
    pub servers: &'a CoreList,
    /// One CPU for each client; `None` leaves them to [`Self::first`].
    pub clients: Option<&'a CoreList>,
}

impl Named<'_> {
    /// Checks that the lists suit each other, and that cores can be pinned as they say.
    ///
    /// # Errors
    /// There are not as many clients as server cores, or more than a server has; a CPU is not there.
    pub fn check(&self, cpus: &Cpus) -> Result<(), Failure> {
        let count = self.count();
        if count > usize::from(CORES_MAX) {
            return Err(Failure::usage(format!(
                "--server-cores names {count} CPUs, and a server has at most {CORES_MAX} cores"
            )));
        }
        let clients = self.clients.map_or(count, |list| list.cpus().len());
        if clients != count {
            return Err(Failure::usage(format!(
                "each server core has one client: --server-cores names {count}, --client-cores {clients}"
            )));
        }
        if cpus.is_single() {
            return Ok(());
        }
        cpus.check(self.servers, "--server-cores")?;
        self.clients.map_or(Ok(()), |list| cpus.check(list, "--client-cores"))
    }

    /// Returns the number of server cores.
    pub fn count(&self) -> usize {
        self.servers.cpus().len()
    }

    /// Returns the list of the CPUs of the first `count` server cores.
    pub fn list(&self, count: usize) -> String {
        let cpus = self.servers.cpus();
        cpu::format_list(cpus.get(..count).unwrap_or(cpus))
    }

    /// Places the first `count` server cores and their clients. Clients without a list of their own get CPUs without an
    /// end, those of no server core first; if there are none left, CPUs are shared as evenly as possible. On a machine
    /// with one CPU nothing is pinned.
    pub fn first(&self, count: usize, cpus: &Cpus) -> Sides {
        let first = |list: &CoreList| list.cpus().iter().copied().take(count).collect::<Vec<_>>();
        if cpus.is_single() {
            let (clients, servers) = (vec![None; count], vec![None; count]);
            return Sides { clients, servers, shared: cpus.usable.clone() };
        }
        let mut ends = first(self.servers);
        match self.clients {
            Some(list) => ends.extend(first(list)),
            None => (0..count).for_each(|_| ends.extend(self.least_used(&ends, cpus))),
        }
        let mut shared = ends.clone();
        shared.sort_unstable();
        let several = shared.chunk_by(|one, other| one == other).filter(|ends| ends.len() > 1);
        let shared = several.filter_map(|ends| ends.first().copied()).collect();
        let pinned: Vec<_> = ends.into_iter().map(Some).collect();
        let (servers, clients) = pinned.split_at(count);
        Sides { clients: clients.to_vec(), servers: servers.to_vec(), shared }
    }

    /// Returns the usable CPU with the fewest of `ends`, if possible one that no server core is to have.
    fn least_used(&self, ends: &[usize], cpus: &Cpus) -> Option<usize> {
        let count = |cpu: usize| ends.iter().filter(|end| **end == cpu).count();
        let rank = |cpu: usize| (count(cpu), self.servers.cpus().contains(&cpu), cpu);
        cpus.usable.iter().copied().min_by_key(|cpu| rank(*cpu))
    }
}

/// The CPUs of both sides; `None` is an end that is not pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// The CPU of each client.
    pub clients: Vec<Option<usize>>,
    /// The CPU of each core of the server, by their numbers.
    pub servers: Vec<Option<usize>>,
    /// The CPUs that several ends share, in rising order.
    pub shared: Vec<usize>,
}

impl Sides {
    /// Returns the CPUs of two ends that are measured against each other, on two CPUs if there are.
    pub fn pair(&self) -> Option<(usize, usize)> {
        let near = self.clients.first().copied()??;
        let far =
            self.servers.iter().flatten().max_by_key(|far| (**far != near, Reverse(**far)))?;
        Some((near, *far))
    }

    /// Returns the words that say which CPUs are shared; `None` if none are.
    pub fn shared_words(&self) -> Option<String> {
        let list = cpu::format_list(&self.shared);
        match self.shared.len() {
            0 => None,
            1 => Some(format!("CPU {list} is shared by several ends")),
            _ => Some(format!("CPUs {list} are each shared by several ends")),
        }
    }
}

/// Returns where ends are, for titles: "on CPUs 0-1".
pub fn place_words(ends: &[Option<usize>]) -> String {
    let mut cpus: Vec<_> = ends.iter().copied().flatten().collect();
    cpus.sort_unstable();
    let list = cpu::format_list(&cpus);
    match cpus.len() {
        0 => "not pinned".to_owned(),
        1 => format!("on CPU {list}"),
        _ => format!("on CPUs {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(servers: &str, clients: Option<&str>, count: usize, usable: usize) -> Sides {
        let servers = servers.parse().unwrap();
        let clients = clients.map(|list| list.parse().unwrap());
        let cpus = Cpus { usable: (0..usable).collect(), isolated: vec![] };
        Named { servers: &servers, clients: clients.as_ref() }.first(count, &cpus)
    }

    fn some<const N: usize>(cpus: [usize; N]) -> Vec<Option<usize>> {
        cpus.map(Some).to_vec()
    }

    #[test]
    fn clients_get_cpus_of_their_own_while_there_are_any() {
        let four = sides("0,1", None, 2, 4);
        let expected = Sides { clients: some([2, 3]), servers: some([0, 1]), shared: vec![] };
        assert_eq!((four.pair(), four.shared_words()), (Some((2, 0)), None));
        assert_eq!(four, expected);
        // The first of a sweep leaves the CPUs of later server cores alone if it can.
        assert_eq!(sides("0,1", None, 1, 4).clients, some([2]));
        assert_eq!(sides("0,1", None, 1, 2).clients, some([1]));
    }

    #[test]
    fn where_cpus_are_too_few_they_are_shared_and_named() {
        let two = sides("0,1", None, 2, 2);
        assert_eq!((&two.clients, &two.shared), (&some([0, 1]), &vec![0, 1]));
        assert_eq!(two.pair(), Some((0, 1)), "two CPUs are measured");
        assert_eq!(two.shared_words().unwrap(), "CPUs 0-1 are each shared by several ends");
        let three = sides("0,1", None, 2, 3);
        assert_eq!((three.clients, three.shared), (some([2, 2]), vec![2]));
        let asked = sides("0-2", Some("2-4"), 3, 5);
        assert_eq!(asked.shared_words().unwrap(), "CPU 2 is shared by several ends");
        let one = sides("0,1", None, 2, 1);
        let expected = Sides { clients: vec![None; 2], servers: vec![None; 2], shared: vec![0] };
        assert_eq!((one.pair(), one), (None, expected));
    }

    #[test]
    fn lists_that_do_not_suit_each_other_are_refused() {
        let cpus = Cpus { usable: vec![0], isolated: vec![] };
        let refused = |servers: &str, clients: Option<&str>| {
            let servers = servers.parse().unwrap();
            let clients = clients.map(|list| list.parse().unwrap());
            let named = Named { servers: &servers, clients: clients.as_ref() };
            named.check(&cpus).unwrap_err().to_string()
        };
        assert!(refused("0,1", Some("0")).contains("--server-cores names 2, --client-cores 1"));
        assert!(refused("0-128", None).contains("at most 128 cores"));
    }

    #[test]
    fn places_are_said_in_rising_order() {
        assert_eq!(place_words(&[Some(3), Some(0), Some(1)]), "on CPUs 0-1,3");
        assert_eq!(
            (place_words(&[Some(2)]), place_words(&[None])),
            ("on CPU 2".to_owned(), "not pinned".to_owned())
        );
    }
}
