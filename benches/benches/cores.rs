//! The cost of what the cores of a group share: entries that all of them look up and change, memory that any of them sends
//! from, and posts from one to another.
//!
//! All cores are on one thread, so this is their work without transfers between the caches of two CPUs.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, criterion_group, criterion_main};
use haulage::core::{Core, CoreIdentity, CoreNumber, NoService};
use haulage::cores::entries::Entries;
use haulage::cores::post::mailboxes;
use haulage::limits::LIMITS_DEFAULT;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::sim::{Fabric, FabricConfig};
use haulage::sys::clock;
use haulage_benches::memory;

type Table = Entries<[u8; 8], u64>;

fn entries(c: &mut Criterion) {
    for (name, cores) in [("alone", 1), ("of two cores", 2)] {
        let mut tables = Tables::new(cores);
        let mut group = c.benchmark_group(format!("entries {name}"));
        let mut number = 0;
        group.bench_function("find, there", |b| {
            b.iter(|| {
                number = (number + STEP) % ENTRIES;
                tables.find(black_box(number)).is_some()
            });
        });
        group.bench_function("find, not there", |b| {
            b.iter(|| {
                number = (number + STEP) % ENTRIES;
                tables.find(black_box(number + ENTRIES)).is_some()
            });
        });
        group.bench_function("replace and pass", |b| {
            b.iter(|| {
                number = (number + STEP) % ENTRIES;
                tables.replace(black_box(number));
                tables.pass();
            });
        });
        group.bench_function("insert, remove and pass", |b| {
            b.iter(|| {
                number = (number + STEP) % ENTRIES;
                tables.insert(black_box(number + ENTRIES));
                tables.remove(black_box(number + ENTRIES));
                tables.pass();
            });
        });
        group.finish();
    }
}

/// What each core has of one table; the first of them works, the others only pass.
struct Tables(Vec<Table>);

impl Tables {
    fn new(cores: usize) -> Self {
        let all = Table::all(cores, 2 * ENTRIES).expect("memory for the entries");
        let mut tables = Self(all);
        (0..ENTRIES).for_each(|number| tables.insert(number));
        // All of them have begun to read, so that what is taken away waits for each.
        tables.0.iter().for_each(|table| assert!(table.find(hash(0), &key(0)).is_some()));
        tables
    }

    fn find(&self, number: u32) -> Option<u64> {
        self.0[0].find(hash(number), &key(number)).map(|found| *found.entry.value())
    }

    fn insert(&mut self, number: u32) {
        let inserted = self.0[0].insert(hash(number), key(number), 1);
        assert!(inserted.is_ok(), "no such entry was there, and there is room");
    }

    fn replace(&mut self, number: u32) {
        let found = self.0[0].find(hash(number), &key(number)).expect("it is there").at;
        let replaced = self.0[0].replace(found, 2).map(drop);
        assert!(replaced.is_ok(), "nobody else changes it");
    }

    fn remove(&mut self, number: u32) {
        let found = self.0[0].find(hash(number), &key(number)).expect("it is there").at;
        assert!(self.0[0].remove(found), "nobody else changes it");
    }

    fn pass(&mut self) {
        for table in &mut self.0 {
            table.pass();
        }
    }
}

fn key(number: u32) -> [u8; 8] {
    u64::from(number).to_le_bytes()
}

/// Spreads numbers over all 64 bits, as a hash does.
fn hash(number: u32) -> u64 {
    (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
}

fn commons(c: &mut Criterion) {
    let config = PoolConfig { bytes: 16 << 20, pages: PagePreference::Transparent, node: None };
    let pools = [(); 2].map(|()| Pool::new(&config).expect("16 MiB of memory"));
    let [home, away] = &pools;
    let lease = || home.lease(4096).expect("memory for an item");
    let common = lease().into_common();
    for (name, pool) in [("its own core", home), ("another core", away)] {
        c.bench_function(&format!("common/send from by {name}, and drop"), |b| {
            b.iter(|| black_box(&common).here(pool).map(drop).is_some());
        });
    }
    c.bench_function("common/lease, make and drop", |b| {
        b.iter(|| drop(black_box(lease().into_common())));
    });
}

fn posts(c: &mut Criterion) {
    let fabric = Fabric::new(FabricConfig::default());
    let to = CoreNumber::new(1).expect("there may be two");
    let provider = fabric.provider(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))).expect("a node");
    let identity = CoreIdentity { number: to, seed: 1 };
    let pool = memory(PagePreference::Small);
    let mut core = Core::new(provider, NoService, pool, LIMITS_DEFAULT, identity).expect("room");
    let (cx, _) = core.cx(clock::now());
    let mut boxes = mailboxes::<u64>(2, POSTS);
    let (mut at, from) = (boxes.pop().expect("the second"), boxes.pop().expect("the first"));
    // A core that has looked once is woken from then on.
    assert!(at.take(&cx).is_none());
    c.bench_function("post/look for none", |b| b.iter(|| at.take(black_box(&cx)).is_none()));
    for count in [1, POSTS as u64] {
        c.bench_function(&format!("post/{count} sent and taken"), |b| {
            b.iter(|| {
                (0..count).for_each(|post| assert!(from.post(to, black_box(post)).is_ok()));
                std::iter::from_fn(|| at.take(&cx)).count()
            });
        });
    }
}

/// Number of entries in a table: more than the nearest caches hold.
const ENTRIES: u32 = 100_000;
/// From one entry to the next that is asked for: a prime, so that all have their turn.
const STEP: u32 = 37_717;
/// Posts that a mailbox has room for.
const POSTS: usize = 32;

criterion_group!(benches, entries, commons, posts);
criterion_main!(benches);
