//! `haulage perf run` and `perf local`. Both ends that this process starts are new for each run. The machine's limits
//! are measured before, while neither end runs.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage::cores::Placement as Thread;

use super::calls::Calls;
use super::client::{Client, Idle};
use super::load::{Pace, Tally};
use super::plan::{Ends, Plan};
use super::plot::Plot;
use super::progress::Progress;
use super::protocol::binding;
use super::report::{self, Run};
use super::serve;
use super::service::PerfService;
use crate::calling::{self, Callee};
use crate::cli::address::{Address, at_port};
use crate::cli::perf::PerfOptions;
use crate::failure::Failure;
use crate::limits::{self, Limits, Noise, Pair, SMALL};
use crate::node::{Carrier, NodeConfig, over, polling};
use crate::output::Output;
use crate::placement::{self, Cpus, Placement};
use crate::serving::child::{Server, Start};

/// The location of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Far {
    /// A running server at this address.
    At(SocketAddr),
    /// A process that this command starts, on this CPU if given.
    Process(Option<usize>),
    /// A thread that this command starts, on this CPU if given.
    Thread(Option<usize>),
}

/// Measures against a server.
pub fn against(
    options: &PerfOptions,
    connect: &Address,
    timeout: Duration,
    output: &Output,
) -> Result<(), Failure> {
    let plan = Plan::new(options, Ends::Processes)?;
    let placement =
        Placement::new(options.core.cores.as_ref(), options.core.polling, &Cpus::here()?)?;
    let [near] = placement.cores[..] else {
        return Err(Failure::usage("a client has one core: name one CPU with --cores"));
    };
    placement.note.into_iter().for_each(|note| output.note(note));
    let to = calling::reachable(&connect.resolve(Some(timeout))?, timeout)?;
    let bench = Bench { plan, options, near, far: Far::At(to), timeout, placement };
    bench.run_over_provider(output)
}

/// Measures with both ends on this machine, the client on the first CPU and the server on the second.
pub fn locally(options: &PerfOptions, ends: Ends, output: &Output) -> Result<(), Failure> {
    let plan = Plan::new(options, ends)?;
    let cpus = Cpus::here()?;
    let placement = Placement::new(options.core.cores.as_ref(), options.core.polling, &cpus)?;
    let (near, far) = placement
        .pair(options.core.cores.as_ref(), &cpus)
        .ok_or_else(|| Failure::usage("the two ends need two CPUs: name them with --cores"))?;
    placement.note.into_iter().for_each(|note| output.note(note));
    let far = match ends {
        Ends::Processes => Far::Process(far),
        Ends::Threads => Far::Thread(far),
    };
    let bench = Bench { plan, options, near, far, timeout: TIMEOUT, placement };
    bench.run_over_provider(output)
}

/// The parameters of all runs.
struct Bench<'a> {
    plan: Plan,
    options: &'a PerfOptions,
    near: Option<usize>,
    far: Far,
    timeout: Duration,
    placement: Placement,
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
        let mut progress = Progress::new(&self.plan);
        let mut runs = Vec::new();
        for number in 0..self.plan.runs {
            progress.begin_run(number);
            let limits = self.limits()?;
            let noise = Noise::measure(self.pair(), self.noise_time());
            let noise = noise.map_err(|error| measure_failed(&error))?;
            let (tally, idle) = self.run_once::<P>(&mut progress, output)?;
            let run = Run { provider, limits, tally, noise, idle, found: None };
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

    fn run_once<P: Carrier>(
        &self,
        progress: &mut Progress,
        output: &Output,
    ) -> Result<(Tally, Option<Idle>), Failure> {
        let Self { plan, options, near, .. } = self;
        let mode = self.placement.polling;
        progress.begin("starting");
        let (to, end) = self.start_far::<P>()?;
        let (callee, node) = (self.callee(to), self.client_node());
        let (connections, active) = (plan.connections, plan.active);
        let identity = options.auth.identity();
        let identity = identity
            .map_err(|error| Failure::failed(format!("cannot find out who we are: {error}")))?;
        let client = Client { callee, binding: binding(), identity, connections, active, node };
        let name = "perf-client".to_owned();
        let client = client.start::<P, _>(Thread { name, cpu: *near, polling: polling(mode) })?;
        client.notes().details.iter().for_each(|note| output.detail(note));
        client.notes().warnings.iter().for_each(|note| output.detail(note));
        let calls = Calls::new(options.test, plan);
        progress.measure();
        let (tally, _) = client.run(plan.pace, calls, progress)?;
        // One process of both ends cannot attribute its memory to either.
        let idle = client.idle().filter(|_| plan.ends == Ends::Processes);
        client.stop()?;
        end.stop()?;
        Ok((tally, idle))
    }

    const fn callee(&self, to: SocketAddr) -> Callee {
        let (timeout, provider) = (self.timeout, self.options.core.provider);
        Callee { to, timeout, served_by: "haulage perf serve", provider }
    }

    fn client_node(&self) -> NodeConfig {
        let (plan, core) = (&self.plan, &self.options.core);
        let limits = core.rpc_version.within(plan.client_limits(self.timeout));
        NodeConfig { room: plan.memory(), asked: None, limits, crc: core.crc }
    }

    /// Starts the server, unless it runs already. Returns its address.
    fn start_far<P: Carrier>(&self) -> Result<(SocketAddr, FarEnd), Failure> {
        let (room, core) = (self.plan.server_room(), &self.options.core);
        let (mode, crc) = (self.placement.polling, core.crc);
        Ok(match self.far {
            Far::At(to) => (to, FarEnd::NotOurs),
            Far::Process(cpu) => {
                let [memory, connections, depth] =
                    [room.memory, room.connections as usize, room.in_flight as usize]
                        .map(|number| number.to_string());
                let server = Server::start(&Start {
                    arguments: &[
                        "perf",
                        "serve",
                        "--memory",
                        &memory,
                        "--connections",
                        &connections,
                        "--depth",
                        &depth,
                    ],
                    at: P::own_address()?,
                    cpu,
                    polling: mode,
                    provider: core.provider,
                    crc,
                    speaks: false,
                })?;
                (server.address, FarEnd::Process(server))
            }
            Far::Thread(cpu) => {
                let name = "perf-server".to_owned();
                let thread = Thread { name, cpu, polling: polling(mode) };
                let any = vec![SocketAddr::new(P::own_address()?, 0)];
                let node =
                    NodeConfig { room: room.memory, asked: None, limits: room.limits(), crc };
                let services = [PerfService::new];
                let server = serve::start::<P, _>(vec![thread], services, &node, &any)?;
                (server.started().listening()?.address, FarEnd::Thread(server))
            }
        })
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
            let pair = Pair::here(self.near);
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
        match (self.near, self.far) {
            (Some(near), Far::Process(Some(far)) | Far::Thread(Some(far))) => {
                Pair::pinned(near, far)
            }
            (Some(near), Far::At(_)) => Pair::near(near),
            _ => Pair::UNPINNED,
        }
    }

    /// Returns the description of the measurement, for titles.
    fn wording(&self) -> String {
        let place = |cpu: Option<usize>| match cpu {
            Some(cpu) => format!("on CPU {cpu}"),
            None => "not pinned".to_owned(),
        };
        let near = place(self.near);
        match self.far {
            Far::At(to) => format!("client {near}, server at {to}"),
            Far::Process(cpu) => format!("two processes, client {near}, server {}", place(cpu)),
            Far::Thread(cpu) => format!("two threads, client {near}, server {}", place(cpu)),
        }
    }
}

/// A server that ends after its run.
enum FarEnd {
    NotOurs,
    Process(Server),
    Thread(haulage::cores::group::Group<serve::Server>),
}

impl FarEnd {
    fn stop(self) -> Result<(), Failure> {
        match self {
            Self::NotOurs => Ok(()),
            Self::Process(server) => server.stop(),
            Self::Thread(cores) => Ok(cores.stop()?),
        }
    }
}

/// Returns the failure for an error of measuring the machine.
pub(crate) fn measure_failed(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot measure the limits of this machine: {error}"))
}

/// Timeout of each Call to a local server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Duration of measuring each limit.
pub(crate) const LIMIT_TIME: Duration = Duration::from_millis(150);
/// Maximum duration of measuring noise.
const NOISE_TIME: Duration = Duration::from_secs(1);
/// Maximum memory of measuring raw TCP, in octets.
const LIMITS_MEMORY: usize = 256 << 20;
