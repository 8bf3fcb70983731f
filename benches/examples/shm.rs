//! Measures the `shm` provider alone, without a core above it: two ends that echo messages, or write memory.
//!
//! `shm echo DEPTH [OCTETS]` and `shm write OCTETS` run two pinned threads for half a second and print the provider's
//! figures beside the machine's limits. `shm messages TIMES` sends that many messages one way on one thread, for
//! `benches/counts` to count the instructions.
#![forbid(unsafe_code)]

use std::env;
use std::hint::{black_box, spin_loop};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use haulage::provider::shm::{Config, Expose, Shm};
use haulage::provider::{
    ConnectionAnswer, ConnectionParams, Event, Operation, Port as _, Provider, Receive, WorkQueue,
    WorkRequest,
};
use haulage::sys::{affinity, clock, complete};
use haulage_mr_pool::{PagePreference, Pool, PoolConfig, PostedSink, PostedSource, Shared};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, ClaimedSegment, Flags, Handle, QpNum, Segment, WrId};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|n| n.parse::<usize>().ok());
    match (arguments.first().map(String::as_str), number(1)) {
        (Some("echo"), Some(depth)) => echo(depth, number(2).unwrap_or(NULL_CALL)),
        (Some("write"), Some(octets)) => write(octets),
        (Some("messages"), Some(times)) => messages(times),
        _ => {
            eprintln!("shm echo DEPTH [OCTETS] | write OCTETS | messages TIMES");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// An event of the provider.
type Reported = Event<<Shm as Provider>::Listener>;

/// One end of a connection, with its Receives.
struct End {
    provider: Shm,
    pool: Pool,
    qp: QpNum,
    events: Vec<Reported>,
    posted: Vec<Option<PostedSink>>,
    receives: Vec<Receive>,
    sends: WorkQueue,
    message: PostedSource<Shared>,
    octets: usize,
}

impl End {
    fn new(octets: usize) -> Self {
        let config = PoolConfig { bytes: 64 << 20, pages: PagePreference::Shared, node: None };
        let pool = Pool::new(&config).expect("memory");
        let config = Config { expose: Expose::Always, ..Config::default() };
        let provider = Shm::new(&config, &pool).expect("descriptors");
        let message = pool.lease(octets).expect("memory").share().into_source();
        let mut end = Self {
            provider,
            pool,
            qp: QpNum::new(0, 0),
            events: Vec::with_capacity(256),
            posted: Vec::new(),
            receives: Vec::with_capacity(256),
            sends: WorkQueue::with_capacity(256),
            message,
            octets,
        };
        for number in 0..RECEIVES {
            let lease = end.pool.lease(octets.clamp(64, 8192)).expect("memory");
            end.posted.push(None);
            end.give(number, lease.into_sink());
        }
        end.provider.post_receives(&mut end.receives).expect("room");
        end
    }

    fn give(&mut self, number: usize, mut posted: PostedSink) {
        let sink = posted.sink(0..posted.len()).expect("all of it");
        self.receives.push(Receive::single(WrId(number as u64), sink));
        self.posted[number] = Some(posted);
    }

    /// Queues `count` messages.
    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let source = self.message.source(0..self.octets).expect("all of it");
            let operation = Operation::Send { source, invalidate: None };
            self.sends.push_back(WorkRequest { id: WrId(0), flags: Flags::default(), operation });
        }
    }

    /// Posts queued messages, as far as there is room.
    fn post(&mut self) {
        if let Some(mut port) = self.provider.port(self.qp) {
            let _ = port.post(&mut self.sends);
        }
    }

    /// Polls until an event satisfies `is_it`, and returns it. Other events are dropped.
    fn until(&mut self, is_it: impl Fn(&Reported) -> bool) -> Reported {
        loop {
            let mut events = Vec::new();
            self.provider.adopt_own(clock::now());
            self.provider.poll(clock::now(), 64, &mut events);
            if let Some(event) = events.into_iter().find(&is_it) {
                return event;
            }
        }
    }

    /// Posts queued Receives and messages, and polls. Returns the number of messages received.
    fn turn(&mut self, now: Instant) -> usize {
        if !self.receives.is_empty() {
            self.provider.post_receives(&mut self.receives).expect("room");
        }
        if !self.sends.is_empty() {
            self.post();
        }
        let mut events = std::mem::take(&mut self.events);
        self.provider.poll(now, 256, &mut events);
        let mut came = 0;
        for event in events.drain(..) {
            let Event::Completion(done) = event else { continue };
            let number = usize::try_from(done.id.0).expect("ours");
            if let Some(posted) = self.posted.get_mut(number).and_then(Option::take) {
                let lease = complete::sink(posted, &done).expect("no view is left");
                self.give(number, lease.into_sink());
                came += 1;
            }
        }
        self.events = events;
        came
    }
}

/// Connects two ends on this thread.
fn connect(active: &mut End, passive: &mut End) {
    let (listener, at) = passive.provider.listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    active.qp = active.provider.connect(clock::now(), at, &PARAMS).expect("a queue pair");
    let asked = passive.until(|event| matches!(event, Event::Request { .. }));
    let Event::Request { qp, .. } = asked else { return };
    passive.qp = qp;
    passive.provider.answer(clock::now(), qp, &ConnectionAnswer::Accept(PARAMS));
    passive.until(|event| matches!(event, Event::Established { .. }));
    active.until(|event| matches!(event, Event::Established { .. }));
    passive.provider.unlisten(listener);
}

/// State shared by two threads: a port, a segment to write to, and whether to stop.
#[derive(Default)]
struct Meeting {
    port: AtomicU64,
    offset: AtomicU64,
    handle: AtomicU64,
    over: AtomicBool,
}

/// Runs `active` on one CPU, with a peer on another that opens memory to be written. If `answers`, the peer echoes
/// every message.
fn pair(octets: usize, answers: bool, active: impl FnOnce(&mut End, Segment)) {
    let meeting = Meeting::default();
    std::thread::scope(|threads| {
        threads.spawn(|| serve(octets, answers, &meeting));
        pin(0);
        let mut end = End::new(octets);
        let port = u16::try_from(wait_for(&meeting.port)).expect("a port");
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        end.qp = end.provider.connect(clock::now(), at, &PARAMS).expect("a queue pair");
        end.until(|event| matches!(event, Event::Established { .. }));
        let handle = Handle(u32::try_from(wait_for(&meeting.handle)).expect("a handle"));
        let length = u32::try_from(octets).expect("less than 4 GiB");
        let offset = meeting.offset.load(Ordering::Relaxed);
        active(&mut end, Segment { handle, length, offset });
        meeting.over.store(true, Ordering::Relaxed);
    });
}

/// Runs the peer of a pair.
fn serve(octets: usize, answers: bool, meeting: &Meeting) {
    pin(1);
    let mut end = End::new(octets);
    let (_, at) = end.provider.listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    meeting.port.store(at.port().into(), Ordering::Release);
    let asked = end.until(|event| matches!(event, Event::Request { .. }));
    let Event::Request { qp, .. } = asked else { return };
    end.qp = qp;
    end.provider.answer(clock::now(), qp, &ConnectionAnswer::Accept(PARAMS));
    let mut target = end.pool.lease(octets).expect("memory");
    target.bytes_mut().fill(1);
    let mut port = end.provider.port(qp).expect("the queue pair is open");
    let (exposed, segment) = port.open(target, Access::RemoteWrite).expect("a handle");
    end.turn(clock::now());
    meeting.offset.store(segment.offset, Ordering::Relaxed);
    meeting.handle.store(segment.handle.0.into(), Ordering::Release);
    let (mut polls, mut now) = (0_u64, clock::now());
    while !meeting.over.load(Ordering::Relaxed) {
        polls += 1;
        if polls.is_multiple_of(16) {
            now = clock::now();
        }
        let came = end.turn(now);
        if came > 0 && answers {
            end.send(came);
            end.post();
        }
    }
    drop(end);
    drop(exposed);
}

/// Waits until another thread stores a value other than zero, and returns it.
fn wait_for(said: &AtomicU64) -> u64 {
    loop {
        match said.load(Ordering::Acquire) {
            0 => spin_loop(),
            said => return said,
        }
    }
}

fn echo(depth: usize, octets: usize) {
    let round_trip = cache_line_round_trip();
    pair(octets, true, |end, _| {
        let mut times = Vec::with_capacity(1 << 20);
        let (mut now, start) = (clock::now(), clock::now());
        let (mut count, mut turns, mut batches) = (0_u64, 0_u64, 0_u64);
        end.send(depth);
        let mut sent = clock::now();
        while now.saturating_since(start) < RUN {
            turns += 1;
            if turns.is_multiple_of(16) {
                now = clock::now();
            }
            let came = end.turn(now);
            if came == 0 {
                continue;
            }
            count += came as u64;
            batches += 1;
            if depth == 1 && count.is_multiple_of(16) {
                times.push(clock::now().saturating_since(sent));
            }
            end.send(came);
            if depth == 1 && count % 16 == 15 {
                sent = clock::now();
            }
            end.post();
        }
        let seconds = now.saturating_since(start).as_secs_f64();
        times.sort_unstable();
        let counters = end.provider.counters();
        eprintln!(
            "echo {octets} B depth {depth}: {:.2} M/s, mean {:.0} ns, p50 {:?} with the clock, mean batch \
             {:.1}, {} system calls, cache line {round_trip:.0} ns",
            count as f64 / seconds / 1e6,
            seconds * 1e9 * depth as f64 / count as f64,
            times.get(times.len() / 2),
            count as f64 / batches as f64,
            counters.syscalls,
        );
    });
}

fn write(octets: usize) {
    let from = vec![1_u8; octets];
    let mut to = vec![2_u8; octets];
    pair(octets, false, |end, segment| {
        let target = ClaimedSegment::try_from(segment).expect("no wrap");
        let lease = end.pool.lease(octets).expect("memory").share().into_source();
        let start = clock::now();
        let (mut now, mut count) = (start, 0_u64);
        while now.saturating_since(start) < RUN {
            for _ in 0..16 {
                let source = lease.source(0..octets).expect("all of it");
                let operation = Operation::Write { source, target };
                let flags = Flags::default();
                end.sends.push_back(WorkRequest { id: WrId(0), flags, operation });
                end.post();
                count += 1;
            }
            now = clock::now();
            end.turn(now);
        }
        let ours = count as f64 * octets as f64 / now.saturating_since(start).as_secs_f64();
        let counters = end.provider.counters();
        let start = clock::now();
        let (mut now, mut count) = (start, 0_u64);
        while now.saturating_since(start) < RUN {
            for _ in 0..16 {
                black_box(&mut to).copy_from_slice(black_box(&from));
                count += 1;
            }
            now = clock::now();
        }
        let memcpy = count as f64 * octets as f64 / now.saturating_since(start).as_secs_f64();
        let gib = f64::from(1 << 30);
        eprintln!(
            "write {octets} B: {:.1} GiB/s, memcpy {:.1} GiB/s, {:.2} of it, {:.2} copies",
            ours / gib,
            memcpy / gib,
            ours / memcpy,
            counters.bytes_copied as f64 / counters.tagged_sent as f64,
        );
    });
}

/// Sends `times` messages from one end to the other on this thread, at most 32 at a time.
fn messages(times: usize) {
    let (mut active, mut passive) = (End::new(NULL_CALL), End::new(NULL_CALL));
    connect(&mut active, &mut passive);
    let mut came = 0;
    while came < times {
        active.send(BATCH.min(times - came));
        active.turn(Instant::ZERO);
        came += passive.turn(Instant::ZERO);
    }
}

/// Returns the nanoseconds that a cache line takes to the other CPU and back.
fn cache_line_round_trip() -> f64 {
    static LINE: AtomicU64 = AtomicU64::new(0);
    const ROUNDS: u64 = 200_000;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            pin(1);
            for round in 0..ROUNDS {
                while LINE.load(Ordering::Acquire) != 2 * round + 1 {
                    spin_loop();
                }
                LINE.store(2 * round + 2, Ordering::Release);
            }
        });
        pin(0);
        let start = clock::now();
        for round in 0..ROUNDS {
            LINE.store(2 * round + 1, Ordering::Release);
            while LINE.load(Ordering::Acquire) != 2 * round + 2 {
                spin_loop();
            }
        }
        clock::now().saturating_since(start).as_nanos() as f64 / ROUNDS as f64
    })
}

fn pin(nth: usize) {
    let cpus = affinity::usable().expect("the CPUs");
    // With a single CPU there is nothing to pin.
    if let Some(cpu) = cpus.get(nth) {
        affinity::pin(*cpu).expect("a usable CPU");
    }
}

/// Length of a null Call: 36 octets of transport header, 40 of RPC header.
const NULL_CALL: usize = 76;
const PARAMS: ConnectionParams<'static> = ConnectionParams { private_data: b"", ord: 8, ird: 8 };
const RECEIVES: usize = 256;
const BATCH: usize = 32;
const RUN: Duration = Duration::from_millis(500);
