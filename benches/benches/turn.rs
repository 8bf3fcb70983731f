//! What Calls cost through two whole cores over shared memory: the client makes a batch in one turn and
//! the server answers it in one. Both are on one thread, so this is the work of all stages of a turn
//! without the way between two cores' caches.

use std::net::{Ipv4Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use haulage::core::{Core, Cx};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::rpc::AcceptStat;
use haulage::provider::shm::{Config, Shm};
use haulage::service::{
    Binding, Call, ConnectionId, Finished, NoService, Outcome, Procedure, Reply, Request, Service,
};
use haulage::sys::clock;

const LIMITS: Limits =
    Limits { connections_max: 8, receives_max: 256, send_buffers_max: 128, ..LIMITS_DEFAULT };

fn null_calls(c: &mut Criterion) {
    let mut world = World::new();
    world.batch(1);
    let mut group = c.benchmark_group("turn");
    for count in [1, 32] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("{count} null calls"), |b| b.iter(|| world.batch(count)));
    }
    group.finish();
}

struct World {
    server: Core<Shm, Null>,
    client: Core<Shm, Caller>,
    connection: ConnectionId,
    made: u64,
}

impl World {
    fn new() -> Self {
        let parts = || {
            let memory = PoolConfig { bytes: 8 << 20, pages: PagePreference::Shared, node: None };
            let pool = Pool::new(&memory).expect("8 MiB of memory");
            (Shm::new(&Config::default(), &pool).expect("the shm provider works"), pool)
        };
        let ((here, ours), (there, theirs)) = (parts(), parts());
        let server = Core::new(there, Null, theirs, LIMITS, 1);
        let client = Core::new(here, Caller::default(), ours, LIMITS, 2);
        let (mut server, mut client) = server.and_then(|s| Ok((s, client?))).expect("room enough");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let at = server.listen(any).expect("a free name");
        let connection = client.connect(clock::now(), at, Null.binding()).expect("a queue pair");
        Self { server, client, connection, made: 0 }
    }

    fn batch(&mut self, count: u64) {
        let mut now = clock::now();
        for _ in 0..count {
            let request = Request { procedure: 0, argument: None, result: None, timeout: None };
            let (mut cx, _) = self.client.cx(now);
            let queued = cx.call(self.connection, request, self.made, |_| Ok(()));
            assert!(queued.is_ok(), "a batch fits");
            self.made += 1;
        }
        let mut turns = 0_u32;
        while self.client.service().succeeded < self.made {
            self.client.turn(now);
            self.server.turn(now);
            turns += 1;
            // A core that works reads the clock once in some turns.
            if turns.is_multiple_of(8) {
                now = clock::now();
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

criterion_group!(benches, null_calls);
criterion_main!(benches);
