//! Two cores on the simulated fabric, in virtual time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::Item;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;

use super::{Core, Cx};
use crate::limits::{LIMITS_DEFAULT, Limits};
use crate::provider::sim::{Fabric, FabricConfig, Sim};
use crate::service::{
    Argument, Binding, Call, CallError, ConnectionId, Data, Eligible, Finished, NoService, Outcome,
    Procedure, Refusal, Reply, Request, Service,
};

const LIMITS: Limits = Limits {
    connections_max: 8,
    receives_max: 64,
    calls_out_max: 32,
    send_buffers_max: 64,
    ..LIMITS_DEFAULT
};

/// Keeps the last item it was sent and returns it.
#[derive(Debug, Default)]
struct Keeper {
    item: Option<haulage_mr_pool::Shared>,
    refused: Option<(u64, Refusal)>,
}

const STORE: u32 = 1;
const FETCH: u32 = 2;
const ITEM_MAX: usize = 4 << 20;

fn binding() -> Binding {
    let eligible = Some(Eligible { length_max: ITEM_MAX });
    Binding {
        program: 0x2000_0001,
        version: 1,
        procedures: vec![
            Procedure { name: "NULL", argument: None, result: None },
            Procedure { name: "STORE", argument: eligible, result: None },
            Procedure { name: "FETCH", argument: None, result: eligible },
        ],
    }
}

impl Service for Keeper {
    fn binding(&self) -> Binding {
        binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            STORE => match call.arguments.item(0) {
                Ok(Argument::Placed(lease)) => self.item = Some(lease.share()),
                Ok(Argument::Refused { length, why }) => self.refused = Some((length, why)),
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            FETCH => reply.item(self.item.clone().map_or(Data::Empty, Data::Shared)),
            _ => {}
        }
        Outcome::Done
    }
}

/// Makes Calls it is told to and remembers how they ended.
#[derive(Debug, Default)]
struct Caller {
    ended: Vec<(u64, Result<u32, CallError>, Option<Local>)>,
}

impl Service for Caller {
    fn binding(&self) -> Binding {
        NoService.binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProcUnavail)
    }

    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let reduced = finished.results.map(|mut results| match results.eligible_opaque(0) {
            Ok(Item::Reduced { length }) => u32::try_from(length).unwrap(),
            _ => 0,
        });
        self.ended.push((token, reduced, finished.result));
    }
}

struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Keeper>,
    client: Core<Sim, Caller>,
    connection: ConnectionId,
}

impl World {
    fn new() -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let pool = || {
            Pool::new(&PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None })
                .unwrap()
        };
        let server = fabric.provider(node(1)).unwrap();
        let client = fabric.provider(node(2)).unwrap();
        let mut server = Core::new(server, Keeper::default(), pool(), LIMITS, 1).unwrap();
        let mut client = Core::new(client, Caller::default(), pool(), LIMITS, 2).unwrap();
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

    fn ended(&self) -> &[(u64, Result<u32, CallError>, Option<Local>)] {
        &self.client.service().ended
    }
}

fn request(procedure: u32) -> Request {
    Request { procedure, argument: None, result: None, timeout: None }
}

#[test]
fn an_item_goes_there_and_comes_back() {
    for length in [1, 3, 4095, 4096, 1 << 20, (4 << 20) - 1, 4 << 20] {
        let mut world = World::new();
        let argument = world.lease(length, 0x5a);
        world.call(1, Request { argument: Some(argument), ..request(STORE) });
        world.until(|w| w.ended().len() == 1);
        let result = world.lease(ITEM_MAX, 0);
        world.call(2, Request { result: Some(result), ..request(FETCH) });
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
        world.call(token, Request { argument: Some(argument), ..request(STORE) });
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
    world.fabric.black_hole(server, true);
    let argument = world.lease(100, 1);
    world.call(1, Request { argument: Some(argument), ..request(STORE) });
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended()[1].1, Err(CallError::TimedOut));
    assert_eq!(world.now.saturating_since(started), LIMITS.call_timeout);
    // Nobody invalidated the lease: it stays exposed until the grace deadline takes it back.
    assert_eq!(world.client.cx(world.now).0.gauges().exposed, 1);
    world.until(|w| w.client.state.pool.gauges().exposed == 0);
    assert!(world.now.saturating_since(started) >= LIMITS.call_timeout + LIMITS.grace_timeout);
}

#[test]
fn an_item_beyond_the_binding_is_not_fetched() {
    let mut world = World::new();
    world.client.state.binding = std::rc::Rc::new(binding());
    let argument = world.lease(ITEM_MAX + 1, 1);
    let mut wide = binding();
    wide.procedures[STORE as usize].argument = Some(Eligible { length_max: 2 * ITEM_MAX });
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    world.connection = world.client.connect(world.now, at, wide).unwrap();
    world.call(1, Request { argument: Some(argument), ..request(STORE) });
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.server.service().refused, Some((ITEM_MAX as u64 + 1, Refusal::TooLarge)));
}

/// Every lease is home: nothing is posted but the shared Receives, nothing exposed, nothing orphaned.
fn all_home<S: Service>(core: &mut Core<Sim, S>, now: Instant) {
    let (cx, _) = core.cx(now);
    let gauges = cx.gauges();
    assert_eq!(gauges.posted, cx.receives_posted() as u64);
    assert_eq!((gauges.exposed, gauges.orphans), (0, 0));
    assert_eq!(cx.receives_posted(), LIMITS.receives_max as usize);
    assert_eq!(core.state.buffers.len(), LIMITS.send_buffers_max as usize);
    assert_eq!((core.state.inbound.len(), core.state.work.len()), (0, 0));
}

#[test]
fn a_connection_lost_at_any_moment_leaves_every_lease_home_and_every_caller_told() {
    for moment in 0..160 {
        let mut world = World::new();
        for token in 0..6 {
            let (argument, result) = (world.lease(100_000, 1), world.lease(100_000, 2));
            world.call(token, Request { argument: Some(argument), ..request(STORE) });
            world.call(100 + token, Request { result: Some(result), ..request(FETCH) });
        }
        for _ in 0..moment {
            let worked = world.server.turn(world.now) | world.client.turn(world.now);
            if !worked {
                world.now = world.fabric.next_event().unwrap_or(world.now);
            }
        }
        let qp = world.client.state.connections.get(world.connection.0).map(|c| c.qp);
        if let Some(qp) = qp {
            world.fabric.sever(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), qp);
        }
        world.until(|w| {
            w.ended().len() == 12
                && w.server.state.connections.len() == 0
                && w.client.state.connections.len() == 0
        });
        world.server.service.item = None;
        let now = world.now;
        all_home(&mut world.server, now);
        all_home(&mut world.client, now);
    }
}

#[test]
fn a_shutdown_lets_what_is_in_flight_finish() {
    let mut world = World::new();
    for token in 0..6 {
        let argument = world.lease(100_000, 1);
        world.call(token, Request { argument: Some(argument), ..request(STORE) });
    }
    // The Calls have left; the server is asked to stop before it answered any.
    world.until(|w| w.server.state.inbound.len() == 6);
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
    let argument = world.lease(10, 1);
    let (mut cx, _) = world.client.cx(world.now);
    let asked = Request { argument: Some(argument), ..request(FETCH) };
    let refused = cx.call(world.connection, asked, 1, |_| Ok(()));
    assert!(matches!(refused, Err((CallError::NotEligible, Request { argument: Some(_), .. }))));
    // A client that believes otherwise is told by the server's transport.
    let mut other = binding();
    other.procedures[FETCH as usize].argument = Some(Eligible { length_max: ITEM_MAX });
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    world.connection = world.client.connect(world.now, at, other).unwrap();
    let argument = world.lease(10, 1);
    world.call(2, Request { argument: Some(argument), ..request(FETCH) });
    world.until(|w| w.ended().len() == 1);
    let none = ErrorBody::ReadChunks { max: 0 };
    assert_eq!(world.ended()[0].1, Err(CallError::Refused(none)));
}

#[test]
fn a_result_that_does_not_fit_says_how_much_room_it_needs() {
    let mut world = World::new();
    let argument = world.lease(9000, 3);
    world.call(1, Request { argument: Some(argument), ..request(STORE) });
    let result = world.lease(5000, 0);
    world.until(|w| w.ended().len() == 1);
    world.call(2, Request { result: Some(result), ..request(FETCH) });
    world.until(|w| w.ended().len() == 2);
    let needed = ErrorBody::WriteResource { chunk_index: 1, length_needed: 9000 };
    assert_eq!(world.ended()[1].1, Err(CallError::Refused(needed)));
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
