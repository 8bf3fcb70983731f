//! Shared parts of the server commands: listening, the `ready:` line, metrics, the supervisor, and the end by signals.

pub mod child;
pub mod supervisor;

use std::net::SocketAddr;
use std::time::Duration;

use haulage::core::{Core, CoreNumber, Service};
use haulage::cores::group::{self, Group};
use haulage::cores::{Placement as Thread, Unstopped};
use haulage::provider::{Provider, Waker};
use haulage::sys::socket::Listener as Ports;
use haulage::sys::{clock, signal, wake};
use haulage_store::crowd::Listener;

use crate::cli::CoreOptions;
use crate::cli::address::Address;
use crate::cli::values::Polling;
use crate::failure::Failure;
use crate::hosts::ServerHosts;
use crate::metrics::http::Asking;
use crate::node::{self, Carrier, NodeConfig, Notes, polling};
use crate::output::progress::Step;
use crate::output::{Output, json};
use crate::placement::{Cpus, Placement};
use crate::registration::Registration;

use self::supervisor::Supervisor;

/// The handler of SIGTERM and SIGINT, which end a server.
///
/// While a server starts, its memory is filled, which may take many seconds and is one call of the system. A signal that comes
/// so early ends the process at once, with status 0: there is nothing to drain.
#[derive(Debug)]
pub struct Termination {
    waker: Waker,
    hosts: Option<ServerHosts>,
}

impl Termination {
    /// Catches SIGTERM and SIGINT from now on. SIGHUP has the known hosts of `hosts` read again; without them it is ignored.
    pub fn catch(hosts: Option<ServerHosts>) -> Result<Self, Failure> {
        signal::begin_start();
        let hangup = if hosts.is_some() { signal::catch_hangup } else { signal::ignore_hangup };
        signal::catch_termination()
            .and_then(|()| hangup())
            .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))?;
        let waker = Waker::new()
            .map_err(|error| Failure::failed(format!("cannot make an eventfd: {error}")))?;
        signal::wake_on_end(&waker).map_err(|_| Failure::failed("too many wakers"))?;
        Ok(Self { waker, hosts })
    }

    /// Tells the supervisor that the server is ready. Waits for a signal, then ends the registration, so that clients find this
    /// server no more, closes the ports, which the next server may take, and lets the cores drain.
    pub fn wait<T>(
        self,
        cores: Group<T>,
        registration: Option<Registration>,
        ports: impl IntoIterator<Item = Listener>,
        output: &Output,
    ) -> Result<(), Failure> {
        let supervisor = Supervisor::here(output);
        supervisor.ready();
        let mut due = supervisor.interval().map(|interval| (clock::now(), interval));
        while !signal::end_requested() && !cores.is_finished() {
            if signal::take_hangup()
                && self.hosts.as_ref().is_some_and(|hosts| hosts.read_again(output))
            {
                cores.judge_hosts();
            }
            let now = clock::now();
            if let Some((at, interval)) = &mut due
                && *at <= now
            {
                // A core that stands still gives no sign, and then the supervisor gets none.
                if cores.is_alive() {
                    supervisor.alive();
                    cores.ask_for_life();
                }
                *at = now.saturating_add(*interval);
            }
            let left = due.map(|(at, _)| at.saturating_since(now));
            wake::wait(&self.waker, left.map_or(CHECK_INTERVAL, |left| left.min(CHECK_INTERVAL)));
        }
        supervisor.stopping();
        drop(registration);
        ports.into_iter().for_each(|port| port.close());
        let _step = Step::begin(format_args!("waiting for calls under way to end"));
        cores.stop_while_turning(PATIENCE).map_err(|why| match why {
            Unstopped::Panicked(panicked) => panicked.into(),
            Unstopped::Stands { .. } => Failure::failed(format!(
                "{why}: a system call does not return, perhaps of a file system whose process does not answer; calls under way \
                 are left unanswered"
            )),
        })
    }
}

/// Returns the name, CPU and polling mode of each core of a server.
pub fn cores(name: &str, options: &CoreOptions, output: &Output) -> Result<Vec<Thread>, Failure> {
    let placement = Placement::new(options.cores.as_ref(), options.polling, &Cpus::here()?)?;
    placement.note.into_iter().for_each(|note| output.note(note));
    Ok(threads(name, &placement.cores, placement.polling))
}

/// Returns the threads of cores on these CPUs; several have numbers behind their name.
pub fn threads(name: &str, cpus: &[Option<usize>], mode: Polling) -> Vec<Thread> {
    let thread = |(at, cpu)| Thread {
        name: if cpus.len() == 1 { name.to_owned() } else { format!("{name}-{at}") },
        cpu,
        polling: polling(mode),
    };
    cpus.iter().copied().enumerate().map(thread).collect()
}

/// Returns the name, CPU and polling mode of the core of a server that has one.
pub fn one_core(name: &str, options: &CoreOptions, output: &Output) -> Result<Thread, Failure> {
    let mut cores = cores(name, options, output)?;
    match (cores.pop(), cores.is_empty()) {
        (Some(core), true) => Ok(core),
        _ => Err(Failure::usage("this service has one core: name one CPU with --cores")),
    }
}

/// A core of a server that has started. `L` is where the server listens.
#[derive(Debug)]
pub struct Started<L> {
    /// Notes about the core for the user.
    pub notes: Notes,
    /// Wakes the core.
    pub waker: Waker,
    /// Where the server listens, if this is its first core.
    listening: Option<L>,
}

impl<L> Started<L> {
    /// Returns the ports of the first core.
    pub fn listening(&self) -> Result<&L, Failure> {
        self.listening.as_ref().ok_or_else(|| Failure::failed("this core does not listen"))
    }
}

/// Starts a server with a core on each of these threads, each with the service that one of `services` makes. `listen` has the
/// first core listen. `node` is each of the cores.
pub fn start<P: Carrier, S: Service, L: Send + 'static>(
    threads: Vec<Thread>,
    services: impl IntoIterator<Item = impl FnOnce() -> Result<S, Failure> + Send + 'static>,
    node: &NodeConfig,
    listen: impl Fn(&mut Core<P, S>) -> Result<L, Failure> + Clone + Send + 'static,
) -> Result<Group<Started<L>>, Failure> {
    // Peers come from the device of the first core, and all cores adopt them.
    let device_cpu = threads.first().filter(|_| threads.len() > 1).and_then(|first| first.cpu);
    let cores = threads.into_iter().zip(services).map(|(thread, service)| {
        let (node, listen) = (NodeConfig { device_cpu, ..node.clone() }, listen.clone());
        let make = move |number| {
            let (mut core, notes) = node.build_one_of::<P, _>(number, |_, _| service())?;
            let first = number == CoreNumber::FIRST;
            let listening = first.then(|| listen(&mut core)).transpose()?;
            let waker = core.waker();
            Ok::<_, Failure>((core, Started { notes, waker, listening }))
        };
        (thread, make)
    });
    group::start(cores.collect(), node::chance()?)
}

/// Returns the `ready:` line of a server that listens at one address.
pub fn ready_at(bound: SocketAddr, metrics: Option<SocketAddr>, output: &Output) -> String {
    if !output.json {
        return format!("ready: {bound}");
    }
    json::object(|o| {
        o.flag("ready", true).text("listen", &bound.to_string());
        o.json("mount_listen", "null").json("tcp_listen", "null");
        o.place("metrics", metrics);
        o.count("pid", u64::from(std::process::id()));
    })
}

/// Prints the `ready:` line of a server, which serves whether anybody reads that or not. From now on signals drain it.
pub fn ready(line: &str, output: &Output) -> Result<(), Failure> {
    signal::end_start();
    if supervisor::is_log_kept(output) {
        output.info(&format!(
            "haulage {} serves, commit {}",
            env!("CARGO_PKG_VERSION"),
            env!("HAULAGE_COMMIT")
        ));
    }
    output.tell(line)
}

/// Finds out whether a server can listen at the first of `addresses` that works, by `check`, before memory is filled for
/// it. `option` is the option that named them, for errors.
pub fn check(
    addresses: &[SocketAddr],
    option: &str,
    check: impl FnMut(SocketAddr) -> std::io::Result<()>,
) -> Result<(), Failure> {
    listen_by(addresses, option, check)
}

/// Finds out whether metrics can be served, if an address is given.
pub fn check_metrics(asked_for: Option<&Address>) -> Result<(), Failure> {
    let Some(address) = asked_for else { return Ok(()) };
    check(&address.resolve(None)?, "--metrics", Ports::check)
}

/// Listens at the first of `addresses` that works.
pub fn listen<P: Provider, S: Service>(
    core: &mut Core<P, S>,
    addresses: &[SocketAddr],
) -> Result<SocketAddr, Failure> {
    listen_by(addresses, "--listen", |address| core.listen(address))
}

/// Listens by `try_at` at the first of `addresses` that works. `option` is the option that named them, for errors.
pub fn listen_by<T>(
    addresses: &[SocketAddr],
    option: &str,
    mut try_at: impl FnMut(SocketAddr) -> std::io::Result<T>,
) -> Result<T, Failure> {
    let mut failed = None;
    for address in addresses {
        match try_at(*address) {
            Ok(bound) => return Ok(bound),
            Err(error) => failed = Some((address, error)),
        }
    }
    let Some((address, error)) = failed else {
        return Err(Failure::failed("there is no address to listen at"));
    };
    Err(Failure::failed(match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is in use; end what listens there, or choose another {option}")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{address} may not be used; choose a port from 1024 up with {option}")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{address} is not an address of this machine; choose another {option}")
        }
        _ => format!("cannot listen at {address}: {error}"),
    }))
}

/// Serves metrics, if an address is given. `wakers` are those of the server's cores. Returns the port.
pub fn metrics(
    asked_for: Option<&Address>,
    asking: &Asking,
    wakers: &[Waker],
) -> Result<Option<Listener>, Failure> {
    let Some(address) = asked_for else { return Ok(None) };
    let addresses = address.resolve(None)?;
    listen_by(&addresses, "--metrics", |at| asking.listen(at, wakers)).map(Some)
}

/// How long a core that drains may be inside one turn.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which a server checks that its core still runs; signals wake it at once.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
