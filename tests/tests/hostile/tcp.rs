//! Clients over TCP that break the rules of records and of RPC, or keep them and take more than their part: in
//! [`marks`] what they begin and do not end, in [`calls`] what stands in a record, in [`crowds`] what many connections
//! do together, and in [`chance`] octets that a seed chooses.
//!
//! The server is a core on this thread, whose turns and time are the test's own. Its clients are sockets on the loopback
//! interface. Whatever a peer does, others are served, what is held for it is bounded, and all of it comes home.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use haulage::core::{Census, Core, Cx, Service, TcpCounters, TcpLimits};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{
    Binding, Call, CallToken, Data, Eligible, Outcome, Procedure, Program, Reply, ResultSource,
};
use haulage_proto::rpc::record::Mark;
use haulage_proto::rpc::{AcceptStat, ReplyBody, ReplyHeader};
use haulage_proto::time::Instant;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::octets;

#[path = "tcp/calls.rs"]
mod calls;
#[path = "tcp/chance.rs"]
mod chance;
#[path = "tcp/crowds.rs"]
mod crowds;
#[path = "tcp/marks.rs"]
mod marks;

const PROGRAM: u32 = 0x2000_0009;
const NULL: u32 = 0;
/// Takes octets, and returns their number and their sum.
const TALLY: u32 = 1;
/// Returns as many octets as it is asked for, from where they lie in the pool.
const FETCH: u32 = 2;
/// Returns as many octets as it is asked for, which are copied.
const LIST: u32 = 3;
/// Is not answered before the test ends.
const HOLD: u32 = 4;
/// Like [`TALLY`], but each Call has a turn for itself.
const WEIGH: u32 = 5;
const FETCH_MAX: usize = 1 << 20;
const LIST_MAX: u32 = 40_000;

const POOL_BYTES: usize = 16 << 20;
const TCP: TcpLimits = TcpLimits { connections_max: 96, ..TcpLimits::DEFAULT };

/// A service with Calls of each kind that costs something.
#[derive(Debug, Default)]
struct Giver {
    /// Calls of [`HOLD`].
    held: Vec<CallToken>,
}

impl Service for Giver {
    fn programs(&self) -> Vec<Program> {
        let item = Eligible::opaque(FETCH_MAX);
        let procedures = vec![
            Procedure::new("NULL").idempotent(),
            Procedure::new("TALLY").results_max(8).idempotent(),
            Procedure::new("FETCH").result(item).idempotent(),
            Procedure::new("LIST").results_max(4 + LIST_MAX).idempotent(),
            Procedure::new("HOLD"),
            Procedure::new("WEIGH").results_max(8).idempotent(),
        ];
        let asked = |arguments: &[u8]| {
            arguments.first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets) as usize)
        };
        let program = Program::new(Binding { program: PROGRAM, version: 1, procedures });
        let fetched = program.result_source(FETCH, ResultSource::Leased).asked_by(FETCH, asked);
        vec![fetched.costly([WEIGH])]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            HOLD => {
                self.held.push(call.token);
                return Outcome::Later;
            }
            TALLY | WEIGH => match call.arguments.opaque(1 << 20) {
                Ok(told) => {
                    let sum = told.iter().map(|octet| u32::from(*octet)).sum();
                    let count = u32::try_from(told.len()).unwrap();
                    reply.results(|w| w.words([count, sum]));
                }
                Err(_) => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            FETCH | LIST => match (call.arguments.u32(), call.procedure) {
                (Ok(count), FETCH) if count as usize <= FETCH_MAX => {
                    reply.item(cx.pool().lease(count as usize).map_or(Data::Empty, Data::Local));
                }
                (Ok(count @ ..=LIST_MAX), LIST) => {
                    reply.results(|w| w.opaque(&vec![0x11; count as usize]));
                }
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            _ => {}
        }
        Outcome::Done
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, _: &mut Reply) -> Outcome {
        Outcome::Done
    }
}

/// A server that serves over TCP, in the time of the test.
struct Server {
    core: Core<Sim, Giver>,
    at: SocketAddr,
    now: Instant,
    /// What the core leases and holds while it has no connection.
    idle: (u64, Census),
}

impl Server {
    fn new(limits: TcpLimits) -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let sim = fabric.provider(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))).unwrap();
        let pool = PoolConfig { bytes: POOL_BYTES, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).unwrap();
        let of_core =
            Limits { connections_max: 4, receives_max: 64, send_buffers_max: 64, ..LIMITS_DEFAULT };
        let mut core = Core::new(sim, Giver::default(), pool, of_core, 1).unwrap();
        let at = core.listen_tcp((Ipv4Addr::LOCALHOST, 0).into(), limits).unwrap();
        let (cx, _) = core.cx(Instant::ZERO);
        let idle = (cx.gauges().local, cx.census());
        Self { core, at, now: Instant::ZERO, idle }
    }

    /// Connects from an address of this machine of which `host` is the last octet.
    fn connect(&self, host: u8) -> Client {
        let SocketAddr::V4(at) = self.at else { panic!("it listens at an address of version 4") };
        let ours = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&ours, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, host), 0)).unwrap();
        connect(&ours, &at).unwrap();
        let stream = TcpStream::from(ours);
        stream.set_nonblocking(true).unwrap();
        Client { stream, received: Vec::new(), is_over: false }
    }

    fn turn(&mut self) {
        self.core.turn(self.now);
    }

    fn turns(&mut self, count: u32) {
        (0..count).for_each(|_| self.turn());
    }

    /// Turns until `done`. The loopback interface delivers without waiting for anything.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..100_000 {
            if let Some(done) = done(self) {
                return done;
            }
            self.turn();
        }
        panic!("no progress");
    }

    /// Sends all octets, as the server takes them; returns whether the connection stayed.
    fn send(&mut self, client: &mut Client, mut octets: &[u8]) -> bool {
        self.until(|_| {
            octets = &octets[client.push(octets)..];
            (octets.is_empty() || client.is_over).then_some(!client.is_over)
        })
    }

    /// Waits for the next Reply; `None` if the connection ends before it.
    fn reply(&mut self, client: &mut Client) -> Option<(u32, ReplyBody, Vec<u8>)> {
        self.until(|_| {
            client.receive();
            let reply = client.reply();
            (reply.is_some() || client.is_over).then_some(reply)
        })
    }

    /// Asserts that the server ends a connection, and answers nothing before.
    fn closes(&mut self, client: &mut Client, what: &str) {
        assert_eq!(self.reply(client), None, "{what}");
    }

    /// Asserts that a client with a connection of its own is served now: each kind of Call, within a few turns.
    fn serves(&mut self, client: &mut Client, what: &str) {
        let octets = vec![3; 100_000];
        for (at, (call, answer)) in (0x600d..).zip([
            ((NULL, Vec::new()), Vec::new()),
            ((TALLY, counted(&octets)), words(&[100_000, 300_000])),
            ((FETCH, words(&[5000])), [words(&[5000]), vec![0; 5000]].concat()),
            ((LIST, words(&[9000])), [words(&[9000]), vec![0x11; 9000]].concat()),
        ]) {
            assert!(self.send(client, &record(&rpc(at, call.0, &call.1))), "{what}");
            let reply = self.reply(client).unwrap_or_else(|| panic!("it ended beside {what}"));
            let (xid, body, results) = reply;
            assert_eq!((xid, body), (at, success()), "beside {what}");
            // The leased octets are whatever the pool had there.
            assert_eq!(results.len(), answer.len(), "beside {what}");
            assert!(call.0 == FETCH || results == answer, "beside {what}");
        }
    }

    /// Lets time pass, and what is due happen.
    fn pass(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        for _ in 0..8 {
            self.turn();
            // A core that was late reads for a while before it acts.
            self.now = self.now.saturating_add(Duration::from_millis(20));
        }
        self.turns(4);
    }

    fn connections(&mut self) -> u32 {
        self.core.cx(self.now).0.tcp_connections()
    }

    fn counters(&mut self) -> TcpCounters {
        *self.core.cx(self.now).0.tcp_counters()
    }

    /// Returns the octets that connections and their Calls take, of the heap and of the pool.
    fn held(&mut self) -> usize {
        let (cx, _) = self.core.cx(self.now);
        cx.connection_bytes() + cx.census().memory_charged
    }

    /// Asserts that nothing is held once all clients are gone.
    fn ends_with_nothing(mut self, clients: impl IntoIterator<Item = Client>) {
        clients.into_iter().for_each(drop);
        self.until(|server| {
            // A client that has closed its direction still gets Replies: it is gone once it does not take them.
            let (mut cx, service) = server.core.cx(server.now);
            service.held.drain(..).for_each(|token| cx.resume(token));
            (cx.tcp_connections() == 0).then_some(())
        });
        self.turn();
        assert_eq!(self.held(), 0);
        let (cx, _) = self.core.cx(self.now);
        assert_eq!((cx.gauges().local, cx.census()), self.idle);
    }
}

/// A client of a [`Server`].
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    is_over: bool,
}

impl Client {
    /// Sends as much as the connection takes now. Returns how much it was.
    fn push(&mut self, octets: &[u8]) -> usize {
        match self.stream.write(octets) {
            Ok(count) => count,
            Err(error) => {
                self.is_over |= error.kind() != ErrorKind::WouldBlock;
                0
            }
        }
    }

    /// Receives what has arrived.
    fn receive(&mut self) {
        let mut room = vec![0; 64 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.received.extend_from_slice(&room[..count]),
            Err(error) => self.is_over |= error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Takes the first Reply that has arrived whole: its XID, how it was answered, and its results.
    fn reply(&mut self) -> Option<(u32, ReplyBody, Vec<u8>)> {
        let mark = Mark::decode(*self.received.first_chunk()?);
        assert!(mark.is_last(), "a Reply is one fragment");
        let end = 4 + mark.length() as usize;
        if self.received.len() < end {
            return None;
        }
        let record: Vec<u8> = self.received.drain(..end).skip(4).collect();
        let (ReplyHeader { xid, body }, at) = ReplyHeader::decode(&record).unwrap();
        Some((xid, body, record[at..].to_vec()))
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    octets(words)
}

/// Returns octets behind their length, of which the XDR padding is part.
fn counted(octets: &[u8]) -> Vec<u8> {
    let length = u32::try_from(octets.len()).unwrap();
    [&words(&[length])[..], octets, &vec![0; octets.len().next_multiple_of(4) - octets.len()]]
        .concat()
}

/// Returns a Call without a credential.
fn rpc(xid: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    [&words(&[xid, 0, 2, PROGRAM, 1, procedure, 0, 0, 0, 0])[..], arguments].concat()
}

/// Returns the mark of a fragment that another one follows.
fn more(length: u32) -> Vec<u8> {
    Mark::more(length).unwrap().encode().to_vec()
}

/// Returns a record of one fragment.
fn record(octets: &[u8]) -> Vec<u8> {
    let mark = Mark::last(u32::try_from(octets.len()).unwrap()).unwrap();
    [&mark.encode()[..], octets].concat()
}

fn success() -> ReplyBody {
    ReplyHeader::accepted(0, AcceptStat::Success).body
}
