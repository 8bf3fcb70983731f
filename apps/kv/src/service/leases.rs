//! The leases in which keys and values lie, and how they are moved.
//!
//! # Memory ownership
//! A key or a value lies in the pool of the core that stored it, and any core reads it and sends from it. Each lease has the
//! number of its place in the index as a tag. If there is one core, a value that a Reply is sent from stays where it is. On
//! several, a copy takes its place in the index, and the old one comes home when no core reads it any more.

use std::rc::Rc;

use haulage::cores::entries::{Key as _, Other, Unstored};
use haulage::pool::{Common, Keeper, LeasePlace, Leases, Local, Movable, Pieces, Pool, Replaced};
use haulage::service::Data;

use crate::index::Index;

/// A key, in a lease of its own; `None` only while it is being moved.
pub(super) type KeyLease = Option<Local>;

/// A value.
#[derive(Debug)]
pub(super) enum Value {
    /// No octets, and no memory.
    Empty,
    /// One lease; `None` only while it is being moved.
    One(Option<Common>),
    /// Several leases of whole pages, which are not moved.
    Several(Vec<Common>),
}

impl Value {
    /// Makes a value of the leases that have its octets. Fails if the heap has no room for a list of them.
    pub(super) fn new(leases: Leases) -> Option<Self> {
        Some(match leases {
            Leases::One(lease) if lease.is_empty() => Self::Empty,
            Leases::One(lease) => Self::One(Some(lease.into_common())),
            several @ Leases::Several(_) => Self::Several(several.into_commons()?),
        })
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Empty | Self::One(None) => 0,
            Self::One(Some(common)) => common.len() as u64,
            Self::Several(parts) => parts.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Returns the octets, if they lie together.
    pub(super) fn octets(&self) -> Option<&[u8]> {
        match self {
            Self::Empty | Self::One(None) => Some(&[]),
            Self::One(Some(common)) => Some(common.bytes()),
            Self::Several(_) => None,
        }
    }

    /// Returns the value as a result that the core with this pool sends from where it is. Returns `None` if the core sends so much
    /// that it has no room for another reference.
    pub(super) fn data(&self, pool: &Pool) -> Option<Data> {
        Some(match self {
            Self::Empty | Self::One(None) => Data::Empty,
            Self::One(Some(common)) => Data::Shared(common.here(pool)?),
            Self::Several(parts) => Data::Pieces(Rc::new(Pieces::here(parts, pool)?)),
        })
    }

    /// Tags the value with the number of its place, so that it can be moved.
    #[inline]
    pub(super) fn tag(&self, place: u32) {
        if let Self::One(Some(value)) = self {
            value.tag(place);
        }
    }

    /// Returns another reference to the same octets, or `None` if the heap has no room for it.
    fn share(&self) -> Option<Self> {
        Some(match self {
            Self::Empty => Self::Empty,
            Self::One(common) => Self::One(common.clone()),
            Self::Several(parts) => {
                let mut shared = Vec::new();
                shared.try_reserve_exact(parts.len()).ok()?;
                shared.extend(parts.iter().cloned());
                Self::Several(shared)
            }
        })
    }

    /// Returns the place of a value that can be moved.
    const fn movable(&mut self) -> Option<&mut Option<Common>> {
        match self {
            Self::One(common) => Some(common),
            Self::Empty | Self::Several(_) => None,
        }
    }
}

impl Keeper for Index<KeyLease, Value> {
    fn take(&mut self, tag: u32, place: LeasePlace) -> Option<Movable> {
        let (key, value) = self.alone_mut(tag)?;
        if key.as_ref().is_some_and(|key| key.place() == place) {
            return key.take().map(Movable::Local);
        }
        value.movable()?.take_if(|value| value.place() == place).map(Movable::Common)
    }

    fn put(&mut self, tag: u32, _: LeasePlace, lease: Movable) {
        let Some((key, value)) = self.alone_mut(tag) else { return };
        match lease {
            Movable::Local(lease) => *key = Some(lease),
            Movable::Common(lease) => *value = Value::One(Some(lease)),
        }
    }

    fn replace(
        &mut self,
        tag: u32,
        place: LeasePlace,
        again: &mut dyn FnMut(&[u8]) -> Option<Local>,
    ) -> Replaced {
        for _ in 0..TRIES {
            let Some((mark, entry)) = self.look(tag) else { return Replaced::Gone };
            let (key, value) = (entry.key(), entry.value());
            let is_key = key.as_ref().is_some_and(|key| key.place() == place);
            let with = match value {
                _ if is_key => again(key.octets()).zip(value.share()).map(|(key, value)| {
                    // The value comes along, as it may be another core's.
                    Other::Both(Some(key), value)
                }),
                Value::One(Some(value)) if value.place() == place => again(value.bytes())
                    .map(|lease| Other::Value(Value::One(Some(lease.into_common())))),
                _ => return Replaced::Gone,
            };
            let Some(with) = with else { return Replaced::Stays };
            match self.exchange(mark, with) {
                Ok(()) => return Replaced::Done,
                Err(Unstored::Full(_)) => return Replaced::Stays,
                // Another core was faster: a key may be there still.
                Err(Unstored::Changed(_)) => {}
            }
        }
        Replaced::Stays
    }
}

/// How often a key is sought whose value other cores replace meanwhile.
const TRIES: usize = 4;
