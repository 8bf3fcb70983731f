//! Calls over TCP, beside those over RDMA, on the real loopback interface. The time is the test's own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{CallHeader, ReplyBody, ReplyHeader};
use haulage_proto::xdr::Writer;

use super::*;
use crate::core::TcpLimits;
use crate::key::Transport;
use crate::pool::Shared;

const PROGRAM: u32 = 0x2000_0001;
const TCP: TcpLimits = TcpLimits { connections_max: 8, ..TcpLimits::DEFAULT };

/// A client of a server whose turns it takes itself.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// Octets of a Call without a credential, behind its record mark.
fn call(xid: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut room = vec![0; 64 + arguments.len()];
    let mut w = Writer::new(&mut room);
    CallHeader::new(xid, PROGRAM, 1, procedure).encode(&mut w).unwrap();
    w.put(arguments).unwrap();
    w.written().to_vec()
}

fn record(octets: &[u8]) -> Vec<u8> {
    let mark = Mark::last(u32::try_from(octets.len()).unwrap()).unwrap();
    [&mark.encode()[..], octets].concat()
}

fn word(word: u32) -> [u8; 4] {
    word.to_be_bytes()
}

impl Client {
    /// Receives what has arrived; returns whether the connection is over.
    fn receive(&mut self) -> bool {
        let mut room = [0; 64 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => true,
            Ok(count) => {
                self.received.extend_from_slice(&room[..count]);
                false
            }
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Takes the first Reply that has arrived whole: its XID, how it was accepted, and its results.
    fn reply(&mut self) -> Option<(u32, ReplyBody, Vec<u8>)> {
        let mark = Mark::decode(*self.received.first_chunk()?);
        assert!(mark.is_last());
        let end = 4 + mark.length() as usize;
        if self.received.len() < end {
            return None;
        }
        let record: Vec<u8> = self.received.drain(..end).skip(4).collect();
        let (ReplyHeader { xid, body }, at) = ReplyHeader::decode(&record).unwrap();
        Some((xid, body, record[at..].to_vec()))
    }
}

impl<S: Service> World<S> {
    fn listen_tcp(&mut self, limits: TcpLimits) -> SocketAddr {
        self.server.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), limits).unwrap()
    }

    fn dial_tcp(&mut self, to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nonblocking(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// Turns the server until `done`. The loopback interface delivers without waiting for anything.
    fn until_tcp<T>(
        &mut self,
        client: &mut Client,
        mut done: impl FnMut(&mut Self, &mut Client, bool) -> Option<T>,
    ) -> T {
        for _ in 0..1_000_000 {
            let is_over = client.receive();
            if let Some(done) = done(self, client, is_over) {
                return done;
            }
            self.server.turn(self.now);
        }
        panic!("no progress");
    }

    fn reply_of(&mut self, client: &mut Client) -> (u32, ReplyBody, Vec<u8>) {
        self.until_tcp(client, |_, client, is_over| {
            let reply = client.reply();
            assert!(reply.is_some() || !is_over, "it was closed");
            reply
        })
    }

    /// Waits for the end of a connection.
    fn is_closed(&mut self, client: &mut Client) {
        self.until_tcp(client, |_, _, is_over| is_over.then_some(()));
    }

    /// Returns the connections over TCP.
    fn streams(&self) -> u32 {
        self.server.inner.common.streams.len()
    }

    /// Drops a client, and waits until the server has seen that.
    fn gone(&mut self, client: Client) {
        let before = self.streams();
        drop(client);
        while self.streams() == before {
            self.server.turn(self.now);
        }
        self.server.turn(self.now);
    }
}

fn success() -> ReplyBody {
    ReplyHeader::accepted(0, AcceptStat::Success).body
}

#[test]
fn calls_over_tcp_are_served_by_the_same_service() {
    let mut world = World::new();
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    // An item of a megabyte, in one fragment of its own, longer than a buffer.
    let item: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    let argument = [&word(1 << 20)[..], &item].concat();
    let store = record(&call(1, STORE, &argument));
    let mut sent = 0;
    while sent < store.len() {
        match client.stream.write(&store[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        world.server.turn(world.now);
    }
    assert_eq!(world.reply_of(&mut client), (1, success(), Vec::new()));
    // The item comes back from where it lies, behind its length word.
    client.stream.write_all(&record(&call(2, FETCH, &[]))).unwrap();
    assert_eq!(world.reply_of(&mut client), (2, success(), argument));
    // A list that needs memory of its own.
    client.stream.write_all(&record(&call(3, LIST, &word(LIST_MAX)))).unwrap();
    let list = [&word(LIST_MAX)[..], &vec![0x11; LIST_MAX as usize]].concat();
    assert_eq!(world.reply_of(&mut client), (3, success(), list));
    // A Call of no program, one of no procedure, and one whose arguments are nonsense.
    let mut unknown = call(4, 0, &[]);
    unknown[12..16].copy_from_slice(&word(77));
    client.stream.write_all(&record(&unknown)).unwrap();
    let body = ReplyHeader::accepted(4, AcceptStat::ProgUnavail).body;
    assert_eq!(world.reply_of(&mut client), (4, body, Vec::new()));
    client.stream.write_all(&record(&call(5, 70, &[]))).unwrap();
    let body = ReplyHeader::accepted(5, AcceptStat::ProcUnavail).body;
    assert_eq!(world.reply_of(&mut client), (5, body, Vec::new()));
    client.stream.write_all(&record(&call(6, LIST, &[]))).unwrap();
    let body = ReplyHeader::accepted(6, AcceptStat::GarbageArgs).body;
    assert_eq!(world.reply_of(&mut client), (6, body, Vec::new()));
    // A flavor that is not taken: the verdict is shorter than the header of results, and nothing of another Reply follows.
    let mut denied = call(7, 0, &[]);
    denied[24..28].copy_from_slice(&word(77));
    client.stream.write_all(&record(&denied)).unwrap();
    let (xid, body, rest) = world.reply_of(&mut client);
    assert!(matches!(body, ReplyBody::Denied(_)), "{body:?}");
    assert_eq!((xid, rest), (7, Vec::new()));
    world.gone(client);
    world.all_home();
}

#[test]
fn calls_of_a_connection_are_served_together_and_answered_in_one_go() {
    let mut world = World::new();
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    let first = record(&call(1, 0, &[]));
    client.stream.write_all(&first).unwrap();
    world.reply_of(&mut client);
    let before = world.server.inner.common.streams.counters.syscalls;
    let calls: Vec<u8> = (2..34).flat_map(|xid| record(&call(xid, TELL, &word(0)))).collect();
    client.stream.write_all(&calls).unwrap();
    // The loopback interface has delivered all of them at once.
    world.server.turn(world.now);
    let made = world.server.inner.common.streams.counters.syscalls - before;
    for xid in 2..34 {
        assert_eq!(world.reply_of(&mut client), (xid, success(), word(0).to_vec()));
    }
    // One asks which sockets have changed, one receives, one sends.
    assert!(made <= 3, "{made} system calls for 32 Calls");
    world.gone(client);
    world.all_home();
}

#[test]
fn records_come_in_any_fragments_and_any_pieces() {
    let mut world = World::new();
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    let told: Vec<u8> = (0..4000_u32).map(|at| (at % 7) as u8).collect();
    let sum: u32 = told.iter().map(|octet| u32::from(*octet)).sum();
    let octets = call(9, TELL, &[&word(4000)[..], &told].concat());
    for (fragment, piece) in [(1, 3), (4, 1), (60, 64), (1000, 17), (5000, 4097), (5000, 1)] {
        let mut stream = Vec::new();
        let count = octets.chunks(fragment).len();
        for (at, part) in octets.chunks(fragment).enumerate() {
            let length = u32::try_from(part.len()).unwrap();
            let is_last = at + 1 == count;
            let mark = if is_last { Mark::last(length) } else { Mark::more(length) };
            stream.extend(mark.unwrap().encode());
            stream.extend(part);
        }
        for piece in stream.chunks(piece) {
            client.stream.write_all(piece).unwrap();
            world.server.turn(world.now);
        }
        assert_eq!(world.reply_of(&mut client), (9, success(), word(sum).to_vec()));
    }
    world.gone(client);
    world.all_home();
}

#[test]
fn a_peer_that_breaks_the_rules_of_records_is_closed() {
    let short = record(&[1, 2, 3]);
    let too_long = Mark::more(2 << 20).unwrap().encode().to_vec();
    let empty: Vec<u8> = (0..100).flat_map(|_| Mark::more(0).unwrap().encode()).collect();
    let grown = [&Mark::more(4).unwrap().encode()[..], &word(1), &too_long].concat();
    let reply = record(&{
        let mut reply = call(1, 0, &[]);
        reply[7] = 1;
        reply
    });
    for octets in [short, too_long, empty, grown, reply] {
        let mut world = World::new();
        let at = world.listen_tcp(TCP);
        let mut client = world.dial_tcp(at);
        client.stream.write_all(&octets).unwrap();
        world.is_closed(&mut client);
        assert_eq!(client.received, []);
        assert_eq!(world.streams(), 0);
        world.all_home();
    }
}

#[test]
fn a_call_is_answered_later_while_others_of_its_connection_are_served() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    client.stream.write_all(&record(&call(1, LIST, &word(4)))).unwrap();
    client.stream.write_all(&record(&call(2, STORE, &[word(4), [9; 4]].concat()))).unwrap();
    assert_eq!(world.reply_of(&mut client), (2, success(), Vec::new()));
    world.server.service.answers = 1;
    assert_eq!(world.reply_of(&mut client), (1, success(), Vec::new()));
    // A client that goes away takes its Calls with it.
    client.stream.write_all(&record(&call(3, LIST, &word(4)))).unwrap();
    world.until_tcp(&mut client, |world, _, _| {
        (world.server.inner.census().calls_served == 1).then_some(())
    });
    // It has closed its direction alone, perhaps: the Call is still answered.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    (0..100).for_each(|_| _ = world.server.turn(world.now));
    world.server.service.answers = 1;
    assert_eq!(world.reply_of(&mut client), (3, success(), Vec::new()));
    world.is_closed(&mut client);
    world.all_home();
}

/// Pretends that time passes, until the server has closed a connection.
fn closed_after(world: &mut World<impl Service>, client: &mut Client, time: Duration) {
    for _ in 0..4 {
        world.server.turn(world.now);
    }
    let before = world.streams();
    world.now = world.now.saturating_add(time.checked_sub(Duration::from_millis(1)).unwrap());
    for _ in 0..4 {
        world.server.turn(world.now);
        // A core that was late reads for a while before it acts.
        world.now = world.now.saturating_add(Duration::from_micros(100));
    }
    assert_eq!(world.streams(), before, "it has some time left");
    world.now = world.now.saturating_add(Duration::from_millis(30));
    for _ in 0..4 {
        world.server.turn(world.now);
        world.now = world.now.saturating_add(Duration::from_millis(20));
    }
    assert_eq!(world.streams(), before - 1);
    world.until_tcp(client, |_, _, is_over| is_over.then_some(()));
}

#[test]
fn a_peer_that_is_silent_or_slow_for_too_long_is_closed() {
    let limits = TcpLimits { record_max: 1 << 20, ..TCP };
    let mut world = World::new();
    let at = world.listen_tcp(limits);
    // One that says nothing between two records.
    let mut client = world.dial_tcp(at);
    client.stream.write_all(&record(&call(1, 0, &[]))).unwrap();
    world.reply_of(&mut client);
    closed_after(&mut world, &mut client, limits.idle_timeout.unwrap());
    // One that does not go on with a record.
    for octets in [&record(&[7; 100])[..50], &record(&vec![7; 100_000])[..5000]] {
        let mut client = world.dial_tcp(at);
        client.stream.write_all(octets).unwrap();
        world.server.turn(world.now);
        closed_after(&mut world, &mut client, limits.progress_timeout);
    }
    world.all_home();
}

#[test]
fn a_peer_that_takes_no_replies_is_not_read_and_then_closed() {
    let mut world = World::new();
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    let calls: Vec<u8> =
        (0..64).flat_map(|xid| record(&call(xid, LIST, &word(LIST_MAX)))).collect();
    let rounds = 40;
    // Some hundred megabytes of Replies are asked for, and none is taken.
    let mut asked = 0;
    for _ in 0..rounds {
        match client.stream.write(&calls) {
            Ok(count) if count == calls.len() => asked += 64,
            _ => break,
        }
        (0..10).for_each(|_| _ = world.server.turn(world.now));
    }
    assert_eq!(asked, 64 * rounds);
    let held = world.server.inner.common.streams.bytes();
    assert!(held < 16 << 20, "{held} octets for one connection");
    // It is served once it takes them: nothing was lost.
    for _ in 0..asked {
        let (_, body, results) = world.reply_of(&mut client);
        assert_eq!((body, results.len()), (success(), 4 + LIST_MAX as usize));
    }
    // Again, and now it takes none at all.
    client.stream.write_all(&calls.repeat(8)).unwrap();
    for _ in 0..1000 {
        world.server.turn(world.now);
    }
    assert_eq!(world.streams(), 1);
    world.now = world.now.saturating_add(TCP.progress_timeout);
    for _ in 0..8 {
        world.server.turn(world.now);
        world.now = world.now.saturating_add(Duration::from_millis(20));
    }
    assert_eq!(world.streams(), 0);
    drop(client);
    world.server.turn(world.now);
    world.all_home();
}

#[test]
fn a_server_that_ends_lets_calls_over_tcp_end_first() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let [mut idle, mut waits] = [(); 2].map(|()| world.dial_tcp(at));
    waits.stream.write_all(&record(&call(1, LIST, &word(4)))).unwrap();
    idle.stream.write_all(&record(&call(2, STORE, &word(0)))).unwrap();
    world.reply_of(&mut idle);
    world.until_tcp(&mut waits, |world, _, _| {
        (world.server.inner.census().calls_served == 1).then_some(())
    });
    let now = world.now;
    world.server.begin_shutdown(now);
    world.is_closed(&mut idle);
    assert!(TcpStream::connect(at).is_err(), "the port is free for the next server");
    assert!(!world.server.is_drained());
    world.server.service.answers = 1;
    assert_eq!(world.reply_of(&mut waits), (1, success(), Vec::new()));
    for _ in 0..1000 {
        world.now = world.now.saturating_add(Duration::from_millis(1));
        world.server.turn(world.now);
        world.client.turn(world.now);
        world.fabric.next_event();
    }
    assert!(world.server.is_drained());
    world.is_closed(&mut waits);
}

#[test]
fn a_call_that_waits_and_is_denied_gives_back_the_memory_of_its_record() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    // Its results may be long, so it waits for its turn; no program takes its authentication flavor.
    let mut denied = call(1, LIST, &word(4));
    denied[27] = 77;
    let (front, back) = denied.split_at(20);
    client.stream.write_all(&20_u32.to_be_bytes()).unwrap();
    client.stream.write_all(front).unwrap();
    client.stream.write_all(&record(back)).unwrap();
    let (xid, body, _) = world.reply_of(&mut client);
    assert!(xid == 1 && matches!(body, ReplyBody::Denied(_)), "{body:?}");
    assert_eq!(world.server.inner.common.streams.records.held(), 0);
    world.all_home();
}

#[test]
fn a_connection_over_tcp_is_closed_by_its_name_as_any_other() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let [mut one, mut other] = [(); 2].map(|()| {
        let mut client = world.dial_tcp(at);
        client.stream.write_all(&record(&call(1, STORE, &word(0)))).unwrap();
        world.reply_of(&mut client);
        client
    });
    let (key, _) = world.server.inner.common.streams.each().next().unwrap();
    assert_eq!(key.transport(), Transport::Tcp);
    world.server.close(ConnectionId(key));
    world.is_closed(&mut one);
    other.stream.write_all(&record(&call(2, STORE, &word(0)))).unwrap();
    assert_eq!(world.reply_of(&mut other).0, 2);
    world.all_home();
}

#[test]
fn a_call_that_is_answered_once_its_connection_is_closed_gets_no_reply() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    client.stream.write_all(&record(&call(1, LIST, &word(4)))).unwrap();
    world.until_tcp(&mut client, |world, _, _| {
        (world.server.inner.common.streams.each().next()?.1.serving() == 1).then_some(())
    });
    world.server.service.answers = 1;
    world.server.turn(world.now);
    assert_eq!(world.server.service.resumed, 0, "it is answered in the next turn");
    let (key, _) = world.server.inner.common.streams.each().next().unwrap();
    world.server.close(ConnectionId(key));
    world.is_closed(&mut client);
    assert_eq!((world.server.service.resumed, client.reply()), (1, None));
    world.all_home();
}

/// A service whose FETCH leases its result, of as many octets as it is asked for, and answers as it is told to.
#[derive(Debug, Default)]
struct Lends {
    lent: u32,
}

impl Service for Lends {
    fn programs(&self) -> Vec<Program> {
        let asked = |arguments: &[u8]| {
            arguments.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets) as usize)
        };
        vec![
            Program::new(binding())
                .result_source(FETCH, crate::service::ResultSource::Leased)
                .asked_by(FETCH, asked),
        ]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == FETCH {
            let length = call.arguments.u32().unwrap() as usize;
            self.lent += 1;
            reply.item(cx.pool().lease(length).map_or(Data::Empty, Data::Local));
        }
        Outcome::Done
    }
}

#[test]
fn results_over_tcp_are_charged_until_they_have_left_and_wait_for_memory_as_others_do() {
    let mut world = World::with(Lends::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    // Sixteen results of a megabyte are more than an origin may hold of the pool.
    let calls: Vec<u8> =
        (0..16).flat_map(|xid| record(&call(xid, FETCH, &word(1 << 20)))).collect();
    let system = |world: &World<Lends>| {
        let streams = &world.server.inner.common.streams;
        streams.each().next().map(|(_, stream)| stream.user_timeout())
    };
    while world.streams() == 0 {
        world.server.turn(world.now);
    }
    assert_eq!(system(&world), Some(60_000));
    client.stream.write_all(&calls).unwrap();
    (0..100).for_each(|_| _ = world.server.turn(world.now));
    // The system's clock counts while the window is closed, though octets are taken: ours judges this peer.
    assert_eq!(system(&world), Some(0));
    let lent = world.server.service.lent;
    assert!((1..16).contains(&lent), "{lent}");
    let held = world.server.inner.common.memory.held();
    assert!(held > 0 && held <= lent as usize * (1 << 20), "{held}");
    for _ in 0..16 {
        let (_, body, results) = world.reply_of(&mut client);
        assert_eq!((body, results.len()), (success(), 4 + (1 << 20)));
    }
    assert_eq!(world.server.service.lent, 16);
    world.gone(client);
    world.all_home();
}

#[test]
fn calls_that_wait_for_what_their_own_peer_does_not_take_keep_no_other_connection_waiting() {
    let mut world = World::with(Lends::default(), [LIMITS; 2], FabricConfig::default());
    // There are 4096 places for Calls, of which an origin has half.
    let at = world.listen_tcp(TcpLimits { connections_max: 64, ..TCP });
    let calls: Vec<u8> =
        (0..120).flat_map(|xid| record(&call(xid, FETCH, &word(1 << 20)))).collect();
    let mut takes_nothing: Vec<_> = (0..20).map(|_| world.dial_tcp(at)).collect();
    for client in &mut takes_nothing {
        client.stream.write_all(&calls).unwrap();
        (0..20).for_each(|_| _ = world.server.turn(world.now));
    }
    let mut other = world.dial_tcp(at);
    other.stream.write_all(&record(&call(9, TELL, &word(0)))).unwrap();
    assert_eq!(world.reply_of(&mut other).0, 9);
    // A client that takes its Replies after all has those of all its Calls.
    let mut first = takes_nothing.remove(0);
    drop(takes_nothing);
    for _ in 0..120 {
        let (_, body, results) = world.reply_of(&mut first);
        assert_eq!((body, results.len()), (success(), 4 + (1 << 20)));
    }
    world.gone(first);
    world.gone(other);
    world.all_home();
}

#[test]
fn a_call_waits_for_one_turn_of_each_origin_at_most() {
    let mut world = World::new();
    let limits = TcpLimits { connections_max: 16, ..TCP };
    let at = world.listen_tcp(limits);
    let beside = (std::net::Ipv6Addr::LOCALHOST, 0).into();
    let beside = world.server.listen_tcp(beside, limits).unwrap();
    let mut honest = world.dial_tcp(beside);
    let calls: Vec<u8> = (0..600).flat_map(|xid| record(&call(xid, TELL, &word(0)))).collect();
    let mut busy: Vec<_> = (0..7).map(|_| world.dial_tcp(at)).collect();
    (0..100).for_each(|_| _ = world.server.turn(world.now));
    assert_eq!(world.streams(), 8);
    for client in &mut busy {
        client.stream.write_all(&calls).unwrap();
    }
    world.server.turn(world.now);
    let before = world.server.inner.common.streams.counters.calls;
    assert!(before < 600, "more than one turn: {before}");
    for xid in 0..20 {
        let before = world.server.inner.common.streams.counters.calls;
        honest.stream.write_all(&record(&call(xid, TELL, &word(0)))).unwrap();
        assert_eq!(world.reply_of(&mut honest).0, xid);
        let between = world.server.inner.common.streams.counters.calls - before;
        assert!(between <= 2 * (64 + 32), "{between} Calls of others were served first");
    }
    for client in &mut busy {
        for xid in 0..600 {
            assert_eq!(world.reply_of(client).0, xid);
        }
    }
}

/// A service whose FETCH sends the same memory to all.
#[derive(Debug, Default)]
struct Shows {
    shown: Option<Shared>,
    times: u32,
}

impl Service for Shows {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, _: Call<'_>, reply: &mut Reply) -> Outcome {
        let shown = self.shown.get_or_insert_with(|| cx.pool().lease(SHOWN).unwrap().share());
        reply.item(Data::Shared(shown.clone()));
        self.times += 1;
        Outcome::Done
    }
}

/// Octets that [`Shows`] sends.
const SHOWN: usize = 256 << 10;

#[test]
fn a_peer_that_takes_no_replies_is_not_read_though_they_take_no_memory() {
    let mut world = World::with(Shows::default(), [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let mut client = world.dial_tcp(at);
    let asked = 512;
    let calls: Vec<u8> = (0..asked).flat_map(|xid| record(&call(xid, FETCH, &word(0)))).collect();
    client.stream.write_all(&calls).unwrap();
    (0..1000).for_each(|_| _ = world.server.turn(world.now));
    // What is on its way to the client, and 4 MiB that wait for their turn, are far less than all.
    let times = world.server.service.times;
    assert!((1..asked / 2).contains(&times), "{times} of {asked}");
    for _ in 0..asked {
        let (_, body, results) = world.reply_of(&mut client);
        assert_eq!((body, results.len()), (success(), 4 + SHOWN));
    }
    world.server.service.shown = None;
    world.gone(client);
    world.all_home();
}

#[test]
fn long_records_wait_for_the_memory_that_others_have() {
    let limits = TcpLimits { record_max: 1 << 20, records_octets: 0, ..TCP };
    let mut world = World::new();
    let at = world.listen_tcp(limits);
    let [mut first, mut second] = [(); 2].map(|()| world.dial_tcp(at));
    let item = vec![5; 900_000];
    let store = record(&call(1, STORE, &[&word(900_000)[..], &item].concat()));
    let (begun, rest) = store.split_at(100_000);
    first.stream.write_all(begun).unwrap();
    (0..10).for_each(|_| _ = world.server.turn(world.now));
    second.stream.write_all(begun).unwrap();
    (0..10).for_each(|_| _ = world.server.turn(world.now));
    assert!(!world.server.turn(world.now), "it waits without turning");
    // More octets of it have it looked at, and it waits once.
    for octet in &rest[..20] {
        second.stream.write_all(&[*octet]).unwrap();
        world.server.turn(world.now);
    }
    assert_eq!(world.server.inner.common.streams.short.len(), 1);
    for (client, rest) in [(&mut first, rest), (&mut second, &rest[20..])] {
        let mut sent = 0;
        while sent < rest.len() {
            sent += client.stream.write(&rest[sent..]).unwrap_or(0);
            world.server.turn(world.now);
        }
        assert_eq!(world.reply_of(client), (1, success(), Vec::new()));
    }
    assert_eq!(world.server.inner.common.streams.records.held(), 0);
    // One that goes away gives its memory back, too, and one that waits for it goes, too.
    for client in [&mut first, &mut second] {
        client.stream.write_all(begun).unwrap();
        (0..10).for_each(|_| _ = world.server.turn(world.now));
    }
    assert!(world.server.inner.common.streams.records.held() > 0);
    assert_eq!(world.server.inner.common.streams.short.len(), 1);
    drop((first, second));
    (0..10).for_each(|_| _ = world.server.turn(world.now));
    assert_eq!((world.streams(), world.server.inner.common.streams.records.held()), (0, 0));
    assert_eq!(world.server.inner.common.streams.short, []);
    world.all_home();
}

/// A service that begins to answer FETCH with an item, and then says that it answers later.
#[derive(Debug, Default)]
struct Hesitates;

impl Service for Hesitates {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure != FETCH {
            return Outcome::Done;
        }
        reply.item(Data::Local(cx.pool().lease(100_000).unwrap()));
        Outcome::Later
    }
}

#[test]
fn what_a_call_was_to_be_answered_with_goes_to_no_other_caller() {
    let mut world = World::with(Hesitates, [LIMITS; 2], FabricConfig::default());
    let at = world.listen_tcp(TCP);
    let [mut first, mut second] = [(); 2].map(|()| world.dial_tcp(at));
    first.stream.write_all(&record(&call(1, FETCH, &[]))).unwrap();
    world.until_tcp(&mut first, |world, _, _| {
        (world.server.inner.census().calls_served == 1).then_some(())
    });
    second.stream.write_all(&record(&call(2, 0, &[]))).unwrap();
    assert_eq!(world.reply_of(&mut second), (2, success(), Vec::new()));
    world.gone(second);
    // The Call of the first is still to be answered.
    assert_eq!(world.streams(), 1);
}
