//! Leases with readable octets: owned leases and shared ones.

use std::mem;
use std::ptr::NonNull;

use crate::blocks::Block;
use crate::gauges::LeaseState;
use crate::pool_core::{Count, PoolRef, Reference};
use crate::view::{Frozen, Span};

/// An owned lease: registered memory that no peer can access and no posted request holds.
///
/// A `Local` may move to any thread and be read, written and dropped there; dropping it returns its
/// block to the pool. The methods that consume it change its state, and panic on any thread but
/// that of its pool.
///
/// The contents are those that the last lease of the block left.
#[derive(Debug)]
pub struct Local {
    span: Span,
    block_ref: BlockRef,
}

impl Local {
    pub(crate) fn new(pool: PoolRef, block: Block, span: Span) -> Self {
        Self { span, block_ref: BlockRef { pool, block } }
    }

    /// Changes the length. Additional octets have the contents that the last lease of the block
    /// left.
    ///
    /// # Panics
    ///
    /// If `length` exceeds the capacity.
    #[inline]
    pub fn set_len(&mut self, length: usize) {
        self.span.set_len(length);
    }

    /// Borrows the contents mutably.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.span.bytes_mut()
    }

    /// Borrows the contents.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.span.bytes()
    }

    /// Returns the length in octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.span.len()
    }

    /// Returns whether the length is zero.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of the block in octets, which is at least the length requested.
    pub const fn capacity(&self) -> usize {
        self.span.capacity()
    }

    /// Makes the lease immutable, so that many requests can read it at once.
    pub fn share(self) -> Shared {
        let (octets, count) = self.freeze();
        Shared::new(octets, count.into_first())
    }

    /// Gives up the right to write, and starts counting references to the block: the caller's is the first.
    pub(crate) fn freeze(self) -> (Frozen, Count) {
        self.block_ref.pool.owner().counters.pass(LeaseState::Local, LeaseState::Shared);
        let count = self.count();
        let Self { span, block_ref } = self;
        mem::forget(block_ref); // the references keep it out
        (span.freeze(), count)
    }

    /// Gives the lease a tag, by which its owner finds it when a [`Mover`](crate::Mover) is to move it. A lease with a tag is
    /// not exposed: that may change the tag.
    pub fn tag(&self, tag: u32) {
        self.block_ref.pool.tag(self.block_ref.block, tag);
    }

    /// Returns where the lease is.
    pub const fn place(&self) -> LeasePlace {
        LeasePlace(self.block_ref.block)
    }

    /// Returns the start and the length of the octets. The state of the lease says who may access
    /// them.
    pub(crate) const fn octets(&self) -> (NonNull<u8>, usize) {
        self.span.octets()
    }

    /// Starts counting references to the block; the lease is the first.
    #[inline]
    pub(crate) fn count(&self) -> Count {
        self.block_ref.pool.count(self.block_ref.block)
    }
}

/// The place of a lease in its pool: no other lease has it as long as the lease exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePlace(pub(crate) Block);

/// A block in use. Dropping it returns the block to the pool, from any thread.
#[derive(Debug)]
struct BlockRef {
    pool: PoolRef,
    block: Block,
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        self.pool.give(self.block);
    }
}

/// A shared lease: immutable registered memory that any number of requests may read.
///
/// Clones and views count references, on the thread of the pool. The block returns to the pool with the last of them,
/// those in posted requests included.
#[derive(Debug)]
pub struct Shared {
    octets: Frozen,
    reference: Reference,
}

impl Shared {
    /// Makes one of the octets of a block, which the reference counts.
    pub(crate) const fn new(octets: Frozen, reference: Reference) -> Self {
        Self { octets, reference }
    }

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

    /// Returns the start and the length of the octets, which are immutable.
    #[inline]
    pub(crate) const fn octets(&self) -> (NonNull<u8>, usize) {
        self.octets.octets()
    }

    /// Returns the count that this reference is part of.
    #[inline]
    pub(crate) const fn count(&self) -> Count {
        self.reference.count()
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        let count = self.reference.count();
        let reference = count.more();
        count.pool().owner().counters.enter(LeaseState::Shared);
        Self { octets: self.octets, reference }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reference.count().pool().owner().counters.leave(LeaseState::Shared, 1);
    }
}
