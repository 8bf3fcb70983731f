use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use super::*;

/// A value that counts itself.
struct Counted(u64, Arc<AtomicUsize>);

impl Counted {
    fn new(value: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(value, Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

type Table = Entries<Vec<u8>, Counted>;

fn two() -> ([Table; 2], Arc<AtomicUsize>) {
    let Ok(both) = <[Table; 2]>::try_from(Entries::all(2, 100).unwrap()) else {
        panic!("one for each")
    };
    (both, Arc::default())
}

fn get<V>(table: &Entries<Vec<u8>, V>, key: &str) -> Option<At> {
    table.find(hash(key), key.as_bytes()).map(|found| found.at)
}

fn value(table: &Table, key: &str) -> Option<u64> {
    table.find(hash(key), key.as_bytes()).map(|found| found.entry.value().0)
}

/// Keys of which the first octet is the same have the same home.
fn hash(key: &str) -> u64 {
    let octets = key.as_bytes();
    u64::from(octets[0]) << 57
        | octets.iter().fold(7, |sum, octet| sum * 31 + u64::from(*octet)) & 0xffff_ffff
}

fn insert<V>(table: &mut Entries<Vec<u8>, V>, key: &str, value: V) -> Option<u32> {
    table.insert(hash(key), key.as_bytes().to_vec(), value).ok().map(|(place, _)| place)
}

#[test]
fn what_a_core_may_read_is_dropped_once_it_has_passed_or_rests() {
    for rests in [false, true] {
        let ([mut one, mut other], alive) = two();
        assert!(insert(&mut one, "key", Counted::new(1, &alive)).is_some());
        let read = other.find(hash("key"), b"key").unwrap().entry;
        let at = get(&one, "key").unwrap();
        assert!(one.replace(at, Counted::new(2, &alive)).is_ok());
        assert!(one.pass() && one.pass(), "the other core still reads");
        assert_eq!(
            (read.value().0, &read.key()[..], alive.load(Ordering::Relaxed)),
            (1, &b"key"[..], 2)
        );
        if rests {
            other.rest()
        } else {
            _ = other.pass()
        }
        assert!(!one.pass());
        assert_eq!((alive.load(Ordering::Relaxed), value(&other, "key")), (1, Some(2)));
        // The key outlived the first value, and goes with the last.
        let at = get(&other, "key").unwrap();
        assert!(other.remove(at) && !other.remove(at));
        assert_eq!((value(&one, "key"), alive.load(Ordering::Relaxed)), (None, 1));
        assert!(other.pass());
        one.rest();
        assert!(!other.pass());
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn who_is_late_changes_nothing_and_is_told() {
    let ([mut one, mut other], alive) = two();
    insert(&mut one, "key", Counted::new(1, &alive)).unwrap();
    let late = get(&other, "key").unwrap();
    one.replace(late, Counted::new(2, &alive)).ok().unwrap();
    let Err(Unstored::Changed(Counted(3, _))) = other.replace(late, Counted::new(3, &alive)) else {
        panic!("the entry has changed");
    };
    assert!(!other.remove(late));
    let again = other.insert(hash("key"), b"key".to_vec(), Counted::new(4, &alive));
    assert!(matches!(&again, Err(Unstored::Changed((key, _))) if key == b"key"));
    drop(again);
    assert_eq!(value(&one, "key"), Some(2));
    drop((one, other));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "everything is dropped once, taken away or not");
}

#[test]
fn a_copy_takes_the_place_of_an_entry_unless_that_has_changed() {
    let ([mut one, mut other], alive) = two();
    let place = insert(&mut one, "key", Counted::new(1, &alive)).unwrap();
    let (mark, entry) = other.look(place).unwrap();
    let key = entry.key().clone();
    // Another copy of the key and another value: both old ones go.
    let with = Other::Both(key, Counted::new(2, &alive));
    assert!(one.exchange(mark, with).is_ok() && one.pass());
    assert_eq!((entry.value().0, &entry.key()[..]), (1, &b"key"[..]));
    assert!(!other.pass() && !one.pass());
    assert_eq!((value(&other, "key"), alive.load(Ordering::Relaxed)), (Some(2), 1));
    // Who is late gets back what it had.
    let with = Other::Both(b"key".to_vec(), Counted::new(3, &alive));
    let changed = other.exchange(mark, with);
    assert!(matches!(&changed, Err(Unstored::Changed(Other::Both(_, Counted(3, _))))));
    drop(changed);
    let late = Other::Value(Counted::new(4, &alive));
    assert!(matches!(other.exchange(mark, late), Err(Unstored::Changed(Other::Value(_)))));
    let (mark, _) = other.look(place).unwrap();
    assert!(other.exchange(mark, Other::Value(Counted::new(5, &alive))).is_ok());
    assert!(other.pass() && !one.pass() && !other.pass());
    assert_eq!((value(&one, "key"), alive.load(Ordering::Relaxed)), (Some(5), 1));
    // Removed entries are replaced by nothing, and few records are left to others.
    let at = get(&one, "key").unwrap();
    let (mark, _) = one.look(place).unwrap();
    assert!(one.remove(at) && one.exchange(mark, Other::Value(Counted::new(6, &alive))).is_err());
    let place = insert(&mut one, "again", Counted::new(7, &alive)).unwrap();
    let mut count = 0;
    let full = loop {
        let (mark, _) = one.look(place).unwrap();
        match one.exchange(mark, Other::Value(Counted::new(8, &alive))) {
            Ok(()) => count += 1,
            Err(full) => break full,
        }
    };
    assert!(matches!(full, Unstored::Full(Other::Value(_))) && count > 0);
    let at = get(&one, "again").unwrap();
    assert!(one.replace(at, Counted::new(9, &alive)).is_ok(), "records are left for new values");
    drop((full, one, other));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn entries_of_a_full_line_are_found_behind_it() {
    let mut table: Entries<Vec<u8>, u32> = Entries::all(1, 100).unwrap().remove(0);
    let keys: Vec<_> = (0..60).map(|n| format!("z{n}")).collect();
    for (key, n) in keys.iter().zip(0..) {
        assert!(insert(&mut table, key, n).is_some());
    }
    // Removed ones make room in front of others, which stay.
    for key in keys.iter().step_by(3) {
        let at = get(&table, key).unwrap();
        assert!(table.remove(at));
    }
    for (number, key) in keys.iter().enumerate() {
        let found = table.find(hash(key), key.as_bytes()).map(|found| *found.entry.value());
        assert_eq!(found, (number % 3 != 0).then_some(u32::try_from(number).unwrap()));
    }
    let mut places: Vec<_> =
        keys.iter().filter_map(|key| get(&table, key)).map(At::place).collect();
    places.sort_unstable();
    let all = (0..u32::try_from(table.places()).unwrap()).filter(|at| table.look(*at).is_some());
    assert!(all.eq(places) && table.look(u32::MAX).is_none());
    for key in &keys {
        if let Some(at) = get(&table, key) {
            assert!(table.remove(at));
        }
    }
    let passed = table.shared.lines.iter().map(|line| line.passed.load(Ordering::Relaxed));
    assert_eq!(passed.sum::<u32>(), 0, "a search ends in its first line again");
}

#[test]
fn one_core_stores_as_many_as_it_was_told_and_several_at_least_as_many() {
    for (cores, most) in [(1, 0), (1, 1), (1, 1000), (2, 0), (2, 1000)] {
        let mut tables: Vec<Entries<Vec<u8>, ()>> = Entries::all(cores, most).unwrap();
        let stored =
            (0..).take_while(|n| insert(&mut tables[0], &format!("{n}"), ()).is_some()).count();
        let most = most as usize;
        assert!(stored == most || cores > 1 && stored > most, "{stored} of {most}");
        // Values are replaced nevertheless, and a removed key makes room.
        if stored > 0 {
            let at = get(&tables[0], "0").unwrap();
            assert!(tables[0].replace(at, ()).is_ok());
            let at = get(&tables[0], "0").unwrap();
            assert!(tables[0].remove(at));
            tables.iter_mut().for_each(Entries::rest);
            tables[0].pass();
            assert!(insert(&mut tables[0], "another", ()).is_some());
        }
    }
}

#[test]
fn only_a_core_that_is_alone_changes_values_in_place() {
    let mut alone: Entries<Vec<u8>, u32> = Entries::all(1, 9).unwrap().remove(0);
    let at = insert(&mut alone, "key", 1).unwrap();
    *alone.alone_mut(at).unwrap().1 = 2;
    assert_eq!(
        alone.look(at).map(|(_, entry)| (&entry.key()[..], *entry.value())),
        Some((&b"key"[..], 2))
    );
    let mut of_two: Entries<Vec<u8>, u32> = Entries::all(2, 9).unwrap().remove(0);
    let at = insert(&mut of_two, "key", 1).unwrap();
    assert!(of_two.alone_mut(at).is_none());
}

/// Threads that change the same few keys, each to numbers of its own that grow, while all look them up: nobody finds an older
/// number of a thread than before, or one that was dropped.
#[test]
fn threads_find_what_others_stored_in_order() {
    const THREADS: usize = 3;
    const ROUNDS: u64 = if cfg!(miri) { 60 } else { 60_000 };
    let (alive, failed) = (Arc::<AtomicUsize>::default(), AtomicBool::new(false));
    let tables: Vec<Table> = Entries::all(THREADS, 8).unwrap();
    thread::scope(|scope| {
        for (number, mut table) in (0..).zip(tables) {
            let (alive, failed) = (&alive, &failed);
            scope.spawn(move || {
                let mut latest = [[0; THREADS]; 4];
                for round in 1..=ROUNDS {
                    let which = usize::try_from((round + number) % 4).unwrap();
                    let key = ["a", "b", "aa", "ab"][which];
                    let found = table.find(hash(key), key.as_bytes());
                    if let Some(found) = &found {
                        let (by, at) = (found.entry.value().0 % 8, found.entry.value().0 / 8);
                        let known = &mut latest[which][usize::try_from(by).unwrap()];
                        if at < *known || found.entry.key() != key.as_bytes() {
                            failed.store(true, Ordering::Relaxed);
                        }
                        *known = at;
                    }
                    let at = found.map(|found| found.at);
                    let mine = || Counted::new(round * 8 + number, alive);
                    match at {
                        None => _ = insert(&mut table, key, mine()),
                        Some(at) if round % 5 == 0 => _ = table.remove(at),
                        Some(at) => drop(table.replace(at, mine())),
                    }
                    if round % 3 == 0 {
                        table.pass();
                    }
                    if round % 101 == 0 {
                        table.rest();
                    }
                }
            });
        }
    });
    assert!(!failed.load(Ordering::Relaxed));
    assert_eq!(alive.load(Ordering::Relaxed), 0, "everything is dropped once");
}
