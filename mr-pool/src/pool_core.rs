//! The bookkeeping of a pool, the pointer by which leases reach it from any thread, and the reference counts that keep
//! a block from being freed.
//!
//! # Memory ownership
//!
//! [`PoolCore`] frees the bookkeeping and the region when the pool is dropped while every block is
//! free, and never otherwise. A lease is a block in use, so [`PoolRef`], the pointer in each lease, is
//! valid as long as the lease. Only the owner's thread accesses anything but [`Returns`], which
//! [`Bound`] checks.
//!
//! Every `Shared` and every view of a shared, posted or exposed block holds a [`Reference`], and a
//! posted or exposed `Local` counts as one. The block is freed with the last reference, so a view
//! keeps it in use as a lease does.

use std::alloc::{self, Layout};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::blocks::{Allocation, Block, Blocks, Resident};
use crate::gauges::{Counters, LeaseState};
use crate::region::Region;
use crate::returns::Returns;

/// The parts of a pool that its leases need.
struct Body {
    returns: Returns,
    owner: Bound<Owner>,
    region: Region,
}

/// The bookkeeping that only the owner's thread accesses.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) blocks: RefCell<Blocks>,
    pub(crate) counters: Counters,
    /// The counts of each block that is shared, posted or exposed.
    counts: Box<[Tally]>,
}

/// The counts of one block that is shared, posted or exposed.
#[derive(Debug)]
#[repr(C)]
struct Tally {
    references: Cell<u32>,
    /// The number of octets that a peer placed in the block while it was exposed, as far as its
    /// RNIC counts them; or the tag of a block that has one, which is not exposed.
    placed: Cell<u32>,
}

/// The owner of the bookkeeping and the region: dropping it frees both, or leaks both if a block is
/// in use.
#[derive(Debug)]
pub(crate) struct PoolCore(PoolRef);

impl PoolCore {
    /// Creates the bookkeeping of a region of `pages`, owned by the calling thread. Returns `None`, and frees the
    /// region, if there is no memory for it.
    pub(crate) fn new(region: Region, pages: u32) -> Option<Self> {
        let owner = Owner {
            blocks: RefCell::new(Blocks::new(pages)?),
            counters: Counters::default(),
            counts: zeroes(Blocks::counts(pages))?,
        };
        let body = Body { returns: Returns::new(pages)?, owner: Bound::here(owner), region };
        Some(Self(PoolRef(NonNull::from(Box::leak(Box::new(body))))))
    }

    /// Returns the pointer that leases hold.
    pub(crate) const fn pool(&self) -> PoolRef {
        self.0
    }

    /// Returns the memfd of the region, if it has one.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.0.body().region.memfd()
    }

    /// Returns the start of the region. Reading or writing there needs a lease or a view.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.body().region.at(0)
    }
}

impl Drop for PoolCore {
    fn drop(&mut self) {
        self.0.collect();
        if !self.0.owner().blocks.borrow().all_home() {
            // A view of a lent block, or a lease elsewhere, may outlive us: its memory must too.
            return;
        }
        // SAFETY: the pointer is `Box::leak`'s, and only this drop frees it. Every block is home, so
        // nobody holds it: not a lease on another thread, whose last access was the push we collected
        // with its block; not a view (of our RNIC's or through a peer's handle), as its reference
        // keeps its block out.
        drop(unsafe { Box::from_raw(self.0.0.as_ptr()) });
    }
}

/// The pointer from a lease to its pool. It exists in the pool, in leases and in views, never
/// longer than these.
#[derive(Clone, Copy)]
pub(crate) struct PoolRef(NonNull<Body>);

// SAFETY: from another thread than the owner's only the owner's number, which never changes, and the
// atomics of `Returns` can be reached: `Bound` keeps the rest, and `region` is not handed out.
unsafe impl Send for PoolRef {}

impl PoolRef {
    /// Allocates a block by `take`; returns it, and the start of its octets.
    #[inline(always)]
    pub(crate) fn take(
        self,
        mut take: impl FnMut(&mut Blocks) -> Option<Allocation>,
    ) -> Option<(Allocation, NonNull<u8>)> {
        let owner = self.owner();
        let taken = take(&mut owner.blocks.borrow_mut());
        let grant = match taken {
            Some(grant) => grant,
            None if self.collect() => take(&mut owner.blocks.borrow_mut())?,
            None => return None,
        };
        let start = self.body().region.at(grant.offset);
        owner.counters.enter(LeaseState::Local);
        Some((grant, start))
    }

    /// Frees the block of a `Local`, from any thread.
    pub(crate) fn give(self, block: Block) {
        let body = self.body();
        match body.owner.get() {
            Some(owner) => {
                owner.blocks.borrow_mut().give(block);
                owner.counters.leave(LeaseState::Local, 1);
            }
            None => {
                let Returns { head, marks, links } = &body.returns;
                Returns::push(head, marks, links, block);
            }
        }
    }

    /// Frees the blocks that other threads returned; returns whether there were any.
    pub(crate) fn collect(self) -> bool {
        let owner = self.owner();
        let count = self.body().returns.drain(|block| owner.blocks.borrow_mut().give(block));
        owner.counters.leave(LeaseState::Local, count);
        count > 0
    }

    /// Gives a block a tag, by which its owner finds it when it is to be moved.
    #[inline]
    pub(crate) fn tag(self, block: Block, tag: u32) {
        let owner = self.owner();
        let mut blocks = owner.blocks.borrow_mut();
        blocks.tag(block);
        owner.counts[blocks.count_index(block)].placed.set(tag);
    }

    /// Goes to the next stretch of blocks with tags, and appends them to `found`. Returns the pages of the stretch.
    pub(crate) fn next_stretch(self, found: &mut Vec<Resident>) -> Option<Range<u32>> {
        let owner = self.owner();
        // Once shared, a block of which there is only a `Local` may have one reference, or still the last one's count.
        let tag = |index: usize| {
            let Tally { references, placed } = &owner.counts[index];
            (references.get() <= 1).then(|| placed.get())
        };
        owner.blocks.borrow_mut().next_stretch(found, tag)
    }

    /// Starts counting references to a block. The first reference is the caller's.
    #[inline]
    pub(crate) fn count(self, block: Block) -> Count {
        let owner = self.owner();
        let index = owner.blocks.borrow().count_index(block);
        let tally = NonNull::from(&owner.counts[index]);
        let count = Count { tally, pool: self, block };
        count.tally().references.set(1);
        count
    }

    /// Returns the owner's bookkeeping.
    ///
    /// # Panics
    ///
    /// On any thread but the owner's.
    pub(crate) fn owner(&self) -> &Owner {
        self.body().owner.get().expect("a lease changes its state only on the thread of its pool")
    }

    fn body(&self) -> &Body {
        // SAFETY: the body is freed only when every block is home and the pool is gone. `self` is part
        // of the pool, or of a lease or a view, hence of a block that is out. No `&mut Body` is ever
        // made. The body lies outside the region, so no peer and no RNIC writes it.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolRef(..)")
    }
}

/// The count of references to a block in use. It exists in the block's leases and views, never longer, and only on the
/// thread of the pool.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    tally: NonNull<Tally>,
    pool: PoolRef,
    block: Block,
}

impl Count {
    /// Adds a reference.
    ///
    /// # Panics
    ///
    /// At 2^32 references, which only leaked references can add up to.
    pub(crate) fn more(self) -> Reference {
        let Tally { references, .. } = self.tally();
        references.set(references.get().checked_add(1).expect("fewer than 2^32 references"));
        Reference(self)
    }

    /// Returns the first reference, the one that [`PoolRef::count`] counted.
    pub(crate) const fn into_first(self) -> Reference {
        Reference(self)
    }

    /// Returns whether there is only one reference.
    pub(crate) fn is_one(self) -> bool {
        self.tally().references.get() == 1
    }

    /// Counts octets that a peer placed in the block.
    pub(crate) fn place(self, octets: u32) {
        let Tally { placed, .. } = self.tally();
        placed.set(placed.get().saturating_add(octets));
    }

    /// Resets the number of octets that a peer placed in the block.
    pub(crate) fn forget_placed(self) {
        self.tally().placed.set(0);
    }

    /// Returns the number of octets that a peer placed in the block since [`Self::forget_placed`].
    pub(crate) fn placed(self) -> u32 {
        self.tally().placed.get()
    }

    /// Returns the block.
    pub(crate) const fn block(self) -> Block {
        self.block
    }

    /// Returns the pointer to the pool.
    pub(crate) const fn pool(self) -> PoolRef {
        self.pool
    }

    fn tally(&self) -> &Tally {
        // SAFETY: the count is in the pool's books, which live while a block is out, and `self` is part
        // of a lease or a view of one. The books lie outside the region: neither our RNIC nor a peer writes
        // them, not even a peer that has mapped the whole region. No other block has the count while ours
        // is out. `self` is not `Send` and was made on the owner's thread (`owner` in `PoolRef::count`), so no
        // other thread has it.
        unsafe { self.tally.as_ref() }
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.tally().references.get(), self.block)
    }
}

/// One reference to a block, which is freed with its last reference.
#[derive(Debug)]
pub(crate) struct Reference(Count);

impl Reference {
    /// Returns the count that this reference is part of.
    pub(crate) const fn count(&self) -> Count {
        self.0
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let Count { pool, block, .. } = self.0;
        let Tally { references, .. } = self.0.tally();
        let count = references.get() - 1;
        references.set(count);
        if count == 0 {
            pool.owner().blocks.borrow_mut().give(block);
        }
    }
}

/// Allocates counts of zero, as zeroed memory that the system provides on first use. Returns `None` if there is no
/// memory, or if `length` is zero.
fn zeroes(length: usize) -> Option<Box<[Tally]>> {
    let layout = Layout::array::<Tally>(length).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not of size zero.
    let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?.cast::<Tally>();
    let counts = NonNull::slice_from_raw_parts(start, length);
    // SAFETY: the memory was just allocated by the allocator of boxes, with the layout of a slice of `length`
    // tallies, and nobody else has it. A tally is two cells of `u32`, of which zero is a value.
    Some(unsafe { Box::from_raw(counts.as_ptr()) })
}

/// A value for one thread only.
struct Bound<T> {
    thread: u64,
    value: T,
}

impl<T> Bound<T> {
    fn here(value: T) -> Self {
        Self { thread: thread_number(), value }
    }

    fn get(&self) -> Option<&T> {
        (self.thread == thread_number()).then_some(&self.value)
    }
}

/// Returns the calling thread's number. No two threads of a process ever have the same.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_at_zero_or_are_not_made() {
        let counts = zeroes(1000).unwrap();
        let is_zero = |tally: &Tally| (tally.references.get(), tally.placed.get()) == (0, 0);
        assert!(counts.len() == 1000 && counts.iter().all(is_zero));
        assert!(zeroes(isize::MAX as usize / 8).is_none(), "more than there are addresses");
        assert!(zeroes(usize::MAX).is_none(), "its octets are no number");
        assert!(zeroes(0).is_none());
    }
}
