//! Leases whose bytes can be read: owned ones and shared ones.

use std::mem;
use std::ptr::NonNull;

use crate::blocks::Block;
use crate::gauges::State;
use crate::home::{Count, Home, Reference};
use crate::view::{Frozen, Span};

/// Registered memory that no peer can reach and no posted request holds.
///
/// It may go to any thread, be read, written and dropped there: it comes home by itself. It changes
/// its state (every method that consumes it) only on the thread of its pool, and panics elsewhere.
///
/// Contents are what the last lease of the block left.
#[derive(Debug)]
pub struct Local {
    span: Span,
    berth: Berth,
}

impl Local {
    pub(crate) fn new(home: Home, block: Block, span: Span) -> Self {
        Self { span, berth: Berth { home, block } }
    }

    /// Changes the length. What it grows by is what the last lease of the block left.
    ///
    /// # Panics
    ///
    /// If `length` exceeds the capacity.
    #[inline]
    pub fn set_len(&mut self, length: usize) {
        self.span.set_len(length);
    }

    /// Borrows the contents to change them.
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

    /// Returns the octets the block has, at least the length it was leased with.
    pub const fn capacity(&self) -> usize {
        self.span.capacity()
    }

    /// Gives up writing it, so that many requests can read it at once.
    pub fn share(self) -> Shared {
        self.berth.home.owner().counters.pass(State::Local, State::Shared);
        let reference = self.count().into_first();
        let Self { span, berth } = self;
        mem::forget(berth); // the references keep it out
        Shared { octets: span.freeze(), reference }
    }

    /// Returns where the octets are. The state the lease is in says who may touch them.
    pub(crate) const fn octets(&self) -> (NonNull<u8>, usize) {
        self.span.octets()
    }

    /// Starts counting references to the block; the lease is the first.
    #[inline]
    pub(crate) fn count(&self) -> Count {
        self.berth.home.count(self.berth.block)
    }
}

/// A block that is out. Dropping it sends the block home, from any thread.
#[derive(Debug)]
struct Berth {
    home: Home,
    block: Block,
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.home.give(self.block);
    }
}

/// Registered memory that any number of requests may read and nobody writes.
///
/// Clones count references, on the thread of the pool, and so do views. The block goes home with the
/// last of them, those inside posted requests included.
#[derive(Debug)]
pub struct Shared {
    octets: Frozen,
    reference: Reference,
}

impl Shared {
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

    /// Returns where the octets are, which nobody writes.
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
        count.home().owner().counters.enter(State::Shared);
        Self { octets: self.octets, reference }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reference.count().home().owner().counters.leave(State::Shared, 1);
    }
}
