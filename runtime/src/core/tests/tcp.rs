//! Calls over TCP, beside those over RDMA, on the real loopback interface. The time is the test's own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{CallHeader, ReplyBody, ReplyHeader};
use haulage_proto::xdr::Writer;

use super::*;
use crate::core::TcpLimits;

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
    assert!(made <= 4, "{made} system calls for 32 Calls");
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
