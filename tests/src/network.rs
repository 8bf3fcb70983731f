//! The networks of the providers under test, and their time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::provider::Provider;
use haulage::provider::delaying::Delaying;
use haulage::provider::lending::Lending;
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::provider::tracing::{Trace, Tracing};
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::time::Instant;

mod hub;
mod loopback;
mod machine;
#[cfg(feature = "verbs")]
mod verbs;

pub use hub::Hub;
pub use loopback::Loopback;
pub use machine::OneMachine;
#[cfg(feature = "verbs")]
pub use verbs::Rnic;

/// One kind of provider and the network between its instances.
pub trait Network {
    /// The provider under test.
    type Provider: Provider;

    /// Builds another provider with its memory. Returns an address it can listen at, too.
    fn join(&mut self) -> (Self::Provider, Pool, SocketAddr);

    /// Returns the time to poll with.
    fn now(&self) -> Instant;

    /// Lets time pass after a round of polls. `moved` tells whether the round had events, and `next` when something is
    /// due at the earliest. Returns what the caller may still expect.
    fn wait(&mut self, moved: bool, next: Option<Instant>) -> Expect;

    /// Lets time pass up to `then`, whatever happens before.
    fn skip(&mut self, then: Instant);

    /// Returns whether a provider answers the peer's Reads without being polled: they then stay unanswered only if it
    /// was gone before they were posted.
    fn serves_unpolled(&self) -> bool {
        false
    }

    /// Returns whether peers reach a provider of their own, from which the passive end adopts them.
    fn has_dealer(&self) -> bool {
        false
    }

    /// Returns an address at which nobody listens.
    fn nobody(&mut self) -> SocketAddr;

    /// Returns an address that takes connections and never sends anything.
    fn silent(&mut self) -> SocketAddr;

    /// Connects to `to` as a peer whose handshake goes wrong.
    fn babble(&mut self, to: SocketAddr);
}

/// Builds the pool of one end.
fn memory(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: POOL_BYTES, pages, node: None }).expect("memory for a test")
}

/// The events that may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Any event.
    More,
    /// Probably none.
    Quiet,
    /// None that is worth waiting for.
    Stuck,
}

/// A simulated fabric in virtual time.
#[derive(Debug)]
pub struct Virtual {
    fabric: Fabric,
    now: Instant,
    nodes: u8,
    bystanders: Vec<Sim>,
}

impl Virtual {
    /// Makes an empty fabric.
    pub fn new(config: FabricConfig) -> Self {
        let fabric = Fabric::new(config);
        Self { fabric, now: Instant::ZERO, nodes: 0, bystanders: Vec::new() }
    }

    /// Returns the fabric, so that a test can break it.
    pub const fn fabric(&self) -> &Fabric {
        &self.fabric
    }
}

impl Network for Virtual {
    type Provider = Sim;

    fn join(&mut self) -> (Sim, Pool, SocketAddr) {
        self.nodes += 1;
        let address = Ipv4Addr::new(10, 0, 0, self.nodes).into();
        let provider = self.fabric.provider(address).expect("a fresh address");
        (provider, memory(PagePreference::Heap), SocketAddr::new(address, 0))
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn wait(&mut self, moved: bool, next: Option<Instant>) -> Expect {
        match next {
            _ if moved => Expect::More,
            None => Expect::Stuck,
            Some(next) => {
                self.now = self.now.max(next);
                Expect::More
            }
        }
    }

    fn skip(&mut self, then: Instant) {
        self.now = self.now.max(then);
    }

    fn nobody(&mut self) -> SocketAddr {
        let (_, _, at) = self.join(); // and gone
        SocketAddr::new(at.ip(), 1)
    }

    fn silent(&mut self) -> SocketAddr {
        let (mut provider, _, at) = self.join();
        let (_, at) = provider.listen(at).expect("a free port");
        self.fabric.black_hole(at.ip());
        self.bystanders.push(provider);
        at
    }

    fn babble(&mut self, to: SocketAddr) {
        let (mut provider, _, _) = self.join();
        let params = haulage::provider::ConnectionParams { private_data: b"", ord: 1, ird: 1 };
        provider.connect(self.now, to, &params).expect("a queue pair");
        drop(provider); // before the peer heard the whole of it
    }
}

/// Implements the methods of a [`Network`] that are not about its providers by those of `self.inner`.
macro_rules! of_inner {
    () => {
        fn serves_unpolled(&self) -> bool {
            self.inner.serves_unpolled()
        }

        fn now(&self) -> Instant {
            self.inner.now()
        }

        fn wait(&mut self, moved: bool, next: Option<Instant>) -> Expect {
            self.inner.wait(moved, next)
        }

        fn skip(&mut self, then: Instant) {
            self.inner.skip(then);
        }

        fn nobody(&mut self) -> SocketAddr {
            self.inner.nobody()
        }

        fn silent(&mut self) -> SocketAddr {
            self.inner.silent()
        }

        fn babble(&mut self, to: SocketAddr) {
            self.inner.babble(to);
        }
    };
}

/// A network on which the passive end adopts peers that reach another provider of its host.
#[derive(Debug)]
pub struct Dealt<N> {
    inner: N,
}

impl<N: Network> Dealt<N> {
    /// Wraps `inner`, whose providers can adopt each other's peers.
    pub const fn new(inner: N) -> Self {
        Self { inner }
    }
}

impl<N: Network> Network for Dealt<N> {
    type Provider = N::Provider;

    fn join(&mut self) -> (Self::Provider, Pool, SocketAddr) {
        self.inner.join()
    }

    fn has_dealer(&self) -> bool {
        true
    }

    of_inner!();
}

/// A network whose providers delay their events at random.
#[derive(Debug)]
pub struct Slow<N> {
    inner: N,
    seed: u64,
    percent: u8,
}

impl<N: Network> Slow<N> {
    /// Wraps `inner`; see [`Delaying::new`].
    pub const fn new(inner: N, seed: u64, percent: u8) -> Self {
        Self { inner, seed, percent }
    }
}

impl<N: Network> Network for Slow<N> {
    type Provider = Delaying<N::Provider>;

    fn join(&mut self) -> (Self::Provider, Pool, SocketAddr) {
        let (provider, pool, at) = self.inner.join();
        self.seed += 1;
        (Delaying::new(provider, self.seed, self.percent), pool, at)
    }

    of_inner!();
}

/// A network whose providers offer messages to be taken without Receives, and trace every call.
#[derive(Debug)]
pub struct Lent<N> {
    inner: N,
    seed: u64,
    percent: u8,
}

impl<N: Network> Lent<N> {
    /// Wraps `inner`; see [`Lending::new`].
    pub const fn new(inner: N, seed: u64, percent: u8) -> Self {
        Self { inner, seed, percent }
    }
}

impl<N: Network> Network for Lent<N> {
    type Provider = Tracing<Lending<N::Provider>>;

    fn join(&mut self) -> (Self::Provider, Pool, SocketAddr) {
        let (provider, pool, at) = self.inner.join();
        self.seed += 1;
        let config = PoolConfig { bytes: POOL_BYTES, pages: PagePreference::Heap, node: None };
        let messages = Pool::new(&config).expect("memory for a test");
        let lending = Lending::new(provider, messages, self.seed, self.percent);
        (Tracing::new(lending, Trace::new(0), 0), pool, at)
    }

    of_inner!();
}

/// Real time that can jump ahead, so that no test waits for a deadline.
///
/// Polling never sleeps. A network without events is called quiet after some rounds of polls; a test without events for
/// [`HANG`] has hung.
#[derive(Debug)]
pub struct RealTime {
    jumped: Duration,
    idle_since: Instant,
    idle_rounds: u32,
}

const POOL_BYTES: usize = 16 << 20;
/// Real time after which a test without events has hung: longer than soft-iWARP takes to notice that it missed a request,
/// which is then sent again.
pub const HANG: Duration = Duration::from_secs(15);
/// Number of rounds of polls without an event after which a local network is quiet.
const QUIET_ROUNDS: u32 = 500;

impl Default for RealTime {
    fn default() -> Self {
        let idle_since = haulage::sys::clock::now();
        Self { jumped: Duration::ZERO, idle_since, idle_rounds: 0 }
    }
}

impl RealTime {
    /// Returns the time to poll with.
    pub fn now(&self) -> Instant {
        haulage::sys::clock::now().saturating_add(self.jumped)
    }

    /// See [`Network::wait`].
    pub fn wait(&mut self, moved: bool) -> Expect {
        let now = haulage::sys::clock::now();
        if moved {
            (self.idle_since, self.idle_rounds) = (now, 0);
        }
        self.idle_rounds += 1;
        if now.saturating_since(self.idle_since) > HANG {
            Expect::Stuck
        } else if self.idle_rounds > QUIET_ROUNDS {
            Expect::Quiet
        } else {
            Expect::More
        }
    }

    /// See [`Network::skip`].
    pub fn skip(&mut self, then: Instant) {
        self.jumped += then.saturating_since(self.now());
    }
}
