//! Shared parts of the client commands: finding the server, connecting to it, and the error messages of failed Calls.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use haulage::core::{ConnectOptions, Core, NoService, Service};
use haulage::cores::{self, CoreThread};
use haulage::limits::Limits;
use haulage::polling::Polling;
use haulage::proto::rpc::AcceptStat;
use haulage::provider::{ConnectError, Provider as Carries};
use haulage::remote::RemoteClient;
use haulage::service::{Binding, CallError, ConnectionId, Request};
use haulage::sys::clock;

use crate::cli::CoreOptions;
use crate::cli::values::Provider;
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::node::{Carrier, NodeConfig, client_limits, polling};
use crate::output::progress::Step;
use crate::placement::{Cpus, Placement};

/// The server that a command calls, and its timeouts.
#[derive(Clone, Debug)]
pub struct Callee {
    /// The server's address.
    pub to: SocketAddr,
    /// Timeout of connecting, and of each Call.
    pub timeout: Duration,
    /// The command that starts such a server, named in errors.
    pub served_by: &'static str,
    /// The client's provider.
    pub provider: Provider,
    /// How the ends prove which hosts they are, if they do.
    pub hosts: Option<Arc<ClientHosts>>,
}

impl Callee {
    /// Converts the error of a Call to a one-line message that says what to do.
    pub fn explain(&self, error: &CallError) -> Failure {
        let Self { to, timeout, served_by, provider, hosts } = self;
        let seconds = timeout.as_secs_f64();
        Failure::failed(match error {
            CallError::Connect(ConnectError::Refused) => match self.listens_over() {
                Some(other) => {
                    let (other, asked) = (other.name(), provider.name());
                    format!("{to}: it listens over {other}, not {asked}; give --provider {other}")
                }
                None => format!(
                    "nobody listens at {to}; start `{served_by}`, or give its address with --connect"
                ),
            },
            CallError::Rejected(AcceptStat::ProgUnavail) => format!(
                "{to} is another server than `{served_by}`; start that, or give its address with --connect"
            ),
            CallError::Connect(ConnectError::TimedOut) => format!(
                "{to} did not finish connecting within {seconds} s; check that it is such a server"
            ),
            CallError::Connect(reason) => format!("cannot connect to {to}: {reason}"),
            CallError::TimedOut => format!(
                "no answer from {to} within {seconds} s; check that the server runs, or raise \
                 --timeout"
            ),
            CallError::Disconnected(reason) => {
                format!("the connection to {to} is lost ({reason}); check that the server runs")
            }
            CallError::Unready(reason) => {
                let lacks = hosts.as_ref().map(|hosts| hosts.unknown_here());
                let lacks = lacks.as_deref().unwrap_or("whether it requires --host-auth");
                format!(
                    "the connection to {to} was lost before it was ready ({reason}); check that it is such a server, and \
                     {lacks}"
                )
            }
            CallError::Host(refusal) => match hosts {
                Some(hosts) => hosts.explain(*to, refusal),
                None => format!("{to}: {refusal}"),
            },
            error => format!("{to}: {error}"),
        })
    }

    /// Returns the provider over which a server listens at this address, if it differs from the client's.
    fn listens_over(&self) -> Option<Provider> {
        let Self { to, provider, .. } = self;
        let listens = |other| match other {
            Provider::Iwarp => TcpStream::connect_timeout(to, LOOK_TIME).is_ok(),
            Provider::Shm => to.ip().is_loopback() && listens_over_shm(to.port()),
            #[cfg(feature = "verbs")]
            Provider::Verbs => false,
        };
        let others = Provider::value_variants().iter().filter(|other| *other != provider);
        others.copied().find(|other| listens(*other))
    }

    /// Checks by a NULL Call that the server answers.
    ///
    /// # Errors
    /// No server answers, or it serves another program.
    pub fn probe<P: Carrier>(&self, binding: Binding, node: NodeConfig) -> Result<(), Failure> {
        let placement =
            cores::Placement { name: "probe".to_owned(), cpu: None, polling: Polling::Event };
        let Limits { versions, profile, .. } = node.limits;
        let limits = Limits { versions, profile, ..client_limits(self.timeout) };
        let node = NodeConfig { room: PROBE_ROOM, limits, ..node };
        let mut core = self.clone().connect::<P>(placement, binding, node)?;
        let _step = Step::begin(format_args!("connecting to {}", self.to));
        let request = Request::new(NULL).within(self.timeout);
        let called = core.started.call(request, |_| Ok(())).map(drop);
        called.map_err(|failed| self.explain(&failed.error))?;
        Ok(core.stop()?)
    }

    /// Starts a core that connects to the server.
    ///
    /// # Errors
    /// The core cannot be built on this machine.
    pub fn connect<P: Carrier>(
        self,
        placement: cores::Placement,
        binding: Binding,
        node: NodeConfig,
    ) -> Result<CoreThread<RemoteClient>, Failure> {
        cores::start(placement, move || self.core::<P, _>(node, NoService, binding.into()))
    }

    /// Makes a core that connects to the server, and its client for another thread.
    ///
    /// # Errors
    /// The core cannot be built on this machine.
    pub fn core<P: Carrier, S: Service>(
        self,
        node: NodeConfig,
        service: S,
        options: ConnectOptions,
    ) -> Result<(Core<P, S>, RemoteClient), Failure> {
        let (mut core, _) = node.build::<P, _>(|_, _| Ok(service))?;
        let connection = self.connection(&mut core, options)?;
        let client = RemoteClient::of(&core, connection);
        let client = client.ok_or_else(|| Failure::failed("a core has room for a client"))?;
        Ok((core, client))
    }
}

impl Callee {
    /// Begins a connection to the server, whose ends prove which hosts they are if they are to.
    ///
    /// # Errors
    /// No connection can be opened, with what to do.
    pub fn connection<P: Carries, S: Service>(
        &self,
        core: &mut Core<P, S>,
        options: ConnectOptions,
    ) -> Result<ConnectionId, Failure> {
        let options = match &self.hosts {
            Some(hosts) => hosts.with(options),
            None => options,
        };
        core.connect(clock::now(), self.to, options).map_err(|error| self.explain(&error))
    }
}

/// Returns whether a process of this machine listens at a port over `shm`.
fn listens_over_shm(port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = format!("@haulage-shm-{port}");
    sockets.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(3) == Some(ACCEPTS) && fields.last() == Some(&name)
    })
}

/// Returns the name, CPU and polling mode of a client's core.
pub fn one_core(name: &str, options: &CoreOptions) -> Result<haulage::cores::Placement, Failure> {
    let placement = Placement::new(options.cores.as_ref(), options.polling, &Cpus::here()?)?;
    let [cpu] = placement.cores[..] else {
        return Err(Failure::usage("a client has one core: name one CPU with --cores"));
    };
    let polling = polling(placement.polling);
    Ok(haulage::cores::Placement { name: name.to_owned(), cpu, polling })
}

/// Returns the first address at which a server listens over TCP. If there is none, returns the first address, whose
/// error the command then reports.
pub fn reachable(addresses: &[SocketAddr], timeout: Duration) -> Result<SocketAddr, Failure> {
    let first = addresses.first().ok_or_else(|| Failure::failed("the server has no address"))?;
    let listens = |to: &&SocketAddr| {
        let _step = Step::begin(format_args!("connecting to {to}"));
        TcpStream::connect_timeout(to, timeout).is_ok()
    };
    let found = if addresses.len() > 1 { addresses.iter().find(listens) } else { None };
    Ok(*found.unwrap_or(first))
}

/// The number of the NULL procedure, in every program.
const NULL: u32 = 0;
/// Memory of the client that makes the NULL Call, in octets.
const PROBE_ROOM: usize = 1 << 20;
/// Timeout of the search for a server that listens over another provider.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// The flags of a listening socket in `/proc/net/unix`.
const ACCEPTS: &str = "00010000";
