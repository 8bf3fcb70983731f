//! A hash table of fixed capacity, from keys to values.
//!
//! # Memory ownership
//! The index owns its keys and values. Overwriting or removing a key returns the old value; a Reply that is still being
//! sent from it holds a reference of its own.
//!
//! # Limits
//! [`Index::new`] allocates all memory of the index. No other function allocates: a key beyond the capacity is refused.

use std::fmt;
use std::hash::Hasher;
use std::ops::ControlFlow;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use haulage::sys::shared::prefetch_value;

use self::table::Table;

mod table;

/// A map from keys, kept as `K`, to values.
pub struct Index<K, V> {
    /// Numbers of slots, by the hash of their key.
    table: Table,
    slots: Box<[Slot<K, V>]>,
    /// The first free slot: the head of the list of free slots.
    free: Option<u32>,
    seed: Seed,
}

impl<K: AsRef<[u8]>, V> Index<K, V> {
    /// Maximum heap octets for each key of the capacity: its slot, and its share of the table.
    pub const OCTETS_PER_KEY: usize = size_of::<Slot<K, V>>() + Table::OCTETS_EACH;

    /// Creates an index for at most `capacity` keys.
    pub fn new(capacity: u32, seed: Seed) -> Self {
        let table = Table::new(capacity);
        let next = |slot: u32| Some(slot + 1).filter(|next| *next < capacity);
        let slots = (0..capacity).map(|slot| Slot::Free { next: next(slot) }).collect();
        Self { table, slots, free: (capacity > 0).then_some(0), seed }
    }

    /// Stores `value` under `key`. Returns the number of the slot, and the value that was there.
    ///
    /// `keep` makes the copy of a new key. Fails, and changes nothing, if the index is full or `keep`
    /// returns `None`; the value comes back.
    pub fn put(
        &mut self,
        key: &[u8],
        value: V,
        keep: impl FnOnce(&[u8]) -> Option<K>,
    ) -> Result<Stored<V>, Full<V>> {
        let hash = self.seed.hash(key);
        if let Some(slot) = self.find(hash, key)
            && let Slot::Used { value: old, .. } = &mut self.slots[slot as usize]
        {
            return Ok(Stored { slot, old: Some(std::mem::replace(old, value)) });
        }
        let Some(slot) = self.free else {
            return Err(Full(value));
        };
        let Some(key) = keep(key) else {
            return Err(Full(value));
        };
        let used = Slot::Used { key, value };
        if let Slot::Free { next } = std::mem::replace(&mut self.slots[slot as usize], used) {
            self.free = next;
        }
        self.table.insert(hash, slot);
        Ok(Stored { slot, old: None })
    }

    /// Returns the key and the value in a slot, or `None` if the slot is free. The octets of the key must stay as they
    /// are: the slot is found by their hash.
    pub fn slot_mut(&mut self, slot: u32) -> Option<(&mut K, &mut V)> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Used { key, value, .. } => Some((key, value)),
            Slot::Free { .. } => None,
        }
    }

    /// Removes `key` and returns what was stored under it.
    pub fn remove(&mut self, key: &[u8]) -> Option<(K, V)> {
        let slots = &mut self.slots;
        let hash = self.seed.hash(key);
        let slot = self.table.remove(hash, |slot| slots[slot as usize].holds(key))?;
        let freed = Slot::Free { next: self.free.replace(slot) };
        match std::mem::replace(&mut slots[slot as usize], freed) {
            Slot::Used { key, value, .. } => Some((key, value)),
            Slot::Free { .. } => None,
        }
    }

    /// Returns the value stored under `key`.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let slot = self.find(self.seed.hash(key), key)?;
        match &self.slots[slot as usize] {
            Slot::Used { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Has the processor fetch what [`get`](Self::get) reads for these keys. What misses the cache is fetched for all keys at
    /// once: first the entries of the table, then the slots, then the keys. `ahead` fetches what is behind a value.
    pub fn foresee<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, ahead: impl Fn(&V)) {
        let mut hashes = [0; AHEAD];
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.seed.hash(key);
            self.table.foresee(*hash);
            count += 1;
        }
        let mut slots = [None; AHEAD];
        for (slot, hash) in slots.iter_mut().zip(&hashes[..count]) {
            *slot = self.table.guess(*hash).and_then(|number| self.slots.get(number as usize));
            slot.iter().copied().for_each(prefetch_value);
        }
        for slot in slots[..count].iter().flatten() {
            if let Slot::Used { key, value } = slot {
                ahead(value);
                key.as_ref().first().into_iter().for_each(prefetch_value);
            }
        }
    }

    /// Passes the keys in at most `most` slots, from number `at` on, to `take`, until it breaks. Returns the number to
    /// continue at, or `None` at the end.
    ///
    /// A key keeps its slot until it is removed.
    pub fn visit(
        &self,
        at: u32,
        most: usize,
        mut take: impl FnMut(&K) -> ControlFlow<()>,
    ) -> Option<u32> {
        let rest = self.slots.get(at as usize..).unwrap_or_default();
        for (slot, number) in rest.iter().take(most).zip(at..) {
            if let Slot::Used { key, .. } = slot
                && take(key).is_break()
            {
                return Some(number);
            }
        }
        if rest.len() > most { u32::try_from(at as usize + most).ok() } else { None }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the index has no keys.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Returns the maximum number of keys.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the maximum heap octets of an index for `capacity` keys.
    pub const fn octets_max(capacity: u32) -> usize {
        (capacity as usize).saturating_mul(Self::OCTETS_PER_KEY).saturating_add(Table::OCTETS_LEAST)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.table.find(hash, |slot| self.slots[slot as usize].holds(key))
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("keys", &self.table.len())
            .field("capacity", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// A value was stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored<V> {
    /// The number of the slot, which the key has until it is removed.
    pub slot: u32,
    /// The value that was there.
    pub old: Option<V>,
}

/// The error of a full index. It returns the value that was to be stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<V>(pub V);

/// The seed of the hash function, which makes hashes unpredictable to clients.
#[derive(Clone, Debug)]
pub struct Seed {
    own: u64,
    shared: SharedSeed,
}

impl Seed {
    /// Creates a random seed from the system's generator.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self::fixed(getrandom::u64()?, getrandom::u64()?))
    }

    /// Creates a fixed seed, for tests.
    pub const fn fixed(own: u64, shared: u64) -> Self {
        Self { own, shared: SharedSeed::from_u64(shared) }
    }

    /// Returns the hash of a key.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.own, &self.shared);
        hasher.write(key);
        hasher.finish()
    }
}

/// Maximum number of keys that are foreseen at a time.
const AHEAD: usize = 32;

enum Slot<K, V> {
    Free { next: Option<u32> },
    Used { key: K, value: V },
}

impl<K: AsRef<[u8]>, V> Slot<K, V> {
    fn holds(&self, wanted: &[u8]) -> bool {
        matches!(self, Self::Used { key, .. } if key.as_ref() == wanted)
    }
}

#[cfg(test)]
mod tests;
