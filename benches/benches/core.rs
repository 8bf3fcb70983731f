//! What a Call costs in `haulage`: one NULL Call from `Cx::call` to `Service::replied` through two
//! cores and the simulated fabric. Virtual time costs nothing, so this is the work of both ends and
//! of the simulation, without a network's waiting.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use criterion::{Criterion, criterion_group, criterion_main};
use haulage::core::{Core, Cx};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::rpc::AcceptStat;
use haulage::proto::time::Instant;
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{
    Binding, Call, ConnectionId, Finished, NoService, Outcome, Procedure, Reply, Request, Service,
};

const LIMITS: Limits =
    Limits { connections_max: 8, receives_max: 256, send_buffers_max: 128, ..LIMITS_DEFAULT };

fn null_call(c: &mut Criterion) {
    let mut world = World::new();
    world.call();
    c.bench_function("core/one null call", |b| b.iter(|| world.call()));
}

struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Null>,
    client: Core<Sim, Caller>,
    connection: ConnectionId,
    made: u64,
}

impl World {
    fn new() -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let provider = |last| fabric.provider(node(last)).expect("a node of its own");
        let pool = || {
            let config = PoolConfig { bytes: 8 << 20, pages: PagePreference::Small, node: None };
            Pool::new(&config).expect("8 MiB of memory")
        };
        let server = Core::new(provider(1), Null, pool(), LIMITS, 1);
        let client = Core::new(provider(2), Caller::default(), pool(), LIMITS, 2);
        let (mut server, mut client) = server.and_then(|s| Ok((s, client?))).expect("room enough");
        let at = server.listen(SocketAddr::new(node(1), 20050)).expect("a free port");
        let connection = client.connect(Instant::ZERO, at, Null.binding()).expect("a queue pair");
        Self { fabric, now: Instant::ZERO, server, client, connection, made: 0 }
    }

    fn call(&mut self) {
        let request = Request { procedure: 0, argument: None, result: None, timeout: None };
        let (mut cx, _) = self.client.cx(self.now);
        let queued = cx.call(self.connection, request, self.made, |_| Ok(()));
        assert!(queued.is_ok(), "one Call at a time");
        self.made += 1;
        while self.client.service().succeeded < self.made {
            let worked = self.server.turn(self.now) | self.client.turn(self.now);
            if !worked {
                self.now = self.fabric.next_event().expect("a Call under way").max(self.now);
            }
        }
    }
}

struct Null;

impl Service for Null {
    fn binding(&self) -> Binding {
        let null = Procedure::new("NULL").idempotent();
        Binding { program: 0x2000_0001, version: 1, procedures: vec![null] }
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Done
    }
}

#[derive(Default)]
struct Caller {
    succeeded: u64,
}

impl Service for Caller {
    fn binding(&self) -> Binding {
        NoService.binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProcUnavail)
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.succeeded += u64::from(finished.results.is_ok());
    }
}

criterion_group!(benches, null_call);
criterion_main!(benches);
