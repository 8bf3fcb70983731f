//! One core of a world, with its provider and its service.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulage::core::{Census, Core, CoreIdentity, CoreNumber, Cx, Service};
use haulage::limits::Limits;
use haulage::pool::{Local, PagePreference, Pool, PoolConfig};
use haulage::provider::Provider;
use haulage::provider::corrupting::Corrupting;
use haulage::provider::delaying::Delaying;
use haulage::provider::lending::Lending;
use haulage::provider::sim::{Fabric, Sim};
use haulage::provider::tracing::{Trace, Tracing};
use haulage::service::{
    AUTH_NONE, AUTH_SYS, Call, CallToken, ConnectionId, Finished, Outcome, Peer, Program, Reply,
};
use haulage_kv::index::Seed;
use haulage_kv::service::KvService;
use haulage_proto::time::Instant;
use haulage_store::access::{Policy, Squash};
use haulage_store::client::File;
use haulage_store::handle::Sealer;
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::Time;
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::Gate;
use haulage_store::server::{Admission, Server as NfsServer};
use haulage_store::service::{Config, Service as NfsService};
use haulage_store::trust::Trust;

use super::exercise::{Exercise, Ledger};
use super::fellow::{Fallen, Fellow};
use super::hosts::Roster;
use super::programs::{kv, nfs};
use super::settings::Serves;
use crate::world::choices::Choices;

/// The provider of every core.
pub type Rnic = Tracing<Delaying<Lending<Sim>>>;

/// A core, and the leases it held at its start.
#[derive(Debug)]
pub struct Node {
    /// Memory between the free pages of a pool that is scattered; dropped before the pool is.
    scattered: Vec<Local>,
    /// The core.
    pub core: Core<Rnic, Boxed>,
    limits: Limits,
    /// When the service must be turned.
    due: Rc<Cell<Option<Instant>>>,
    /// Number of leases that the core held at its start.
    own: u64,
    own_bytes: usize,
    /// Whether the last turn did nothing.
    pub is_idle: bool,
    /// Whether the node stands still, like a process that is stopped.
    pub is_stopped: bool,
    /// Whether its service has panicked, as the world asked for. It is not turned again.
    pub has_fallen: bool,
    /// The node's address.
    pub address: IpAddr,
}

/// The service of any node, until it is taken away.
#[derive(Debug)]
pub struct Boxed {
    /// The service.
    pub kind: Option<Kind>,
    /// The hosts that may call, if they prove which they are.
    roster: Option<Arc<Roster>>,
    /// Number of Calls of hosts that had proved which they are.
    pub proved: u64,
}

/// The service of a core.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few of them")]
pub enum Kind {
    /// The service of a client.
    Caller(super::caller::Caller),
    /// The service of an exercise server.
    Exercise(Exercise),
    /// The service of a key-value server.
    Kv(KvService),
    /// The service of a file server.
    Nfs(NfsServer<Memory>),
}

/// The configuration of a node.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The network.
    pub fabric: &'a Fabric,
    /// The trace between cores and providers.
    pub trace: &'a Trace,
    /// The node's address.
    pub address: IpAddr,
    /// The number of the core in its group.
    pub core: CoreNumber,
    /// The node's number.
    pub number: u32,
    /// The bounds of the core.
    pub limits: Limits,
    /// Percentage of events that delay those behind them.
    pub delayed_percent: u8,
    /// Percentage of the chances to deliver messages without Receives that are taken.
    pub lent_percent: u8,
    /// Percentage of arriving messages that are corrupted.
    pub corrupted_percent: u8,
    /// Octets of the core's pool.
    pub memory: usize,
    /// The seed of everything random in the node.
    pub seed: u64,
    /// The hosts that may connect, if they prove which they are.
    pub roster: Option<Arc<Roster>>,
}

impl Plan<'_> {
    /// Builds the node. `service` makes the service from the pool.
    pub fn build(
        self,
        due: Rc<Cell<Option<Instant>>>,
        service: impl FnOnce(&Pool) -> Kind,
    ) -> Node {
        let mut choices = Choices::seeded(self.seed);
        let sim = self.fabric.provider(self.address).expect("an address of its own");
        let receives = PoolConfig { bytes: LENT_BYTES, pages: PagePreference::Heap, node: None };
        let receives = Pool::new(&receives).expect("memory for messages");
        let lending = Lending::new(sim, receives, choices.number(), self.lent_percent);
        let lending = lending.with(Corrupting::new(choices.number(), self.corrupted_percent));
        let delaying = Delaying::new(lending, choices.number(), self.delayed_percent);
        let rnic = Tracing::new(delaying, self.trace.clone(), self.number);
        let limits = self.limits.within(rnic.caps());
        // A seed of its own leaves the draws of `choices` as they are.
        let is_scattered = Choices::seeded(self.seed ^ SCATTERED).one_in(2);
        let memory = limits.transport_bytes() + self.memory * (1 + usize::from(is_scattered));
        let config = PoolConfig { bytes: memory, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).expect("memory for a pool");
        let service = service(&pool);
        let of_service = pool.gauges();
        // Messages and Replies of the others may be longer than a page, and have to be in one lease.
        let is_scattered = is_scattered && matches!(service, Kind::Kv(_));
        let identity = CoreIdentity { number: self.core, seed: choices.number() };
        let auth = self.roster.as_ref().map(Roster::auth);
        let boxed = Boxed { kind: Some(service), roster: self.roster, proved: 0 };
        let core = Core::new(rnic, boxed, pool, self.limits, identity);
        let mut core = core.expect("a pool for a core");
        auth.into_iter().for_each(|auth| core.authenticate(auth).expect("version 2 is spoken"));
        let mut node = Node {
            scattered: Vec::new(),
            core,
            limits,
            due,
            own: 0,
            own_bytes: 0,
            is_idle: false,
            is_stopped: false,
            has_fallen: false,
            address: self.address,
        };
        let (cx, _) = node.core.cx(Instant::ZERO);
        if is_scattered {
            node.scattered = scatter(cx.pool());
        }
        let gauges = cx.gauges();
        node.own = gauges.local + gauges.posted - of_service.local;
        node.own_bytes = gauges.leased_bytes - of_service.leased_bytes;
        node
    }
}

impl Node {
    /// Turns the core, and checks its invariants. Returns whether anything happened.
    pub fn turn(&mut self, now: Instant) -> bool {
        if self.has_fallen {
            return false;
        }
        let turned = panic::catch_unwind(AssertUnwindSafe(|| self.core.turn(now)));
        let worked = match turned {
            Ok(worked) => worked,
            Err(why) if why.is::<Fallen>() => {
                self.has_fallen = true;
                return true;
            }
            Err(why) => panic::resume_unwind(why),
        };
        self.is_idle = !worked;
        self.check(now);
        worked
    }

    /// Returns whether the node may have something to do, and is not stopped.
    pub const fn may_turn(&self) -> bool {
        !self.is_idle && !self.is_stopped && !self.has_fallen
    }

    /// Returns whether the free memory of the pool was in single pages when the node was built.
    pub const fn is_scattered(&self) -> bool {
        !self.scattered.is_empty()
    }

    /// Returns when the node must be turned even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        self.core.poll_deadline().into_iter().chain(self.due.get()).min()
    }

    /// Returns the number of connections.
    pub fn connections(&mut self, now: Instant) -> u32 {
        self.core.cx(now).0.connections()
    }

    /// Returns the part of the service in its group, if it is in one.
    pub fn fellow(&self) -> Option<&Fellow> {
        match &self.core.service().kind {
            Some(Kind::Exercise(exercise)) => exercise.fellow(),
            _ => None,
        }
    }

    /// Returns the client's service, and the context of its core.
    pub fn caller(&mut self, now: Instant) -> (Cx<'_>, &mut super::caller::Caller) {
        let (cx, service) = self.core.cx(now);
        match &mut service.kind {
            Some(Kind::Caller(caller)) => (cx, caller),
            _ => panic!("a client"),
        }
    }

    /// Checks that, without connections and service, every lease is home. Returns the service of a
    /// client.
    pub fn check_home(&mut self, now: Instant) -> Option<Kind> {
        let (_, service) = self.core.cx(now);
        let mut service = service.kind.take();
        if !matches!(service, Some(Kind::Caller(_))) {
            service = None;
        }
        let (cx, _) = self.core.cx(now);
        cx.pool().collect();
        let gauges = cx.gauges();
        assert_eq!((gauges.exposed, gauges.orphans, gauges.shared), (0, 0, 0), "{gauges:?}");
        assert_eq!(gauges.posted, cx.receives_posted() as u64, "only Receives are posted");
        let classes: Vec<_> = cx.pool().classes().filter(|class| class.leases > 0).collect();
        let leased = gauges.local + gauges.posted;
        assert_eq!(leased, self.own, "a lease is not home: {classes:?}, {gauges:?}");
        // A spare send buffer that was leased while memory was short has pages of its own. It may stay in the place of one
        // that went home.
        let longer = gauges.leased_bytes.checked_sub(self.own_bytes);
        let spares = self.limits.connections_max as usize;
        assert!(
            longer.is_some_and(|octets| octets <= spares * PAGES_LONGER),
            "a lease is not home: {classes:?}, {gauges:?}"
        );
        let receives_unreserved = i64::from(self.limits.receives_max);
        let nothing = Census {
            receives_held: 0,
            receives_reserved: 0,
            receives_unreserved,
            calls_served: 0,
            work_requests: 0,
            memory_charged: 0,
            connections_held: 0,
            leases_held: 0,
        };
        assert_eq!(cx.census(), nothing, "something of a Call is left");
        service
    }

    fn check(&mut self, now: Instant) {
        let receives_max = self.limits.receives_max;
        let (cx, _) = self.core.cx(now);
        let census = cx.census();
        assert!(census.receives_reserved <= i64::from(receives_max), "{census:?}");
        let reserved = census.receives_reserved + census.receives_unreserved;
        let all = reserved + i64::from(census.receives_held);
        assert_eq!(all, i64::from(receives_max), "Receives there are: {census:?}");
        assert_eq!(cx.counters().charges_lost, 0, "memory was charged for nobody");
        assert_eq!(cx.gauges().orphans, 0, "a lease was dropped while others may touch it");
    }
}

/// Leases memory until no two free pages are neighbours.
fn scatter(pool: &Pool) -> Vec<Local> {
    let all: Vec<_> = std::iter::from_fn(|| pool.lease(PAGE / 4)).collect();
    let is_even = |lease: &Local| (lease.bytes().as_ptr().addr() / PAGE).is_multiple_of(2);
    all.into_iter().filter(is_even).collect()
}

/// Makes the service of a server. Returns it with its root directory, if it serves files.
pub fn serve(
    serves: Serves,
    pool: &Pool,
    choices: &mut Choices,
    ledger: &Rc<RefCell<Ledger>>,
    due: &Rc<Cell<Option<Instant>>>,
    flavors: Vec<u32>,
) -> (Kind, Option<File>) {
    match serves {
        Serves::Exercise => {
            let (ledger, due) = (Rc::clone(ledger), Rc::clone(due));
            (Kind::Exercise(Exercise::new(choices.number(), flavors, ledger, due)), None)
        }
        Serves::Kv => {
            let seed = Seed::fixed(choices.number(), choices.number());
            (Kind::Kv(KvService::new(256, seed, kv::VALUE_MAX, pool.usable() as u64)), None)
        }
        Serves::Nfs => {
            let files = memory::Limits { files_max: 100, names_max: 100 };
            let run = choices.number();
            let backend = Memory::new(pool, files, run, Time::default()).expect("a block of zeros");
            let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
            let config = Config { policy, read_only: false, limits: nfs::LIMITS };
            let service = NfsService::new(backend, Sealer::new(&[7; 32], 9), config);
            let root = File::from(service.root().as_file_handle());
            let gate = Gate::new(Admission::default(), Trust::ALL);
            let kept = replays::Limits::of_memory(256 << 10, RESULTS_KEPT);
            let replays = Replays::new(&kept, choices.number());
            let server = NfsServer::new(service, &nfs::LIMITS, gate, replays);
            (Kind::Nfs(server.with_clock_since(Duration::from_secs(1_000_000_000))), Some(root))
        }
    }
}

/// Tells the draw whether a pool is scattered from a node's other draws.
const SCATTERED: u64 = 0x5ca7_7e2e_d000_0000;
/// Octets of a page.
const PAGE: usize = 4096;
/// Size of the pool for messages that are taken without Receives, in octets.
const LENT_BYTES: usize = 2 << 20;

/// The authentication flavors of a server that takes all Calls.
pub const FLAVORS: [u32; 2] = [AUTH_NONE, AUTH_SYS];

macro_rules! delegate {
    ($self:ident, $service:ident => $then:expr, $without:expr) => {
        match &$self.kind {
            Some(Kind::Caller($service)) => $then,
            Some(Kind::Exercise($service)) => $then,
            Some(Kind::Kv($service)) => $then,
            Some(Kind::Nfs($service)) => $then,
            None => $without,
        }
    };
    (mut $self:ident, $service:ident => $then:expr, $without:expr) => {
        match &mut $self.kind {
            Some(Kind::Caller($service)) => $then,
            Some(Kind::Exercise($service)) => $then,
            Some(Kind::Kv($service)) => $then,
            Some(Kind::Nfs($service)) => $then,
            None => $without,
        }
    };
}

impl Service for Boxed {
    fn programs(&self) -> Vec<Program> {
        delegate!(self, service => service.programs(), Vec::new())
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        delegate!(self, service => service.admits(peer), false)
    }

    fn identifies_peers(&self) -> bool {
        delegate!(self, service => service.identifies_peers(), false)
    }

    fn has_promised(&self, connection: ConnectionId) -> bool {
        delegate!(self, service => service.has_promised(connection), false)
    }

    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        delegate!(mut self, service => service.opened(cx, peer), ());
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if let Some(roster) = &self.roster {
            self.proved += u64::from(roster.check(cx, call.connection));
        }
        delegate!(mut self, service => service.call(cx, call, reply), panic!("a Call for nobody"))
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        delegate!(mut self, service => service.resume(cx, token, reply), panic!("for nobody"))
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        delegate!(mut self, service => service.replied(cx, token, finished), panic!("for nobody"));
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        delegate!(mut self, service => service.turn(cx), false)
    }
}

/// Octets by which a send buffer in pages of its own is longer than others, at most.
const PAGES_LONGER: usize = 4096;
