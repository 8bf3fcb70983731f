//! A server of several cores, each with a connection of the client.

use std::collections::BTreeSet;

use haulage::core::{CoreIdentity, CoreNumber};
use haulage::pool::Reservoir;
use haulage_test_support::Rng;

use super::*;
use crate::histories::{Act, Found, What, outcomes};
use crate::protocol::Value as Told;
use crate::stat::CoreStat;
use crate::watch::options;

/// The connection to each core.
const FIRST: usize = 0;
const SECOND: usize = 1;

impl World {
    /// Makes a world whose server has two cores.
    fn of_two_cores(memory: u64) -> Self {
        Self::of_cores(2, memory)
    }

    /// Makes a world whose server has as many cores, which share the memory. Connection 0 is on the first, 1 on the second, and so on.
    fn of_cores(count: usize, memory: u64) -> Self {
        let mut world = Self::new(0, memory);
        let bytes = usize::try_from(memory).unwrap() + count * LIMITS.transport_bytes();
        let config = PoolConfig { bytes, pages: PagePreference::Heap, node: None };
        let reservoir = Reservoir::new(&config).expect("heap");
        let parts = KvService::parts(count, 10_000, &Seed::fixed(1, 2), VALUE_MAX, memory);
        let mut cores = (0..).zip(parts.expect("memory")).map(|(number, part)| {
            let pool = Pool::of(&reservoir).expect("heap");
            let identity = CoreIdentity { number: CoreNumber::new(number).unwrap(), seed: 1 };
            let provider = world.fabric.provider(node(10 + number)).expect("a node");
            let service = KvService::of(part);
            let mut core = Core::new(provider, service, pool, LIMITS, identity).expect("room");
            let at = core.listen(SocketAddr::new(node(10 + number), 20050)).expect("it is free");
            let connection = world.client.connect(world.now, at, options(VALUE_MAX));
            world.connections.push(connection.expect("a queue pair"));
            core
        });
        let first = cores.next().expect("one core at least");
        let further = cores.collect();
        (world.server, world.further) = (first, further);
        world
    }

    fn put_by(&mut self, core: usize, key: &str, value: &[u8]) {
        self.ask(core, request(Procedure::Put), |w| {
            w.opaque(key.as_bytes())?;
            w.opaque(value)
        });
        assert_eq!(self.done(core), DONE);
    }

    /// Gets a short value.
    fn get_by(&mut self, core: usize, key: &str) -> Option<Vec<u8>> {
        self.ask(core, request(Procedure::Get), |w| w.opaque(key.as_bytes()));
        match self.answer(core) {
            Ok(Answer::Value(Told::Unreduced(value))) => Some(value.to_vec()),
            Ok(Answer::Refused(Refusal::NotFound)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn del_by(&mut self, core: usize, key: &str) {
        self.ask(core, request(Procedure::Del), |w| w.opaque(key.as_bytes()));
        assert_eq!(self.done(core), DONE);
    }

    fn stat_by(&mut self, core: usize) -> Stat {
        self.ask(core, request(Procedure::Stat), |_| Ok(()));
        match self.answer(core) {
            Ok(Answer::Stat(stat)) => stat,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the free memory of both cores, once everything that was replaced has come home.
    fn free(&mut self) -> u64 {
        self.settle();
        self.stat_by(FIRST).usable_unmoved_bytes
    }
}

#[test]
fn what_one_core_stores_another_returns_replaces_and_deletes() {
    let mut world = World::of_two_cores(64 << 20);
    let before = world.free();
    for round in 0..20 {
        for (one, other) in [(FIRST, SECOND), (SECOND, FIRST)] {
            let key = format!("key-{}", round % 3);
            world.put_by(one, &key, &pattern(100, round));
            assert_eq!(world.get_by(other, &key), Some(pattern(100, round)));
            world.put_by(other, &key, b"short");
            assert_eq!(world.get_by(one, &key).as_deref(), Some(&b"short"[..]));
            if round % 2 == 0 {
                world.del_by(one, &key);
                assert_eq!((world.get_by(other, &key), world.get_by(one, &key)), (None, None));
            }
        }
    }
    let keys = world.stat_by(SECOND).keys;
    (0..3).for_each(|key| {
        if world.get_by(FIRST, &format!("key-{key}")).is_some() {
            world.del_by(SECOND, &format!("key-{key}"));
        }
    });
    assert_eq!((keys, world.stat_by(FIRST).keys), (2, 0));
    assert_eq!(world.free(), before, "the memory of whichever core it was is back");
}

#[test]
fn a_long_value_is_sent_from_the_memory_of_another_core_while_it_is_replaced() {
    let mut world = World::of_two_cores(64 << 20);
    let before = world.free();
    let value = world.value(1 << 20, 1);
    world.put(FIRST, "key", value);
    assert_eq!(world.done(FIRST), DONE);
    // As many GETs as there is room for are under way when the value is replaced, and then deleted.
    for n in 0..4 {
        let room = world.value(1 << 20, 99);
        world.get(2 * n + SECOND, "key", room);
    }
    let value = world.value(1 << 20, 2);
    world.put(8, "key", value);
    assert_eq!(world.done(8), DONE);
    world.del_by(10, "key");
    for n in 0..4 {
        let got = world.got(2 * n + SECOND);
        let is = |seed| got.bytes() == pattern(1 << 20, seed);
        assert!(is(1) || is(2), "the value before or after, and nothing between");
    }
    assert_eq!(world.free(), before);
}

#[test]
fn memory_that_another_core_may_read_comes_back_once_that_core_turns_or_sleeps() {
    for sleeps in [false, true] {
        let mut world = World::of_two_cores(64 << 20);
        world.put_by(SECOND, "other", b"");
        let before = world.free();
        assert_eq!(world.get_by(SECOND, "key"), None);
        world.put_by(FIRST, "key", &pattern(3000, 1));
        // Nothing but the first core turns from here on.
        let World { server, further, now, .. } = &mut world;
        assert_eq!(further[0].service().index.get(b"other").map(Value::len), Some(0));
        let at = *now;
        let (cx, service) = server.cx(at);
        assert!(service.index.remove(b"key", Value::len).is_some());
        let free = cx.pool().free_bytes();
        (0..9).for_each(|_| _ = server.turn(at));
        assert_eq!(server.cx(at).0.pool().free_bytes(), free, "the second core may read it");
        if sleeps {
            further[0].cx(at).1.sleeps();
        } else {
            further[0].turn(at);
        }
        server.turn(at);
        assert_eq!(world.stat_by(FIRST).usable_unmoved_bytes, before);
    }
}

#[test]
fn statistics_and_figures_are_of_all_cores() {
    let mut world = World::of_two_cores(64 << 20);
    world.put_by(FIRST, "a", &[1; 100]);
    world.put_by(SECOND, "b", &[2; 200]);
    world.del_by(SECOND, "a");
    assert_eq!(world.get_by(SECOND, "b").map(|value| value.len()), Some(200));
    assert_eq!(world.get_by(FIRST, "a"), None);
    let stat = world.stat_by(SECOND);
    assert_eq!((stat.shards, stat.keys, stat.value_bytes), (2, 1, 200));
    assert_eq!((stat.hits, stat.misses, stat.connections, stat.keys_max), (1, 1, 2, 10_000));
    assert_eq!(stat.memory_bytes, 64 << 20);
    let first = CoreStat { keys: 1, gets: 1, connections: 1 };
    let per_core = [first, CoreStat { keys: 0, ..first }];
    assert_eq!(stat.per_core, per_core, "whichever core is asked");
    assert_eq!(world.stat_by(FIRST).per_core, per_core);
    assert!(stat.value_bytes_max > 60 << 20 && stat.value_bytes_max <= 64 << 20, "{stat:?}");
    let figures = [FIRST, SECOND].map(|core| {
        world.ask(core, request(Procedure::Figures), |_| Ok(()));
        let Ended { results, .. } = world.reply(core);
        let results = results.clone().expect("an answer");
        Figures::decode(&mut Reader::new(&results)).expect("all figures")
    });
    assert_eq!(figures.map(|figures| figures.connections), [2, 2]);
    let all = world.further[0].service();
    assert_eq!((all.keys_count(), all.value_bytes()), (1, 200), "as metrics tell");
}

#[test]
fn keys_are_listed_by_any_core() {
    let mut world = World::of_two_cores(64 << 20);
    (0..10).for_each(|n| world.put_by(n % 2, &format!("key-{n}"), b""));
    for core in [FIRST, SECOND] {
        let (mut listed, mut at) = (Vec::new(), Some(0));
        while let Some(from) = at {
            world.ask(core, request(Procedure::Keys), |w| w.u32(from));
            let Ok(Answer::Keys(keys)) = world.answer(core) else { panic!("no keys") };
            listed.extend(keys.keys().map(|key| key.to_string()));
            at = keys.next;
        }
        listed.sort();
        assert_eq!(listed, (0..10).map(|n| format!("key-{n}")).collect::<Vec<_>>());
    }
}

#[test]
fn watches_hear_of_what_other_cores_change() {
    let mut world = World::of_two_cores(64 << 20);
    world.put_by(FIRST, "before", b"1");
    let watching = world.connections[SECOND];
    world.ask(SECOND, request(Procedure::Watch), |w| w.opaque(b"key"));
    assert_eq!(world.done(SECOND), DONE);
    world.put_by(FIRST, "key-1", b"one");
    world.put_by(FIRST, "other", b"two");
    world.settle();
    world.put_by(SECOND, "key-2", b"twenty");
    world.settle();
    world.del_by(FIRST, "key-1");
    world.settle();
    let (changes, merged) = world.caller().told.of(watching);
    let expected = [
        ("key-1", State::Set { length: 3 }),
        ("key-2", State::Set { length: 6 }),
        ("key-1", State::Deleted),
    ];
    assert_eq!((changes, merged), (expected.to_vec(), 0));
    assert_eq!(world.stat_by(FIRST).watches, 1);
}

#[test]
fn a_watch_that_misses_changes_of_other_cores_is_told_that_they_are_lost() {
    let mut world = World::of_two_cores(64 << 20);
    let watching = world.connections[SECOND];
    world.ask(SECOND, request(Procedure::Watch), |w| w.opaque(b""));
    assert_eq!(world.done(SECOND), DONE);
    // The second core stands still, and its mailbox fills.
    let (now, first) = (world.now, &mut world.server);
    let service = first.cx(now).1;
    (0..2000_u32).for_each(|n| service.changed(&n.to_be_bytes(), State::Deleted));
    // Nor can it be asked for memory, and nobody waits for it.
    let others = service.others.as_mut().expect("another core");
    assert!(!others.want(now) && !others.want(now));
    world.settle();
    assert!(world.caller().told.is_over(watching));
    // It may watch anew.
    world.ask(SECOND, request(Procedure::Watch), |w| w.opaque(b""));
    assert_eq!(world.done(SECOND), DONE);
    world.put_by(FIRST, "key", b"one");
    world.settle();
    let (changes, _) = world.caller().told.of(watching);
    assert_eq!(changes.last(), Some(&("key", State::Set { length: 3 })));
}

/// Stores values of 1 MiB by a connection, from this number on, until there are as many octets. Returns the number of the next.
fn fill(world: &mut World, core: usize, from: usize, octets: u64) -> usize {
    let count = usize::try_from(octets >> 20).unwrap();
    for number in from..from + count {
        let value = world.value(1 << 20, number);
        world.put(core, &number.to_string(), value);
        assert_eq!(world.done(core), DONE, "value {number}, behind {from}, of {count}");
    }
    from + count
}

#[test]
fn one_connection_fills_nine_tenths_of_the_memory_of_all_cores() {
    const MEMORY: u64 = 256 << 20;
    let of_one = World::new(1, MEMORY).stat().usable_bytes;
    let mut world = World::of_two_cores(MEMORY);
    let usable = world.stat_by(SECOND).usable_bytes;
    assert!(usable as f64 > of_one as f64 * 0.97, "{usable} of {of_one}");
    let next = fill(&mut world, SECOND, 0, usable * 9 / 10);
    // The other connection has what is left, and what this one frees.
    let left = world.free();
    let next = fill(&mut world, FIRST, next, left / 2);
    (0..next).for_each(|number| world.del_by(number % 2, &number.to_string()));
    assert!(world.free() as f64 > usable as f64 * 0.99);
    fill(&mut world, FIRST, next, usable * 9 / 10);
    for number in (next..next + 30).step_by(3) {
        let room = world.value(1 << 20, 99);
        world.get(SECOND, &number.to_string(), room);
        assert!(world.got(SECOND).bytes() == pattern(1 << 20, number));
    }
    assert_eq!(world.stat_by(FIRST).refused, 0);
}

#[test]
fn short_values_have_the_memory_of_all_cores_too() {
    let mut world = World::of_two_cores(16 << 20);
    let usable = usize::try_from(world.free()).unwrap();
    let value = vec![7; 3000];
    let store = |world: &mut World, core, key: &str| {
        world.ask(core, request(Procedure::Put), |w| {
            w.opaque(key.as_bytes())?;
            w.opaque(&value)
        });
        world.done(core)
    };
    let mut count = 0;
    while store(&mut world, FIRST, &count.to_string()) == DONE {
        count += 1;
    }
    assert!(count * 3000 > usable * 17 / 20, "{count} in {usable}");
    // What the second core deletes is the first one's, which gives it back when the second wants it.
    (0..count).for_each(|key| world.del_by(SECOND, &key.to_string()));
    let mut again = 0;
    for key in 0..count * 2 {
        again += usize::from(store(&mut world, SECOND, &key.to_string()) == DONE);
    }
    assert!(again * 3000 > usable / 3, "{again} in {usable}");
}

/// Calls of all connections, several at once, that store, look up and delete the same keys: what was seen of each key could have happened
/// in some order, by the moments at which the client made the Calls and knew their ends.
#[test]
fn histories_of_keys_over_several_cores_are_linearizable() {
    const KEYS: usize = 3;
    const SLOTS: usize = 8;
    for (seed, cores) in (0..24).zip([2, 3, 4].into_iter().cycle()) {
        let mut world = World::of_cores(cores, 64 << 20);
        let mut rng = Rng::new(seed);
        let mut moment = 0;
        let mut histories = [(); KEYS].map(|()| Vec::new());
        let mut under_way: [Option<(usize, u64, What)>; SLOTS] = [None; SLOTS];
        let mut value = 0;
        for round in 0..600 {
            let slot = rng.below(SLOTS);
            moment += 1;
            // Now and then nothing is under way, so that the history falls into parts.
            let is_quiet = round % 30 >= 20;
            if !is_quiet && under_way[slot].is_none() {
                // Slots of any connection.
                let which = rng.below(KEYS);
                let key = format!("key-{which}");
                value += 1;
                let what = match rng.below(4) {
                    0 => What::Put(value),
                    1 => What::Del(Found::No),
                    _ => What::Get(None),
                };
                let procedure = match what {
                    What::Put(_) => Procedure::Put,
                    What::Del(_) => Procedure::Del,
                    What::Get(_) => Procedure::Get,
                };
                world.ask(slot, request(procedure), |w| {
                    w.opaque(key.as_bytes())?;
                    if let What::Put(value) = what {
                        w.opaque(&value.to_be_bytes())
                    } else {
                        Ok(())
                    }
                });
                under_way[slot] = Some((which, moment, what));
            }
            let steps = if is_quiet { 200 } else { rng.below(6) };
            (0..steps).for_each(|_| world.step());
            for (slot, call) in under_way.iter_mut().enumerate() {
                if let Some((which, began, what)) = *call
                    && world.caller().ended[slot].is_some()
                {
                    moment += 1;
                    let what = seen(world.answer(slot).expect("a Reply"), what);
                    histories[which].push(Act { began, ended: moment, what });
                    *call = None;
                }
            }
        }
        for history in &histories {
            // In parts between moments at which nothing of the key was under way; a part of a few dozen acts at most.
            let mut left = BTreeSet::from([None]);
            let mut acts = history.clone();
            acts.sort_by_key(|act| act.began);
            let mut rest = &acts[..];
            while !rest.is_empty() {
                let mut length = 1;
                let mut end = rest[0].ended;
                while let Some(next) = rest.get(length).filter(|next| next.began <= end) {
                    end = end.max(next.ended);
                    length += 1;
                }
                left = outcomes(&rest[..length], &left);
                assert!(!left.is_empty(), "seed {seed}, {cores} cores: {:?}", &rest[..length]);
                rest = &rest[length..];
            }
        }
    }
}

/// Returns what a Call has done and seen.
fn seen(answer: Answer<'_>, asked: What) -> What {
    match (asked, answer) {
        (What::Get(_), Answer::Value(Told::Unreduced(value))) => {
            What::Get(Some(u32::from_be_bytes(value.try_into().expect("four octets"))))
        }
        (What::Get(_), Answer::Refused(Refusal::NotFound)) => What::Get(None),
        (What::Del(_), Answer::Refused(Refusal::NotFound)) => What::Del(Found::No),
        (What::Del(_), Answer::Done) => What::Del(Found::Yes),
        (What::Put(value), Answer::Done) => What::Put(value),
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_core_asks_for_memory_anew_although_there_was_none_once() {
    let mut world = World::of_two_cores(16 << 20);
    let usable = world.free();
    // Each core has half of the memory, and the first is told that the second has none to give.
    let next = fill(&mut world, FIRST, 0, usable / 2);
    let end = fill(&mut world, SECOND, next, usable / 2 - (2 << 20));
    let now = world.now;
    assert!(world.server.cx(now).1.others.as_mut().expect("another core").want(now));
    world.settle();
    // The second has all of its half to give by now, and the first gets it for a value that waits.
    (next..end).for_each(|number| world.del_by(SECOND, &number.to_string()));
    world.settle();
    let value = world.value(4 << 20, 1);
    world.put(FIRST, "long", value);
    assert_eq!(world.done(FIRST), DONE);
}

/// Stores short values under keys from a number on by a connection, until one is refused. Returns how many were stored.
fn fill_short(world: &mut World, core: usize, from: usize, length: usize) -> usize {
    let store = |number: &usize| {
        world.ask(core, request(Procedure::Put), |w| {
            w.opaque(number.to_string().as_bytes())?;
            w.opaque(&pattern(length, *number))
        });
        match world.done(core) {
            DONE => true,
            outcome => {
                assert_eq!(outcome, refused(Refusal::NoSpace));
                false
            }
        }
    };
    (from..).take_while(store).count()
}

#[test]
fn what_short_values_leave_free_is_of_use_to_all_cores_whatever_the_lengths() {
    let mut world = World::of_two_cores(16 << 20);
    let usable = world.free();
    for (round, (before, after)) in
        [(3000, 1600), (1600, 3000), (2300, 4000)].into_iter().enumerate()
    {
        let first = fill_short(&mut world, FIRST, 0, before);
        // One in eight is left of each slab, and its core moves them together when the other one wants memory.
        let kept = |number: &usize| number.is_multiple_of(8);
        (0..first).filter(|number| !kept(number)).for_each(|number| {
            world.del_by(SECOND, &number.to_string());
        });
        let second = fill_short(&mut world, SECOND, first, after);
        let used = first / 8 * before + second * after;
        assert!(used as u64 > usable * 4 / 5, "{before}, then {after}: {used} of {usable}");
        for number in (0..first).filter(kept) {
            let found = world.get_by(number % 2, &number.to_string());
            assert!(found == Some(pattern(before, number)), "{before}: {number}");
            world.del_by(FIRST, &number.to_string());
        }
        for number in first..first + second {
            let found = world.get_by(FIRST, &number.to_string());
            assert!(found == Some(pattern(after, number)), "{after}: {number}");
            world.del_by(FIRST, &number.to_string());
        }
        assert!(world.free() > usable - (64 << 10), "round {round}: {} of {usable}", world.free());
    }
    assert!(world.stat_by(FIRST).moved_bytes > 0);
}

/// While a core stands still, what the other one replaces stays where it is, as long as the first may read it.
#[test]
fn nothing_is_refused_while_another_core_stands_still() {
    const SLOTS: usize = 10;
    for length in [1500, 1 << 20] {
        let mut world = World::of_two_cores(16 << 20);
        world.put_by(SECOND, "other", b"");
        assert!(world.get_by(SECOND, "other").is_some());
        let usable = world.free();
        let now = world.now;
        // It reads, and does not turn.
        let still = world.further.pop().expect("the second core");
        assert!(still.service().index.get(b"other").is_some());
        let put = |world: &mut World, slot: usize, seed: usize| {
            let key = format!("key-{}", slot % 4);
            if length > 4096 {
                let value = world.value(length, seed);
                world.put(2 * slot + FIRST, &key, value);
            } else if slot.is_multiple_of(2) {
                world.ask(2 * slot + FIRST, request(Procedure::Put), |w| {
                    w.opaque(key.as_bytes())?;
                    w.opaque(&pattern(length, seed))
                });
            } else {
                world.ask(2 * slot + FIRST, request(Procedure::MPut), |w| {
                    w.u32(2)?;
                    for key in [&key[..], "another"] {
                        w.opaque(key.as_bytes())?;
                        w.opaque(&pattern(length, seed))?;
                    }
                    Ok(())
                });
            }
        };
        // Returns whether everything was stored, if the Call has ended.
        let ended = |world: &mut World, slot: usize| {
            let slot = 2 * slot + FIRST;
            let Ended { results, .. } = world.caller().ended[slot].take()?;
            let results = results.expect("an answer");
            let words = match world.caller().asked[slot] {
                Procedure::MPut => vec![0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
                _ => vec![0; 4],
            };
            assert_eq!(results, words, "length {length}");
            Some(())
        };
        let mut stored = 0;
        (0..SLOTS).for_each(|slot| put(&mut world, slot, slot));
        let mut idle = 0;
        while idle < 2000 {
            world.step();
            // The first core has always something to do.
            world.now = world.now.saturating_add(std::time::Duration::from_micros(1));
            idle += 1;
            for slot in 0..SLOTS {
                if ended(&mut world, slot).is_some() {
                    (idle, stored) = (0, stored + 1);
                    put(&mut world, slot, stored);
                }
            }
        }
        assert!(stored * length > usize::try_from(usable).unwrap() / 2, "{stored} of {length}");
        world.further.push(still);
        for slot in 0..SLOTS {
            let ends = (0..100_000).any(|_| {
                world.step();
                ended(&mut world, slot).is_some()
            });
            assert!(ends, "Call {slot}, of {length}");
        }
        assert!(world.now.saturating_since(now) < std::time::Duration::from_secs(5));
        (0..4).for_each(|key| world.del_by(SECOND, &format!("key-{key}")));
        if length < 4096 {
            world.del_by(FIRST, "another");
        }
        assert_eq!((world.free(), world.stat_by(FIRST).refused), (usable, 0));
    }
}

#[test]
fn a_short_value_waits_in_bounds_and_not_for_ever() {
    const SLOTS: usize = 8;
    let mut world = World::of_two_cores(16 << 20);
    world.put_by(SECOND, "other", b"");
    assert!(world.get_by(SECOND, "other").is_some());
    let still = world.further.pop().expect("the second core");
    let put = |world: &mut World, slot: usize| {
        world.ask(2 * slot + FIRST, request(Procedure::Put), |w| {
            w.opaque(format!("key-{}", slot % 2).as_bytes())?;
            w.opaque(&pattern(3000, slot))
        });
    };
    let step = |world: &mut World| {
        world.step();
        world.now = world.now.saturating_add(std::time::Duration::from_micros(1));
    };
    (0..SLOTS).for_each(|slot| put(&mut world, slot));
    let mut idle = 0;
    while idle < 2000 {
        step(&mut world);
        idle += 1;
        for slot in 0..SLOTS {
            if world.caller().ended[2 * slot + FIRST].is_some() {
                assert_eq!(world.done(2 * slot + FIRST), DONE);
                put(&mut world, slot);
                idle = 0;
            }
        }
    }
    // Where as many octets wait as may, another value is refused at once.
    let now = world.now;
    world.server.cx(now).1.waiting.octets += super::super::waiting::OCTETS_MAX;
    put(&mut world, SLOTS);
    (0..2000).for_each(|_| step(&mut world));
    assert!(world.caller().ended[2 * SLOTS + FIRST].is_some());
    assert_eq!(world.done(2 * SLOTS + FIRST), refused(Refusal::NoSpace));
    let now = world.now;
    world.server.cx(now).1.waiting.octets -= super::super::waiting::OCTETS_MAX;
    assert!((0..SLOTS).all(|slot| world.caller().ended[2 * slot + FIRST].is_none()));
    // The others have waited long enough after a while.
    world.now = world.now.saturating_add(super::super::waiting::WAIT_MAX);
    (0..2000).for_each(|_| step(&mut world));
    for slot in 0..SLOTS {
        assert!(world.caller().ended[2 * slot + FIRST].is_some(), "Call {slot}");
        assert_eq!(world.done(2 * slot + FIRST), refused(Refusal::NoSpace));
    }
    world.further.push(still);
    world.settle();
    world.put_by(FIRST, "key-0", b"again");
}
