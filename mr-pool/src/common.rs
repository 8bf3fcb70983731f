//! Memory that any thread reads, and any core sends from.
//!
//! # Memory ownership
//! A [`Common`] is made on the core whose pool has its block, and may be dropped anywhere: the block goes home to that pool. A
//! core sends from it by a [`Shared`] of its own, which it gets from [`Common::here`] and counts without atomics. The block
//! is in use until the `Common` and all of these are dropped. So a value costs a core that sends it two atomic operations,
//! however many references its provider makes.

use crate::blocks::Block;
use crate::gauges::LeaseState;
use crate::lease::{LeasePlace, Local, Shared};
use crate::leases::Leases;
use crate::pieces::{Piece, Pieces};
use crate::pool::Pool;
use crate::pool_core::CommonReference;
use crate::view::Frozen;

/// Immutable registered memory that any thread may read, and drop.
#[derive(Debug)]
pub struct Common {
    octets: Frozen,
    reference: CommonReference,
}

impl Local {
    /// Makes the lease immutable, so that all cores of a group can read it and send from it.
    ///
    /// # Panics
    /// If it is called on another thread than that of the pool.
    pub fn into_common(self) -> Common {
        let (octets, count) = self.freeze();
        Common { octets, reference: count.into_common() }
    }
}

impl Leases {
    /// Makes the leases of the item immutable, so that all cores of a group can read them and send from them.
    ///
    /// Returns `None`, and the memory goes home, if the heap has no room for the list.
    pub fn into_commons(self) -> Option<Vec<Common>> {
        let leases = self.into_vec();
        let mut commons = Vec::new();
        commons.try_reserve_exact(leases.len()).ok()?;
        commons.extend(leases.into_iter().map(Local::into_common));
        Some(commons)
    }
}

/// Another reference to the same octets, counted by an atomic operation.
impl Clone for Common {
    fn clone(&self) -> Self {
        Self { octets: self.octets, reference: self.reference.more() }
    }
}

impl Common {
    /// Borrows the contents.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.octets.bytes()
    }

    /// Returns the length in octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.octets.len()
    }

    /// Returns whether the length is zero.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a reference of the core that has `pool`, to send from. The octets stay where they are, in the pool that
    /// they came from.
    ///
    /// Returns `None` if the core has tens of thousands of such references.
    pub fn here(&self, pool: &Pool) -> Option<Shared> {
        let pool = pool.core().pool();
        let count = pool.visit(self.reference.more())?;
        pool.owner().counters.enter(LeaseState::Shared);
        Some(Shared::new(self.octets, count.into_first()))
    }

    /// Gives the lease a tag, by which its owner finds it when a [`Mover`](crate::Mover) is to move it.
    ///
    /// # Panics
    /// If it is called on another thread than that of the pool.
    pub fn tag(&self, tag: u32) {
        self.reference.pool().tag(self.block(), tag);
    }

    /// Returns where the lease is.
    pub const fn place(&self) -> LeasePlace {
        LeasePlace(self.block())
    }

    /// Returns whether nothing else refers to the octets.
    pub(crate) fn is_alone(&self) -> bool {
        self.reference.is_one()
    }

    const fn block(&self) -> Block {
        self.reference.block()
    }
}

impl Pieces {
    /// Returns references of the core that has `pool` to the parts of an item, to send from.
    ///
    /// Returns `None` if the core has tens of thousands of such references, or the heap has no room for the list.
    pub fn here(parts: &[Common], pool: &Pool) -> Option<Self> {
        let mut pieces = Self::default();
        for part in parts {
            pieces.push(Piece::whole(part.here(pool)?)).ok()?;
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests;
