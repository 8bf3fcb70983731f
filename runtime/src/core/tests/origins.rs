//! Peers of several origins, more of them than a core can serve at once.

use super::*;
use crate::provider::iwarp::{self, Iwarp};
use crate::sys::clock;

/// A service that calls again whenever it is answered, as often at a time as it was begun.
#[derive(Debug, Default)]
struct Busy {
    connections: Vec<ConnectionId>,
    answered: u32,
}

impl Service for Busy {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok(), "a Call fails");
        self.answered += 1;
        let connection = self.connections[usize::try_from(token).unwrap()];
        let called = cx.call(connection, request(TELL), token, |w| w.opaque(&[1; 32]));
        assert!(called.is_ok(), "there is room for the next Call");
    }
}

/// What a core takes for a turn, in which it serves some Calls: far longer than the fabric takes.
const TURN: Duration = Duration::from_micros(100);

/// Returns how many Calls of a client with 32 under way are answered in some turns of the server, beside a client of another
/// address with this many connections, on which as many are under way as its credits allow.
fn answered_beside(connections: u64) -> u32 {
    let (queue_pairs_max, receive_queue_max, registrations_max) = (256, 8192, 1 << 14);
    let fabric = Fabric::new(FabricConfig {
        queue_pairs_max,
        receive_queue_max,
        registrations_max,
        ..FabricConfig::default()
    });
    let limits = Limits { receives_max: 8192, ..LIMITS_DEFAULT };
    let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
    let pool = || {
        let config = PoolConfig { bytes: 96 << 20, pages: PagePreference::Heap, node: None };
        Pool::new(&config).unwrap()
    };
    let provider = fabric.provider(node(1)).unwrap();
    let mut server = Core::new(provider, Keeper::default(), pool(), limits, 1).unwrap();
    let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
    let client = |n: u8, connections: u64, depth| {
        let limits = Limits { calls_out_max: 4096, send_buffers_max: 4096, ..limits };
        let provider = fabric.provider(node(n)).unwrap();
        let mut client =
            Core::new(provider, Busy::default(), pool(), limits, u64::from(n)).unwrap();
        for token in 0..connections {
            let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
            let (mut cx, service) = client.cx(Instant::ZERO);
            service.connections.push(connection);
            for _ in 0..depth {
                let asked = cx.call(connection, request(TELL), token, |w| w.opaque(&[1; 32]));
                assert!(asked.is_ok(), "there is room for Calls");
            }
        }
        client
    };
    let (mut honest, mut other) = (client(2, 1, 32), client(3, connections, 40));
    let mut now = Instant::ZERO;
    let mut turns = |count: u32, honest: &mut Core<Sim, Busy>| {
        for _ in 0..count {
            server.turn(now);
            for _ in 0..8 {
                honest.turn(now);
                other.turn(now);
            }
            now = now.saturating_add(TURN);
        }
    };
    turns(100, &mut honest);
    let before = honest.service().answered;
    turns(200, &mut honest);
    honest.service().answered - before
}

#[test]
fn a_client_beside_a_hundred_connections_of_another_origin_keeps_a_third_of_its_rate() {
    let (alone, beside) = (answered_beside(0), answered_beside(100));
    assert!(alone > 1000, "{alone} alone");
    assert!(3 * beside >= alone, "{beside} beside others, {alone} alone");
}

/// A service that counts the Calls.
#[derive(Debug, Default)]
struct Counting {
    served: usize,
}

impl Service for Counting {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, reply: &mut Reply) -> Outcome {
        self.served += 1;
        reply.results(|w| w.u32(0));
        Outcome::Done
    }
}

/// Returns the most Calls that a server over TCP sockets serves between two Calls of a client with one under way, beside
/// cores of another address that have this many connections each, with this many Calls under way on each.
fn served_between([cores, connections, depth]: [u64; 3]) -> usize {
    let pool = || {
        let config = PoolConfig { bytes: 32 << 20, pages: PagePreference::Heap, node: None };
        Pool::new(&config).unwrap()
    };
    let limits = Limits { call_timeout: Duration::from_secs(60), ..LIMITS_DEFAULT };
    let nic = || Iwarp::new(&iwarp::Config::default()).unwrap();
    let mut server = Core::new(nic(), Counting::default(), pool(), limits, 1).unwrap();
    let at = server.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let beside = server.listen((std::net::Ipv6Addr::LOCALHOST, 0).into()).unwrap();
    let client = |at, connections, depth| {
        let mut client = Core::new(nic(), Busy::default(), pool(), limits, 2).unwrap();
        for token in 0..connections {
            let connection = client.connect(clock::now(), at, binding()).unwrap();
            let (mut cx, service) = client.cx(clock::now());
            service.connections.push(connection);
            for _ in 0..depth {
                cx.call(connection, request(TELL), token, |w| w.opaque(&[1; 32])).unwrap();
            }
        }
        client
    };
    let mut many: Vec<_> = (0..cores).map(|_| client(at, connections, depth)).collect();
    let mut few = client(beside, 1, 1);
    let (mut before, mut most, mut answered) = (0, 0, 0);
    while answered < 200 {
        many.iter_mut().for_each(|client| _ = client.turn(clock::now()));
        few.turn(clock::now());
        server.turn(clock::now());
        if few.service().answered != answered {
            answered = few.service().answered;
            // Before, the connections get their credits.
            let between = if answered > 100 { server.service().served - before } else { 0 };
            (before, most) = (server.service().served, most.max(between));
        }
    }
    most
}

#[test]
fn a_call_does_not_wait_for_all_that_another_origin_has_sent() {
    for others in [[5, 12, 20], [2, 2, 120]] {
        let most = served_between(others);
        // What one turn of the core takes of messages is 64.
        assert!(most <= 2 * 64, "{most} Calls of others are served first: {others:?}");
    }
}
