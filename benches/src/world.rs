//! A client core and a server core on one thread, whose turns the caller controls.

use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{ConnectOptions, Core, CoreIdentity, CoreNumber, Cx, Seats, Service};
use haulage::identity::{Identity, User};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::pool::{Local, PagePreference, Pool, PoolConfig, Shared};
use haulage::proto::rpc::AcceptStat;
use haulage::proto::time::Instant;
use haulage::provider::iwarp::{self, Iwarp};
use haulage::provider::shm::{self, Shm};
use haulage::provider::{Provider, Waker};
use haulage::service::{
    Binding, Call, ConnectionId, Data, Eligible, Finished, Items, Outcome, Procedure, Program,
    Reply, Request,
};
use haulage::sys::clock;

/// A client core, connected to a server core that runs the service `S`.
#[derive(Debug)]
pub struct World<P: Provider, S = Keeper> {
    server: Core<P, S>,
    client: Core<P, Caller>,
    connection: ConnectionId,
    /// Where the server listens, and what the client calls.
    at: (SocketAddr, Binding),
}

/// The protocol version and the credential of the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Speech {
    /// Version 2 without a credential, as another Haulage speaks.
    Ours,
    /// Version 1 with an AUTH_SYS credential, as a Linux NFS client speaks.
    Linux,
}

/// The parts of one end of a [`World`].
#[derive(Debug)]
pub struct Part<P> {
    /// The provider.
    pub provider: P,
    /// The memory.
    pub pool: Pool,
}

/// What a Call asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A Call without arguments and results.
    Null,
    /// A Call whose Reply brings 4 KiB by direct data placement.
    Read,
    /// A Call that brings 4 KiB by direct data placement.
    Write,
    /// A Call of another service than [`Keeper`], which [`World::asks`] set.
    Asked,
}

/// A Call, and those that take turns with it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The number of the procedure.
    pub procedure: u32,
    /// The arguments in the message, encoded. With several, one Call after another has the next of them.
    pub arguments: Vec<Vec<u8>>,
    /// Octets of an argument that goes by direct data placement; 0 for none.
    pub argument: usize,
    /// Octets of room for a result that comes by direct data placement, if there is no such argument; 0 for none.
    pub room: usize,
}

impl Asked {
    /// Returns the arguments of Call number `at`.
    pub(crate) fn arguments_of(&self, at: u64) -> &[u8] {
        let turn = at.checked_rem(self.arguments.len() as u64).map(usize::try_from);
        turn.and_then(|turn| self.arguments.get(turn.ok()?)).map_or(&[], Vec::as_slice)
    }
}

impl World<Shm> {
    /// Connects two cores over shared memory.
    ///
    /// # Panics
    ///
    /// If there is too little memory.
    pub fn over_shm(speech: Speech) -> Self {
        Self::new(clock::now(), [shm_part(), shm_part()], loopback(), speech)
    }

    /// Makes a server of two cores over shared memory, and connects two client cores to its one address. Each world has one
    /// of either, and both are to be turned.
    ///
    /// # Panics
    ///
    /// If there is too little memory.
    pub fn group_over_shm() -> [Self; 2] {
        let mut seats = Seats::of_all(2, 1).into_iter();
        let mut server = |number| {
            let identity = CoreIdentity { number, seed: 1 };
            let mut server = server(shm_part(), identity, |_, _| Keeper { item: None });
            server.join(seats.next().expect("a seat for each"));
            server
        };
        let second = CoreNumber::new(1).expect("there may be two");
        let [mut first, second] = [CoreNumber::FIRST, second].map(&mut server);
        let at = first.listen(loopback()).expect("an address that is free");
        [first, second].map(|server| Self::of(clock::now(), server, shm_part(), at, Speech::Ours))
    }
}

/// Builds a server core around the service that `make` builds.
fn server<P: Provider, S: Service>(
    Part { provider, pool }: Part<P>,
    identity: impl Into<CoreIdentity>,
    make: impl FnOnce(&Pool, &Waker) -> S,
) -> Core<P, S> {
    let service = make(&pool, &provider.waker());
    Core::new(provider, service, pool, LIMITS, identity).expect("room enough")
}

impl World<Iwarp> {
    /// Connects two cores over TCP.
    ///
    /// # Panics
    ///
    /// If there is too little memory, or there are no sockets.
    pub fn over_iwarp(speech: Speech) -> Self {
        let part = || {
            let provider = Iwarp::new(&iwarp::Config::default()).expect("the iwarp provider works");
            Part { provider, pool: memory(PagePreference::Best) }
        };
        Self::new(clock::now(), [part(), part()], loopback(), speech)
    }
}

impl<P: Provider> World<P> {
    /// Builds a client and a server, which listens at `at`, and begins to connect them.
    ///
    /// # Panics
    ///
    /// If a provider or a pool is too small.
    pub fn new(now: Instant, parts: [Part<P>; 2], at: SocketAddr, speech: Speech) -> Self {
        Self::serving(now, parts, at, speech, |_, _| Keeper { item: None })
    }
}

impl<P: Provider, S: Service> World<P, S> {
    /// Like [`World::new`], with the service that `make` builds from the server's pool and waker.
    ///
    /// # Panics
    ///
    /// If a provider or a pool is too small.
    pub fn serving(
        now: Instant,
        [client, server]: [Part<P>; 2],
        at: SocketAddr,
        speech: Speech,
        make: impl FnOnce(&Pool, &Waker) -> S,
    ) -> Self {
        let mut server = self::server(server, 1, make);
        let at = server.listen(at).expect("an address that is free");
        Self::of(now, server, client, at, speech)
    }

    /// Makes a client of a server that listens at `at`, or whose group does.
    fn of(
        now: Instant,
        server: Core<P, S>,
        client: Part<P>,
        at: SocketAddr,
        speech: Speech,
    ) -> Self {
        let served = server.service().programs();
        let binding = served.first().expect("a program to call").binding().clone();
        let (versions, identity) = match speech {
            Speech::Ours => (Versions::OnlyTwo, Identity::Anonymous),
            Speech::Linux => (Versions::OnlyOne, user()),
        };
        let limits = Limits { versions, ..LIMITS };
        let mut client = Core::new(client.provider, Caller::default(), client.pool, limits, 2)
            .expect("room enough");
        let options = ConnectOptions::new(binding.clone()).identity(identity);
        let connection = client.connect(now, at, options).expect("a queue pair");
        Self { server, client, connection, at: (at, binding) }
    }

    /// Has the client open `count` further connections, and make one Call of [`Kind::Asked`] on each. It serves the program of
    /// `serves` on them, but never answers.
    ///
    /// # Panics
    ///
    /// If there are too many connections.
    pub fn crowd(&mut self, count: usize, serves: &Binding) {
        for _ in 0..count {
            let (at, binding) = self.at.clone();
            let options = ConnectOptions::new(binding).serving(vec![Program::new(serves.clone())]);
            let opened = self.client.connect(clock::now(), at, options).expect("a queue pair");
            let own = std::mem::replace(&mut self.connection, opened);
            self.batch(Kind::Asked, 1, 1);
            self.connection = own;
        }
    }

    /// Sets the Call that [`Kind::Asked`] is from now on.
    pub fn asks(&mut self, now: Instant, asked: Asked) {
        let caller = self.client.cx(now).1;
        caller.asked = asked;
        caller.leases.clear();
    }

    /// Makes `depth` Calls, and another for each one answered, `count` in all.
    ///
    /// # Panics
    ///
    /// If the core refuses a Call.
    pub fn call(&mut self, now: Instant, kind: Kind, depth: u64, count: u64) {
        let (mut cx, caller) = self.client.cx(now);
        caller.calls = Some((self.connection, kind));
        caller.left += count;
        for _ in 0..depth.min(count) {
            caller.call(&mut cx);
        }
    }

    /// Makes `count` Calls, at most `depth` of them in flight: each one answered is followed by the next. Turns both
    /// cores until all are answered.
    pub fn batch(&mut self, kind: Kind, depth: u64, count: u64) {
        let mut now = clock::now();
        self.call(now, kind, depth, count);
        let mut turns = 0_u32;
        while !self.is_done() {
            self.turn(now);
            turns += 1;
            // A busy core reads the clock only once in several turns.
            if turns.is_multiple_of(8) {
                now = clock::now();
            }
        }
    }

    /// Turns both cores. Returns whether either did anything.
    pub fn turn(&mut self, now: Instant) -> bool {
        let client = self.client.turn(now);
        self.serve(now) | client
    }

    /// Turns the server. It is a function of its own, so that `benches/counts` can count its instructions.
    #[inline(never)]
    fn serve(&mut self, now: Instant) -> bool {
        self.server.turn(now)
    }

    /// Returns whether all Calls have been answered.
    pub fn is_done(&self) -> bool {
        let Caller { left, in_flight, .. } = self.client.service();
        *left == 0 && *in_flight == 0
    }
}

/// Returns an address of this machine with a port that the system chooses.
pub fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Builds the parts of one end over shared memory.
///
/// # Panics
///
/// If there is too little memory.
pub fn shm_part() -> Part<Shm> {
    let pool = memory(PagePreference::Shared);
    let provider = Shm::new(&shm::Config::default(), &pool).expect("the shm provider works");
    Part { provider, pool }
}

/// Maps the memory of one end.
///
/// # Panics
///
/// If there is too little memory.
pub fn memory(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: MEMORY, pages, node: None }).expect("enough memory")
}

/// A service that keeps one item.
#[derive(Debug)]
pub struct Keeper {
    item: Option<Shared>,
}

impl Service for Keeper {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == READ {
            let item = self
                .item
                .get_or_insert_with(|| cx.pool().lease(ITEM).expect("room for an item").share());
            reply.item(Data::Shared(item.clone()));
        } else if call.procedure == WRITE {
            let (_, Ok(Items::One(_lease))) = call.arguments.into_parts() else {
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

/// A service that makes Calls, and another for each one answered, with the same leases.
#[derive(Debug, Default)]
struct Caller {
    /// The connection and the kind of the Calls.
    calls: Option<(ConnectionId, Kind)>,
    /// Number of Calls still to be made.
    left: u64,
    in_flight: u64,
    leases: Vec<Local>,
    /// The Call of [`Kind::Asked`].
    asked: Asked,
}

impl Caller {
    fn call(&mut self, cx: &mut Cx<'_>) {
        let (Some((connection, kind)), Some(left)) = (self.calls, self.left.checked_sub(1)) else {
            return;
        };
        let mut lease = || self.leases.pop().or_else(|| cx.pool().lease(ITEM));
        let request = match kind {
            Kind::Null => Request::new(NULL),
            Kind::Read => Request::new(READ).room(lease()),
            Kind::Write => Request::new(WRITE).argument(lease()),
            Kind::Asked => return self.ask(cx, connection, left),
        };
        let made = cx.call(connection, request, left, |_| Ok(()));
        assert!(made.is_ok(), "{:?}", made.map_err(|(why, _)| why));
        (self.left, self.in_flight) = (left, self.in_flight + 1);
    }

    /// Makes a Call of [`Kind::Asked`]. It is apart, so that the others count no instruction because of it.
    #[inline(never)]
    fn ask(&mut self, cx: &mut Cx<'_>, connection: ConnectionId, left: u64) {
        let Asked { procedure, argument, room, .. } = self.asked;
        let mut lease = |length| self.leases.pop().or_else(|| cx.pool().lease(length));
        let request = match (argument, room) {
            (0, 0) => Request::new(procedure),
            (0, room) => Request::new(procedure).room(lease(room)),
            (argument, _) => Request::new(procedure).argument(lease(argument)),
        };
        let made = cx.call(connection, request, left, |w| w.put(self.asked.arguments_of(left)));
        assert!(made.is_ok(), "{:?}", made.map_err(|(why, _)| why));
        (self.left, self.in_flight) = (left, self.in_flight + 1);
    }
}

impl Service for Caller {
    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok(), "{:?}", finished.results.map(drop));
        if let Some(lease) = finished.arguments.into_first().or(finished.rooms.into_first()) {
            self.leases.push(lease);
        }
        self.in_flight -= 1;
        Self::call(self, cx);
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Later
    }
}

/// Procedures of [`Keeper`].
const NULL: u32 = 0;
const READ: u32 = 1;
const WRITE: u32 = 2;

/// Returns the user that a Linux client names.
pub(crate) fn user() -> Identity {
    Identity::User(User::new("bench", 1000, 1000, &[10, 27]))
}

pub(crate) const LIMITS: Limits =
    Limits { connections_max: 128, send_buffers_max: 256, ..LIMITS_DEFAULT };

/// Memory of one end, in octets.
const MEMORY: usize = 32 << 20;

/// Length of an item, in octets.
const ITEM: usize = 4096;
