//! Tests of watches: clients that the server tells of changes to the keys with a prefix.

use std::collections::BTreeMap;
use std::ops::Range;

use haulage::core::ConnectOptions;
use haulage::limits::Versions;

use super::super::watches::{FURTHER_MAX, KEPT_OCTETS_MAX, WATCHES_MAX};
use super::*;
use crate::protocol::many::KEYS_MAX;
use crate::protocol::watch::{CALLS_MAX, Heading};
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
    pub(super) fn of(&self, connection: ConnectionId) -> (Vec<(&str, State)>, u64) {
        let calls = || self.calls.iter().filter(|call| call.connection == connection);
        let changes = calls().flat_map(|call| &call.changes);
        let changes = changes.map(|(key, state)| (&**key, *state)).collect();
        (changes, calls().map(|call| call.heading.merged).sum())
    }

    /// Returns the number of Calls that a connection was told by.
    fn calls_of(&self, connection: ConnectionId) -> usize {
        self.calls.iter().filter(|call| call.connection == connection).count()
    }

    /// Returns whether a connection was told that its watch has ended, and nothing behind that.
    pub(super) fn is_over(&self, connection: ConnectionId) -> bool {
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

    /// Stores an empty value under each of the long keys with some numbers. Version 2 alone has room for several in a Call.
    fn set_each(&mut self, numbers: Range<usize>) {
        let keys: Vec<_> = numbers.map(long).collect();
        for keys in keys.chunks(KEYS_MAX) {
            self.ask(0, request(Procedure::MPut), |w| {
                w.u32(u32::try_from(keys.len()).unwrap())?;
                let mut keys = keys.iter();
                keys.try_for_each(|key| w.opaque(key.as_bytes()).and_then(|()| w.opaque(b"")))
            });
            assert!(self.reply(0).results.is_ok());
        }
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
        let mut before = 0;
        while self.told().calls.len() > before {
            before = self.told().calls.len();
            self.settle();
        }
    }

    /// Returns the number of watches of the server.
    fn watches(&mut self) -> usize {
        self.server.cx(self.now).1.watches.len()
    }
}

/// Returns the long key with a number.
fn long(n: usize) -> String {
    format!("{n}-{}", "k".repeat(480))
}

/// More long keys than are kept.
const LONG_KEYS_MAX: usize = KEPT_OCTETS_MAX / 600;

/// Limits for as many connections of one address as the server of a process has.
const CROWD: Limits = Limits {
    connections_max: 130,
    connections_each_max: 130,
    receives_max: 8192,
    calls_out_max: KvService::CALLS_OUT_MAX,
    ..LIMITS_DEFAULT
};

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
        // Of long keys, a few fill a Call.
        let tail = "k".repeat(seed / 2 % 2 * 400);
        for _ in 0..300 {
            let key = format!("{}{tail}", draw(30));
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
    world.set_each(0..LONG_KEYS_MAX);
    assert_eq!(world.server.cx(world.now).1.watched().ended, 1);
    assert_eq!(world.told().calls_of(slow), 1);
    world.hasten();
    assert_eq!(world.told().calls_of(slow), 2);
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
    for round in 0..3 {
        world.set_each(0..LONG_KEYS_MAX);
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
    let most = WATCHES_MAX / 2;
    let mut world = World::within(1, 64 << 20, 1000, CROWD);
    let watchers: Vec<_> = (0..most).map(|_| world.watch("")).collect();
    let crowded = refused(Refusal::Crowded { max: most as u64 });
    let last = world.connect(options(VALUE_MAX));
    assert_eq!(world.watch_on(last, ""), crowded);
    assert_eq!(world.watch_on(watchers[0], "k"), DONE, "it has one already");
    world.set("key", 1);
    world.settle();
    assert_eq!(world.told().calls.len(), most);
    world.client.close(watchers[1]);
    world.settle();
    assert_eq!(world.watch_on(last, ""), DONE);
}

#[test]
fn what_many_clients_have_yet_to_be_told_is_kept_once() {
    let mut world = World::within(1, 64 << 20, 100_000, CROWD);
    let silent: Vec<_> = (0..100).map(|_| world.watch("")).collect();
    world.told().slow.clone_from(&silent);
    let keys = LONG_KEYS_MAX / 20;
    world.set_each(0..keys);
    world.set_each(0..keys);
    assert_eq!(world.server.cx(world.now).1.watched().ended, 0);
    world.hasten();
    for watcher in silent {
        let (told, merged) = world.told().of(watcher);
        assert_eq!(told.len() as u64 + merged, 2 * keys as u64);
        let last: BTreeMap<_, _> = told.into_iter().collect();
        assert_eq!(last.len(), keys);
    }
}

#[test]
fn clients_that_lag_most_are_cut_off_together_and_others_are_not() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let silent = ["", "", "0"].map(|prefix| world.watch(prefix));
    let (fast, late) = (world.watch(""), world.watch("late"));
    world.told().slow.extend(silent);
    world.set_each(0..LONG_KEYS_MAX / 3);
    // From here on, another one is silent, too.
    world.told().slow.push(late);
    world.set("late", 1);
    world.set_each(LONG_KEYS_MAX / 3..LONG_KEYS_MAX);
    assert_eq!(world.server.cx(world.now).1.watched().ended, 3);
    world.hasten();
    assert_eq!(silent.map(|watcher| world.told().is_over(watcher)), [true; 3]);
    let (told, merged) = world.told().of(fast);
    assert_eq!(told.len() as u64 + merged, 1 + LONG_KEYS_MAX as u64);
    assert_eq!((world.told().is_over(late), world.watches()), (false, 2));
    world.set("late", 2);
    world.settle();
    assert_eq!(world.told().of(late), (vec![("late", set(1)), ("late", set(2))], 0));
}

#[test]
fn several_calls_of_a_watch_are_under_way_and_tell_in_order() {
    for versions in EITHER {
        let mut world = World::speaking(versions);
        let slow = world.watch("");
        world.told().slow.push(slow);
        for round in 0..3 {
            let before = world.told().calls_of(slow);
            world.set("first", round);
            for n in 0..200 {
                world.set(&long(n), 0);
            }
            world.settle();
            // After a Call that tells all there is, and those that the client has yet to answer, none follows.
            let calls = if round == 0 { 1 } else { before };
            assert_eq!(world.told().calls_of(slow), calls);
            world.answer_all();
            world.settle();
            // A client of version 1 gives fewer credits.
            let more = world.told().calls_of(slow) - calls;
            assert!(more == CALLS_MAX || (versions == Versions::OnlyOne && more > 1), "{more}");
        }
        world.set("first", 3);
        world.hasten();
        let (told, merged) = world.told().of(slow);
        assert_eq!(told.len() as u64 + merged, 604);
        let first: Vec<_> = told.iter().filter(|(key, _)| *key == "first").collect();
        assert_eq!(
            (first.first(), first.last()),
            (Some(&&("first", set(0))), Some(&&("first", set(3))))
        );
        assert!(
            first.is_sorted_by_key(
                |(_, state)| matches!(state, State::Set { length } if *length > 0)
            )
        );
        let last: BTreeMap<_, _> = told.into_iter().collect();
        assert_eq!(last.len(), 201);
    }
}

#[test]
fn one_address_has_at_most_half_of_the_calls_beyond_one_of_each_watch() {
    const WATCHERS: usize = 30;
    const CALLS: usize = WATCHERS + FURTHER_MAX / 2;
    let mut world = World::within(1, 64 << 20, 100_000, CROWD);
    for round in 0..2 {
        let before = round * (WATCHERS + 2 * CALLS);
        let silent: Vec<_> = (0..WATCHERS).map(|_| world.watch("")).collect();
        world.told().slow.clone_from(&silent);
        world.set("first", round);
        world.set_each(0..400);
        world.settle();
        assert_eq!(world.told().calls.len() - before, WATCHERS);
        world.answer_all();
        world.settle();
        assert_eq!(world.told().calls.len() - before, WATCHERS + CALLS);
        // Watches that begin anew have no more.
        for watcher in &silent {
            assert_eq!(world.watch_on(*watcher, ""), DONE);
        }
        world.set_each(0..400);
        world.settle();
        assert_eq!(world.told().calls.len() - before, WATCHERS + CALLS);
        world.answer_all();
        world.settle();
        assert_eq!(world.told().calls.len() - before, WATCHERS + 2 * CALLS);
        // Those whose connections end leave theirs to others.
        for watcher in silent {
            world.client.close(watcher);
        }
        world.settle();
        world.told().waiting.clear();
        assert_eq!(world.watches(), 0);
    }
}

#[test]
fn a_client_that_watches_few_of_many_changed_keys_is_told_of_those() {
    let mut world = World::speaking(Versions::OnlyTwo);
    let (silent, slow) = (world.watch(""), world.watch("few"));
    world.told().slow.extend([silent, slow]);
    world.set("few", 1);
    world.set_each(0..2000);
    world.set("few", 2);
    world.set("few", 3);
    world.settle();
    assert_eq!(world.told().of(slow), (vec![("few", set(1))], 0));
    world.told().slow.retain(|other| *other != slow);
    world.answer_all();
    world.settle();
    assert_eq!(world.told().of(slow), (vec![("few", set(1)), ("few", set(3))], 1));
}

#[test]
fn a_watch_that_finds_no_place_for_its_call_is_told_when_another_call_has_ended() {
    let mut world = World::within(1, 64 << 20, 1000, Limits { calls_out_max: 2, ..LIMITS });
    let silent = ["", ""].map(|prefix| world.watch(prefix));
    world.told().slow.extend(silent);
    world.set("key", 1);
    let late = world.watch("");
    world.set("key", 2);
    world.settle();
    assert_eq!(world.told().of(late), (vec![], 0));
    world.told().slow.retain(|other| *other == silent[0]);
    let (mut cx, caller) = world.client.cx(world.now);
    cx.resume(caller.told.waiting.remove(1));
    world.settle();
    assert_eq!(world.told().of(late), (vec![("key", set(2))], 0));
}
