//! What is remembered of connections: a bounded number, and a bounded number of octets.

use std::collections::BTreeMap;

/// Entries by key, of which the one that was silent longest is forgotten first.
#[derive(Debug)]
pub struct Table<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    /// The number of visits so far, which orders them.
    visits: u64,
    /// Octets that all entries hold.
    octets: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    last_visit: u64,
    octets: usize,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), visits: 0, octets: 0 }
    }
}

impl<K: Copy + Ord, V> Table<K, V> {
    /// Visits an entry.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.visits += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_visit = self.visits;
        Some(&mut entry.value)
    }

    /// Adds an entry, or replaces it.
    pub fn put(&mut self, key: K, value: V) {
        self.visits += 1;
        let entry = Entry { value, last_visit: self.visits, octets: 0 };
        let old = self.entries.insert(key, entry);
        self.octets -= old.map_or(0, |old| old.octets);
    }

    /// Says how many octets an entry holds.
    pub fn weigh(&mut self, key: &K, octets: usize) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.octets = self.octets - entry.octets + octets;
            entry.octets = octets;
        }
    }

    /// Forgets the entry that was silent longest, if there are too many or they hold too much.
    pub fn forget(&mut self) -> Option<(K, V)> {
        if self.entries.len() <= ENTRIES_MAX && self.octets <= OCTETS_MAX {
            return None;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_visit);
        let key = *oldest?.0;
        let entry = self.entries.remove(&key)?;
        self.octets -= entry.octets;
        Some((key, entry.value))
    }

    /// Takes all entries, in the order of their keys.
    pub fn take(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        self.octets = 0;
        std::mem::take(&mut self.entries).into_iter().map(|(key, entry)| (key, entry.value))
    }
}

/// The most entries of a table.
pub const ENTRIES_MAX: usize = 1024;
/// The most octets that the entries of a table hold.
pub const OCTETS_MAX: usize = 256 << 20;
