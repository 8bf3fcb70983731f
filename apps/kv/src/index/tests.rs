use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use haulage::sys::alloc::{Counting, allocations_on_this_thread};
use haulage_test_support::Rng;

use super::*;
use crate::histories::{Act, Found, What, outcomes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SEED: &Seed = &Seed::fixed(1, 2);

fn index(capacity: u32) -> Index<Vec<u8>, u32> {
    Index::new(capacity, SEED)
}

/// Stores what can be copied.
fn put<V: Copy>(
    index: &mut Index<Vec<u8>, V>,
    key: &[u8],
    value: V,
) -> Result<Option<V>, Unkept<V>> {
    index.put(key, value, keep, |before| *before, |_, _, _| ()).map(|stored| stored.before)
}

fn keep(key: &[u8]) -> Option<Vec<u8>> {
    Some(key.to_vec())
}

#[test]
fn every_key_is_visited_once_however_often_one_stops() {
    let mut index = index(100);
    let key = |n: u32| format!("key-{n}").into_bytes();
    (0..100).for_each(|n| _ = put(&mut index, &key(n), n).unwrap());
    (0..100).step_by(3).for_each(|n| index.remove(&key(n), |_| ()).unwrap());
    for (most, at_once) in [(1, 1), (7, 2), (1000, 5), (1000, 1000)] {
        let mut seen = Vec::new();
        let mut at = Some(0);
        while let Some(from) = at {
            let enough = seen.len() + at_once;
            at = index.visit(from, most, |key| {
                if seen.len() == enough {
                    return ControlFlow::Break(());
                }
                seen.push(key.clone());
                ControlFlow::Continue(())
            });
        }
        let mut expected: Vec<_> = (0..100).filter(|n| n % 3 != 0).map(key).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected, "{most} slots and {at_once} keys at a time");
    }
    let none = |_: &Vec<u8>| panic!("there is no such place");
    let places = u32::try_from(index.entries.places()).unwrap();
    assert_eq!((index.visit(places, 9, none), index.visit(u32::MAX, 9, none)), (None, None));
}

#[test]
fn it_behaves_as_a_map_through_any_sequence_of_operations() {
    for seed in 1..=20 {
        let mut chance = Rng::new(seed);
        let capacity = 1 + u32::try_from(chance.below(200)).unwrap();
        let mut index = Index::new(capacity, &Seed::fixed(seed, 7));
        let mut model: HashMap<Vec<u8>, u32> = HashMap::new();
        for step in 0..5_000 {
            let length = 1 + chance.below(3) * 255;
            let mut key = vec![b'k'; length];
            key[length - 1] = u8::try_from(chance.below(100)).unwrap();
            match chance.below(5) {
                0 | 1 => {
                    let full = model.len() == capacity as usize && !model.contains_key(&key);
                    let outcome = put(&mut index, &key, step);
                    if full {
                        assert_eq!(outcome, Err(Unkept::Full(step)));
                    } else {
                        assert_eq!(outcome, Ok(model.insert(key, step)), "seed {seed}");
                    }
                }
                2 => assert_eq!(index.get(&key), model.get(&key), "seed {seed}"),
                _ => {
                    let removed = model.remove(&key);
                    assert_eq!(index.remove(&key, |value| *value), removed, "seed {seed}");
                }
            }
            assert_eq!(usize::try_from(index.balance()), Ok(model.len()));
        }
        for (key, value) in &model {
            assert_eq!(index.get(key), Some(value), "seed {seed}");
        }
    }
}

#[test]
fn a_full_index_still_overwrites_and_takes_new_keys_once_there_is_room() {
    let mut index = index(2);
    assert_eq!((index.capacity(), put(&mut index, b"a", 1)), (2, Ok(None)));
    assert_eq!(put(&mut index, b"b", 2), Ok(None));
    assert_eq!(put(&mut index, b"c", 3), Err(Unkept::Full(3)));
    let there = |_: &[u8]| unreachable!("the key is there");
    let again = index.put(b"a", 4, there, |before| *before, |_, _, _| ());
    assert_eq!(again.map(|stored| stored.before), Ok(Some(1)));
    assert_eq!(index.remove(b"b", |value| *value), Some(2));
    let no_key = index.put(b"c", 3, |_| None, |_| (), |_, _, _| ());
    assert_eq!(no_key, Err(Unkept::NoKey(3)), "no memory for the key");
    assert_eq!(put(&mut index, b"c", 3), Ok(None));
    assert_eq!((index.get(b"b"), index.get(b"c")), (None, Some(&3)));
    assert_eq!(put(&mut Index::new(0, SEED), b"a", 1), Err(Unkept::Full(1)));
}

#[test]
fn an_overwritten_value_stays_with_those_who_hold_it() {
    let mut index: Index<Vec<u8>, Arc<str>> = Index::new(1, SEED);
    let mut put =
        |value: &str| _ = index.put(b"k", value.into(), keep, |_| (), |_, _, _| ()).unwrap();
    put("old");
    let in_flight = Arc::clone(index.get(b"k").unwrap());
    let mut put =
        |value: &str| _ = index.put(b"k", value.into(), keep, |_| (), |_, _, _| ()).unwrap();
    put("new");
    assert_eq!((&*in_flight, Arc::strong_count(&in_flight)), ("old", 1));
    assert_eq!(index.get(b"k").map(|value| &**value), Some("new"));
}

#[test]
fn nothing_is_allocated_after_the_start_whatever_comes_and_goes() {
    const KEYS: u32 = 2_048;
    // Keys that live on the stack, so that only the index could allocate.
    let key = |n: u32| n.to_be_bytes();
    let keep = |key: &[u8]| <[u8; 4]>::try_from(key).ok();
    let mut index: Index<[u8; 4], u32> = Index::new(KEYS, SEED);
    let before = allocations_on_this_thread();
    for n in 0..KEYS {
        assert!(index.put(&key(n), n, keep, |_| (), |_, _, _| ()).is_ok());
    }
    // The index stays full while its keys change.
    for n in 0..200_000 {
        assert!(index.remove(&key(n), |_| ()).is_some());
        assert!(index.put(&key(n + KEYS), n, keep, |_| (), |_, _, _| ()).is_ok());
    }
    assert_eq!(allocations_on_this_thread(), before);
    assert_eq!(index.balance(), i64::from(KEYS));
}

#[test]
fn all_cores_have_the_same_keys() {
    let mut all: Vec<Index<Vec<u8>, u32>> = Index::all(3, 100, SEED).unwrap();
    let key = |n: u32| n.to_be_bytes();
    for n in 0..90 {
        assert_eq!(put(&mut all[n as usize % 3], &key(n), n), Ok(None));
    }
    for n in 0..90 {
        let (mine, next) = (n as usize % 3, (n as usize + 1) % 3);
        assert_eq!(all[next].get(&key(n)), Some(&n));
        assert_eq!(put(&mut all[next], &key(n), n + 1), Ok(Some(n)));
        assert_eq!(all[mine].get(&key(n)), Some(&(n + 1)));
        assert_eq!(all[mine].remove(&key(n), |value| *value), Some(n + 1));
        all.iter_mut().for_each(|index| _ = index.pass());
    }
    assert_eq!(all.iter().map(Index::balance).sum::<i64>(), 0);
}

/// Threads that store, look up and delete the same two keys at once, in short rounds: what each of them saw of a key in a round could
/// have happened in some order.
#[test]
fn histories_of_keys_over_threads_are_linearizable() {
    const CORES: usize = 3;
    const KEYS: [&[u8]; 2] = [b"one", b"two"];
    let (now, barrier) = (AtomicU64::new(0), Barrier::new(CORES));
    let moment = || now.fetch_add(1, Ordering::SeqCst);
    let act = |index: &mut Index<Vec<u8>, u32>, rng: &mut Rng, value| {
        let which = rng.below(2);
        let key = KEYS[which];
        let began = moment();
        let what = match rng.below(5) {
            0 | 1 => {
                assert!(put(index, key, value).is_ok());
                What::Put(value)
            }
            2 => What::Del(index.remove(key, |_| ()).map_or(Found::No, |()| Found::Yes)),
            _ => What::Get(index.get(key).copied()),
        };
        (which, Act { began, ended: moment(), what })
    };
    let rounds = |mut index: Index<Vec<u8>, u32>, core: u32| {
        let mut rng = Rng::new(u64::from(core) + 1);
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            // Who waits reads nothing.
            index.rest();
            barrier.wait();
            let mut acts = Vec::new();
            for number in 0..6 {
                acts.push(act(&mut index, &mut rng, (round * 8 + number) * 4 + core));
                index.pass();
            }
            rounds.push(acts);
        }
        rounds
    };
    let all = Index::all(CORES, 8, SEED).unwrap();
    let seen: Vec<Vec<_>> = thread::scope(|scope| {
        let rounds = &rounds;
        let cores: Vec<_> =
            (0..).zip(all).map(|(core, index)| scope.spawn(move || rounds(index, core))).collect();
        cores.into_iter().map(|core| core.join().unwrap()).collect()
    });
    for which in 0..KEYS.len() {
        let mut left = BTreeSet::from([None]);
        for round in 0..ROUNDS as usize {
            let acts = seen.iter().flat_map(|core| &core[round]);
            let acts: Vec<_> = acts.filter(|(key, _)| *key == which).map(|(_, act)| *act).collect();
            left = outcomes(&acts, &left);
            assert!(!left.is_empty(), "round {round}: {acts:?}");
        }
    }
}

/// Rounds of a history: each takes some ten microseconds of each thread.
const ROUNDS: u32 = 2_000;

#[test]
fn hashes_differ_from_seed_to_seed() {
    let hash = |own, shared| Seed::fixed(own, shared).hash(b"key");
    assert_eq!(hash(1, 2), hash(1, 2));
    assert!(hash(1, 2) != hash(3, 2) && hash(1, 2) != hash(1, 3));
    assert_ne!(Seed::random().unwrap().hash(b"key"), Seed::random().unwrap().hash(b"key"));
}
