//! `haulage perf run` and `perf local`. Both ends that this process starts are new for each run. The machine's limits
//! are measured before, while neither end runs.

use std::io;
use std::time::Duration;

use haulage::sys::clock;

use super::calls::Calls;
use super::client::{AtWork, Idle};
use super::load::Pace;
use super::plan::{Ends, Plan};
use super::plot::Plot;
use super::progress::Progress;
use super::protocol::binding;
use super::report::{self, Run};
use super::tally::Tally;
use crate::calling;
use crate::cli::address::{Address, at_port};
use crate::cli::perf::{GroupOptions, PerfOptions};
use crate::failure::Failure;
use crate::limits::{self, Limits, Noise, Pair, SMALL};
use crate::node::{Carrier, over};
use crate::output::{Output, table::counted};
use crate::placement::{self, Cpus, Named, Placement, Sides, place_words};

mod bench;

use bench::{Bench, Far, TIMEOUT};

/// Measures against a server.
pub fn against(
    options: &PerfOptions,
    connect: &Address,
    timeout: Duration,
    output: &Output,
) -> Result<(), Failure> {
    let plan = Plan::new(options, Ends::Processes, 1)?;
    let placement =
        Placement::new(options.core.cores.as_ref(), options.core.polling, &Cpus::here()?)?;
    let [near] = placement.cores[..] else {
        return Err(Failure::usage("a client has one core: name one CPU with --cores"));
    };
    placement.note.into_iter().for_each(|note| output.note(note));
    let to = calling::reachable(&connect.resolve(Some(timeout))?, timeout)?;
    let sides = Sides { clients: vec![near], servers: Vec::new(), shared: Vec::new() };
    let (far, polling, is_group) = (Far::At(to), placement.polling, false);
    Bench { plan, options, sides, is_group, far, timeout, polling }.run_over_provider(output)
}

/// Measures with both ends on this machine: a server of the cores that `group` names with a client each, or else a client
/// on the first CPU and a server of one core on the second.
pub fn locally(
    options: &PerfOptions,
    group: &GroupOptions,
    ends: Ends,
    output: &Output,
) -> Result<(), Failure> {
    let (core, cpus) = (&options.core, Cpus::here()?);
    if let Some(servers) = &group.server_cores {
        let named = Named { servers, clients: group.client_cores.as_ref() };
        named.check(&cpus)?;
        let Placement { polling, note, .. } = Placement::new(None, core.polling, &cpus)?;
        let bench = Bench::of_group(options, ends, &named, polling, &cpus)?;
        let shared = note.map(str::to_owned).or_else(|| bench.sides.shared_words());
        shared.into_iter().for_each(|note| output.note(&note));
        return bench.run_over_provider(output);
    }
    let plan = Plan::new(options, ends, 1)?;
    let placement = Placement::new(core.cores.as_ref(), core.polling, &cpus)?;
    let (near, far) = placement
        .pair(core.cores.as_ref(), &cpus)
        .ok_or_else(|| Failure::usage("the two ends need two CPUs: name them with --cores"))?;
    placement.note.into_iter().for_each(|note| output.note(note));
    let sides = Sides { clients: vec![near], servers: vec![far], shared: Vec::new() };
    let (polling, timeout) = (placement.polling, TIMEOUT);
    let far = Far::Here { cores: far.map(|cpu| cpu.to_string()) };
    let is_group = false;
    Bench { plan, options, sides, is_group, far, timeout, polling }.run_over_provider(output)
}

impl Bench<'_> {
    fn run_over_provider(&self, output: &Output) -> Result<(), Failure> {
        let provider = self.options.core.provider;
        over!(provider, self.run_all, (provider.name(), output))
    }

    fn run_all<P: Carrier>(&self, provider: &'static str, output: &Output) -> Result<(), Failure> {
        if let Far::At(to) = self.far {
            self.callee(to).probe::<P>(binding(), self.client_node())?;
        }
        let plot = self.options.plot.as_deref().map(Plot::create).transpose()?;
        match self.far {
            // Raising the priority of one of two ends on one machine would distort the measurement.
            Far::At(to) if to.ip().is_loopback() => {}
            _ => placement::favour(output),
        }
        let mut progress = Progress::new(&self.plan, self.plan.runs);
        let mut runs = Vec::new();
        for _ in 0..self.plan.runs {
            progress.begin_run();
            let run = self.run::<P>(provider, &mut progress, output)?;
            if output.json {
                let line = report::json(&self.plan, &run);
                // What is drawn needs all runs, whether anybody reads the lines or not.
                if plot.is_some() { output.tell(&line) } else { output.line(&line) }?;
            }
            runs.push(run);
        }
        let printed = report::finish(&self.plan, &runs, &self.wording(), output);
        plot.map_or(Ok(()), |plot| plot.write(&self.plan, &runs, &self.wording()))?;
        printed
    }

    /// Measures the machine, and then the Calls once.
    fn run<P: Carrier>(
        &self,
        provider: &'static str,
        progress: &mut Progress,
        output: &Output,
    ) -> Result<Run, Failure> {
        let limits = self.limits()?;
        let noise = Noise::measure(self.pair(), self.noise_time());
        let noise = noise.map_err(|error| measure_failed(&error))?;
        let (tally, idle) = self.run_once::<P>(progress, output)?;
        let sides = self.is_group.then(|| self.sides.clone());
        Ok(Run { provider, limits, tally, noise, idle, found: None, sides })
    }

    fn run_once<P: Carrier>(
        &self,
        progress: &mut Progress,
        output: &Output,
    ) -> Result<(Tally, Option<Idle>), Failure> {
        let plan = &self.plan;
        progress.begin("starting");
        let (to, end) = self.start_far::<P>()?;
        let clients = self.start_clients::<P>(to, output)?;
        progress.measure();
        for (number, client) in (0..).zip(&clients) {
            client
                .begin(plan.pace.part(number, plan.clients), Calls::new(self.options.test, plan))?;
        }
        let (started, mut tally) = (clock::now(), Tally::default());
        for client in &clients {
            tally.merge(client.wait(started, progress)?.0);
        }
        // One process of both ends cannot attribute its memory to either.
        let idle = clients.first().and_then(AtWork::idle).filter(|_| plan.ends == Ends::Processes);
        clients.into_iter().try_for_each(AtWork::stop)?;
        end.stop()?;
        Ok((tally, idle))
    }

    /// Measures the limits of the machine.
    fn limits(&self) -> Result<Limits, Failure> {
        let (size, depth) = (self.plan.limits_size, self.plan.in_flight() as usize);
        let depth = depth.clamp(1, (LIMITS_MEMORY / size).max(1));
        let pair = self.pair();
        let Far::At(to) = self.far else {
            return Limits::measure(pair, size, depth, LIMIT_TIME)
                .map_err(|error| measure_failed(&error));
        };
        // A server without that port, or one busy with other clients, is no reason to stop.
        let raw = to.port().checked_add(1).map(|port| at_port(to, port));
        let rtt = raw.and_then(|raw| limits::tcp_rtt_us_to(raw, pair, SMALL, LIMIT_TIME).ok());
        let stream = raw.and_then(|raw| {
            limits::tcp_stream_gib_per_s_to(raw, pair, size, depth, LIMIT_TIME).ok()
        });
        let mut limits =
            Limits { tcp_rtt_us: rtt, tcp_stream_gib_per_s: stream, ..Limits::default() };
        if to.ip().is_loopback() {
            let pair = Pair::here(self.sides.clients.first().copied().flatten());
            let memcpy = limits::memcpy_gib_per_s(pair, size, LIMIT_TIME);
            limits.memcpy_gib_per_s = Some(memcpy.map_err(|error| measure_failed(&error))?);
            let rtt = limits::cacheline_rtt_us(pair, LIMIT_TIME);
            limits.cacheline_rtt_us = Some(rtt.map_err(|error| measure_failed(&error))?);
        }
        Ok(limits)
    }

    /// Returns the duration of measuring noise. It is longer for an open loop, whose tail latencies are compared with
    /// noise that is rare.
    fn noise_time(&self) -> Duration {
        let Pace { rate, time, .. } = self.plan.pace;
        if rate.is_some() { time.clamp(LIMIT_TIME, NOISE_TIME) } else { LIMIT_TIME }
    }

    fn pair(&self) -> Pair {
        let near = self.sides.clients.first().copied().flatten();
        match (self.sides.pair(), near, &self.far) {
            (Some((near, far)), ..) => Pair::pinned(near, far),
            (None, Some(near), Far::At(_)) => Pair::near(near),
            _ => Pair::UNPINNED,
        }
    }

    /// Returns the description of the measurement, for titles.
    fn wording(&self) -> String {
        let Sides { clients, servers, .. } = &self.sides;
        let (near, far) = (place_words(clients), place_words(servers));
        let kind = match self.plan.ends {
            Ends::Processes => "processes",
            Ends::Threads => "threads",
        };
        match &self.far {
            Far::At(to) => format!("client {near}, server at {to}"),
            Far::Here { .. } if self.is_group => {
                let shared = self.sides.shared_words();
                let shared = shared.map_or_else(String::new, |words| format!("; {words}"));
                let (one, other) =
                    (counted(clients.len(), "client"), counted(servers.len(), "server core"));
                format!("{kind}: {one} {near}, {other} {far}{shared}")
            }
            Far::Here { .. } => format!("two {kind}, client {near}, server {far}"),
        }
    }
}

/// Returns the failure for an error of measuring the machine.
pub(crate) fn measure_failed(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot measure the limits of this machine: {error}"))
}

/// Duration of measuring each limit.
pub(crate) const LIMIT_TIME: Duration = Duration::from_millis(150);
/// Maximum duration of measuring noise.
const NOISE_TIME: Duration = Duration::from_secs(1);
/// Maximum memory of measuring raw TCP, in octets.
const LIMITS_MEMORY: usize = 256 << 20;
