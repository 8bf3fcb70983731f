//! The cost of memory in `haulage-mr-pool`: taking a lease from the free list and giving it back,
//! and a registration of a software RNIC from the reserved handle to its invalidation.
//!
//! The bench of a whole Call, `turn`, includes the cost of posting a lease.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig, Stags};
use haulage_proto::verbs::{Exposure, QpNum};

fn leases(c: &mut Criterion) {
    let pool = pool();
    for (name, length) in [("64 B", 64), ("4 KiB", 4096), ("1 MiB", 1 << 20)] {
        // One lease stays out, as in a working core: otherwise its page would be carved anew each
        // time.
        let _held = pool.lease(length);
        c.bench_function(&format!("pool/lease and drop {name}"), |b| {
            b.iter(|| pool.lease(black_box(length)).map(drop).is_some());
        });
    }
}

/// Reserves a handle, registers a view of posted memory under it, and invalidates it.
fn registrations(c: &mut Criterion) {
    let pool = pool();
    let posted = pool.lease(4096).map(Local::into_source).expect("the pool is empty");
    let mut stags = Stags::seeded(1024, 1);
    let qp = QpNum::new(1, 1);
    c.bench_function("pool/reserve, register and invalidate", |b| {
        b.iter(|| {
            let handle = stags.reserve(qp).expect("one registration at a time");
            let view = posted.source(0..4096).expect("all of the lease");
            let registered = stags.register(handle, qp, 1 << 40, Exposure::RemoteRead(view));
            assert!(registered.is_ok() && stags.invalidate(black_box(handle), qp).is_ok());
        });
    });
}

fn pool() -> Pool {
    let config = PoolConfig { bytes: 16 << 20, pages: PagePreference::Transparent, node: None };
    Pool::new(&config).expect("16 MiB of memory")
}

criterion_group!(benches, leases, registrations);
criterion_main!(benches);
