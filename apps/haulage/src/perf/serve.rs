//! The command `haulage perf serve`, and servers on a thread.

use std::net::{SocketAddr, TcpListener};

use haulage::cores::{self, CoreThread, Placement as Thread};

use super::plan::Room;
use super::service::PerfService;
use crate::cli::address::at_port;
use crate::cli::perf::ServePerf;
use crate::failure::Failure;
use crate::limits;
use crate::node::{Carrier, NodeConfig, Notes, over};
use crate::open_files;
use crate::output::Output;
use crate::serving::{self, Termination};

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServePerf, output: &Output) -> Result<(), Failure> {
    over!(options.core.provider, serve, (options, output))
}

fn serve<P: Carrier>(options: &ServePerf, output: &Output) -> Result<(), Failure> {
    let thread = serving::one_core("perf-core", &options.core, output)?;
    let (cpu, polling) = (thread.cpu, options.core.polling);
    let addresses = options.listen.resolve(None)?;
    warn_if_open(&addresses, output);
    open_files::check(options.connections.0, 1)?;
    serving::check(&addresses, "--listen", P::check_listen)?;
    let termination = Termination::catch()?;
    let memory = usize::try_from(options.memory.0).unwrap_or(usize::MAX);
    let room = Room { connections: options.connections.0, in_flight: options.depth.0, memory };
    let node = NodeConfig {
        room: memory,
        asked: Some(options.memory.0),
        limits: options.core.rpc_version.within(options.peers.within(room.limits())),
        crc: options.core.crc,
    };
    let core = start::<P>(thread, node, addresses)?;
    let Server { address, notes, .. } = &core.started;
    notes.tell(output);
    match core.started.raw.as_ref().map(TcpListener::try_clone) {
        Some(Ok(raw)) => {
            let answers = limits::answer(raw, cpu, polling);
            answers.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
        }
        _ => output.note("the port after this one is in use: raw TCP is not measured with it"),
    }
    serving::ready(&serving::ready_at(*address, None, output), output)?;
    termination.wait(core, None, output)
}

/// A server that has started.
#[derive(Debug)]
pub(super) struct Server {
    /// The address at which the server listens.
    pub(super) address: SocketAddr,
    /// Notes about its core for the user.
    pub(super) notes: Notes,
    /// The listener of raw TCP, at the next port up.
    raw: Option<TcpListener>,
}

/// Starts a server that listens at the first of `addresses` that works.
pub(super) fn start<P: Carrier>(
    thread: Thread,
    node: NodeConfig,
    addresses: Vec<SocketAddr>,
) -> Result<CoreThread<Server>, Failure> {
    cores::start(thread, move || {
        let (mut core, notes) = node.build::<P, _>(|_, _| Ok(PerfService::new()))?;
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
            if let Ok(address) = serving::listen(&mut core, &[address]) {
                return Ok((core, Server { address, notes, raw: Some(raw) }));
            }
        }
        let address = serving::listen(&mut core, &addresses)?;
        let next = address.port().checked_add(1);
        let raw = next.and_then(|port| TcpListener::bind(at_port(address, port)).ok());
        Ok::<_, Failure>((core, Server { address, notes, raw }))
    })
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
