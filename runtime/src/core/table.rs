//! A table of fixed capacity whose entries are named by slot and generation.
//!
//! The type of a name says what it names. It need not be the type of the entry, so code can hold a name without knowing
//! the entry.
//!
//! # Limits
//! All memory is reserved when the table is made, and touched only as far as entries were ever needed: a table for the
//! worst case costs no more memory, and no more time to search, than the common case.

use std::marker::PhantomData;

use crate::key::{GENERATION_MASK, Key};

mod owned;

pub(crate) use owned::{Owned, OwnedTable};

/// Entries that stay in place, each named by a `Key<N>`. Free slots are chained, and nothing is allocated after
/// construction.
#[derive(Debug)]
pub(crate) struct Table<T, N = T> {
    /// Slots that were ever in use, at most `capacity`.
    slots: Vec<TableSlot<T>>,
    capacity: u32,
    /// The first generation of each slot: the prefix of all names.
    first: u32,
    /// The first free slot of the chain, or else the next slot that was never in use.
    free: u32,
    count: u32,
    of: PhantomData<fn() -> N>,
}

#[derive(Debug)]
struct TableSlot<T> {
    generation: u32,
    /// Next free slot, while this one is free.
    next: u32,
    entry: Option<T>,
}

impl<T, N> Table<T, N> {
    /// Makes an empty table of `capacity` slots, whose names have this prefix.
    pub(crate) fn new(capacity: u32, prefix: u8) -> Self {
        Self {
            slots: Vec::with_capacity(capacity as usize),
            capacity,
            first: Key::<N>::prefixed(prefix),
            free: 0,
            count: 0,
            of: PhantomData,
        }
    }

    /// Makes room for `more` entries. To be called before the table is in use.
    pub(crate) fn enlarge(&mut self, more: u32) {
        self.capacity = self.capacity.saturating_add(more);
        self.slots.reserve_exact((self.capacity as usize).saturating_sub(self.slots.len()));
    }

    /// Adds an entry, or gives it back when the table is full.
    #[inline]
    pub(crate) fn insert(&mut self, entry: T) -> Result<Key<N>, T> {
        let at = self.free;
        if at as usize == self.slots.len() && at < self.capacity {
            self.slots.push(TableSlot { generation: self.first, next: at + 1, entry: None });
        }
        let Some(slot) = self.slots.get_mut(at as usize) else { return Err(entry) };
        self.free = slot.next;
        self.count += 1;
        slot.entry = Some(entry);
        Ok(Key::new(at, slot.generation))
    }

    /// Returns the name that the next entry will have, or `None` if there is no room for it.
    #[inline]
    pub(crate) fn next_key(&self) -> Option<Key<N>> {
        let fresh = (self.free < self.capacity).then_some(self.first);
        let generation = self.slots.get(self.free as usize).map(|slot| slot.generation);
        Some(Key::new(self.free, generation.or(fresh)?))
    }

    /// Takes an entry out; its name finds nothing from now on.
    pub(crate) fn remove(&mut self, key: Key<N>) -> Option<T> {
        let slot = self.slots.get_mut(key.slot())?;
        if slot.generation != key.generation() {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = self.first | slot.generation.wrapping_add(1) & GENERATION_MASK;
        slot.next = std::mem::replace(&mut self.free, key.slot_number());
        self.count -= 1;
        Some(entry)
    }

    /// Returns the name that was packed into `bits`, if it is the present name of its slot.
    pub(crate) fn unpack(&self, bits: u64) -> Option<Key<N>> {
        self.name_at(Key::<N>::slot_of(bits)).filter(|key| key.matches(bits))
    }

    /// Returns the name that the entry in a slot has, or that its next one will have.
    fn name_at(&self, slot: u32) -> Option<Key<N>> {
        let generation = self.slots.get(slot as usize)?.generation;
        Some(Key::new(slot, generation))
    }

    /// Finds an entry.
    #[inline]
    pub(crate) fn get(&self, key: Key<N>) -> Option<&T> {
        let slot = self.slots.get(key.slot())?;
        slot.entry.as_ref().filter(|_| slot.generation == key.generation())
    }

    /// Finds an entry to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key<N>) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot())?;
        slot.entry.as_mut().filter(|_| slot.generation == key.generation())
    }

    /// Visits every entry, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// Returns the name of the first entry at or after slot `from` that satisfies `wanted`.
    pub(crate) fn find(&self, from: usize, wanted: impl Fn(&T) -> bool) -> Option<Key<N>> {
        let slots = self.slots.get(from..)?.iter();
        (u32::try_from(from).ok()?..).zip(slots).find_map(|(at, slot)| {
            let matches = slot.entry.as_ref().is_some_and(&wanted);
            matches.then(|| Key::new(at, slot.generation))
        })
    }

    /// Returns how many slots have ever been in use.
    pub(crate) const fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether another entry fits.
    pub(crate) fn has_room(&self) -> bool {
        self.free < self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_name_stays_dead_when_its_slot_lives_again() {
        let mut table: Table<char> = Table::new(1, 0);
        let first = table.insert('a').unwrap();
        assert_eq!(table.insert('b'), Err('b'));
        assert_eq!(table.remove(first), Some('a'));
        let next = table.next_key();
        let second = table.insert('c').unwrap();
        assert_eq!(next, Some(second));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(first), None);
        assert_eq!(table.next_key(), None);
        assert_eq!((table.get(second), second.slot()), (Some(&'c'), first.slot()));
    }

    #[test]
    fn names_keep_their_prefix_whatever_their_generation() {
        let mut table: Table<char> = Table::new(1, 0x85);
        let first = table.insert('a').unwrap();
        assert_eq!((first.generation(), table.remove(first)), (0x8500_0000, Some('a')));
        assert_eq!(table.next_key().unwrap().generation(), 0x8500_0001);
        table.slots[0].generation |= GENERATION_MASK;
        let last = table.insert('b').unwrap();
        assert_eq!(table.remove(last), Some('b'));
        assert_eq!(table.next_key(), Some(first), "the generations begin again");
    }

    #[test]
    fn slots_are_touched_once_those_before_them_are_in_use() {
        let mut table: Table<char> = Table::new(1000, 0);
        let place = table.slots.as_ptr();
        for _ in 0..10 {
            let key = table.insert('a').unwrap();
            assert_eq!(table.remove(key), Some('a'));
        }
        assert_eq!(table.slots.len(), 1);
        let keys: Vec<_> = (0..1000).map(|_| table.insert('b').unwrap()).collect();
        assert!(table.insert('c').is_err() && !table.has_room());
        assert!(keys.iter().all(|key| table.get(*key).is_some()));
        assert_eq!(table.slots.as_ptr(), place, "it was moved");
    }
}
