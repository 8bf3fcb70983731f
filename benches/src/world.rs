//! A client and a server on one thread, which whoever measures gives their turns.

use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{Core, Cx};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{Local, PagePreference, Pool, PoolConfig, Shared};
use haulage::proto::rpc::AcceptStat;
use haulage::proto::time::Instant;
use haulage::provider::Provider;
use haulage::provider::iwarp::{self, Iwarp};
use haulage::provider::shm::{self, Shm};
use haulage::service::{
    Binding, Call, ConnectionId, Data, Eligible, Finished, NoService, Outcome, Procedure, Reply,
    Request, Service,
};
use haulage::sys::clock;

/// A client core, connected to a server core.
#[derive(Debug)]
pub struct World<P: Provider> {
    server: Core<P, Keeper>,
    client: Core<P, Caller>,
    connection: ConnectionId,
}

/// What a Call does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Nothing.
    Null,
    /// The Reply brings 4 KiB by direct data placement.
    Read,
    /// The Call brings them.
    Write,
}

impl World<Shm> {
    /// Connects two cores over shared memory.
    ///
    /// # Panics
    ///
    /// If there is not the memory for it.
    pub fn over_shm() -> Self {
        let part = || {
            let pool = memory(PagePreference::Shared);
            (Shm::new(&shm::Config::default(), &pool).expect("the shm provider works"), pool)
        };
        Self::new(clock::now(), part(), part(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

impl World<Iwarp> {
    /// Connects two cores over TCP.
    ///
    /// # Panics
    ///
    /// If there are not the memory and the sockets for it.
    pub fn over_iwarp() -> Self {
        let part = || {
            let provider = Iwarp::new(&iwarp::Config::default()).expect("the iwarp provider works");
            (provider, memory(PagePreference::Best))
        };
        Self::new(clock::now(), part(), part(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

impl<P: Provider> World<P> {
    /// Makes a client and a server of a provider and memory each, the latter listening at `at`, and
    /// begins to connect them.
    ///
    /// # Panics
    ///
    /// If a provider lacks what that needs.
    pub fn new(now: Instant, client: (P, Pool), server: (P, Pool), at: SocketAddr) -> Self {
        let (here, ours) = client;
        let (there, theirs) = server;
        let mut server =
            Core::new(there, Keeper { item: None }, theirs, LIMITS, 1).expect("room enough");
        let mut client = Core::new(here, Caller::default(), ours, LIMITS, 2).expect("room enough");
        let at = server.listen(at).expect("an address that is free");
        let connection = client.connect(now, at, binding()).expect("a queue pair");
        Self { server, client, connection }
    }

    /// Makes `depth` Calls, and more as they are answered, `count` in all.
    ///
    /// # Panics
    ///
    /// If a core takes no more.
    pub fn call(&mut self, now: Instant, kind: Kind, depth: u64, count: u64) {
        let (mut cx, caller) = self.client.cx(now);
        caller.calls = Some((self.connection, kind));
        caller.left += count;
        for _ in 0..depth.min(count) {
            caller.call(&mut cx);
        }
    }

    /// Makes `count` Calls, of which `depth` at most are in flight: the next is made when one has been
    /// answered. Gives both ends their turns until all have been.
    pub fn batch(&mut self, kind: Kind, depth: u64, count: u64) {
        let mut now = clock::now();
        self.call(now, kind, depth, count);
        let mut turns = 0_u32;
        while !self.is_done() {
            self.turn(now);
            turns += 1;
            // A core that works reads the clock once in some turns.
            if turns.is_multiple_of(8) {
                now = clock::now();
            }
        }
    }

    /// Gives each end a turn. Returns whether either had something to do.
    pub fn turn(&mut self, now: Instant) -> bool {
        let client = self.client.turn(now);
        self.serve(now) | client
    }

    /// Gives the server a turn: by itself, so that `benches/counts` can tell what it takes.
    #[inline(never)]
    fn serve(&mut self, now: Instant) -> bool {
        self.server.turn(now)
    }

    /// Tells whether all Calls have been answered.
    pub fn is_done(&self) -> bool {
        let Caller { left, in_flight, .. } = self.client.service();
        *left == 0 && *in_flight == 0
    }
}

/// Maps enough for either end.
///
/// # Panics
///
/// If there is not as much.
pub fn memory(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: 16 << 20, pages, node: None }).expect("16 MiB of memory")
}

/// Serves one item.
#[derive(Debug)]
struct Keeper {
    item: Option<Shared>,
}

impl Service for Keeper {
    fn binding(&self) -> Binding {
        binding()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == Kind::Read as u32 {
            let item = self
                .item
                .get_or_insert_with(|| cx.pool().lease(ITEM).expect("room for an item").share());
            reply.item(Data::Shared(item.clone()));
        } else if call.procedure == Kind::Write as u32 {
            let (_, Ok(Some(_lease))) = call.arguments.into_parts() else {
                return Outcome::Failed(AcceptStat::GarbageArgs);
            };
        }
        Outcome::Done
    }
}

fn binding() -> Binding {
    let procedures = vec![
        Procedure::new("NULL").idempotent(),
        Procedure::new("READ").result(Eligible::opaque(ITEM)).idempotent(),
        Procedure::new("WRITE").argument(Eligible::opaque(ITEM)).idempotent(),
    ];
    Binding { program: 0x2000_0001, version: 1, procedures }
}

/// Makes Calls, and others as they are answered, with the same leases.
#[derive(Debug, Default)]
struct Caller {
    /// What is called, and how.
    calls: Option<(ConnectionId, Kind)>,
    /// Calls that are still to be made.
    left: u64,
    in_flight: u64,
    leases: Vec<Local>,
}

impl Caller {
    fn call(&mut self, cx: &mut Cx<'_>) {
        let (Some((connection, kind)), Some(left)) = (self.calls, self.left.checked_sub(1)) else {
            return;
        };
        let mut lease = || self.leases.pop().or_else(|| cx.pool().lease(ITEM));
        let (argument, result) = match kind {
            Kind::Null => (None, None),
            Kind::Read => (None, lease()),
            Kind::Write => (lease(), None),
        };
        let request = Request { procedure: kind as u32, argument, result, timeout: None };
        let made = cx.call(connection, request, left, |_| Ok(()));
        assert!(made.is_ok(), "{:?}", made.map_err(|(why, _)| why));
        self.left = left;
        self.in_flight += 1;
    }
}

impl Service for Caller {
    fn binding(&self) -> Binding {
        NoService.binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProcUnavail)
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok(), "{:?}", finished.results.map(drop));
        if let Some(lease) = finished.argument.or(finished.result) {
            self.leases.push(lease);
        }
        self.in_flight -= 1;
        Self::call(self, cx);
    }
}

const LIMITS: Limits =
    Limits { connections_max: 8, receives_max: 1024, send_buffers_max: 256, ..LIMITS_DEFAULT };

/// Octets of an item.
const ITEM: usize = 4096;
