//! A client and a server on one thread, which whoever measures gives their turns.

use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{Core, Cx};
use haulage::identity::{Identity, User};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
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

/// A client core, connected to a server core that runs the service `S`.
#[derive(Debug)]
pub struct World<P: Provider, S = Keeper> {
    server: Core<P, S>,
    client: Core<P, Caller>,
    connection: ConnectionId,
}

/// How the client speaks to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Speech {
    /// In version 2, without a credential: as another Haulage does.
    Ours,
    /// In version 1, with an AUTH_SYS credential: as a Linux NFS client does.
    Linux,
}

/// What one end of a [`World`] is made of.
#[derive(Debug)]
pub struct Part<P> {
    /// The provider.
    pub provider: P,
    /// The memory.
    pub pool: Pool,
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
    /// NFS version 3 GETATTR of the file whose handle [`World::names`] gave.
    GetAttr,
}

impl Kind {
    const fn procedure(self) -> u32 {
        match self {
            Self::Null => 0,
            Self::Read | Self::GetAttr => 1,
            Self::Write => 2,
        }
    }
}

impl World<Shm> {
    /// Connects two cores over shared memory.
    ///
    /// # Panics
    ///
    /// If there is not the memory for it.
    pub fn over_shm(speech: Speech) -> Self {
        Self::new(clock::now(), [shm_part(), shm_part()], loopback(), speech)
    }
}

impl World<Iwarp> {
    /// Connects two cores over TCP.
    ///
    /// # Panics
    ///
    /// If there are not the memory and the sockets for it.
    pub fn over_iwarp(speech: Speech) -> Self {
        let part = || {
            let provider = Iwarp::new(&iwarp::Config::default()).expect("the iwarp provider works");
            Part { provider, pool: memory(PagePreference::Best) }
        };
        Self::new(clock::now(), [part(), part()], loopback(), speech)
    }
}

impl<P: Provider> World<P> {
    /// Makes a client and a server of one part each, the latter listening at `at`, and begins to connect
    /// them.
    ///
    /// # Panics
    ///
    /// If a provider lacks what that needs.
    pub fn new(now: Instant, parts: [Part<P>; 2], at: SocketAddr, speech: Speech) -> Self {
        Self::serving(now, parts, at, speech, |_| Keeper { item: None })
    }
}

impl<P: Provider, S: Service> World<P, S> {
    /// Like [`World::new`], with the service that `make` makes of the server's memory.
    ///
    /// # Panics
    ///
    /// If a provider lacks what that needs.
    pub fn serving(
        now: Instant,
        [client, server]: [Part<P>; 2],
        at: SocketAddr,
        speech: Speech,
        make: impl FnOnce(&Pool) -> S,
    ) -> Self {
        let service = make(&server.pool);
        let binding = service.binding();
        let (versions, identity) = match speech {
            Speech::Ours => (Versions::OnlyTwo, Identity::Nobody),
            Speech::Linux => {
                (Versions::OnlyOne, Identity::User(User::new("bench", 1000, 1000, &[10, 27])))
            }
        };
        let mut server =
            Core::new(server.provider, service, server.pool, LIMITS, 1).expect("room enough");
        let limits = Limits { versions, ..LIMITS };
        let mut client = Core::new(client.provider, Caller::default(), client.pool, limits, 2)
            .expect("room enough");
        let at = server.listen(at).expect("an address that is free");
        let connection = client.connect_as(now, at, binding, identity).expect("a queue pair");
        Self { server, client, connection }
    }

    /// Sets the arguments of all Calls made from now on, as they are encoded.
    pub fn names(&mut self, now: Instant, arguments: Vec<u8>) {
        self.client.cx(now).1.arguments = arguments;
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

/// Returns a port of this machine that the system chooses.
pub fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Makes one end over shared memory.
///
/// # Panics
///
/// If there is not the memory for it.
pub fn shm_part() -> Part<Shm> {
    let pool = memory(PagePreference::Shared);
    let provider = Shm::new(&shm::Config::default(), &pool).expect("the shm provider works");
    Part { provider, pool }
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
pub struct Keeper {
    item: Option<Shared>,
}

impl Service for Keeper {
    fn binding(&self) -> Binding {
        binding()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == Kind::Read.procedure() {
            let item = self
                .item
                .get_or_insert_with(|| cx.pool().lease(ITEM).expect("room for an item").share());
            reply.item(Data::Shared(item.clone()));
        } else if call.procedure == Kind::Write.procedure() {
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
    /// What every Call carries inline.
    arguments: Vec<u8>,
}

impl Caller {
    fn call(&mut self, cx: &mut Cx<'_>) {
        let (Some((connection, kind)), Some(left)) = (self.calls, self.left.checked_sub(1)) else {
            return;
        };
        let mut lease = || self.leases.pop().or_else(|| cx.pool().lease(ITEM));
        let (argument, result) = match kind {
            Kind::Null | Kind::GetAttr => (None, None),
            Kind::Read => (None, lease()),
            Kind::Write => (lease(), None),
        };
        let request = Request { procedure: kind.procedure(), argument, result, timeout: None };
        let made = cx.call(connection, request, left, |w| w.put(&self.arguments));
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
