//! The leases in which keys and values lie, and how they are moved.
//!
//! # Memory ownership
//! Each lease has the number of its slot in the index as a tag. A value that a Reply is sent from stays where it is.

use haulage::pool::{Keeper, Local, Movable, Place, Shared};

use crate::index::Index;

/// A key, in a lease of its own. There is none only while it is being moved.
#[derive(Debug)]
pub(super) struct KeyLease(pub(super) Option<Local>);

impl AsRef<[u8]> for KeyLease {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Local::bytes)
    }
}

/// A value; an empty one takes no memory.
#[derive(Debug)]
pub(super) struct Value(pub(super) Option<Shared>);

impl Value {
    pub(super) fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.bytes().len() as u64)
    }
}

impl Index<KeyLease, Value> {
    /// Tags the value in a slot, so that it can be moved.
    pub(super) fn tag_value(&mut self, slot: u32) {
        if let Some((_, Value(Some(value)))) = self.slot_mut(slot) {
            value.tag(slot);
        }
    }

    /// Tags the key in a slot, so that it can be moved.
    pub(super) fn tag_key(&mut self, slot: u32) {
        if let Some((KeyLease(Some(key)), _)) = self.slot_mut(slot) {
            key.tag(slot);
        }
    }
}

impl Keeper for Index<KeyLease, Value> {
    fn take(&mut self, tag: u32, place: Place) -> Option<Movable> {
        let (KeyLease(key), Value(value)) = self.slot_mut(tag)?;
        if key.as_ref().is_some_and(|key| key.place() == place) {
            key.take().map(Movable::Local)
        } else if value.as_ref().is_some_and(|value| value.place() == place) {
            value.take().map(Movable::Shared)
        } else {
            None
        }
    }

    fn put(&mut self, tag: u32, _: Place, lease: Movable) {
        let Some((key, value)) = self.slot_mut(tag) else { return };
        match lease {
            Movable::Local(lease) => key.0 = Some(lease),
            Movable::Shared(lease) => value.0 = Some(lease),
        }
    }
}
