use std::collections::HashMap;
use std::rc::Rc;

use haulage::sys::alloc::{Counting, allocations_on_this_thread};
use haulage_test_support::Rng;

use super::*;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SEED: Seed = Seed::fixed(1, 2);

fn index(capacity: u32) -> Index<Vec<u8>, u32> {
    Index::new(capacity, SEED)
}

fn taken<K, V>(index: &Index<K, V>) -> usize {
    index.table.octets() + size_of_val(&*index.slots)
}

fn old<V>(stored: Stored<V>) -> Option<V> {
    stored.old
}

fn keep(key: &[u8]) -> Option<Vec<u8>> {
    Some(key.to_vec())
}

#[test]
fn an_index_takes_no_more_than_it_says() {
    for capacity in (0..40).chain([1000, 1792, 1793, 3584, 3585, 100_000]) {
        let index = index(capacity);
        let (takes, most) = (taken(&index), Index::<Vec<u8>, u32>::octets_max(capacity));
        assert!(takes <= most, "{takes} for {capacity} keys, {most} at most");
    }
}

#[test]
fn every_key_is_visited_once_however_often_one_stops() {
    let mut index = index(100);
    let key = |n: u32| format!("key-{n}").into_bytes();
    (0..100).for_each(|n| _ = index.put(&key(n), n, keep).unwrap());
    (0..100).step_by(3).for_each(|n| _ = index.remove(&key(n)).unwrap());
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
    let none = |_: &Vec<u8>| panic!("there is no such slot");
    assert_eq!((index.visit(100, 9, none), index.visit(u32::MAX, 9, none)), (None, None));
}

#[test]
fn it_behaves_as_a_map_through_any_sequence_of_operations() {
    for seed in 1..=20 {
        let mut chance = Rng::new(seed);
        let capacity = 1 + u32::try_from(chance.below(200)).unwrap();
        let mut index = Index::new(capacity, Seed::fixed(seed, 7));
        let mut model: HashMap<Vec<u8>, u32> = HashMap::new();
        for step in 0..5_000 {
            let length = 1 + chance.below(3) * 255;
            let mut key = vec![b'k'; length];
            key[length - 1] = u8::try_from(chance.below(100)).unwrap();
            match chance.below(5) {
                0 | 1 => {
                    let full = model.len() == capacity as usize && !model.contains_key(&key);
                    let outcome = index.put(&key, step, keep).map(old);
                    if full {
                        assert_eq!(outcome, Err(Full(step)));
                    } else {
                        assert_eq!(outcome, Ok(model.insert(key, step)), "seed {seed}");
                    }
                }
                2 => assert_eq!(index.get(&key), model.get(&key), "seed {seed}"),
                _ => {
                    let removed = model.remove_entry(&key);
                    assert_eq!(index.remove(&key), removed, "seed {seed}");
                }
            }
            assert_eq!((index.len(), index.is_empty()), (model.len(), model.is_empty()));
        }
        for (key, value) in &model {
            assert_eq!(index.get(key), Some(value), "seed {seed}");
        }
    }
}

#[test]
fn a_full_index_still_overwrites_and_takes_new_keys_once_there_is_room() {
    let mut index = index(2);
    assert_eq!((index.capacity(), index.put(b"a", 1, keep).map(old)), (2, Ok(None)));
    assert_eq!(index.put(b"b", 2, keep).map(old), Ok(None));
    assert_eq!(index.put(b"c", 3, keep).map(old), Err(Full(3)));
    assert_eq!(index.put(b"a", 4, |_| unreachable!("the key is there")).map(old), Ok(Some(1)));
    assert_eq!(index.remove(b"b"), Some((b"b".to_vec(), 2)));
    assert_eq!(index.put(b"c", 3, |_| None).map(old), Err(Full(3)), "no memory for the key");
    assert_eq!(index.put(b"c", 3, keep).map(old), Ok(None));
    assert_eq!((index.get(b"b"), index.get(b"c")), (None, Some(&3)));
    assert_eq!(Index::<Vec<u8>, u32>::new(0, SEED).put(b"a", 1, keep).map(old), Err(Full(1)));
}

#[test]
fn an_overwritten_value_stays_with_those_who_hold_it() {
    let mut index: Index<Vec<u8>, Rc<str>> = Index::new(1, SEED);
    assert_eq!(index.put(b"k", "old".into(), keep).map(old), Ok(None));
    let in_flight = Rc::clone(index.get(b"k").unwrap());
    drop(index.put(b"k", "new".into(), keep));
    assert_eq!((&*in_flight, Rc::strong_count(&in_flight)), ("old", 1));
    assert_eq!(index.get(b"k").map(|value| &**value), Some("new"));
}

#[test]
fn nothing_is_allocated_after_the_start_whatever_comes_and_goes() {
    // Half of the entries of a table are in use at most. With this many keys, this is its tightest case.
    const KEYS: u32 = 2_048;
    // Keys that live on the stack, so that only the index could allocate.
    let key = |n: u32| n.to_be_bytes();
    let keep = |key: &[u8]| <[u8; 4]>::try_from(key).ok();
    let mut index: Index<[u8; 4], u32> = Index::new(KEYS, SEED);
    let (before, octets) = (allocations_on_this_thread(), taken(&index));
    for n in 0..KEYS {
        assert!(index.put(&key(n), n, keep).is_ok());
    }
    // The index stays full while its keys change: each round fills the gap of a removed entry.
    for n in 0..200_000 {
        assert!(index.remove(&key(n)).is_some() && index.put(&key(n + KEYS), n, keep).is_ok());
    }
    assert_eq!(allocations_on_this_thread(), before);
    assert_eq!((taken(&index), index.len()), (octets, KEYS as usize));
}

#[test]
fn hashes_differ_from_seed_to_seed() {
    let hash = |own, shared| Seed::fixed(own, shared).hash(b"key");
    assert_eq!(hash(1, 2), hash(1, 2));
    assert!(hash(1, 2) != hash(3, 2) && hash(1, 2) != hash(1, 3));
    assert_ne!(Seed::random().unwrap().hash(b"key"), Seed::random().unwrap().hash(b"key"));
}
