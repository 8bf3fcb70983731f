//! The key-value service behind a core and a simulated fabric, with Calls that have any arguments.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::core::{Core, Cx, Service};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{CallError, ConnectionId, Finished, Kind, Place, Request};
use haulage_kv::index::Seed;
use haulage_kv::protocol::many::{self, Found};
use haulage_kv::protocol::{Answer, Carriage, KEY_MAX, Procedure, Refusal, Value};
use haulage_kv::service::{KvService, binding};
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::chunk::{Item, PayloadReader, Returned};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Reader, Truncated};

use self::asked::Asked;
use super::octets::Octets;
use crate::world::choices::Choices;

mod asked;

/// Makes Calls one by one. Each is refused as garbage or answered as a map of keys would be, and the server's
/// statistics agree with that map.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut world = World::new();
    for _ in 0..CALLS_MAX {
        if choices.is_spent() {
            break;
        }
        let asked = Asked::draw(&mut choices);
        let got = world.call(&asked);
        world.check(&asked, got);
    }
    world.list();
    world.end();
}

/// A server, a client, and a map that mirrors the contents of the server.
struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, KvService>,
    client: Core<Sim, Caller>,
    connection: ConnectionId,
    held: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The service of the client, which keeps the end of the last Call.
#[derive(Default)]
struct Caller {
    ended: Option<Got>,
}

/// The end of a Call.
struct Got {
    results: Result<Vec<u8>, CallError>,
    /// The value that was placed in the first Write chunk.
    placed: Option<Vec<u8>>,
    /// All Write chunks of the Reply, and what is in their leases.
    returned: Vec<Returned>,
    rooms: Vec<Vec<u8>>,
}

impl Service for Caller {
    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        let is_reduced = finished.results.as_ref().is_ok_and(|results| results.reduced().is_some());
        let rooms: Vec<_> = finished.rooms.iter().map(|lease| lease.bytes().to_vec()).collect();
        let placed = rooms.first().filter(|_| is_reduced).cloned();
        let returned = finished.results.as_ref().map(|results| results.returned().collect());
        let returned = returned.unwrap_or_default();
        let results = finished.results.map(|results| results.rest().to_vec());
        self.ended = Some(Got { results, placed, returned, rooms });
    }
}

impl World {
    fn new() -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let pool = || {
            let bytes = LIMITS.transport_bytes() + MEMORY;
            let pool = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
            Pool::new(&pool).expect("memory for a pool")
        };
        let service = KvService::new(KEYS_MAX, Seed::fixed(1, 2), VALUE_MAX, MEMORY as u64);
        let (here, there) = (fabric.provider(node(1)), fabric.provider(node(2)));
        let (here, there) = (here.expect("a node"), there.expect("a node"));
        let mut server = Core::new(here, service, pool(), LIMITS, 1).expect("room");
        let mut client = Core::new(there, Caller::default(), pool(), LIMITS, 2).expect("room");
        let at = server.listen(SocketAddr::new(node(1), 20050)).expect("nobody listens yet");
        // The client's binding allows longer values than the server's.
        let connection = client.connect(Instant::ZERO, at, binding(1 << 20)).expect("a queue pair");
        Self { fabric, now: Instant::ZERO, server, client, connection, held: BTreeMap::new() }
    }

    /// Makes a Call and waits for its end.
    fn call(&mut self, asked: &Asked) -> Got {
        let (mut cx, caller) = self.client.cx(self.now);
        caller.ended = None;
        let lease = |length| cx.pool().lease(length).expect("memory for a value");
        let filled = |value: &Vec<u8>| {
            let mut lease = lease(value.len());
            lease.bytes_mut().copy_from_slice(value);
            lease
        };
        let request = Request::new(asked.procedure as u32);
        let request = asked.placed.iter().fold(request, |request, (at, value)| {
            request.argument_at(Place::At(Kind::Opaque, *at), filled(value))
        });
        let request = request.argument(asked.argument.as_ref().map(filled));
        let request = asked.rooms.iter().fold(request, |request, room| request.room(lease(*room)));
        let called = cx.call(self.connection, request, 0, |w| w.put(&asked.octets));
        called.map_err(|(error, _)| error).expect("a Call is queued");
        for _ in 0..STEPS_MAX {
            if let Some(got) = self.client.cx(self.now).1.ended.take() {
                return got;
            }
            self.step();
        }
        panic!("no Reply came");
    }

    /// Turns both cores once. If neither worked, time advances to the next event.
    fn step(&mut self) {
        if self.server.turn(self.now) | self.client.turn(self.now) {
            return;
        }
        let next =
            [self.fabric.next_event(), self.server.poll_deadline(), self.client.poll_deadline()];
        let next = next.into_iter().flatten().min().expect("something is to happen");
        self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
    }

    /// Checks the end of a Call, and updates the map.
    fn check(&mut self, asked: &Asked, got: Got) {
        let is_garbage = matches!(got.results, Err(CallError::Rejected(AcceptStat::GarbageArgs)));
        if asked.is_misplaced() && is_garbage {
            // The service may refuse a misplaced value as garbage. A short one travels inline, where it may make sense
            // all the same.
            return;
        }
        let expected = self.expect(asked);
        let octets = match got.results {
            Err(CallError::Rejected(stat)) => {
                assert_eq!(stat, AcceptStat::GarbageArgs);
                assert!(expected.is_none(), "arguments that make sense");
                return;
            }
            // A value longer than its room is not sent, only refused.
            Err(CallError::Refused(why)) => {
                let Some(Expected::Value(value)) = expected else {
                    panic!("{:?} is refused: {why:?}", asked.procedure)
                };
                let room = asked.rooms.first().copied().expect("without one, the length is told");
                return assert!(value.len() > room, "there was room: {why:?}");
            }
            Err(other) => panic!("{:?} ended with {other:?}", asked.procedure),
            Ok(octets) => octets,
        };
        let expected = expected.expect("garbage is not carried out");
        if asked.procedure == Procedure::Figures {
            return assert!(octets.len().is_multiple_of(8), "hypers");
        }
        let octets = match expected {
            Expected::Found(values) => {
                let reader = PayloadReader::reply_of_many(&octets, 0, &got.returned);
                return check_found(&asked.rooms, reader, (&got.rooms, values));
            }
            Expected::Stored(pairs) => {
                let stored =
                    many::decode_stored(PayloadReader::reply(&octets, 0, None), pairs.len());
                let each = stored.expect("results that make sense").into_iter().zip(pairs);
                return each.for_each(|(stored, reasons)| match stored {
                    Ok(()) => assert!(reasons.is_empty(), "refused for {reasons:?}"),
                    Err(refusal) => assert!(reasons.contains(&refusal), "{refusal}: {reasons:?}"),
                });
            }
            _ => octets,
        };
        let carriage = if got.placed.is_some() { Carriage::Chunk } else { Carriage::Unreduced };
        let answer = Answer::decode(asked.procedure, &octets, carriage);
        match (expected, answer.expect("results that make sense")) {
            (Expected::Done, Answer::Done) => {}
            (Expected::Value(value), Answer::Value(Value::Unreduced(octets))) => {
                assert!(value == octets, "the value that was stored");
            }
            (Expected::Value(value), Answer::Value(Value::Reduced { .. })) => {
                assert!(got.placed == Some(value), "the value that was stored");
            }
            (Expected::Value(value), Answer::TooLong { length }) => {
                assert!(asked.rooms.is_empty() && length == value.len() as u64, "{length} octets");
                assert!(value.len() > INLINE_MIN, "there was room");
            }
            (Expected::Stat, Answer::Stat(stat)) => {
                let octets = self.held.values().map(Vec::len).sum::<usize>() as u64;
                assert_eq!((stat.keys, stat.value_bytes), (self.held.len() as u64, octets));
                assert_eq!((stat.leases_exposed, stat.orphans), (0, 0));
            }
            (Expected::Keys, Answer::Keys(keys)) => {
                let mut keys = keys.keys();
                assert!(keys.all(|key| self.held.contains_key(key.bytes())), "keys that are held");
            }
            (Expected::Refused(reasons), Answer::Refused(refusal)) => {
                assert!(reasons.contains(&refusal), "{refusal} is none of {reasons:?}");
            }
            (_, other) => panic!("{:?} is answered with {other:?}", asked.procedure),
        }
    }

    /// Returns the expected answer to a Call, having updated the map; `None` if the arguments are garbage.
    fn expect(&mut self, asked: &Asked) -> Option<Expected> {
        let octets = asked.whole();
        let mut r = Reader::new(&octets);
        match asked.procedure {
            Procedure::Null => r.is_empty().then_some(Expected::Done),
            Procedure::Stat => r.is_empty().then_some(Expected::Stat),
            // The figures themselves are unknown here.
            Procedure::Figures => r.is_empty().then_some(Expected::Done),
            Procedure::Keys => r.u32().is_ok_and(|_| r.is_empty()).then_some(Expected::Keys),
            Procedure::Watch => {
                (r.opaque(KEY_MAX).is_ok() && r.is_empty()).then_some(Expected::Done)
            }
            Procedure::Get | Procedure::Del => {
                let key = r.opaque(KEY_MAX).ok().filter(|_| r.is_empty())?;
                let value = self.expect_get(key);
                if asked.procedure == Procedure::Del {
                    self.held.remove(key);
                    let done = value.map(|_| Expected::Done);
                    return Some(done.unwrap_or_else(|why| Expected::Refused(vec![why])));
                }
                let value = value.map(Expected::Value);
                Some(value.unwrap_or_else(|why| Expected::Refused(vec![why])))
            }
            Procedure::Put => {
                let key = r.opaque(KEY_MAX).ok()?;
                let value = r.opaque(usize::MAX).ok()?.to_vec();
                if value.len() <= VALUE_MAX && !r.is_empty() {
                    return None;
                }
                let reasons = self.expect_put(key, value);
                Some(if reasons.is_empty() { Expected::Done } else { Expected::Refused(reasons) })
            }
            Procedure::MGet => {
                let count = r.u32().ok().filter(|count| *count as usize <= many::KEYS_MAX)?;
                let keys = (0..count).map(|_| r.opaque(KEY_MAX)).collect::<Result<Vec<_>, _>>();
                let keys = keys.ok().filter(|_| r.is_empty())?.into_iter();
                Some(Expected::Found(keys.map(|key| self.expect_get(key)).collect()))
            }
            Procedure::MPut => {
                let count = r.u32().ok().filter(|count| *count as usize <= many::KEYS_MAX)?;
                let mut pair = || Ok((r.opaque(KEY_MAX)?, r.opaque(usize::MAX)?.to_vec()));
                let pairs = (0..count).map(|_| pair()).collect::<Result<Vec<_>, Truncated>>();
                let pairs = pairs.ok().filter(|_| r.is_empty())?.into_iter();
                let stored = pairs.map(|(key, value)| self.expect_put(key, value));
                Some(Expected::Stored(stored.collect()))
            }
        }
    }

    fn expect_get(&self, key: &[u8]) -> Result<Vec<u8>, Refusal> {
        if !is_key(key) {
            return Err(Refusal::BadKey);
        }
        self.held.get(key).cloned().ok_or(Refusal::NotFound)
    }

    /// Stores a value in the map, or returns the reasons for which the server may refuse it.
    fn expect_put(&mut self, key: &[u8], value: Vec<u8>) -> Vec<Refusal> {
        let mut reasons = Vec::new();
        if value.len() > VALUE_MAX {
            reasons.push(Refusal::TooLarge { max: VALUE_MAX as u64 });
        }
        if !is_key(key) {
            reasons.push(Refusal::BadKey);
        } else if self.held.len() == KEYS_MAX as usize && !self.held.contains_key(key) {
            reasons.push(Refusal::KeysFull { max: KEYS_MAX.into() });
        }
        if reasons.is_empty() {
            self.held.insert(key.to_vec(), value);
        }
        reasons
    }

    /// Lists all keys in pages, and checks that each stored key is listed once.
    fn list(&mut self) {
        let (mut listed, mut at) = (Vec::new(), 0);
        for _ in 0..=KEYS_MAX {
            let octets = Octets::default().words(&[at]).0;
            let (argument, placed, rooms) = (None, Vec::new(), Vec::new());
            let asked = Asked { procedure: Procedure::Keys, octets, argument, placed, rooms };
            let octets = self.call(&asked).results.expect("a list of keys");
            let answer = Answer::decode(Procedure::Keys, &octets, Carriage::Unreduced);
            let Ok(Answer::Keys(keys)) = answer else { panic!("no keys: {answer:?}") };
            listed.extend(keys.keys().map(|key| key.bytes().to_vec()));
            let Some(next) = keys.next else { break };
            assert!(next > at, "the list goes on");
            at = next;
        }
        listed.sort();
        assert!(listed.iter().eq(self.held.keys()), "all that is held, and nothing twice");
    }

    /// Shuts both cores down, and checks that no lease is exposed or lost.
    fn end(mut self) {
        self.client.begin_shutdown(self.now);
        self.server.begin_shutdown(self.now);
        for _ in 0..STEPS_MAX {
            if self.client.is_drained() && self.server.is_drained() {
                break;
            }
            self.step();
        }
        for cx in [self.server.cx(self.now).0, self.client.cx(self.now).0] {
            let (gauges, receives) = (cx.gauges(), cx.receives_posted() as u64);
            assert_eq!((gauges.posted, gauges.exposed, gauges.orphans), (receives, 0, 0));
        }
    }
}

/// The expected answer to a Call.
enum Expected {
    Done,
    Value(Vec<u8>),
    Stat,
    Keys,
    /// A refusal with one of these reasons.
    Refused(Vec<Refusal>),
    /// For each key its value, or why there is none.
    Found(Values),
    /// For each pair the reasons of which one is given, if there are any.
    Stored(Vec<Vec<Refusal>>),
}

/// For each key its value, or why there is none.
type Values = Vec<Result<Vec<u8>, Refusal>>;

/// Checks the values that came for several keys, with room for each as `offered`.
fn check_found(
    offered: &[usize],
    results: PayloadReader<'_>,
    (rooms, values): (&[Vec<u8>], Values),
) {
    let room = |n: usize| offered.get(n).copied().unwrap_or(0);
    let lengths = values.iter().map(|value| value.as_ref().map_or(0, Vec::len)).enumerate();
    // The octets of such a value may have taken the room that the message had for another.
    let is_any_long = lengths.into_iter().any(|(n, length)| length > room(n));
    let found = many::decode_found(results, values.len()).expect("results that make sense");
    for (n, (found, value)) in found.into_iter().zip(values).enumerate() {
        match (found, value) {
            (Found::Value(Item::Unreduced(octets)), Ok(value)) => assert!(value == octets),
            (Found::Value(Item::Reduced { .. }), Ok(value)) => assert!(value == rooms[n]),
            (Found::TooLong { length }, Ok(value)) => {
                assert!(is_any_long && length == value.len() as u64, "{length} octets at {n}");
            }
            (Found::Refused(refusal), Err(why)) => assert_eq!(refusal, why),
            (found, value) => panic!("{found:?} for {:?}", value.map(|value| value.len())),
        }
    }
}

fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && str::from_utf8(key).is_ok()
}

fn node(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

const LIMITS: Limits = Limits {
    connections_max: 2,
    connections_each_max: 2,
    receives_max: 64,
    calls_out_max: 4,
    send_buffers_max: 16,
    credits_max: 8,
    ..LIMITS_DEFAULT
};
const MEMORY: usize = 1 << 20;
const KEYS_MAX: u32 = 3;
const VALUE_MAX: usize = 6000;
/// Maximum length of a value that fits into a message, however long its headers are.
const INLINE_MIN: usize = 3400;
const CALLS_MAX: usize = 32;
const STEPS_MAX: u32 = 100_000;
