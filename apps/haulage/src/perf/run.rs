//! `haulage perf run` and `perf local`. Both ends that this process starts are new for each run. The machine's limits
//! are measured before, while neither end runs.

use std::io;
use std::time::Duration;

use super::calls::Calls;
use super::client::Idle;
use super::load::Pace;
use super::plan::{Ends, Plan};
use super::plot::{Plot, Series};
use super::progress::Progress;
use super::protocol::binding;
use super::report::{self, Run};
use super::sweep;
use super::tally::Tally;
use crate::calling;
use crate::cli::ClientHostOptions;
use crate::cli::address::{Address, at_port};
use crate::cli::perf::{GroupOptions, PerfOptions};
use crate::cli::rpcbind::ServerAddress;
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::limits::{self, Limits, Noise, Pair, SMALL};
use crate::node::{Carrier, over};
use crate::output::{Output, table::counted};
use crate::placement::{self, Cpus, Named, Placement, Sides, place_words};

mod bench;

use bench::{Bench, Far, TIMEOUT};

/// Measures against a server.
pub fn against(
    options: &PerfOptions,
    (connect, hosts): (&Address, &ClientHostOptions),
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
    let server = ServerAddress::At(connect.clone());
    let hosts = ClientHosts::of(hosts, options.core.versions.rpc_version, &server, output)?;
    let (far, polling, is_group) = (Far::At(to, hosts), placement.polling, false);
    let bench = Bench { plan, options, sides, is_group, far, timeout, polling };
    measure(&[bench], Series::Repeated, output)
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
        let all = named.count();
        let (first, series) =
            if group.sweep { (1, Series::Sweep) } else { (all, Series::Repeated) };
        let of_count = |count| {
            let (sides, cores) = (named.first(count, &cpus), named.list(count));
            Bench::of_group(options, ends, sides, cores, polling)
        };
        let benches = (first..=all).map(of_count).collect::<Result<Vec<_>, _>>()?;
        let shared = || benches.iter().rev().find_map(|bench| bench.sides.shared_words());
        let note = note.map(str::to_owned).or_else(shared);
        note.into_iter().for_each(|note| output.note(&note));
        return measure(&benches, series, output);
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
    let bench = Bench { plan, options, sides, is_group, far, timeout, polling };
    measure(&[bench], Series::Repeated, output)
}

/// Measures benches, one after another, and prints and draws the results.
fn measure(benches: &[Bench<'_>], series: Series, output: &Output) -> Result<(), Failure> {
    let Some(last) = benches.last() else { return Ok(()) };
    let provider = last.options.core.provider;
    over!(provider, measure_over, (benches, last, series, output))
}

fn measure_over<P: Carrier>(
    benches: &[Bench<'_>],
    last: &Bench<'_>,
    series: Series,
    output: &Output,
) -> Result<(), Failure> {
    if let Far::At(to, _) = last.far {
        last.callee(to).probe::<P>(binding(), last.client_node())?;
    }
    let plot = last.options.plot.as_deref().map(Plot::create).transpose()?;
    match last.far {
        // Raising the priority of one of two ends on one machine would distort the measurement.
        Far::At(to, _) if to.ip().is_loopback() => {}
        _ => placement::favour(output),
    }
    // What is drawn needs all runs, whether anybody reads the lines or not.
    let told = |printed: Result<(), Failure>| match &plot {
        Some(_) => printed.or_else(Failure::unless_closed),
        None => printed,
    };
    let rows = u32::try_from(benches.len()).unwrap_or(u32::MAX);
    let mut progress = Progress::new(&last.plan, last.plan.runs.saturating_mul(rows));
    let (mut drawn, mut printed) = (Vec::new(), Ok(()));
    for bench in benches {
        let mut runs = Vec::new();
        for _ in 0..bench.plan.runs {
            let run = bench.run::<P>(&mut progress, output)?;
            if output.json {
                told(output.line(&report::json(&bench.plan, &run)))?;
            }
            runs.push(run);
        }
        if series == Series::Sweep {
            if output.json {
                told(report::finish(&bench.plan, &runs, &bench.wording(), output))?;
            }
            drawn.extend(report::median(&bench.plan, &runs).cloned());
        } else {
            printed = report::finish(&bench.plan, &runs, &bench.wording(), output);
            drawn.append(&mut runs);
        }
    }
    let wording = match series {
        Series::Repeated => last.wording(),
        Series::Sweep => last.wording_of_sweep(),
    };
    if series == Series::Sweep && !output.json {
        printed = output.text(&sweep::text(&last.plan, &drawn, &wording));
    }
    plot.map_or(Ok(()), |plot| plot.write(&last.plan, &drawn, series, &wording))?;
    printed
}

impl Bench<'_> {
    /// Measures the machine, and then the Calls once.
    fn run<P: Carrier>(&self, progress: &mut Progress, output: &Output) -> Result<Run, Failure> {
        progress.begin_run();
        let provider = self.options.core.provider.name();
        let limits = self.limits()?;
        let noise = Noise::measure(self.pair(), self.noise_time());
        let noise = noise.map_err(|error| measure_failed(&error))?;
        let (tally, idle) = self.run_once::<P>(progress, output)?;
        let sides = self.is_group.then(|| self.sides.clone());
        Ok(Run { provider, limits, tally, noise, idle, found: None, busiest: None, sides })
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
        let works = (0..plan.clients).map(|_| Calls::new(self.options.test, plan)).collect();
        let (tally, _) = clients.run(plan.pace, works, progress)?;
        // One process of both ends cannot attribute its memory to either.
        let idle = clients.idle().filter(|_| plan.ends == Ends::Processes);
        clients.stop()?;
        end.stop()?;
        Ok((tally, idle))
    }

    /// Measures the limits of the machine.
    fn limits(&self) -> Result<Limits, Failure> {
        let (size, depth) = (self.plan.limits_size, self.plan.in_flight() as usize);
        let depth = depth.clamp(1, (LIMITS_MEMORY / size).max(1));
        let pair = self.pair();
        let Far::At(to, _) = self.far else {
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
            (None, Some(near), Far::At(..)) => Pair::near(near),
            _ => Pair::UNPINNED,
        }
    }

    /// Returns the description of the measurement, for titles.
    fn wording(&self) -> String {
        let Sides { clients, servers, .. } = &self.sides;
        let (near, far, kind) = (place_words(clients), place_words(servers), self.kind());
        match &self.far {
            Far::At(to, _) => format!("client {near}, server at {to}"),
            Far::Here { .. } if self.is_group => {
                let (one, other) =
                    (counted(clients.len(), "client"), counted(servers.len(), "server core"));
                format!("{kind}: {one} {near}, {other} {far}{}", self.shared())
            }
            Far::Here { .. } => format!("two {kind}, client {near}, server {far}"),
        }
    }

    /// Returns the description of a sweep that ends with these parameters.
    fn wording_of_sweep(&self) -> String {
        let Sides { servers, .. } = &self.sides;
        let (count, far, kind) = (servers.len(), place_words(servers), self.kind());
        format!("{kind}: 1 to {count} server cores {far}, a client for each{}", self.shared())
    }

    const fn kind(&self) -> &'static str {
        match self.plan.ends {
            Ends::Processes => "processes",
            Ends::Threads => "threads",
        }
    }

    /// Returns what to say of CPUs that ends share.
    fn shared(&self) -> String {
        self.sides.shared_words().map_or_else(String::new, |words| format!("; {words}"))
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
