//! Two RNICs in one thread, polled in turn, on a simulated clock; and peers that are not RNICs.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use haulage_mr_pool::{
    Exposed, PagePreference, Pool, PoolConfig, PostedSink, PostedSource, Sink, Source,
};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{
    Access, ClaimedSegment, Flags, Handle, Opcode, Segment as Claim, Status, WrId,
};

use std::net::IpAddr;

use super::connection::Connection;
use super::names::PORT_FIRST;
use super::nic::LONG_RINGS_MAX;
use super::outflow::Outflow;
use super::watch::HOT_MAX;
use super::*;
use crate::provider::by_number::ByNumber as _;
use crate::provider::{DisconnectReason, Done, Operation, Quiesced, WorkRequest};
use crate::sys::unix;
use crate::sys::{clock, complete};

mod endings;
mod hostile;
mod moving;
mod progress;
mod rogue;
mod setup;

const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const SIGNALED: Flags = Flags { signaled: true, fence: false, copied: false };
const PARAMS: ConnectionParams<'static> = ConnectionParams { private_data: b"", ord: 4, ird: 4 };

/// Polls after which an expected event counts as missing.
const POLLS_MAX: u32 = 300_000;
const POLLS_ALONE: u32 = 100_000;
/// Longer than any wait for a thread or a process that runs.
const HANG: Duration = Duration::from_secs(30);
/// Polls within which anything possible happens.
const A_WHILE: u32 = 300;
/// The time that passes in a poll: enough to listen to the sockets.
const TICK: Duration = Duration::from_micros(50);

fn config() -> Config {
    let (registrations_max, receive_queue_max, ring_bytes) = (16, 256, 64 << 10);
    let expose = Expose::Always;
    Config { expose, registrations_max, receive_queue_max, ring_bytes, ..Config::default() }
}

/// An event without the parts that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Request(Vec<u8>),
    Established,
    Failed(ConnectError),
    Disconnected(DisconnectReason),
    Quiesced,
    Completion(WrId, Opcode, Status),
}

/// An RNIC, its memory, and its reports.
struct Node {
    nic: Shm,
    pool: Pool,
    now: Instant,
    /// The time that passes in a poll. Without it the node uses the real clock: its peer is in another thread or
    /// process, which needs time on a processor before the node's deadlines end.
    tick: Option<Duration>,
    done: Vec<Done>,
    quiesced: Vec<Quiesced>,
    /// The queue pair of the last connection.
    qp: Option<QpNum>,
    /// The process of the peer that sent the last request.
    process: Option<u32>,
    seen: Vec<Seen>,
    ids: u64,
}

impl Node {
    fn new() -> Self {
        Self::with(&config(), 4 << 20)
    }

    fn with(config: &Config, bytes: usize) -> Self {
        let pool = PoolConfig { bytes, pages: PagePreference::Shared, node: None };
        let pool = Pool::new(&pool).unwrap();
        Self {
            nic: Shm::new(config, &pool).unwrap(),
            pool,
            now: Instant::ZERO,
            tick: Some(TICK),
            done: Vec::new(),
            quiesced: Vec::new(),
            qp: None,
            process: None,
            seen: Vec::new(),
            ids: 0,
        }
    }

    /// Makes a node whose peer is not in this thread.
    fn by_the_clock() -> Self {
        Self { now: clock::now(), tick: None, ..Self::new() }
    }

    fn poll(&mut self) {
        self.now = self.tick.map_or_else(clock::now, |tick| self.now.saturating_add(tick));
        let mut events = Vec::new();
        self.nic.poll(self.now, 64, &mut events);
        self.nic.adopt_own(self.now);
        for event in events {
            self.seen.push(match event {
                Event::Completion(done) => {
                    let seen = Seen::Completion(done.id, done.opcode, done.status);
                    self.done.push(done);
                    seen
                }
                Event::Request { qp, process, private_data, .. } => {
                    (self.qp, self.process) = (Some(qp), process);
                    Seen::Request(private_data.into())
                }
                Event::Established { qp, .. } => {
                    self.qp = Some(qp);
                    Seen::Established
                }
                Event::Failed { reason, .. } => Seen::Failed(reason),
                Event::Disconnected { reason, .. } => Seen::Disconnected(reason),
                Event::Quiesced(quiesced) => {
                    self.quiesced.push(quiesced);
                    Seen::Quiesced
                }
            });
        }
    }

    /// Polls until `seen` was reported, and removes it.
    fn until(&mut self, seen: &Seen) {
        let start = clock::now();
        for polls in 0_u32.. {
            if let Some(at) = self.seen.iter().position(|one| one == seen) {
                self.seen.remove(at);
                return;
            }
            let is_over = match self.tick {
                Some(_) => polls >= POLLS_MAX,
                None => clock::now().saturating_since(start) > HANG,
            };
            assert!(!is_over, "waited in vain for {seen:?}: {:?}", self.seen);
            self.poll();
            if polls > POLLS_ALONE || self.tick.is_none() {
                // A child of another test may still hold copies of our sockets, and need a processor.
                std::thread::yield_now();
            }
        }
    }

    fn listen(&mut self) -> u16 {
        self.nic.listen(LOCAL).unwrap().1.port()
    }

    /// Waits for a peer's request, and accepts it.
    fn accept(&mut self) -> QpNum {
        self.until(&Seen::Request(Vec::new()));
        let qp = self.qp();
        self.nic.accept(self.now, qp, &PARAMS);
        self.until(&Seen::Established);
        qp
    }

    fn qp(&self) -> QpNum {
        self.qp.expect("a connection")
    }

    fn connection(&mut self) -> &mut Connection {
        let qp = self.qp();
        self.nic.slots.get(qp).expect("a connection")
    }

    fn outflow(&mut self) -> &mut Outflow {
        self.connection().outflow().expect("it is open")
    }

    fn connection_of(&mut self, qp: QpNum) -> Option<&mut Connection> {
        self.nic.slots.get(qp)
    }

    fn post(&mut self, operation: Operation) -> WrId {
        self.ids += 1;
        let id = WrId(self.ids);
        let mut batch = WorkQueue::from([WorkRequest { id, flags: SIGNALED, operation }]);
        self.nic.post(self.qp(), &mut batch).expect("room");
        id
    }

    fn holding(&self, bytes: &[u8]) -> Local {
        let mut lease = self.pool.lease(bytes.len()).expect("memory for a test");
        lease.bytes_mut().copy_from_slice(bytes);
        lease
    }

    fn source(&self, bytes: &[u8]) -> (PostedSource<Local>, Source) {
        let posted = self.holding(bytes).into_source();
        let source = posted.source(0..bytes.len()).expect("all of it");
        (posted, source)
    }

    fn sink(&self, length: usize) -> (PostedSink, Sink) {
        let mut posted = self.pool.lease(length).expect("memory for a test").into_sink();
        let sink = posted.sink(0..length).expect("all of it");
        (posted, sink)
    }

    fn send(&mut self, bytes: &[u8], invalidate: Option<Handle>) -> (WrId, PostedSource<Local>) {
        let (posted, source) = self.source(bytes);
        (self.post(Operation::Send { source, invalidate }), posted)
    }

    fn write(&mut self, bytes: &[u8], target: Claim) -> (WrId, PostedSource<Local>) {
        let (posted, source) = self.source(bytes);
        (self.post(Operation::Write { source, target: claim(target) }), posted)
    }

    fn receive(&mut self, length: usize) -> (WrId, PostedSink) {
        let (posted, sink) = self.sink(length);
        self.ids += 1;
        let id = WrId(self.ids);
        self.nic.post_receives(&mut vec![Receive::single(id, sink)]).expect("room");
        (id, posted)
    }

    /// Opens memory with the contents `bytes` to the peer.
    fn expose(&mut self, bytes: &[u8], access: Access) -> (Exposed, Claim) {
        let (lease, qp) = (self.holding(bytes), self.qp());
        self.nic.open(qp, lease, access).expect("a handle")
    }

    fn succeeded(&mut self, id: WrId, opcode: Opcode) -> Done {
        self.until(&Seen::Completion(id, opcode, Status::Success));
        let at = self.done.iter().position(|done| done.id == id).expect("it was reported");
        self.done.remove(at)
    }

    /// Polls until any Receive completed.
    fn heard(&mut self) {
        let is_it =
            |seen: &Seen| matches!(seen, Seen::Completion(_, Opcode::Receive, Status::Success));
        for _ in 0..POLLS_MAX {
            if let Some(at) = self.seen.iter().position(is_it) {
                self.seen.remove(at);
                return;
            }
            self.poll();
        }
        panic!("waited in vain for a message: {:?}", self.seen);
    }

    /// Polls for a while, in which nothing may be reported.
    fn nothing_happens(&mut self) {
        let before = self.seen.len();
        (0..A_WHILE).for_each(|_| self.poll());
        assert_eq!(self.seen.get(before..), Some(&[][..]));
    }
}

/// Connects two RNICs: the active one, then the passive one.
fn connect(active: &mut Node, passive: &mut Node) {
    let to = SocketAddr::new(LOCAL.ip(), passive.listen());
    active.nic.connect(active.now, to, &PARAMS).unwrap();
    passive.accept();
    active.until(&Seen::Established);
}

fn pair() -> (Node, Node) {
    let (mut active, mut passive) = (Node::new(), Node::new());
    connect(&mut active, &mut passive);
    (active, passive)
}

/// Shows that the connection of two RNICs carries messages.
fn carry(from: &mut Node, to: &mut Node) {
    let (received, sink) = to.receive(8);
    let (sent, source) = from.send(b"message", None);
    let done = to.succeeded(received, Opcode::Receive);
    assert_eq!(&complete::sink(sink, &done).unwrap().bytes()[..7], b"message");
    let done = from.succeeded(sent, Opcode::Send);
    complete::source(source, &done).unwrap();
}

fn claim(segment: Claim) -> ClaimedSegment {
    ClaimedSegment::try_from(segment).unwrap()
}
