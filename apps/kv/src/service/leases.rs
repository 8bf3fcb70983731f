//! The leases in which keys and values lie, and how they are moved.
//!
//! # Memory ownership
//! Each lease has the number of its slot in the index as a tag. A value that a Reply is sent from stays where it is.

use std::rc::Rc;

use haulage::pool::{Keeper, LeasePlace, Leases, Local, Movable, Pieces, Shared};
use haulage::service::Data;

use crate::index::Index;

/// A key, in a lease of its own; `None` only while it is being moved.
#[derive(Debug)]
pub(super) struct KeyLease(pub(super) Option<Local>);

impl AsRef<[u8]> for KeyLease {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Local::bytes)
    }
}

/// A value.
#[derive(Debug)]
pub(super) enum Value {
    /// No octets, and no memory.
    Empty,
    /// One lease; `None` only while it is being moved.
    One(Option<Shared>),
    /// Several leases of whole pages, which are not moved.
    Several(Rc<Pieces>),
}

impl Value {
    /// Makes a value of the leases that have its octets. Fails if the heap has no room for a list of them.
    pub(super) fn new(leases: Leases) -> Option<Self> {
        Some(match leases {
            Leases::One(lease) if lease.is_empty() => Self::Empty,
            Leases::One(lease) => Self::One(Some(lease.share())),
            several @ Leases::Several(_) => Self::Several(Rc::new(several.share()?)),
        })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Empty | Self::One(None) => 0,
            Self::One(Some(shared)) => shared.len() as u64,
            Self::Several(pieces) => pieces.len() as u64,
        }
    }

    /// Returns the octets, if they lie together.
    pub(super) fn octets(&self) -> Option<&[u8]> {
        match self {
            Self::Empty | Self::One(None) => Some(&[]),
            Self::One(Some(shared)) => Some(shared.bytes()),
            Self::Several(_) => None,
        }
    }

    /// Returns the value as a result, sent from where it is.
    pub(super) fn data(&self) -> Data {
        match self {
            Self::Empty | Self::One(None) => Data::Empty,
            Self::One(Some(shared)) => Data::Shared(shared.clone()),
            Self::Several(pieces) => Data::Pieces(Rc::clone(pieces)),
        }
    }

    /// Returns the place of a value that can be moved.
    const fn movable(&mut self) -> Option<&mut Option<Shared>> {
        match self {
            Self::One(shared) => Some(shared),
            Self::Empty | Self::Several(_) => None,
        }
    }
}

impl Index<KeyLease, Value> {
    /// Tags the value in a slot, so that it can be moved.
    pub(super) fn tag_value(&mut self, slot: u32) {
        if let Some((_, Value::One(Some(value)))) = self.slot_mut(slot) {
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
    fn take(&mut self, tag: u32, place: LeasePlace) -> Option<Movable> {
        let (KeyLease(key), value) = self.slot_mut(tag)?;
        if key.as_ref().is_some_and(|key| key.place() == place) {
            return key.take().map(Movable::Local);
        }
        value.movable()?.take_if(|value| value.place() == place).map(Movable::Shared)
    }

    fn put(&mut self, tag: u32, _: LeasePlace, lease: Movable) {
        let Some((key, value)) = self.slot_mut(tag) else { return };
        match lease {
            Movable::Local(lease) => key.0 = Some(lease),
            Movable::Shared(lease) => *value = Value::One(Some(lease)),
        }
    }
}
