//! A service may declare or ask for anything: the core refuses it at the start, or answers it, and never stops.

use super::*;
use crate::core::StartError;
use crate::service::{Declared, Program, Unsupported};

/// A service that answers as it is told to, and calls back on the connection of a Call if it is told to.
#[derive(Debug, Default)]
struct Careless {
    procedures: Vec<Procedure>,
    /// The outcomes of calling back.
    called_back: Vec<Result<(), CallError>>,
    /// Calls that are answered when they are resumed.
    later: Vec<CallToken>,
}

/// Calls back.
const CALL_BACK: u32 = 1;
/// Answers with as many octets as the Call says, at once.
const TALK: u32 = 2;
/// Answers with eight octets in a later turn.
const TALK_LATER: u32 = 3;
/// Answers with two items; of the procedures in the client's binding, it is the one with an eligible result.
const TWICE: u32 = GATHER;
/// Octets that results may have, beside items.
const DECLARED: u32 = 4;

fn careless() -> Vec<Procedure> {
    let item = Eligible::opaque(ITEM_MAX);
    vec![
        Procedure::new("NULL"),
        Procedure::new("CALL_BACK"),
        Procedure::new("TALK").results_max(DECLARED),
        Procedure::new("TALK_LATER").results_max(DECLARED),
        Procedure::new("NOTHING"),
        Procedure::new("TWICE").result(item),
    ]
}

impl Service for Careless {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(Binding { procedures: self.procedures.clone(), ..binding() })]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            CALL_BACK => {
                let called = cx.call(call.connection, request(0), 1, |_| Ok(()));
                self.called_back.push(called.map_err(|(error, _)| error));
            }
            TALK => {
                for _ in 0..call.arguments.u32().unwrap() / 4 {
                    reply.results(|w| w.u32(0x7777_7777));
                }
            }
            TALK_LATER => {
                self.later.push(call.token);
                return Outcome::Later;
            }
            TWICE => {
                for fill in [1, 2] {
                    let mut lease = cx.pool().lease(8192).unwrap();
                    lease.bytes_mut().fill(fill);
                    reply.item(Data::Local(lease));
                }
            }
            _ => {}
        }
        Outcome::Done
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, reply: &mut Reply) -> Outcome {
        reply.results(|w| w.u32(1).and_then(|()| w.u32(2)));
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.later.drain(..).map(|token| cx.resume(token)).count() > 0
    }
}

fn world() -> World<Careless> {
    let service = Careless { procedures: careless(), ..Careless::default() };
    World::with(service, [LIMITS; 2], FabricConfig::default())
}

impl World<Careless> {
    /// Makes a Call with one argument, and returns how it ended.
    fn ask(&mut self, request: Request, argument: u32) -> Result<u32, CallError> {
        let before = self.ended().len();
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request, 0, |w| w.u32(argument)).unwrap();
        self.until(|w| w.ended().len() > before);
        self.ended()[before].1.clone()
    }

    fn misdeclared(&mut self) -> u64 {
        self.server.cx(self.now).0.counters().results_misdeclared
    }
}

#[test]
fn a_service_that_calls_back_on_an_accepted_connection_is_refused_and_the_core_goes_on() {
    let mut world = world();
    assert_eq!(world.ask(request(CALL_BACK), 0), Ok(0));
    assert_eq!(world.server.service().called_back, [Err(CallError::NoReverse)]);
    // The connection is as good as before, and so are other connections.
    assert_eq!(world.ask(request(0), 0), Ok(0));
    let at = world.server.listen(SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 7)).unwrap();
    world.connection = world.client.connect(world.now, at, binding()).unwrap();
    assert_eq!(world.ask(request(0), 0), Ok(0));
    world.settle();
    world.all_home();
}

#[test]
fn a_turn_ends_though_a_call_that_is_queued_cannot_be_sent() {
    let mut world = world();
    assert_eq!(world.ask(request(0), 0), Ok(0));
    // The engine of the connection that the server accepted sends no Calls, so the server's Call stays queued.
    let (_, server) = (world.client.turn(world.now), &mut world.server);
    let key = server.inner.common.connections.from(0).unwrap();
    let bound = server.inner.common.connections.bind(binding());
    server.inner.common.connections.get_mut(key).unwrap().session.bind(bound);
    let (mut cx, _) = server.cx(world.now);
    cx.call(ConnectionId(key), request(0), 9, |_| Ok(())).unwrap();
    server.turn(world.now);
    server.turn(world.now);
    let connection = server.inner.common.connections.get(key).unwrap();
    assert_eq!(connection.outbox.calls(), 0, "the turns ended, and so has the Call");
    assert_eq!(server.inner.requester.calls.each().count(), 0);
}

#[test]
fn results_longer_than_declared_are_a_system_error() {
    let mut world = world();
    let failed = Err(CallError::Rejected(AcceptStat::SystemErr));
    assert_eq!(world.ask(request(TALK), DECLARED), Ok(0));
    assert_eq!((world.ask(request(TALK), 2 * DECLARED), world.misdeclared()), (failed.clone(), 1));
    assert_eq!((world.ask(request(TALK_LATER), 0), world.misdeclared()), (failed, 2));
    assert_eq!(world.ask(request(TALK), DECLARED), Ok(0));
}

#[test]
fn more_items_than_declared_are_a_system_error() {
    let mut world = world();
    let result = world.lease(3 * 8192, 0);
    let outcome = world.ask(request(TWICE).room(result), 0);
    assert_eq!(outcome, Err(CallError::Rejected(AcceptStat::SystemErr)));
    assert_eq!(world.misdeclared(), 1);
    world.settle();
    world.all_home();
}

#[test]
fn an_unreduced_item_does_not_count_as_longer_results() {
    let mut world = World::new();
    let argument = world.lease(3000, 7);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    // Without room for the result, the result comes in the message.
    world.call(2, request(FETCH));
    world.until(|w| w.ended().len() == 2);
    assert!(world.ended()[1].1.is_ok(), "{:?}", world.ended()[1].1);
    assert_eq!(world.client.service().results[1].len(), 4 + 3000);
}

#[test]
fn a_binding_that_declares_what_is_not_built_is_refused_at_the_start() {
    let item = Eligible::opaque(100);
    let row = Eligible { count_max: 5, ..item };
    let four = Eligible { count_max: 4, ..item };
    for (procedure, declared) in [
        (Procedure::new("P").argument(four).argument(item), Declared::Arguments),
        (Procedure::new("P").result(item).result(four), Declared::Results),
        (Procedure::new("P").result(row), Declared::Results),
    ] {
        let unsupported = Unsupported { procedure: "P", declared };
        let fabric = Fabric::new(FabricConfig::default());
        let memory = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
        let start = |service| {
            let provider = fabric.provider(Ipv4Addr::new(10, 0, 0, 9).into()).unwrap();
            Core::new(provider, service, Pool::new(&memory).unwrap(), LIMITS, 1)
        };
        let procedures = vec![Procedure::new("NULL"), procedure];
        let service = Careless { procedures: procedures.clone(), ..Careless::default() };
        assert_eq!(start(service).err(), Some(StartError::Unsupported(unsupported)));
        let mut core = start(Careless::default()).unwrap();
        let at = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 1);
        let binding = Binding { procedures, ..binding() };
        let refused = core.connect(Instant::ZERO, at, binding).unwrap_err();
        assert_eq!(refused, CallError::Unsupported(unsupported));
        assert!(refused.to_string().contains("procedure P declares"), "{refused}");
    }
}
