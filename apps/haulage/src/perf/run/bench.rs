//! The parameters of runs, and how their two ends are started: the server, if this command starts it, and the clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haulage::cores::group::Group;

use crate::calling::Callee;
use crate::cli::VersionOptions;
use crate::cli::perf::PerfOptions;
use crate::cli::values::{Polling, RpcVersion};
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::node::{Carrier, NodeConfig};
use crate::output::Output;
use crate::perf::calls::Calls;
use crate::perf::client::{Client, Clients};
use crate::perf::plan::{Ends, Plan, Room};
use crate::perf::protocol::binding;
use crate::perf::serve::{self, Listening};
use crate::placement::Sides;
use crate::serving::child::{Server, Start};
use crate::serving::{self, Started};

/// The parameters of all runs.
pub(super) struct Bench<'a> {
    pub(super) plan: Plan,
    pub(super) options: &'a PerfOptions,
    pub(super) sides: Sides,
    /// Whether the options name the cores of the server apart from the clients.
    pub(super) is_group: bool,
    pub(super) far: Far,
    pub(super) timeout: Duration,
    pub(super) polling: Polling,
}

impl<'a> Bench<'a> {
    /// Creates the parameters of a server with a client for each core. `cores` is the list of its CPUs.
    pub(super) fn of_group(
        options: &'a PerfOptions,
        ends: Ends,
        sides: Sides,
        cores: String,
        polling: Polling,
    ) -> Result<Self, Failure> {
        let count = u32::try_from(sides.servers.len()).unwrap_or(u32::MAX);
        let plan = Plan::new(options, ends, count)?;
        let far = Far::Here { cores: Some(cores) };
        Ok(Self { plan, options, sides, is_group: true, far, timeout: TIMEOUT, polling })
    }
}

impl Bench<'_> {
    pub(super) fn callee(&self, to: SocketAddr) -> Callee {
        let (timeout, provider) = (self.timeout, self.options.core.provider);
        let hosts = match &self.far {
            Far::At(_, hosts) => hosts.clone(),
            Far::Here { .. } => None,
        };
        Callee { to, timeout, served_by: "haulage perf serve", provider, hosts }
    }

    pub(super) fn client_node(&self) -> NodeConfig {
        let (plan, core) = (&self.plan, &self.options.core);
        let limits = core.versions.client(plan.client_limits(self.timeout));
        NodeConfig { crc: core.crc, ..NodeConfig::new(plan.memory(), limits) }
    }

    /// Starts the clients one after another, each of which connects.
    pub(super) fn start_clients<P: Carrier>(
        &self,
        to: SocketAddr,
        output: &Output,
    ) -> Result<Clients<Calls>, Failure> {
        let identity = self.options.auth.identity();
        let identity = identity
            .map_err(|error| Failure::failed(format!("cannot find out who we are: {error}")))?;
        let client = || Client {
            callee: self.callee(to),
            binding: binding(),
            identity: identity.clone(),
            connections: self.plan.connections,
            active: self.plan.active,
            node: self.client_node(),
        };
        let threads = serving::threads("perf-client", &self.sides.clients, self.polling);
        let clients = threads.into_iter().map(|thread| (client(), thread)).collect();
        let clients = Clients::start::<P>(clients)?;
        for notes in clients.notes() {
            notes.details.iter().for_each(|note| output.detail(note));
            notes.warnings.iter().for_each(|note| output.detail(note));
        }
        Ok(clients)
    }

    /// Starts the server, unless it runs already. Returns its address.
    pub(super) fn start_far<P: Carrier>(&self) -> Result<(SocketAddr, FarEnd), Failure> {
        let room = self.plan.server_room();
        match (&self.far, self.plan.ends) {
            (Far::At(to, _), _) => Ok((*to, FarEnd::NotOurs)),
            (Far::Here { cores }, Ends::Processes) => {
                self.start_process::<P>(room, cores.as_deref())
            }
            (Far::Here { .. }, Ends::Threads) => self.start_threads::<P>(room),
        }
    }

    fn start_process<P: Carrier>(
        &self,
        room: Room,
        cores: Option<&str>,
    ) -> Result<(SocketAddr, FarEnd), Failure> {
        let core = &self.options.core;
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
            cores,
            polling: self.polling,
            provider: core.provider,
            crc: core.crc,
            versions: core.versions,
            speaks: false,
        })?;
        Ok((server.address, FarEnd::Process(server)))
    }

    fn start_threads<P: Carrier>(&self, room: Room) -> Result<(SocketAddr, FarEnd), Failure> {
        let threads = serving::threads("perf-server", &self.sides.servers, self.polling);
        let any = vec![SocketAddr::new(P::own_address()?, 0)];
        let (room, crc) = (room.part(threads.len()), self.options.core.crc);
        let versions =
            VersionOptions { rpc_version: RpcVersion::Auto, ..self.options.core.versions };
        let limits = versions.server(room.limits(), room.memory);
        let node = NodeConfig { crc, ..NodeConfig::new(room.memory, limits) };
        let services = serve::services(threads.len(), room);
        let server = serve::start::<P, _>(threads, services, &node, &any)?;
        Ok((server.started().listening()?.address, FarEnd::Threads(server)))
    }
}

/// The location of the server.
#[derive(Clone, Debug)]
pub(super) enum Far {
    /// A running server at this address, and how the ends prove which hosts they are, if they do.
    At(SocketAddr, Option<Arc<ClientHosts>>),
    /// A server that this command starts for each run.
    Here {
        /// Its CPUs, as a list; `None` is one core that is not pinned.
        cores: Option<String>,
    },
}

/// A server that ends after its run.
pub(super) enum FarEnd {
    NotOurs,
    Process(Server),
    Threads(Group<Started<Listening>>),
}

impl FarEnd {
    pub(super) fn stop(self) -> Result<(), Failure> {
        match self {
            Self::NotOurs => Ok(()),
            Self::Process(server) => server.stop(),
            Self::Threads(cores) => Ok(cores.stop()?),
        }
    }
}

/// Timeout of each Call to a local server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
