//! A server and a client on the simulated fabric, in virtual time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::core::Core;
use haulage::limits::{LIMITS_DEFAULT, Limits, SEGMENTS_MAX, Versions};
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::chunk::Returned;
use haulage::proto::time::Instant;
use haulage::proto::xdr::Writer;
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{CallError, CallToken, ConnectionId, Finished, InlineRoom, Request};

use super::*;
use crate::figures::Figures;
use crate::protocol::{self, Carriage};
use crate::stat::Stat;

mod answered;
mod cores;
mod moving;
mod segments;
mod several;
mod watching;

#[test]
fn values_of_every_size_survive_whatever_is_in_flight_around_them() {
    let mut world = World::new(1, 64 << 20);
    let sizes = [0, 1, 3, 4095, 4096, 1 << 20, (4 << 20) - 1, 4 << 20];
    for (n, size) in sizes.into_iter().enumerate() {
        let value = world.value(size, n);
        world.put(n, &n.to_string(), value);
    }
    for n in 0..sizes.len() {
        assert_eq!(world.done(n), DONE);
    }
    // All GETs are under way at once, each with a lease of its own for the value.
    for (n, size) in sizes.into_iter().enumerate() {
        let room = world.value(size.max(1), 99);
        world.get(n, &n.to_string(), room);
    }
    for (n, size) in sizes.into_iter().enumerate() {
        let value = world.got(n);
        assert!(value.bytes() == pattern(size, n), "{size} octets");
    }
}

#[test]
fn values_fit_in_the_memory_of_the_server_without_its_index() {
    const MEMORY: u64 = 8 << 20;
    let mut world = World::new(1, MEMORY);
    let most = MEMORY - KvService::index_octets_max(1, 1000) as u64;
    assert_eq!(world.stat().value_bytes_max, most);
    let value = world.value(1 << 20, 0);
    world.put(0, "key", value);
    assert_eq!(world.done(0), DONE);
    let stat = world.stat();
    assert!(stat.value_bytes_max <= most && stat.value_bytes == 1 << 20, "{stat:?}");
}

#[test]
fn many_calls_on_four_connections_all_come_back_right() {
    const CALLS: usize = 64;
    let mut world = World::new(4, 64 << 20);
    for n in 0..CALLS {
        let value = world.value(100 + n * 977, n);
        world.put(n, &format!("key {n}"), value);
    }
    (0..CALLS).for_each(|n| assert_eq!(world.done(n), DONE, "{n}"));
    for n in 0..CALLS {
        let room = world.value(64 << 10, 0);
        world.get(n, &format!("key {n}"), room);
    }
    for n in 0..CALLS {
        assert!(world.got(n).bytes() == pattern(100 + n * 977, n), "{n}");
    }
    world.settle();
    let stat = world.stat();
    assert_eq!((stat.keys, stat.connections), (64, 4));
    assert_eq!((stat.leases_posted, stat.leases_exposed, stat.orphans), (0, 0, 0));
    assert_eq!(stat.value_bytes, (0..64).map(|n| 100 + n * 977).sum::<u64>());
    assert_eq!(
        world.unreduced(),
        0,
        "every value longer than a chunk that names it was placed directly"
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_its_reason() {
    let mut world = World::new(1, 64 << 20);
    let room = world.value(10, 0);
    world.get(1, "nobody", room);
    assert_eq!(world.done(1), refused(Refusal::NotFound));
    world.ask(2, request(Procedure::Del), |w| w.opaque(b"nobody"));
    assert_eq!(world.done(2), refused(Refusal::NotFound));
    let value = world.value(VALUE_MAX + 1, 0);
    world.put(3, "large", value);
    assert_eq!(world.done(3), refused(Refusal::TooLarge { max: VALUE_MAX as u64 }));
    for key in [&b""[..], b"\xff"] {
        for procedure in [Procedure::Del, Procedure::Get] {
            world.ask(4, request(procedure), |w| w.opaque(key));
            assert_eq!(world.done(4), refused(Refusal::BadKey), "{procedure:?}");
        }
    }
    world.ask(6, request(Procedure::Del), |w| w.opaque(&[b'k'; KEY_MAX + 1]));
    let garbage = Err(CallError::Rejected(AcceptStat::GarbageArgs));
    assert_eq!(world.done(6), garbage);
    world.ask(7, request(Procedure::Stat), |w| w.u32(0));
    assert_eq!(world.done(7), garbage, "arguments where there are none");
    world.ask(8, request(Procedure::Put), |w| {
        w.opaque(b"k")?;
        w.opaque(b"v")?;
        w.u32(0)
    });
    assert_eq!(world.done(8), garbage, "more arguments than there are");
    assert_eq!(world.stat().keys, 0);
}

#[test]
fn a_value_longer_than_its_room_and_all_messages_comes_into_a_longer_lease() {
    let mut world = World::new(1, 64 << 20);
    let value = world.value(600_000, 5);
    world.put(0, "k", value);
    assert_eq!(world.done(0), DONE);
    let room = world.value(599_999, 0);
    world.get(1, "k", room);
    assert!(world.got(1).bytes() == pattern(600_000, 5));
    // Without a chunk for it, the length alone comes.
    world.ask(2, request(Procedure::Get), |w| w.opaque(b"k"));
    assert_eq!(world.answer(2), Ok(Answer::TooLong { length: 600_000 }));
}

#[test]
fn keys_come_some_at_a_time_until_all_are_seen() {
    let mut world = World::new(1, 64 << 20);
    let key = |n: usize| format!("{n}-{}", "k".repeat(n * 7 % 500));
    for n in 0..60 {
        world.ask(n, request(Procedure::Put), |w| {
            w.opaque(key(n).as_bytes())?;
            w.opaque(b"v")
        });
        assert_eq!(world.done(n), DONE);
    }
    let (mut seen, mut at, mut calls) = (Vec::new(), 0, 0);
    loop {
        world.ask(60 + calls, request(Procedure::Keys), |w| w.u32(at));
        let Ok(Answer::Keys(keys)) = world.answer(60 + calls) else { panic!("no keys came back") };
        seen.extend(keys.keys().map(|key| key.to_string()));
        calls += 1;
        let Some(next) = keys.next else { break };
        assert!(next > at);
        at = next;
    }
    let mut all: Vec<_> = (0..60).map(key).collect();
    all.sort();
    seen.sort();
    assert!(seen == all && calls > 5, "{calls} calls");
}

#[test]
fn a_value_may_come_and_go_inline() {
    let mut world = World::new(1, 64 << 20);
    world.ask(0, request(Procedure::Put), |w| {
        w.opaque(b"k")?;
        w.opaque(b"small")
    });
    assert_eq!(world.done(0), DONE);
    world.ask(1, request(Procedure::Get), |w| w.opaque(b"k"));
    let small = protocol::Value::Unreduced(b"small");
    assert_eq!(world.answer(1), Ok(Answer::Value(small)));
    assert_eq!(world.unreduced(), 5);
    // Neither end has exposed memory to the other.
    for moved in [*world.server.cx(world.now).0.moved(), *world.client.cx(world.now).0.moved()] {
        assert_eq!((moved.tagged_sent, moved.tagged_received), (0, 0), "{moved:?}");
        assert_eq!((moved.invalidated_remote, moved.invalidated_local), (0, 0), "{moved:?}");
    }
}

#[test]
fn what_a_message_has_no_room_for_is_told_with_its_length() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let mut world = World::within(1, 64 << 20, 1000, Limits { versions, ..LIMITS });
        world.ask(0, request(Procedure::Null), |_| Ok(()));
        assert_eq!(world.done(0), DONE);
        let connection = world.connections[0];
        let (cx, _) = world.client.cx(world.now);
        let InlineRoom { arguments, results } = cx.inline_room(connection).expect("connected");
        // A status and a length word come before the value.
        let most = results - 8;
        for (n, length) in [(0, most), (1, most + 1), (2, 100_000)] {
            let value = world.value(length, n);
            world.put(n, &n.to_string(), value);
            assert_eq!(world.done(n), DONE);
            world.ask(n, request(Procedure::Get), |w| w.opaque(n.to_string().as_bytes()));
            match world.answer(n) {
                Ok(Answer::Value(protocol::Value::Unreduced(octets))) if length <= most => {
                    assert!(octets == pattern(length, n));
                }
                answer => assert_eq!(answer, Ok(Answer::TooLong { length: length as u64 })),
            }
        }
        // As much as the arguments have room for goes without a chunk; the key and its length word come first.
        let value = pattern(arguments - 12, 7);
        world.ask(3, request(Procedure::Put), |w| w.opaque(b"key").and_then(|()| w.opaque(&value)));
        assert_eq!(world.done(3), DONE);
        let room = world.value(value.len(), 0);
        world.get(4, "key", room);
        assert!(world.got(4).bytes() == value, "{versions:?}");
        let copied = world.unreduced();
        assert_eq!(copied, value.len() as u64, "the others came by chunks");
    }
}

#[test]
fn full_memory_refuses_new_values_and_keeps_old_ones() {
    let mut world = World::new(1, 16 << 20);
    let mut stored = 0;
    let outcome = loop {
        let value = world.value(1 << 20, stored);
        world.put(stored, &stored.to_string(), value);
        match world.done(stored) {
            DONE => stored += 1,
            refused => break refused,
        }
    };
    assert_eq!(outcome, refused(Refusal::NoSpace));
    assert!(stored >= 8, "{stored}");
    for n in 0..stored {
        let room = world.value(1 << 20, 0);
        world.get(n, &n.to_string(), room);
        assert!(world.got(n).bytes() == pattern(1 << 20, n), "{n}");
    }
    world.ask(0, request(Procedure::Del), |w| w.opaque(b"0"));
    assert_eq!(world.done(0), DONE);
    let value = world.value(1 << 20, 1);
    world.put(1, "again", value);
    assert_eq!(world.done(1), DONE);
}

#[test]
fn leases_of_a_client_that_vanishes_come_home() {
    let mut world = World::new(1, 64 << 20);
    let value = world.value(4 << 20, 1);
    world.put(0, "k", value);
    assert_eq!(world.done(0), DONE);
    let leased = world.server.cx(world.now).0.gauges().leased_bytes;
    // Several GETs and PUTs are under way when the connection goes.
    for n in 1..5 {
        let room = world.value(4 << 20, 0);
        world.get(n, "k", room);
    }
    for n in 5..8 {
        let value = world.value(1 << 20, n);
        world.put(n, "other", value);
    }
    for _ in 0..6 {
        world.step();
    }
    world.fabric.sever_all(node(2));
    for n in 1..8 {
        while world.caller().ended[n].is_none() {
            world.step();
        }
    }
    while world.server.cx(world.now).0.connections() > 0 {
        world.step();
    }
    let (cx, _) = world.server.cx(world.now);
    let gauges = cx.gauges();
    assert_eq!(gauges.posted, cx.receives_posted() as u64);
    assert_eq!((gauges.exposed, gauges.orphans), (0, 0));
    assert!(gauges.leased_bytes <= leased + (1 << 20) + 4096, "at most `other` was stored");
}

/// Values of 3,500 octets fill the memory and are thinned, so that of each slab some block is in use wherever `kept` says
/// so: what is free is scattered.
fn thinned(kept: impl Fn(usize) -> bool) -> World {
    const MEMORY: u64 = 8 << 20;
    let mut world = World::with(1, MEMORY, 4000);
    let mut filled = 0;
    loop {
        let value = world.value(3500, filled);
        world.put(0, &format!("small {filled}"), value);
        match world.done(0) {
            DONE => filled += 1,
            refused => {
                assert_eq!(refused, self::refused(Refusal::NoSpace));
                break;
            }
        }
    }
    for n in (0..filled).filter(|n| !kept(*n)) {
        world.ask(0, request(Procedure::Del), |w| w.opaque(format!("small {n}").as_bytes()));
        assert_eq!(world.done(0), DONE);
    }
    world
}

#[test]
fn a_value_fits_if_its_octets_are_free_wherever_they_are() {
    let mut world = thinned(|n| n % 64 == 63);
    let gauges = world.server.cx(world.now).0.gauges();
    let (free, run) = (gauges.free_bytes, gauges.largest_run);
    assert!(free > 5 << 20 && run < 1 << 20, "{free} free, {run} together");
    // One value is longer than any run, others have several sizes, and the last takes the memory that is left.
    let sizes = [1 << 20, 100_000, 100_000, 70_000, 2 << 20, 300_000];
    for (n, size) in sizes.into_iter().enumerate() {
        let value = world.value(size, n);
        world.put(n, &n.to_string(), value);
        assert_eq!(world.done(n), DONE, "{size}");
    }
    let left = world.server.cx(world.now).0.gauges().free_bytes;
    let (last, size) = (sizes.len(), left / 100 * 95);
    let value = world.value(size, last);
    world.put(last, "last", value);
    assert_eq!(world.done(last), DONE, "{size} of {left}");
    let value = world.value(left, last);
    world.put(last, "more", value);
    assert_eq!(world.done(last), refused(Refusal::NoSpace));
    // An old value stays as it is while another takes its place.
    let (room, value) = (world.value(1 << 20, 99), world.value(100, 7));
    world.get(0, "0", room);
    world.put(1, "0", value);
    assert!(world.got(0).bytes() == pattern(1 << 20, 0));
    assert_eq!(world.done(1), DONE);
    for (n, size) in sizes.into_iter().enumerate().skip(1) {
        let room = world.value(size, 99);
        world.get(n, &n.to_string(), room);
        assert!(world.got(n).bytes() == pattern(size, n), "{size}");
    }
    let room = world.value(size, 99);
    world.get(0, "last", room);
    assert!(world.got(0).bytes() == pattern(size, last));
    assert_eq!(world.unreduced(), 0);
    // The memory of all values stored since goes home.
    for key in (0..sizes.len()).map(|n| n.to_string()).chain(["last".to_owned()]) {
        world.ask(0, request(Procedure::Del), |w| w.opaque(key.as_bytes()));
        assert_eq!(world.done(0), DONE);
    }
    world.settle();
    let gauges = world.server.cx(world.now).0.gauges();
    assert_eq!((gauges.free_bytes, gauges.largest_run, gauges.orphans), (free, run, 0));
}

#[test]
fn a_value_in_several_leases_for_which_there_is_no_room_comes_in_several_messages() {
    // A value is kept in each slab, so that no run is much longer than a slab.
    let mut world = thinned(|n| n % 9 == 8);
    let run = world.server.cx(world.now).0.gauges().largest_run;
    let length = 40_000;
    assert!(run < length, "{run} together");
    let value = world.value(length, 2);
    world.put(0, "k", value);
    assert_eq!(world.done(0), DONE);
    let comes = |world: &mut World, n| match world.answer(n) {
        Ok(Answer::Value(protocol::Value::Unreduced(octets))) => {
            assert!(octets == pattern(length, 2));
        }
        other => panic!("{other:?}"),
    };
    for offered in [length - 1, 1] {
        let room = world.value(offered, 0);
        world.get(1, "k", room);
        comes(&mut world, 1);
    }
    let room = world.value(length, 0);
    world.get(3, "k", room);
    assert!(world.got(3).bytes() == pattern(length, 2));
}

const VALUE_MAX: usize = 4 << 20;

const LIMITS: Limits = Limits {
    connections_max: 8,
    receives_max: 512,
    calls_out_max: 128,
    send_buffers_max: 256,
    ..LIMITS_DEFAULT
};

struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, KvService>,
    /// The cores of the server behind the first.
    further: Vec<Core<Sim, KvService>>,
    client: Core<Sim, Caller>,
    connections: Vec<ConnectionId>,
}

/// The service of the client: the outcomes of its Calls, by token, and the changes that the server tells it of.
#[derive(Debug, Default)]
struct Caller {
    asked: Vec<Procedure>,
    ended: Vec<Option<Ended>>,
    told: watching::Told,
}

#[derive(Debug)]
struct Ended {
    procedure: Procedure,
    results: Result<Vec<u8>, CallError>,
    carriage: Carriage,
    /// The Write chunks of the Reply.
    returned: Vec<Returned>,
    place: Option<Local>,
    /// The rooms behind the first one.
    further: Vec<Local>,
}

impl Service for Caller {
    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let number = usize::try_from(token).expect("a small number");
        let reduced = finished.results.as_ref().ok().and_then(|results| results.reduced());
        let returned = finished.results.as_ref().map(|results| results.returned().collect());
        let mut rooms = finished.rooms.into_iter();
        let ended = Ended {
            procedure: self.asked[number],
            returned: returned.unwrap_or_default(),
            results: finished.results.map(|results| results.rest().to_vec()),
            carriage: Carriage::of(reduced),
            place: rooms.next(),
            further: rooms.collect(),
        };
        self.ended[number] = Some(ended);
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        self.told.take(call)
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, _: &mut Reply) -> Outcome {
        Outcome::Done
    }
}

impl World {
    fn new(connections: usize, memory: u64) -> Self {
        Self::with(connections, memory, 1000)
    }

    /// Like [`Self::new`], with an index for `keys_max` keys.
    fn with(connections: usize, memory: u64, keys_max: u32) -> Self {
        Self::within(connections, memory, keys_max, LIMITS)
    }

    /// Like [`Self::with`], within these limits.
    fn within(connections: usize, memory: u64, keys_max: u32, limits: Limits) -> Self {
        let fabric = Fabric::new(FabricConfig {
            queue_pairs_max: 1024,
            receive_queue_max: limits.receives_max as usize,
            ..FabricConfig::default()
        });
        let pool = |bytes| {
            Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).expect("heap")
        };
        let octets = usize::try_from(memory).expect("fits") + limits.transport_bytes();
        let service = KvService::new(keys_max, Seed::fixed(1, 2), VALUE_MAX, memory);
        let pools = (pool(octets), pool(128 << 20));
        let (here, there) = (fabric.provider(node(1)), fabric.provider(node(2)));
        let mut server =
            Core::new(here.expect("a node"), service, pools.0, limits, 1).expect("room");
        let mut client =
            Core::new(there.expect("a node"), Caller::default(), pools.1, limits, 2).expect("room");
        let at = server.listen(at()).expect("nobody listens yet");
        // The client may offer and send more than the server takes.
        let wide = || binding(16 << 20);
        let connections = (0..connections)
            .map(|_| client.connect(Instant::ZERO, at, wide()).expect("a queue pair"))
            .collect();
        Self { fabric, now: Instant::ZERO, server, further: Vec::new(), client, connections }
    }

    fn caller(&mut self) -> &mut Caller {
        self.client.cx(self.now).1
    }

    /// Leases client memory and fills it with the pattern of `seed`.
    fn value(&mut self, length: usize, seed: usize) -> Local {
        let (cx, _) = self.client.cx(self.now);
        let mut lease = cx.pool().lease(length).expect("the client has room");
        lease.bytes_mut().copy_from_slice(&pattern(length, seed));
        lease
    }

    fn put(&mut self, n: usize, key: &str, value: Local) {
        let argument = Some(value).filter(|value| !value.is_empty());
        let empty = argument.is_none();
        self.ask(n, request(Procedure::Put).argument(argument), |w| {
            w.opaque(key.as_bytes())?;
            if empty { w.opaque(&[]) } else { Ok(()) }
        });
    }

    fn get(&mut self, n: usize, key: &str, room: Local) {
        let request = request(Procedure::Get).room(room);
        self.ask(n, request, |w| w.opaque(key.as_bytes()));
    }

    /// Makes Call `n`, on the connections in turn.
    fn ask(
        &mut self,
        n: usize,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        self.ask_on(self.connections[n % self.connections.len()], n, request, encode);
    }

    /// Makes Call `n` on a connection.
    fn ask_on(
        &mut self,
        connection: ConnectionId,
        n: usize,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        let (mut cx, caller) = self.client.cx(self.now);
        caller.ended.resize_with(caller.ended.len().max(n + 1), || None);
        caller.ended[n] = None;
        caller.asked.resize(caller.ended.len(), Procedure::Null);
        caller.asked[n] = Procedure::from_number(request.procedure).expect("a procedure of ours");
        cx.call(connection, request, n as u64, encode).expect("the Call is queued");
    }

    /// Turns both cores once; if no core worked, moves time to the next event.
    fn step(&mut self) {
        let mut worked = self.server.turn(self.now) | self.client.turn(self.now);
        self.further.iter_mut().for_each(|core| worked |= core.turn(self.now));
        if worked {
            return;
        }
        let mut next = vec![
            self.fabric.next_event(),
            self.server.poll_deadline(),
            self.client.poll_deadline(),
        ];
        next.extend(self.further.iter().map(Core::poll_deadline));
        // A Call without a timeout has its deadline at the end of time.
        let soon = [Duration::from_nanos(1), Duration::from_secs(60)];
        let [least, most] = soon.map(|time| self.now.saturating_add(time));
        self.now = next.into_iter().flatten().min().unwrap_or(most).clamp(least, most);
    }

    /// Turns until everything in flight has arrived, such as completions after their Replies.
    fn settle(&mut self) {
        let until = self.now.saturating_add(Duration::from_millis(1));
        while self.now < until {
            self.step();
        }
    }

    /// Waits for the end of Call `n`.
    fn reply(&mut self, n: usize) -> &mut Ended {
        for _ in 0..1_000_000 {
            if self.caller().ended[n].is_some() {
                break;
            }
            self.step();
        }
        self.caller().ended[n].as_mut().expect("progress")
    }

    fn answer(&mut self, n: usize) -> Result<Answer<'_>, CallError> {
        let Ended { procedure, results, carriage, .. } = self.reply(n);
        let results = results.as_ref().map_err(Clone::clone)?;
        Ok(Answer::decode(*procedure, results, *carriage).expect("a Reply that makes sense"))
    }

    fn done(&mut self, n: usize) -> Result<Answer<'static>, CallError> {
        self.answer(n).map(|answer| match answer {
            Answer::Value(_) => panic!("a value came back"),
            Answer::TooLong { length } => Answer::TooLong { length },
            Answer::Done => Answer::Done,
            Answer::Stat(stat) => Answer::Stat(stat),
            Answer::Keys(_) => panic!("keys came back"),
            Answer::Refused(refusal) => Answer::Refused(refusal),
        })
    }

    /// Returns the value that Call `n` placed.
    fn got(&mut self, n: usize) -> Local {
        let Ok(Answer::Value(value)) = self.answer(n) else { panic!("no value came back") };
        let length = value.length();
        let place = self.reply(n).place.take().expect("the room comes back");
        assert_eq!(place.len() as u64, length);
        place
    }

    fn stat(&mut self) -> Stat {
        let n = self.caller().ended.len();
        self.ask(n, request(Procedure::Stat), |_| Ok(()));
        match self.answer(n) {
            Ok(Answer::Stat(stat)) => stat,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the octets of unreduced values that the server copied.
    fn unreduced(&mut self) -> u64 {
        self.server.cx(self.now).0.counters().bytes_unreduced
    }
}

/// The outcome of a successful PUT or DEL.
const DONE: Result<Answer<'static>, CallError> = Ok(Answer::Done);

fn refused(refusal: Refusal) -> Result<Answer<'static>, CallError> {
    Ok(Answer::Refused(refusal))
}

fn request(procedure: Procedure) -> Request {
    Request::new(procedure as u32)
}

/// The address of the server.
fn at() -> SocketAddr {
    SocketAddr::new(node(1), 20050)
}

fn node(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

/// Octets that differ from seed to seed and from place to place.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed).to_le_bytes()[0]).collect()
}
