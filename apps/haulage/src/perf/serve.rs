//! The command `haulage perf serve`, and servers on a thread.

use std::net::{SocketAddr, TcpListener};

use haulage::core::{Core, Service};
use haulage::cores::Placement as Thread;
use haulage::cores::group::Group;
use haulage_store::crowd::Listener;

use super::plan::Room;
use super::protocol::ServerCore;
use super::service::PerfService;
use crate::cli::address::at_port;
use crate::cli::perf::ServePerf;
use crate::cli::values::HostPolicy;
use crate::failure::Failure;
use crate::hosts::{NO_VERSION_ONE, ServerHosts};
use crate::limits;
use crate::metrics::{Metered, http};
use crate::node::{Carrier, NodeConfig, over};
use crate::open_files;
use crate::output::Output;
use crate::serving::{self, Started, Termination};

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServePerf, output: &Output) -> Result<(), Failure> {
    over!(options.core.provider, serve, (options, output))
}

fn serve<P: Carrier>(options: &ServePerf, output: &Output) -> Result<(), Failure> {
    let threads = serving::cores("perf-core", &options.core, output)?;
    let (cpu, polling) = (threads.first().and_then(|first| first.cpu), options.core.polling);
    let addresses = options.listen.resolve(None)?;
    let hosts =
        ServerHosts::of(&options.hosts, options.core.versions.rpc_version, NO_VERSION_ONE, output)?;
    let is_open = options.hosts.host_auth != HostPolicy::Required;
    if is_open {
        warn_if_open(&addresses, output);
    }
    open_files::check(options.connections.0, 1)?;
    serving::check(&addresses, "--listen", P::check_listen)?;
    serving::check_metrics(options.metrics.as_ref())?;
    let auth = hosts.as_ref().map(ServerHosts::auth);
    let termination = Termination::catch(hosts)?;
    let memory = usize::try_from(options.memory.0).unwrap_or(usize::MAX);
    let room = Room { connections: options.connections.0, in_flight: options.depth.0, memory };
    let room = room.part(threads.len());
    let limits = options.peers.within(room.limits());
    let limits = options.core.versions.server(limits, room.memory);
    let node = NodeConfig {
        asked: Some(options.memory.0),
        crc: options.core.crc,
        hosts: auth,
        ..NodeConfig::new(room.memory, limits)
    };
    let (asking, questions) = http::ways(threads.len());
    let services = services(threads.len(), room);
    let cores = if options.metrics.is_some() {
        let services = questions.into_iter().zip(services);
        let services = services.map(|(asked, service)| || Metered::new(service(), asked));
        start::<P, _>(threads, services, &node, &addresses)?
    } else {
        start::<P, _>(threads, services, &node, &addresses)?
    };
    cores.started().notes.tell(output);
    let Listening { address, raw } = cores.started().listening()?;
    match raw.as_ref().map(TcpListener::try_clone) {
        None if !is_open => {}
        Some(Ok(raw)) => {
            let answers = limits::answer(raw, cpu, polling);
            answers.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        }
        _ => output.note("the port after this one is in use: raw TCP is not measured with it"),
    }
    let wakers: Vec<_> = cores.cores().iter().map(|core| core.started.waker.clone()).collect();
    let metrics = serving::metrics(options.metrics.as_ref(), &asking, &wakers)?;
    let line = serving::ready_at(*address, metrics.as_ref().map(Listener::address), output);
    serving::ready(&line, output)?;
    termination.wait(cores, None, metrics, output)
}

/// The ports of a server.
#[derive(Debug)]
pub(super) struct Listening {
    /// The address at which the server listens.
    pub(super) address: SocketAddr,
    /// The listener of raw TCP, at the next port up.
    raw: Option<TcpListener>,
}

impl Listening {
    /// Describes a server without raw TCP, on which no host proves anything.
    const fn alone(address: SocketAddr) -> Self {
        Self { address, raw: None }
    }
}

/// Returns, for each of the `count` cores of a server with these resources, a function that makes its service.
pub(super) fn services(
    count: usize,
    room: Room,
) -> impl Iterator<Item = impl FnOnce() -> PerfService + Send + 'static> {
    let count = count as u64;
    (0..count).map(move |number| move || PerfService::new(ServerCore { number, count }, room))
}

/// Starts a server with a core on each of these threads, each with the service that one of `services` makes. It listens at the first of `addresses`
/// that works. `node` is each of its cores.
pub(super) fn start<P: Carrier, S: Service>(
    threads: Vec<Thread>,
    services: impl IntoIterator<Item = impl FnOnce() -> S + Send + 'static>,
    node: &NodeConfig,
    addresses: &[SocketAddr],
) -> Result<Group<Started<Listening>>, Failure> {
    let (addresses, hosts) = (addresses.to_vec(), node.hosts.clone());
    let services = services.into_iter().map(|service| move || Ok(service()));
    serving::start::<P, _, _>(threads, services, node, move |core| {
        if hosts.as_ref().is_some_and(|hosts| hosts.policy.requires()) {
            serving::listen(core, &addresses).map(Listening::alone)
        } else {
            listen(core, &addresses)
        }
    })
}

/// Listens at the first of `addresses` that works, and for raw TCP at the next port up if that is free.
fn listen<P: Carrier, S: Service>(
    core: &mut Core<P, S>,
    addresses: &[SocketAddr],
) -> Result<Listening, Failure> {
    // Port 0: choose a port whose successor is free, too.
    let free = addresses.iter().filter(|address| address.port() == 0);
    let free = free.flat_map(|address| std::iter::repeat_n(*address, TRIES));
    let chosen = free.filter_map(|address| {
        let raw = TcpListener::bind(address).ok()?;
        let next = raw.local_addr().ok()?;
        let port = next.port().checked_sub(1)?;
        Some((at_port(address, port), raw))
    });
    for (address, raw) in chosen {
        if let Ok(address) = serving::listen(core, &[address]) {
            return Ok(Listening { address, raw: Some(raw) });
        }
    }
    let address = serving::listen(core, addresses)?;
    let next = address.port().checked_add(1);
    let raw = next.and_then(|port| TcpListener::bind(at_port(address, port)).ok());
    Ok(Listening { address, raw })
}

/// Warns once that every host which can reach the port can use it.
fn warn_if_open(addresses: &[SocketAddr], output: &Output) {
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        output.note(
            "there is no authentication: whoever reaches this port can keep this machine busy",
        );
    }
}

/// Maximum number of attempts to find two adjacent free ports.
const TRIES: usize = 16;
