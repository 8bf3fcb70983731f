//! Tests of watches: clients that the server tells of changes to the keys with a prefix.

use std::collections::BTreeMap;

use haulage::core::ConnectOptions;
use haulage::limits::Versions;

use super::super::watches::{KEPT_OCTETS_MAX, WATCHES_MAX};
use super::*;
use crate::protocol::watch::Heading;
use crate::watch::options;

/// What the connections of a client were told.
#[derive(Debug, Default)]
pub(super) struct Told {
    calls: Vec<One>,
    /// Connections whose Calls are answered by `answer_all` alone, and those of their Calls that are not answered yet.
    slow: Vec<ConnectionId>,
    waiting: Vec<CallToken>,
}

/// What a connection was told in one Call.
#[derive(Debug)]
struct One {
    connection: ConnectionId,
    heading: Heading,
    changes: Vec<(String, State)>,
}

impl Told {
    pub(super) fn take(&mut self, call: Call<'_>) -> Outcome {
        assert_eq!(call.procedure, watch::CHANGED);
        let (connection, token) = (call.connection, call.token);
        let mut changes = Vec::new();
        let (arguments, _) = call.arguments.into_parts();
        let heading = Heading::decode(arguments, |change| {
            changes.push((change.key.to_string(), change.state));
        });
        self.calls.push(One { connection, heading: heading.unwrap(), changes });
        if !self.slow.contains(&connection) {
            return Outcome::Done;
        }
        self.waiting.push(token);
        Outcome::Later
    }

    /// Returns what a connection was told, and how many changes it was not told.
    fn of(&self, connection: ConnectionId) -> (Vec<(&str, State)>, u64) {
        let calls = || self.calls.iter().filter(|call| call.connection == connection);
        let changes = calls().flat_map(|call| &call.changes);
        let changes = changes.map(|(key, state)| (&**key, *state)).collect();
        (changes, calls().map(|call| call.heading.merged).sum())
    }

    /// Returns whether a connection was told that its watch has ended, and nothing behind that.
    fn is_over(&self, connection: ConnectionId) -> bool {
        let mut calls = self.calls.iter().filter(|call| call.connection == connection);
        calls.any(|call| call.heading.is_over) && calls.next().is_none()
    }
}

impl World {
    fn speaking(versions: Versions) -> Self {
        Self::within(1, 64 << 20, 100_000, Limits { versions, ..LIMITS })
    }

    /// Connects anew, and watches the keys with a prefix.
    fn watch(&mut self, prefix: &str) -> ConnectionId {
        let connection = self.connect(options(VALUE_MAX));
        assert_eq!(self.watch_on(connection, prefix), DONE);
        connection
    }

    fn connect(&mut self, options: impl Into<ConnectOptions>) -> ConnectionId {
        self.client.connect(self.now, at(), options).expect("a queue pair")
    }

    fn watch_on(
        &mut self,
        connection: ConnectionId,
        prefix: &str,
    ) -> Result<Answer<'static>, CallError> {
        self.ask_on(connection, 0, request(Procedure::Watch), |w| w.opaque(prefix.as_bytes()));
        self.done(0)
    }

    fn told(&mut self) -> &mut Told {
        &mut self.caller().told
    }

    fn set(&mut self, key: &str, length: usize) {
        self.ask(0, request(Procedure::Put), |w| {
            w.opaque(key.as_bytes())?;
            w.opaque(&vec![7; length])
        });
        assert_eq!(self.done(0), DONE);
    }

    fn delete(&mut self, key: &str) {
        self.ask(0, request(Procedure::Del), |w| w.opaque(key.as_bytes()));
        assert_eq!(self.done(0), DONE);
    }

    /// Answers what connections were told.
    fn answer_all(&mut self) {
        let (mut cx, caller) = self.client.cx(self.now);
        caller.told.waiting.drain(..).for_each(|token| cx.resume(token));
    }

    /// Answers until nothing is told any more, and from now on.
    fn hasten(&mut self) {
        self.told().slow.clear();
        self.answer_all();
        self.settle();
    }

    /// Returns the number of watches of the server.
    fn watches(&mut self) -> usize {
        self.server.cx(self.now).1.watches.len()
    }
}

const fn set(length: u64) -> State {
    State::Set { length }
}

const EITHER: [Versions; 2] = [Versions::OnlyTwo, Versions::OnlyOne];

#[test]
fn each_change_of_the_keys_with_a_prefix_is_told() {
    for versions in EITHER {
        let mut world = World::speaking(versions);
        let (some, all) = (world.watch("k/"), world.watch(""));
        world.set("k/1", 3);
        world.set("other", 4);
        world.delete("k/1");
        world.set("k/2", 0);
        let long = format!("k/{}", "x".repeat(KEY_MAX - 2));
        world.set(&long, 5);
        world.settle();
        let expected =
            [("k/1", set(3)), ("k/1", State::Deleted), ("k/2", set(0)), (&*long, set(5))];
        assert_eq!(world.told().of(some), (expected.to_vec(), 0));
        let others = [&expected[..1], &[("other", set(4))], &expected[1..]].concat();
        assert_eq!(world.told().of(all), (others, 0));
        // Another Call on the same connection replaces the prefix.
        assert_eq!(world.watch_on(all, "none"), DONE);
        let before = world.told().calls.len();
        world.set("other", 1);
        world.settle();
        assert_eq!((world.told().calls.len(), world.watches()), (before, 2));
        let counts = world.server.cx(world.now).1.watched();
        assert_eq!(counts, Counts { told: 9, merged: 0, ended: 0 });
    }
}

#[test]
fn several_values_of_one_call_are_changes_of_their_keys() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let watcher = world.watch("");
    world.ask(0, request(Procedure::MPut), |w| {
        w.u32(3)?;
        for (key, value) in [(&b"a"[..], &b"12"[..]), (b"\xff", b"3"), (b"b", b"")] {
            w.opaque(key)?;
            w.opaque(value)?;
        }
        Ok(())
    });
    assert!(world.reply(0).results.is_ok());
    // What is not stored is no change.
    world.ask(0, request(Procedure::Del), |w| w.opaque(b"nobody"));
    assert_eq!(world.done(0), refused(Refusal::NotFound));
    world.settle();
    assert_eq!(world.told().of(watcher), (vec![("a", set(2)), ("b", set(0))], 0));
}

#[test]
fn a_client_that_lags_is_told_of_the_last_state_of_each_key() {
    for versions in EITHER {
        let mut world = World::speaking(versions);
        let watcher = world.watch("");
        let slow = world.watch("");
        world.told().slow.push(slow);
        let mut last = BTreeMap::new();
        for n in 0..1000_usize {
            let key = format!("{}", n * n % 97);
            world.set(&key, n);
            last.insert(key, n as u64);
        }
        world.settle();
        let (told, merged) = world.told().of(watcher);
        assert_eq!((told.len() as u64 + merged, told.len() > 900), (1000, true));
        let told = world.told().of(slow);
        assert_eq!(told, (vec![("0", set(0))], 0), "it has not answered the first Call");
        world.hasten();
        let (told, merged) = world.told().of(slow);
        assert_eq!(told.len() as u64 + merged, 1000);
        assert_eq!(told.len(), 1 + last.len());
        for (key, state) in &told[1..] {
            assert_eq!(*state, set(last[*key]), "{key}");
        }
    }
}

#[test]
fn whatever_a_client_misses_order_holds_for_each_key() {
    for seed in 0..40_usize {
        let mut world = World::speaking(EITHER[seed % 2]);
        let watchers = ["", "1", "2"].map(|prefix| (prefix, world.watch(prefix)));
        let mut history: BTreeMap<String, Vec<State>> = BTreeMap::new();
        let mut dice = seed.wrapping_mul(0x9e37_79b9) | 1;
        let mut draw = |most: usize| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most
        };
        for _ in 0..300 {
            let key = draw(30).to_string();
            let states = history.entry(key.clone()).or_default();
            match draw(8) {
                0 => world.told().slow.push(watchers[draw(3)].1),
                1 => {
                    world.told().slow.clear();
                    world.answer_all();
                }
                2 if matches!(states.last(), Some(State::Set { .. })) => {
                    states.push(State::Deleted);
                    world.delete(&key);
                }
                _ => {
                    let length = draw(100);
                    states.push(set(length as u64));
                    world.set(&key, length);
                }
            }
        }
        world.hasten();
        for (prefix, watcher) in watchers {
            let (told, merged) = world.told().of(watcher);
            let watched = history.iter().filter(|(key, _)| key.starts_with(prefix));
            let mut count = 0;
            for (key, states) in watched {
                let of_key: Vec<_> =
                    told.iter().filter(|(told, _)| told == key).map(|(_, state)| *state).collect();
                assert_eq!(of_key.last(), states.last(), "{seed}: {key}");
                let mut all = states.iter();
                assert!(
                    of_key.iter().all(|state| all.any(|other| other == state)),
                    "{seed}: {key}"
                );
                count += states.len() as u64;
            }
            assert_eq!(told.len() as u64 + merged, count, "{seed}: {prefix}");
        }
    }
}

#[test]
fn a_watch_with_more_than_is_kept_ends_and_its_client_is_told() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let other = world.watch("0");
    let slow = world.watch("");
    world.told().slow.push(slow);
    let key = |n: usize| format!("{n}-{}", "k".repeat(480));
    let changes = KEPT_OCTETS_MAX / 480;
    for n in 0..changes {
        // The key is long, the value is not.
        world.set(&key(n), 0);
    }
    assert_eq!(world.server.cx(world.now).1.watched().ended, 1);
    world.hasten();
    assert_eq!(world.told().of(slow).0.len(), 1);
    assert!(world.told().is_over(slow));
    assert_eq!(world.watches(), 1);
    world.set("0", 1);
    world.settle();
    assert_eq!(world.told().of(other).0.last(), Some(&("0", set(1))));
    // It may watch again.
    assert_eq!(world.watch_on(slow, ""), DONE);
    world.set("1", 1);
    world.settle();
    assert_eq!(world.told().of(slow).0.last(), Some(&("1", set(1))));
}

#[test]
fn a_client_that_watches_anew_without_answering_has_one_call() {
    for versions in EITHER {
        let mut world = World::speaking(versions);
        let honest = world.watch("");
        let silent = world.watch("x");
        world.told().slow.push(silent);
        for n in 0..2 * WATCHES_MAX {
            assert_eq!(world.watch_on(silent, "x"), DONE);
            world.set("x", n);
        }
        world.settle();
        assert_eq!(world.told().of(silent), (vec![("x", set(0))], 0));
        let (told, merged) = world.told().of(honest);
        assert_eq!(told.len() as u64 + merged, 2 * WATCHES_MAX as u64);
        // Others may still watch, and it is told the last state once it answers.
        let late = world.watch("x");
        world.hasten();
        world.set("x", 7);
        world.settle();
        let last = Some(&("x", set(7)));
        for watcher in [silent, honest, late] {
            assert_eq!(world.told().of(watcher).0.last(), last);
        }
    }
}

#[test]
fn a_watch_that_is_over_keeps_its_call_until_it_is_answered() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let silent = world.watch("");
    world.told().slow.push(silent);
    let key = |n: usize| format!("{n}-{}", "k".repeat(480));
    for round in 0..3 {
        for n in 0..=KEPT_OCTETS_MAX / 480 {
            world.set(&key(n), 0);
        }
        // Only its first Call is under way: what it missed is lost each time.
        assert_eq!(world.told().calls.len(), 1, "{round}");
        assert_eq!(world.watch_on(silent, ""), DONE);
    }
    world.hasten();
    world.set("last", 1);
    world.settle();
    assert_eq!(world.told().of(silent).0.last(), Some(&("last", set(1))));
}

#[test]
fn a_watch_lasts_as_long_as_its_connection() {
    let limits = Limits { idle_timeout: Some(Duration::from_secs(1)), ..LIMITS };
    let mut world = World::within(1, 64 << 20, 1000, limits);
    let (watcher, idle) = (world.watch(""), world.connect(binding(VALUE_MAX)));
    let end = world.now.saturating_add(Duration::from_secs(60));
    while world.now < end {
        world.step();
    }
    let (cx, _) = world.client.cx(world.now);
    assert_eq!((cx.peer(idle), cx.peer(watcher)), (None, Some(at())));
    let writer = world.connect(binding(VALUE_MAX));
    world.connections = vec![writer];
    world.set("key", 1);
    world.settle();
    assert_eq!(world.told().of(watcher), (vec![("key", set(1))], 0));
    world.client.close(watcher);
    world.settle();
    assert_eq!(world.watches(), 0);
}

#[test]
fn a_client_that_serves_no_calls_is_told_nothing() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let connection = world.connections[0];
    assert_eq!(world.watch_on(connection, ""), DONE);
    world.set("key", 1);
    world.settle();
    assert_eq!((world.told().calls.len(), world.watches()), (0, 0));
    world.set("key", 2);
}

#[test]
fn there_are_so_many_watches_and_no_more() {
    // All clients of the world have one address.
    let most = u32::try_from(WATCHES_MAX / 2).unwrap();
    let limits = Limits {
        connections_max: most + 2,
        connections_each_max: most + 2,
        receives_max: 8192,
        ..LIMITS_DEFAULT
    };
    let mut world = World::within(1, 64 << 20, 1000, limits);
    let watchers: Vec<_> = (0..most).map(|_| world.watch("")).collect();
    let crowded = refused(Refusal::Crowded { max: most.into() });
    let last = world.connect(options(VALUE_MAX));
    assert_eq!(world.watch_on(last, ""), crowded);
    assert_eq!(world.watch_on(watchers[0], "k"), DONE, "it has one already");
    world.set("key", 1);
    world.settle();
    assert_eq!(world.told().calls.len(), most as usize);
    world.client.close(watchers[1]);
    world.settle();
    assert_eq!(world.watch_on(last, ""), DONE);
}
