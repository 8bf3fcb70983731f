//! The cost of a message through a ring in shared memory: from `Port::send` at one end to its completed Receive at the
//! other, and the Receive posted again. Both ends are on one thread, so this is their work without transfers between
//! the caches of two CPUs.

use std::net::{Ipv4Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use haulage::pool::{Local, PagePreference, Pool, PoolConfig};
use haulage::provider::shm::{Config, Shm};
use haulage::provider::{
    ConnectionAnswer, ConnectionParams, Event, Head, Outgoing, Port as _, Provider, Receive, Sent,
    WorkQueue,
};
use haulage::sys::clock;
use haulage_mr_pool::PostedSink;
use haulage_proto::verbs::{QpNum, WrId};

fn messages(c: &mut Criterion) {
    let mut pair = Pair::new();
    let mut group = c.benchmark_group("ring");
    for (batch, length) in [(1, 64), (32, 64), (8, 4096)] {
        let mut lease = pair.from.pool.lease(length).expect("memory for a message");
        lease.bytes_mut().fill(7);
        let mut message = Outgoing::within(lease);
        group.throughput(Throughput::Elements(batch));
        group.bench_function(format!("{batch} messages of {length} B"), |b| {
            b.iter(|| pair.carry(&mut message, length, batch));
        });
    }
    group.finish();
}

struct Pair {
    from: End,
    to: End,
    sinks: Vec<PostedSink>,
    events: Vec<Event<<Shm as Provider>::Listener>>,
    receives: Vec<Receive>,
}

/// A provider and its end of the connection.
struct End {
    provider: Shm,
    qp: QpNum,
    pool: Pool,
}

impl Pair {
    fn new() -> Self {
        let (mut from, mut to) = (End::new(), End::new());
        let (_, at) = to.provider.listen(ANY).expect("a free name");
        from.qp = from.provider.connect(clock::now(), at, &PARAMS).expect("a queue pair");
        let asked = to.until(|event| match event {
            Event::Request { qp, .. } => Some(*qp),
            _ => None,
        });
        to.qp = asked;
        to.provider.answer(clock::now(), to.qp, &ConnectionAnswer::Accept(PARAMS));
        from.until(|event| matches!(event, Event::Established { .. }).then_some(()));
        let sinks = (0..RECEIVES).map(|_| to.pool.lease(MESSAGE_MAX).map(Local::into_sink));
        let sinks = sinks.collect::<Option<Vec<_>>>().expect("memory for the Receives");
        let mut pair = Self { from, to, sinks, events: Vec::new(), receives: Vec::new() };
        (0..RECEIVES).for_each(|number| pair.give(number));
        pair
    }

    fn give(&mut self, number: usize) {
        let sink = self.sinks[number].sink(0..MESSAGE_MAX).expect("no view of it is left");
        self.receives.push(Receive::single(WrId(number as u64), sink));
    }

    fn carry(&mut self, message: &mut Outgoing, length: usize, count: u64) {
        let posted = self.to.provider.post_receives(&mut self.receives);
        assert!(posted.is_ok(), "there was room for them before");
        let End { provider, qp, .. } = &mut self.from;
        let mut port = provider.port(*qp).expect("the connection is open");
        for _ in 0..count {
            let sent = port.send(&Head::written(0..length, None), message, WrId(0));
            assert_eq!(sent, Sent::Copied, "the ring holds a batch");
        }
        assert!(port.post(&mut WorkQueue::new()).is_ok(), "the doorbell");
        let mut left = count;
        while left > 0 {
            let mut events = std::mem::take(&mut self.events);
            self.to.provider.poll(clock::now(), 64, &mut events);
            for event in events.drain(..) {
                let Event::Completion(done) = event else { continue };
                self.give(usize::try_from(done.id.0).expect("one of ours"));
                left -= 1;
            }
            self.events = events;
        }
        // The sender takes back the ring's space, which is part of a turn.
        self.from.provider.poll(clock::now(), 64, &mut self.events);
    }
}

impl End {
    fn new() -> Self {
        let config = PoolConfig { bytes: 4 << 20, pages: PagePreference::Shared, node: None };
        let pool = Pool::new(&config).expect("4 MiB of memory");
        let provider = Shm::new(&Config::default(), &pool).expect("the shm provider works");
        Self { provider, qp: QpNum::new(0, 0), pool }
    }

    fn until<T>(&mut self, found: impl Fn(&Event<<Shm as Provider>::Listener>) -> Option<T>) -> T {
        let mut events = Vec::new();
        loop {
            self.provider.adopt_own(clock::now());
            self.provider.poll(clock::now(), 64, &mut events);
            if let Some(what) = events.iter().find_map(&found) {
                return what;
            }
        }
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PARAMS: ConnectionParams<'_> = ConnectionParams { private_data: b"", ord: 1, ird: 1 };
const RECEIVES: usize = 64;
const MESSAGE_MAX: usize = 4096;

criterion_group!(benches, messages);
criterion_main!(benches);
