//! Clients of version 2 that continue their Calls, and servers that continue their Replies: they send them in as many
//! messages as they like, each when they have credit for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use haulage::core::NoService;
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::provider::{ConnectionParams, Event, Operation, Provider as _, Receive, WorkRequest};
use haulage::service::{CallError, Request};
use haulage::sys::{clock, complete};
use haulage_mr_pool::{Local, PagePreference, Pool, PoolConfig, PostedSink, PostedSource};
use haulage_proto::negotiate::Refusal;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Access, Flags, Opcode, QpNum, Status, WrId};
use haulage_tests::by_number::ByNumber as _;
use haulage_tests::ends::SERVER_BYTES;
use haulage_tests::link::MESSAGE;

use super::caller::{MOVE, Pair, rpc_reply};
use super::two::{
    BARE, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, ERROR, GRANT, INVAL_CONT, Peer,
    REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, SYSTEM, message, words,
};
use super::{
    GET, ITEM_MAX, Keeper, LATE_GET, LIST, NULL, PRIVATE_DATA, PROGRAM, PUT, TALLY, call, nowhere,
    segment, server, server_within,
};

/// A client that obeys the credits it is given.
struct Continuing {
    peer: Peer,
    /// Messages sent, and the most that may be sent.
    sent: u32,
    limit: u32,
    /// Messages of the server other than grants that have arrived.
    heard: Vec<Vec<u32>>,
}

impl Continuing {
    fn open(server: SocketAddr) -> Self {
        Self::saying(server, &[0])
    }

    /// Opens a connection with these properties.
    fn saying(server: SocketAddr, properties: &[u32]) -> Self {
        let mut peer = Peer::connect(server);
        peer.0.send(&message(1, CONNPROP_FINAL, properties, &[])).unwrap();
        let mut opened = Self { peer, sent: 1, limit: 1, heard: Vec::new() };
        opened.hear();
        // Its properties.
        opened.heard.clear();
        opened
    }

    /// Takes in one message of the server.
    fn hear(&mut self) {
        let heard = words(&self.peer.0.message(None).unwrap().unwrap());
        self.limit = heard[2];
        if heard[3] != GRANT {
            self.heard.push(heard);
        }
    }

    fn send(&mut self, message: &[u8]) {
        while self.sent == self.limit {
            self.hear();
        }
        self.peer.0.send(message).unwrap();
        self.sent += 1;
    }

    /// Sends a Call in parts of these lengths, and the rest in the last one, which has this header.
    fn send_in_parts(&mut self, call: &[u8], parts: &[usize], header: &[u32]) {
        let xid = words(&call[..4])[0];
        let mut rest = call;
        for length in parts {
            let part;
            (part, rest) = rest.split_at(*length);
            let remaining = u32::try_from(rest.len()).unwrap();
            self.send(&message(xid, CALL_MIDDLE, &[remaining], part));
        }
        self.send(&message(xid, CALL_INLINE, header, rest));
    }

    /// Returns the Reply to the only Call: the words behind the header of its last message, the Payload stream put
    /// together from that and the messages before it, and their number.
    fn reply(&mut self, xid: u32, writes: usize) -> (Vec<u32>, Vec<u32>, usize) {
        let (mut stream, mut messages, mut credit) = (Vec::new(), 0, None);
        loop {
            let heard = loop {
                if let Some(heard) = (!self.heard.is_empty()).then(|| self.heard.remove(0)) {
                    break heard;
                }
                self.hear();
            };
            messages += 1;
            // All parts have the XID and the credit of the Reply.
            assert_eq!(heard[..2], [xid, 2], "{heard:x?}");
            assert_eq!(*credit.get_or_insert(heard[2]), heard[2]);
            let header = if heard[3] == REPLY_MIDDLE { 5 } else { 4 + writes };
            let (header, part) = heard.split_at(header);
            stream.extend_from_slice(part);
            match header[3] {
                REPLY_MIDDLE => assert!(header[4] > 0),
                REPLY_INLINE => return (header[4..].to_vec(), stream, messages),
                _ => panic!("no part of a Reply: {heard:x?}"),
            }
        }
    }

    /// Returns the next message that is no grant: its XID, its type, and the words behind.
    fn answer(&mut self) -> (u32, u32, Vec<u32>) {
        let before = self.heard.len();
        while self.heard.len() == before {
            self.hear();
        }
        let heard = self.heard.pop().unwrap();
        (heard[0], heard[3], heard[4..].to_vec())
    }

    /// Checks that a Call without arguments is served.
    fn is_served(&mut self, xid: u32) {
        self.send(&message(xid, CALL_INLINE, &BARE, &call(xid, NULL, &[])));
        let (answered, htype, _) = self.answer();
        assert_eq!((answered, htype), (xid, REPLY_INLINE));
    }
}

/// Returns a Call of TALLY with `length` octets, and the words of its results.
fn tally(xid: u32, length: u32) -> (Vec<u8>, [u32; 2]) {
    let octets: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let sum = octets.iter().map(|octet| u32::from(*octet)).sum();
    let arguments = [&length.to_be_bytes()[..], &octets].concat();
    let padding = vec![0; octets.len().next_multiple_of(4) - octets.len()];
    ([call(xid, TALLY, &[]), arguments, padding].concat(), [length, sum])
}

/// The Reply behind its empty Write list and its RPC header.
fn results(answer: &(u32, u32, Vec<u32>)) -> &[u32] {
    assert_eq!(answer.1, REPLY_INLINE, "{answer:x?}");
    &answer.2[answer.2.len() - 2..]
}

// [V2-6.1-1]
#[test]
fn a_call_in_any_number_of_parts_is_served_as_one() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    let lengths: [&[usize]; 7] = [
        &[4000; 4],
        &[40, 4000, 4000, 4000, 4000],
        &[1; 60],
        &[0, 1, 0, 3, 0, 4000, 4000, 0],
        &[999; 20],
        &[4; 12],
        &[],
    ];
    for (xid, parts) in (10..).zip(lengths) {
        let length = parts.iter().sum::<usize>().max(40) - 40 + 1001;
        let (call, expected) = tally(xid, u32::try_from(length).unwrap());
        peer.send_in_parts(&call, parts, &BARE);
        let answer = peer.answer();
        assert_eq!((answer.0, results(&answer)), (xid, &expected[..]), "{parts:?}");
    }
    peer.is_served(9);
    // The argument of such a Call can be read from its client.
    let item = vec![0x5a; 20_001];
    let source = peer.peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let read = [&[0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
    peer.send_in_parts(&call(30, PUT, &[source.length]), &[40], &read);
    let (xid, htype, _) = peer.answer();
    assert_eq!((xid, htype), (30, REPLY_INLINE));
    server.stop().unwrap();
}

#[test]
fn parts_without_octets_take_the_memory_of_a_call_once() {
    const TOTAL: u32 = 500_000;
    let server = server();
    let mut peer = Continuing::open(server.started);
    let (call, expected) = tally(7, TOTAL - 44);
    assert_eq!(call.len(), TOTAL as usize);
    // Each begins at the first octet. Memory for all of them would be three times what the server has.
    for _ in 0..100 {
        peer.send(&message(7, CALL_MIDDLE, &[TOTAL], &[]));
    }
    // Another connection of the same address has memory for a long argument.
    let mut other = Continuing::open(server.started);
    let item = vec![0x5a; ITEM_MAX];
    let source = other.peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let read = [&[0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
    other.send_in_parts(&super::call(30, PUT, &[source.length]), &[], &read);
    let (xid, htype, _) = other.answer();
    assert_eq!((xid, htype), (30, REPLY_INLINE));
    peer.send_in_parts(&call, &[4000; 125], &BARE);
    assert_eq!(results(&peer.answer()), expected);
    drop((peer, other));
    // A core that ends checks that it holds nothing.
    server.stop().unwrap();
}

#[test]
fn the_reply_to_a_continued_call_invalidates_the_handle_that_its_last_part_names() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    let item = vec![0x5a; 20_000];
    let source = peer.peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let read = [&[source.handle.0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
    peer.send_in_parts(&call(30, PUT, &[source.length]), &[40], &read);
    let (xid, htype, _) = peer.answer();
    assert_eq!((xid, htype), (30, REPLY_INLINE));
    assert_eq!((peer.peer.0.invalidations(), peer.peer.0.exposes(source.handle)), (1, false));
    server.stop().unwrap();
}

#[test]
fn the_last_value_of_a_property_that_comes_twice_in_a_set_counts() {
    const RECEIVE_BUFFER: u32 = 2;
    let server = server();
    for (first, last, expected) in [(4096, 2048, 3), (2048, 4096, 2)] {
        let twice = [2, RECEIVE_BUFFER, 4, first, RECEIVE_BUFFER, 4, last];
        let mut peer = Continuing::saying(server.started, &twice);
        peer.send(&message(7, CALL_INLINE, &BARE, &call(7, LIST, &[5000])));
        let (_, _, messages) = peer.reply(7, 1);
        assert_eq!(messages, expected, "{first}, then {last}");
    }
    server.stop().unwrap();
}

#[test]
fn a_call_that_was_too_long_is_taken_under_its_xid_when_it_is_sent_again() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    let (call, expected) = tally(7, 5000);
    let (first, _) = call.split_at(1000);
    peer.send(&message(7, CALL_MIDDLE, &[1 << 30], first));
    assert_eq!(peer.answer(), (7, ERROR, SYSTEM.to_vec()));
    peer.send(&message(7, CALL_MIDDLE, &[(1 << 30) - 1000], first));
    peer.send_in_parts(&call, &[1000, 4000], &BARE);
    let answer = peer.answer();
    assert_eq!((answer.0, results(&answer)), (7, &expected[..]));
    peer.is_served(8);
    server.stop().unwrap();
}

#[test]
fn a_call_that_comes_in_another_form_amid_its_parts_is_over() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    peer.send(&message(7, CALL_MIDDLE, &[5000], &super::call(7, TALLY, &[])));
    let place = [&[1][..], &nowhere(64), &[0, 0, 0]].concat();
    peer.send(&message(7, CALL_EXTERNAL, &[&[0][..], &place].concat(), &[]));
    assert_eq!(peer.answer(), (7, ERROR, INVAL_CONT.to_vec()));
    // No other Call waits until the time of the first is over.
    peer.is_served(8);
    server.stop().unwrap();
}

#[test]
fn a_call_whose_parts_bring_no_octets_ends_in_time() {
    let progress_timeout = Duration::from_millis(50);
    let limits =
        Limits { connections_max: 16, receives_max: 256, progress_timeout, ..LIMITS_DEFAULT };
    let server = server_within(limits, |_| Keeper::default());
    let mut peer = Continuing::open(server.started);
    let refused = loop {
        peer.send(&message(7, CALL_MIDDLE, &[5000], &[]));
        if let Some(refused) = peer.heard.pop() {
            break refused;
        }
    };
    assert_eq!((refused[0], refused[3], &refused[4..]), (7, ERROR, SYSTEM));
    peer.is_served(9);
    server.stop().unwrap();
}

#[test]
fn a_message_between_two_parts_is_refused_and_the_call_goes_on() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    let (long, expected) = tally(7, 5000);
    let (first, rest) = long.split_at(4000);
    peer.send(&message(7, CALL_MIDDLE, &[u32::try_from(rest.len()).unwrap()], first));
    peer.send(&message(8, CALL_INLINE, &BARE, &call(8, NULL, &[])));
    // [V2-6.3.6-2]
    assert_eq!(peer.answer(), (8, ERROR, INVAL_CONT.to_vec()));
    // What is wrong with it besides does not matter.
    peer.send(&message(8, CALL_INLINE, &[0], &[]));
    assert_eq!(peer.answer(), (8, ERROR, INVAL_CONT.to_vec()));
    peer.send(&message(7, CALL_INLINE, &BARE, rest));
    assert_eq!(results(&peer.answer()), expected);
    // [V2-7.1.4-1] a part that does not fit ends its Call.
    peer.send(&message(9, CALL_MIDDLE, &[5000], &call(9, TALLY, &[])));
    peer.send(&message(9, CALL_MIDDLE, &[1], &[0; 40]));
    assert_eq!(peer.answer(), (9, ERROR, INVAL_CONT.to_vec()));
    // So does one that is malformed, and [V2-7.1.4-2] what still comes of it is dropped.
    peer.send(&message(11, CALL_MIDDLE, &[5000], &call(11, TALLY, &[])));
    peer.send(&message(11, CALL_MIDDLE, &[], &[]));
    assert_eq!(peer.answer(), (11, ERROR, INVAL_CONT.to_vec()));
    peer.send(&message(11, CALL_MIDDLE, &[1000], &[0; 40]));
    peer.send(&message(11, CALL_INLINE, &BARE, &[0; 4]));
    peer.is_served(10);
    server.stop().unwrap();
}

#[test]
fn a_call_of_which_the_rest_does_not_come_is_given_up_alone() {
    let progress_timeout = Duration::from_millis(50);
    let limits =
        Limits { connections_max: 16, receives_max: 256, progress_timeout, ..LIMITS_DEFAULT };
    let server = server_within(limits, |_| Keeper::default());
    let mut peer = Continuing::open(server.started);
    for xid in [7, 8] {
        peer.send(&message(xid, CALL_MIDDLE, &[5000], &call(xid, TALLY, &[])));
        assert_eq!(peer.answer(), (xid, ERROR, SYSTEM.to_vec()));
        // [V2-7.1.4-2] what still comes of it is dropped.
        peer.send(&message(xid, CALL_INLINE, &BARE, &[0; 4]));
        peer.is_served(9);
    }
    server.stop().unwrap();
}

/// Peers on one provider, each of which begins the longest Call and stops. Nothing moves on their connections after that.
struct Crowd {
    provider: Iwarp,
    pool: Pool,
    posted: u64,
    receives: BTreeMap<u64, PostedSink>,
    sends: BTreeMap<u64, PostedSource<Local>>,
}

impl Crowd {
    fn stopped(server: SocketAddr, peers: usize) -> Self {
        let config = Config { connections_max: 2 * peers, ..Config::default() };
        let pool = PoolConfig { bytes: 32 << 20, pages: PagePreference::Heap, node: None };
        let (provider, pool) = (Iwarp::new(&config).unwrap(), Pool::new(&pool).unwrap());
        let (receives, sends) = (BTreeMap::new(), BTreeMap::new());
        let mut crowd = Self { provider, pool, posted: 0, receives, sends };
        // Each is sent properties, and a grant or two.
        (0..4 * peers).for_each(|_| crowd.receive());
        let params = ConnectionParams { private_data: &PRIVATE_DATA, ord: 0, ird: 1 };
        for _ in 0..peers {
            crowd.provider.connect(clock::now(), server, &params).unwrap();
        }
        let rest = LIMITS_DEFAULT.message_max - 40;
        let part = message(7, CALL_MIDDLE, &[rest], &call(7, TALLY, &[]));
        // A peer has begun its Call once it has sent two messages.
        let (mut sent, mut events) = (BTreeMap::new(), Vec::new());
        while sent.len() < peers || sent.values().any(|sent| *sent < 2) {
            crowd.provider.poll(clock::now(), 16, &mut events);
            if events.is_empty() {
                crowd.provider.sleep(Some(Duration::from_millis(10)));
            }
            for event in events.drain(..) {
                match event {
                    Event::Established { qp, .. } => {
                        sent.insert(qp, 0);
                        crowd.send(qp, &message(1, CONNPROP_FINAL, &[0], &[]));
                    }
                    Event::Completion(done) if done.opcode == Opcode::Receive => {
                        let posted = crowd.receives.remove(&done.id.0).unwrap();
                        let lease = complete::sink(posted, &done).unwrap();
                        // The properties of the server bring the credit for the next message.
                        if words(lease.bytes())[3] == CONNPROP_FINAL {
                            crowd.send(done.qp, &part);
                        }
                    }
                    Event::Completion(done) => {
                        assert_eq!((done.opcode, done.status), (Opcode::Send, Status::Success));
                        let posted = crowd.sends.remove(&done.id.0).unwrap();
                        drop(complete::source(posted, &done));
                        *sent.get_mut(&done.qp).unwrap() += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        crowd
    }

    fn receive(&mut self) {
        let mut posted = self.pool.lease(MESSAGE).unwrap().into_sink();
        let sink = posted.sink(0..MESSAGE).unwrap();
        self.posted += 1;
        self.receives.insert(self.posted, posted);
        let mut batch = vec![Receive::single(WrId(self.posted), sink)];
        self.provider.post_receives(&mut batch).unwrap();
    }

    fn send(&mut self, qp: QpNum, message: &[u8]) {
        let mut lease = self.pool.lease(message.len()).unwrap();
        lease.bytes_mut().copy_from_slice(message);
        let posted = lease.into_source();
        let operation =
            Operation::Send { source: posted.source(0..message.len()).unwrap(), invalidate: None };
        let flags = Flags { signaled: true, ..Flags::default() };
        self.posted += 1;
        self.sends.insert(self.posted, posted);
        let mut batch = [WorkRequest { id: WrId(self.posted), flags, operation }].into();
        self.provider.post(qp, &mut batch).unwrap();
    }
}

#[test]
fn peers_that_begin_long_calls_and_stop_leave_memory_to_another() {
    let limits = Limits {
        connections_max: 257,
        connections_each_max: 257,
        receives_max: 1280,
        send_buffers_max: 108,
        ..LIMITS_DEFAULT
    };
    // All are one origin. Their messages leave room for a Call of the honest client in the half of the memory that an
    // origin may hold, and would leave none in all of it.
    let all = SERVER_BYTES - limits.transport_bytes();
    let left = [all / 2, all].map(|bytes| bytes % (limits.message_max as usize));
    assert!(left[0] > 300_000 && left[1] < 200_000, "{left:?}");
    let server = server_within(limits, |_| Keeper::default());
    let stopped = Crowd::stopped(server.started, 256);
    let mut honest = Continuing::open(server.started);
    for xid in 10..20 {
        let (call, expected) = tally(xid, 200_000);
        honest.send_in_parts(&call, &[4000; 50], &BARE);
        assert_eq!(results(&honest.answer()), expected);
    }
    drop(stopped);
    server.stop().unwrap();
}

/// The words of octets, padding included.
fn padded(octets: &[u8]) -> Vec<u32> {
    let padding = octets.len().next_multiple_of(4) - octets.len();
    words(&[octets, &[0; 3][..padding]].concat())
}

// [V2-6.6.4-1]
#[test]
fn results_that_fit_no_chunk_come_in_several_messages() {
    let server = server();
    let mut peer = Continuing::open(server.started);
    let item: Vec<u8> = (0..20_001_u32).map(|at| (at % 251) as u8).collect();
    let length = u32::try_from(item.len()).unwrap();
    let source = peer.peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let read = [&[0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
    peer.send(&message(3, CALL_INLINE, &read, &call(3, PUT, &[length])));
    assert_eq!(peer.reply(3, 1).2, 1);
    let small = |chunk: &[u32]| [&[0, 0, 1][..], chunk, &[0, 0]].concat();
    let one = [&[1][..], &nowhere(16)].concat();
    let reply = [&[0, 0, 0, 1, 1][..], &nowhere(9000)].concat();
    let whole = [&[0, 0, 0, 0, 0, length][..], &padded(&item)].concat();
    for (xid, procedure, chunks, writes) in [
        (4, GET, BARE.to_vec(), vec![0]),
        (5, LATE_GET, BARE.to_vec(), vec![0]),
        // A chunk that is too small comes back unused.
        (6, GET, small(&one), vec![1, 1, 0xbad, 0, 0, 0x1000, 0]),
        (7, GET, small(&[0]), vec![1, 0, 0]),
        (8, GET, reply, vec![0]),
    ] {
        peer.send(&message(xid, CALL_INLINE, &chunks, &call(xid, procedure, &[])));
        let (returned, stream, messages) = peer.reply(xid, writes.len());
        assert_eq!((stream[0], returned, messages), (xid, writes, 5));
        assert_eq!(stream[1], 1);
        assert_eq!(stream[2..], whole[1..]);
    }
    // [V2-4.2.1-5] A Reply of several messages waits for the credits of all, in front of others.
    peer.is_served(9);
    // Results that are no item.
    for (xid, length) in (20..).zip([5_000, 4_096, 60_000]) {
        peer.send(&message(xid, CALL_INLINE, &BARE, &call(xid, LIST, &[length])));
        let (_, stream, messages) = peer.reply(xid, 1);
        assert_eq!(messages, (24 + 4 + length as usize).div_ceil(4096 - 20));
        assert_eq!(stream[6], length);
        assert!(stream[7..].iter().all(|word| *word == 0x1111_1111));
        assert_eq!(stream.len() * 4, 24 + 4 + length as usize);
    }
    server.stop().unwrap();
}

/// A server that obeys the credits it is given, and its client.
struct Answering {
    pair: Pair,
    sent: u32,
    limit: u32,
}

impl Answering {
    fn open() -> Self {
        Self::to(LIMITS_DEFAULT, &[0])
    }

    /// Accepts a client that has these limits, and answers its first message with `properties`.
    fn to(limits: Limits, properties: &[u32]) -> Self {
        let properties = |xid| message(xid, CONNPROP_FINAL, properties, &[]);
        let pair = Pair::within(limits, NoService).answered(properties);
        // The properties are the first message.
        Self { pair, sent: 1, limit: 1 }
    }

    /// Has the client make a Call. Returns its XID.
    fn call(&mut self) -> u32 {
        self.pair.begin(NULL, 0);
        loop {
            let heard = self.hear();
            if heard[3] == CALL_INLINE {
                return heard[0];
            }
        }
    }

    fn hear(&mut self) -> Vec<u32> {
        let heard = words(&self.pair.link.message(None).unwrap().unwrap());
        self.limit = heard[2];
        heard
    }

    fn send(&mut self, message: &[u8]) {
        while self.sent == self.limit {
            self.hear();
        }
        self.pair.send(message);
        self.sent += 1;
    }

    fn send_in_parts(&mut self, xid: u32, reply: &[u8], parts: &[usize]) {
        let mut rest = reply;
        for length in parts {
            let part;
            (part, rest) = rest.split_at(*length);
            let remaining = u32::try_from(rest.len()).unwrap();
            self.send(&message(xid, REPLY_MIDDLE, &[remaining], part));
        }
        self.send(&message(xid, REPLY_INLINE, &[0], rest));
    }

    /// Returns the results of the only Call.
    fn results(&mut self) -> Result<Vec<u8>, CallError> {
        let ended = self.pair.thread.started.ended().unwrap();
        ended.1.map(|reply| reply.results().rest().to_vec()).map_err(CallError::from)
    }
}

// [V2-6.6.2-1]
#[test]
fn arguments_that_the_server_takes_in_no_chunk_come_in_several_messages() {
    // One segment of 1000 octets.
    let mut server = Answering::to(LIMITS_DEFAULT, &[2, 3, 4, 1000, 4, 4, 1]);
    for length in [4_100, 20_000, 20_001, 60_000] {
        let mut lease = server.pair.thread.started.lease(length).unwrap();
        lease.bytes_mut().iter_mut().zip(0..).for_each(|(place, at)| *place = (at % 251) as u8);
        let item = lease.bytes().to_vec();
        let argument = Some(lease);
        let request = Request::new(MOVE).argument(argument);
        server.pair.thread.started.begin(request, |w| w.u32(9)).unwrap();
        let (mut stream, mut parts, mut left) = (Vec::new(), 0, None);
        let xid = loop {
            let heard = server.hear();
            if heard[3] == GRANT {
                continue;
            }
            let (header, part) = heard.split_at(if heard[3] == CALL_MIDDLE { 5 } else { 8 });
            stream.extend_from_slice(part);
            parts += 1;
            if header[3] == CALL_INLINE {
                assert_eq!(header[4..], BARE);
                break header[0];
            }
            assert_eq!(header[3], CALL_MIDDLE);
            let rest = header[4] as usize + 4 * part.len();
            assert_eq!(*left.get_or_insert(rest), rest);
            left = Some(header[4] as usize);
        };
        let octets = u32::try_from(length).unwrap();
        let header = [xid, 0, 2, PROGRAM, 1, MOVE, 0, 0, 0, 0, 9, octets];
        assert!(stream == [&header[..], &padded(&item)].concat(), "{length}");
        // Messages have 4096 octets.
        assert_eq!(parts, (4 * stream.len() + 12).div_ceil(4096 - 20), "{length}");
        server.send(&message(xid, REPLY_INLINE, &[0], &rpc_reply(xid)));
        assert_eq!(server.results(), Ok(Vec::new()));
    }
    server.pair.thread.stop().unwrap();
}

// [V2-6.1-1]
#[test]
fn a_reply_in_any_number_of_parts_is_taken_as_one() {
    let mut server = Answering::open();
    let results: Vec<u8> = (0..21_000_u32).map(|at| (at % 251) as u8).collect();
    let lengths: [&[usize]; 5] = [&[4000; 5], &[1; 40], &[0, 3, 0, 4000], &[24, 999, 999], &[]];
    for parts in lengths {
        let xid = server.call();
        let length = parts.iter().sum::<usize>().max(24) - 24 + 100;
        let reply = [&rpc_reply(xid), &results[..length]].concat();
        server.send_in_parts(xid, &reply, parts);
        assert_eq!(server.results(), Ok(results[..length].to_vec()), "{parts:?}");
    }
    server.pair.thread.stop().unwrap();
}

#[test]
fn parts_of_a_reply_without_octets_take_its_memory_once() {
    const TOTAL: u32 = 300_000;
    let mut server = Answering::open();
    let xid = server.call();
    // Memory for all of them would be more than the client has.
    for _ in 0..100 {
        server.send(&message(xid, REPLY_MIDDLE, &[TOTAL], &[]));
    }
    let results = vec![7; TOTAL as usize - 24];
    server.send_in_parts(xid, &[&rpc_reply(xid)[..], &results].concat(), &[4000; 74]);
    assert_eq!(server.results(), Ok(results));
    server.pair.thread.stop().unwrap();
}

#[test]
fn a_reply_that_breaks_off_ends_its_call_and_no_other() {
    let mut server = Answering::open();
    let begin = |server: &mut Answering| {
        let xid = server.call();
        server.send(&message(xid, REPLY_MIDDLE, &[100], &rpc_reply(xid)));
        xid
    };
    let refused = |error| Err(CallError::Refused(Refusal::Two(error)));
    // The rest is longer than it was to be.
    let xid = begin(&mut server);
    server.send(&message(xid, REPLY_INLINE, &[0], &[0; 104]));
    assert_eq!(server.results(), refused(ErrorBody::InvalCont));
    // The server has thought better of it.
    let xid = begin(&mut server);
    server.send(&message(xid, ERROR, &[100], &[]));
    assert_eq!(server.results(), refused(ErrorBody::System));
    // Nobody waits for it.
    server.send(&message(77, REPLY_MIDDLE, &[1 << 19], &rpc_reply(77)));
    server.send(&message(77, REPLY_INLINE, &[0], &[0; 8]));
    let xid = server.call();
    let reply = [rpc_reply(xid), vec![1; 5000]].concat();
    server.send_in_parts(xid, &reply, &[4000]);
    assert_eq!(server.results(), Ok(vec![1; 5000]));
    server.pair.thread.stop().unwrap();
}

// [V2-6.3.9-2]
#[test]
fn a_message_between_the_parts_of_a_reply_is_refused_and_the_reply_goes_on() {
    let mut server = Answering::open();
    let other = rpc_reply(88);
    for (between, header, payload) in [
        (REPLY_INLINE, &[0][..], &other[..]),
        (REPLY_MIDDLE, &[0], &other),
        (REPLY_EXTERNAL, &[0, 1, 0], &[]),
        (CONNPROP_FINAL, &[0], &other),
    ] {
        let xid = server.call();
        server.send(&message(xid, REPLY_MIDDLE, &[4000], &rpc_reply(xid)));
        server.send(&message(88, between, header, payload));
        let told = loop {
            let heard = server.hear();
            if heard[3] != GRANT {
                break heard;
            }
        };
        assert_eq!((told[0], told[3], &told[4..]), (88, ERROR, INVAL_CONT), "{between}");
        server.send(&message(xid, REPLY_INLINE, &[0], &[1; 4000]));
        assert_eq!(server.results(), Ok(vec![1; 4000]), "{between}");
    }
    server.pair.thread.stop().unwrap();
}

#[test]
fn a_reply_of_which_the_rest_does_not_come_ends_its_call_alone() {
    let progress_timeout = Duration::from_millis(50);
    let mut server = Answering::to(Limits { progress_timeout, ..LIMITS_DEFAULT }, &[0]);
    for _ in 0..2 {
        let xid = server.call();
        server.send(&message(xid, REPLY_MIDDLE, &[100], &rpc_reply(xid)));
        let refused = CallError::Refused(Refusal::Two(ErrorBody::System));
        assert_eq!(server.results(), Err(refused));
        // The client drops what still comes of it.
        server.send(&message(xid, REPLY_INLINE, &[0], &[0; 100]));
    }
    let xid = server.call();
    server.send_in_parts(xid, &rpc_reply(xid), &[4]);
    assert_eq!(server.results(), Ok(Vec::new()));
    server.pair.thread.stop().unwrap();
}
