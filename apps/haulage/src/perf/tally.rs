//! The results of a benchmark's job.

use std::time::Duration;

use haulage::core::CORES_MAX;
use haulage_kv::figures::Figures;

use super::protocol::CoreFigures;
use crate::samples::Samples;

/// The results of a job.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls that ended.
    pub operations: u64,
    /// The time from the first Call to the last Reply.
    pub took: Duration,
    /// The latencies of the timed Calls.
    pub samples: Samples,
    /// The client's counters.
    pub client: Figures,
    /// The counters of the server's cores together.
    pub server: Figures,
    /// What each of them did, as far as a client had a connection on it.
    pub cores: Vec<CoreShare>,
    /// Number of cores of the server.
    pub server_cores: u64,
    /// Calls of an open loop that were due and could not be made before the time was over.
    pub late: u64,
}

/// What one core of a server did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreShare {
    /// The core's number.
    pub number: u64,
    /// Calls that the core served.
    pub calls: u64,
    /// Connections that were on the core at the end.
    pub connections: u64,
    /// The share of the time that the core's thread spent on a CPU.
    pub cpu: f64,
}

impl Tally {
    /// Adds the results of a client that was at work at the same time, and watched other cores of the server.
    pub fn merge(&mut self, other: Self) {
        let Self { operations, took, samples, client, server, cores, server_cores, late } = other;
        self.operations += operations;
        self.took = self.took.max(took);
        self.samples.merge(&samples);
        self.client += client;
        self.server += server;
        self.cores.extend(cores);
        self.cores.sort_by_key(|core| core.number);
        self.server_cores = self.server_cores.max(server_cores);
        self.late += late;
    }

    /// Returns what each core of the server did, by their numbers. One that no client reached did nothing.
    pub fn shares(&self) -> Vec<CoreShare> {
        let share = |number| {
            let known = self.cores.iter().find(|share| share.number == number);
            known.copied().unwrap_or(CoreShare { number, calls: 0, connections: 0, cpu: 0.0 })
        };
        (0..self.server_cores.min(CORES_MAX.into())).map(share).collect()
    }

    /// Adds what a core of the server did from `before` to `after`.
    pub(super) fn add_core(&mut self, before: &CoreFigures, after: &CoreFigures) {
        let spent = after.figures.since(before.figures);
        self.server += spent;
        self.server_cores = after.core.count;
        self.cores.push(CoreShare {
            number: after.core.number,
            // One of them asked for the counters.
            calls: after.calls.saturating_sub(before.calls).saturating_sub(1),
            connections: after.figures.connections,
            cpu: spent.cpu(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::protocol::ServerCore;

    fn of_core(number: u64, calls: u64, figures: Figures) -> CoreFigures {
        CoreFigures { figures, core: ServerCore { number, count: 3 }, calls }
    }

    #[test]
    fn what_a_core_did_leaves_out_the_call_that_asked() {
        let (now_ns, cpu_ns) = (1000, 250);
        let after = Figures { now_ns: 2000, cpu_ns: 750, connections: 4, ..Figures::default() };
        let before = Figures { now_ns, cpu_ns, connections: 3, ..Figures::default() };
        let mut tally = Tally::default();
        tally.add_core(&of_core(2, 10, before), &of_core(2, 31, after));
        assert_eq!(tally.cores, [CoreShare { number: 2, calls: 20, connections: 4, cpu: 0.5 }]);
        assert_eq!((tally.server.cpu_ns, tally.server.now_ns), (500, 1000));
    }

    #[test]
    fn clients_add_up_and_their_latencies_are_those_of_all_calls() {
        let client = |number, micros| {
            let spent = Figures { now_ns: 100, cpu_ns: 90, syscalls: 3, ..Figures::default() };
            let mut tally = Tally {
                operations: 10,
                took: Duration::from_millis(number),
                client: spent,
                late: 1,
                ..Tally::default()
            };
            (0..10).for_each(|_| tally.samples.record(Duration::from_micros(micros)));
            tally.add_core(&of_core(number, 0, Figures::default()), &of_core(number, 11, spent));
            tally
        };
        let mut all = Tally::default();
        [client(2, 5), client(0, 500), client(1, 50)].into_iter().for_each(|one| all.merge(one));
        assert_eq!((all.operations, all.late, all.took), (30, 3, Duration::from_millis(2)));
        assert_eq!((all.client.syscalls, all.server.syscalls), (9, 9));
        assert!((all.client.cpu() - 2.7).abs() < 1e-9, "of three CPUs");
        let numbers = |all: &Tally| -> Vec<_> {
            all.shares().iter().map(|core| (core.number, core.calls)).collect()
        };
        assert_eq!(numbers(&all), [(0, 10), (1, 10), (2, 10)]);
        assert_eq!(numbers(&client(2, 5)), [(0, 0), (1, 0), (2, 10)], "others were not reached");
        assert_eq!(all.samples.count(), 30);
        let near = |quantile, us: f64| (all.samples.quantile_us(quantile) / us - 1.0).abs() < 0.002;
        assert!(near(0.2, 5.0) && near(0.5, 50.0) && near(0.9, 500.0));
    }
}
