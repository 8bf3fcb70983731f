//! The cost of Calls through two whole cores, from `Cx::call` to `Service::replied`. Both are on one thread, so this is
//! the work of all stages of a turn without transfers between the caches of two CPUs.
//!
//! Over shared memory the client makes a batch in one turn and the server answers it in one turn. Over the simulated
//! fabric the work of the fabric is included, and virtual time costs nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use haulage::pool::PagePreference;
use haulage::proto::time::Instant;
use haulage::provider::sim::{Fabric, FabricConfig};
use haulage_benches::{Kind, Part, Speech, World, memory};

fn over_shm(c: &mut Criterion) {
    let mut world = World::over_shm(Speech::Ours);
    world.batch(Kind::Null, 1, 1);
    let mut group = c.benchmark_group("turn");
    for count in [1, 32] {
        for (name, kind) in
            [("null calls", Kind::Null), ("reads", Kind::Read), ("writes", Kind::Write)]
        {
            group.throughput(Throughput::Elements(count));
            group.bench_function(format!("{count} {name}"), |b| {
                b.iter(|| world.batch(kind, count, count))
            });
        }
    }
    group.finish();
}

fn over_the_fabric(c: &mut Criterion) {
    let fabric = Fabric::new(FabricConfig::default());
    let node = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let part = |last| {
        let provider = fabric.provider(node(last)).expect("a node of its own");
        Part { provider, pool: memory(PagePreference::Small) }
    };
    let mut now = Instant::ZERO;
    let mut world =
        World::new(now, [part(2), part(1)], SocketAddr::new(node(1), 20050), Speech::Ours);
    let mut call = || {
        world.call(now, Kind::Null, 1, 1);
        while !world.is_done() {
            if !world.turn(now) {
                now = fabric.next_event().expect("a Call under way").max(now);
            }
        }
    };
    call();
    c.bench_function("turn/1 null call over the simulated fabric", |b| b.iter(&mut call));
}

criterion_group!(benches, over_shm, over_the_fabric);
criterion_main!(benches);
