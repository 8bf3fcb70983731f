//! Access to the octets of a region: the only file that dereferences pointers to them.
//!
//! The owner reads and writes a [`Span`], or reads a [`Frozen`]. An RNIC reads through a [`Source`]
//! and writes through a [`Sink`]. The states of a lease separate these accesses in time, and the
//! count of its views tells when those of an RNIC have ended.
//!
//! A proof below that a peer does not write octets relies on an RNIC that restricts the peer to exposed memory. A peer
//! that has mapped a shared region is its own RNIC: in such a region, and only there, the proof assumes an honest peer.
//! The documentation of the crate says what a dishonest one can do.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::blocks::{Allocation, Block, Blocks};
use crate::pool_core::{PoolRef, Reference};

/// The exclusive right to a block's octets while no RNIC accesses them. It cannot be copied.
pub(crate) struct Span {
    start: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// SAFETY: a span is the only access to its octets, so it may move between threads as a `Box` may.
unsafe impl Send for Span {}
// SAFETY: a reference to a span only reads octets, which nothing writes while it is borrowed.
unsafe impl Sync for Span {}

impl Span {
    /// Allocates a block of at least `length` octets in the region of `pool` by `take`, and returns it with the right to
    /// its octets.
    ///
    /// # Panics
    /// If the block is shorter.
    #[inline(always)]
    pub(crate) fn take(
        pool: PoolRef,
        length: usize,
        take: impl FnMut(&mut Blocks) -> Option<Allocation>,
    ) -> Option<(Block, Self)> {
        let (Allocation { block, capacity, .. }, start) = pool.take(take)?;
        assert!(length <= capacity, "the allocator gives what it is asked for");
        // SAFETY: the allocator gave out `capacity >= length` octets at `start`, inside the region, which
        // lives until every block is home. They were zeroed by the system or written since, so they are
        // initialized. No one else has them until the block is given back: no earlier lease, whose
        // return ended it; and neither our RNIC nor a peer, whose views of it kept it out until the
        // last was dropped. Where a peer has mapped the region, whoever passed it to that peer vouches for it.
        let span = unsafe { Self::new(start, length, capacity) };
        Some((block, span))
    }

    /// Makes the right to `capacity` octets, of which `length` are in use.
    ///
    /// # Safety
    ///
    /// The octets are initialized, live as long as the span and everything made from it, and are read and written by
    /// nothing else meanwhile. `length` is at most `capacity`.
    const unsafe fn new(start: NonNull<u8>, length: usize, capacity: usize) -> Self {
        Self { start, length, capacity }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new`'s caller gave us `capacity >= length` initialized octets that live as long as
        // we do and are only ours. They cannot change under the borrow: `bytes_mut` needs `&mut self`,
        // and the states of a lease that let our RNIC or a peer write own the span and lend no bytes. In a
        // shared region that holds of honest peers (see the crate's documentation).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    #[inline]
    pub(crate) fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity, "{length} exceeds the lease's capacity {}", self.capacity);
        self.length = length;
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(crate) const fn octets(&self) -> (NonNull<u8>, usize) {
        (self.start, self.length)
    }

    /// Gives up the right to write, permanently.
    pub(crate) const fn freeze(self) -> Frozen {
        Frozen { start: self.start, length: self.length }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} octets", self.length, self.capacity)
    }
}

/// Immutable octets. Their holder counts the copies of this right, and the octets are not written
/// before the last copy is gone.
#[derive(Clone, Copy)]
pub(crate) struct Frozen {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: nobody writes the octets before the last copy is gone. Who holds copies on several threads counts them by
// atomics, so that what any of them read was read before the octets are lent again.
unsafe impl Send for Frozen {}
// SAFETY: as above; a reference to one only reads.
unsafe impl Sync for Frozen {}

impl Frozen {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: made from a span, so the octets are initialized and live until their block goes
        // home, which is after the last copy of this. Nobody writes them: the span is gone, a shared
        // block is never the sink of a work request, and never exposed, so neither our RNIC nor a
        // peer has them to write; of a shared region, no honest one.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) const fn octets(&self) -> (NonNull<u8>, usize) {
        (self.start, self.length)
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets", self.length)
    }
}

/// A view of octets that an RNIC may read: the source of a Send or a Write, or of a peer's Read.
///
/// While a view exists nothing writes the octets: a writable lease stays posted or exposed until its last view is
/// dropped.
pub struct Source {
    start: NonNull<u8>,
    length: usize,
    _keeps: Reference,
}

impl Source {
    /// Makes a view of `length` octets.
    ///
    /// # Safety
    ///
    /// The octets are initialized and in the block that `reference` counts, and nothing writes them
    /// as long as it exists.
    pub(crate) const unsafe fn new(
        start: NonNull<u8>,
        length: usize,
        reference: Reference,
    ) -> Self {
        Self { start, length, _keeps: reference }
    }

    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the octets live: our reference keeps their block out. `new`'s caller promised that
        // they are initialized and that nobody writes them until it is dropped: not their owner, whose
        // lease is posted, exposed or shared; not our RNIC, for which a source is read only; and not a
        // peer, to whom such a lease is exposed for reading. In a shared region, an honest one heeds that.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Returns the number of octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no octets.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the address of the first octet, for a scatter list. It must not be revealed to a
    /// peer.
    pub fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} octets)", self.length)
    }
}

/// A view of octets that an RNIC may write: the sink of a Receive or a Read, or of a peer's Write.
///
/// The octets cannot be read through the view, because they may change at any moment until the request completes or the
/// handle is invalidated. The lease stays posted or exposed until its last view is dropped.
pub struct Sink {
    start: NonNull<u8>,
    length: usize,
    keeps: Reference,
}

impl Sink {
    /// Makes a view of `length` octets.
    ///
    /// # Safety
    ///
    /// The octets are in the block that `reference` counts, and no Rust reference to any of them exists as long as
    /// `reference` does.
    pub(crate) const unsafe fn new(
        start: NonNull<u8>,
        length: usize,
        reference: Reference,
    ) -> Self {
        Self { start, length, keeps: reference }
    }

    /// Writes `bytes` at `offset`.
    pub fn place(&mut self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let (start, length) = self.raw(offset, bytes.len()).ok_or(OutOfBounds)?;
        // SAFETY: `raw` checked that `length` octets at `start` are in the view; they live, as our
        // reference keeps their block out. `new`'s caller promised that no Rust reference to them
        // exists, so `bytes` cannot overlap them. The view is not `Send`: no other thread of ours
        // writes them at the same time. The only other writer is the system in a call given `raw`
        // octets, and octets are whatever the last writer left.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), length) };
        Ok(())
    }

    /// Adds to the number of octets that the RNIC placed in an exposed lease through this view, for
    /// [`Exposed::placed`](crate::Exposed::placed).
    #[inline]
    pub fn count_placed(&mut self, octets: usize) {
        self.keeps.count().place(u32::try_from(octets).unwrap_or(u32::MAX));
    }

    /// Returns the address of `length` octets at `offset`, for a system call to write, or `None` if
    /// they are not all in the view. The pointer is valid until the view is dropped.
    pub fn raw(&mut self, offset: usize, length: usize) -> Option<(NonNull<u8>, usize)> {
        let end = offset.checked_add(length)?;
        window(self.start, self.length, offset..end)
    }

    /// Returns the number of octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether there are no octets.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the address of the first octet, for a scatter list. It must not be revealed to a
    /// peer.
    pub fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({} octets)", self.length)
    }
}

/// The error of a range that is not within the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the octets are not all in the view")
    }
}

impl std::error::Error for OutOfBounds {}

/// Returns the start and the length of `range` of the `length` octets at `start`, if it is within
/// them.
pub(crate) fn window(
    start: NonNull<u8>,
    length: usize,
    range: Range<usize>,
) -> Option<(NonNull<u8>, usize)> {
    if range.start > range.end || range.end > length {
        return None;
    }
    let first = NonNull::new(start.as_ptr().wrapping_add(range.start))?;
    Some((first, range.end - range.start))
}
