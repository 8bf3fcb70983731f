//! Servers of version 1 that are played by hand: each sends and writes what a test wants.

use std::collections::BTreeMap;

use haulage_mr_pool::{PostedSink, PostedSource};
use haulage_proto::v1::header::{MSG, NOMSG};
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Opcode, QpNum, Segment, Status, WrId};

use super::*;
use crate::provider::by_number::ByNumber as _;
use crate::provider::{ConnectionParams, Done, Event, Operation, Receive, WorkRequest};
use crate::sys::complete;

/// A client, and the parts of its played server.
struct Played {
    fabric: Fabric,
    now: Instant,
    client: Core<Sim, Caller>,
    nic: Sim,
    pool: Pool,
    at: SocketAddr,
    connection: Option<ConnectionId>,
    /// The private data that the server sends while connecting.
    private_data: Vec<u8>,
    qp: QpNum,
    ids: u64,
    receives: BTreeMap<u64, PostedSink>,
    sources: Vec<PostedSource<Local>>,
    messages: VecDeque<Vec<u32>>,
}

impl Played {
    fn new() -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let pool = || {
            Pool::new(&PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None })
                .unwrap()
        };
        let (mut nic, client) =
            (fabric.provider(node(1)).unwrap(), fabric.provider(node(2)).unwrap());
        let (_, at) = nic.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let limits = Limits { versions: Versions::OnlyOne, ..LIMITS };
        let mut played = Self {
            client: Core::new(client, Caller::default(), pool(), limits, 2).unwrap(),
            pool: pool(),
            now: Instant::ZERO,
            connection: None,
            private_data: Vec::new(),
            qp: QpNum::new(0, 0),
            ids: 0,
            receives: BTreeMap::new(),
            sources: Vec::new(),
            messages: VecDeque::new(),
            fabric,
            nic,
            at,
        };
        (0..16).for_each(|_| played.receive());
        played
    }

    /// Connects anew, to a server that sends this private data.
    fn connect(&mut self, private_data: &[u8]) {
        if let Some(connection) = self.connection.take() {
            self.client.close(connection);
        }
        self.private_data = private_data.to_vec();
        self.connection = Some(self.client.connect(self.now, self.at, binding()).unwrap());
    }

    fn call(&mut self, request: Request, arguments: &[u8]) {
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection.unwrap(), request, 1, |w| w.put(arguments)).unwrap();
    }

    /// Returns the next message of the client.
    fn message(&mut self) -> Vec<u32> {
        while self.messages.is_empty() {
            self.turn();
        }
        self.messages.pop_front().unwrap()
    }

    /// Returns how the only Call ended.
    fn outcome(&mut self) -> (Result<u32, CallError>, Option<Local>) {
        while self.client.service().ended.is_empty() {
            self.turn();
        }
        let (_, outcome, lease) = self.client.service.ended.pop().unwrap();
        (outcome, lease)
    }

    fn send(&mut self, words: &[u32]) {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let posted = self.holding(&octets);
        let source = posted.source(0..octets.len()).unwrap();
        self.post(Operation::Send { source, invalidate: None }, posted);
    }

    fn write(&mut self, octets: &[u8], segment: Segment) {
        let posted = self.holding(octets);
        let source = posted.source(0..octets.len()).unwrap();
        let target = ClaimedSegment::try_from(segment).unwrap();
        self.post(Operation::Write { source, target }, posted);
    }

    /// Turns the client, and has the server take in what arrived; lets time pass if that was nothing.
    fn turn(&mut self) {
        let mut events = Vec::new();
        let worked = self.client.turn(self.now);
        self.nic.adopt_own(self.now);
        self.nic.poll(self.now, 8, &mut events);
        if !worked && events.is_empty() {
            let next = self.fabric.next_event().into_iter().chain(self.client.poll_deadline());
            let next = next.min().expect("something is to happen");
            self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
        }
        for event in events {
            match event {
                Event::Request { qp, .. } => {
                    self.qp = qp;
                    let params =
                        ConnectionParams { private_data: &self.private_data, ord: 1, ird: 1 };
                    self.nic.accept(self.now, qp, &params);
                }
                Event::Completion(done) if done.opcode == Opcode::Receive => self.on_receive(&done),
                _ => {}
            }
        }
    }

    fn on_receive(&mut self, done: &Done) {
        if done.status != Status::Success {
            return;
        }
        let lease = complete::sink(self.receives.remove(&done.id.0).unwrap(), done).unwrap();
        let words = lease.bytes()[..done.length as usize].as_chunks().0.iter();
        self.messages.push_back(words.map(|word| u32::from_be_bytes(*word)).collect());
        self.receive();
    }

    fn receive(&mut self) {
        let mut posted = self.pool.lease(4096).unwrap().into_sink();
        let sink = posted.sink(0..4096).unwrap();
        self.ids += 1;
        self.receives.insert(self.ids, posted);
        self.nic.post_receives(&mut vec![Receive::single(WrId(self.ids), sink)]).unwrap();
    }

    fn holding(&self, octets: &[u8]) -> PostedSource<Local> {
        let mut lease = self.pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(octets);
        lease.into_source()
    }

    fn post(&mut self, operation: Operation, source: PostedSource<Local>) {
        self.ids += 1;
        let flags = Flags { signaled: false, fence: false, copied: false };
        let request = WorkRequest { id: WrId(self.ids), flags, operation };
        self.nic.post(self.qp, &mut [request].into()).unwrap();
        self.sources.push(source);
    }
}

#[test]
fn each_connection_has_the_thresholds_that_its_server_said() {
    // [R8797-1-1] [R8797-4-1] [R8797-5.1-1] [R8797-5.2-1]
    let large = [0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3];
    let mut foreign = large;
    foreign[3] ^= 1;
    let cut = &large[..7];
    let said = [(&large[..], MSG), (&[], NOMSG), (&large, MSG), (&foreign, NOMSG), (cut, NOMSG)];
    let mut played = Played::new();
    for (private_data, form) in said {
        played.connect(private_data);
        // Longer than the default threshold, shorter than the announced one.
        let told = [&2000_u32.to_be_bytes()[..], &[7; 2000]].concat();
        played.call(request(TELL), &told);
        let message = played.message();
        assert_eq!((message[1], message[3]), (1, form), "{private_data:x?}");
    }
}

#[test]
fn octets_of_a_write_chunk_that_a_reply_does_not_claim_are_no_result() {
    // [R5666-3.4-8]
    for (written, claimed) in [(0, 0), (64, 0), (64, 40), (64, 64)] {
        let mut played = Played::new();
        played.connect(&[]);
        let (cx, _) = played.client.cx(played.now);
        let lease = cx.pool().lease(64).unwrap();
        played.call(request(FETCH).room(lease), &[]);
        let call = played.message();
        let [xid, 1, _, MSG, 0, 1, 1, handle, 64, high, low, 0, 0, named, 0, ..] = call[..] else {
            panic!("a Call with a Write chunk of one segment: {call:x?}")
        };
        assert_eq!(xid, named, "[R5666-4.1-2] [R5666-4.1-7]");
        let offset = u64::from(high) << 32 | u64::from(low);
        let segment = Segment { handle: Handle(handle), length: 64, offset };
        if written > 0 {
            played.write(&vec![0x5a; written], segment);
        }
        let lists = [0, 1, 1, handle, claimed, high, low, 0, 0];
        // The length of the result, and the whole result where the chunk is not used.
        let results = if claimed > 0 { vec![claimed] } else { vec![4, 0x0102_0304] };
        let reply = [&[xid, 1, 8, MSG], &lists[..], &[xid, 1, 0, 0, 0, 0], &results].concat();
        played.send(&reply);
        let (outcome, lease) = played.outcome();
        let lease = lease.expect("it comes home with the Reply");
        assert_eq!(lease.bytes(), vec![0x5a; claimed as usize], "{written} {claimed}");
        assert_eq!(outcome, Ok(claimed), "{written} {claimed}");
    }
}
