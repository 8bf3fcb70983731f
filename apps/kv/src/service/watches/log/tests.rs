//! Readers of a log, beside a list of all changes that were ever made.

use std::collections::BTreeMap;

use super::*;

/// A log, and what its readers met.
#[derive(Default)]
struct World {
    log: Log,
    /// Each change: its key, and its number as the state.
    changes: Vec<u8>,
    readers: BTreeMap<Reader, Reading>,
    next: Reader,
    /// Number of different hashes.
    hashes: u64,
}

/// What a reader met.
struct Reading {
    place: Place,
    /// Number of changes before it joined.
    since: usize,
    /// The last change of each key that it was told.
    told: BTreeMap<u8, u64>,
    count: u64,
    merged: u64,
}

impl World {
    fn new(hashes: u64) -> Self {
        Self { hashes, ..Self::default() }
    }

    fn join(&mut self) -> Reader {
        self.next += 1;
        let place = self.log.join(self.next);
        let (told, since) = (BTreeMap::new(), self.changes.len());
        self.readers.insert(self.next, Reading { place, since, told, count: 0, merged: 0 });
        self.next
    }

    fn leave(&mut self, reader: Reader) {
        let left = self.readers.remove(&reader).unwrap();
        self.log.leave(left.place, reader);
    }

    fn change(&mut self, key: u8) {
        let length = self.changes.len() as u64;
        self.changes.push(key);
        if self.log.is_read() {
            self.log.changed(u64::from(key) % self.hashes, &[key], State::Set { length });
        }
    }

    /// Has a reader meet what is at the next places.
    fn read(&mut self, reader: Reader, most: usize) {
        let reading = self.readers.get_mut(&reader).unwrap();
        let mut to = reading.place;
        for (place, met) in self.log.read(reading.place).take(most) {
            reading.merged += met.merged;
            to = place + 1;
            let Some(State::Set { length }) = met.state else { continue };
            reading.count += 1;
            assert_eq!(&[self.changes[usize::try_from(length).unwrap()]], met.key);
            let last = reading.told.insert(met.key[0], length);
            assert!(length >= reading.since as u64 && last.is_none_or(|last| last < length));
        }
        self.log.pass(reader, reading.place, to);
        reading.place = to;
    }

    /// Has all readers read on to the end, and checks what each of them met.
    fn check(&mut self) {
        for reader in self.readers.keys().copied().collect::<Vec<_>>() {
            self.read(reader, usize::MAX);
            let Reading { place, since, told, count, merged } = &self.readers[&reader];
            let mut last = BTreeMap::new();
            for (number, key) in self.changes.iter().enumerate().skip(*since) {
                last.insert(*key, number as u64);
            }
            assert_eq!((told, *place), (&last, self.log.end()), "the last state of each key");
            assert_eq!(count + merged, (self.changes.len() - since) as u64, "each change once");
        }
        let Log { entries, order, octets, .. } = &self.log;
        assert_eq!((entries.len(), order.len(), *octets), (0, 0, 0));
    }
}

/// Readers at a time.
const READERS_MAX: usize = 6;

#[test]
fn each_reader_meets_each_change_once_and_ends_with_the_last_state_of_each_key() {
    for seed in 0..300_u64 {
        // In every other world, keys have few hashes.
        let mut world = World::new(if seed % 2 == 0 { u64::MAX } else { 3 });
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |most: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most
        };
        let keys = 1 + draw(20);
        for _ in 0..draw(1000) {
            let some = draw(world.readers.len().max(1) as u64);
            let some = world.readers.keys().nth(usize::try_from(some).unwrap()).copied();
            match (draw(20), some) {
                (0, _) if world.readers.len() < READERS_MAX => _ = world.join(),
                (1, Some(reader)) => world.leave(reader),
                // Those with high numbers read often, and the others fall behind.
                (2..8, Some(reader)) if draw(6) < reader => {
                    world.read(reader, usize::try_from(draw(8)).unwrap());
                }
                _ => world.change(u8::try_from(draw(keys)).unwrap()),
            }
            let Log { entries, order, readers, .. } = &world.log;
            for entry in entries.values() {
                assert!(entry.earlier.len() <= 2 * (READERS_MAX + 1), "{seed}");
            }
            let places: usize = entries.values().map(|entry| 1 + entry.earlier.len()).sum();
            let first = readers.first().map(|(place, _)| *place);
            let octets: usize = entries
                .values()
                .map(|entry| octets(&entry.key) + EARLIER * entry.earlier.len())
                .sum();
            assert_eq!((order.len(), world.log.octets), (places, octets), "{seed}");
            assert!(order.keys().all(|place| first.is_some_and(|first| *place >= first)));
        }
        world.check();
    }
}

#[test]
fn what_changes_all_the_time_keeps_its_place_until_a_reader_has_passed_it() {
    let mut world = World::new(u64::MAX);
    let slow = world.join();
    world.change(1);
    world.change(2);
    for _ in 0..1000 {
        world.change(1);
    }
    assert_eq!((world.log.end(), world.log.order.len()), (2, 2));
    // One who keeps up has it move on, and leaves one place behind for all who do not.
    let fast = world.join();
    for _ in 0..1000 {
        world.change(1);
        world.read(fast, 1);
    }
    assert!(world.log.order.len() < 10, "{}", world.log.order.len());
    world.read(slow, 1);
    assert!(world.readers[&slow].told.is_empty(), "the first key is further behind by now");
    world.check();
}

#[test]
fn those_with_the_most_to_read_are_named_together() {
    let mut world = World::new(u64::MAX);
    let readers = [world.join(), world.join(), world.join()];
    (0..10).for_each(|key| world.change(key));
    world.read(readers[1], 4);
    let last = world.log.last_readers();
    assert_eq!(last, [(0, readers[0]), (0, readers[2])]);
    // Without them, nobody needs what the other one has passed.
    let before = world.log.octets();
    world.leave(readers[0]);
    world.leave(readers[2]);
    assert_eq!(world.log.octets(), before / 10 * 6);
    world.leave(readers[1]);
    world.check();
    assert!(!world.log.is_read() && world.log.entries.capacity() == 0);
}
