//! Cores that look up, replace, remove and insert entries.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::check;
use crate::sys::entries::{Entries, Other, Sizes, Unstored};

/// A value, whose memory is read by who finds it, and written by who drops it.
struct Value {
    number: u64,
    octets: UnsafeCell<()>,
    alive: Arc<AtomicUsize>,
}

impl Value {
    fn new(number: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number, octets: UnsafeCell::new(()), alive: Arc::clone(alive) }
    }

    fn read(&self) -> u64 {
        self.octets.with(|_| ());
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.octets.with_mut(|_| ());
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

type Table = Entries<[u8; 1], Value>;

/// Runs a model with a table for as many cores as it takes, and finds everything dropped once at the end.
fn of_cores<const CORES: usize>(model: fn([Table; CORES], &Arc<AtomicUsize>)) {
    check(move || {
        let alive = Arc::new(AtomicUsize::new(0));
        let sizes = Sizes { records: 3 * CORES, lines: 1, kept: 1, batch: 1 };
        let tables = Entries::sized(CORES, sizes).expect("there is memory");
        let Ok(tables) = <[Table; CORES]>::try_from(tables) else {
            unreachable!("one for each core")
        };
        model(tables, &alive);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}

fn find(table: &Table, key: u8) -> Option<u64> {
    table.find(key.into(), &[key]).map(|found| found.entry.value().read())
}

fn insert(table: &mut Table, key: u8, value: Value) -> Result<u32, Unstored<([u8; 1], Value)>> {
    table.insert(key.into(), [key], value).map(|(place, _)| place)
}

/// Has a value replace whatever there is. Returns what there was, or `None` if another core was faster.
fn replace(table: &mut Table, key: u8, value: Value) -> Option<u64> {
    let found = table.find(key.into(), &[key])?;
    let (at, before) = (found.at, found.entry.value().read());
    table.replace(at, value).is_ok().then_some(before)
}

fn remove(table: &mut Table, key: u8) -> bool {
    let at = table.find(key.into(), &[key]).map(|found| found.at);
    at.is_some_and(|at| table.remove(at))
}

/// What a core has found is not dropped before it passes, however the other one replaces and frees it; and what was replaced
/// before a core began to read is not found by it.
pub fn what_is_read_is_not_freed() {
    of_cores(|[mut one, mut other]: [Table; 2], alive| {
        insert(&mut one, 1, Value::new(1, alive)).ok().expect("there is room");
        let reading = thread::spawn(move || {
            let first = find(&other, 1).expect("it is there");
            other.pass();
            let second = find(&other, 1).expect("it is there");
            other.rest();
            assert!(first <= second && find(&other, 1).expect("it is there") >= second);
        });
        assert_eq!(replace(&mut one, 1, Value::new(2, alive)), Some(1));
        one.pass();
        one.pass();
        reading.join().expect("it ends");
    });
}

/// Of two cores that replace a value, or remove it, each takes away what it has found or changes nothing.
pub fn each_value_is_taken_away_once() {
    of_cores(|[mut one, mut other]: [Table; 2], alive| {
        insert(&mut one, 1, Value::new(1, alive)).ok().expect("there is room");
        let value = Value::new(2, alive);
        let removing = thread::spawn(move || {
            let removed = remove(&mut other, 1);
            other.pass();
            (removed, find(&other, 1))
        });
        let replaced = replace(&mut one, 1, value);
        one.pass();
        let (removed, left) = removing.join().expect("it ends");
        assert!(replaced.is_some() || removed, "one of them was first");
        assert_eq!(left, if removed { None } else { Some(2) });
        assert_eq!(find(&one, 1), left);
    });
}

/// A core that puts another copy of a key and a value in the place of an entry takes the old ones away, or another core that
/// replaces the value is faster and nothing that was moved comes back.
pub fn a_copy_replaces_what_is_there_or_nothing() {
    of_cores(|[mut one, mut other]: [Table; 2], alive| {
        insert(&mut one, 1, Value::new(1, alive)).ok().expect("there is room");
        let value = Value::new(2, alive);
        let replacing = thread::spawn(move || {
            let replaced = replace(&mut other, 1, value);
            other.pass();
            replaced
        });
        let (mark, entry) = one.look(0).expect("it is there");
        let copy = Value::new(entry.value().read(), alive);
        let moved = one.exchange(mark, Other::Both([1], copy)).is_ok();
        one.pass();
        let replaced = replacing.join().expect("it ends");
        let left = find(&one, 1).expect("it is there");
        assert!(moved || replaced.is_some(), "one of them was first");
        assert_eq!(left, if replaced.is_some() { 2 } else { 1 });
    });
}

/// Of two cores that insert the same key, one does, and the other is told; a third one finds one value or none.
pub fn a_key_is_inserted_once() {
    of_cores(|[mut one, mut other, third]: [Table; 3], alive| {
        let value = Value::new(2, alive);
        let inserting = thread::spawn(move || insert(&mut other, 1, value).is_ok());
        let reading = thread::spawn(move || find(&third, 1));
        let mine = insert(&mut one, 1, Value::new(1, alive)).is_ok();
        let theirs = inserting.join().expect("it ends");
        assert!(mine != theirs);
        let found = find(&one, 1).expect("it was inserted");
        assert_eq!(found, if mine { 1 } else { 2 });
        assert!(reading.join().expect("it ends").is_none_or(|early| early == found));
    });
}
