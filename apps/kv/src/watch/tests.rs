//! A client, and a server that tells it whatever it likes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use haulage::core::Core;
use haulage::limits::LIMITS_DEFAULT;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::time::Instant;
use haulage::provider::sim::{Fabric, FabricConfig, Sim};
use haulage::service::{Binding, Finished, Request};

use super::*;
use crate::protocol::Key;

/// Tells its client, as soon as it has one.
#[derive(Debug, Default)]
struct Teller {
    client: Option<ConnectionId>,
    ended: Vec<(u64, Result<(), CallError>)>,
}

impl Service for Teller {
    fn callbacks(&self) -> Option<Binding> {
        Some(watch::binding())
    }

    fn opened(&mut self, _: &mut Cx<'_>, peer: &Peer) {
        self.client = Some(peer.connection);
    }

    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        self.ended.push((token, finished.results.map(drop)));
    }
}

struct World {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Teller>,
    client: Core<Sim, Watcher>,
    told: Told,
}

impl World {
    fn new() -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let pool = || {
            let memory = PoolConfig { bytes: 32 << 20, pages: PagePreference::Heap, node: None };
            Pool::new(&memory).unwrap()
        };
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let here = fabric.provider(node(1)).unwrap();
        let mut server = Core::new(here, Teller::default(), pool(), LIMITS_DEFAULT, 1).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let (watcher, told) = way(Waker::new().unwrap());
        let there = fabric.provider(node(2)).unwrap();
        let mut client = Core::new(there, watcher, pool(), LIMITS_DEFAULT, 2).unwrap();
        client.connect(Instant::ZERO, at, options(100)).unwrap();
        let mut world = Self { fabric, now: Instant::ZERO, server, client, told };
        world.until(|world| world.server.service().client.is_some());
        world
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.step();
        }
    }

    fn step(&mut self) {
        if !(self.server.turn(self.now) | self.client.turn(self.now)) {
            let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
            let next = deadlines.into_iter().chain([self.fabric.next_event()]).flatten().min();
            self.now = next.expect("progress").max(self.now);
        }
    }

    /// Makes a Call with these arguments.
    fn tell(&mut self, token: u64, procedure: u32, arguments: &[u8]) {
        let client = self.server.service().client.unwrap();
        let (mut cx, _) = self.server.cx(self.now);
        cx.call(client, Request::new(procedure), token, |w| w.put(arguments)).unwrap();
    }

    fn set(&mut self, token: u64, key: &[u8], length: u8) {
        let word = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
        let mut octets = [[0; 12].as_slice(), &word(1), &word(key.len()), key].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, length]);
        self.tell(token, CHANGED, &octets);
    }

    /// Returns how the next Call ended.
    fn ended(&mut self) -> (u64, Result<(), CallError>) {
        self.until(|world| !world.server.service().ended.is_empty());
        self.server.cx(self.now).1.ended.remove(0)
    }

    /// Returns what is told next.
    fn next(&mut self) -> News {
        loop {
            if let Some(news) = self.told.next() {
                return news;
            }
            self.step();
        }
    }

    /// Returns the only key that is told next.
    fn key(&mut self) -> String {
        match self.next() {
            News::Changes { mut changes, .. } => changes.remove(0).0,
            other => panic!("{other:?}"),
        }
    }
}

fn rejected(why: AcceptStat) -> Result<(), CallError> {
    Err(CallError::Rejected(why))
}

#[test]
fn a_server_is_answered_once_its_changes_are_taken_and_not_before() {
    let mut world = World::new();
    // A client gives a busy server more credits.
    for token in 200..300 {
        world.set(token, b"before", 3);
        assert_eq!(world.key(), "before");
        assert!(world.server.service().ended.is_empty());
        world.told.take(&world.client.waker());
        assert_eq!(world.ended(), (token, Ok(())));
    }
    for token in 0..CALLS_MAX as u64 {
        world.set(token, token.to_string().as_bytes(), 3);
        assert_eq!(world.key(), token.to_string());
    }
    // A server that does not wait for answers is refused, and nothing is kept for it.
    world.set(100, b"further", 3);
    assert_eq!(world.ended(), (100, rejected(AcceptStat::SystemErr)));
    assert!(world.told.next().is_none());
    world.told.take(&world.client.waker());
    assert_eq!(world.ended(), (0, Ok(())));
    world.set(101, b"further", 0);
    assert_eq!(world.key(), "further");
    // Several may be taken before the core turns again.
    for _ in 1..=CALLS_MAX {
        world.told.take(&world.client.waker());
    }
    for token in (1..CALLS_MAX as u64).chain([101]) {
        assert_eq!(world.ended(), (token, Ok(())));
    }
    assert!(world.told.next().is_none());
}

#[test]
fn what_is_no_change_is_refused_and_told_to_nobody() {
    let mut world = World::new();
    let garbage = rejected(AcceptStat::GarbageArgs);
    let bad_key = [&[0; 12][..], &[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0, 0, 0, 0]].concat();
    for (token, procedure, arguments, end) in [
        (1, NULL, &[][..], Ok(())),
        (2, NULL, &[0; 4], garbage.clone()),
        (3, CHANGED, &[0; 8], garbage.clone()),
        (4, CHANGED, &[0; 20], garbage.clone()),
        (5, CHANGED, &bad_key, garbage),
        (6, CHANGED + 1, &[], rejected(AcceptStat::ProcUnavail)),
    ] {
        world.tell(token, procedure, arguments);
        assert_eq!(world.ended(), (token, end));
    }
    assert!(world.told.next().is_none());
    // The watch goes on.
    world.set(7, Key::new(b"key").unwrap().bytes(), 1);
    assert_eq!(world.key(), "key");
}

#[test]
fn the_end_of_the_connection_is_told() {
    let mut world = World::new();
    let client = world.server.service().client.unwrap();
    world.server.close(client);
    let closed = world.next();
    assert!(matches!(closed, News::Closed(CallError::Disconnected(_))), "{closed:?}");
    drop(world.client);
    assert!(matches!(world.told.next(), Some(News::Closed(CallError::Closed))));
}
