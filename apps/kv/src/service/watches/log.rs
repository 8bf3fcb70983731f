//! The last states of keys that changed, in order, and the places of those who read them.
//!
//! # Normal operation
//! Each key is in the log once, in its last state. A reader has a place, and meets all that is behind it. A key that
//! changes again keeps its place unless a reader has passed it: then it moves to the end, so that everybody meets it
//! again. If others have yet to pass its old place, the number of changes stays there. So each reader meets each change
//! once: in the state that it left, or as a number.
//!
//! # Limits
//! What every reader has passed is dropped, and all of it when the last reader leaves. The owner bounds the rest:
//! [`Log::octets`] says how much it is, and [`Log::last_readers`] who needs it most. A key that moves has then at most twice as
//! many earlier places as there are readers, and two.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;

use crate::protocol::watch::State;

/// Changes that readers have yet to pass.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The keys by their hashes. A key whose hash another one has is under the next number that is free.
    entries: HashMap<u64, Entry, FixedState>,
    order: BTreeMap<Place, Node>,
    /// The readers and their places.
    readers: BTreeSet<(Place, Reader)>,
    /// The place of the next change.
    end: Place,
    /// The furthest place that a reader has had.
    passed: Place,
    octets: usize,
}

/// A place in a log: what has a lower one is passed.
pub(super) type Place = u64;

/// The number of a reader.
pub(super) type Reader = u64;

/// A key that has changed.
#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    state: State,
    place: Place,
    /// Number of changes at this place.
    changes: u64,
    /// Places that the key had before, in order, which not all readers have passed.
    earlier: VecDeque<Place>,
}

/// A place of a key.
#[derive(Clone, Copy, Debug)]
struct Node {
    entry: u64,
    /// Number of changes of a key that has moved on since; 0 if it has not.
    left: u64,
}

/// What a reader meets at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met<'a> {
    pub(super) key: &'a [u8],
    /// The state of the key, if this is its last place.
    pub(super) state: Option<State>,
    /// The number of changes that were followed by others.
    pub(super) merged: u64,
}

impl Log {
    /// Returns whether anybody reads.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Lets a reader read what changes from now on. Returns its place.
    pub(super) fn join(&mut self, reader: Reader) -> Place {
        self.readers.insert((self.end, reader));
        self.passed = self.end;
        self.end
    }

    /// Has a reader at a place leave.
    pub(super) fn leave(&mut self, place: Place, reader: Reader) {
        self.readers.remove(&(place, reader));
        self.trim();
    }

    /// Moves a reader from one place to another.
    pub(super) fn pass(&mut self, reader: Reader, from: Place, to: Place) {
        self.readers.remove(&(from, reader));
        self.readers.insert((to, reader));
        self.passed = self.passed.max(to);
        self.trim();
    }

    /// Takes in that a key has changed, while anybody reads. `hash` is the hash of its octets.
    #[inline]
    pub(super) fn changed(&mut self, hash: u64, key: &[u8], state: State) {
        let mut at = hash;
        while let Some(entry) = self.entries.get_mut(&at) {
            if *entry.key == *key {
                entry.state = state;
                if entry.place >= self.passed {
                    entry.changes += 1;
                } else {
                    self.move_to_end(at);
                }
                return;
            }
            at = at.wrapping_add(1);
        }
        self.add(at, key, state);
    }

    /// Returns the octets of the heap that all changes take, about.
    pub(super) const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the readers who have the most to read, all at one place.
    pub(super) fn last_readers(&self) -> Vec<(Place, Reader)> {
        let first = self.readers.first().map(|(place, _)| *place);
        self.readers.iter().take_while(|(place, _)| Some(*place) == first).copied().collect()
    }

    /// Returns the place behind all changes.
    pub(super) const fn end(&self) -> Place {
        self.end
    }

    /// Returns what a reader meets from a place on.
    pub(super) fn read(&self, from: Place) -> impl Iterator<Item = (Place, Met<'_>)> {
        self.order.range(from..).filter_map(|(place, node)| {
            let Entry { key, state, changes, .. } = self.entries.get(&node.entry)?;
            let met = match node.left {
                0 => Met { key, state: Some(*state), merged: changes - 1 },
                merged => Met { key, state: None, merged },
            };
            Some((*place, met))
        })
    }

    /// Adds a key that is not in the log.
    fn add(&mut self, at: u64, key: &[u8], state: State) {
        let (place, earlier) = (self.next(at), VecDeque::new());
        self.octets += octets(key);
        self.entries.insert(at, Entry { key: key.into(), state, place, changes: 1, earlier });
    }

    /// Moves a key that has changed behind all other changes.
    fn move_to_end(&mut self, at: u64) {
        let place = self.next(at);
        let most = 2 * (self.readers.len() + 1);
        let Some(entry) = self.entries.get_mut(&at) else { return };
        let old = std::mem::replace(&mut entry.place, place);
        let left = std::mem::replace(&mut entry.changes, 1);
        self.order.insert(old, Node { entry: at, left });
        entry.earlier.push_back(old);
        self.octets += EARLIER;
        if entry.earlier.len() > most {
            self.join_earlier(at);
        }
    }

    /// Joins those earlier places of a key between which there is no reader.
    fn join_earlier(&mut self, at: u64) {
        let Some(entry) = self.entries.get_mut(&at) else { return };
        let mut last: Option<Place> = None;
        entry.earlier.retain(|place| {
            if let Some(last) = last
                && self.readers.range((last + 1, 0)..(place + 1, 0)).next().is_none()
                && let Some(Node { left, .. }) = self.order.remove(place)
                && let Some(node) = self.order.get_mut(&last)
            {
                node.left += left;
                self.octets -= EARLIER;
                return false;
            }
            last = Some(*place);
            true
        });
    }

    /// Takes the next place for a key.
    fn next(&mut self, entry: u64) -> Place {
        let place = self.end;
        self.end += 1;
        self.order.insert(place, Node { entry, left: 0 });
        place
    }

    /// Drops what all readers have passed.
    fn trim(&mut self) {
        let Some((first, _)) = self.readers.first().copied() else {
            *self = Self { end: self.end, passed: self.end, ..Self::default() };
            return;
        };
        while let Some(oldest) = self.order.first_entry().filter(|oldest| *oldest.key() < first) {
            let Node { entry: at, left } = oldest.remove();
            if left > 0 {
                let entry = self.entries.get_mut(&at);
                entry.map(|entry| entry.earlier.pop_front());
                self.octets -= EARLIER;
            } else if let Some(entry) = self.entries.remove(&at) {
                self.octets -= octets(&entry.key);
            }
        }
    }
}

/// Returns the octets of the heap that a key takes, about.
const fn octets(key: &[u8]) -> usize {
    key.len() + OVERHEAD
}

/// Octets of a key beside its own: what the allocator adds to them, the entry and the node, and free room in the maps.
const OVERHEAD: usize = 16 + size_of::<(u64, Entry)>() * 3 / 2 + NODE;

/// Octets of an earlier place: its node, and the number in the entry.
const EARLIER: usize = NODE + 2 * size_of::<Place>();

/// Octets of a node, in a map that is half full.
const NODE: usize = 2 * size_of::<(Place, Node)>();

#[cfg(test)]
mod tests;
