//! Building the cores of the command: memory, provider, limits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::core::{Core, CoreIdentity, CoreNumber, Service, StartError};
use haulage::hosts::HostAuth;
use haulage::limits::{ITEMS_MAX, LEAVING_MAX, LIMITS_DEFAULT, Limits, RECEIVES_IDLE};
use haulage::polling::Polling as CorePolling;
use haulage::pool::{PageKind, PagePreference, PageReport, Pool, PoolConfig, PoolError, Reservoir};
use haulage::provider::iwarp::{BackendReport, Config, Crc, Iwarp};
use haulage::provider::shm::{self, Shm};
use haulage::provider::{Provider, Waker};
use haulage::sys::process;
use haulage::sys::socket::Listener;

use crate::cli::perf::Count;
use crate::cli::values::{Polling, Switch};
use crate::cli::{PeerOptions, bytes};
use crate::failure::Failure;
use crate::memory::Wanted;
use crate::output::Output;
use crate::output::progress::Step;
use crate::serving::supervisor::raising;

#[cfg(feature = "verbs")]
pub mod verbs;

/// A provider that `--provider` can name.
pub trait Carrier: Provider + Sized {
    /// The pages that the provider can use.
    const PAGES: PagePreference = PagePreference::Best;

    /// Starts the provider for a core with this configuration and pool. Returns it with notes for the user.
    ///
    /// # Errors
    /// The provider does not work on this machine.
    fn start(node: &NodeConfig, pool: &Pool) -> Result<(Self, Notes), Failure>;

    /// Finds out whether a server can listen at an address, before there is a core that takes long to make.
    ///
    /// # Errors
    /// The error of the system.
    fn check_listen(at: SocketAddr) -> io::Result<()> {
        Listener::check(at)
    }

    /// Returns the address of this machine at which a server for local clients listens.
    ///
    /// # Errors
    /// The provider does not work on this machine.
    fn own_address() -> Result<IpAddr, Failure> {
        Ok(Ipv4Addr::LOCALHOST.into())
    }
}

impl Carrier for Iwarp {
    fn start(node: &NodeConfig, _: &Pool) -> Result<(Self, Notes), Failure> {
        let crc = match node.crc {
            None => Crc::Connecting,
            Some(Switch::On) => Crc::Always,
            Some(Switch::Off) => Crc::IfAsked,
        };
        let (limits, usual) = (&node.limits, Config::default());
        let config = Config {
            crc,
            connections_max: slots(limits).max(usual.connections_max),
            handshake_timeout: limits.setup_timeout,
            progress_timeout: Some(limits.progress_timeout),
            ..usual
        };
        let provider = Self::new(&config).map_err(|error| {
            Failure::failed(format!("cannot start the iwarp provider: {error}"))
        })?;
        let warnings = provider_note(provider.backend()).into_iter().collect();
        let details = vec![format!("sockets: {}", provider.backend())];
        Ok((provider, Notes { warnings, details }))
    }
}

impl Carrier for Shm {
    const PAGES: PagePreference = PagePreference::Shared;

    fn check_listen(at: SocketAddr) -> io::Result<()> {
        Self::check_listen(at)
    }

    fn start(node: &NodeConfig, pool: &Pool) -> Result<(Self, Notes), Failure> {
        let (limits, usual) = (&node.limits, shm::Config::default());
        // All items that the Calls of the core may have exposed at once.
        let open_max = limits.calls_out_max.saturating_mul(ITEMS_MAX).min(shm::REGISTRATIONS_MAX);
        let config = shm::Config {
            registrations_max: open_max.max(usual.registrations_max),
            connections_max: slots(limits).max(usual.connections_max),
            handshake_timeout: limits.setup_timeout,
            progress_timeout: Some(limits.progress_timeout),
            ..usual
        };
        let provider = Self::new(&config, pool)
            .map_err(|error| Failure::failed(format!("cannot start the shm provider: {error}")))?;
        Ok((provider, Notes::default()))
    }
}

/// Notes about a new core for the user.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// Warnings, each with what to do.
    pub warnings: Vec<String>,
    /// Details, printed with `-v`.
    pub details: Vec<String>,
}

impl Notes {
    /// Prints the notes on standard error.
    pub fn tell(&self, output: &Output) {
        self.warnings.iter().for_each(|line| output.note(line));
        self.details.iter().for_each(|line| output.detail(line));
    }
}

/// The configuration of a core.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Octets for data items, besides those of the transport.
    pub room: usize,
    /// Octets that the user asked for, if so: `room`, and what the service takes itself.
    pub asked: Option<u64>,
    /// The limits of the core.
    pub limits: Limits,
    /// Whether to ask for CRCs; `None` leaves it to the provider.
    pub crc: Option<Switch>,
    /// The CPU near which the core chooses its RDMA device. `None` means the CPU that the core runs on. All cores of one server
    /// name the same CPU, because they adopt peers that came to one device.
    pub device_cpu: Option<usize>,
    /// What hosts that connect to the core prove, and how.
    pub hosts: Option<HostAuth>,
    /// The memory that the cores of the server share, if they do: `room`, and what the transport takes, of each of them.
    pub reservoir: Option<Reservoir>,
}

impl NodeConfig {
    /// Returns the usual configuration of a core with `room` octets for data items.
    pub const fn new(room: usize, limits: Limits) -> Self {
        Self {
            room,
            asked: None,
            limits,
            crc: None,
            device_cpu: None,
            hosts: None,
            reservoir: None,
        }
    }

    /// Returns the memory that the core takes, for errors.
    pub(crate) fn wanted(&self) -> Wanted {
        let transport = self.limits.transport_bytes();
        match self.asked {
            Some(asked) => Wanted::Asked { asked, besides: transport as u64 },
            None => Wanted::All(self.room.saturating_add(transport) as u64),
        }
    }

    /// Checks that a core can manage its memory.
    ///
    /// # Errors
    /// It is too much.
    pub fn check(&self) -> Result<(), Failure> {
        if self.size() > Pool::BYTES_MAX { Err(self.wanted().beyond()) } else { Ok(()) }
    }

    /// Has `cores` cores share the memory that each would have.
    ///
    /// # Errors
    /// There is not so much.
    pub fn share<P: Carrier>(&mut self, cores: usize) -> Result<(), Failure> {
        let size = self.size().saturating_mul(cores);
        self.reservoir = Some(self.fill(size, P::PAGES, Reservoir::new)?);
        Ok(())
    }

    /// Fills memory of this size, by `fill`.
    fn fill<T>(
        &self,
        size: usize,
        pages: PagePreference,
        fill: impl FnOnce(&PoolConfig) -> Result<T, PoolError>,
    ) -> Result<T, Failure> {
        let _step = Step::begin(format_args!("filling {} of memory", bytes::rounded(size as u64)));
        let config = PoolConfig { bytes: size, pages, node: None };
        fill(&config).map_err(|error| self.without_memory(error))
    }

    fn without_memory(&self, error: PoolError) -> Failure {
        match error {
            PoolError::NoMemory { reason, .. } => self.wanted().refused(&reason),
            PoolError::TooLarge { .. } => self.wanted().beyond(),
            error => Failure::failed(error.to_string()),
        }
    }

    /// Returns the size of the core's pool, in octets.
    const fn size(&self) -> usize {
        // A sum that would overflow is more than any machine has.
        self.room.saturating_add(self.limits.transport_bytes())
    }

    /// Builds the only core of this end around the service that `service` creates from the core's pool and waker.
    ///
    /// # Errors
    /// The core cannot be built on this machine.
    pub fn build<P: Carrier, S: Service>(
        &self,
        service: impl FnOnce(&Pool, &Waker) -> Result<S, Failure>,
    ) -> Result<(Core<P, S>, Notes), Failure> {
        self.build_one_of(CoreNumber::FIRST, service)
    }

    /// Builds the core of this number around the service that `service` creates from the core's pool and waker.
    ///
    /// # Errors
    /// The core cannot be built on this machine.
    pub fn build_one_of<P: Carrier, S: Service>(
        &self,
        number: CoreNumber,
        service: impl FnOnce(&Pool, &Waker) -> Result<S, Failure>,
    ) -> Result<(Core<P, S>, Notes), Failure> {
        let pool = match &self.reservoir {
            Some(reservoir) => Pool::of(reservoir).map_err(|error| self.without_memory(error))?,
            None => self.fill(self.size(), P::PAGES, Pool::new)?,
        };
        let mut notes = Notes::default();
        notes.warnings.extend(page_note(pool.pages()));
        notes.warnings.extend(lock_note(pool.pages()));
        notes.details.push(format!("memory: {}", pool.pages()));
        let (provider, told) = P::start(self, &pool)?;
        notes.warnings.extend(told.warnings);
        notes.details.extend(told.details);
        let seed = chance()?;
        let service = service(&pool, &provider.waker())?;
        let identity = CoreIdentity { number, seed };
        let failed = |error: StartError| Failure::failed(error.to_string());
        let mut core = Core::new(provider, service, pool, self.limits, identity).map_err(failed)?;
        if let Some(hosts) = &self.hosts {
            core.authenticate(hosts.clone()).map_err(failed)?;
        }
        Ok((core, notes))
    }
}

/// Returns a random number that peers cannot guess.
pub(crate) fn chance() -> Result<u64, Failure> {
    getrandom::u64()
        .map_err(|error| Failure::failed(format!("the system gave no random numbers: {error}")))
}

/// Returns the number of connections that the provider of a core must hold, including those being set up or closed.
fn slots(limits: &Limits) -> usize {
    let connections = limits.connections_max.saturating_add(LEAVING_MAX + SETUPS_MAX);
    usize::try_from(connections).unwrap_or(usize::MAX).min(1 << 16)
}

/// Maximum number of connections in setup.
const SETUPS_MAX: u32 = 1024;

/// Returns the limits of a core that serves `connections` connections.
pub fn server_limits(peers: &PeerOptions, Count(connections): Count) -> Limits {
    Limits {
        connections_max: connections,
        // One address can have half of the connections.
        connections_each_max: connections.div_ceil(2),
        receives_max: LIMITS_DEFAULT.receives_max.max(2 * RECEIVES_IDLE * connections),
        ..peers.within(LIMITS_DEFAULT)
    }
}

impl PeerOptions {
    /// Returns `limits` with what these options say.
    #[must_use]
    pub const fn within(&self, limits: Limits) -> Limits {
        let (progress_timeout, idle_timeout) = (self.progress_timeout.0, self.idle_timeout.0);
        Limits { progress_timeout, idle_timeout, ..limits }
    }
}

/// Returns the limits of a core that makes a few Calls, each within `timeout`.
pub fn client_limits(timeout: Duration) -> Limits {
    Limits {
        connections_max: 4,
        receives_max: 64,
        calls_out_max: 16,
        send_buffers_max: 32,
        setup_timeout: timeout,
        call_timeout: timeout,
        drain_timeout: CLIENT_DRAIN.min(timeout),
        ..LIMITS_DEFAULT
    }
}

/// How long a client's core may take to end: it waits for no Call by then, only for peers that do not let go. A command
/// ends within its timeout and little more.
pub const CLIENT_DRAIN: Duration = Duration::from_millis(500);

/// Converts the polling mode of `--polling` to the core's.
pub const fn polling(mode: Polling) -> CorePolling {
    match mode {
        Polling::Busy => CorePolling::Busy,
        Polling::Adaptive => CorePolling::ADAPTIVE,
        Polling::Event => CorePolling::Event,
    }
}

/// Returns the warning that the memory is not in huge pages, with the command that changes that.
fn page_note(report: &PageReport) -> Option<String> {
    if matches!(report.kind, PageKind::Gigantic | PageKind::Huge) {
        return None;
    }
    let declined = report.declined.iter().find(|declined| declined.kind == PageKind::Huge)?;
    let fix = declined
        .command
        .as_ref()
        .map_or_else(String::new, |fix| format!("; `{fix}` would give them"));
    Some(format!(
        "memory is in {}, not in 2 MiB pages ({}){fix}",
        report.kind.name(),
        declined.reason
    ))
}

/// Returns the warning that the memory may be swapped out, with the command that changes that.
fn lock_note(report: &PageReport) -> Option<String> {
    let reason = report.unlocked.as_ref()?;
    let limit = process::memlock_limit();
    let limit = limit.map_or_else(|| "the limit".to_owned(), bytes::format);
    Some(format!(
        "memory is not locked and may be swapped out ({reason}; memlock allows {limit}, {} wanted); \
         {} lifts it",
        bytes::format(report.bytes as u64),
        raising("memlock", "unlimited")
    ))
}

/// Returns the warning that io_uring is not used, with the reason.
fn provider_note(backend: &BackendReport) -> Option<String> {
    match backend {
        BackendReport::NoUring(why) => {
            Some(format!("{why}; plain sockets are used, which cost more system calls"))
        }
        BackendReport::Uring | BackendReport::Sockets => None,
    }
}

/// Calls a function that is generic over the provider, with the chosen provider.
macro_rules! over {
    ($provider:expr, $($path:ident).+, $arguments:tt) => {
        match $provider {
            $crate::cli::values::Provider::Iwarp => {
                $($path).+::<haulage::provider::iwarp::Iwarp> $arguments
            }
            $crate::cli::values::Provider::Shm => {
                $($path).+::<haulage::provider::shm::Shm> $arguments
            }
            #[cfg(feature = "verbs")]
            $crate::cli::values::Provider::Verbs => {
                $($path).+::<haulage::provider::verbs::Verbs> $arguments
            }
        }
    };
}
pub(crate) use over;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::values::{Timeout, Unlimited};

    #[test]
    fn a_server_has_room_for_each_of_its_connections_and_half_for_one_address() {
        let seconds = Duration::from_secs;
        let peers = PeerOptions {
            progress_timeout: Timeout(seconds(3)),
            idle_timeout: Unlimited(Some(seconds(9))),
        };
        for connections in [1, 3, 256, Count::MAX] {
            let limits = server_limits(&peers, Count(connections));
            assert_eq!(limits.connections_max, connections);
            assert_eq!(limits.connections_each_max, connections.div_ceil(2));
            assert!(limits.receives_max >= 2 * RECEIVES_IDLE * connections);
            assert!(slots(&limits) > connections as usize, "newcomers have to ask somewhere");
            assert_eq!(
                (limits.progress_timeout, limits.idle_timeout),
                (seconds(3), Some(seconds(9)))
            );
        }
    }
}
