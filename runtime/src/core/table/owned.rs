//! A table whose entries each belong to an owner, and are found by it.
//!
//! # Limits
//! An owner is a slot of another table. Each entry takes two words more than in a [`Table`], and each owner one.
//! Finding an owner's entries takes time for these alone.

use std::ops::Deref;

use super::{Key, Table};

/// An entry of an [`OwnedTable`].
pub(crate) trait Owned {
    /// Returns the slot of the owner, which never changes.
    fn owner(&self) -> usize;
}

/// A [`Table`] whose entries are chained by owner, the newest first.
#[derive(Debug)]
pub(crate) struct OwnedTable<T, N = T> {
    table: Table<T, N>,
    /// By slot: the neighbours of the entry in the chain of its owner.
    links: Vec<Link>,
    /// By owner: the slot of its newest entry.
    newest: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    newer: Option<u32>,
    older: Option<u32>,
}

impl<T: Owned, N> OwnedTable<T, N> {
    /// Makes an empty table of `capacity` slots, whose names have this prefix.
    pub(crate) fn new(capacity: u32, prefix: u8) -> Self {
        let links = Vec::with_capacity(capacity as usize);
        Self { table: Table::new(capacity, prefix), links, newest: Vec::new() }
    }

    /// Makes room for `more` entries. To be called before the table is in use.
    pub(crate) fn enlarge(&mut self, more: u32) {
        self.table.enlarge(more);
    }

    /// Adds an entry, or gives it back when the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Result<Key<N>, T> {
        let owner = entry.owner();
        let key = self.table.insert(entry)?;
        if self.links.len() <= key.slot() {
            self.links.resize(key.slot() + 1, Link::default());
        }
        if self.newest.len() <= owner {
            self.newest.resize(owner + 1, None);
        }
        let slot = key.slot_number();
        let older = self.newest.get_mut(owner).and_then(|newest| newest.replace(slot));
        *self.link(slot) = Link { newer: None, older };
        if let Some(older) = older {
            self.link(older).newer = Some(slot);
        }
        Ok(key)
    }

    /// Finds an entry to change.
    pub(crate) fn get_mut(&mut self, key: Key<N>) -> Option<&mut T> {
        self.table.get_mut(key)
    }

    /// Finds the entry whose name was packed into `bits`.
    pub(crate) fn get_bits_mut(&mut self, bits: u64) -> Option<&mut T> {
        let key = self.table.unpack(bits)?;
        self.table.get_mut(key)
    }

    /// Takes an entry out; its name finds nothing from now on.
    pub(crate) fn remove(&mut self, key: Key<N>) -> Option<T> {
        let entry = self.table.remove(key)?;
        let Link { newer, older } = std::mem::take(self.link(key.slot_number()));
        match (newer, self.newest.get_mut(entry.owner())) {
            (Some(newer), _) => self.link(newer).older = older,
            (None, Some(newest)) => *newest = older,
            (None, None) => panic!("an entry has an owner"),
        }
        if let Some(older) = older {
            self.link(older).newer = newer;
        }
        Some(entry)
    }

    /// Takes out the entry whose name was packed into `bits`.
    pub(crate) fn remove_bits(&mut self, bits: u64) -> Option<T> {
        let key = self.table.unpack(bits)?;
        self.remove(key)
    }

    /// Returns whether an owner has an entry.
    pub(crate) fn has_any_of(&self, owner: usize) -> bool {
        matches!(self.newest.get(owner), Some(Some(_)))
    }

    /// Takes out the newest entry of an owner that satisfies `wanted`.
    pub(crate) fn remove_newest_of(
        &mut self,
        owner: usize,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<T> {
        self.remove(self.newest_of(owner, wanted)?)
    }

    /// Returns the name of the newest entry of an owner that satisfies `wanted`.
    pub(crate) fn newest_of(&self, owner: usize, wanted: impl Fn(&T) -> bool) -> Option<Key<N>> {
        let mut slot = (*self.newest.get(owner)?)?;
        loop {
            let key = self.table.name_at(slot)?;
            if self.table.get(key).is_some_and(&wanted) {
                return Some(key);
            }
            slot = self.links.get(slot as usize)?.older?;
        }
    }

    fn link(&mut self, slot: u32) -> &mut Link {
        &mut self.links[slot as usize]
    }
}

impl<T, N> Deref for OwnedTable<T, N> {
    type Target = Table<T, N>;

    fn deref(&self) -> &Table<T, N> {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use haulage_test_support::Rng;

    use super::*;

    impl Owned for (usize, u32) {
        fn owner(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn the_entries_of_an_owner_are_found_whatever_comes_and_goes() {
        let mut random = Rng::new(1);
        let mut table: OwnedTable<(usize, u32)> = OwnedTable::new(50, 0);
        let mut known: BTreeMap<u32, (Key<(usize, u32)>, usize)> = BTreeMap::new();
        let (mut refused, mut removed, mut emptied) = (0, 0, 0);
        for number in 0..20_000 {
            let owner = random.below(7);
            match random.below(8) {
                3 if random.below(4) == 0 => {
                    let is_even = |(_, number): &(usize, u32)| number.is_multiple_of(2);
                    let mine = known.iter().rev().filter(|(_, (_, of))| *of == owner);
                    let expected = mine.map(|(number, _)| (owner, *number)).find(is_even);
                    assert_eq!(table.remove_newest_of(owner, is_even), expected);
                    known.retain(|number, _| expected != Some((owner, *number)));
                }
                0..4 => match table.insert((owner, number)) {
                    Ok(key) => _ = known.insert(number, (key, owner)),
                    Err(back) => {
                        assert_eq!((back, known.len()), ((owner, number), 50));
                        refused += 1;
                    }
                },
                4..7 if !known.is_empty() => {
                    let at = random.below(known.len());
                    let (&number, &(key, owner)) = known.iter().nth(at).unwrap();
                    let entry = if at.is_multiple_of(2) {
                        table.remove(key)
                    } else {
                        table.remove_bits(key.to_bits())
                    };
                    assert_eq!(entry, Some((owner, number)));
                    assert_eq!(table.remove(key), None);
                    known.remove(&number);
                    removed += 1;
                }
                7 if random.below(20) == 0 => {
                    let newest_first =
                        std::iter::from_fn(|| table.remove_newest_of(owner, |_| true))
                            .collect::<Vec<_>>();
                    let mine = known.iter().rev().filter(|(_, (_, of))| *of == owner);
                    let expected: Vec<_> = mine.map(|(number, _)| (owner, *number)).collect();
                    assert_eq!(newest_first, expected);
                    known.retain(|_, (_, of)| *of != owner);
                    emptied += 1;
                }
                _ => {}
            }
            assert_eq!(table.len() as usize, known.len());
        }
        assert!(refused > 100 && removed > 1_000 && emptied > 50, "{refused} {removed} {emptied}");
    }
}
