//! Two cores on the simulated fabric, in virtual time.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage_mr_pool::{Leases, Local, PagePreference, Piece, Pieces, Pool, PoolConfig};
use haulage_proto::chunk::Item;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;

use super::inner::Inner;
use super::responder::ServedCall;
use super::work::{Held, Work};
use super::{ConnectOptions, Core, Cx};
use crate::core::Service;
use crate::limits::{INLINE_SIZE, LIMITS_DEFAULT, Limits, RECEIVES_IDLE, SEGMENTS_MAX, Versions};
use crate::provider::sim::{Fabric, FabricConfig, Rng, Sim};
use crate::provider::{ConnectError, Promises, Provider};
use crate::service::{
    Argument, Binding, Call, CallError, CallToken, ConnectionId, Data, Eligible, Finished, Outcome,
    Procedure, Program, Refusal, Reply, Request, TransportError,
};

const LIMITS: Limits = Limits {
    connections_max: 8,
    receives_max: 64,
    calls_out_max: 32,
    send_buffers_max: 64,
    ..LIMITS_DEFAULT
};

/// Limits for a server and a client whose connection does not begin anew with version 1 when it is lost early.
const ONCE: [Limits; 2] = [LIMITS, Limits { versions: Versions::OnlyTwo, ..LIMITS }];

/// Limits for cores that live by the real clock, which goes on while the machine is busy with something else.
const PATIENT: Limits = Limits { call_timeout: Duration::from_secs(60), ..LIMITS };

/// A service that keeps the last item it was sent and returns it.
#[derive(Debug, Default)]
struct Keeper {
    item: Option<haulage_mr_pool::Shared>,
    refused: Option<(u64, Refusal)>,
}

const STORE: u32 = 1;
const FETCH: u32 = 2;
const LIST: u32 = 3;
const TELL: u32 = 4;
const GATHER: u32 = 5;
/// Takes an item, and may answer at such length that the Call offers a Reply chunk.
const EXCHANGE: u32 = 6;
const ITEM_MAX: usize = 4 << 20;
const LIST_MAX: u32 = 40_000;
/// Octets of the longest argument, as long as the longest message.
const TELL_MAX: usize = INLINE_SIZE;
/// Octets of the longest echo, with its length word.
const TOLD_MAX: u32 = 4 + 4096;

fn binding() -> Binding {
    let eligible = Eligible::opaque(ITEM_MAX);
    Binding {
        program: 0x2000_0001,
        version: 1,
        procedures: vec![
            Procedure::new("NULL").idempotent(),
            Procedure::new("STORE").argument(eligible).idempotent(),
            Procedure::new("FETCH").result(eligible).idempotent(),
            Procedure::new("LIST").results_max(4 + LIST_MAX).idempotent(),
            Procedure::new("TELL").results_max(TOLD_MAX).idempotent(),
            Procedure::new("GATHER").result(eligible).results_max(4).idempotent(),
            Procedure::new("EXCHANGE").argument(eligible).results_max(4 + LIST_MAX),
        ],
    }
}

impl Service for Keeper {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            // An item comes unreduced that is shorter than the chunk that would name it, or that may not have one.
            STORE => match call.arguments.item(ITEM_MAX) {
                Ok(Argument::Unreduced(bytes)) => {
                    let mut lease = cx.pool().lease(bytes.len()).unwrap();
                    lease.bytes_mut().copy_from_slice(bytes);
                    self.item = Some(lease.share());
                }
                Ok(Argument::Placed(leases)) => {
                    self.item = Some(leases.into_one().unwrap().share());
                }
                Ok(Argument::Refused { length, why }) => self.refused = Some((length, why)),
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            FETCH => reply.item(self.item.clone().map_or(Data::Empty, Data::Shared)),
            // Answers with as many octets as the Call asks for, none of them eligible for a chunk of their own.
            LIST => {
                let Ok(count) = call.arguments.u32() else {
                    return Outcome::Failed(AcceptStat::GarbageArgs);
                };
                reply.results(|w| w.opaque(&vec![0x11; count as usize]));
            }
            // Answers with the item without every third part of it.
            GATHER => {
                let whole = Piece::whole(self.item.clone().unwrap());
                let mut pieces = Pieces::default();
                for third in 0..whole.len() / 3000 {
                    pieces.push(whole.part(third * 3000, 2000)).unwrap();
                }
                reply.item(pieces.into());
            }
            TELL => {
                let Ok(told) = call.arguments.opaque(TELL_MAX) else {
                    return Outcome::Failed(AcceptStat::GarbageArgs);
                };
                let sum: u32 = told.iter().map(|octet| u32::from(*octet)).sum();
                reply.results(|w| w.u32(sum));
            }
            _ => {}
        }
        Outcome::Done
    }
}

/// A service that makes Calls when told to, and remembers how they ended.
#[derive(Debug, Default)]
struct Caller {
    ended: Vec<(u64, Result<u32, CallError>, Option<Local>)>,
    /// The inline part of each result.
    results: Vec<Vec<u8>>,
}

impl Service for Caller {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let rest = finished.results.as_ref().map(|results| results.rest().to_vec());
        self.results.push(rest.unwrap_or_default());
        let reduced = finished.results.map(|mut results| match results.eligible_opaque(0) {
            Ok(Item::Reduced { length }) => u32::try_from(length).unwrap(),
            _ => 0,
        });
        self.ended.push((token, reduced, finished.rooms.into_first()));
    }
}

struct World<S = Keeper> {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, S>,
    client: Core<Sim, Caller>,
    connection: ConnectionId,
}

impl World {
    fn new() -> Self {
        Self::with(Keeper::default(), [LIMITS; 2], FabricConfig::default())
    }
}

impl<S: Service> World<S> {
    /// Makes a core that serves and one that calls, with these limits.
    fn with(service: S, limits: [Limits; 2], fabric: FabricConfig) -> Self {
        Self::of(16 << 20, service, limits, fabric)
    }

    /// Like [`Self::with`], where each core has a pool of `bytes`.
    fn of(bytes: usize, service: S, limits: [Limits; 2], fabric: FabricConfig) -> Self {
        let fabric = Fabric::new(fabric);
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let pool =
            || Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap();
        let server = fabric.provider(node(1)).unwrap();
        let client = fabric.provider(node(2)).unwrap();
        let mut server = Core::new(server, service, pool(), limits[0], 1).unwrap();
        let mut client = Core::new(client, Caller::default(), pool(), limits[1], 2).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
        Self { fabric, now: Instant::ZERO, server, client, connection }
    }

    fn call(&mut self, token: u64, request: Request) {
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request, token, |_| Ok(())).unwrap();
    }

    fn lease(&mut self, length: usize, fill: u8) -> Local {
        let (cx, _) = self.client.cx(self.now);
        let mut lease = cx.pool().lease(length).unwrap();
        lease.bytes_mut().fill(fill);
        lease
    }

    /// Leases all memory that the client has left.
    fn lease_the_rest(&mut self) -> Vec<Local> {
        let (cx, _) = &self.client.cx(self.now);
        let all = |length| std::iter::from_fn(move || cx.pool().lease(length));
        all(1 << 20).chain(all(1 << 12)).collect()
    }

    /// Turns both cores until nothing moves, then on to the next event, until `done`.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            if !worked {
                let next = [
                    self.fabric.next_event(),
                    self.server.poll_deadline(),
                    self.client.poll_deadline(),
                ];
                let next = next.into_iter().flatten().min().expect("something is to happen");
                self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
            }
        }
        panic!("no progress");
    }

    /// Turns both cores `count` times. Time passes to the next event whenever neither has anything to do.
    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            if !worked {
                self.now = self.fabric.next_event().unwrap_or(self.now);
            }
        }
    }

    /// Turns both cores until nothing is on its way, so that only a deadline could change anything.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            if !worked {
                let Some(next) = self.fabric.next_event() else { return };
                self.now = next.max(self.now);
            }
        }
        panic!("it never settles");
    }

    fn lose_the_connection(&mut self) {
        if let Some(connection) = self.client.inner.common.connections.get(self.connection.0) {
            self.fabric.sever(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), connection.qp());
        }
    }

    fn is_disconnected(&self) -> bool {
        self.server.inner.common.connections.len() + self.client.inner.common.connections.len() == 0
    }

    fn all_home(&mut self) {
        all_home(&mut self.server, self.now);
        all_home(&mut self.client, self.now);
    }

    /// Returns how the Call of this token ended; others may have ended before it.
    fn ended_of(&self, token: u64) -> &(u64, Result<u32, CallError>, Option<Local>) {
        let mut of_it = self.ended().iter().filter(|(ended, ..)| *ended == token);
        let ended = of_it.next().expect("the Call has ended");
        assert!(of_it.next().is_none(), "a Call ends once");
        ended
    }

    fn ended(&self) -> &[(u64, Result<u32, CallError>, Option<Local>)] {
        &self.client.service().ended
    }
}

/// A service that stores at once, and answers everything else in a later turn, as far as it may.
#[derive(Debug, Default)]
struct Slow {
    keeper: Keeper,
    waiting: VecDeque<CallToken>,
    /// How many more Calls it may answer.
    answers: usize,
    resumed: usize,
    /// An address that it does not admit.
    shuns: Option<IpAddr>,
}

impl Service for Slow {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        Some(peer.ip()) != self.shuns
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == STORE {
            // A Call that is answered needs no resuming: nothing comes of it.
            cx.resume(call.token);
            return self.keeper.call(cx, call, reply);
        }
        self.waiting.push_back(call.token);
        Outcome::Later
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, reply: &mut Reply) -> Outcome {
        self.resumed += 1;
        if reply.offered.is_some() {
            reply.item(self.keeper.item.clone().map_or(Data::Empty, Data::Shared));
        }
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let count = self.answers.min(self.waiting.len());
        self.answers -= count;
        for token in self.waiting.drain(..count) {
            cx.resume(token);
            cx.resume(token);
        }
        count > 0
    }
}

fn request(procedure: u32) -> Request {
    Request::new(procedure)
}

#[test]
fn an_item_goes_there_and_comes_back() {
    for length in [1, 3, 4095, 4096, 1 << 20, (4 << 20) - 1, 4 << 20] {
        let mut world = World::new();
        let argument = world.lease(length, 0x5a);
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        let result = world.lease(ITEM_MAX, 0);
        world.call(2, request(FETCH).room(result));
        world.until(|w| w.ended().len() == 2);
        let (_, reduced, lease) = &world.ended()[1];
        assert_eq!(reduced, &Ok(u32::try_from(length).unwrap()));
        assert_eq!(lease.as_ref().unwrap().bytes(), vec![0x5a; length]);
    }
}

#[test]
fn many_calls_are_in_flight_and_all_end() {
    let mut world = World::new();
    for token in 0..24 {
        let argument = world.lease(5000, 7);
        world.call(token, request(STORE).argument(argument));
    }
    world.until(|w| w.ended().len() == 24);
    for (token, result, _) in world.ended() {
        assert!(result.is_ok(), "{token}: {result:?}");
    }
    let gauges = world.client.cx(world.now).0.gauges();
    assert_eq!((gauges.exposed, gauges.orphans), (0, 0));
}

#[test]
fn a_silent_server_is_an_error_at_the_deadline() {
    let mut world = World::new();
    world.call(0, request(0));
    world.until(|w| w.ended().len() == 1);
    let (started, server) = (world.now, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    world.fabric.black_hole(server);
    let argument = world.lease(100, 1);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended()[1].1, Err(CallError::TimedOut));
    assert_eq!(world.now.saturating_since(started), LIMITS.call_timeout);
    // Nobody invalidated the lease: it stays exposed while memory is plentiful.
    let later = world.now.saturating_add(10 * LIMITS.grace_timeout);
    world.until(|w| w.now >= later);
    assert_eq!(world.client.cx(world.now).0.gauges().exposed, 1);
    let _rest = world.lease_the_rest();
    let local = world.client.inner.common.pool.gauges().local;
    world.until(|w| w.client.inner.common.pool.gauges().exposed == 0);
    let gauges = world.client.inner.common.pool.gauges();
    assert_eq!(gauges.local, local, "the lease is home, and not kept for a Reply");
    assert!(world.now.saturating_since(started) >= LIMITS.call_timeout + LIMITS.grace_timeout);
}

/// Some providers have registrations that last as long as their connection.
#[test]
fn a_call_given_up_ends_its_connection_if_its_handle_stays_good() {
    for handles_end in [true, false] {
        let promises = Promises { handles_end, ..Promises::ALL };
        let fabric = FabricConfig { promises, ..FabricConfig::default() };
        // The server never answers.
        let mut world = World::with(Slow::default(), [LIMITS; 2], fabric);
        let given_up = LIMITS.call_timeout + LIMITS.grace_timeout;
        let started = world.now;
        world.call(1, request(0));
        world.until(|w| w.now.saturating_since(started) >= given_up);
        assert_eq!(world.client.inner.common.connections.len(), 1, "it opened nothing");
        let started = world.now;
        let result = world.lease(5000, 0);
        world.call(2, request(FETCH).room(result));
        world.until(|w| w.ended().len() == 2);
        assert_eq!(world.ended()[1].1, Err(CallError::TimedOut));
        assert_eq!(world.client.cx(world.now).0.gauges().exposed, 1);
        let _rest = world.lease_the_rest();
        world.until(|w| w.client.inner.common.pool.gauges().exposed == 0);
        assert!(world.now.saturating_since(started) >= given_up);
        assert_eq!(world.client.inner.common.connections.len(), u32::from(handles_end));
    }
}

#[test]
fn an_item_beyond_the_binding_is_not_fetched() {
    let mut world = World::new();
    let argument = world.lease(ITEM_MAX + 1, 1);
    let mut wide = binding();
    wide.procedures[STORE as usize].arguments = vec![Eligible::opaque(2 * ITEM_MAX)];
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    world.connection = world.client.connect(world.now, at, wide).unwrap();
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.server.service().refused, Some((ITEM_MAX as u64 + 1, Refusal::TooLarge)));
}

/// Checks that every lease is home: nothing is posted but the shared Receives, nothing exposed, nothing orphaned.
fn all_home<P: Provider, S: Service>(core: &mut Core<P, S>, now: Instant) {
    let (cx, _) = core.cx(now);
    let gauges = cx.gauges();
    assert_eq!(gauges.posted, cx.receives_posted() as u64);
    assert_eq!((gauges.exposed, gauges.orphans), (0, 0));
    let limits = core.inner.common.limits;
    assert_eq!(core.inner.common.receives.held(), 0);
    let (free, reply) = (core.inner.common.buffers.len(), core.reply.as_ref());
    let making = usize::from(reply.is_some_and(|reply| reply.message.owns_buffer()));
    let calling = usize::from(core.inner.requester.has_made_room());
    assert_eq!(free + making + calling, limits.send_buffers_max as usize + 1);
    assert_eq!((core.inner.responder.calls.len(), core.inner.common.posted.len()), (0, 0));
    assert_eq!(core.inner.common.memory.held(), 0);
}

#[test]
fn a_connection_lost_at_any_moment_leaves_every_lease_home_and_every_caller_told() {
    for moment in 0..160 {
        let mut world = World::with(Keeper::default(), ONCE, FabricConfig::default());
        for token in 0..6 {
            let (argument, result) = (world.lease(100_000, 1), world.lease(100_000, 2));
            world.call(token, request(STORE).argument(argument));
            world.call(100 + token, request(FETCH).room(result));
        }
        world.turns(moment);
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 12 && w.is_disconnected());
        world.server.service.item = None;
        world.all_home();
    }
}

#[test]
fn a_reply_may_come_in_a_later_turn() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let (argument, result) = (world.lease(9000, 0x5a), world.lease(9000, 0));
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    world.call(2, request(FETCH).room(result));
    world.call(3, request(0));
    world.settle();
    // Each Call keeps the Receive that it came in.
    assert_eq!((world.ended().len(), world.server.inner.responder.calls.len()), (1, 2));
    assert_eq!(world.server.inner.common.receives.held(), 2);
    world.server.service.answers = 2;
    world.until(|w| w.ended().len() == 3);
    assert_eq!(world.ended_of(2).1, Ok(9000));
    assert_eq!(world.ended_of(2).2.as_ref().unwrap().bytes(), [0x5a; 9000]);
    assert_eq!(world.ended_of(3).1, Ok(0));
    assert_eq!(world.server.service.resumed, 2);
    world.settle();
    world.server.service.keeper.item = None;
    world.all_home();
}

#[test]
fn a_call_whose_connection_is_lost_is_resumed_in_vain() {
    for moment in 0..120 {
        let mut world = World::with(Slow::default(), ONCE, FabricConfig::default());
        for token in 0..6 {
            let result = world.lease(100_000, 2);
            world.call(token, request(FETCH).room(result));
        }
        // Half of the Calls may be under way when the connection is lost.
        world.server.service.answers = 3;
        world.turns(moment);
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 6 && w.is_disconnected());
        let (resumed, waiting) = {
            let service = &mut world.server.service;
            service.answers = service.waiting.len();
            (service.resumed, service.answers)
        };
        assert!(moment < 110 || waiting == 3, "{waiting} wait");
        world.settle();
        assert_eq!(world.server.service.resumed, resumed);
        world.all_home();
    }
}

#[test]
fn a_service_that_does_not_answer_stops_the_credits_of_its_callers() {
    let few = Limits { credits_max: 8, ..LIMITS };
    let mut world = World::with(Slow::default(), [few, LIMITS], FabricConfig::default());
    for token in 0..30 {
        world.call(token, request(0));
    }
    world.settle();
    let queued = |w: &World<Slow>| {
        w.client.inner.common.connections.get(w.connection.0).map_or(0, |c| c.outbox.calls())
    };
    // The minimum of a connection comes on top of its credits, and so do Calls of one run: most services answer them at
    // once, and credits are given as if this one did.
    let bounds = 8..=8 + 2 * RECEIVES_IDLE as usize;
    let waiting = world.server.service.waiting.len();
    assert!(bounds.contains(&waiting), "{waiting} wait");
    assert_eq!(waiting + queued(&world), 30);
    // An answered Call lets others through.
    world.server.service.answers = waiting;
    world.settle();
    assert_eq!(world.ended().len(), waiting);
    let next = world.server.service.waiting.len();
    assert!(bounds.contains(&next), "{next} wait");
    assert_eq!(waiting + next + queued(&world), 30);
    world.server.service.answers = 30 - waiting;
    world.until(|w| w.ended().len() == 30);
    assert!(world.ended().iter().all(|(_, result, _)| result == &Ok(0)));
    world.settle();
    world.all_home();
}

#[test]
fn a_thousand_calls_in_any_order_leave_every_lease_home() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let fabric = FabricConfig {
            seed,
            latency_max_ns: rng.below(1_001..50_000),
            eager_percent: u8::try_from(rng.below(0..101)).unwrap(),
            ..FabricConfig::default()
        };
        let slow = Slow { answers: usize::MAX, ..Slow::default() };
        let mut world = World::with(slow, [LIMITS; 2], fabric);
        let mut made = 0;
        while made < 1000 {
            // One Call after the other for a while, then many at once.
            for _ in 0..if rng.below(0..2) == 0 { 1 } else { rng.below(2..25) } {
                let length = usize::try_from(rng.below(1..20_000)).unwrap();
                let procedure = u32::try_from(rng.below(0..3)).unwrap();
                let argument = (procedure == STORE).then(|| world.lease(length, 0x5a));
                let result = (procedure == FETCH).then(|| world.lease(20_000, 0));
                world.call(made, request(procedure).argument(argument).room(result));
                made += 1;
            }
            let expected = usize::try_from(made).unwrap();
            world.until(|w| w.ended().len() == expected);
        }
        let mut tokens: Vec<u64> = world.ended().iter().map(|(token, ..)| *token).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..made), "seed {seed}: a call ended twice, or never");
        for (token, result, lease) in &world.client.service.ended {
            let length = *result.as_ref().unwrap_or_else(|e| panic!("seed {seed}: {token}: {e}"));
            let octets = lease.as_ref().map_or(&[][..], Local::bytes);
            assert_eq!(octets.len(), length as usize, "seed {seed}: {token}");
            assert!(octets.iter().all(|&octet| octet == 0x5a), "seed {seed}: {token}");
        }
        world.settle();
        world.server.service.keeper.item = None;
        world.all_home();
    }
}

#[test]
fn a_shutdown_lets_what_is_in_flight_finish() {
    // With few connections, six Calls may be in flight from the first.
    let wide = Limits { connections_max: 2, ..LIMITS };
    let mut world = World::with(Keeper::default(), [wide; 2], FabricConfig::default());
    for token in 0..6 {
        let argument = world.lease(100_000, 1);
        world.call(token, request(STORE).argument(argument));
    }
    // The Calls have left; the server is asked to stop before it answered any.
    world.until(|w| w.server.inner.responder.calls.len() == 6);
    world.server.begin_shutdown(world.now);
    world.until(|w| w.server.is_drained() && w.ended().len() == 6);
    assert!(world.ended().iter().all(|(_, result, _)| result.is_ok()));
}

#[test]
fn an_unknown_procedure_a_wrong_program_and_another_version_are_told_apart() {
    for (program, version, procedure, expected) in [
        (0x2000_0001, 1, 9, AcceptStat::ProcUnavail),
        (0x2000_0001, 3, 0, AcceptStat::ProgMismatch { low: 1, high: 1 }),
        (0x2000_0002, 1, 0, AcceptStat::ProgUnavail),
    ] {
        let mut world = World::new();
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
        let other = Binding { program, version, ..binding() };
        world.connection = world.client.connect(world.now, at, other).unwrap();
        world.call(1, request(procedure));
        world.until(|w| w.ended().len() == 1);
        assert_eq!(world.ended()[0].1, Err(CallError::Rejected(expected)));
    }
}

#[test]
fn nothing_is_reduced_that_the_binding_does_not_allow() {
    let mut world = World::new();
    let argument = world.lease(100, 1);
    let (mut cx, _) = world.client.cx(world.now);
    let asked = request(FETCH).argument(argument);
    let refused = cx.call(world.connection, asked, 1, |_| Ok(()));
    assert!(matches!(
        refused,
        Err((CallError::NotEligible, Request { arguments: crate::service::Items::One(_), .. }))
    ));
    // The transport of the server refuses a client whose binding allows more.
    let mut other = binding();
    other.procedures[FETCH as usize].arguments = vec![Eligible::opaque(ITEM_MAX)];
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    world.connection = world.client.connect(world.now, at, other).unwrap();
    let argument = world.lease(100, 1);
    world.call(2, request(FETCH).argument(argument));
    world.until(|w| w.ended().len() == 1);
    // [V2-7.3.1-4] The Call goes again without the chunk.
    assert!(world.ended()[0].1.is_ok());
    assert_eq!(world.server.inner.common.counters.calls_refused, 1);
    assert_eq!(world.client.inner.common.counters.calls_repeated, 1);
}

/// Makes a Call whose result fits neither the lease for it nor the credits of the client. It is refused, so that the client has to invalidate the lease
/// itself.
fn about_to_be_refused() -> World<Keeper> {
    let mut world = World::new();
    let argument = world.lease(60_000, 3);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    let result = world.lease(5000, 0);
    world.call(2, request(FETCH).room(result));
    world
}

#[test]
fn a_result_that_does_not_fit_comes_into_a_longer_lease() {
    let mut world = about_to_be_refused();
    world.until(|w| w.ended().len() == 2);
    let (_, ended, lease) = &world.ended()[1];
    assert_eq!(
        (ended, lease.as_ref().map(|lease| lease.bytes())),
        (&Ok(60_000), Some(&[3; 60_000][..]))
    );
    assert_eq!(world.client.inner.common.counters.calls_repeated, 1);
    // Each of both leases was invalidated.
    assert_eq!(world.client.provider_counters().invalidated_local, 1);
    world.settle();
    world.client.service.ended.clear();
    world.all_home();
}

#[test]
fn a_result_for_which_there_is_no_memory_says_how_much_room_it_needs() {
    let mut world = about_to_be_refused();
    let rest = world.lease_the_rest();
    world.until(|w| w.ended().len() == 2);
    let needed = ErrorBody::WriteResource { chunk_index: 1, length_needed: 60_000 };
    assert_eq!(world.ended()[1].1, Err(CallError::Refused(TransportError::Two(needed))));
    drop(rest);
}

#[test]
fn memory_that_cannot_be_invalidated_is_protected_by_closing() {
    let mut world = about_to_be_refused();
    let is_invalidating = |work: &Work| matches!(work.held, Held::LocalInv { .. });
    world.until(|w| w.client.inner.common.posted.iter().any(is_invalidating));
    let rest = world.lease_the_rest();
    let given_up = world.now.saturating_add(LIMITS.call_timeout + LIMITS.grace_timeout);
    let late = given_up.saturating_add(LIMITS.grace_timeout);
    let Inner { requester, common, .. } = &mut world.client.inner;
    requester.calls.expire_calls(common, given_up);
    requester.calls.expire_calls(common, late);
    assert_eq!(world.ended().len(), 1, "nobody gets memory that the server may still write");
    drop(rest);
    world.until(World::is_disconnected);
    world.until(|w| w.ended().len() == 2);
    world.all_home();
}

#[test]
fn a_reply_that_waits_while_its_deadline_passes_leaves_time_to_invalidate() {
    let mut world = about_to_be_refused();
    world.client.turn(world.now);
    // The client sleeps from its Call until long after the Reply has come.
    loop {
        while world.server.turn(world.now) {}
        let Some(next) = world.fabric.next_event() else { break };
        world.now = next.max(world.now);
    }
    world.now = world.now.saturating_add(LIMITS.call_timeout + LIMITS.grace_timeout);
    world.until(|w| w.ended().len() == 2);
    assert!(matches!(world.ended()[1].1, Err(CallError::Refused(_))), "{:?}", world.ended()[1].1);
    world.settle();
    assert_eq!(world.client.inner.common.connections.len(), 1);
}

#[test]
fn a_full_core_turns_connections_away_and_serves_the_others() {
    let mut world = World::new();
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    let first = world.connection;
    let second = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    let pool = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    let mut crowd = Core::new(
        world.fabric.provider(second).unwrap(),
        Caller::default(),
        Pool::new(&pool).unwrap(),
        Limits { connections_max: 16, receives_max: 128, ..LIMITS },
        3,
    )
    .unwrap();
    let connections: Vec<_> =
        (0..9).map(|_| crowd.connect(world.now, at, binding()).unwrap()).collect();
    for (token, connection) in (0..).zip(connections) {
        crowd.cx(world.now).0.call(connection, request(0), token, |_| Ok(())).unwrap();
    }
    for _ in 0..10_000 {
        let worked =
            world.server.turn(world.now) | world.client.turn(world.now) | crowd.turn(world.now);
        if !worked {
            let Some(next) = world.fabric.next_event() else { break };
            world.now = next;
        }
    }
    let turned_away = crowd.service().ended.iter().filter(|(_, result, _)| result.is_err()).count();
    // Eight connections, one of them the first client's.
    assert_eq!((crowd.service().ended.len(), turned_away), (9, 2));
    world.connection = first;
    world.call(1, request(0));
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.ended()[0].1, Ok(0));
}

/// Connections come and go, each with its own receive queue, where a Send that finds no Receive ends its connection.
#[test]
fn whoever_has_credit_finds_a_receive_in_the_queue_of_its_connection() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let fabric = FabricConfig {
            seed,
            latency_max_ns: rng.below(1_001..50_000),
            receives_each: Some(usize::try_from(rng.below(4..70)).unwrap()),
            promises: Promises { sends_wait: false, ..Promises::ALL },
            ..FabricConfig::default()
        };
        let slow = Slow { answers: usize::MAX, ..Slow::default() };
        let versions = if seed % 2 == 0 { Versions::Both } else { Versions::OnlyOne };
        let mut world = World::with(slow, [Limits { versions, ..LIMITS }; 2], fabric);
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
        let mut connections = vec![world.connection];
        let mut made = 0;
        while made < 1500 {
            if rng.below(0..8) == 0 && connections.len() > 1 {
                let gone = connections.swap_remove(usize::try_from(rng.below(0..2)).unwrap());
                world.client.close(gone);
                world.settle();
            }
            while connections.len() < 6 && rng.below(0..3) == 0 {
                connections.push(world.client.connect(world.now, at, binding()).unwrap());
            }
            for _ in 0..rng.below(1..25) {
                let among = 0..u64::try_from(connections.len()).unwrap();
                world.connection = connections[usize::try_from(rng.below(among)).unwrap()];
                let length = usize::try_from(rng.below(1..6_000)).unwrap();
                let argument = (rng.below(0..4) == 0).then(|| world.lease(length, 0x5a));
                let procedure = if argument.is_some() { STORE } else { 0 };
                world.call(made, request(procedure).argument(argument));
                made += 1;
            }
            let expected = usize::try_from(made).unwrap();
            world.until(|w| w.ended().len() == expected);
        }
        for (token, result, _) in world.ended() {
            assert!(result.is_ok(), "seed {seed}: {token}: {result:?}");
        }
        world.settle();
        world.server.service.keeper.item = None;
        world.all_home();
    }
}

#[test]
fn a_peer_that_the_service_does_not_admit_is_rejected() {
    let shuns = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
    let service = Slow { shuns, ..Slow::default() };
    let mut world = World::with(service, [LIMITS; 2], FabricConfig::default());
    world.call(1, request(0));
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.ended()[0].1, Err(CallError::Connect(ConnectError::Rejected)));
}

#[test]
fn nothing_is_read_from_a_peer_that_serves_no_reads() {
    let fabric = FabricConfig { ord_max: 0, ird_max: 0, ..FabricConfig::default() };
    let mut world = World::with(Keeper::default(), [LIMITS; 2], fabric);
    let argument = world.lease(100, 1);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.ended()[0].1, Ok(0), "it goes again, and the argument comes in the message");
    assert_eq!(world.server.inner.common.counters.read_chunks, 1);
    assert_eq!(world.server.provider_counters().tagged_received, 0);
}

#[test]
fn a_full_send_queue_goes_on_with_its_completions_alone() {
    let fabric = FabricConfig { send_queue_max: 1, ..FabricConfig::default() };
    let mut world = World::with(Slow::default(), [LIMITS; 2], fabric);
    for token in 0..6 {
        world.call(token, request(0));
    }
    // The server does not answer, and too few Calls have arrived for a grant: only the Sends complete.
    world.settle();
    assert_eq!(world.server.inner.responder.calls.len(), 6);
}

#[test]
fn a_send_queue_that_stays_full_keeps_nobody_busy() {
    let fabric = FabricConfig { send_queue_max: 3, ..FabricConfig::default() };
    let mut world = World::with(Keeper::default(), [LIMITS; 2], fabric);
    for token in 0..24 {
        let argument = world.lease(5000, 7);
        world.call(token, request(STORE).argument(argument));
    }
    world.until(|w| w.ended().len() == 24);
    assert!(world.ended().iter().all(|(_, result, _)| result.is_ok()));
    // A peer that takes nothing any more leaves the queue full: the client can only wait.
    world.fabric.black_hole(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    for token in 24..40 {
        world.call(token, request(0));
    }
    world.settle();
    assert!(!world.client.turn(world.now));
}

mod along;
mod anew;
mod call_only;
mod directed;
mod endings;
mod hosts;
mod in_place;
mod leased;
mod memory;
mod numbers;
mod origins;
mod peers;
mod pieces;
mod placed;
mod programs;
mod promises;
mod reading;
mod remote;
mod replies;
mod reverse;
mod room;
mod segments;
mod servers;
mod several;
mod stood_still;
mod stopped;
mod tcp;
mod versions;
