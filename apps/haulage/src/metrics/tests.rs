//! Pages of two cores that call each other over the simulated fabric.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use haulage::core::{ConnectOptions, Core};
use haulage::limits::LIMITS_DEFAULT;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{Eligible, Procedure, Request};

use super::*;

/// A service whose Calls all succeed without results.
#[derive(Default)]
struct Friend {
    peers: Vec<ConnectionId>,
    ended: u32,
}

/// The binding of [`Friend`]; only clients believe that the argument is eligible.
fn binding(argument: Option<Eligible>) -> Binding {
    let mut procedure = Procedure::new("TAKE").idempotent();
    procedure.arguments.extend(argument);
    Binding { program: 0x2000_0001, version: 1, procedures: vec![procedure] }
}

impl Counted for Friend {
    fn metrics(&self, _: &Cx<'_>) -> Vec<Metric> {
        Vec::new()
    }
}

impl Service for Friend {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding(None))]
    }

    fn callbacks(&self) -> Option<Binding> {
        Some(binding(None))
    }

    fn opened(&mut self, _: &mut Cx<'_>, peer: &Peer) {
        self.peers.push(peer.connection);
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Done
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok());
        self.ended += 1;
    }
}

type End = Core<Sim, Metered<Friend>>;

fn end(fabric: &Fabric, address: IpAddr) -> End {
    let memory = PoolConfig { bytes: 32 << 20, pages: PagePreference::Heap, node: None };
    let (pool, provider) = (Pool::new(&memory).unwrap(), fabric.provider(address).unwrap());
    let service = Metered::new(Friend::default(), http::way().1);
    Core::new(provider, service, pool, LIMITS_DEFAULT, 1).unwrap()
}

/// Turns both cores, and has time pass, until `done`.
fn until(
    fabric: &Fabric,
    now: &mut Instant,
    ends: &mut [End; 2],
    done: impl Fn(&[End; 2]) -> bool,
) {
    while !done(ends) {
        if !ends.iter_mut().fold(false, |worked, end| end.turn(*now) | worked) {
            let due = ends.iter().filter_map(Core::poll_deadline).chain(fabric.next_event()).min();
            *now = due.unwrap().max(now.saturating_add(Duration::from_nanos(1)));
        }
    }
}

/// Makes a Call on a connection.
fn call(end: &mut End, now: Instant, connection: ConnectionId, request: Request) {
    end.cx(now).0.call(connection, request, 0, |_| Ok(())).unwrap();
}

/// Returns the value of a metric on the page of a core.
fn value(end: &mut End, now: Instant, metric: &str) -> u64 {
    let (cx, service) = end.cx(now);
    let page = service.page(&cx).to_string();
    let line = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{metric} is not in\n{page}")).parse().unwrap()
}

#[test]
fn calls_that_go_again_and_calls_in_reverse_direction_are_counted() {
    let fabric = Fabric::new(FabricConfig::default());
    let [here, there] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
    let (mut ends, mut now) = ([here, there].map(|address| end(&fabric, address)), Instant::ZERO);
    let at = ends[0].listen(SocketAddr::new(here, 20050)).unwrap();
    let options = ConnectOptions::new(binding(Some(Eligible::opaque(1 << 16))))
        .serving(vec![Program::new(binding(None))]);
    let connection = ends[1].connect(now, at, options).unwrap();
    for count in 1..=2 {
        // The server refuses the chunk, and the Call goes again without it.
        let argument = ends[1].cx(now).0.pool().lease(1000).unwrap();
        call(&mut ends[1], now, connection, Request::new(0).argument(argument));
        until(&fabric, &mut now, &mut ends, |ends| {
            ends[1].service().inner.ended == count && !ends[0].service().inner.peers.is_empty()
        });
        let client = ends[0].service().inner.peers[0];
        call(&mut ends[0], now, client, Request::new(0));
        until(&fabric, &mut now, &mut ends, |ends| ends[0].service().inner.ended == count);
        let counted = ends.each_mut().map(|end| {
            let metrics = [
                "haulage_calls_repeated_total",
                "haulage_callbacks_total{by=\"us\"}",
                "haulage_callbacks_total{by=\"peer\"}",
            ];
            metrics.map(|metric| value(end, now, metric))
        });
        assert_eq!(counted, [[0, count.into(), 0], [count.into(), 0, count.into()]]);
    }
}
