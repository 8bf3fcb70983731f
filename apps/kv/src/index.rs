//! A hash table of fixed capacity, from keys to values, which all cores of a server look up and change.
//!
//! # Memory ownership
//! The index owns its keys and values. A value that was replaced or removed is dropped once no core reads it any more; a Reply
//! that is still being sent from it holds a reference of its own.
//!
//! # Limits
//! [`Index::all`] allocates all memory of the index. No other function allocates: a key beyond the capacity is refused.

use std::fmt;
use std::hash::Hasher;
use std::ops::ControlFlow;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use haulage::cores::entries::{Entries, Entry, Key, Mark, Other, Unstored};
use haulage::sys::shared::prefetch_value;

/// A map from keys, kept as `K`, to values, for one core.
pub struct Index<K, V> {
    entries: Entries<K, V>,
    /// Keys that this core stored, less those that it removed.
    balance: i64,
    capacity: u32,
    seed: Seed,
}

impl<K: Key, V> Index<K, V> {
    /// Maximum heap octets for each key of the capacity.
    pub const OCTETS_PER_KEY: usize = Entries::<K, V>::OCTETS_EACH;

    /// Creates an index for at most `capacity` keys, for one core.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(capacity: u32, seed: &Seed) -> Self {
        let all = Self::all(1, capacity, seed);
        all.and_then(|mut all| all.pop()).expect("memory for the index")
    }

    /// Creates an index for `capacity` keys, and returns what each of `cores` cores has of it. Only one core refuses exactly
    /// those beyond the capacity: several take some more, and one may refuse keys when others would still take some hundred.
    ///
    /// Returns `None` if there is no memory for it.
    pub fn all(cores: usize, capacity: u32, seed: &Seed) -> Option<Vec<Self>> {
        let all = Entries::all(cores, capacity)?.into_iter();
        let one = |entries| Self { entries, balance: 0, capacity, seed: seed.clone() };
        Some(all.map(one).collect())
    }

    /// Stores `value` under `key`.
    ///
    /// `keep` makes the copy of a new key, and `look` sees the value that was there. `tell` sees the value, and the key if it is new,
    /// where other cores find them. It is told the number of that place, which the key has until it is removed.
    ///
    /// # Errors
    /// The value comes back, and nothing has changed, if the index is full or `keep` returns `None`.
    pub fn put<T>(
        &mut self,
        key: &[u8],
        mut value: V,
        keep: impl FnOnce(&[u8]) -> Option<K>,
        look: impl Fn(&V) -> T,
        tell: impl Fn(u32, Option<&K>, &V),
    ) -> Result<Stored<T>, Unkept<V>> {
        let hash = self.seed.hash(key);
        let mut keep = Some(keep);
        let mut kept = None;
        // Where another core was faster, that core has stored or removed something.
        loop {
            if let Some(found) = self.entries.find(hash, key) {
                let (at, before) = (found.at, look(found.entry.value()));
                match self.entries.replace(at, value) {
                    Ok(entry) => {
                        tell(at.place(), None, entry.value());
                        return Ok(Stored { before: Some(before) });
                    }
                    Err(Unstored::Full(value)) => return Err(Unkept::Full(value)),
                    Err(Unstored::Changed(again)) => value = again,
                }
                continue;
            }
            if !self.entries.has_room() {
                return Err(Unkept::Full(value));
            }
            let copy = kept.take().or_else(|| keep.take().and_then(|keep| keep(key)));
            let Some(copy) = copy else { return Err(Unkept::NoKey(value)) };
            match self.entries.insert(hash, copy, value) {
                Ok((place, entry)) => {
                    tell(place, Some(entry.key()), entry.value());
                    self.balance += 1;
                    return Ok(Stored { before: None });
                }
                Err(Unstored::Full((_, value))) => return Err(Unkept::Full(value)),
                Err(Unstored::Changed((copy, again))) => (kept, value) = (Some(copy), again),
            }
        }
    }

    /// Returns the key and the value at a place, to be changed, or `None` if there is none, or other cores have the index, too.
    /// The octets of the key must stay as they are: the place is found by their hash.
    pub fn alone_mut(&mut self, place: u32) -> Option<(&mut K, &mut V)> {
        self.entries.alone_mut(place)
    }

    /// Returns the key and the value at a place, if there are any, as other cores may read them.
    pub fn look(&self, place: u32) -> Option<(Mark, &Entry<K, V>)> {
        self.entries.look(place)
    }

    /// Puts another value, or copy of the key and value, where some were looked at.
    ///
    /// # Errors
    /// As for [`Entries::exchange`].
    pub fn exchange(&mut self, mark: Mark, with: Other<K, V>) -> Result<(), Unstored<Other<K, V>>> {
        self.entries.exchange(mark, with)
    }

    /// Returns whether this core has replaced or removed what other cores may read still.
    pub fn is_awaiting(&self) -> bool {
        self.entries.is_awaiting()
    }

    /// Removes `key`. Returns what `look` makes of the value that was stored under it, or `None` if there was none.
    pub fn remove<T>(&mut self, key: &[u8], look: impl Fn(&V) -> T) -> Option<T> {
        let hash = self.seed.hash(key);
        loop {
            let found = self.entries.find(hash, key)?;
            let (at, before) = (found.at, look(found.entry.value()));
            if self.entries.remove(at) {
                self.balance -= 1;
                return Some(before);
            }
        }
    }

    /// Returns the value stored under `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let found = self.entries.find(self.seed.hash(key), key)?;
        Some(found.entry.value())
    }

    /// Has the processor fetch what [`get`](Self::get) reads for these keys. What misses the cache is fetched for all keys at
    /// once: first the lines of the table, then the records, then the keys. `ahead` fetches what is behind a value.
    pub fn foresee<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, ahead: impl Fn(&V)) {
        let mut hashes = [0; AHEAD];
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.seed.hash(key);
            self.entries.foresee(*hash);
            count += 1;
        }
        let mut found = [None; AHEAD];
        for (found, hash) in found.iter_mut().zip(&hashes[..count]) {
            *found = self.entries.guess(*hash);
            found.iter().copied().for_each(prefetch_value);
        }
        for entry in found[..count].iter().flatten() {
            ahead(entry.value());
            entry.key().octets().first().into_iter().for_each(prefetch_value);
        }
    }

    /// Passes the keys at no more than `most` places, from number `at` on, to `take`, until it breaks. Returns the number to
    /// continue at, or `None` at the end.
    ///
    /// A key keeps its place until it is removed.
    pub fn visit(
        &self,
        at: u32,
        most: usize,
        mut take: impl FnMut(&K) -> ControlFlow<()>,
    ) -> Option<u32> {
        let places = u32::try_from(self.entries.places()).unwrap_or(u32::MAX);
        let end = at.saturating_add(u32::try_from(most).unwrap_or(u32::MAX)).min(places);
        for place in at..end {
            if let Some((_, entry)) = self.entries.look(place)
                && take(entry.key()).is_break()
            {
                return Some(place);
            }
        }
        (end < places).then_some(end)
    }

    /// Says that nothing is read any more of what was found so far, once a turn: see [`Entries::pass`].
    #[inline]
    pub fn pass(&mut self) -> bool {
        self.entries.pass()
    }

    /// Says that nothing is read before something is looked up again: see [`Entries::rest`].
    pub fn rest(&mut self) {
        self.entries.rest();
    }

    /// Returns the number of keys that this core stored, less those that it removed. The sum over all cores is the number of keys.
    pub const fn balance(&self) -> i64 {
        self.balance
    }

    /// Returns the number of keys that there is room for.
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the maximum heap octets of an index for `capacity` keys, shared by `cores` cores.
    pub const fn octets_max(cores: usize, capacity: u32) -> usize {
        (capacity as usize)
            .saturating_mul(Self::OCTETS_PER_KEY)
            .saturating_add(Entries::<K, V>::octets_of_cores(cores))
    }
}

impl<K, V> fmt::Debug for Index<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// A value was stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// What was there.
    pub before: Option<T>,
}

/// Why a value was not stored, with the value.
#[derive(Debug, PartialEq, Eq)]
pub enum Unkept<V> {
    /// The index is full.
    Full(V),
    /// There is no copy of the key.
    NoKey(V),
}

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

#[cfg(test)]
mod tests;
