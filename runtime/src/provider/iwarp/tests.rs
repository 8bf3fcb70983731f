//! Two RNICs in one thread, over real sockets, polled in turn.
#![expect(clippy::cast_possible_truncation, reason = "the values are small")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use haulage_mr_pool::{Exposed, Local, PagePreference, Pool, PoolConfig, PostedSink, PostedSource};
use haulage_proto::verbs::{
    Access, ClaimedSegment, Flags, Handle, Opcode, QpNum, Segment, Status, WrId,
};

use super::*;
use crate::provider::WorkQueue;
use crate::provider::by_number::ByNumber as _;
use crate::provider::{DisconnectReason, Done, Operation, Quiesced, WorkRequest};
use crate::sys::complete;

mod answers;
mod faults;
mod floods;
mod hostile;
mod in_place;
mod keepalive;
mod messages;
mod progress;
mod rogue;
mod setup;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const SIGNALED: Flags = Flags { signaled: true, fence: false, copied: false };

/// Octets of memory of a node that carries short messages.
const SMALL: usize = 512 << 10;

/// Polls after which an expected event counts as missing.
const POLLS_MAX: u32 = 3_000_000;

/// Every backend, with CRCs and without.
const VARIANTS: [(Backend, Crc); 4] = [
    (Backend::Sockets, Crc::IfAsked),
    (Backend::Sockets, Crc::Connecting),
    (Backend::Auto, Crc::IfAsked),
    (Backend::Auto, Crc::Connecting),
];

fn config(backend: Backend, crc: Crc) -> Config {
    let ready_to_receive = true;
    Config {
        backend,
        crc,
        ready_to_receive,
        seed: Some(7),
        registrations_max: 64,
        ..Config::default()
    }
}

/// An event without the parts that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Request(Vec<u8>),
    Established { private_data: Vec<u8>, ord: u32, ird: u32 },
    Failed(ConnectError),
    Disconnected(DisconnectReason),
    Quiesced,
    Completion(WrId, Opcode, Status),
}

/// An RNIC, its memory, and its reports.
struct Node {
    nic: Iwarp,
    pool: Pool,
    now: Instant,
    done: Vec<Done>,
    quiesced: Vec<Quiesced>,
    /// The queue pair of the last connection.
    qp: Option<QpNum>,
    /// The queue pairs of all connections that were established.
    open: Vec<QpNum>,
    seen: Vec<Seen>,
}

impl Node {
    fn new(config: &Config) -> Self {
        Self::with_memory(config, SMALL)
    }

    fn with_memory(config: &Config, bytes: usize) -> Self {
        // Memory that a test leaves lent when it ends is never unmapped, so tests take no more than they need.
        let memory = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
        Self {
            nic: Iwarp::new(config).unwrap(),
            pool: Pool::new(&memory).unwrap(),
            now: Instant::ZERO,
            done: Vec::new(),
            quiesced: Vec::new(),
            qp: None,
            open: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn poll(&mut self) {
        let mut events = Vec::new();
        self.nic.adopt_own(self.now);
        self.nic.poll(self.now, 64, &mut events);
        assert!(events.len() <= 64);
        for event in events {
            self.seen.push(match event {
                Event::Completion(done) => {
                    let seen = Seen::Completion(done.id, done.opcode, done.status);
                    self.done.push(done);
                    seen
                }
                Event::Request { qp, private_data, .. } => {
                    self.qp = Some(qp);
                    Seen::Request(private_data.into())
                }
                Event::Established { qp, private_data, ord, ird } => {
                    self.qp = Some(qp);
                    self.open.push(qp);
                    Seen::Established { private_data: private_data.into(), ord, ird }
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

    fn qp(&self) -> QpNum {
        self.qp.unwrap()
    }

    fn saw(&self, wanted: impl Fn(&Seen) -> bool) -> bool {
        self.seen.iter().any(wanted)
    }

    fn is_open(&self) -> bool {
        self.saw(|seen| matches!(seen, Seen::Established { .. }))
    }

    fn is_quiesced(&self) -> bool {
        self.seen.last() == Some(&Seen::Quiesced)
    }

    fn reason(&self) -> Option<DisconnectReason> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Disconnected(reason) => Some(*reason),
            _ => None,
        })
    }

    /// Takes the completion of one request, if it is there.
    fn done(&mut self, id: u64) -> Option<Done> {
        let at = self.done.iter().position(|done| done.id == WrId(id))?;
        Some(self.done.remove(at))
    }

    fn is_done(&self, id: u64) -> bool {
        self.done.iter().any(|done| done.id == WrId(id))
    }

    fn lease(&self, contents: &[u8]) -> Local {
        let mut lease = self.pool.lease(contents.len()).unwrap();
        lease.bytes_mut().copy_from_slice(contents);
        lease
    }

    fn post(&mut self, id: u64, flags: Flags, operation: Operation) {
        let mut batch = WorkQueue::from([WorkRequest { id: WrId(id), flags, operation }]);
        self.nic.post(self.qp(), &mut batch).unwrap();
        assert!(batch.is_empty());
    }

    fn post_send(&mut self, id: u64, contents: &[u8], inv: Option<Handle>) -> PostedSource<Local> {
        let posted = self.lease(contents).into_source();
        let source = posted.source(0..contents.len()).unwrap();
        self.post(id, SIGNALED, Operation::Send { source, invalidate: inv });
        posted
    }

    fn post_write(&mut self, id: u64, contents: &[u8], to: Segment) -> PostedSource<Local> {
        let posted = self.lease(contents).into_source();
        let source = posted.source(0..contents.len()).unwrap();
        let target = ClaimedSegment::try_from(to).unwrap();
        self.post(id, SIGNALED, Operation::Write { source, target });
        posted
    }

    fn post_read(&mut self, id: u64, from: Segment) -> PostedSink {
        let mut posted = self.pool.lease(from.length as usize).unwrap().into_sink();
        let sink = posted.sink(0..posted.len()).unwrap();
        let source = ClaimedSegment::try_from(from).unwrap();
        self.post(id, SIGNALED, Operation::Read { sink, source });
        posted
    }

    fn post_receive(&mut self, id: u64, length: usize) -> PostedSink {
        let mut posted = self.pool.lease(length).unwrap().into_sink();
        let sink = posted.sink(0..length).unwrap();
        self.nic.post_receives(&mut vec![Receive::single(WrId(id), sink)]).unwrap();
        posted
    }

    /// Opens memory to the peer.
    fn expose(&mut self, lease: Local, write: bool) -> (Exposed, Segment) {
        let access = if write { Access::RemoteWrite } else { Access::RemoteRead };
        self.nic.open(self.qp(), lease, access).expect("a handle")
    }
}

/// A connected pair: `a` connected to `b`.
struct Pair {
    a: Node,
    b: Node,
}

impl Pair {
    fn new((backend, crc): (Backend, Crc)) -> Self {
        Self::with(&config(backend, crc), SMALL)
    }

    /// Makes a pair with memory for large messages.
    fn roomy((backend, crc): (Backend, Crc), bytes: usize) -> Self {
        Self::with(&config(backend, crc), bytes)
    }

    fn with(config: &Config, bytes: usize) -> Self {
        let node = || Node::with_memory(config, bytes);
        let mut pair = Self { a: node(), b: node() };
        pair.connect();
        pair
    }

    fn connect(&mut self) {
        let (_, at) = self.b.nic.listen(LOCAL).unwrap();
        let params = ConnectionParams { private_data: b"hello", ord: 4, ird: 8 };
        self.a.nic.connect(Instant::ZERO, at, &params).unwrap();
        self.until(|_, b| b.saw(|seen| matches!(seen, Seen::Request(_))));
        let params = ConnectionParams { private_data: b"welcome", ord: 16, ird: 3 };
        self.b.nic.accept(Instant::ZERO, self.b.qp(), &params);
        self.until(|a, b| a.is_open() && b.is_open());
    }

    fn until(&mut self, happened: impl Fn(&Node, &Node) -> bool) {
        for _ in 0..POLLS_MAX {
            if happened(&self.a, &self.b) {
                return;
            }
            self.a.poll();
            self.b.poll();
        }
        panic!("did not happen: {:?} {:?}", self.a.seen, self.b.seen);
    }

    /// Polls often enough for anything possible to happen.
    fn idle(&mut self) {
        for _ in 0..20_000 {
            self.a.poll();
            self.b.poll();
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 253) as u8).collect()
}

const SIZES: [usize; 10] = [0, 1, 3, 4095, 4096, 65_535, 100_001, 1 << 20, (4 << 20) - 1, 4 << 20];
